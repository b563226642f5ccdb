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
import os
import time
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Commands, Result
from ansible_collections.rackready.gpu.plugins.module_utils.facts import gather

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
    "nvidia-mig-manager.service",
    "rackready-verify.timer",
)
CDI_PATH = "/var/run/cdi/nvidia.yaml"
RED_HAT = ("rhel", "rocky", "almalinux", "ol")
ROCKY = {"distribution": ("rocky", "9.6", "", "Rocky Linux 9.6 (Blue Onyx)"), "kernel": "5.14.0-570.12.1.el9_6.x86_64"}
"""Arguments of ``facts_for``/``Host`` for a bare host with dnf."""
RPM_LIBRARIES = ("libnvidia-ml", "nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced")
YUM_REPOSITORIES = """\
[baseos]
name=Rocky Linux $releasever - BaseOS
baseurl=https://dl.rockylinux.org/pub/rocky/$releasever/BaseOS/$basearch/os/
gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9

[appstream]
name=Rocky Linux $releasever - AppStream
baseurl=https://dl.rockylinux.org/pub/rocky/$releasever/AppStream/$basearch/os/
gpgcheck=1
gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9

[crb]
name=Rocky Linux $releasever - CRB
mirrorlist=https://mirrors.rockylinux.org/mirrorlist?arch=$basearch&repo=CRB-$releasever$rltype
enabled=0
"""


def signed_by_ubuntu(kernel: str, driver: str = DRIVER, user_space: str | None = None, open_: str = "-open") -> dict[str, Any]:
    """``packages.signed_modules`` of the facts: modules of a driver for one kernel, and the packages of user space, which may be of another driver."""
    branch = driver.partition(".")[0]
    other = user_space or driver
    names = [f"libnvidia-compute-{branch}-server", f"nvidia-compute-utils-{branch}-server", f"nvidia-headless-no-dkms-{branch}-server{open_}"]
    packages = {name: {f"{other}-0ubuntu0.24.04.1": other} for name in [*names, f"nvidia-utils-{branch}-server"]}
    return {"lists": 2, "packages": {f"linux-modules-nvidia-{branch}-server{open_}-{kernel}": {f"{kernel.rpartition('-')[0]}.88+1": driver}, **packages}}


DISKS = (
    "/",
    "/boot",
    "/etc",
    "/etc/apt/preferences.d",
    "/etc/apt/sources.list.d",
    "/etc/dnf/plugins",
    "/etc/docker",
    "/etc/modprobe.d",
    "/etc/modules-load.d",
    "/etc/pki/rpm-gpg",
    "/etc/rackready",
    "/etc/security/limits.d",
    "/etc/systemd/system",
    "/etc/yum.repos.d",
    "/tmp",
    "/usr",
    "/usr/lib/modules",
    "/usr/lib/systemd/system",
    "/usr/local/sbin",
    "/var",
    "/var/cache/apt",
    "/var/cache/dnf",
    "/var/lib",
    "/var/lib/containerd",
    "/var/lib/dkms",
    "/var/lib/docker",
)


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
    other_kernels: dict[str, bool] = field(default_factory=dict)
    """Kernels that are installed beside the running one, release to whether their headers are."""
    command_line: str = "BOOT_IMAGE=/boot/vmlinuz root=/dev/nvme0n1p2 ro quiet"
    secure_boot: str = "disabled"
    signed_modules: dict[str, Any] | None = None
    """On Ubuntu with Secure Boot: what apt's lists have, as ``signed_by_ubuntu`` makes it; None: there are no lists."""
    selinux: str = "disabled"
    container_use_devices: bool | None = None
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
    docker_running_version: str | None = None
    """Where an upgrade left another engine running than is installed."""
    cdi_enabled: bool | None = None
    """None: as daemon.json says."""
    configuration_read: bool = True
    daemon_json: dict[str, Any] | None = None
    containers: tuple[dict[str, Any], ...] = ()
    images: tuple[str, ...] = ()
    toolkit: str | None = None
    cdi_problems: tuple[str, ...] = ()
    """Facts only: the tree's specification has none."""

    packages: dict[str, str] = field(default_factory=dict)
    """More packages, name to version."""
    streams: dict[str, str] = field(default_factory=dict)
    excludes: tuple[str, ...] = ()
    busy: str | None = None
    """Facts only."""
    broken: bool = False
    files: dict[str, str] = field(default_factory=dict)
    failed_units: tuple[str, ...] = ()
    units: dict[str, tuple[str, str, str]] = field(default_factory=dict)
    """Changes to the units that follow from the rest: name to load, active, enabled."""
    holders: tuple[dict[str, Any], ...] = ()
    free_mib: int = 800_000
    disks: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Changes to what is known of directories' file systems, facts only: path to fields."""
    stamp: dict[str, Any] | None = None

    def tree(self, root: Path) -> Tree:
        """Write the files of this host under ``root`` and give what is needed to collect from them."""
        return Tree(self, root)

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
                "codename": codename or None,
                "name": name,
                "key": f"{identifier}-{version if identifier == 'ubuntu' else version.split('.', maxsplit=1)[0]}",
            },
            "architecture": self.architecture,
            "python": "3.13.5",
            "init": "systemd",
            "kernel": {
                "release": self.kernel,
                "headers": self.headers,
                "command_line": self.command_line,
                "secure_boot": self.secure_boot,
                "others": dict(self.other_kernels),
            },
            "selinux": {"mode": self.selinux, "container_use_devices": self.container_use_devices},
            "cpus": self.cpus,
            "memory_mib": self.memory_mib,
            "gpus": [self._gpu(bus_id) for bus_id in self.bus_ids],
            "nvswitches": [{"pci_bus_id": bus_id, "pci_id": "10de:22a3"} for bus_id in self.switch_bus_ids],
            "nvlink5_management": False,
            "modules": {module: self._module(module) for module in MODULES},
            "packages": {
                "manager": self.manager,
                "installed": {package: {"version": installed, "held": held} for package, (installed, held) in sorted(self._packages().items())},
                "busy": self.busy,
                "broken": self.broken,
                "streams": dict(self.streams),
                "excludes": list(self.excludes),
                **({"signed_modules": self._signed_modules()} if identifier == "ubuntu" and self.secure_boot == "enabled" else {}),
            },
            "units": {unit: dict(zip(("load", "active", "enabled"), state, strict=True)) for unit, state in self._units().items()},
            "failed_units": sorted(self.failed_units),
            "files": dict(sorted(self._files().items())),
            "unread_files": {},
            "digests": {},
            "docker": self._docker(),
            "cdi": {"specs": self._cdi_specs()},
            "device_nodes": [{"path": path, "major": major, "minor": minor} for path, (major, minor) in sorted(self._nodes().items())],
            "nvidia_smi": self._smi(),
            "library_version": self.library or self.driver,
            "holders": sorted(self._holders(), key=lambda holder: (holder["pid"], holder["device"])),
            "disk": {
                path: {"device": 1, "free_mib": self.free_mib, "free_inodes": 50_000_000, "read_only": False, **self.disks.get(path, {})} for path in DISKS
            },
            "stamp": copy.deepcopy(self.stamp),
        }

    def _signed_modules(self) -> dict[str, Any]:
        return copy.deepcopy(self.signed_modules) if self.signed_modules is not None else {"lists": 0, "packages": {}}

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

    @property
    def manager(self) -> str:
        return "dnf" if self.distribution[0] in RED_HAT else "apt"

    def _packages(self) -> dict[str, tuple[str, bool]]:
        return self._rpms() if self.manager == "dnf" else self._debs()

    def _rpms(self) -> dict[str, tuple[str, bool]]:
        """As NVIDIA's, Docker's and the distribution's packages are: of the driver's with an epoch, of the toolkit's with neither epoch nor distribution."""
        packages = {name: (version, False) for name, version in self.packages.items()}
        if self.headers:
            packages[f"kernel-devel-{self.kernel}"] = (self.kernel.rpartition(".")[0], False)
        if self.driver:
            kernel_package = "kmod-nvidia-open-dkms" if self.flavour == "open" else "kmod-nvidia-latest-dkms"
            for name in ("nvidia-driver-cuda", kernel_package, *RPM_LIBRARIES):
                packages[name] = (f"3:{self.driver}-1.el9", self.held)
            packages["dkms"] = ("3.2.2-1.el9", False)
        if self.fabric_manager:
            packages["nvidia-fabricmanager"] = (f"{self.fabric_manager}-1", self.held)
        if self.toolkit:
            for name in ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"):
                packages[name] = (f"{self.toolkit}-1", self.held)
        if self.held and (self.driver or self.toolkit):
            packages["python3-dnf-plugin-versionlock"] = ("4.3.0-21.el9", False)
        return packages

    def _debs(self) -> dict[str, tuple[str, bool]]:
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
        if self.manager == "dnf":
            files = {"/etc/yum.repos.d/rocky.repo": YUM_REPOSITORIES}
            locks = [f"{name}-{version if ':' in version else f'0:{version}'}.*\n" for name, (version, held) in sorted(self._packages().items()) if held]
            if locks:
                files["/etc/dnf/plugins/versionlock.list"] = "".join(locks)
        if self.daemon_json is not None:
            files["/etc/docker/daemon.json"] = json.dumps(self.daemon_json, indent=2) + "\n"
        return {**files, **self.files}

    def _docker(self) -> dict[str, Any]:
        running = self.docker is not None and self.docker_running
        return {
            "installed": self.docker is not None,
            "version": self.docker,
            "running": running,
            "running_version": (self.docker_running_version or self.docker) if running else None,
            "cdi_enabled": self._cdi_enabled() if running else None,
            "configuration_read": self.configuration_read if running else None,
            "api_error": None,
            "root_dir": "/var/lib/docker" if running else None,
            "storage_driver": "overlay2" if running else None,
            "cgroup_driver": "systemd" if running else None,
            "snap": False,
            "containers": [dict(container) for container in self.containers] if running else [],
            "unit_flags": ["--host=fd://"] if self.docker else [],
            "images": dict.fromkeys(self.images, IMAGE_ID) if running else {},
        }

    def _cdi_enabled(self) -> bool:
        if self.cdi_enabled is not None:
            return self.cdi_enabled
        return '"cdi":true' in self._files().get("/etc/docker/daemon.json", "").replace(" ", "")

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
                "garbled": "nvidia-smi wrote something that is not its XML (no element found: line 1, column 0): it wrote nothing",
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
            "errors": [],
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


class Tree:
    """A host as files under a root directory and recorded answers of its commands."""

    def __init__(self, host: Host, root: Path) -> None:
        self.host = host
        self.root = root
        self.commands = Answers()
        self._facts = host.facts()
        for write in (self._system, self._pci, self._modules, self._manager, self._nodes, self._cdi, self._processes, self._systemd, self._docker, self._smi):
            write()
        for path, text in self._facts["files"].items():
            self.write(path, text)
        if host.stamp is not None:
            self.write("/var/lib/rackready/stamp.json", json.dumps(host.stamp))

    def gather(self, smi_timeout: float = 15) -> Facts:
        """Collect, as the module does."""
        return gather(smi_timeout, self.root, self.commands, number_of=self.number_of, system=self.uname)

    def write(self, path: str, text: str) -> Path:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def link(self, path: str, target: str) -> None:
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    @staticmethod
    def number_of(path: Path) -> tuple[int, int] | None:
        """Numbers of a device node, which here is a file that holds them: making real ones takes a privilege."""
        if not path.is_file():
            return None
        major, _colon, minor = path.read_text().partition(":")
        return int(major), int(minor)

    def uname(self) -> os.uname_result:
        return os.uname_result(("Linux", self.host.hostname, self.host.kernel, "#1 SMP", self.host.architecture))

    def _system(self) -> None:
        host = self.host
        identifier, version, codename, name = host.distribution
        self.write("/etc/os-release", f'PRETTY_NAME="{name}"\nID={identifier}\nVERSION_ID="{version}"\nVERSION_CODENAME={codename}\n')
        self.write("/etc/machine-id", MACHINE_ID + "\n")
        self.write("/proc/sys/kernel/random/boot_id", BOOT_ID + "\n")
        self.write("/proc/1/comm", "systemd\n")
        self.write("/proc/cmdline", host.command_line + "\n")
        self.write("/proc/meminfo", f"MemTotal:       {host.memory_mib * 1024} kB\nMemFree:        1024 kB\n")
        self.write("/sys/devices/system/cpu/online", f"0-{host.cpus - 1}\n")
        if host.secure_boot in ("enabled", "disabled"):
            variable = self.write("/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "")
            variable.write_bytes(b"\x06\0\0\0" + (b"\x01" if host.secure_boot == "enabled" else b"\0"))
        if host.selinux != "disabled":
            self.write("/sys/fs/selinux/enforce", "1" if host.selinux == "enforcing" else "0")
        if host.container_use_devices is not None:
            self.write("/sys/fs/selinux/booleans/container_use_devices", f"{int(host.container_use_devices)} {int(host.container_use_devices)}")
        for release, headers in {host.kernel: host.headers, **host.other_kernels}.items():
            self.write(f"/lib/modules/{release}/modules.builtin", "")
            if headers:
                (self.root / f"lib/modules/{release}/build").mkdir()

    def _pci(self) -> None:
        host = self.host
        for bus_id in host.bus_ids:
            self.device(bus_id, host.pci_id, "0x030200", driver=host.gpu_driver, numa_node="0" if bus_id < "0000:80" else "1", subsystem=host.subsystem_id)
            if host.audio_functions:
                self.device(bus_id[:-1] + "1", "10de:1aef", "0x040300", driver="snd_hda_intel")
        for bus_id in host.switch_bus_ids:
            self.device(bus_id, "10de:22a3", "0x068000")
        self.device("0000:01:00.0", "144d:a80a", "0x010802", driver="nvme")
        self.device("0000:18:00.0", "15b3:1021", "0x020700", driver="mlx5_core")

    def device(self, bus_id: str, pci_id: str, pci_class: str, *, driver: str | None = None, numa_node: str = "-1", subsystem: str = "0000:0000") -> None:
        """Add a PCI device to sysfs."""
        folder = f"/sys/bus/pci/devices/{bus_id}"
        (vendor, device), (subsystem_vendor, subsystem_device) = pci_id.split(":"), subsystem.split(":")
        speeds = {"current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16", "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16"}
        ids = {"vendor": f"0x{vendor}", "device": f"0x{device}", "subsystem_vendor": f"0x{subsystem_vendor}", "subsystem_device": f"0x{subsystem_device}"}
        for name, value in {"class": pci_class, "numa_node": numa_node, **ids, **speeds}.items():
            self.write(f"{folder}/{name}", value + "\n")
        if driver:
            self.link(f"{folder}/driver", f"../../../../bus/pci/drivers/{driver}")

    def _modules(self) -> None:
        host = self.host
        for name, module in self._facts["modules"].items():
            if module["loaded"]:
                self.write(f"/sys/module/{name}/initstate", "live\n")
                if module["version"]:
                    self.write(f"/sys/module/{name}/version", module["version"] + "\n")
        if host.driver:
            kind = "Open Kernel Module for x86_64" if host.flavour == "open" else "x86_64 Kernel Module"
            self.write("/proc/driver/nvidia/version", f"NVRM version: NVIDIA UNIX {kind}  {host.driver}  Release Build\nGCC version:  gcc version 14.2.0\n")
        library = self._facts["library_version"]
        if library:
            for name in ("libnvidia-ml", "libcuda"):
                self.write(f"/usr/lib/x86_64-linux-gnu/{name}.so.{library}", "")
                self.link(f"/usr/lib/x86_64-linux-gnu/{name}.so.1", f"{name}.so.{library}")
        license_text = "Dual MIT/GPL" if host.flavour == "open" else "NVIDIA"
        for option, text in (("version", host.driver), ("license", license_text)):
            answer = Result(0, f"{text}\n".encode(), b"", 0.01) if host.driver else Result(1, b"", b"modinfo: ERROR: Module nvidia not found.\n", 0.01)
            self.commands[f"modinfo -F {option} nvidia"] = answer

    def _manager(self) -> None:
        if self.host.manager == "dnf":
            self._rpm()
        else:
            self._dpkg()

    def _rpm(self) -> None:
        lines = ["basesystem\t11-13.el9\tnoarch\n"]
        for name, package in self._facts["packages"]["installed"].items():
            rpm = "kernel-devel" if name.startswith("kernel-devel-") else name
            lines.append(f"{rpm}\t{package['version']}\t{self.host.architecture}\n")
        if self.host.broken:
            lines.append(f"dkms\t1.0-1\t{self.host.architecture}\n" * 2)
        self.commands["rpm -qa"] = "".join(lines) if not self.host.broken else Result(1, "".join(lines).encode(), b"error: db5 error", 0.1)
        self.commands["dnf"] = ""
        self.write("/etc/dnf/dnf.conf", f"[main]\ngpgcheck=1\nbest=True\n{'excludepkgs=' + ' '.join(self.host.excludes) if self.host.excludes else ''}\n")
        if "python3-dnf-plugin-versionlock" in self._facts["packages"]["installed"]:
            self.write("/etc/dnf/plugins/versionlock.conf", "[main]\nenabled = 1\nlocklist = /etc/dnf/plugins/versionlock.list\n")
        for module, stream in self.host.streams.items():
            self.write(f"/etc/dnf/modules.d/{module}.module", f"[{module}]\nname={module}\nstream={stream}\nprofiles=\nstate=enabled\n")

    def _dpkg(self) -> None:
        paragraphs = ["Package: base-files\nStatus: install ok installed\nArchitecture: amd64\nVersion: 13.8\n"]
        if self.host.broken:
            paragraphs.append("Package: dkms\nStatus: install ok half-configured\nArchitecture: all\nVersion: 3.2.2-1~deb13u1\n")
        for name, package in self._facts["packages"]["installed"].items():
            want = "hold" if package["held"] else "install"
            paragraphs.append(f"Package: {name}\nStatus: {want} ok installed\nArchitecture: amd64\nVersion: {package['version']}\nDescription: x\n Status: x\n")
        self.write("/var/lib/dpkg/status", "\n".join(paragraphs))
        if self.host.signed_modules is not None:
            for number in range(self.host.signed_modules["lists"]):
                text = "".join(_listed(name, versions) for name, versions in self.host.signed_modules["packages"].items())
                self.write(f"/var/lib/apt/lists/mirror_ubuntu_dists_noble-{number}_restricted_binary-amd64_Packages", text)

    def _nodes(self) -> None:
        for node in self._facts["device_nodes"]:
            self.write(node["path"], f"{node['major']}:{node['minor']}")

    def _cdi(self) -> None:
        for spec in self._facts["cdi"]["specs"]:
            lines = ["---", f"cdiVersion: {spec['cdi_version']}", f"kind: {spec['kind']}", "devices:"]
            for index, name in enumerate(spec["devices"]):
                gpu = min(index // 2, self.host.gpus - 1)
                minor = [f"            minor: {gpu}"] if gpu else []  # as the generator does: no minor number where it is 0
                node = [f"          - path: /dev/nvidia{gpu}", "            major: 195", *minor]
                lines += [f'    - name: "{name}"', "      containerEdits:", "        deviceNodes:", *node]
            library = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{self._facts['library_version']}"
            lines += ["containerEdits:", "    mounts:", f"        - hostPath: {library}", f"          containerPath: {library}"]
            self.write(spec["path"], "\n".join(lines) + "\n")

    def _processes(self) -> None:
        self.write("/proc/1/cgroup", "0::/init.scope\n")
        for number, holder in enumerate(self._facts["holders"]):
            container, unit = holder["container"], holder["unit"]
            group = f"/system.slice/docker-{container.ljust(64, '0')}.scope" if container else f"/system.slice/{unit}" if unit else "/"
            self.process(holder["pid"], holder["command"], {3 + number: holder["device"]}, f"0::{group}\n")

    def process(self, pid: int, command: str, descriptors: dict[int, str], cgroup: str = "0::/\n") -> None:
        """Add a process, or open files to one that is there."""
        name = command.split(maxsplit=1)[0].rpartition("/")[2][:15]
        self.write(f"/proc/{pid}/comm", name + "\n")
        self.write(f"/proc/{pid}/cmdline", command.replace(" ", "\0") + "\0")
        self.write(f"/proc/{pid}/stat", f"{pid} ({name}) S 1 {pid} {pid} 0 -1\n")
        self.write(f"/proc/{pid}/cgroup", cgroup)
        for descriptor, target in {0: "/dev/null", 1: "socket:[4711]", **descriptors}.items():
            if not (self.root / f"proc/{pid}/fd/{descriptor}").is_symlink():
                self.link(f"/proc/{pid}/fd/{descriptor}", target)

    def _systemd(self) -> None:
        blocks = []
        for name, state in self._facts["units"].items():
            enabled = "" if state["enabled"] == "not-found" else state["enabled"]
            block = [f"Id={name}", f"LoadState={state['load']}", f"ActiveState={state['active']}", f"UnitFileState={enabled}"]
            if name == "docker.service" and self.host.docker:
                block.append("ExecStart={ path=/usr/sbin/dockerd ; argv[]=/usr/sbin/dockerd -H fd:// ; ignore_errors=no ; pid=0 }")
            blocks.append("\n".join(block) + "\n")
        self.commands["systemctl show"] = "\n".join(blocks)
        self.commands["systemctl list-units"] = "".join(f"{unit} loaded failed failed Some unit\n" for unit in self._facts["failed_units"])

    def _docker(self) -> None:
        docker = self._facts["docker"]
        if not docker["installed"]:
            return
        if docker["running"]:
            # An hour from now is after every file of the tree was written, the epoch is before.
            started = time.time() + 3600 if docker["configuration_read"] else 0
            os.utime(self.write("/var/run/docker.pid", "812"), (started, started))
        self.commands["dockerd --version"] = f"Docker version {docker['version']}+dfsg1, build 411e817\n"
        info = {"DockerRootDir": docker["root_dir"], "Driver": docker["storage_driver"], "CgroupDriver": docker["cgroup_driver"], "ServerErrors": None}
        info |= {"ServerVersion": f"{docker['running_version']}+dfsg1", "CDISpecDirs": ["/etc/cdi", "/var/run/cdi"] if docker["cdi_enabled"] else []}
        self.commands["docker info"] = json.dumps(info)
        self.commands["docker ps"] = "".join(container["id"].ljust(64, "0") + "\n" for container in docker["containers"])
        images = [[*reference.split("@"), image] for reference, image in docker["images"].items()]
        self.commands["docker image ls"] = "".join("\t".join(fields) + "\n" for fields in [*images, ["built/here", "<none>", IMAGE_ID]])
        self.commands["docker inspect"] = json.dumps([self._inspected(container) for container in docker["containers"]])

    @staticmethod
    def _inspected(container: dict[str, Any]) -> dict[str, Any]:
        paths = [device for device in container["devices"] if device.startswith("/")]
        names = [device for device in container["devices"] if not device.startswith("/")]
        host_config = {
            "Runtime": "runc",
            "Devices": [{"PathOnHost": path, "PathInContainer": path, "CgroupPermissions": "rwm"} for path in paths],
            "DeviceRequests": [{"Driver": "cdi", "Count": 0, "DeviceIDs": names, "Capabilities": None, "Options": None}] if names else None,
        }
        identity = {"Id": container["id"].ljust(64, "0"), "Name": f"/{container['name']}"}
        return {**identity, "Config": {"Image": container["image"], "Env": ["PATH=/bin"]}, "HostConfig": host_config}

    def _smi(self) -> None:
        smi = self._facts["nvidia_smi"]
        if smi["state"] == "absent":
            return
        words = b"NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"
        self.commands["nvidia-smi -q -x"] = {
            "ok": Result(0, smi_query(smi), b"", 0.5),
            "hung": Result(None, b"", b"", 15.0, "did not end within 15 s and was given up"),
            "failed": Result(9, words, b"", 0.5),
            "garbled": Result(0, b"", b"", 0.5),
        }[smi["state"]]
        listing, instances = [], []
        for gpu in smi["gpus"]:
            listing.append(f"GPU {gpu['index']}: {gpu['name']} (UUID: {gpu['uuid']})\n")
            for number, instance in enumerate(gpu["mig"]["instances"]):
                if instance["uuid"]:
                    listing.append(f"  MIG {instance['profile']}     Device {number:2d}: (UUID: {instance['uuid']})\n")
                place = f"{instance['placement_start']}:1"
                instances.append(f"|{gpu['index']:4d}  MIG {instance['profile']:16}  19     {instance['gi']:4d}        {place:>5}     |\n")
        self.commands["nvidia-smi -L"] = "".join(listing)
        self.commands["nvidia-smi mig -lgi"] = "".join(instances)


def _listed(name: str, versions: dict[str, str]) -> str:
    """Paragraphs of a Packages file."""
    branch = name.removeprefix("linux-modules-nvidia-").partition("-")[0]
    depends = "Depends: linux-image, nvidia-kernel-common-{branch}-server (<= {driver}-1), nvidia-kernel-common-{branch}-server (>= {driver})\n"
    return "".join(
        f"Package: {name}\nVersion: {version}\n{depends.format(branch=branch, driver=driver) if name.startswith('linux-') else ''}\n"
        for version, driver in versions.items()
    )


def smi_query(smi: Facts) -> bytes:
    """The recorded XML of one H200, changed to say what ``smi`` (``nvidia_smi`` of the facts) says."""
    log = ElementTree.parse(FIXTURES / "h200" / "smi-q.xml").getroot()
    recorded = log.find("gpu")
    assert recorded is not None
    log.remove(recorded)
    _put(log, {"driver_version": smi["driver_version"], "cuda_version": smi["cuda_version"], "attached_gpus": len(smi["gpus"])})
    for facts in smi["gpus"]:
        gpu = copy.deepcopy(recorded)
        gpu.set("id", "0000" + facts["pci_bus_id"].upper())
        mode = {"enabled": "Enabled", "disabled": "Disabled", "unsupported": "N/A"}
        _put(
            gpu,
            {
                "product_name": facts["name"],
                "uuid": facts["uuid"],
                "serial": facts["serial"],
                "fb_memory_usage/total": f"{facts['memory_mib']} MiB",
                "mig_mode/current_mig": mode[facts["mig"]["current"]],
                "mig_mode/pending_mig": mode[facts["mig"]["pending"]],
                "fabric/state": facts["fabric"]["state"] or "N/A",
                "fabric/status": facts["fabric"]["status"] or "N/A",
            },
        )
        devices = gpu.find("mig_devices")
        assert devices is not None
        for index, instance in enumerate(facts["mig"]["instances"]):
            if instance["ci"] is not None:
                device = ElementTree.SubElement(devices, "mig_device")
                for name, value in (("index", index), ("gpu_instance_id", instance["gi"]), ("compute_instance_id", instance["ci"])):
                    ElementTree.SubElement(device, name).text = str(value)
        log.append(gpu)
    return ElementTree.tostring(log)


def _put(element: ElementTree.Element, values: dict[str, Any]) -> None:
    for path, value in values.items():
        child = element.find(path)
        assert child is not None, path
        child.text = str(value)


class Answers(Commands):
    """Commands that give recorded answers. The key is how a command line begins, the value what it writes, or a whole Result; others fail the test."""

    def __init__(self) -> None:
        self.answers: dict[str, Result | str] = {}

    def __setitem__(self, begin: str, answer: Result | str) -> None:
        self.answers[begin] = answer

    def find(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if any(begin.split()[0] == name for begin in self.answers) else None

    def start(self, argv: list[str], timeout: float, env: dict[str, str] | None = None) -> Child:
        line = " ".join([argv[0].rpartition("/")[2], *argv[1:]])
        matching = [answer for begin, answer in self.answers.items() if line.startswith(begin)]
        assert matching, f"nobody expected {line}"
        answer = matching[0]
        return Answer(Result(0, answer.encode(), b"", 0.01) if isinstance(answer, str) else answer)


class Answer(Child):
    """A child that has ended."""

    def __init__(self, result: Result) -> None:
        self._result = result

    @property
    def pid(self) -> int:
        return 99999

    @property
    def over(self) -> bool:
        return True

    def give_up(self) -> None:
        pass

    def finish(self) -> Result:
        return self._result


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
