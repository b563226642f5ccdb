# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Signed package repositories: the stand-ins of NVIDIA's packages, and a mirror of what hosts ask their distribution for. Those of apt in detail."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gpu_host import packages as stand_ins

from . import dnf_repository, docker_packages
from .distribution import Distribution
from .engine import Engine
from .errors import LabError
from .names import SERVICES_IMAGE
from .paths import Layout
from .rootfs import fresh

SIGNER = "rackready lab package repositories <lab@services.rackready.lab>"
KEY_SCRIPT = f"""
set -eu
umask 077
export GNUPGHOME=/out
gpg --batch --quiet --passphrase '' --quick-gen-key '{SIGNER}' rsa3072 sign never
gpg --batch --quiet --armor --export >/out/public.asc
gpgconf --kill all
"""


@dataclass(frozen=True)
class Repository:
    """One apt repository below the services' web root."""

    path: str
    origin: str
    suite: tuple[str, str] | None  # (suite, component); None: a flat one
    keys: tuple[str, ...]  # where the public key lies, relative to the web root: the names that the vendors use


def repositories(distribution: Distribution) -> dict[str, Repository]:
    """By the name that the simulated GPU host gives them: what the vendors and the distribution would serve to a host of this distribution, with apt."""
    codename = distribution.codename
    if codename is None:
        raise LabError(f"{distribution.key} has no codename, and its package manager is apt; its entry in distributions.yml needs one")
    cuda = f"cuda/{distribution.cuda_repository}/x86_64"
    found = {
        {"Debian": "nvidia-cuda", "Ubuntu": "nvidia-cuda-ubuntu"}[distribution.vendor]: Repository(cuda, "NVIDIA", None, (f"{cuda}/{distribution.cuda_key}",)),
        "nvidia-container-toolkit": Repository(
            "libnvidia-container/stable/deb/amd64", "https://nvidia.github.io/libnvidia-container", None, ("libnvidia-container/gpgkey",)
        ),
        "archive": Repository(distribution.archive_path, distribution.vendor, (codename, "main"), (f"{distribution.archive_path}/key.asc",)),
    }
    if distribution.docker_from is not None:
        path = f"docker/{distribution.vendor.lower()}"
        found["docker-ce"] = Repository(path, "Docker", (codename, "stable"), (f"{path}/gpg",))
    return found


def signing_key_present(layout: Layout) -> bool:
    return (layout.signing / "public.asc").is_file()


def make_signing_key(layout: Layout, engine: Engine) -> None:
    new = fresh(layout.work / "signing")
    new.chmod(0o700)
    engine.tool(SERVICES_IMAGE, ["sh", "-c", KEY_SCRIPT], {new: "/out"})
    shutil.rmtree(layout.signing, ignore_errors=True)
    new.rename(layout.signing)


def make(layout: Layout, engine: Engine, distributions: Iterable[Distribution]) -> None:
    """Build, index and sign all repositories aside, then put them in place of the served ones."""
    packages = stand_ins.build_packages(fresh(layout.work / "packages"), stand_ins.debian_packages(os.uname().release))
    new = fresh(layout.work / "repo")
    public = (layout.signing / "public.asc").read_text()
    for distribution in distributions:
        if distribution.package_manager == "dnf":
            dnf_repository.make(layout, engine, distribution, new)
            continue
        wanted = repositories(distribution)
        for name, repository in wanted.items():
            folder = new / repository.path
            pool = folder if repository.suite is None else folder / "pool" / repository.suite[0]
            pool.mkdir(parents=True, exist_ok=True)
            for package in packages:
                if package.parent.name == name:
                    shutil.copy(package, pool)
            if name == "archive":
                for package in (layout.mirror / distribution.root).glob("*.deb"):
                    shutil.copy(package, pool)
            elif name == "docker-ce" and distribution.docker_from is not None:
                docker_packages.build(layout.mirror / distribution.docker_from, layout.mirror / distribution.runc_from, distribution, pool)
            index = ["flat", repository.origin] if repository.suite is None else ["suite", repository.origin, *repository.suite]
            engine.tool(SERVICES_IMAGE, ["/lab/index_repository.sh", *index], {folder: "/repo", layout.signing: "/signing", layout.code: "/lab"})
            for key in repository.keys:
                (new / key).write_text(public)
    put_in_place(new, layout.served / "repo")


def put_in_place(new: Path, target: Path) -> None:
    """The folder NEW becomes TARGET; a server that has TARGET's parent open sees either the old one or the new one."""
    old = new.with_name(new.name + ".old")
    shutil.rmtree(old, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.exists():
        target.rename(old)
    new.rename(target)
    shutil.rmtree(old, ignore_errors=True)
