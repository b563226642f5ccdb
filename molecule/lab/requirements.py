# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""What the machine must have. Nothing is installed here: what is missing is named, with Debian's name for it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from .errors import LabError

COMMANDS = {
    "docker": "docker.io (from Debian 13 on also docker-cli)",
    "mmdebstrap": "mmdebstrap",
    "ssh-keygen": "openssh-client",
    "dpkg-deb": "dpkg",
    "tar": "tar",
}
KEYRINGS = Path("/usr/share/keyrings")


def missing(which: Callable[[str], str | None] = shutil.which, keyrings: Path = KEYRINGS) -> list[str]:
    """Sentences, one for each thing that is not there."""
    found = [f"the command {command} was not found: install {package}" for command, package in COMMANDS.items() if which(command) is None]
    if not list(keyrings.glob("debian-archive-keyring.*")):
        found.append(f"no Debian archive key in {keyrings}: install debian-archive-keyring")
    return found


def check() -> None:
    problems = missing()
    if os.geteuid() != 0:
        problems.append("the lab builds root file systems: run it as root")
    if os.uname().machine != "x86_64":
        problems.append(f"the lab's hosts are x86_64 and this machine is {os.uname().machine}: run it on an x86_64 machine")
    if problems:
        raise LabError("this machine cannot hold the lab. " + "; ".join(problems) + ".")
