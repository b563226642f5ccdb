# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring GPUs to a MIG layout with ``nvidia-smi mig``.

The planner has already placed every instance; here the difference between what a GPU holds and what it should hold
becomes commands. An instance that is already where it should be is never touched, so a job on it goes on. What an
earlier run left half-done (a GPU instance without its compute instance) is a difference like any other.
"""

from __future__ import annotations

import fcntl
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

LOCK = "mig.lock"

Read = Callable[[], Dict[str, Any]]
"""Asks nvidia-smi and gives what ``nvidia_smi.Query.facts`` gives."""
Run = Callable[[List[str]], None]
"""Runs a command that changes a GPU; raises MigError where it fails."""


class MigError(Exception):
    """A layout cannot be reached; the text is a sentence for the operator."""


@contextmanager
def locked(directory: Path, limit_s: float) -> Iterator[None]:
    """The host's MIG layout for one run alone, from the first look at it to the last: two at once would each take the other's instances away.

    The lock ends with the process, however that ends; the commands that it runs do not inherit it.

    :raises MigError: another run holds it for longer than ``limit_s`` seconds. The sentence says who.
    """
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (directory / LOCK).open("a+", encoding="utf-8") as file:
        end = time.monotonic() + limit_s
        while not _taken(file.fileno()):
            if time.monotonic() >= end:
                file.seek(0)
                holder = file.read(200).strip() or "a run that did not say who it is"
                raise MigError(
                    f"the MIG layout of this host is being changed by {holder} ({directory / LOCK}), and that was not over in {limit_s:.0f} s; "
                    "wait until that run is done, then run again"
                )
            time.sleep(min(0.5, limit_s))
        file.truncate(0)
        file.write("{}, pid {}, since {}\n".format(os.environ.get("SUDO_USER", "root"), os.getpid(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())))
        file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(frozen=True)
class GpuInstance:
    """A GPU instance: profile such as ``1g.10gb``, first memory slice, the id that nvidia-smi gave it, and its compute instances' ids."""

    profile: str
    start: int
    instance_id: int
    compute_instances: tuple[int, ...]

    @property
    def place(self) -> tuple[str, int]:
        return (self.profile, self.start)


@dataclass(frozen=True)
class GpuState:
    """MIG mode of one GPU now and after the next reset (``enabled``, ``disabled``, ``unsupported``), and its instances."""

    current: str
    pending: str
    instances: tuple[GpuInstance, ...]


def states(smi: dict[str, Any]) -> dict[str, GpuState]:
    """State of every GPU by PCI bus id, from what nvidia-smi said.

    :raises MigError: nvidia-smi did not answer, or left out what is needed to know an instance.
    """
    if smi["state"] != "ok":
        raise MigError("nvidia-smi cannot be asked for the MIG layout ({}: {})".format(smi["state"], smi["error"] or "it is not installed"))
    found = {}
    for gpu in smi["gpus"]:
        mig = gpu["mig"]
        found[gpu["pci_bus_id"]] = GpuState(mig["current"], mig["pending"], _instances(gpu["pci_bus_id"], mig["instances"]))
    return found


def _instances(bus_id: str, listed: list[dict[str, Any]]) -> tuple[GpuInstance, ...]:
    """One GPU instance for each id: the list has one entry for each compute instance."""
    by_id: dict[int, list[dict[str, Any]]] = {}
    for entry in listed:
        if None in (entry["gi"], entry["profile"], entry["placement_start"]):
            raise MigError(f"nvidia-smi does not say profile, id and place of each instance on GPU {bus_id}: {entry}")
        by_id.setdefault(entry["gi"], []).append(entry)
    return tuple(
        GpuInstance(entries[0]["profile"], entries[0]["placement_start"], number, tuple(entry["ci"] for entry in entries if entry["ci"] is not None))
        for number, entries in sorted(by_id.items())
    )


def commands_for(pci_bus_id: str, mode: str, places: list[tuple[str, int]], state: GpuState) -> list[list[str]]:
    """Commands that take one GPU from its state to the layout; empty when it already holds exactly that."""
    gpu = ["-i", pci_bus_id]
    commands: list[list[str]] = []
    kept = [instance for instance in state.instances if instance.place in places]
    for instance in state.instances:
        which = [*gpu, "-gi", str(instance.instance_id)]
        whole = len(instance.compute_instances) == 1
        if instance.compute_instances and (instance not in kept or not whole):
            commands.append(["nvidia-smi", "mig", "-dci", *which])
        if instance not in kept:
            commands.append(["nvidia-smi", "mig", "-dgi", *which])
        elif not whole:
            commands.append(["nvidia-smi", "mig", "-cci", *which])
    if mode == "disabled" and "enabled" in (state.current, state.pending):
        commands.append(["nvidia-smi", *gpu, "-mig", "0"])
    if mode == "enabled" and state.current != "enabled":
        commands.append(["nvidia-smi", *gpu, "-mig", "1"])
    missing = sorted(set(places) - {instance.place for instance in kept}, key=lambda place: place[1])
    if missing:
        # A profile tuple is a profile and, after a colon, the first slice (nvidia-smi mig --help, tests/fixtures/h200/mig-help.txt).
        commands.append(["nvidia-smi", "mig", *gpu, "-cgi", ",".join(f"{profile}:{start}" for profile, start in missing), "-C"])
    return commands


def apply(gpus: list[dict[str, Any]], read: Read, run: Run, check_mode: bool) -> dict[str, Any]:
    """Bring each GPU to its layout and compare afterwards.

    :param gpus: ``{pci_bus_id, mode: enabled|disabled, instances: [{profile, start}]}`` for each GPU.
    :returns: ``{changed, actions: [commands as text], instances: [{pci_bus_id, profile, start, uuid}], diff: {before, after}}``; the instances are those that
        are there at the end, in check mode those that are there now.
    :raises MigError: a GPU is missing, nvidia-smi refused, or the state afterwards is not the layout.
    """
    found = read()
    before = states(found)
    commands: list[list[str]] = []
    for gpu in gpus:
        bus_id = gpu["pci_bus_id"]
        if bus_id not in before:
            raise MigError(f"GPU {bus_id} is in the plan but nvidia-smi does not list it; run the playbook again to plan from what is there now")
        if before[bus_id].current == "unsupported" and gpu["mode"] == "enabled":
            raise MigError(f"GPU {bus_id} does not support MIG")
        commands += commands_for(bus_id, gpu["mode"], _places(gpu), before[bus_id])
    was = {gpu["pci_bus_id"]: _text(before[gpu["pci_bus_id"]]) for gpu in gpus}
    wanted = {gpu["pci_bus_id"]: _words(gpu["mode"], _places(gpu)) for gpu in gpus}
    if commands and not check_mode:
        _run_all(commands, wanted, read, run)
        found = read()
        _compare(wanted, states(found))
    return {
        "changed": bool(commands),
        "actions": [" ".join(command) for command in commands],
        "instances": _named(found, list(wanted)),
        "diff": {"before": was, "after": wanted if commands else was},
    }


def _named(smi: dict[str, Any], bus_ids: list[str]) -> list[dict[str, Any]]:
    """What a job can be given: CUDA takes an instance by its UUID alone, and no index names one."""
    return [
        {"pci_bus_id": gpu["pci_bus_id"], "profile": entry["profile"], "start": entry["placement_start"], "uuid": entry["uuid"]}
        for gpu in smi["gpus"]
        if gpu["pci_bus_id"] in bus_ids
        for entry in sorted(gpu["mig"]["instances"], key=lambda entry: (entry["placement_start"], entry["ci"] or 0))
        if entry["uuid"] is not None
    ]


def _run_all(commands: list[list[str]], wanted: dict[str, str], read: Read, run: Run) -> None:
    """All commands, creations last: a mode that waits for a reset must be told as that, not as the failure of what needs the mode."""
    creations = [command for command in commands if "-cgi" in command]
    rest = [command for command in commands if command not in creations]
    for command in rest:
        run(command)
    if creations and any("-mig" in command for command in rest):
        for bus_id, state in states(read()).items():
            if bus_id in wanted:
                _not_waiting(bus_id, state)
    for command in creations:
        run(command)


def _not_waiting(bus_id: str, state: GpuState) -> None:
    if state.current != state.pending:
        raise MigError(
            f"GPU {bus_id} keeps MIG {state.current} until it is reset (pending: {state.pending}); "
            "stop what holds the GPU, services such as DCGM included, or reboot the host, then run again"
        )


def _places(gpu: dict[str, Any]) -> list[tuple[str, int]]:
    return [(instance["profile"], instance["start"]) for instance in gpu["instances"]]


def _compare(wanted: dict[str, str], after: dict[str, GpuState]) -> None:
    for bus_id, words in wanted.items():
        state = after.get(bus_id)
        if state is None:
            raise MigError(f"nvidia-smi does not list GPU {bus_id} any more after the change; look at dmesg for Xid lines")
        if state.current == "unsupported":
            continue
        _not_waiting(bus_id, state)
        if _text(state) != words:
            raise MigError(f"GPU {bus_id} holds {_text(state)} after the change, planned was {words}")


def _text(state: GpuState) -> str:
    return _words(state.current, [instance.place for instance in state.instances if len(instance.compute_instances) == 1])


def _words(mode: str, places: list[tuple[str, int]]) -> str:
    return " ".join(["MIG", mode, *(f"{profile}@{start}" for profile, start in sorted(places, key=lambda place: place[1]))])
