# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""A stand-in package as a description that both package formats are made of: deb.py makes a .deb of it, rpm.py a .rpm."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from gpu_host.elf import shared_object

HOME = "/opt/gpu-host-sim"
# 2026-12-01: the same input gives the same bytes.
TIME = "1796083200"

Files = dict[str, tuple[bytes, int]]
"""Path in the package -> contents and mode."""
Relations = Mapping[str, tuple[str, ...]]
"""depends, suggests, provides, conflicts, replaces -> ``name``, ``name = version``, or with >=, < and | between choices."""

# What the packages of a format call their architectures.
FORMATS = {"amd64": "deb", "arm64": "deb", "all": "deb", "x86_64": "rpm", "aarch64": "rpm", "noarch": "rpm"}
LIBRARY_FOLDERS = {
    "amd64": "/usr/lib/x86_64-linux-gnu",
    "arm64": "/usr/lib/aarch64-linux-gnu",
    "x86_64": "/usr/lib64",
    "aarch64": "/usr/lib64",
}


class Start(enum.Enum):
    """What becomes of a package's units when it is installed."""

    BY_POLICY = "as the packages of its distribution do: Debian's enable and start them if policy-rc.d lets them, EL's obey the presets and start nothing"
    NEVER = "left to the administrator"
    AT_ONCE = "enabled and started, whatever the policy is"


@dataclass(frozen=True)
class Package:
    """What goes into one package.

    ``version`` is the whole of it: ``580.178.04-1``, ``3:580.178.04-1.el9``. ``links`` are path -> target. ``installed`` are shell commands for when the
    package has been installed, ``leaving`` for before it goes, also to a newer version of itself.
    """

    name: str
    version: str
    architecture: str
    repository: str
    summary: str
    relations: Relations = field(default_factory=dict)
    files: Files = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    installed: str = ""
    leaving: str = ""
    units: tuple[str, ...] = ()
    start: Start = Start.NEVER

    @property
    def format(self) -> str:
        """deb or rpm."""
        return FORMATS[self.architecture]

    @property
    def configuration(self) -> list[str]:
        """Files that an administrator may have changed."""
        return [path for path in self.files if path.startswith("/etc/")]

    @property
    def has_libraries(self) -> bool:
        """Whether the loader's cache has to be written again."""
        return any(".so." in path for path in self.files)


@dataclass(frozen=True)
class Release:
    """One version of a family of packages, all in one repository. ``epoch`` is empty or ends with a colon."""

    version: str
    architecture: str
    repository: str
    build: str = "1"
    epoch: str = ""

    @property
    def revision(self) -> str:
        return f"{self.epoch}{self.version}-{self.build}"

    def package(
        self,
        name: str,
        summary: str,
        *,
        relations: Relations | None = None,
        files: Files | None = None,
        independent: bool = False,
        installed: str = "",
        leaving: str = "",
        units: tuple[str, ...] = (),
        start: Start = Start.NEVER,
    ) -> Package:
        """A package of this version; an ``independent`` one is the same for all architectures."""
        architecture = {"deb": "all", "rpm": "noarch"}[FORMATS[self.architecture]] if independent else self.architecture
        return Package(name, self.revision, architecture, self.repository, summary, relations or {}, files or {}, {}, installed, leaving, units, start)

    def library(self, name: str, *sonames: str, depends: tuple[str, ...] = ()) -> Package:
        """A package with shared libraries of this version, and the links that programs load them by."""
        directory = LIBRARY_FOLDERS[self.architecture]
        named = {soname: f"{soname.rsplit('.so.', 1)[0]}.so.{self.version}" for soname in sonames}
        return Package(
            name,
            self.revision,
            self.architecture,
            self.repository,
            f"{', '.join(sonames)} of version {self.version}",
            {"depends": depends},
            {f"{directory}/{file}": (shared_object(soname, self.architecture), 0o644) for soname, file in named.items()},
            {f"{directory}/{soname}": file for soname, file in named.items() if soname != file},
        )

    def exactly(self, *names: str) -> tuple[str, ...]:
        """Dependencies on packages of this very version."""
        return tuple(f"{name} = {self.revision}" for name in names)


def launcher(version: str, module: str, function: str, call: str, interpreter: str = "/usr/bin/python3") -> tuple[bytes, int]:
    """A program that is a few lines of Python: ``function(call)`` of ``sim.module``."""
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


def lay_out(package: Package, directory: Path) -> None:
    """Fill DIRECTORY with the package's files and links."""
    for path, (data, mode) in package.files.items():
        place = directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
        place.chmod(mode)
    for path, target in package.links.items():
        place = directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(target)
    for folder in [directory, *(path for path in directory.rglob("*") if path.is_dir() and not path.is_symlink())]:
        folder.chmod(0o755)
