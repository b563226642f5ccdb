# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Stand-ins of nvidia-persistenced and nv-fabricmanager: real processes that hold device nodes as the real ones do."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path

from .kernel import Kernel, ModuleError
from .state import NotBootedError, State, Store

# Time from the manager's start until every GPU has joined the fabric; the unit is active before that, as on a real board.
FABRIC_SECONDS = 2.0


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _ready() -> None:
    """Tell systemd that the daemon is up, when it asks to be told."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.sendto(b"READY=1", address)


def _hold(names: list[str]) -> list[int]:
    return [os.open(Path("/dev") / name, os.O_RDONLY) for name in names if (Path("/dev") / name).exists()]


def _wait_for_end() -> None:
    """Until SIGTERM or SIGINT."""
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


def _gpu_nodes(state: State) -> list[str]:
    return ["nvidiactl", *(f"nvidia{gpu['minor']}" for gpu in state["board"]["gpus"])]


def persistenced(version: str) -> int:
    """Load the driver as nvidia-modprobe does, hold every GPU, and keep persistence mode on until the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    store = Store()
    try:
        Kernel().load("nvidia")
        state = store.read()
    except (ModuleError, NotBootedError) as error:
        _say(f"Failed to query NVIDIA devices. Please ensure that the NVIDIA device files (/dev/nvidia*) exist. ({error})")
        return 1
    if state["modules"]["nvidia"]["version"] != version:
        _say(f"Failed to initialize: driver {state['modules']['nvidia']['version']} is loaded and this is nvidia-persistenced {version}")
        return 1
    _hold(_gpu_nodes(state))
    with store.change() as state:
        state["persistence"] = True
    _say(f"Started ({os.getpid()}): stand-in of nvidia-persistenced {version}")
    _ready()
    _wait_for_end()
    with suppress(NotBootedError), store.change() as state:
        state["persistence"] = False
    return 0


def fabric_refusal(state: State | None, version: str) -> str | None:
    """Why the manager of this version cannot start, in the real one's words; None when it can."""
    module = state["modules"].get("nvidia") if state else None
    if state is None or module is None or not state["board"]["nvswitches"]:
        return "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]"
    if module["version"] != version:
        return (
            f"fabric manager NVIDIA GPU driver interface version {version} don't match with driver version {module['version']}. "
            "Please update with matching NVIDIA driver package."
        )
    return None


def fabricmanager(version: str) -> int:
    """Configure the switches, go to the background, and let the GPUs join the fabric."""
    store = Store()
    try:
        state: State | None = store.read()
    except NotBootedError:
        state = None
    refusal = fabric_refusal(state, version)
    if refusal or state is None:
        _say(refusal or "")
        return 1
    if os.fork():
        # The service manager takes the return of the starter as "started"; the daemon goes on.
        _say("Connected to 1 node.")
        _say(
            "Successfully configured all the available NVSwitches to route GPU NVLink traffic. "
            "NVLink Peer-to-Peer support will be enabled once the GPUs are successfully registered with the NVLink fabric."
        )
        return 0
    os.setsid()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    directory = Path("/run/nvidia-fabricmanager")
    directory.mkdir(exist_ok=True)
    (directory / "nv-fabricmanager.pid").write_text(f"{os.getpid()}\n", encoding="utf-8")
    _hold([*_gpu_nodes(state), "nvidia-nvswitchctl", *(f"nvidia-nvswitch{number}" for number in range(len(state["board"]["nvswitches"])))])
    if state["fabric"] == "in_progress":
        time.sleep(FABRIC_SECONDS)
        with store.change() as state:
            if "fabric-not-completed" not in state["faults"] and "nvidia" in state["modules"]:
                state["fabric"] = "completed"
    _wait_for_end()
    return 0
