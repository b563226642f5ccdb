# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring GPUs to a MIG layout with ``nvidia-smi mig``.

The planner has already placed every instance; here the difference between what a GPU holds and what it should hold
becomes commands. An instance that is already where it should be is never touched, so a job on it goes on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Callable, List, Tuple

Run = Callable[[List[str]], Tuple[int, str, str]]
"""Runs a command and gives (exit status, stdout, stderr)."""

_ROW = re.compile(r"^\|\s+(?P<gpu>\d+)\s+MIG\s+(?P<profile>\S+)\s+(?P<profile_id>\d+)\s+(?P<instance_id>\d+)\s+(?P<start>\d+):(?P<size>\d+)\s+\|$")
_NONE = ("No GPU instances found", "No MIG-enabled devices found")


class MigError(Exception):
    """nvidia-smi refused or said something that is not understood; the text is a sentence for the operator."""


@dataclass(frozen=True)
class GpuInstance:
    """A GPU instance: profile such as ``1g.10gb``, first memory slice, and the id that nvidia-smi gave it."""

    profile: str
    start: int
    instance_id: int = -1

    @property
    def place(self) -> tuple[str, int]:
        return (self.profile, self.start)


@dataclass(frozen=True)
class GpuState:
    """MIG mode of one GPU now and after the next reset (``enabled``, ``disabled``, ``unsupported``), and its instances."""

    current: str
    pending: str
    instances: tuple[GpuInstance, ...]


def parse_instances(text: str) -> tuple[GpuInstance, ...]:
    """Read the table of ``nvidia-smi mig -lgi``.

    :raises MigError: when the text is neither a table of instances nor one of nvidia-smi's ways to say that there are none.
    """
    rows = [_ROW.match(line.rstrip()) for line in text.splitlines()]
    found = tuple(GpuInstance(row["profile"], int(row["start"]), int(row["instance_id"])) for row in rows if row)
    if not found and not any(words in text for words in _NONE):
        raise MigError("`nvidia-smi mig -lgi` printed something that is not a list of GPU instances: " + repr(text.strip()[:200]))
    return found


def parse_modes(text: str) -> dict[str, tuple[str, str]]:
    """Read ``--query-gpu=pci.bus_id,mig.mode.current,mig.mode.pending --format=csv,noheader``: bus id -> (current, pending)."""
    modes = {}
    for line in text.strip().splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != 3:
            raise MigError("nvidia-smi printed a line that is not bus id, current and pending MIG mode: " + repr(line))
        bus_id, current, pending = fields
        modes[bus_id.lower()[-12:]] = (_mode(current), _mode(pending))
    return modes


def _mode(word: str) -> str:
    return {"Enabled": "enabled", "Disabled": "disabled"}.get(word, "unsupported")


def commands_for(pci_bus_id: str, mode: str, instances: list[GpuInstance], state: GpuState) -> list[list[str]]:
    """Commands that take one GPU from its state to the layout; empty when it already holds exactly that."""
    wanted = {instance.place for instance in instances}
    present = {instance.place for instance in state.instances}
    gpu = ["-i", pci_bus_id]
    commands: list[list[str]] = []
    for instance in state.instances:
        if instance.place not in wanted:
            which = [*gpu, "-gi", str(instance.instance_id)]
            commands.append(["nvidia-smi", "mig", "-dci", *which])
            commands.append(["nvidia-smi", "mig", "-dgi", *which])
    if mode == "disabled" and "enabled" in (state.current, state.pending):
        commands.append(["nvidia-smi", *gpu, "-mig", "0"])
    if mode == "enabled" and state.current != "enabled":
        commands.append(["nvidia-smi", *gpu, "-mig", "1"])
    missing = sorted((instance for instance in instances if instance.place not in present), key=lambda instance: instance.start)
    if missing:
        tuples = ",".join(f"{instance.profile}:{instance.start}" for instance in missing)
        commands.append(["nvidia-smi", "mig", *gpu, "-cgi", tuples, "-C"])
    return commands


def read_state(run: Run) -> dict[str, GpuState]:
    """Read mode and instances of every GPU, by PCI bus id.

    :raises MigError: when nvidia-smi fails.
    """
    modes = parse_modes(_must(run, ["nvidia-smi", "--query-gpu=pci.bus_id,mig.mode.current,mig.mode.pending", "--format=csv,noheader"]))
    return {bus_id: GpuState(current, pending, _instances(run, bus_id) if current == "enabled" else ()) for bus_id, (current, pending) in modes.items()}


def _instances(run: Run, bus_id: str) -> tuple[GpuInstance, ...]:
    # nvidia-smi exits non-zero when there are no instances, so the words decide.
    _status, out, err = run(["nvidia-smi", "mig", "-lgi", "-i", bus_id])
    return parse_instances(out + err)


def _must(run: Run, command: list[str]) -> str:
    status, out, err = run(command)
    if status != 0:
        raise MigError("`{}` failed with exit status {}: {}".format(" ".join(command), status, (err or out).strip()))
    return out


def apply(gpus: list[dict[str, Any]], run: Run, check_mode: bool) -> dict[str, Any]:
    """Bring each GPU to its layout and compare afterwards.

    :param gpus: ``{pci_bus_id, mode: enabled|disabled, instances: [{profile, start}]}`` for each GPU.
    :returns: ``{changed, actions: [commands as text], diff: {before, after}}``.
    :raises MigError: a GPU is missing, nvidia-smi refused, or the state afterwards is not the layout.
    """
    before = read_state(run)
    actions: list[str] = []
    for gpu in gpus:
        bus_id = gpu["pci_bus_id"]
        if bus_id not in before:
            raise MigError(f"GPU {bus_id} is in the plan but nvidia-smi does not list it; run the playbook again to plan from what is there now")
        if before[bus_id].current == "unsupported":
            if gpu["mode"] == "enabled":
                raise MigError(f"GPU {bus_id} does not support MIG")
            continue
        instances = [GpuInstance(each["profile"], each["start"]) for each in gpu["instances"]]
        for command in commands_for(bus_id, gpu["mode"], instances, before[bus_id]):
            actions.append(" ".join(command))
            if not check_mode:
                _must(run, command)
    wanted = {gpu["pci_bus_id"]: _text(gpu["mode"], [(each["profile"], each["start"]) for each in gpu["instances"]]) for gpu in gpus}
    was = {bus_id: _text(before[bus_id].current, [instance.place for instance in before[bus_id].instances]) for bus_id in wanted}
    if actions and not check_mode:
        _compare(gpus, wanted, read_state(run))
    return {"changed": bool(actions), "actions": actions, "diff": {"before": was, "after": wanted if actions else was}}


def _compare(gpus: list[dict[str, Any]], wanted: dict[str, str], after: dict[str, GpuState]) -> None:
    for gpu in gpus:
        bus_id = gpu["pci_bus_id"]
        state = after[bus_id]
        if state.current == "unsupported":
            continue
        if state.current != state.pending:
            raise MigError(
                f"GPU {bus_id} keeps MIG {state.current} until it is reset (pending: {state.pending}); "
                "stop what holds the GPU or reboot the host, then run again"
            )
        found = _text(state.current, [instance.place for instance in state.instances])
        if found != wanted[bus_id]:
            raise MigError(f"GPU {bus_id} holds {found} after the change, planned was {wanted[bus_id]}")


def _text(mode: str, places: list[tuple[str, int]]) -> str:
    return " ".join(["MIG", mode, *(f"{profile}@{start}" for profile, start in sorted(places, key=lambda place: place[1]))])
