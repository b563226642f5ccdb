# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts for tests: one description, rendered as a facts dict (``Host.facts``) and as a tree of files that imitates the host (``Host.tree``).

``tests/unit/plugins/module_utils/test_facts.py`` collects from the tree and compares with the dict, so the two cannot drift apart. Values are those of an
HGX H100 8-GPU board with Debian 13; bus ids are the ones that nvidia-smi printed in ``tests/fixtures/nvidia-smi-550/h100``.

    facts_for()                                  bare: no driver, no engine
    facts_for(**CONVERGED)                       everything installed, fabric completed
    facts_for(gpus=7)                            one GPU is missing
    facts_for(bound_to="vfio-pci")               GPUs given to virtual machines
    facts_for(**CONVERGED, fabric_state="In Progress")
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

Facts = dict[str, Any]

FIXTURES = Path(__file__).parent.parent / "fixtures"
BUS_IDS = tuple(f"0000:{bus}:00.0" for bus in ("1a", "1b", "4a", "4b", "8a", "8b", "ca", "cb"))
DRIVER = "580.178.04"
TOOLKIT = "1.20.0"
KERNEL = "6.12.48+deb13-amd64"
BOOT_ID = "3f1c2a52-7a0e-4d0e-9b0f-3c1d5a1e8f77"
MACHINE_ID = "0c5f0f6f2d3c4f4e9a5f0e6d7c8b9a10"
IMAGE_ID = "sha256:" + "ab" * 32
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nouveau", "ib_umad", "mlx5_core")
UNITS = (
    "docker.service",
    "docker.socket",
    "containerd.service",
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-cdi-refresh.service",
    "nvidia-cdi-refresh.path",
)
CDI_PATH = "/var/run/cdi/nvidia.yaml"


@dataclass(frozen=True)
class Host:
    """What a host is like. Every field can be given to ``facts_for``."""

    hostname: str = "h100-01"
    gpus: int = 8
    pci_id: str = "10de:2330"
    subsystem_id: str = "10de:16c1"
    gpu_name: str = "NVIDIA H100 80GB HBM3"
    memory_mib_each: int = 81559
    nvswitches: int = 4
    audio_functions: bool = False
    """Each GPU has an NVIDIA audio function beside it, which is no GPU."""
    bound_to: str | None = None
    """Kernel driver of the GPUs; None: nvidia where ``driver`` is set, else nouveau where it is loaded, else none."""
    nouveau: bool = False

    distribution: tuple[str, str, str, str] = ("debian", "13", "trixie", "Debian GNU/Linux 13 (trixie)")
    architecture: str = "x86_64"
    kernel: str = KERNEL
    headers: bool = False
    command_line: str = "BOOT_IMAGE=/boot/vmlinuz root=/dev/nvme0n1p2 ro quiet"
    secure_boot: str = "disabled"
    cpus: int = 128
    memory_mib: int = 2063000

    driver: str | None = None
    """Version of the loaded driver, its packages and its libraries."""
    flavour: str = "open"
    library: str | None = None
    """Version of the libraries, where it is not the driver's."""
    held: bool = True
    smi_state: str = "ok"
    """With a driver: ok, hung, failed, garbled."""
    mig: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    """GPU index to its MIG instances (facts form); a GPU that is named has MIG enabled."""
    fabric_state: str | None = None
    """None: Completed where the fabric manager is installed, else not reported."""
    fabric_manager: str | None = None

    docker: str | None = None
    docker_running: bool = True
    daemon_json: dict[str, Any] | None = None
    containers: tuple[dict[str, Any], ...] = ()
    images: tuple[str, ...] = ()
    toolkit: str | None = None
    cdi_problems: tuple[str, ...] = ()
    """Facts only: the tree's specification has none."""

    packages: dict[str, str] = field(default_factory=dict)
    """More packages, name to version."""
    busy: str | None = None
    """Facts only."""
    broken: bool = False
    files: dict[str, str] = field(default_factory=dict)
    failed_units: tuple[str, ...] = ()
    units: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Changes to the units that follow from the rest: name to load, active, enabled."""
    holders: tuple[dict[str, Any], ...] = ()
    free_mib: int = 800_000
    stamp: dict[str, Any] | None = None

    # --- facts -------------------------------------------------------------------------------------------------------------------------------------------

    def facts(self) -> Facts:
        """The facts of this host, as gpu_host_facts gives them."""
        identifier, version, codename, name = self.distribution
        return {
            "schema": 1,
            "collected_at": "2026-12-01T04:00:00Z",
            "hostname": self.hostname,
            "machine_id": MACHINE_ID,
            "boot_id": BOOT_ID,
            "distribution": {
                "id": identifier,
                "version": version,
                "codename": codename,
                "name": name,
                "key": f"{identifier}-{version if identifier == 'ubuntu' else version.split('.', maxsplit=1)[0]}",
            },
            "architecture": self.architecture,
            "python": "3.13.5",
            "init": "systemd",
            "kernel": {"release": self.kernel, "headers": self.headers, "command_line": self.command_line, "secure_boot": self.secure_boot},
            "cpus": self.cpus,
            "memory_mib": self.memory_mib,
            "gpus": [self._gpu(bus_id) for bus_id in self.bus_ids],
            "nvswitches": [{"pci_bus_id": bus_id, "pci_id": "10de:22a3"} for bus_id in self.switch_bus_ids],
            "nvlink5_management": False,
            "modules": {module: self._module(module) for module in MODULES},
            "packages": {
                "manager": "apt",
                "installed": {package: {"version": installed, "held": held} for package, (installed, held) in sorted(self._packages().items())},
                "busy": self.busy,
                "broken": self.broken,
            },
            "units": {unit: dict(zip(("load", "active", "enabled"), state, strict=True)) for unit, state in self._units().items()},
            "failed_units": sorted(self.failed_units),
            "files": dict(sorted(self._files().items())),
            "unread_files": {},
            "docker": self._docker(),
            "cdi": {"specs": self._cdi_specs()},
            "device_nodes": [{"path": path, "major": major, "minor": minor} for path, (major, minor) in sorted(self._nodes().items())],
            "nvidia_smi": self._smi(),
            "library_version": self.library or self.driver,
            "holders": sorted(self._holders(), key=lambda holder: (holder["pid"], holder["device"])),
            "disk": {path: {"free_mib": self.free_mib} for path in ("/", "/boot", "/var", "/var/lib/containerd", "/var/lib/docker")},
            "stamp": copy.deepcopy(self.stamp),
        }

    @property
    def bus_ids(self) -> tuple[str, ...]:
        return BUS_IDS[: self.gpus]

    @property
    def switch_bus_ids(self) -> tuple[str, ...]:
        return tuple(f"0000:{5 + index:02x}:00.0" for index in range(self.nvswitches))

    @property
    def gpu_driver(self) -> str | None:
        return self.bound_to or ("nvidia" if self.driver else "nouveau" if self.nouveau else None)

    def uuid(self, index: int) -> str:
        return f"GPU-01000100-0000-0000-0000-{index:012d}"

    def _gpu(self, bus_id: str) -> dict[str, Any]:
        return {
            "pci_bus_id": bus_id,
            "pci_id": self.pci_id,
            "subsystem_id": self.subsystem_id,
            "class": "0302",
            "driver": self.gpu_driver,
            "numa_node": 0 if bus_id < "0000:80" else 1,
            "link": {"speed_gts": 32.0, "width": 16, "max_speed_gts": 32.0, "max_width": 16},
        }

    def _module(self, name: str) -> dict[str, Any]:
        ours = name.startswith("nvidia") and self.driver is not None
        loaded = ours or (name == "nouveau" and self.nouveau)
        main = name == "nvidia" and ours
        return {
            "loaded": loaded,
            "version": self.driver if ours else None,
            "flavour": self.flavour if main else None,
            "available": self.driver if main else None,
            "available_flavour": self.flavour if main else None,
        }

    def _packages(self) -> dict[str, tuple[str, bool]]:
        packages = {name: (version, False) for name, version in self.packages.items()}
        if self.headers:
            packages[f"linux-headers-{self.kernel}"] = ("6.12.48-1", False)
        if self.driver:
            kernel_package = "nvidia-kernel-open-dkms" if self.flavour == "open" else "nvidia-kernel-dkms"
            for name in ("nvidia-driver-cuda", kernel_package, "nvidia-persistenced", "libnvidia-ml1", "libcuda1"):
                packages[name] = (f"{self.driver}-1", self.held)
            packages["dkms"] = ("3.2.2-1~deb13u1", False)
        if self.fabric_manager:
            packages["nvidia-fabricmanager"] = (f"{self.fabric_manager}-1", self.held)
        if self.docker:
            packages["docker.io"] = (f"{self.docker}+dfsg1-9+b6", False)
        if self.toolkit:
            for name in ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"):
                packages[name] = (f"{self.toolkit}-1", self.held)
        return packages

    def _units(self) -> dict[str, tuple[str, str, str]]:
        absent = ("not-found", "inactive", "not-found")
        units = dict.fromkeys(UNITS, absent)
        if self.docker:
            units["docker.service"] = ("loaded", "active" if self.docker_running else "inactive", "enabled")
            units["docker.socket"] = ("loaded", "active", "enabled")
            units["containerd.service"] = ("loaded", "active", "enabled")
        if self.driver:
            units["nvidia-persistenced.service"] = ("loaded", "active", "enabled")
        if self.fabric_manager:
            units["nvidia-fabricmanager.service"] = ("loaded", "active", "enabled")
        if self.toolkit:
            units["nvidia-cdi-refresh.path"] = ("loaded", "active", "enabled")
            units["nvidia-cdi-refresh.service"] = ("loaded", "inactive", "enabled")
        return {**units, **self.units}

    def _files(self) -> dict[str, str]:
        files = {"/etc/apt/sources.list.d/debian.sources": "Types: deb\nURIs: https://deb.debian.org/debian\nSuites: trixie\nComponents: main\n"}
        if self.daemon_json is not None:
            files["/etc/docker/daemon.json"] = json.dumps(self.daemon_json, indent=2) + "\n"
        return {**files, **self.files}

    def _docker(self) -> dict[str, Any]:
        running = self.docker is not None and self.docker_running
        return {
            "installed": self.docker is not None,
            "version": self.docker,
            "running": running,
            "api_error": None,
            "root_dir": "/var/lib/docker" if running else None,
            "storage_driver": "overlay2" if running else None,
            "cgroup_driver": "systemd" if running else None,
            "snap": False,
            "containers": [dict(container) for container in self.containers] if running else [],
            "unit_flags": ["--host=fd://"] if self.docker else [],
            "images": dict.fromkeys(self.images, IMAGE_ID) if running else {},
        }

    def cdi_devices(self) -> list[str]:
        names = []
        for index in range(self.gpus):
            names += [str(index), self.uuid(index)]
        return [*names, "all"]

    def _cdi_specs(self) -> list[dict[str, Any]]:
        if not (self.toolkit and self.driver):
            return []
        return [{"path": CDI_PATH, "kind": "nvidia.com/gpu", "cdi_version": "0.5.0", "devices": self.cdi_devices(), "problems": list(self.cdi_problems)}]

    def _nodes(self) -> dict[str, tuple[int, int]]:
        if not self.driver:
            return {}
        nodes = {f"/dev/nvidia{index}": (195, index) for index in range(self.gpus)}
        nodes |= {"/dev/nvidiactl": (195, 255), "/dev/nvidia-modeset": (195, 254), "/dev/nvidia-uvm": (511, 0), "/dev/nvidia-uvm-tools": (511, 1)}
        nodes |= {"/dev/nvidia-caps/nvidia-cap1": (508, 1), "/dev/nvidia-caps/nvidia-cap2": (508, 2)}
        if self.nvswitches:
            nodes["/dev/nvidia-nvswitchctl"] = (509, 255)
        return nodes

    def _smi(self) -> dict[str, Any]:
        nothing: Facts = {"error": None, "seconds": None, "driver_version": None, "cuda_version": None, "gpus": []}
        if not self.driver:
            return {"state": "absent", **nothing}
        if self.smi_state != "ok":
            errors = {
                "hung": "nvidia-smi did not end within 15 s and was given up",
                "failed": "nvidia-smi exited 9: NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
                "garbled": "nvidia-smi wrote something that is not its XML: no element found: line 1, column 0",
            }
            return {"state": self.smi_state, **nothing, "error": errors[self.smi_state], "seconds": 15.0 if self.smi_state == "hung" else 0.5}
        gpus = [self._smi_gpu(index, bus_id) for index, bus_id in enumerate(self.bus_ids)]
        return {"state": "ok", "error": None, "seconds": 0.5, "driver_version": self.driver, "cuda_version": "13.0", "gpus": gpus}

    def _smi_gpu(self, index: int, bus_id: str) -> dict[str, Any]:
        mode = "enabled" if index in self.mig else "disabled"
        state, status = self._fabric()
        return {
            "index": index,
            "uuid": self.uuid(index),
            "pci_bus_id": bus_id,
            "name": self.gpu_name,
            "serial": f"165000000000{index}",
            "memory_mib": self.memory_mib_each,
            "persistence": True,
            "compute_mode": "Default",
            "mig": {"current": mode, "pending": mode, "instances": copy.deepcopy(self.mig.get(index, []))},
            "fabric": {"state": state, "status": status},
            "ecc": {"volatile_uncorrectable": 0, "aggregate_uncorrectable": 0},
            "remapped_rows": {"pending": False, "failure": False},
            "recovery_action": "None",
            "processes": [],
        }

    def _fabric(self) -> tuple[str | None, str | None]:
        state = self.fabric_state or ("Completed" if self.fabric_manager else None)
        return state, "Success" if state == "Completed" else None

    def _holders(self) -> list[dict[str, Any]]:
        holders = [dict(holder) for holder in self.holders]
        if self.driver:
            holders += [
                {
                    "device": device,
                    "pid": 901,
                    "command": "/usr/bin/nvidia-persistenced --user nvpd --persistence-mode",
                    "unit": "nvidia-persistenced.service",
                    "container": None,
                    "role": "service",
                }
                for device in (*(f"/dev/nvidia{index}" for index in range(self.gpus)), "/dev/nvidiactl")
            ]
        return holders


CONVERGED: dict[str, Any] = {
    "driver": DRIVER,
    "headers": True,
    "fabric_manager": DRIVER,
    "docker": "26.1.5",
    "daemon_json": {"features": {"cdi": True}},
    "toolkit": TOOLKIT,
}
"""Arguments of ``facts_for``/``Host`` for a host on which everything below the image is installed and works."""


def facts_for(**changes: Any) -> Facts:
    """Facts of a bare HGX H100 host, changed by fields of ``Host``; a key of the facts that
    no field has the name of can be replaced too (``boot_id=...``).

    A new dict each time: tests may change it.
    """
    known = {known_field.name for known_field in fields(Host)}
    host = Host(**{name: value for name, value in changes.items() if name in known})
    facts = host.facts()
    for name, value in changes.items():
        if name not in known:
            if name not in facts:
                raise TypeError(f"{name} is neither a field of Host nor a key of the facts")
            facts[name] = value
    return facts
