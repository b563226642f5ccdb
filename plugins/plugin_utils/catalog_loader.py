# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalog: what is known of GPUs, drivers, distributions, repositories and images, as data with its sources.

The files lie in ``catalog/`` beside this module, one a subject or, for long ones, a directory;
``schemas/catalog.schema.json`` says what each may hold and the unit tests hold them to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import yaml

Table = Mapping[str, Any]

SUBJECTS = (
    "sources",
    "gpus",
    "fabrics",
    "drivers",
    "driver_packages",
    "distributions",
    "repositories",
    "cuda",
    "ngc",
    "pytorch",
    "toolkit",
    "docker",
    "mig",
    "floors",
    "room",
    "download",
    "unsupported",
)
# A few thousand lines are read for every host that is planned, which Python alone takes a second for.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Catalog:
    """Everything known, read-only. Every field is the content of the file, or of the files of the directory, of that name."""

    sources: Table
    gpus: Table
    nvswitches: Table
    fabrics: Table
    fabric_packages: Table
    drivers: Table
    driver_packages: Table
    distributions: Table
    repositories: Table
    cuda: Table
    ngc: Table
    pytorch: Table
    toolkit: Table
    docker: Table
    mig: Table
    floors: Table
    room: Table
    download: Table
    unsupported: Table
    releases: Table

    @cached_property
    def _slugs(self) -> Mapping[str, str]:
        return {pci_id: str(slug) for slug, gpu in self.gpus.items() for pci_id in gpu["pci_ids"]}

    def gpu_by_pci_id(self, pci_id: str) -> str | None:
        """Slug of the GPU with that PCI id (``10de:2330``), or None when the catalog has none."""
        return self._slugs.get(pci_id)

    def nvswitch_by_pci_id(self, pci_id: str) -> str | None:
        """Key of the NVSwitch generation with that PCI id, or None."""
        number = int(pci_id.replace(":", ""), 16)
        for key, switch in self.nvswitches.items():
            for low, high in switch["pci_id_ranges"]:
                if int(low.replace(":", ""), 16) <= number <= int(high.replace(":", ""), 16):
                    return str(key)
        return None

    # --- cells of the matrix distribution x architecture x branch; None: the facts do not give it

    def origin(self, repository: str, distribution: str, architecture: str) -> Table | None:
        """Where a repository keeps the packages of a distribution and architecture."""
        known = self.distributions.get(distribution)
        if known is None or architecture not in known["architectures"]:
            return None
        origins = self.repositories[repository]["origins"]
        places = (*self._alike(distribution), known["package_manager"])
        found: Table | None = next((origins[f"{place}/{architecture}"] for place in places if f"{place}/{architecture}" in origins), None)
        return found

    def driver_cell(self, distribution: str, architecture: str, branch: str | None) -> Table | None:
        """The packages of a driver branch from the repository that has them; their names may have ``{branch}`` in them."""
        for cell in self._cells(self.driver_packages, distribution, branch):
            if cell["repository"] is not None and self.origin(cell["repository"], distribution, architecture) is not None:
                return cell
        return None

    def signed_modules(self, distribution: str, branch: str | None) -> Table | None:
        """The kernel modules of a branch that the distribution itself built and signed."""
        return next((cell["signed"] for cell in self._cells(self.driver_packages, distribution, branch) if "signed" in cell), None)

    def fabric_cell(self, distribution: str, repository: str, branch: str | None) -> Table | None:
        """The packages of fabrics that go with a driver branch from a repository."""
        return next((cell for cell in self._cells(self.fabric_packages, distribution, branch) if cell["repository"] == repository), None)

    def _alike(self, distribution: str) -> tuple[str, ...]:
        like = self.distributions.get(distribution, {}).get("like")
        return (distribution, like) if like else (distribution,)

    def _cells(self, table: Table, distribution: str, branch: str | None) -> list[Table]:
        names = self._alike(distribution)
        return [
            cell for cell in table.values() if any(name in cell["distributions"] for name in names) and branch is not None and _covers(cell["branches"], branch)
        ]

    # --- images

    def image(self, tagged: str) -> Table | None:
        """What is known of an image by its full reference without digest; ``architectures`` is compiled code by platform."""
        name, _colon, tag = tagged.rpartition(":")
        if name == self.ngc["repository"]:
            found: Table | None = self.ngc["images"].get(tag)
            return found
        return self._upstream(tag) if name == self.pytorch["repository"] else None

    def _upstream(self, tag: str) -> Table | None:
        """An image of the PyTorch project: its tag says what is in it, and the tables of the release what that was built for."""
        parts = re.fullmatch(rf"(\d+\.\d+)\.(\d+)-cuda(\d+\.\d+)-cudnn\d+-({'|'.join(self.pytorch['variants'])})", tag)
        if parts is None:
            return None
        torch, cuda = f"{parts[1]}.{parts[2]}", parts[3]
        variant = f"cu{cuda.replace('.', '')}"
        releases = self.pytorch["releases"]
        # Patch releases are built for the same GPUs; that is likely and was not looked up.
        nearest = torch if torch in releases else next((known for known in releases if known.startswith(f"{parts[1]}.")), None)
        entry: Table = releases[nearest] if nearest else {"architectures": {}, "source": [], "verified": False}
        looked_up = entry["architectures"].get(variant)
        code = looked_up or entry.get("architectures_unverified", {}).get(variant)
        arm64 = self.pytorch["arm64"]
        on_arm64 = arm64["architectures"].get(variant) if nearest in arm64["releases"] else None
        seen = tag.rpartition("-")[0] in self.pytorch["tags_seen"]
        return {
            "torch": torch,
            "cuda": cuda,
            "toolkit_driver": next((entry["driver"] for toolkit, entry in self.cuda["toolkits"].items() if toolkit.startswith(f"{cuda}.")), None),
            "architectures": {platform: found for platform, found in (("linux/amd64", code), ("linux/arm64", on_arm64)) if found},
            "architectures_verified": looked_up is not None and nearest == torch,
            "source": [*self.pytorch["tags_source"], *entry["source"]],
            "verified": seen and entry["verified"],
        }


def _covers(branches: Table, branch: str) -> bool:
    """Whether a branch is within a range whose ends may be open."""
    number = int(branch)
    return int(branches["from"] or 0) <= number <= int(branches["to"] or number)


def read(directory: Path) -> Catalog:
    """Read a catalog directory; raises OSError or yaml.YAMLError, which name the file."""
    loaded = {subject: _read_subject(directory, subject) for subject in SUBJECTS}
    releases = [_read_file(path) for path in sorted((directory / "releases").glob("*.yml"))]
    return Catalog(
        sources=loaded["sources"]["sources"],
        gpus=loaded["gpus"]["gpus"],
        nvswitches=loaded["fabrics"]["nvswitches"],
        fabrics=loaded["fabrics"]["fabrics"],
        fabric_packages=loaded["fabrics"]["fabric_packages"],
        drivers=loaded["drivers"],
        driver_packages=loaded["driver_packages"]["driver_packages"],
        distributions=_with_those_alike(loaded["distributions"]["distributions"]),
        repositories=loaded["repositories"]["repositories"],
        cuda=loaded["cuda"],
        ngc=loaded["ngc"],
        pytorch=loaded["pytorch"],
        toolkit=loaded["toolkit"],
        docker=loaded["docker"],
        mig=loaded["mig"]["mig"],
        floors=loaded["floors"]["floors"],
        room=loaded["room"],
        download=loaded["download"],
        unsupported=loaded["unsupported"]["unsupported"],
        releases={release["release"]: release for release in releases},
    )


def _with_those_alike(distributions: dict[str, Any]) -> dict[str, Any]:
    """What a distribution does not say itself is as for the one that it is like."""
    return {name: {**distributions.get(entry.get("like"), {}), **entry} for name, entry in distributions.items()}


def _read_subject(directory: Path, subject: str) -> dict[str, Any]:
    """A file, or a directory of files that share one mapping under the subject's name."""
    if not (directory / subject).is_dir():
        return _read_file(directory / f"{subject}.yml")
    merged: dict[str, Any] = {}
    for path in sorted((directory / subject).glob("*.yml")):
        entries = _read_file(path)[subject]
        if twice := merged.keys() & entries.keys():
            raise yaml.YAMLError(f"{path} has {', '.join(sorted(twice))}, which another file of {subject} has too")
        merged |= entries
    return {subject: merged}


def _read_file(path: Path) -> dict[str, Any]:
    content = yaml.load(path.read_text(encoding="utf-8"), Loader=_LOADER)  # a safe one, see above
    if not isinstance(content, dict):
        raise yaml.YAMLError(f"{path} does not hold a mapping")
    return content


@cache
def load() -> Catalog:
    """The catalog that ships with the collection; read once a process."""
    return read(Path(__file__).with_name("catalog"))
