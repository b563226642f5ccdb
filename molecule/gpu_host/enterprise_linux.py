# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The stand-ins as the vendors' repositories of EL 9 name them: NVIDIA's with module streams, EPEL's dkms, and what the distribution itself has.

Names, epochs, relations and scripts are those of NVIDIA's and Docker's public packaging repositories.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from gpu_host import contents, rpm
from gpu_host.contents import LIBRARIES
from gpu_host.package import Package, Release, Start

CUDA, TOOLKIT, BASEOS, APPSTREAM, EPEL = "nvidia-cuda-el9", "nvidia-container-toolkit-el", "baseos", "appstream", "epel"
# Versions that NVIDIA's repository has of the toolkit before this one keep the units in /etc and enable them in their scripts.
TOOLKIT_WITH_PRESET = (1, 20, 0)

_NOUVEAU = b"# stand-in of the rackready lab\nblacklist nouveau\nsoftdep nvidia post: nvidia-uvm\n"
_DRIVER_PRESET = b"enable nvidia-persistenced.service\nenable nvidia-fabricmanager.service\nenable nvidia-imex.service\n"
_TOOLKIT_PRESET = "".join(f"enable {unit}\n" for unit in contents.REFRESH_UNITS).encode()
_REFUSE = b'#!/bin/sh\necho "$0: a stand-in of the rackready lab, nothing is built here" >&2\nexit 1\n'
_KERNELS = {"open": "kmod-nvidia-open-dkms", "proprietary": "kmod-nvidia-latest-dkms"}


def driver(version: str, architecture: str) -> list[Package]:
    """The compute part of one driver version, both flavours, and the fabric manager, which has neither epoch nor tag."""
    release = Release(version, architecture, CUDA, "1.el9", "3:")
    exact = f"3:{version}"
    libraries = [soname for soname in LIBRARIES.values() if soname not in ("libnvidia-ml.so.1", "libnvidia-cfg.so.1")]
    return [
        release.library("libnvidia-ml", "libnvidia-ml.so.1"),
        release.library("libnvidia-cfg", "libnvidia-cfg.so.1"),
        release.library("libnvidia-gpucomp", f"libnvidia-gpucomp.so.{version}"),
        release.library("nvidia-driver-cuda-libs", *libraries, depends=release.exactly("libnvidia-cfg", "libnvidia-gpucomp", "libnvidia-ml")),
        release.package(
            "nvidia-driver-cuda",
            "nvidia-smi and the CUDA part of the driver",
            relations={
                "depends": ("python3", *(f"{name} = {exact}" for name in ("nvidia-driver-cuda-libs", "nvidia-kmod-common", "nvidia-persistenced"))),
                "conflicts": ("xorg-x11-drv-nvidia-cuda",),
            },
            files={**contents.smi(version), "/usr/lib/systemd/system-preset/70-nvidia-driver-cuda.preset": (_DRIVER_PRESET, 0o644)},
        ),
        contents.modprobe(release),
        contents.persistenced(release, "nvidia-persistenced", (*release.exactly("libnvidia-cfg"), "python3")),
        release.package(
            "nvidia-kmod-common",
            "what all kernel module packages need",
            relations={"depends": ("grubby", f"nvidia-kmod = {exact}")},
            files={"/usr/lib/modprobe.d/nvidia.conf": (_NOUVEAU, 0o644)},
            independent=True,
        ),
        *(_modules(release, flavour, exact) for flavour in _KERNELS),
        *contents.fabric(Release(version, architecture, CUDA)),
    ]


def _modules(release: Release, flavour: str, exact: str) -> Package:
    other = _KERNELS["proprietary" if flavour == "open" else "open"]
    relations = {"depends": (f"nvidia-kmod-common = {exact}", "dkms"), "provides": (f"nvidia-kmod = {exact}",), "conflicts": (other,)}
    return contents.kernel_modules(release, _KERNELS[flavour], flavour, relations, independent=True)


def toolkit(version: str, architecture: str) -> list[Package]:
    """The container toolkit: its packages start the refresh of the CDI specification, and up to 1.19 they also enable it."""
    release = Release(version, architecture, TOOLKIT)
    if tuple(int(number) for number in version.split(".")) >= TOOLKIT_WITH_PRESET:
        preset = {"/usr/lib/systemd/system-preset/90-nvidia-container-toolkit.preset": (_TOOLKIT_PRESET, 0o644)}
        return contents.toolkit(release, "/usr/lib/systemd/system", Start.AT_ONCE, more=preset)
    return contents.toolkit(release, "/etc/systemd/system", Start.AT_ONCE, installed=f"systemctl enable {' '.join(contents.REFRESH_UNITS)} || :\n")


def kernel(release: str, architecture: str) -> dict[str, Package]:
    """What the distribution has of one kernel, by name: the kernel itself (nothing is in it), its headers, and what ties the two.

    Unlike Debian's, these headers do not make dkms build anything: a driver that was there before stays unbuilt.
    """
    # A version has one dash at most; rpm and dnf take all punctuation for the same when they compare.
    version, dash, last = release.rpartition("-")
    named = f"{version.replace('-', '_')}{dash}{last}"
    upstream, _dash, rest = release.partition("-")
    build = re.sub(r"[^A-Za-z0-9._+~^]", "_", rest.removesuffix(f".{architecture}")) or "1"
    revision = f"{upstream}-{build}"
    files, links = contents.headers_files(release, f"/usr/src/kernels/{release}")

    def package(name: str, repository: str, summary: str, *depends: str) -> Package:
        # The name with the release: where that is as EL's are, dnf finds the package by its own name, version and architecture.
        relations = {"depends": depends, "provides": (f"{name}-uname-r = {named}", f"{name}-{release}")}
        return Package(name, revision, architecture, repository, f"{summary} {release}", relations)

    return {
        "kernel-core": package("kernel-core", BASEOS, "kernel"),
        "kernel-devel": replace(package("kernel-devel", APPSTREAM, "headers of kernel"), files=files, links=links),
        "kernel-devel-matched": package(
            "kernel-devel-matched", APPSTREAM, "headers together with kernel", f"kernel-devel = {revision}", f"kernel-core = {revision}"
        ),
    }


def newer(release: str) -> str:
    """A kernel that came out after the one that runs."""
    stem, dot, architecture = release.rpartition(".")
    return f"{stem}.1.{architecture}" if dot and architecture in ("x86_64", "aarch64") else f"{release}.1"


def distribution(architecture: str) -> list[Package]:
    """What the distribution and EPEL have that the vendors' packages ask for; nothing is in them."""
    return [
        Package("container-selinux", "3:2.205.0-1.el9_2", "noarch", APPSTREAM, "SELinux policy for containers"),
        Package("infiniband-diags", "51.0-1.el9", architecture, BASEOS, "InfiniBand diagnostics"),
        Package(
            *("dkms", "3.4.3-2.el9", "noarch", EPEL, "kernel module builder", {"depends": ("(kernel-devel-matched if kernel-core)",)}),
            {"/usr/sbin/dkms": (_REFUSE, 0o755)},
        ),
    ]


# What the root of the stand-in host has of Debian's packages, under the names that rpms ask for.
_ROOT_PROVIDES = (
    *("/bin/sh", "/usr/bin/sh", "/usr/sbin/groupadd", "bash", "ca-certificates", "coreutils", "dnf", "dracut", "glibc", "grubby", "iproute", "kmod"),
    *("libseccomp", "openssh-server", "procps-ng", "python3", "rpm", "shadow-utils", "systemd", "tar", "xz"),
)
# As EL's glibc and systemd do it: once in a transaction, for every package that brought a library or a unit.
_TRIGGERS = """\
%transfiletriggerin -- /usr/lib /usr/lib64
/sbin/ldconfig

%transfiletriggerpostun -- /usr/lib /usr/lib64
/sbin/ldconfig

%transfiletriggerin -- /usr/lib/systemd/system /etc/systemd/system
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi

%transfiletriggerpostun -- /usr/lib/systemd/system /etc/systemd/system
if [ -d /run/systemd/system ]; then systemctl daemon-reload || :; fi
"""
_PRESETS = {
    "/usr/lib/systemd/system-preset/90-default.preset": b"enable sshd.service\nenable dbus.service\n",
    "/usr/lib/systemd/system-preset/99-default-disable.preset": b"disable *\n",
}


def base(version: str, name: str, os_release: bytes, kernel_release: str) -> list[tuple[Package, str]]:
    """What the rpm database of a stand-in host starts with, each with what follows its files in the specification.

    :param version: the distribution's, ``9.6``.
    :param name: as the release files say it.
    :param kernel_release: of the kernel that runs.
    """
    release = f"{name} release {version} (stand-in of the rackready lab)\n".encode()
    files = {"/usr/lib/os-release": os_release, **{f"/etc/{each}-release": release for each in ("rocky", "redhat", "system")}, **_PRESETS}
    provides = (f"system-release = {version}", f"system-release(releasever) = {version.split('.', maxsplit=1)[0]}", f"redhat-release = {version}")
    return [
        (
            Package(
                *("rocky-release", f"{version}-1.el9", "noarch", BASEOS, "what the host says that it is"),
                {"provides": provides},
                {path: (data, 0o644) for path, data in files.items()},
            ),
            "",
        ),
        (Package("rackready-lab-root", "1-1.el9", "noarch", BASEOS, "the root, which is Debian's", {"provides": _ROOT_PROVIDES}), _TRIGGERS),
        (kernel(kernel_release, "x86_64")["kernel-core"], ""),
    ]


def modules(packages: Iterable[Package]) -> list[dict[str, Any]]:
    """Module metadata of the driver's packages: a stream for each branch and flavour, one of all branches for each flavour, and which is the default."""
    modular = [package for package in packages if package.repository == CUDA and package.version.startswith("3:")]
    branches = sorted({rpm.split(package.version)[1].split(".", maxsplit=1)[0] for package in modular})
    documents = []
    for flavour, suffix, every in (("open", "open", "open-dkms"), ("proprietary", "dkms", "latest-dkms")):
        other = _KERNELS["proprietary" if flavour == "open" else "open"]
        own = [package for package in modular if package.name != other]
        documents.append(_stream(every, own, flavour))
        documents += [_stream(f"{branch}-{suffix}", [each for each in own if each.version.startswith(f"3:{branch}.")], flavour) for branch in branches]
    profiles = {document["data"]["stream"]: ["default"] for document in documents}
    # As a listing of NVIDIA's Fedora repository showed in 2024; EL 9's default was not seen.
    defaults = {"module": "nvidia-driver", "stream": "latest-dkms", "profiles": profiles}
    return [*documents, {"document": "modulemd-defaults", "version": 1, "data": defaults}]


def _stream(name: str, packages: Sequence[Package], flavour: str) -> dict[str, Any]:
    default = [_KERNELS[flavour], "nvidia-driver-cuda"]
    data = {
        "name": "nvidia-driver",
        "stream": name,
        "version": 20261201000000,
        "context": "rackready",
        "arch": packages[0].architecture,
        "summary": f"Nvidia driver for {name} branch",
        "description": "stand-in of the rackready lab",
        "license": {"module": ["GPL-3.0-or-later"]},
        "dependencies": [{"requires": {"platform": ["el9"]}}],
        "profiles": {"default": {"rpms": default}, "fm": {"rpms": [*default, "nvidia-fabricmanager"]}},
        "artifacts": {"rpms": sorted(rpm.nevra(package) for package in packages)},
    }
    return {"document": "modulemd", "version": 2, "data": data}
