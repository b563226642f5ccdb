# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The state of the simulated machine: one JSON file under /run, so it is gone after a reboot as the real one is.

Everything else (sysfs, /proc/driver, device nodes, what nvidia-smi prints) is made from it. In containers the file is
mounted read-only and stands for what the real nvidia-smi asks the kernel.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

State = dict[str, Any]

RUN = Path("run/gpu-host-sim")
CONFIG = Path("etc/gpu-host-sim/board.json")


class NotBootedError(Exception):
    """There is no state file: the simulation has not booted."""


def fresh(board: dict[str, Any], kernel_modules: list[str]) -> State:
    """State of a machine just switched on: no NVIDIA module loaded, no fabric, no MIG, no fault."""
    return {"schema": 1, "board": board, "kernel_modules": kernel_modules, "modules": {}, "fabric": "none", "persistence": False, "mig": {}, "faults": {}}


def present_gpus(state: State) -> list[dict[str, Any]]:
    """GPUs that are on the bus, in the order of their bus ids."""
    gone = state["faults"].get("gpu-gone", [])
    gpus: list[dict[str, Any]] = state["board"]["gpus"]
    return sorted((gpu for gpu in gpus if gpu["pci_bus_id"] not in gone), key=lambda gpu: str(gpu["pci_bus_id"]))


def mig_of(state: State, pci_bus_id: str) -> dict[str, Any]:
    """MIG mode and instances of one GPU: ``{current, pending, instances: [{gi, profile, start, cis: [...]}]}``."""
    empty = {"current": False, "pending": False, "instances": []}
    found: dict[str, Any] = state["mig"].setdefault(pci_bus_id, empty)
    return found


def link_of(state: State, pci_bus_id: str) -> dict[str, str]:
    """What is different about the PCIe link of a GPU with the fault pcie-slow."""
    if pci_bus_id not in state["faults"].get("pcie-slow", []):
        return {}
    return {"link_speed": "8.0 GT/s PCIe", "max_link_speed": state["board"]["gpu"]["link_speed"]}


class Store:
    """Reads and changes the state file below ``root``; changes are exclusive and atomic."""

    def __init__(self, root: Path = Path("/")) -> None:
        self.root = root
        self.directory = root / RUN
        self.path = self.directory / "state.json"

    def read(self) -> State:
        """The state now.

        :raises NotBootedError: there is none.
        """
        try:
            state: State = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise NotBootedError(f"{self.path} does not exist: the simulated GPU host has not booted (systemctl status gpu-host-sim)") from None
        return state

    def write(self, state: State) -> None:
        """Replace the state file in one step."""
        self.directory.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".new")
        new.write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
        new.replace(self.path)

    @contextmanager
    def change(self) -> Iterator[State]:
        """Yield the state for change and write it back; nothing is written when the body raises."""
        self.directory.mkdir(parents=True, exist_ok=True)
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            state = self.read()
            yield state
            self.write(state)
        finally:
            os.close(lock)
