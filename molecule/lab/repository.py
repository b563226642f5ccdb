# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Signed apt repositories: the stand-ins of NVIDIA's packages, and a mirror of what hosts ask their distribution for."""

from __future__ import annotations

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import docker_packages
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
    """By the name that the simulated GPU host gives them: what the vendors and the distribution would serve to a host of this distribution."""
    cuda = f"cuda/{distribution.cuda_repository}/x86_64"
    found = {
        {"Debian": "nvidia-cuda", "Ubuntu": "nvidia-cuda-ubuntu"}[distribution.vendor]: Repository(cuda, "NVIDIA", None, (f"{cuda}/{distribution.cuda_key}",)),
        "nvidia-container-toolkit": Repository(
            "libnvidia-container/stable/deb/amd64", "https://nvidia.github.io/libnvidia-container", None, ("libnvidia-container/gpgkey",)
        ),
        "archive": Repository(distribution.archive_path, distribution.vendor, (distribution.codename, "main"), (f"{distribution.archive_path}/key.asc",)),
    }
    if distribution.docker_from is not None:
        path = f"docker/{distribution.vendor.lower()}"
        found["docker-ce"] = Repository(path, "Docker", (distribution.codename, "stable"), (f"{path}/gpg",))
    return found


def signing_key_present(layout: Layout) -> bool:
    return (layout.signing / "public.asc").is_file()


def make_signing_key(layout: Layout, engine: Engine) -> None:
    new = fresh(layout.work / "signing")
    new.chmod(0o700)
    engine.tool(SERVICES_IMAGE, ["sh", "-c", KEY_SCRIPT], {new: "/out"})
    shutil.rmtree(layout.signing, ignore_errors=True)
    new.rename(layout.signing)


def stand_ins(layout: Layout) -> Callable[[Path, str], Sequence[Path]]:
    """``build_packages`` of the simulated GPU host: (folder, kernel release) -> packages, each in a folder named after its repository."""
    sys.path.insert(0, str(layout.gpu_host.parent))
    try:
        module = importlib.import_module("gpu_host.packages")
    except ModuleNotFoundError as error:
        raise LabError(f"{layout.gpu_host} does not hold the simulated GPU host's packages ({error}); is the checkout complete?") from error
    finally:
        sys.path.pop(0)
    build: Callable[[Path, str], Sequence[Path]] = module.build_packages
    return build


def make(layout: Layout, engine: Engine, distributions: Iterable[Distribution]) -> None:
    """Build, index and sign all repositories aside, then put them in place of the served ones."""
    packages = stand_ins(layout)(fresh(layout.work / "packages"), os.uname().release)
    new = fresh(layout.work / "repo")
    public = (layout.signing / "public.asc").read_text()
    for distribution in distributions:
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
                docker_packages.build(layout.mirror / distribution.docker_from, layout.mirror / distribution.root, distribution, pool)
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
