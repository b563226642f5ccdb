# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""What a broken GPU does to the process that computes on it, for containers of a simulated host (a test double).

Python loads a module of this name at its start. The simulated host's CDI specification puts its folder on the path while a fault payload-* is on;
the state that stands for the kernel says which, and of which GPU. The process of GPU N is the one of rank N. The image's Python may be another one than
the host's, so nothing of the simulator is imported here.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATE = Path("/run/gpu-host-sim/state.json")


def product_with(fault: Callable[[Any], None], product: Callable[..., Any]) -> Callable[..., Any]:
    """torch.mm that lets the fault happen to a product in its output; products without one are the CPU's own work."""

    def mm(*arguments: Any, **named: Any) -> Any:
        result = product(*arguments, **named)
        if "out" in named:
            fault(named["out"])
        return result

    return mm


def wrong(out: Any) -> None:
    out[0, 0] += 1


def hang(out: Any) -> None:
    while True:
        time.sleep(3600)


def crash(out: Any) -> None:
    os.abort()


def killed(out: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


COMPUTING: dict[str, Callable[[Any], None]] = {"payload-wrong": wrong, "payload-hang": hang, "payload-crash": crash, "payload-killed": killed}


class AfterTorch:
    """Finder of torch that changes its product once it is imported."""

    def __init__(self, fault: Callable[[Any], None]) -> None:
        self.fault = fault

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec.loader if spec else None
        if loader is None:
            return spec
        execute = loader.exec_module

        def exec_module(module: Any) -> None:
            execute(module)
            module.mm = product_with(self.fault, module.mm)

        loader.exec_module = exec_module
        return spec


def half_line(write: Callable[[int, bytes], int]) -> Callable[[int, bytes], int]:
    """os.write that loses the second half of the first result on standard output."""
    lost: list[bytes] = []

    def cut(descriptor: int, data: bytes) -> int:
        if descriptor == 1 and not lost and b'"event":"check"' in data:
            lost.append(data[len(data) // 2 :])
            data = data[: len(data) // 2]
        return write(descriptor, data)

    return cut


def install(faults: dict[str, Any], rank: str | None) -> None:
    """Let the faults of this rank's GPU happen in this process."""
    for name, gpu in faults.items():
        if rank != str(gpu):
            continue
        if name in COMPUTING:
            sys.meta_path.insert(0, AfterTorch(COMPUTING[name]))
        elif name == "payload-half-line":
            os.write = half_line(os.write)  # type: ignore[assignment]


if STATE.is_file():
    install(json.loads(STATE.read_text(encoding="utf-8"))["faults"], os.environ.get("RANK"))
