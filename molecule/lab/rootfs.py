# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Root file systems made with mmdebstrap, so that no image has to be pulled."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .errors import LabError
from .steps import digest_of

# Documentation and translations are half of the files and nobody reads them there.
DPKG_OPTIONS = [f"path-exclude=/usr/share/{folder}/*" for folder in ("doc", "man", "info", "locale")] + ["force-unsafe-io"]


@dataclass(frozen=True)
class Root:
    """A root file system: what is in it, and which packages (with what they need beyond it) are fetched for a mirror."""

    suite: str
    packages: tuple[str, ...]
    variant: str = "apt"  # or "essential", without apt
    mirror: tuple[str, ...] = ()

    def inputs(self) -> str:
        return digest_of(self.suite, self.packages, self.variant, self.mirror, DPKG_OPTIONS)


def command(root: Root, tarball: Path, mirror_to: Path | None = None) -> list[str]:
    """mmdebstrap's command line."""
    hooks: list[str] = []
    if mirror_to is not None:
        archives = '"$1"/var/cache/apt/archives'
        hooks = [
            f"rm -f {archives}/*.deb",
            f'APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" apt-get --yes --quiet --no-install-recommends --download-only install {shlex.join(root.mirror)}',
            f"cp {archives}/*.deb {shlex.quote(str(mirror_to))}/",
            f"rm -f {archives}/*.deb",
        ]
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


def build(root: Root, tarball: Path, mirror_to: Path | None = None) -> None:
    """Make TARBALL, and MIRROR_TO hold the packages of the mirror; a LabError with mmdebstrap's last words when it fails."""
    result = subprocess.run(
        command(root, tarball, mirror_to),
        env={**os.environ, "TMPDIR": str(tarball.parent)},
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
