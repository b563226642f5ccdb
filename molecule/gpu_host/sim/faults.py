# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Faults that the machine can be given, each reversible.

A fault is one function ``(machine, argument, on)``: it notes the fault in the state, or takes it back, and starts or stops
what belongs to it. Everything else (PCI folders, nvidia-smi, the daemons) looks at the state. To add one, write the function.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import tree
from .state import State, Store


class FaultError(Exception):
    """The fault cannot be made here and now; the text is a sentence."""


@dataclass(frozen=True)
class Machine:
    """What a fault may touch."""

    store: Store
    run: Callable[[list[str]], None]


Act = Callable[[Machine, str | None, bool], None]


@dataclass(frozen=True)
class Fault:
    """A fault with its one-line description."""

    name: str
    argument: str
    text: str
    act: Act


FAULTS: dict[str, Fault] = {}


def _fault(name: str, argument: str, text: str) -> Callable[[Act], Act]:
    def add(act: Act) -> Act:
        FAULTS[name] = Fault(name, argument, text, act)
        return act

    return add


def _gpu(state: State, argument: str | None, default: int) -> dict[str, Any]:
    gpus: list[dict[str, Any]] = state["board"]["gpus"]
    index = default if argument is None else int(argument) if argument.isdigit() else -1
    if not gpus or not -len(gpus) <= index < len(gpus) or (argument is not None and index < 0):
        raise FaultError(f"there is no GPU {argument}; this machine has {len(gpus)}, counted from 0")
    return gpus[index]


def _per_gpu(machine: Machine, name: str, argument: str | None, on: bool, default: int = -1) -> None:
    """Note a fault of one GPU (a list of bus ids in the state), or take it back for all."""
    with machine.store.change() as state:
        if on:
            bus_id = _gpu(state, argument, default)["pci_bus_id"]
            state["faults"][name] = sorted({*state["faults"].get(name, []), bus_id})
        else:
            state["faults"].pop(name, None)
        tree.render(state, machine.store.root)


def _plain(machine: Machine, name: str, on: bool) -> None:
    with machine.store.change() as state:
        if on:
            state["faults"][name] = True
        else:
            state["faults"].pop(name, None)


@_fault("gpu-gone", "[INDEX]", "a GPU (default: the last) falls off the bus: no PCI folder, nvidia-smi does not list it; its node stays")
def gpu_gone(machine: Machine, argument: str | None, on: bool) -> None:
    _per_gpu(machine, "gpu-gone", argument, on)


@_fault("smi-hang", "", "nvidia-smi never returns and ignores SIGTERM (SIGKILL still works, unlike with a process stuck in the driver)")
def smi_hang(machine: Machine, argument: str | None, on: bool) -> None:
    _plain(machine, "smi-hang", on)


@_fault("fabric-not-completed", "", "the GPUs stay In Progress with the fabric, although its manager runs")
def fabric_not_completed(machine: Machine, argument: str | None, on: bool) -> None:
    _plain(machine, "fabric-not-completed", on)
    with machine.store.change() as state:
        if state["fabric"] != "none":
            state["fabric"] = "in_progress" if on else "completed"


_TRAIN = """\
# Stand-in of a training job by the rackready lab: it holds a GPU's device node until it is stopped.
import signal
import sys

node = open(sys.argv[1] if len(sys.argv) > 1 else NODE, "rb")
signal.pause()
"""

_UNIT = """\
[Unit]
Description=Training job of somebody (rackready lab)

[Service]
WorkingDirectory={directory}
ExecStart=@/usr/bin/python3 python3 train.py
"""


def _held_unit(minor: int) -> str:
    return f"train-gpu{minor}.service"


def _wait_until_held(node: str, root: Path, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not any(node in holder["nodes"] for holder in tree.holders(root)):
        if time.monotonic() > deadline:
            raise FaultError(f"no process had /dev/{node} open after {seconds:.0f} s")
        time.sleep(0.05)


@_fault("gpu-held", "[INDEX]", "a process `python3 train.py` of the unit train-gpu<N>.service has a GPU (default: the first) open and stays")
def gpu_held(machine: Machine, argument: str | None, on: bool) -> None:
    root = machine.store.root
    with machine.store.change() as state:
        held: dict[str, int] = state["faults"].pop("gpu-held", {})
        if on:
            gpu = _gpu(state, argument, 0)
            if "nvidia" not in state["modules"]:
                raise FaultError("no driver is loaded, so nothing can hold a GPU")
            held[gpu["pci_bus_id"]] = gpu["minor"]
            state["faults"]["gpu-held"] = held
    for minor in held.values():
        directory = root / f"run/gpu-host-sim-jobs/gpu{minor}"
        unit = root / "run/systemd/system" / _held_unit(minor)
        if on:
            directory.mkdir(parents=True, exist_ok=True)
            (directory / "train.py").write_text(_TRAIN.replace("NODE", repr(f"/dev/nvidia{minor}")), encoding="utf-8")
            unit.parent.mkdir(parents=True, exist_ok=True)
            unit.write_text(_UNIT.format(directory=directory), encoding="utf-8")
            machine.run(["systemctl", "daemon-reload"])
            machine.run(["systemctl", "start", unit.name])
            _wait_until_held(f"nvidia{minor}", root)
        else:
            machine.run(["systemctl", "stop", unit.name])
            unit.unlink(missing_ok=True)
    if not on and held:
        machine.run(["systemctl", "daemon-reload"])


def _command(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise FaultError(f"`{' '.join(command)}` failed with exit status {done.returncode}: {done.stderr.strip()}")


def machine(root: Path = Path("/")) -> Machine:
    """The machine that this program runs on."""
    return Machine(Store(root), _command)


def break_(where: Machine, name: str, argument: str | None) -> None:
    """Make a fault.

    :raises FaultError: there is no such fault, or it cannot be made now.
    """
    if name not in FAULTS:
        raise FaultError(f"there is no fault {name!r}; there are {', '.join(sorted(FAULTS))}")
    FAULTS[name].act(where, argument, True)


def heal(where: Machine, name: str | None) -> list[str]:
    """Take one fault back, or all that there are; names of those.

    :raises FaultError: there is no such fault.
    """
    if name is not None and name not in FAULTS:
        raise FaultError(f"there is no fault {name!r}; there are {', '.join(sorted(FAULTS))}")
    names = [each for each in sorted(where.store.read()["faults"]) if each in FAULTS and name in (None, each)]
    for each in names:
        FAULTS[each].act(where, None, False)
    return names
