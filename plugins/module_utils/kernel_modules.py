# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules, loaded and available, and the version of the driver's libraries. /proc/modules is not used: not every kernel has it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Iterator

from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Commands
from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_line

TIMEOUT_S = 10
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nouveau", "ib_umad", "mlx5_core")
_DRIVER_VERSION = re.compile(r"NVRM version:.*?\s([0-9]{3,}(?:\.[0-9]+)+)\s")
_LIBRARY = re.compile(r"lib(?:nvidia-ml|cuda)\.so\.([0-9]{3,}(?:\.[0-9]+)+)")
_CACHED_LIBRARY = re.compile(rb"(/[\w./+-]*)/lib(?:nvidia-ml|cuda)\.so\.1\0")
_LIBRARY_FOLDERS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu/nvidia/current",
    "usr/lib/aarch64-linux-gnu/nvidia/current",
    "usr/local/nvidia/lib64",
)


def loaded(root: Path, name: str) -> bool:
    """Whether the running kernel has the module."""
    return (root / "sys/module" / name).is_dir()


class Query:
    """The modules; modinfo, which finds what modprobe would load for the running kernel, is started at once."""

    def __init__(self, root: Path, commands: Commands) -> None:
        self._root = root
        modinfo = commands.find("modinfo")
        self._children: dict[str, Child] = {}
        if modinfo:
            self._children = {field: commands.start([modinfo, "-F", field, "nvidia"], TIMEOUT_S) for field in ("version", "license")}

    def facts(self) -> dict[str, dict[str, Any]]:
        """``modules`` of the facts."""
        found = {field: child.finish() for field, child in self._children.items()}
        # Exit status 1: there is no such module for this kernel, which is an answer.
        available = {field: result.text.strip() if result.rc == 0 else "" for field, result in found.items()}
        modules = {name: self._module(name) for name in MODULES}
        modules["nvidia"]["available"] = available.get("version") or None
        modules["nvidia"]["available_flavour"] = flavour_of_license(available.get("license", ""))
        return modules

    def _module(self, name: str) -> dict[str, Any]:
        module: dict[str, Any] = {"loaded": loaded(self._root, name), "version": None, "flavour": None, "available": None, "available_flavour": None}
        if module["loaded"]:
            module["version"] = read_line(self._root / "sys/module" / name / "version")
            if name == "nvidia":
                words = read_line(self._root / "proc/driver/nvidia/version") or ""
                match = _DRIVER_VERSION.search(words + " ")
                module["version"] = match.group(1) if match else module["version"]
                module["flavour"] = flavour_of_banner(words)
        return module


def flavour_of_banner(words: str) -> str | None:
    """Flavour by the first line of /proc/driver/nvidia/version: the open modules name themselves there."""
    if not words:
        return None
    return "open" if "Open Kernel Module" in words else "proprietary"


def flavour_of_license(text: str) -> str | None:
    """Flavour by the module's licence: ``Dual MIT/GPL`` or ``NVIDIA``."""
    return {"Dual MIT/GPL": "open", "NVIDIA": "proprietary"}.get(text)


def library_version(root: Path) -> str | None:
    """Version in the name of the file behind libnvidia-ml.so.1 or libcuda.so.1, as the dynamic linker finds it, else in the usual directories."""
    for folder in _library_folders(root):
        for name in ("libnvidia-ml", "libcuda"):
            target = _LIBRARY.fullmatch((folder / f"{name}.so.1").resolve().name)
            if target:
                return target.group(1)
    return None


def _library_folders(root: Path) -> Iterator[Path]:
    try:
        cache = (root / "etc/ld.so.cache").read_bytes()
    except OSError:
        cache = b""
    for match in _CACHED_LIBRARY.finditer(cache):
        yield root / match.group(1).decode("ascii", "replace").lstrip("/")
    for folder in _LIBRARY_FOLDERS:
        yield root / folder
