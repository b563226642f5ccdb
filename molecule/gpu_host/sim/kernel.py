# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The simulated kernel: boot, loading and unloading modules.

A kernel module is a JSON file ``{"name", "version", "flavour"}`` that the stand-in driver package puts where dkms puts the
real ones: ``/lib/modules/<release>/updates/dkms/nvidia.ko``, on EL ``/lib/modules/<release>/extra/nvidia.ko``.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

from . import board as boards
from . import tree
from .state import CONFIG, NotBootedError, State, Store, fresh

LICENSES = {"open": "Dual MIT/GPL", "proprietary": "NVIDIA"}
MOUNTS = ("sys/bus/pci/devices", "sys/module", "proc/driver")
# Modules of the outer machine that must not shine through: a lab may run on a machine with a real GPU.
_HIDDEN = re.compile(r"nvidia|nouveau|nvproxy")
_MODULE_FILES = ("initstate", "refcnt", "version", "srcversion", "taint")


# Architectures whose nvidia-smi says N/A about the fabric, whatever its manager does.
SILENT_ABOUT_FABRIC = ("Ampere",)


class ModuleError(Exception):
    """What modprobe or rmmod says, without its own name in front."""


def underscored(name: str) -> str:
    """Module names are the same with - and _."""
    return name.replace("-", "_")


class Kernel:
    """The machine below ``root``; ``release`` is the running kernel's (``uname -r``)."""

    def __init__(self, root: Path = Path("/"), release: str | None = None) -> None:
        self.root = root
        self.release = release or os.uname().release
        self.store = Store(root)

    @property
    def module_folder(self) -> str:
        """Where dkms puts modules, below the kernel's folder."""
        return "extra" if (self.root / "etc/redhat-release").is_file() else "updates/dkms"

    # Modules on disk

    def module_file(self, name: str, release: str | None = None) -> Path | None:
        """Where a module is built for a kernel, or None."""
        directory = self.root / "lib/modules" / (release or self.release) / self.module_folder
        for path in sorted(directory.glob("*.ko")):
            if underscored(path.stem) == underscored(name):
                return path
        return None

    def module_info(self, path: Path) -> dict[str, Any]:
        """Contents of a stand-in module."""
        info: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return info

    def blacklisted(self, name: str) -> bool:
        """Whether modprobe.d keeps the name from being loaded by itself (``blacklist`` or ``install ... /bin/false``)."""
        pattern = re.compile(rf"^\s*(blacklist\s+{name}|install\s+{name}\s+/\S*(false|true))\s*$", re.MULTILINE)
        texts = [path.read_text(encoding="utf-8") for where in ("etc", "lib", "run") for path in sorted((self.root / where / "modprobe.d").glob("*.conf"))]
        return any(pattern.search(text.replace("-", "_")) for text in texts)

    # Boot

    def boot(self) -> list[str]:
        """Mount the simulated trees and load what a real machine would load by itself. Returns what was done, for the log."""
        config = json.loads((self.root / CONFIG).read_text(encoding="utf-8"))
        board = boards.load(config)
        try:
            state = self.store.read()
            done = ["already booted; trees written again"]
            self._mount([])
        except NotBootedError:
            real = self._real_modules()
            self._mount(list(real.items()))
            state = fresh(board, sorted(real))
            done = [f"board {board['name']}: {len(board['gpus'])} GPUs, {len(board['nvswitches'])} NVSwitches"]
            if board["nouveau"] and not self.blacklisted("nouveau"):
                state["modules"]["nouveau"] = {"version": None, "flavour": None}
                done.append("loaded nouveau")
        self.store.write(state)
        tree.render(state, self.root)
        tree.kernel_log(self.root)
        for name in self._wanted_at_boot(state):
            try:
                done += [f"loaded {loaded}" for loaded in self.load(name)]
            except ModuleError as error:
                done.append(str(error))
        return done

    def _wanted_at_boot(self, state: State) -> list[str]:
        """Simulated modules that udev loads for the hardware, and those of modules-load.d."""
        names = ["nvidia"] if state["board"]["gpus"] and not self.blacklisted("nvidia") else []
        for where in ("etc", "run", "usr/lib"):
            for path in sorted((self.root / where / "modules-load.d").glob("*.conf")):
                names += [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip() and line.strip()[0] not in "#;"]
        return [name for name in dict.fromkeys(names) if self.module_file(name)]

    def _real_modules(self) -> dict[str, dict[str, str]]:
        """Names and small files of the outer machine's modules: dockerd and systemd look some of them up."""
        found: dict[str, dict[str, str]] = {}
        for folder in sorted((self.root / "sys/module").glob("*")):
            if _HIDDEN.match(folder.name):
                continue
            files = {}
            for path in [folder / name for name in _MODULE_FILES] + sorted((folder / "parameters").glob("*")):
                try:
                    files[str(path.relative_to(folder))] = path.read_text(encoding="utf-8")
                except (OSError, UnicodeDecodeError):
                    continue  # Absent, write-only, or not text: nothing to copy.
            found[folder.name] = files
        return found

    def _mount(self, modules: list[tuple[str, dict[str, str]]]) -> None:
        mounted = {line.split()[4] for line in (self.root / "proc/self/mountinfo").read_text(encoding="utf-8").splitlines()}
        for place in MOUNTS:
            if f"/{place}" not in mounted:
                subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=0755,size=16m", "gpu-host-sim", f"/{place}"], check=True)
        for name, files in modules:
            folder = self.root / "sys/module" / name
            folder.mkdir(exist_ok=True)
            for file, text in files.items():
                path = folder / file
                path.parent.mkdir(exist_ok=True)
                path.write_text(text, encoding="utf-8")

    # Loading and unloading

    def load(self, name: str) -> list[str]:
        """Load a module and what it depends on; names loaded now, in order.

        :raises ModuleError: no such module for the running kernel, or no such device.
        """
        name = underscored(name)
        with self.store.change() as state:
            loaded = self._load(state, name)
            if loaded:
                tree.render(state, self.root)
        return loaded

    def _load(self, state: State, name: str) -> list[str]:
        if name in state["modules"] or name in state["kernel_modules"]:
            return []
        if name == "nouveau":
            if "nvidia" in state["modules"]:
                raise ModuleError("could not insert 'nouveau': No such device")
            state["modules"]["nouveau"] = {"version": None, "flavour": None}
            return ["nouveau"]
        path = self.module_file(name)
        if path is None:
            raise ModuleError(f"Module {name} not found in directory /lib/modules/{self.release}")
        loaded: list[str] = []
        for needed in tree.MODULE_DEPENDENCIES.get(name, ()):
            loaded += self._load(state, needed)
        if name == "nvidia" and ("nouveau" in state["modules"] or not state["board"]["gpus"]):
            raise ModuleError("could not insert 'nvidia': No such device")
        info = self.module_info(path)
        running = state["modules"].get("nvidia")
        if running and running["version"] != info["version"]:
            raise ModuleError(f"could not insert '{name}': Invalid argument")
        state["modules"][name] = {"version": info["version"], "flavour": info["flavour"]}
        if name == "nvidia":
            # Fabric registration waits for the manager; a board without NVSwitch has none, and before Hopper the driver reports none.
            reports = state["board"]["nvswitches"] and state["board"]["gpu"]["architecture"] not in SILENT_ABOUT_FABRIC
            state["fabric"] = "in_progress" if reports else "none"
        return [*loaded, name]

    def unload(self, name: str) -> None:
        """Unload one module.

        :raises ModuleError: not loaded, needed by another module, or a process has a node of it open.
        """
        name = underscored(name)
        with self.store.change() as state:
            if name not in state["modules"]:
                raise ModuleError(f"Module {name} is not currently loaded")
            users = sorted(other for other in state["modules"] if name in tree.MODULE_DEPENDENCIES.get(other, ()))
            if users:
                raise ModuleError(f"Module {name} is in use by: {' '.join(users)}")
            if self._held(name):
                raise ModuleError(f"Module {name} is in use")
            del state["modules"][name]
            if name == "nvidia":
                # On Hopper and newer the MIG mode is the driver's, and instances never survive.
                state["mig"] = {}
                state["fabric"] = "none"
                state["persistence"] = False
            tree.render(state, self.root)

    def _held(self, name: str) -> bool:
        nodes = [node for holder in tree.holders(self.root) for node in holder["nodes"]]
        if name == "nvidia_uvm":
            return any(node.startswith("nvidia-uvm") for node in nodes)
        if name == "nvidia_modeset":
            return "nvidia-modeset" in nodes
        return name == "nvidia" and any(not node.startswith(("nvidia-uvm", "nvidia-modeset")) for node in nodes)

    # What dkms does for the driver packages

    def dkms_build(self, version: str, flavour: str, release: str | None = None) -> str:
        """'Build' the modules of a driver for a kernel; a sentence about what came of it."""
        release = release or self.release
        if not (self.root / "lib/modules" / release / "build").exists():
            return f"Module build for kernel {release} was skipped since the kernel headers for this kernel do not seem to be installed."
        directory = self.root / "lib/modules" / release / self.module_folder
        directory.mkdir(parents=True, exist_ok=True)
        for name in tree.MODULE_DEPENDENCIES:
            info = {"stand_in": "not a kernel module: written by the rackready lab", "name": name, "version": version, "flavour": flavour}
            (directory / f"{name.replace('_', '-')}.ko").write_text(json.dumps(info) + "\n", encoding="utf-8")
        self.depmod(release)
        return f"nvidia/{version} ({flavour}): installed for {release}"

    def dkms_remove(self, version: str, flavour: str) -> None:
        """Remove the modules of that driver, for every kernel."""
        kernels = self.root / "lib/modules"
        for path in sorted(kernels.glob(f"*/{self.module_folder}/nvidia*.ko")):
            info = self.module_info(path)
            if (info["version"], info["flavour"]) == (version, flavour):
                path.unlink()
                self.depmod(path.relative_to(kernels).parts[0])

    def depmod(self, release: str | None = None) -> None:
        """Write modules.dep and modules.dep.bin of a kernel; other tools watch them."""
        directory = self.root / "lib/modules" / (release or self.release)
        if not directory.is_dir():
            return
        lines = []
        folder = self.module_folder
        for path in sorted((directory / folder).glob("*.ko")):
            needed = [f"{folder}/{name.replace('_', '-')}.ko" for name in tree.MODULE_DEPENDENCIES.get(underscored(path.stem), ())]
            lines.append(f"{folder}/{path.name}: {' '.join(needed)}".rstrip() + "\n")
        for name in ("modules.dep", "modules.dep.bin"):
            (directory / name).write_text("".join(lines), encoding="utf-8")
