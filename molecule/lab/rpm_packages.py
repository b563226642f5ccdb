# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Rpms that have real programs of Debian's inside: Docker's engine, and what a stand-in of Rocky Linux may ask its distribution for.

Names, epochs, relations and units are those of the real packages. The programs of DOCKER run on EL 9 itself, too: they ask for no newer C library.
"""

from __future__ import annotations

import fnmatch
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from gpu_host import rpm
from gpu_host.package import Package, Relations, Start
from gpu_host.packages import RPM_SOURCES

from . import debs

_GROUP = "getent group docker >/dev/null || groupadd --system docker\n"
_PLUGINS_OF_THEIR_OWN = tuple(f"*/{name}*" for name in ("versionlock", "local", "leaves", "show_leaves", "modulesync", "post-transaction-actions"))


@dataclass(frozen=True)
class Repackaged:
    """A package, and the packages of Debian whose contents it has (none: an empty stand-in). The first gives the version, ``{}`` in VERSION."""

    name: str
    of: tuple[str, ...]
    version: str
    repository: str
    relations: Relations = field(default_factory=dict)
    keep: tuple[str, ...] = ("*",)  # of the files, by patterns of their whole path
    drop: tuple[str, ...] = ()
    links: dict[str, str] = field(default_factory=dict)
    installed: str = ""
    units: tuple[str, ...] = ()


DOCKER = (
    Repackaged(
        "containerd.io",
        ("containerd",),
        "{}-3.1.el9",
        "docker-ce",
        {
            "depends": ("container-selinux", "libseccomp"),
            "provides": ("containerd", "runc"),
            "conflicts": ("containerd", "runc"),
            "replaces": ("containerd", "runc"),
        },
        units=("containerd.service",),
    ),
    Repackaged(
        "docker-ce-cli",
        ("docker-cli",),
        "1:{}-1.el9",
        "docker-ce",
        {"depends": ("/bin/sh", "/usr/sbin/groupadd"), "conflicts": ("docker", "docker-io")},
        installed=_GROUP,
    ),
    Repackaged(
        "docker-ce",
        ("docker.io", "tini"),
        "3:{}-1.el9",
        "docker-ce",
        {
            "depends": (
                *("/usr/sbin/groupadd", "docker-ce-cli", "container-selinux", "systemd", "iptables-nft | iptables", "containerd.io >= 1.6.4", "tar", "xz"),
            ),
            "conflicts": ("docker", "docker-io", "docker-ee"),
        },
        installed=_GROUP,
        units=("docker.service",),
    ),
    Repackaged("docker-buildx-plugin", (), "2.0.0-1.el9", "docker-ce"),
    Repackaged("docker-compose-plugin", (), "2.0.0-1.el9", "docker-ce"),
)
ROCKY = (
    Repackaged(
        "iptables-nft",
        ("iptables", "lib*"),
        "{}-1.el9",
        "baseos",
        {"provides": ("iptables",)},
        links={f"/usr/sbin/{name}{suffix}": "xtables-nft-multi" for name in ("iptables", "ip6tables") for suffix in ("", "-save", "-restore")},
    ),
    Repackaged(
        "python3-dnf-plugins-core",
        ("dnf-plugins-core", "python3-*"),
        "{}-1.el9",
        "baseos",
        {"depends": ("dnf", "python3"), "provides": ("dnf-plugins-core",)},
        drop=_PLUGINS_OF_THEIR_OWN,
    ),
    Repackaged(
        "python3-dnf-plugin-versionlock",
        ("dnf-plugins-core",),
        "{}-1.el9",
        "baseos",
        {"depends": ("python3-dnf-plugins-core",)},
        keep=("*/versionlock.py", "/etc/dnf/plugins/versionlock.*"),
    ),
)
# Nobody reads these on a lab host, and its init is systemd.
_NEVER = ("/usr/share/*", "/etc/init.d/*")


def write_sources(packages: Iterable[Repackaged], mirror: Path, sources: Path, runc: Path | None = None) -> list[Package]:
    """Write the sources of PACKAGES, made of the Debian packages in MIRROR; containerd.io gets the runc of the mirror RUNC."""
    made = []
    for each in packages:
        taken = [path for pattern in each.of for path in sorted(mirror.glob(f"{pattern}_*.deb"))]
        version = each.version.format(debs.upstream(debs.one(mirror, each.of[0]).name)) if each.of else each.version
        package = Package(
            *(each.name, version, "x86_64", each.repository, f"of Debian's {', '.join(each.of)}" if each.of else "nothing", each.relations),
            links=each.links,
            installed=each.installed,
            units=each.units,
            start=Start.BY_POLICY if each.units else Start.NEVER,
        )
        root = sources / rpm.stem(package) / "root"
        root.mkdir(parents=True)
        with tempfile.TemporaryDirectory(prefix="rpm-packages-") as scratch:
            for number, deb in enumerate(taken):
                take(debs.unpack(deb, Path(scratch) / str(number)), root, each.keep, (*each.drop, *_NEVER))
            if runc is not None and each.name == "containerd.io":
                take(debs.unpack(debs.one(runc, "runc"), Path(scratch) / "runc"), root, ("/usr/*bin/runc",), ())
        rpm.write_source(package, sources, RPM_SOURCES)
        made.append(package)
    return made


def take(unpacked: Path, root: Path, keep: Iterable[str], drop: Iterable[str]) -> None:
    """Move the wanted files of an unpacked package to ROOT, those outside /usr that belong there to where they belong."""
    for path in sorted(unpacked.rglob("*")):
        if path.is_dir() and not path.is_symlink():
            continue
        name = f"/{path.relative_to(unpacked)}"
        name = f"/usr{name}" if name.startswith(("/bin/", "/sbin/", "/lib/", "/lib64/")) else name
        if any(fnmatch.fnmatch(name, pattern) for pattern in keep) and not any(fnmatch.fnmatch(name, pattern) for pattern in drop):
            place = root / name.lstrip("/")
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.move(path, place)
