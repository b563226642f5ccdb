# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Root file systems made with mmdebstrap, so that no image has to be pulled."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import LabError
from .steps import digest_of

# Documentation and translations are half of the files and nobody reads them there.
DPKG_OPTIONS = [f"path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "info", "locale")] + ["force-unsafe-io"]


# Fixed, so that the same packages give the same bytes whenever they are built.
TIME = "1767225600"


@dataclass(frozen=True)
class Root:
    """What is in a root file system; VARIANT: apt, or essential (without apt)."""

    suite: str
    packages: tuple[str, ...]
    variant: str = "apt"

    def inputs(self) -> str:
        return digest_of(self.suite, self.packages, self.variant, DPKG_OPTIONS)


def command(root: Root, tarball: Path, hooks: Sequence[str] = ()) -> list[str]:
    """mmdebstrap's command line; HOOKS run at the end, with the root as "$1"."""
    return [
        "mmdebstrap",
        "--quiet",
        f"--variant={root.variant}",
        *[f"--dpkgopt={option}" for option in DPKG_OPTIONS],
        f"--include={','.join(root.packages)}",
        *[f"--customize-hook={hook}" for hook in hooks],
        root.suite,
        str(tarball),
    ]


def download(packages: Sequence[str], to: Path) -> list[str]:
    """Hooks that fetch PACKAGES, with what they need beyond the root, into the folder TO."""
    archives = '"$1"/var/cache/apt/archives'
    return [
        f"rm -f {archives}/*.deb",
        f'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --yes --quiet --no-install-recommends --download-only install {shlex.join(packages)}',
        f"cp {archives}/*.deb {shlex.quote(str(to))}/",
        f"rm -f {archives}/*.deb",
    ]


def build(root: Root, tarball: Path, hooks: Sequence[str] = ()) -> None:
    """Make TARBALL; a LabError with mmdebstrap's last words when it fails."""
    result = subprocess.run(
        command(root, tarball, hooks),
        env={**os.environ, "TMPDIR": str(tarball.parent), "SOURCE_DATE_EPOCH": TIME},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if result.returncode != 0:
        words = "\n".join((result.stdout + result.stderr).strip().splitlines()[-15:])
        raise LabError(f"mmdebstrap failed with status {result.returncode}; is Debian's archive reachable from this machine? Its last words:\n{words}")


def fresh(folder: Path) -> Path:
    """An empty folder in place of whatever a killed run left there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder
