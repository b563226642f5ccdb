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
    suite: str
    packages: tuple[str, ...]
    mirror: tuple[str, ...]
    archive_path: str
    cuda_repository: str
    cuda_key: str
    docker_from: str | None


def parse(text: str) -> dict[str, Distribution]:
    entries: dict[str, dict[str, Any]] = yaml.safe_load(text)
    return {
        key: Distribution(
            key=key,
            suite=entry["suite"],
            packages=tuple(entry["packages"]),
            mirror=tuple(entry["mirror"]),
            archive_path=entry["archive_path"],
            cuda_repository=entry["cuda_repository"],
            cuda_key=entry["cuda_key"],
            docker_from=entry["docker_from"],
        )
        for key, entry in entries.items()
    }


def load(path: Path) -> dict[str, Distribution]:
    try:
        return parse(path.read_text())
    except (OSError, KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise LabError(f"{path} is not a table of distributions ({type(error).__name__}: {error}); its head says what an entry needs") from error
