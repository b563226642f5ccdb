# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Stand-ins of the vendors' packages: named, versioned and depending as the real ones, real .deb files and what real .rpm files are built from.

python3 molecule/gpu_host/packages.py OUT [KERNEL_RELEASE]
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gpu_host import deb, debian, enterprise_linux, rpm
from gpu_host.package import Package

DRIVERS = ("580.159.04", "580.178.04", "595.91.07")
TOOLKITS = ("1.19.0", "1.19.1", "1.20.0")
RPM_SOURCES = "/sources"
"""Where the services image sees the folder of a repository's rpm sources."""


def debian_packages(kernel_release: str, architecture: str = "amd64") -> list[Package]:
    """Every package that the lab's apt repositories serve."""
    found = [package for version in DRIVERS for package in [*debian.driver(version, architecture), *debian.ubuntu_driver(version, architecture)]]
    found += [debian.pinning(branch) for branch in sorted({version.split(".", maxsplit=1)[0] for version in DRIVERS})]
    found += [package for version in TOOLKITS for package in debian.toolkit(version, architecture)]
    return [*found, debian.headers(kernel_release, architecture)]


def enterprise_linux_packages(kernel_release: str, architecture: str = "x86_64") -> list[Package]:
    """Every package that its dnf repositories serve, but for what is made of Debian's files."""
    found = [package for version in DRIVERS for package in enterprise_linux.driver(version, architecture)]
    found += [package for version in TOOLKITS for package in enterprise_linux.toolkit(version, architecture)]
    # The kernel that runs is not the newest that the distribution has.
    for release in (kernel_release, enterprise_linux.newer(kernel_release)):
        found += enterprise_linux.kernel(release, architecture).values()
    return [*found, *enterprise_linux.distribution(architecture)]


def build_packages(out: Path, packages: Iterable[Package], build: Callable[[Package, Path], Path] = deb.build) -> list[Path]:
    """Make every package: a .deb with dpkg-deb, of an .rpm its source, for rpmbuild.

    :param out: the packages go into a folder in it for each repository.
    :returns: paths of .deb files and of folders with sources.
    :raises subprocess.CalledProcessError: dpkg-deb failed.
    """
    return [build(each, out / each.repository) if each.format == "deb" else rpm.write_source(each, out / each.repository, RPM_SOURCES) for each in packages]


if __name__ == "__main__":
    release = sys.argv[2] if len(sys.argv) > 2 else os.uname().release
    for path in build_packages(Path(sys.argv[1]), [*debian_packages(release), *enterprise_linux_packages(release)]):
        print(path)
