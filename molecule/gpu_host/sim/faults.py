# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Faults that the machine can be given, each reversible.

A fault is one function ``(machine, argument, on)``: it notes the fault in the state, or takes it back, and starts or stops
what belongs to it. Everything else (PCI folders, nvidia-smi, the daemons) looks at the state. To add one, write the function.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import tree
from .board import HOME
from .ctk import COMPUTING_FAULTS
from .state import State, Store


class FaultError(Exception):
    """The fault cannot be made here and now; the text is a sentence."""


@dataclass(frozen=True)
class Machine:
    """What a fault may touch."""

    store: Store
    run: Callable[[list[str]], str]
    """Runs a command and gives what it printed."""


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


def _note(machine: Machine, name: str, value: object) -> Any:
    """Note a fault in the state with its value, or take it back (None); what was noted before."""
    with machine.store.change() as state:
        before = state["faults"].pop(name, None)
        if value is not None:
            state["faults"][name] = value
    return before


def _chosen(argument: str | None, choices: tuple[str, ...]) -> str:
    if argument not in (None, *choices):
        raise FaultError(f"{argument!r} is none of {', '.join(choices)}")
    return argument or choices[0]


def _wait_until(true: Callable[[], bool], otherwise: str, seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            raise FaultError(f"{otherwise} after {seconds:.0f} s")
        time.sleep(0.05)


@_fault("gpu-gone", "[INDEX]", "a GPU (default: the last) falls off the bus: no PCI folder, nvidia-smi does not list it; its node stays")
def gpu_gone(machine: Machine, argument: str | None, on: bool) -> None:
    _per_gpu(machine, "gpu-gone", argument, on)


@_fault("row-remap-pending", "[INDEX]", "a row of a GPU's memory (default: the last) is faulty and waits for a reset to be remapped")
def row_remap_pending(machine: Machine, argument: str | None, on: bool) -> None:
    _per_gpu(machine, "row-remap-pending", argument, on)


@_fault("pcie-slow", "[INDEX]", "the PCIe link of a GPU (default: the last) runs at generation 3, although both its ends can do more")
def pcie_slow(machine: Machine, argument: str | None, on: bool) -> None:
    _per_gpu(machine, "pcie-slow", argument, on)


@_fault("gpu-hot", "[INDEX]", "a GPU (default: the last) is too hot, so that its clocks are held back for as long as it stays so")
def gpu_hot(machine: Machine, argument: str | None, on: bool) -> None:
    with machine.store.change() as state:
        hot = state["faults"].pop("gpu-hot", {})
        if on:
            state["faults"]["gpu-hot"] = {**hot, _gpu(state, argument, -1)["pci_bus_id"]: time.time()}


# What the driver says of an Xid in public logs; of others its number alone is imitated.
XID_TEXTS = {
    31: "pid='<unknown>', name=<unknown>, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS",
    79: "pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    119: "pid=4711, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20801702 0x4).",
}
_XID_UNIT = "gpu-host-sim-xid.service"
_SAY_XID = """\
[Unit]
Description=The driver's words about a GPU (rackready lab)

[Service]
ExecStart=/bin/sh -c 'while :; do {home}/bin/gpu-host-sim say-xid; sleep 1; done'
"""


@_fault("xid", "[NUMBER]", "the kernel's log gets a line about Xid NUMBER (default: 79) of the last GPU every second")
def xid(machine: Machine, argument: str | None, on: bool) -> None:
    unit = machine.store.root / "run/systemd/system" / _XID_UNIT
    if not on:
        machine.run(["systemctl", "stop", unit.name])
        unit.unlink(missing_ok=True)
        machine.run(["systemctl", "daemon-reload"])
        _note(machine, "xid", None)
        return
    if argument is not None and not argument.isdigit():
        raise FaultError(f"{argument!r} is not the number of an Xid")
    _note(machine, "xid", int(argument or 79))
    unit.parent.mkdir(parents=True, exist_ok=True)
    unit.write_text(_SAY_XID.format(home=HOME), encoding="utf-8")
    machine.run(["systemctl", "daemon-reload"])
    machine.run(["systemctl", "start", unit.name])


def say_xid(store: Store) -> None:
    """One line about the Xid that was asked for, as the driver writes it."""
    state = store.read()
    number = state["faults"].get("xid")
    if number is not None and state["board"]["gpus"]:
        text = XID_TEXTS.get(number, "pid='<unknown>', name=<unknown>")
        tree.say(store.root, f"NVRM: Xid (PCI:{state['board']['gpus'][-1]['pci_bus_id'].partition('.')[0]}): {number}, {text}")


@_fault("fabric-not-completed", "", "the GPUs stay In Progress with the fabric, although its manager runs")
def fabric_not_completed(machine: Machine, argument: str | None, on: bool) -> None:
    _note(machine, "fabric-not-completed", on or None)
    with machine.store.change() as state:
        if state["fabric"] != "none":
            state["fabric"] = "in_progress" if on else "completed"


# nvidia-smi


@_fault("smi-hang", "", "nvidia-smi never returns and ignores SIGTERM (SIGKILL still works, unlike with a process stuck in the driver)")
def smi_hang(machine: Machine, argument: str | None, on: bool) -> None:
    _note(machine, "smi-hang", on or None)


@_fault("smi-slow", "[SECONDS]", "nvidia-smi takes so long (default: 8 s), as without persistence mode on a large board")
def smi_slow(machine: Machine, argument: str | None, on: bool) -> None:
    if argument is not None and not argument.isdigit():
        raise FaultError(f"{argument!r} is not a number of seconds")
    _note(machine, "smi-slow", int(argument or 8) if on else None)


@_fault("smi-garbled", "[truncated|words]", "nvidia-smi prints half of its answer, or words in place of it, and ends with status 0")
def smi_garbled(machine: Machine, argument: str | None, on: bool) -> None:
    _note(machine, "smi-garbled", _chosen(argument, ("truncated", "words")) if on else None)


# Software of another version


def _packages(machine: Machine) -> dict[str, tuple[str, bool]]:
    """Installed packages: name to version, and whether it is held."""
    lines = machine.run(["dpkg-query", "--show", "--showformat", "${db:Status-Abbrev} ${Package} ${Version}\\n"]).splitlines()
    return {name: (version, flags.startswith("h")) for flags, name, version in (line.split() for line in lines if line[1:2] == "i")}


def _needs_apt(machine: Machine, fault: str) -> None:
    manager = machine.run(["sh", "-c", "command -v apt-get || command -v dnf || true"]).strip().rpartition("/")[2] or "neither"
    if manager != "apt-get":
        raise FaultError(f"the fault {fault} needs apt, which it is made with, and this host has {manager}; nothing was changed: choose a host with apt")


def _other_version(machine: Machine, name: str, argument: str | None, installed: str) -> str:
    """The version of a package that was asked for, else the newest that is not installed."""
    known = [line.split("|")[1].strip() for line in machine.run(["apt-cache", "madison", name]).splitlines() if line.count("|") >= 2]
    fitting = [version for version in known if version != installed and (argument is None or version.partition("-")[0] == argument)]
    if not fitting:
        raise FaultError(f"the repositories have no {name} {argument or f'beside {installed}'}; there are {', '.join(known) or 'none'}")
    return fitting[0]


def _install(machine: Machine, packages: dict[str, str], held: list[str]) -> None:
    options = ["--yes", "--quiet", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages"]
    machine.run(["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", *options, *(f"{name}={version}" for name, version in packages.items())])
    if held:
        machine.run(["apt-mark", "hold", *held])


def _replace(machine: Machine, fault: str, main: str, also: Callable[[str, str], bool], argument: str | None) -> None:
    """Install another version of a package, and of those beside it that ``also`` (name, version) takes; what was there is noted."""
    if fault in machine.store.read()["faults"]:
        raise FaultError(f"the fault {fault} is there already; heal it first")
    there = _packages(machine)
    if main not in there:
        raise FaultError(f"{main} is not installed")
    new = _other_version(machine, main, argument, there[main][0])
    before = {name: version for name, (version, _held) in there.items() if name == main or also(name, version)}
    _note(machine, fault, {"packages": before, "held": [name for name in before if there[name][1]]})
    _install(machine, dict.fromkeys(before, new), [])


def _put_back(machine: Machine, fault: str) -> None:
    """Install what was there; only then is it forgotten, so that a heal that fails can be repeated."""
    before = machine.store.read()["faults"][fault]
    machine.run(["dpkg", "--configure", "--pending"])
    _install(machine, before["packages"], before["held"])
    _note(machine, fault, None)


@_fault("driver-upgraded", "[VERSION]", "the driver's packages (default: the newest) were upgraded under the loaded module: nvidia-smi ends with status 18")
def driver_upgraded(machine: Machine, argument: str | None, on: bool) -> None:
    if on:
        _needs_apt(machine, "driver-upgraded")
        driver = _packages(machine).get("nvidia-driver-cuda", ("", False))[0]
        _replace(machine, "driver-upgraded", "nvidia-driver-cuda", lambda name, version: version == driver and name != "nvidia-fabricmanager", argument)
        return
    _put_back(machine, "driver-upgraded")
    machine.run(["systemctl", "restart", "nvidia-persistenced.service", "nvidia-cdi-refresh.service"])


@_fault("fabric-manager-version", "[VERSION]", "the fabric manager (default: the newest) is not the driver's version and does not start, as after a reboot")
def fabric_manager_version(machine: Machine, argument: str | None, on: bool) -> None:
    unit = "nvidia-fabricmanager.service"
    if on:
        _needs_apt(machine, "fabric-manager-version")
        _replace(machine, "fabric-manager-version", "nvidia-fabricmanager", lambda name, version: False, argument)
        machine.run(["sh", "-c", f"! systemctl restart {unit}"])
        with machine.store.change() as state:
            state["fabric"] = "in_progress"
        return
    _put_back(machine, "fabric-manager-version")
    machine.run(["systemctl", "restart", unit])
    _wait_until(lambda: bool(machine.store.read()["fabric"] == "completed"), "the GPUs have not joined the fabric")


# Containers

CDI_SPEC = Path("run/cdi/nvidia.yaml")
DAEMON_JSON = Path("etc/docker/daemon.json")


def _refresh_cdi(machine: Machine) -> None:
    machine.run(["systemctl", "restart", "nvidia-cdi-refresh.service"])


@_fault("cdi-stale", "[numbers|files]", "the CDI specification has the UVM nodes' numbers of an earlier boot, or the libraries of an earlier driver")
def cdi_stale(machine: Machine, argument: str | None, on: bool) -> None:
    path = machine.store.root / CDI_SPEC
    if not on:
        _note(machine, "cdi-stale", None)
        _refresh_cdi(machine)
        return
    kind = _chosen(argument, ("numbers", "files"))
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    changes = {"numbers": (r"(path: /dev/nvidia-uvm\S*\n\s+major: )\d+", r"\g<1>511"), "files": (r"(hostPath: \S+\.so)\.[\d.]+", r"\g<1>.580.95.05")}
    stale = re.sub(*changes[kind], text)
    if stale == text:
        raise FaultError(f"/{CDI_SPEC} has nothing that could be stale")
    path.write_text(stale, encoding="utf-8")
    _note(machine, "cdi-stale", kind)


@_fault("shm-small", "", "the engine's default runtime gives containers 64 MiB of shared memory, whatever they ask for")
def shm_small(machine: Machine, argument: str | None, on: bool) -> None:
    path = machine.store.root / DAEMON_JSON
    before = machine.store.read()["faults"].get("shm-small") or {"text": path.read_text(encoding="utf-8"), "ns": path.stat().st_mtime_ns}
    _note(machine, "shm-small", before)
    # A reload takes over what the file says, and leaves as it is what the file does not mention: to have runc again, it must be named.
    name = "small-shm" if on else "runc"
    runtimes = {"runtimes": {name: {"path": str(HOME / "bin/small-shm-runtime")}}} if on else {}
    path.write_text(json.dumps({**json.loads(before["text"]), "default-runtime": name, **runtimes}, indent=2) + "\n", encoding="utf-8")
    machine.run(["systemctl", "reload", "docker.service"])
    _wait_until(lambda: machine.run(["docker", "info", "--format", "{{.DefaultRuntime}}"]).strip() == name, f"the engine's default runtime is not {name}")
    if not on:
        path.write_text(before["text"], encoding="utf-8")
        os.utime(path, ns=(before["ns"], before["ns"]))
        _note(machine, "shm-small", None)


# Users of a GPU

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


def _job(root: Path, minor: int) -> Path:
    """A folder with the job that holds a GPU."""
    directory = root / f"run/gpu-host-sim-jobs/gpu{minor}"
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "train.py").write_text(_TRAIN.replace("NODE", repr(f"/dev/nvidia{minor}")), encoding="utf-8")
    return directory


def _wait_until_held(node: str, root: Path) -> None:
    _wait_until(lambda: any(node in holder["nodes"] for holder in tree.holders(root)), f"no process had /dev/{node} open")


def _holding(machine: Machine, name: str, argument: str | None, on: bool) -> dict[str, int]:
    """Note that a GPU (default: the first) is held, or take it back: bus ids to minor numbers of the GPUs concerned."""
    with machine.store.change() as state:
        held: dict[str, int] = state["faults"].pop(name, {})
        if on:
            gpu = _gpu(state, argument, 0)
            if "nvidia" not in state["modules"]:
                raise FaultError("no driver is loaded, so nothing can hold a GPU")
            held[gpu["pci_bus_id"]] = gpu["minor"]
            state["faults"][name] = held
    return held


@_fault("gpu-held", "[INDEX]", "a process `python3 train.py` of the unit train-gpu<N>.service has a GPU (default: the first) open and stays")
def gpu_held(machine: Machine, argument: str | None, on: bool) -> None:
    root = machine.store.root
    held = _holding(machine, "gpu-held", argument, on)
    for minor in held.values():
        unit = root / "run/systemd/system" / _held_unit(minor)
        if on:
            directory = _job(root, minor)
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


@_fault("gpu-in-container", "[INDEX]", "a container train-gpu<N> started with --device nvidia.com/gpu=<N> has a GPU (default: the first) open and stays")
def gpu_in_container(machine: Machine, argument: str | None, on: bool) -> None:
    images = machine.run(["docker", "image", "ls", "--all", "--quiet"]).split() if on else []
    if on and not images:
        raise FaultError("the engine has no image to start a container of")
    for minor in _holding(machine, "gpu-in-container", argument, on).values():
        name = f"train-gpu{minor}"
        machine.run(["docker", "rm", "--force", name])
        if on:
            options = ["--detach", "--name", name, "--network", "none", "--device", f"nvidia.com/gpu={minor}"]
            options += ["--volume", f"{_job(machine.store.root, minor)}:/job:ro", "--workdir", "/job", "--entrypoint", "python3"]
            machine.run(["docker", "run", *options, images[0], "train.py"])
            _wait_until_held(f"nvidia{minor}", machine.store.root)


# What a GPU does to a process that computes on it: in_container/sitecustomize.py does it, and the CDI specification brings that into containers.


def _computing(name: str) -> None:
    def act(machine: Machine, argument: str | None, on: bool) -> None:
        with machine.store.change() as state:
            state["faults"].pop(name, None)
            if on:
                state["faults"][name] = _gpu(state, argument, -1)["minor"]
        _refresh_cdi(machine)

    _fault(name, "[INDEX]", COMPUTING_FAULTS[name])(act)


for _name in COMPUTING_FAULTS:
    _computing(_name)


def _command(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise FaultError(f"this host has no {command[0]}, which the fault is made with") from None
    if done.returncode:
        raise FaultError(f"`{' '.join(command)}` failed with exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


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
