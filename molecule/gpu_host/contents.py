# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""What is in the stand-ins, whatever their names and formats: no NVIDIA software.

Programs are launchers of ``/opt/gpu-host-sim/sim``; libraries are empty shared objects; "kernel modules" are JSON files that the package puts where dkms
would, if the running kernel's headers are there.
"""

from __future__ import annotations

import json

from gpu_host.package import HOME, Files, Package, Relations, Release, Start, launcher

LIBRARIES = {
    "libcuda1": "libcuda.so.1",
    "libnvidia-ml1": "libnvidia-ml.so.1",
    "libnvidia-cfg1": "libnvidia-cfg.so.1",
    "libnvidia-ptxjitcompiler1": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm4": "libnvidia-nvvm.so.4",
    "libcudadebugger1": "libcudadebugger.so.1",
}
"""The compute part of the driver, by the names that Debian gives to packages of one library each."""

_MODPROBE = b"#!/bin/sh\nexec /usr/sbin/modprobe -a nvidia nvidia_uvm\n"

_PERSISTENCED_UNIT = b"""\
[Unit]
Description=NVIDIA Persistence Daemon (stand-in)
Wants=syslog.target

[Service]
Type=notify
ExecStart=/usr/bin/nvidia-persistenced --verbose

[Install]
WantedBy=multi-user.target
"""

_FABRIC_UNIT = b"""\
[Unit]
Description=NVIDIA fabric manager service (stand-in)
After=network-online.target
Requires=network-online.target

[Service]
Type=forking
TimeoutStartSec=720
PIDFile=/run/nvidia-fabricmanager/nv-fabricmanager.pid
ExecStart=/usr/bin/nvidia-fabricmanager-start.sh --mode start --fm-config-file /usr/share/nvidia/nvswitch/fabricmanager.cfg

[Install]
WantedBy=multi-user.target
"""

_FABRIC_START = b"""\
#!/bin/sh
# A stand-in of the rackready lab, not NVIDIA's program.
config=/usr/share/nvidia/nvswitch/fabricmanager.cfg
echo "Detected Pre-NVL5 system"
/usr/bin/nv-fabricmanager -c "$config"
status=$?
if [ "$status" -ne 0 ]; then
  echo "\\"/usr/bin/nv-fabricmanager -c $config\\" failed! Exit code: $status" >&2
  exit 1
fi
echo "Started \\"Nvidia Fabric Manager\\""
"""

_REFRESH_SERVICE = b"""\
[Unit]
Description=Refresh NVIDIA CDI specification file (stand-in)
ConditionPathExists=|/usr/bin/nvidia-smi
ConditionPathExists=|/usr/sbin/nvidia-smi
ConditionPathExists=/usr/bin/nvidia-ctk
After=multi-user.target

[Service]
Type=oneshot
RemainAfterExit=yes
Environment=NVIDIA_CTK_CDI_OUTPUT_FILE_PATH=/var/run/cdi/nvidia.yaml
EnvironmentFile=-/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env
ExecCondition=/usr/bin/grep -qE '/(nvidia|nvidia-current)\\\\.ko' /lib/modules/%v/modules.dep
ExecStart=/usr/bin/nvidia-ctk cdi generate

[Install]
WantedBy=multi-user.target
"""

_REFRESH_PATH = b"""\
[Unit]
Description=Refresh the NVIDIA CDI specification when a driver comes or goes (stand-in)

[Path]
PathChanged=/lib/modules/%v/modules.dep
PathChanged=/lib/modules/%v/modules.dep.bin

[Install]
WantedBy=multi-user.target
"""

REFRESH_UNITS = ("nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")


def kernel_modules(release: Release, name: str, flavour: str, relations: Relations, independent: bool = False) -> Package:
    """The kernel modules of one flavour."""
    source = json.dumps({"version": release.version, "flavour": flavour}) + "\n"
    installed = f"""\
if [ ! -x {HOME}/bin/gpu-host-sim ]; then
  echo "{name}: a stand-in for hosts of the rackready lab only" >&2
  exit 1
fi
{HOME}/bin/gpu-host-sim dkms-build {release.version} {flavour}
"""
    return release.package(
        name,
        f"NVIDIA kernel modules, {flavour} flavour",
        relations=relations,
        files={f"/usr/src/nvidia-{release.version}/gpu-host-sim.json": (source.encode(), 0o644)},
        independent=independent,
        installed=installed,
        leaving=f"[ ! -x {HOME}/bin/gpu-host-sim ] || {HOME}/bin/gpu-host-sim dkms-remove {release.version} {flavour}\n",
    )


def smi(version: str) -> Files:
    """nvidia-smi. Containers get this file too, and their Python may be elsewhere."""
    return {"/usr/bin/nvidia-smi": launcher(version, "smi", "main", "sys.argv[1:]", "/usr/bin/env python3")}


def modprobe(release: Release) -> Package:
    """nvidia-modprobe."""
    return release.package("nvidia-modprobe", "loads the modules", files={"/usr/bin/nvidia-modprobe": (_MODPROBE, 0o755)})


def persistenced(release: Release, name: str, depends: tuple[str, ...]) -> Package:
    """The persistence daemon and its unit."""
    return release.package(
        name,
        "persistence daemon",
        relations={"depends": depends},
        files={
            "/usr/bin/nvidia-persistenced": launcher(release.version, "daemons", "persistenced", "VERSION"),
            "/usr/lib/systemd/system/nvidia-persistenced.service": (_PERSISTENCED_UNIT, 0o644),
        },
        units=("nvidia-persistenced.service",),
        start=Start.BY_POLICY,
    )


def fabric(release: Release) -> list[Package]:
    """The fabric manager, whose package leaves enabling and starting to the administrator, and the library that queries switches."""
    return [
        release.package(
            "nvidia-fabricmanager",
            "fabric manager of NVSwitch boards",
            relations={"depends": ("python3",), "suggests": release.exactly("libnvidia-nscq")},
            files={
                "/usr/bin/nv-fabricmanager": launcher(release.version, "daemons", "fabricmanager", "VERSION"),
                "/usr/bin/nvidia-fabricmanager-start.sh": (_FABRIC_START, 0o755),
                "/usr/share/nvidia/nvswitch/fabricmanager.cfg": (b"# stand-in of the rackready lab\nDAEMONIZE=1\nFABRIC_MODE=0\n", 0o644),
                "/usr/lib/systemd/system/nvidia-fabricmanager.service": (_FABRIC_UNIT, 0o644),
            },
            units=("nvidia-fabricmanager.service",),
        ),
        release.library("libnvidia-nscq", "libnvidia-nscq.so.2"),
    ]


def toolkit(release: Release, unit_folder: str, start: Start, more: Files | None = None, installed: str = "") -> list[Package]:
    """The four packages of one container toolkit version, in lockstep. MORE files and commands go with the refresh of the CDI specification."""
    revision = release.revision
    refuse = b'#!/bin/sh\necho "$0: a stand-in of the rackready lab; use CDI" >&2\nexit 1\n'
    return [
        release.library("libnvidia-container1", "libnvidia-container.so.1"),
        release.package(
            "libnvidia-container-tools",
            "nvidia-container-cli",
            relations={"depends": (f"libnvidia-container1 >= {revision}",)},
            files={"/usr/bin/nvidia-container-cli": (refuse, 0o755)},
        ),
        release.package(
            "nvidia-container-toolkit-base",
            "nvidia-ctk and the refresh of the CDI specification",
            relations={"depends": ("python3",)},
            files={
                "/usr/bin/nvidia-ctk": launcher(release.version, "ctk", "main", "VERSION, sys.argv[1:]"),
                f"{unit_folder}/nvidia-cdi-refresh.service": (_REFRESH_SERVICE, 0o644),
                f"{unit_folder}/nvidia-cdi-refresh.path": (_REFRESH_PATH, 0o644),
                "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env": (b"# Variables of nvidia-cdi-refresh.service\n", 0o644),
                **(more or {}),
            },
            installed=installed,
            units=REFRESH_UNITS,
            start=start,
        ),
        release.package(
            "nvidia-container-toolkit",
            "container runtime hook",
            relations={
                "depends": (f"nvidia-container-toolkit-base = {revision}", f"libnvidia-container-tools >= {revision}", "libnvidia-container-tools < 2.0.0"),
            },
            files={"/usr/bin/nvidia-container-runtime-hook": (refuse, 0o755)},
        ),
    ]


def headers_files(release: str, folder: str) -> tuple[Files, dict[str, str]]:
    """Files and links that make a kernel's headers: what the stand-in driver packages look for when they build for it."""
    readme = {f"{folder}/README": (b"Stand-in of the rackready lab: there is no header here.\n", 0o644)}
    return readme, {f"/usr/lib/modules/{release}/build": folder}
