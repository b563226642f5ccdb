# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Docker's own packages, as its repository would serve them: a newer Debian's build of the engine under Docker's names.

The programs are real (the engine of DOCKER_FROM runs on the older distribution); only names, versions and dependencies are Docker's. ``runc`` is
the older distribution's own, since the newer one's wants a newer C library.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from . import debs
from .distribution import Distribution


@dataclass(frozen=True)
class Repackaged:
    """One of Docker's packages, and the packages of Debian whose contents it has (none: an empty stand-in)."""

    name: str
    of: str | None
    epoch: str
    depends: str
    conflicts: str


# Names, epochs, dependencies and conflicts are those of download.docker.com.
PACKAGES = (
    Repackaged("containerd.io", "containerd", "", "libc6, libseccomp2", "containerd, runc"),
    Repackaged("docker-ce-cli", "docker-cli", "5:", "libc6", "docker-cli, docker.io"),
    Repackaged("docker-ce", "docker.io", "5:", "containerd.io, docker-ce-cli, iptables, libc6, libsystemd0, adduser", "docker.io, docker-cli"),
    Repackaged("docker-buildx-plugin", None, "", "docker-ce-cli", ""),
    Repackaged("docker-compose-plugin", None, "", "docker-ce-cli", ""),
)
STAND_IN_VERSION = "2.0.0"


def build(engine: Path, own: Path, distribution: Distribution, out: Path) -> None:
    """Write Docker's packages for a distribution to OUT.

    :param engine: the mirror of the distribution whose engine is taken.
    :param own: the mirror that has the runc that runs on the distribution that it is for.
    """
    with tempfile.TemporaryDirectory(prefix="docker-packages-") as scratch:
        runc = debs.unpack(debs.one(own, "runc"), Path(scratch) / "runc")
        for package in PACKAGES:
            root = Path(scratch) / package.name
            if package.of is None:
                (root / "DEBIAN").mkdir(parents=True)
                version = STAND_IN_VERSION
            else:
                source = debs.one(engine, package.of)
                debs.unpack(source, root, with_control=True)
                version = debs.upstream(source.name)
            if package.name == "containerd.io":
                (root / "usr/sbin").mkdir(parents=True, exist_ok=True)
                shutil.copy2(next(runc.glob("usr/*bin/runc")), root / "usr/sbin/runc")
            (root / "DEBIAN/md5sums").unlink(missing_ok=True)
            fields = control(package, version, distribution)
            (root / "DEBIAN/control").write_text("".join(f"{name}: {value}\n" for name, value in fields.items() if value), encoding="utf-8")
            debs.run("dpkg-deb", "--root-owner-group", "-Znone", "--build", str(root), str(out))


def control(package: Repackaged, version: str, distribution: Distribution) -> Mapping[str, str]:
    """The control fields of one package, the version written as Docker does: ``5:26.1.5-1~debian.12~bookworm``."""
    tag = f"{distribution.vendor.lower()}.{distribution.version}~{distribution.codename}"
    what = f"Debian's {package.of}" if package.of else "nothing"
    return {
        "Package": package.name,
        "Version": f"{package.epoch}{version}-1~{tag}",
        "Architecture": "amd64",
        "Maintainer": "rackready lab <lab@rackready.invalid>",
        "Section": "admin",
        "Priority": "optional",
        "Depends": package.depends,
        "Conflicts": package.conflicts,
        "Replaces": package.conflicts,
        "Description": f"stand-in of the rackready lab for Docker's {package.name}\n It has {what} inside.",
    }
