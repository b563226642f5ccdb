# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Signed dnf repositories: the vendors' for a distribution of EL's family, and the distribution's own as far as hosts ask for it."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

import yaml
from gpu_host import enterprise_linux, packages

from . import rpm_packages
from .distribution import Distribution
from .engine import Engine
from .names import SERVICES_IMAGE
from .paths import Layout
from .rootfs import fresh


@dataclass(frozen=True)
class Repository:
    """One dnf repository below the services' web root."""

    path: str
    key: str  # where the public key lies, relative to the web root: the name that the vendor uses
    packages_signed: bool = True  # besides its index, which always is


def repositories(distribution: Distribution) -> dict[str, Repository]:
    """By the name that the simulated GPU host gives them."""
    cuda, release = f"cuda/{distribution.cuda_repository}/x86_64", distribution.version
    own = f"{distribution.archive_path}/{release}"
    key = f"{distribution.archive_path}/RPM-GPG-KEY-{distribution.vendor}-{release}"
    return {
        enterprise_linux.CUDA: Repository(cuda, f"{cuda}/{distribution.cuda_key}"),
        # NVIDIA's own file for this one asks for a signed index and says gpgcheck=0.
        enterprise_linux.TOOLKIT: Repository("libnvidia-container/stable/rpm/x86_64", "libnvidia-container/gpgkey", packages_signed=False),
        "docker-ce": Repository(f"docker/rhel/{release}/x86_64/stable", "docker/rhel/gpg"),
        enterprise_linux.EPEL: Repository(f"epel/{release}/Everything/x86_64", f"epel/RPM-GPG-KEY-EPEL-{release}"),
        enterprise_linux.BASEOS: Repository(f"{own}/BaseOS/x86_64/os", key),
        enterprise_linux.APPSTREAM: Repository(f"{own}/AppStream/x86_64/os", key),
    }


def make(layout: Layout, engine: Engine, distribution: Distribution, new: Path) -> None:
    """Build, index and sign all repositories of a distribution below the web root NEW."""
    sources = write_sources(layout, distribution)
    public = (layout.signing / "public.asc").read_text()
    for name, repository in repositories(distribution).items():
        folder = new / repository.path
        folder.mkdir(parents=True)
        (sources / name).mkdir(exist_ok=True)
        engine.tool(
            SERVICES_IMAGE,
            ["/lab/index_rpms.sh", "signed" if repository.packages_signed else "unsigned"],
            {sources / name: "/sources", folder: "/repo", layout.signing: "/signing", layout.code: "/lab"},
        )
        (new / repository.key).write_text(public)


def write_sources(layout: Layout, distribution: Distribution) -> Path:
    """What the packages are built from, a folder for each repository."""
    sources = fresh(layout.work / "rpms")
    mirror = layout.mirror / distribution.root
    # Where the root is the distribution's own, so are the packages in its mirror; on a stand-in all are made here.
    own = sorted(mirror.glob("*.rpm"))
    served = [each for each in packages.enterprise_linux_packages(os.uname().release) if not any(path.name.startswith(f"{each.name}-") for path in own)]
    packages.build_packages(sources, served)
    (sources / enterprise_linux.CUDA / "modules.yaml").write_text(yaml.safe_dump_all(enterprise_linux.modules(served), explicit_start=True, sort_keys=False))
    if distribution.docker_from is not None:
        engine_of, runc_of = layout.mirror / distribution.docker_from, layout.mirror / distribution.runc_from
        rpm_packages.write_sources(rpm_packages.DOCKER, engine_of, sources / "docker-ce", runc_of)
    if not own:
        rpm_packages.write_sources(rpm_packages.ROCKY, mirror, sources / enterprise_linux.BASEOS)
    for package in own:
        shutil.copy(package, sources / enterprise_linux.BASEOS)
    return sources
