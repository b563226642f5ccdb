# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The distributions that hosts of the lab can have: data, from distributions.yml."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from .errors import LabError


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
        )
        for key, entry in entries.items()
    }


def load(path: Path) -> dict[str, Distribution]:
    try:
        return parse(path.read_text())
    except (OSError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise LabError(f"{path} is not a table of distributions ({type(error).__name__}: {error}); its head says what an entry needs") from error
