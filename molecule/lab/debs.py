# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Debian's packages in a mirror: what the lab takes real programs from, to serve them under other names."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from .errors import LabError


def one(folder: Path, name: str) -> Path:
    """The package of that name in a mirror."""
    found = sorted(folder.glob(f"{name}_*.deb"))
    if len(found) != 1:
        raise LabError(f"{folder} has {len(found)} packages {name} instead of one; run ./dev lab down, then ./dev lab up")
    return found[0]


def upstream(file_name: str) -> str:
    """The upstream version in the name of a Debian package's file: ``docker.io_26.1.5+dfsg1-9_amd64.deb`` -> ``26.1.5``."""
    found = re.match(r"[^_]+_(?:\d+%3a)?([0-9]+(?:\.[0-9]+)*)", file_name)
    if found is None:
        raise LabError(f"{file_name} is not named as Debian's packages are")
    return found[1]


def unpack(package: Path, to: Path, with_control: bool = False) -> Path:
    """Unpack into the folder TO; WITH_CONTROL: also what is about the package, in ``DEBIAN``."""
    run("dpkg-deb", "--raw-extract" if with_control else "--extract", str(package), str(to))
    return to


def run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise LabError(f"{' '.join(command[:3])} failed with status {done.returncode}: {done.stderr.strip()}")
