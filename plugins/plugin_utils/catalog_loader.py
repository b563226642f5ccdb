# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalog: what is known of GPUs, drivers, distributions, repositories and images, as data with its sources.

The files lie in ``catalog/`` beside this module, one a subject; ``schemas/catalog.schema.json`` says what each may hold and the unit tests hold them to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Table = Mapping[str, Any]

SUBJECTS = ("sources", "gpus", "nvswitches", "drivers", "distributions", "repositories", "images", "toolkit", "docker", "mig", "floors", "room")


@dataclass(frozen=True)
class Catalog:
    """Everything known, read-only. Every field is the content of the file of that name."""

    sources: Table
    gpus: Table
    nvswitches: Table
    fabrics: Table
    drivers: Table
    distributions: Table
    repositories: Table
    images: Table
    cuda_min_driver: Table
    toolkit: Table
    docker: Table
    mig: Table
    floors: Table
    room: Table
    releases: Table

    def gpu_by_pci_id(self, pci_id: str) -> str | None:
        """Slug of the GPU with that PCI id (``10de:2330``), or None when the catalog has none."""
        return next((slug for slug, gpu in self.gpus.items() if pci_id in gpu["pci_ids"]), None)

    def nvswitch_by_pci_id(self, pci_id: str) -> str | None:
        """Key of the NVSwitch generation with that PCI id, or None."""
        number = int(pci_id.replace(":", ""), 16)
        for key, switch in self.nvswitches.items():
            for low, high in switch["pci_id_ranges"]:
                if int(low.replace(":", ""), 16) <= number <= int(high.replace(":", ""), 16):
                    return str(key)
        return None

    def origin(self, repository: str, distribution: str, architecture: str) -> Table | None:
        """Where a repository keeps the packages of a distribution and architecture, or None when the facts do not give that cell."""
        known = self.distributions.get(distribution)
        if known is None:
            return None
        origins = self.repositories[repository]["origins"]
        found: Table | None = origins.get(f"{distribution}/{architecture}") or origins.get(f"{known['package_manager']}/{architecture}")
        return found


def read(directory: Path) -> Catalog:
    """Read a catalog directory; raises OSError or yaml.YAMLError, which name the file."""
    loaded = {subject: _read_file(directory / f"{subject}.yml") for subject in SUBJECTS}
    releases = [_read_file(path) for path in sorted((directory / "releases").glob("*.yml"))]
    return Catalog(
        sources=loaded["sources"]["sources"],
        gpus=loaded["gpus"]["gpus"],
        nvswitches=loaded["nvswitches"]["nvswitches"],
        fabrics=loaded["nvswitches"]["fabrics"],
        drivers=loaded["drivers"],
        distributions=loaded["distributions"]["distributions"],
        repositories=loaded["repositories"]["repositories"],
        images=loaded["images"]["images"],
        cuda_min_driver=loaded["images"]["cuda_min_driver"],
        toolkit=loaded["toolkit"],
        docker=loaded["docker"],
        mig=loaded["mig"]["mig"],
        floors=loaded["floors"]["floors"],
        room=loaded["room"],
        releases={release["release"]: release for release in releases},
    )


def _read_file(path: Path) -> dict[str, Any]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if not isinstance(content, dict):
        raise yaml.YAMLError(f"{path} does not hold a mapping")
    return content


@cache
def load() -> Catalog:
    """The catalog that ships with the collection; read once a process."""
    return read(Path(__file__).with_name("catalog"))
