# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""A simulated machine in a temporary directory: plain files stand for device nodes, folders of proc for processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_host.sim import board, tree
from gpu_host.sim.kernel import Kernel
from gpu_host.sim.state import State, fresh

RELEASE = "6.12.0-test"
VERSION = "580.178.04"


def _plain_nodes(state: State, root: Path) -> None:
    wanted = set(tree.node_names(state))
    for path in [*(root / "dev").glob("nvidia*"), *(root / "dev/nvidia-caps").glob("*")]:
        if path.is_file() and str(path.relative_to(root / "dev")) not in wanted:
            path.unlink()
    for name in wanted:
        path = root / "dev" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """An HGX H100 board with kernel headers, NVIDIA's library and no driver."""
    monkeypatch.setattr(tree, "device_nodes", _plain_nodes)
    machine = Kernel(tmp_path, RELEASE)
    (tmp_path / "lib/modules" / RELEASE / "build").mkdir(parents=True)
    (tmp_path / "usr/lib/x86_64-linux-gnu").mkdir(parents=True)
    (tmp_path / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1").symlink_to(f"libnvidia-ml.so.{VERSION}")
    machine.store.write(fresh(board.load({"board": "hgx-h100-8"}), ["overlay"]))
    return machine


@pytest.fixture
def driver(kernel: Kernel) -> Kernel:
    """The same machine with the open driver built and loaded."""
    kernel.dkms_build(VERSION, "open")
    kernel.load("nvidia_uvm")
    return kernel


@pytest.fixture
def open_node(kernel: Kernel) -> Callable[..., None]:
    """Make a process that has device nodes open: ``open_node(4711, ["python3", "train.py"], "nvidia0")``."""

    def add(pid: int, command: list[str], *nodes: str) -> None:
        process = kernel.root / "proc" / str(pid)
        (process / "fd").mkdir(parents=True)
        (process / "cmdline").write_bytes(b"\0".join(word.encode() for word in command) + b"\0")
        for number, node in enumerate(nodes, start=3):
            (process / "fd" / str(number)).symlink_to(f"/dev/{node}")

    return add


@pytest.fixture
def h100() -> dict[str, Any]:
    return board.load({"board": "hgx-h100-8"})
