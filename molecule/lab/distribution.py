# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The distributions that hosts of the lab can have: data, from distributions.yml."""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .errors import LabError

VARIABLE = "RACKREADY_LAB_ROOT_"
"""RACKREADY_LAB_ROOT_ROCKY_9=docker.io/rockylinux/rockylinux:9: hosts of rocky-9 have the root of that image, and not one that is built here."""


@dataclass(frozen=True)
class Additions:
    """What an image gets, and what its hosts may ask for beyond it, by the distribution's own package names."""

    packages: tuple[str, ...]
    mirror: tuple[str, ...]


@dataclass(frozen=True)
class Distribution:
    key: str  # as the facts have it: debian-13
    root: str
    suite: str | None
    packages: tuple[str, ...]
    mirror: tuple[str, ...]
    os_release: dict[str, str]
    package_manager: str  # apt or dnf
    vendor: str
    version: str
    codename: str | None
    cuda_repository: str
    cuda_key: str
    docker_from: str | None
    runc_from: str
    to_image: Additions
    image: str | None = None  # the root is made from it, if there is one

    @property
    def archive_path(self) -> str:
        """Where the site mirror of the distribution lies on the services host."""
        return self.vendor.lower()

    @property
    def needs(self) -> set[str]:
        """The distributions whose root file systems and mirrors must be there."""
        return {self.root} | ({self.docker_from, self.runc_from} if self.docker_from else set())


def parse(text: str) -> dict[str, Distribution]:
    entries: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return {
        key: Distribution(
            key=key,
            root=entry["root"],
            suite=entry.get("suite"),
            packages=tuple(entry.get("packages", ())),
            mirror=tuple(entry.get("mirror", ())),
            os_release=entry.get("os_release", {}),
            package_manager=entry.get("package_manager", "apt"),
            vendor=entry["vendor"],
            version=entry["version"],
            codename=entry["codename"],
            cuda_repository=entry["cuda_repository"],
            cuda_key=entry["cuda_key"],
            docker_from=entry["docker_from"],
            runc_from=entry.get("runc_from", entry["root"]),
            to_image=Additions(**{name: tuple(entry.get("to_image", entry).get(name, ())) for name in ("packages", "mirror")}),
        )
        for key, entry in entries.items()
    }


def on_images(known: Mapping[str, Distribution], environment: Mapping[str, str]) -> dict[str, Distribution]:
    """The same, each on the image that the environment names for it: then it is no stand-in.

    :raises LabError: a variable names no distribution of the lab.
    """
    variables = {VARIABLE + re.sub(r"[^A-Z0-9]", "_", key.upper()): key for key in known}
    unknown = sorted(name for name in environment if name.startswith(VARIABLE) and name not in variables)
    if unknown:
        raise LabError(f"{', '.join(unknown)}: no distribution of the lab has that variable; there are {', '.join(sorted(variables))}")
    return {**known, **{key: _on_image(known[key], environment[name]) for name, key in variables.items() if environment.get(name)}}


def _on_image(one: Distribution, image: str) -> Distribution:
    return dataclasses.replace(
        one,
        root=one.key,
        suite=None,
        packages=one.to_image.packages,
        mirror=one.to_image.mirror,
        os_release={},
        runc_from=one.key if one.runc_from == one.root else one.runc_from,
        image=image,
    )


def load(path: Path, environment: Mapping[str, str] = os.environ) -> dict[str, Distribution]:
    try:
        return on_images(parse(path.read_text()), environment)
    except (OSError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise LabError(f"{path} is not a table of distributions ({type(error).__name__}: {error}); its head says what an entry needs") from error
