# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The stand-ins as NVIDIA's repositories of Debian and Ubuntu name them, and headers of the running kernel."""

from __future__ import annotations

import re

from gpu_host import contents
from gpu_host.contents import LIBRARIES
from gpu_host.package import HOME, Package, Release, Start

LAST_BRANCH_IN_UBUNTU_NAMES = 580


def _modules(release: Release, names: dict[str, str], flavour: str) -> Package:
    """NAMES: flavour -> package."""
    other = names["proprietary" if flavour == "open" else "open"]
    provides = (f"nvidia-kernel-{release.version}", *release.exactly("nvidia-kernel"))
    return contents.kernel_modules(release, names[flavour], flavour, {"provides": provides, "conflicts": (other,), "replaces": (other,)})


def driver(version: str, architecture: str) -> list[Package]:
    """The packages of one driver version as the CUDA repository of Debian names them."""
    release = Release(version, architecture, "nvidia-cuda")
    kernels = {"open": "nvidia-kernel-open-dkms", "proprietary": "nvidia-kernel-dkms"}
    needed = release.exactly(*LIBRARIES, "nvidia-modprobe", "nvidia-persistenced")
    kernel = " | ".join(release.exactly(*kernels.values()))
    return [
        *(release.library(name, soname) for name, soname in LIBRARIES.items()),
        contents.modprobe(release),
        contents.persistenced(release, "nvidia-persistenced", (*release.exactly("libnvidia-cfg1"), "init-system-helpers", "python3")),
        release.package(
            "nvidia-driver-cuda",
            "nvidia-smi and the CUDA part of the driver",
            relations={"depends": ("python3", *needed, kernel), "conflicts": ("nvidia-smi",), "provides": release.exactly("nvidia-smi")},
            files=contents.smi(version),
        ),
        *(_modules(release, kernels, flavour) for flavour in kernels),
        *contents.fabric(release),
    ]


def ubuntu_driver(version: str, architecture: str) -> list[Package]:
    """The same as the CUDA repository of Ubuntu names them: with the branch up to 580, without it from 590 on."""
    release = Release(version, architecture, "nvidia-cuda-ubuntu", "0ubuntu1")
    branch = version.split(".", maxsplit=1)[0]
    tag = f"-{branch}" if int(branch) <= LAST_BRANCH_IN_UBUNTU_NAMES else ""
    compute, utils, daemon = f"libnvidia-compute{tag}", f"nvidia-utils{tag}", f"nvidia-compute-utils{tag}"
    kernels = {"open": f"nvidia-dkms{tag}-open", "proprietary": f"nvidia-dkms{tag}"}
    drivers = {"open": f"nvidia-driver{tag}-open", "proprietary": f"nvidia-driver{tag}"}
    whole = {"open": f"nvidia-open{tag}", "proprietary": f"cuda-drivers{tag}"}
    return [
        release.library(compute, *LIBRARIES.values()),
        contents.modprobe(release),
        release.package(utils, "nvidia-smi", relations={"depends": ("python3", *release.exactly(compute))}, files=contents.smi(version)),
        contents.persistenced(release, daemon, (*release.exactly(compute), "init-system-helpers", "python3")),
        *(_modules(release, kernels, flavour) for flavour in kernels),
        *(
            release.package(
                drivers[flavour],
                f"the driver, {flavour} flavour",
                relations={"depends": release.exactly(compute, utils, daemon, kernels[flavour], "nvidia-modprobe")},
            )
            for flavour in drivers
        ),
        *(
            release.package(whole[flavour], f"all of the driver, {flavour} flavour", relations={"depends": release.exactly(drivers[flavour])})
            for flavour in whole
        ),
        *contents.fabric(Release(version, architecture, release.repository)),
    ]


def pinning(branch: str) -> Package:
    """``nvidia-driver-pinning-<branch>``: an apt preference for every package of the driver."""
    names = [package.name for package in driver(f"{branch}.0", "amd64")]
    text = f"# stand-in of the rackready lab\nPackage: {' '.join(names)}\nPin: version {branch}.*\nPin-Priority: 1000\n"
    files = {f"/etc/apt/preferences.d/nvidia-driver-pinning-{branch}": (text.encode(), 0o644)}
    return Package(f"nvidia-driver-pinning-{branch}", f"{branch}-1", "all", "nvidia-cuda", f"keeps the driver in branch {branch}", {}, files)


def toolkit(version: str, architecture: str) -> list[Package]:
    """The container toolkit."""
    return contents.toolkit(Release(version, architecture, "nvidia-container-toolkit"), "/etc/systemd/system", Start.AT_ONCE)


def headers(release: str, architecture: str) -> Package:
    """``linux-headers-<release>``: what makes the stand-in driver packages build for that kernel.

    :raises ValueError: the release cannot be part of a Debian package's name.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", release):
        raise ValueError(f"kernel release {release!r} has characters that a Debian package name cannot have: linux-headers-{release} cannot exist")
    files, links = contents.headers_files(release, f"/usr/src/linux-headers-{release}")
    return Package(
        f"linux-headers-{release}",
        f"{re.sub(r'[^0-9.].*', '', release)}-1",
        architecture,
        "archive",
        f"headers of kernel {release}",
        {},
        files,
        links,
        f"[ ! -x {HOME}/bin/gpu-host-sim ] || {HOME}/bin/gpu-host-sim dkms-autoinstall {release}\n",
    )
