# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""What stands between a tool and the simulated driver: the library's version, the driver's, and who sees which GPU."""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path

from . import tree
from .smi_text import Process, View, view_of
from .state import NotBootedError, State, Store

LIBRARY_DIRECTORIES = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64", "usr/lib", "usr/local/nvidia/lib64")


class NvmlError(Exception):
    """NVML cannot be used. ``code`` is nvidia-smi's exit status, the text is what it prints."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def library_version(root: Path = Path("/")) -> str | None:
    """Version of libnvidia-ml.so, from what libnvidia-ml.so.1 points to, else from the name of the newest file."""
    for directory in LIBRARY_DIRECTORIES:
        link = root / directory / "libnvidia-ml.so.1"
        if link.is_symlink():
            return str(link.readlink()).rsplit(".so.", 1)[-1]
        files = [path.name.split(".so.")[1] for path in (root / directory).glob("libnvidia-ml.so.*.*")]
        if files:
            return max(files, key=lambda text: [int(part) for part in text.split(".")])
    return None


def usable(name: str, root: Path = Path("/")) -> bool:
    """Whether this process can open a device node below /dev."""
    return os.access(root / "dev" / name, os.R_OK)


def client_processes(root: Path = Path("/")) -> dict[int, tuple[Process, ...]]:
    """Processes that hold a GPU's node, by minor number; NVIDIA's own daemons and this process do not count."""
    found: dict[int, list[Process]] = {}
    for holder in tree.holders(root):
        if holder["pid"] == os.getpid() or tree.is_service(holder):
            continue
        for node in holder["nodes"]:
            number = node.removeprefix("nvidia")
            if number.isdigit():
                found.setdefault(int(number), []).append(Process(holder["pid"], holder["command"][0]))
    return {minor: tuple(processes) for minor, processes in found.items()}


def attach(store: Store) -> tuple[State, str]:
    """Initialise as NVML does; gives the state and the driver's version.

    :raises NvmlError: no driver, or a driver of another version than the library's.
    """
    try:
        state: State | None = store.read()
    except NotBootedError:
        state = None
    library = library_version(store.root)
    if library is None:
        raise NvmlError(
            12,
            "NVIDIA-SMI couldn't find libnvidia-ml.so library in your system. Please make sure that the NVIDIA Display Driver is properly installed and "
            "present in your system.\nPlease also try adding directory that contains libnvidia-ml.so to your system PATH.\n",
        )
    driver = state["modules"].get("nvidia") if state else None
    if state is None or driver is None or not usable("nvidiactl", store.root):
        raise NvmlError(
            9,
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
            "Make sure that the latest NVIDIA driver is installed and running.\n\n",
        )
    if library != driver["version"]:
        raise NvmlError(18, f"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: {'.'.join(library.split('.')[:2])}\n")
    return state, driver["version"]


def view(state: State, driver_version: str, root: Path = Path("/")) -> View:
    """What this process sees of the machine now."""
    # nvidia-smi prints local time.
    return view_of(state, driver_version, client_processes(root), lambda name: usable(name, root), datetime.now())
