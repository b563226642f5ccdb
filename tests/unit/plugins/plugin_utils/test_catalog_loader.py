# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The catalog holds to its schema, its facts name their sources, and its parts fit each other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackready.gpu.plugins.module_utils.mig_geometry import card_from_table, place
from ansible_collections.rackready.gpu.plugins.plugin_utils import catalog_loader
from ansible_collections.rackready.gpu.plugins.plugin_utils.areas.pytorch_image import runs_on
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least, branch
from jsonschema import Draft202012Validator

DIRECTORY = Path(catalog_loader.__file__).with_name("catalog")
SCHEMA = json.loads(Path(catalog_loader.__file__).with_name("schemas").joinpath("catalog.schema.json").read_text(encoding="utf-8"))
FILES = sorted(DIRECTORY.rglob("*.yml"))
CATALOG = catalog_loader.load()


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def walk(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for key, inner in value.items():
            yield from walk(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from walk(inner, f"{path}[{number}]")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_holds_to_its_schema(path: Path) -> None:
    name = "release" if path.parent.name == "releases" else path.stem
    schema = {**SCHEMA, "$ref": f"#/$defs/{name}"}
    assert [f"{list(error.absolute_path)}: {error.message}" for error in Draft202012Validator(schema).iter_errors(read(path))] == []


def test_the_schemas_themselves_are_schemas() -> None:
    for path in Path(catalog_loader.__file__).with_name("schemas").glob("*.json"):
        Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_fact_names_known_sources(path: Path) -> None:
    for where, entry in walk(read(path)):
        named = [*entry.get("source", []), *([entry["min_driver_source"]] if "min_driver_source" in entry else [])]
        assert [key for key in named if key not in CATALOG.sources] == [], where


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_nothing_is_called_verified_that_rests_on_weak_sources_alone(path: Path) -> None:
    for where, entry in walk(read(path)):
        if entry.get("verified") and "source" in entry:
            kinds = {CATALOG.sources[key]["kind"] for key in entry["source"]}
            assert kinds - {"secondary", "derived", "recall"}, where


def test_every_source_is_used() -> None:
    used = {key for path in FILES for _where, entry in walk(read(path)) for key in [*entry.get("source", []), entry.get("min_driver_source")]}
    code = "".join(path.read_text(encoding="utf-8") for path in DIRECTORY.parent.joinpath("areas").glob("*.py"))
    assert [key for key in CATALOG.sources if key not in used and f'"{key}"' not in code] == []


def test_sources_named_in_the_planner_exist() -> None:
    for area in DIRECTORY.parent.joinpath("areas").glob("*.py"):
        for line in area.read_text(encoding="utf-8").splitlines():
            if "Reason(" in line and line.rstrip().endswith(('"),', '")')):
                key = line.rstrip(",) ").rpartition('"')[0].rpartition('"')[2]
                assert key in CATALOG.sources or key in ("inventory", "host", "design"), f"{area.name}: {line.strip()}"


def test_pci_ids_are_unique_and_found() -> None:
    ids = [pci_id for gpu in CATALOG.gpus.values() for pci_id in gpu["pci_ids"]]
    assert len(ids) == len(set(ids))
    for slug, gpu in CATALOG.gpus.items():
        assert [CATALOG.gpu_by_pci_id(pci_id) for pci_id in gpu["pci_ids"]] == [slug] * len(gpu["pci_ids"])
    assert CATALOG.gpu_by_pci_id("10de:ffff") is None


@pytest.mark.parametrize(
    ("pci_id", "generation"),
    [("10de:1af1", "nvswitch-2"), ("10de:1ae8", "nvswitch-2"), ("10de:22a3", "nvswitch-3"), ("10de:22a8", None), ("10de:229f", None), ("10de:2330", None)],
)
def test_nvswitches_are_found_in_their_ranges_only(pci_id: str, generation: str | None) -> None:
    assert CATALOG.nvswitch_by_pci_id(pci_id) == generation


def test_gpus_name_architectures_mig_tables_and_fabrics_that_exist() -> None:
    for slug, gpu in CATALOG.gpus.items():
        assert gpu["architecture"] in CATALOG.drivers["architectures"], slug
        assert gpu["mig"] is None or gpu["mig"] in CATALOG.mig, slug
        assert gpu["fabric"] == "none" or gpu["fabric"] in CATALOG.fabrics, slug


@pytest.mark.parametrize("name", CATALOG.mig)
def test_mig_tables_are_possible(name: str) -> None:
    table = CATALOG.mig[name]
    card = card_from_table(table)
    ids = [entry["id"] for entry in table["profiles"].values()]
    assert len(ids) == len(set(ids))
    for profile in card.profiles.values():
        assert all(start + profile.size <= card.memory_slices for start in profile.starts), profile.name
        assert place([profile.name] * profile.maximum, card) is not None, f"{profile.maximum} x {profile.name} must fit"
        assert place([profile.name] * (profile.maximum + 1), card) is None, f"{profile.maximum + 1} x {profile.name} must not fit"


def test_floors_are_of_known_gpus_and_plausible() -> None:
    for slug, floors in CATALOG.floors.items():
        for name, floor in floors.items():
            peak = CATALOG.gpus[slug]["peak_dense_tflops"][name.partition(".")[2]]
            assert 0.25 < floor["floor"] / peak < 0.95, (slug, name)


@pytest.mark.parametrize("release", CATALOG.releases.values(), ids=lambda release: release["release"])
def test_releases_fit_together(release: dict[str, Any]) -> None:
    driver = release["driver"]
    assert branch(driver["at_least"]) == driver["branch"]
    known = CATALOG.drivers["branches"][driver["branch"]]
    assert known["status"] == "current"
    assert at_least(known["newest_seen"], driver["at_least"])
    image = CATALOG.images[release["image"]]
    assert image["verified"]
    assert at_least(driver["at_least"], CATALOG.cuda_min_driver[image["cuda"].partition(".")[0]]["driver"])
    toolkit = release["container_toolkit"]["version"]
    assert at_least(toolkit, CATALOG.toolkit["cdi_refresh_since"])
    assert at_least(toolkit, CATALOG.toolkit["security_floor"]["version"])
    assert toolkit not in CATALOG.toolkit["known_bad"]
    for slug, gpu in CATALOG.gpus.items():
        assert at_least(driver["at_least"], gpu["first_driver"]), slug
        assert runs_on(image["architectures"], gpu["compute_capability"]) is not None, slug


def test_a_release_is_in_the_file_of_its_name() -> None:
    assert [path.stem for path in sorted((DIRECTORY / "releases").glob("*.yml"))] == list(CATALOG.releases)


def test_every_distribution_has_its_repositories() -> None:
    for name, entry in CATALOG.distributions.items():
        manager = entry["package_manager"]
        for architecture in entry["architectures"]:
            for repository in (CATALOG.drivers["packages"][manager]["repository"], CATALOG.toolkit["repository"]):
                assert CATALOG.origin(repository, name, architecture) is not None, (repository, name, architecture)


def test_cells_that_the_facts_do_not_give_are_none() -> None:
    assert CATALOG.origin("nvidia-cuda", "debian-13", "aarch64") is None
    assert CATALOG.origin("nvidia-cuda", "plan9-4", "x86_64") is None


def test_debian_13_is_served_with_the_new_key() -> None:
    origin = CATALOG.origin("nvidia-cuda", "debian-13", "x86_64")
    assert origin is not None
    assert origin["key"].endswith("8793F200.pub")
    assert origin["fingerprint"].endswith("8793F200")


def test_read_names_the_file_that_is_broken(tmp_path: Path) -> None:
    for path in FILES:
        copy = tmp_path / path.relative_to(DIRECTORY)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "gpus.yml").write_text("- just a list\n", encoding="utf-8")
    with pytest.raises(yaml.YAMLError, match=r"gpus\.yml does not hold a mapping"):
        catalog_loader.read(tmp_path)
