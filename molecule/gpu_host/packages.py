# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Stand-in packages of NVIDIA's Debian and Ubuntu repositories: real .deb files, named, versioned and depending as the real ones.

They hold no NVIDIA software. Programs in them are launchers of ``/opt/gpu-host-sim/sim``; libraries are empty shared objects;
"kernel modules" are JSON files that the package's postinst puts where dkms would, if the running kernel's headers are there.

    python3 molecule/gpu_host/packages.py OUT [KERNEL_RELEASE]
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu_host.elf import shared_object

DRIVERS = ("580.159.04", "580.178.04", "595.91.07")
TOOLKITS = ("1.19.0", "1.19.1", "1.20.0")
LAST_BRANCH_IN_UBUNTU_NAMES = 580
HOME = "/opt/gpu-host-sim"
# 2026-12-01: the same input gives the same bytes.
_TIME = "1796083200"

_LIBRARIES = {
    "libcuda1": "libcuda.so.1",
    "libnvidia-ml1": "libnvidia-ml.so.1",
    "libnvidia-cfg1": "libnvidia-cfg.so.1",
    "libnvidia-ptxjitcompiler1": "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-nvvm4": "libnvidia-nvvm.so.4",
    "libcudadebugger1": "libcudadebugger.so.1",
}

Files = dict[str, tuple[bytes, int]]
"""Path in the package -> contents and mode."""


@dataclass(frozen=True)
class Package:
    """What goes into one .deb; ``links`` are path -> target, ``scripts`` maintainer scripts by name."""

    name: str
    version: str
    architecture: str
    repository: str
    summary: str
    fields: dict[str, str] = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    scripts: dict[str, str] = field(default_factory=dict)

    @property
    def file_name(self) -> str:
        return f"{self.name}_{self.version}_{self.architecture}.deb"

    def control(self) -> str:
        """The control file."""
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": self.architecture,
            "Maintainer": "rackready lab <lab@rackready.invalid>",
            "Section": "utils",
            "Priority": "optional",
            **self.fields,
            "Description": f"stand-in of the rackready lab: {self.summary}",
        }
        text = "".join(f"{name}: {value}\n" for name, value in fields.items())
        return text + " Made by the rackready lab: it has the name, version and dependencies of the real package and none of its contents.\n"


@dataclass(frozen=True)
class Release:
    """One version of a family of packages, all in one repository."""

    version: str
    architecture: str
    repository: str
    build: str = "1"

    @property
    def revision(self) -> str:
        return f"{self.version}-{self.build}"

    def package(
        self, name: str, summary: str, *, fields: dict[str, str] | None = None, files: Files | None = None, scripts: dict[str, str] | None = None
    ) -> Package:
        """A package of this version."""
        return Package(name, self.revision, self.architecture, self.repository, summary, fields or {}, files or {}, {}, scripts or {})

    def library(self, name: str, *sonames: str) -> Package:
        """A package with shared libraries of this version, and the links that programs load them by."""
        directory = "/usr/lib/" + {"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu"}[self.architecture]
        named = {soname: f"{soname.rsplit('.so.', 1)[0]}.so.{self.version}" for soname in sonames}
        return Package(
            name,
            self.revision,
            self.architecture,
            self.repository,
            f"{', '.join(sonames)} of version {self.version}",
            {"Multi-Arch": "same"},
            {f"{directory}/{file}": (shared_object(soname, self.architecture), 0o644) for soname, file in named.items()},
            {f"{directory}/{soname}": file for soname, file in named.items()},
        )

    def exactly(self, *names: str) -> str:
        """Dependencies on packages of this very version."""
        return ", ".join(f"{name} (= {self.revision})" for name in names)


def _launcher(version: str, module: str, function: str, call: str, interpreter: str = "/usr/bin/python3") -> tuple[bytes, int]:
    text = f"""\
#!{interpreter}
# SPDX-License-Identifier: GPL-3.0-or-later
# A stand-in of the rackready lab, not NVIDIA's program.
import sys

sys.path.insert(0, "{HOME}")
sys.dont_write_bytecode = True
VERSION = "{version}"
from sim.{module} import {function} as entry

sys.exit(entry({call}))
"""
    return text.encode(), 0o755


def _unit_scripts(unit: str) -> dict[str, str]:
    """Scripts that enable and start a unit as debhelper's do: policy-rc.d decides about starting."""
    postinst = f"""\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
  deb-systemd-helper unmask {unit} >/dev/null || true
  if deb-systemd-helper --quiet was-enabled {unit}; then
    deb-systemd-helper enable {unit} >/dev/null || true
  else
    deb-systemd-helper update-state {unit} >/dev/null || true
  fi
  if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    if [ -n "$2" ]; then action=restart; else action=start; fi
    deb-systemd-invoke "$action" {unit} >/dev/null || true
  fi
fi
"""
    return {"postinst": postinst, **_stop_scripts(unit)}


def _stop_scripts(unit: str) -> dict[str, str]:
    prerm = f"""\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  deb-systemd-invoke stop {unit} >/dev/null || true
fi
"""
    postrm = f"""\
#!/bin/sh
set -e
if [ "$1" = purge ] && [ -x /usr/bin/deb-systemd-helper ]; then
  deb-systemd-helper purge {unit} >/dev/null || true
  deb-systemd-helper unmask {unit} >/dev/null || true
fi
if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi
"""
    return {"prerm": prerm, "postrm": postrm}


_DAEMON_RELOAD = "#!/bin/sh\nset -e\nif [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi\n"

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


def _kernel_package(release: Release, names: dict[str, str], flavour: str) -> Package:
    """The kernel modules of one flavour; NAMES: flavour -> package."""
    other = names["proprietary" if flavour == "open" else "open"]
    version = release.version
    source = json.dumps({"version": version, "flavour": flavour}) + "\n"
    postinst = f"""\
#!/bin/sh
set -e
if [ "$1" = configure ]; then
  if [ ! -x {HOME}/bin/gpu-host-sim ]; then
    echo "{names[flavour]}: a stand-in for hosts of the rackready lab only" >&2
    exit 1
  fi
  {HOME}/bin/gpu-host-sim dkms-build {version} {flavour}
fi
"""
    prerm = f"#!/bin/sh\nset -e\n[ ! -x {HOME}/bin/gpu-host-sim ] || {HOME}/bin/gpu-host-sim dkms-remove {version} {flavour}\n"
    return release.package(
        names[flavour],
        f"NVIDIA kernel modules, {flavour} flavour",
        fields={"Provides": f"nvidia-kernel-{version}, nvidia-kernel (= {release.revision})", "Conflicts": other, "Replaces": other},
        files={f"/usr/src/nvidia-{version}/gpu-host-sim.json": (source.encode(), 0o644)},
        scripts={"postinst": postinst, "prerm": prerm},
    )


def _smi(version: str) -> Files:
    # Containers get this file too, and their Python may be elsewhere.
    return {"/usr/bin/nvidia-smi": _launcher(version, "smi", "main", "sys.argv[1:]", "/usr/bin/env python3")}


def _persistenced(release: Release, name: str, depends: str) -> Package:
    return release.package(
        name,
        "persistence daemon",
        fields={"Depends": f"{depends}, init-system-helpers, python3"},
        files={
            "/usr/bin/nvidia-persistenced": _launcher(release.version, "daemons", "persistenced", "VERSION"),
            "/usr/lib/systemd/system/nvidia-persistenced.service": (_PERSISTENCED_UNIT, 0o644),
        },
        scripts=_unit_scripts("nvidia-persistenced.service"),
    )


def _fabric_packages(release: Release) -> list[Package]:
    return [
        release.package(
            "nvidia-fabricmanager",
            "fabric manager of NVSwitch boards",
            fields={"Depends": "python3", "Suggests": release.exactly("libnvidia-nscq")},
            files={
                "/usr/bin/nv-fabricmanager": _launcher(release.version, "daemons", "fabricmanager", "VERSION"),
                "/usr/bin/nvidia-fabricmanager-start.sh": (_FABRIC_START, 0o755),
                "/usr/share/nvidia/nvswitch/fabricmanager.cfg": (b"# stand-in of the rackready lab\nDAEMONIZE=1\nFABRIC_MODE=0\n", 0o644),
                "/usr/lib/systemd/system/nvidia-fabricmanager.service": (_FABRIC_UNIT, 0o644),
            },
            # NVIDIA's package leaves enabling and starting to the administrator.
            scripts={"postinst": _DAEMON_RELOAD, **_stop_scripts("nvidia-fabricmanager.service")},
        ),
        release.library("libnvidia-nscq", "libnvidia-nscq.so.2"),
    ]


def driver_packages(version: str, architecture: str) -> list[Package]:
    """The packages of one driver version as NVIDIA's CUDA repository of Debian names them."""
    release = Release(version, architecture, "nvidia-cuda")
    kernels = {"open": "nvidia-kernel-open-dkms", "proprietary": "nvidia-kernel-dkms"}
    needed = release.exactly(*_LIBRARIES, "nvidia-modprobe", "nvidia-persistenced")
    kernel = " | ".join(release.exactly(name) for name in kernels.values())
    return [
        *(release.library(name, soname) for name, soname in _LIBRARIES.items()),
        release.package("nvidia-modprobe", "loads the modules", files={"/usr/bin/nvidia-modprobe": (_MODPROBE, 0o755)}),
        _persistenced(release, "nvidia-persistenced", release.exactly("libnvidia-cfg1")),
        release.package(
            "nvidia-driver-cuda",
            "nvidia-smi and the CUDA part of the driver",
            fields={"Depends": f"python3, {needed}, {kernel}", "Conflicts": "nvidia-smi", "Provides": release.exactly("nvidia-smi")},
            files=_smi(version),
        ),
        *(_kernel_package(release, kernels, flavour) for flavour in kernels),
        *_fabric_packages(release),
    ]


def ubuntu_driver_packages(version: str, architecture: str) -> list[Package]:
    """The same as the CUDA repository of Ubuntu names them: with the branch up to 580, without it from 590 on."""
    release = Release(version, architecture, "nvidia-cuda-ubuntu", "0ubuntu1")
    branch = version.split(".", maxsplit=1)[0]
    tag = f"-{branch}" if int(branch) <= LAST_BRANCH_IN_UBUNTU_NAMES else ""
    compute, utils, daemon = f"libnvidia-compute{tag}", f"nvidia-utils{tag}", f"nvidia-compute-utils{tag}"
    kernels = {"open": f"nvidia-dkms{tag}-open", "proprietary": f"nvidia-dkms{tag}"}
    drivers = {"open": f"nvidia-driver{tag}-open", "proprietary": f"nvidia-driver{tag}"}
    whole = {"open": f"nvidia-open{tag}", "proprietary": f"cuda-drivers{tag}"}
    return [
        release.library(compute, *_LIBRARIES.values()),
        release.package("nvidia-modprobe", "loads the modules", files={"/usr/bin/nvidia-modprobe": (_MODPROBE, 0o755)}),
        release.package(utils, "nvidia-smi", fields={"Depends": f"python3, {release.exactly(compute)}"}, files=_smi(version)),
        _persistenced(release, daemon, release.exactly(compute)),
        *(_kernel_package(release, kernels, flavour) for flavour in kernels),
        *(
            release.package(
                drivers[flavour],
                f"the driver, {flavour} flavour",
                fields={"Depends": release.exactly(compute, utils, daemon, kernels[flavour], "nvidia-modprobe")},
            )
            for flavour in drivers
        ),
        *(release.package(whole[flavour], f"all of the driver, {flavour} flavour", fields={"Depends": release.exactly(drivers[flavour])}) for flavour in whole),
        *_fabric_packages(Release(version, architecture, release.repository)),
    ]


def pinning_package(branch: str) -> Package:
    """``nvidia-driver-pinning-<branch>``: an apt preference for every package of the driver."""
    names = [package.name for package in driver_packages(f"{branch}.0", "amd64")]
    text = f"# stand-in of the rackready lab\nPackage: {' '.join(names)}\nPin: version {branch}.*\nPin-Priority: 1000\n"
    files = {f"/etc/apt/preferences.d/nvidia-driver-pinning-{branch}": (text.encode(), 0o644)}
    return Package(f"nvidia-driver-pinning-{branch}", f"{branch}-1", "all", "nvidia-cuda", f"keeps the driver in branch {branch}", {}, files)


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

# As NVIDIA's: systemctl and not deb-systemd-invoke, so policy-rc.d is not asked, and only where systemd runs.
_TOOLKIT_POSTINST = """\
#!/bin/sh
set -e
if [ "$1" = configure ] && command -v systemctl >/dev/null 2>&1; then
  case "$(systemctl is-system-running 2>/dev/null || true)" in
    running|degraded)
      systemctl daemon-reload || true
      for unit in nvidia-cdi-refresh.path nvidia-cdi-refresh.service; do
        systemctl enable --now "$unit" || echo "Warning: Failed to enable $unit" >&2
      done
      ;;
  esac
fi
"""

_TOOLKIT_PRERM = """\
#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
  systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service || true
fi
"""


def toolkit_packages(version: str, architecture: str) -> list[Package]:
    """The four packages of one container toolkit version, in lockstep."""
    release = Release(version, architecture, "nvidia-container-toolkit")
    revision = release.revision
    refuse = b'#!/bin/sh\necho "$0: a stand-in of the rackready lab; use CDI" >&2\nexit 1\n'
    tools = f"libnvidia-container-tools (>= {revision}), libnvidia-container-tools (<< 2.0.0)"
    return [
        release.library("libnvidia-container1", "libnvidia-container.so.1"),
        release.package(
            "libnvidia-container-tools",
            "nvidia-container-cli",
            fields={"Depends": f"libnvidia-container1 (>= {revision})"},
            files={"/usr/bin/nvidia-container-cli": (refuse, 0o755)},
        ),
        release.package(
            "nvidia-container-toolkit-base",
            "nvidia-ctk and the refresh of the CDI specification",
            fields={"Depends": "python3"},
            files={
                "/usr/bin/nvidia-ctk": _launcher(version, "ctk", "main", "VERSION, sys.argv[1:]"),
                "/etc/systemd/system/nvidia-cdi-refresh.service": (_REFRESH_SERVICE, 0o644),
                "/etc/systemd/system/nvidia-cdi-refresh.path": (_REFRESH_PATH, 0o644),
                "/etc/nvidia-container-toolkit/nvidia-cdi-refresh.env": (b"# Variables of nvidia-cdi-refresh.service\n", 0o644),
            },
            scripts={"postinst": _TOOLKIT_POSTINST, "prerm": _TOOLKIT_PRERM},
        ),
        release.package(
            "nvidia-container-toolkit",
            "container runtime hook",
            fields={"Depends": f"nvidia-container-toolkit-base (= {revision}), {tools}"},
            files={"/usr/bin/nvidia-container-runtime-hook": (refuse, 0o755)},
        ),
    ]


def headers_package(release: str, architecture: str) -> Package:
    """``linux-headers-<release>``: what makes the stand-in driver packages build for that kernel.

    :raises ValueError: the release cannot be part of a Debian package's name.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", release):
        raise ValueError(f"kernel release {release!r} has characters that a Debian package name cannot have: linux-headers-{release} cannot exist")
    postinst = f"""\
#!/bin/sh
set -e
if [ "$1" = configure ] && [ -x {HOME}/bin/gpu-host-sim ]; then
  {HOME}/bin/gpu-host-sim dkms-autoinstall {release}
fi
"""
    return Package(
        f"linux-headers-{release}",
        f"{re.sub(r'[^0-9.].*', '', release)}-1",
        architecture,
        "archive",
        f"headers of kernel {release}",
        {},
        {f"/usr/src/linux-headers-{release}/README": (b"Stand-in of the rackready lab: there is no header here.\n", 0o644)},
        {f"/usr/lib/modules/{release}/build": f"/usr/src/linux-headers-{release}"},
        {"postinst": postinst},
    )


def all_packages(kernel_release: str, architecture: str = "amd64") -> list[Package]:
    """Every package that the lab's repositories serve."""
    found = [package for version in DRIVERS for package in [*driver_packages(version, architecture), *ubuntu_driver_packages(version, architecture)]]
    found += [pinning_package(branch) for branch in sorted({version.split(".", maxsplit=1)[0] for version in DRIVERS})]
    found += [package for version in TOOLKITS for package in toolkit_packages(version, architecture)]
    return [*found, headers_package(kernel_release, architecture)]


def _lay_out(package: Package, directory: Path) -> None:
    for path, (data, mode) in package.files.items():
        place = directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(mode)
    for path, target in package.links.items():
        place = directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    control = directory / "DEBIAN"
    control.mkdir()
    (control / "control").write_text(package.control(), encoding="utf-8")
    configuration = [path for path in package.files if path.startswith("/etc/")]
    if configuration:
        (control / "conffiles").write_text("".join(path + "\n" for path in configuration), encoding="utf-8")
    for name, script in package.scripts.items():
        (control / name).write_text(script, encoding="utf-8")
        (control / name).chmod(0o755)
    if any(".so." in path for path in package.files):
        (control / "triggers").write_text("activate-noawait ldconfig\n", encoding="utf-8")
    for folder in [directory, *(path for path in directory.rglob("*") if path.is_dir())]:
        folder.chmod(0o755)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": _TIME})


def build_packages(out: Path, kernel_release: str, architecture: str = "amd64", run: Callable[[list[str]], None] = _run) -> list[Path]:
    """Build every stand-in package with dpkg-deb.

    :param out: the packages go into its folders ``nvidia-cuda``, ``nvidia-cuda-ubuntu``, ``nvidia-container-toolkit`` and
        ``archive``, one for each repository.
    :param kernel_release: ``uname -r`` of the machine that the lab's containers run on.
    :returns: paths of the .deb files.
    :raises subprocess.CalledProcessError: dpkg-deb failed.
    """
    built = []
    for package in all_packages(kernel_release, architecture):
        path = out / package.repository / package.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="stand-in-") as scratch:
            directory = Path(scratch) / "root"
            directory.mkdir()
            _lay_out(package, directory)
            run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(directory), str(path)])
        built.append(path)
    return built


if __name__ == "__main__":
    for each in build_packages(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else os.uname().release):
        print(each)
