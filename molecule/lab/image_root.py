# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""A root file system made from a distribution's own image, where a registry can be reached: no stand-in, and nothing built here but what is added."""

from __future__ import annotations

import shlex
from pathlib import Path

from .distribution import Distribution
from .engine import Engine
from .errors import LabError
from .names import IMAGE, INPUTS_LABEL, LABEL, root_image

# Packages into the image, and into /mirror what its hosts may ask for beyond it, with what that needs.
SCRIPTS = {
    "apt": """
set -eu
export DEBIAN_FRONTEND=noninteractive
apt-get update --quiet
apt-get install --yes --quiet --no-install-recommends {packages}
mkdir -p /mirror/partial
apt-get install --yes --quiet --no-install-recommends --download-only --option Dir::Cache::archives=/mirror {mirror}
rm -rf /mirror/partial /mirror/lock
""",
    "dnf": """
set -eu
dnf --assumeyes --quiet install {packages}
dnf --assumeyes --quiet download --resolve --destdir /mirror {mirror}
""",
}


def script(distribution: Distribution) -> str:
    return SCRIPTS[distribution.package_manager].format(packages=shlex.join(distribution.packages), mirror=shlex.join(distribution.mirror))


def make(engine: Engine, distribution: Distribution, mirror: Path, inputs: str) -> None:
    """The root's image, and the packages for its hosts in the folder MIRROR. An image that the engine has is not pulled."""
    if distribution.image is None:
        raise LabError(f"{distribution.key} has no image to make its root from")
    if engine.inspect("image", distribution.image) is None:
        engine.run("pull", "--quiet", distribution.image)
    name = f"rackready-lab-root-{distribution.key}"
    engine.attempt("rm", "--force", "--volumes", name)
    try:
        engine.run(
            *["run", f"--name={name}", f"--label={LABEL}=tool", f"--volume={mirror}:/mirror", distribution.image, "sh", "-c", script(distribution)],
            timeout=1800,
        )
        engine.run("commit", f"--change=LABEL {LABEL}={IMAGE} {INPUTS_LABEL}={inputs}", name, root_image(distribution.key))
    finally:
        engine.attempt("rm", "--force", "--volumes", name)
