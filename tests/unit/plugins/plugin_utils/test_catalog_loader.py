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
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import flavours_of, provisioned
from ansible_collections.rackready.gpu.plugins.plugin_utils.releases import not_listed, runs_on
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least
from jsonschema import Draft202012Validator

DIRECTORY = Path(catalog_loader.__file__).with_name("catalog")
SCHEMA = json.loads(Path(catalog_loader.__file__).with_name("schemas").joinpath("catalog.schema.json").read_text(encoding="utf-8"))
FILES = sorted(DIRECTORY.rglob("*.yml"))
CATALOG = catalog_loader.load()


def name_of(path: Path) -> str:
    return path.relative_to(DIRECTORY).with_suffix("").as_posix()


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


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_file_holds_to_its_schema(path: Path) -> None:
    name = {"catalog": path.stem, "releases": "release"}.get(path.parent.name, path.parent.name)
    schema = {**SCHEMA, "$ref": f"#/$defs/{name}"}
    assert [f"{list(error.absolute_path)}: {error.message}" for error in Draft202012Validator(schema).iter_errors(read(path))] == []


def test_the_schemas_themselves_are_schemas() -> None:
    for path in Path(catalog_loader.__file__).with_name("schemas").glob("*.json"):
        Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_fact_names_known_sources(path: Path) -> None:
    for where, entry in walk(read(path)):
        named = [*entry.get("source", []), *entry.get("tags_source", []), *([entry["min_driver_source"]] if "min_driver_source" in entry else [])]
        assert [key for key in named if key not in CATALOG.sources] == [], where


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_is_called_verified_that_rests_on_weak_sources_alone(path: Path) -> None:
    for where, entry in walk(read(path)):
        if entry.get("verified") and "source" in entry:
            kinds = {CATALOG.sources[key]["kind"] for key in entry["source"]}
            assert kinds - {"secondary", "derived", "recall"}, where


def test_every_source_is_used() -> None:
    entries = [entry for path in FILES for _where, entry in walk(read(path))]
    used = {key for entry in entries for key in [*entry.get("source", []), *entry.get("tags_source", []), entry.get("min_driver_source")]}
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
    assert len(CATALOG.gpus) == 59
    for slug, gpu in CATALOG.gpus.items():
        assert set(gpu.get("unlisted_pci_ids", [])) <= set(gpu["pci_ids"]), slug


@pytest.mark.parametrize(
    ("pci_id", "generation"),
    [("10de:1af1", "nvswitch-2"), ("10de:1ae8", "nvswitch-2"), ("10de:22a3", "nvswitch-3"), ("10de:22a8", None), ("10de:229f", None), ("10de:2330", None)],
)
def test_nvswitches_are_found_in_their_ranges_only(pci_id: str, generation: str | None) -> None:
    assert CATALOG.nvswitch_by_pci_id(pci_id) == generation


def test_gpus_name_architectures_mig_tables_and_fabrics_that_exist() -> None:
    for slug, gpu in CATALOG.gpus.items():
        architecture = CATALOG.drivers["architectures"][gpu["architecture"]]
        assert gpu["compute_capability"] in architecture["compute_capabilities"], slug
        assert gpu["mig"] is None or gpu["mig"] in CATALOG.mig, slug
        assert gpu["fabric"] == "none" or gpu["fabric"] in CATALOG.fabrics, slug


PLACED = [name for name, table in CATALOG.mig.items() if table["placement"] is not None]


@pytest.mark.parametrize("name", PLACED)
def test_mig_tables_are_possible(name: str) -> None:
    table = CATALOG.mig[name]
    card = card_from_table(table)
    ids = [entry["id"] for entry in table["profiles"].values()]
    assert len(ids) == len(set(ids))
    for profile in card.profiles.values():
        assert all(start + profile.size <= card.memory_slices for start in profile.starts), profile.name
        assert place([profile.name] * profile.maximum, card) is not None, f"{profile.maximum} x {profile.name} must fit"
        assert place([profile.name] * (profile.maximum + 1), card) is None, f"{profile.maximum + 1} x {profile.name} must not fit"


def test_where_instances_may_begin_is_known_for_all_profiles_of_a_card_or_for_none() -> None:
    for name, table in CATALOG.mig.items():
        assert {"starts" in profile for profile in table["profiles"].values()} == {name in PLACED}, name
        assert set(table.get("min_driver_of", {})) <= set(CATALOG.gpus), name


# --- images

UPSTREAM = [f"{CATALOG.pytorch['repository']}:{tag}-{variant}" for tag in CATALOG.pytorch["tags_seen"] for variant in CATALOG.pytorch["variants"]]
NGC = [f"{CATALOG.ngc['repository']}:{tag}" for tag in CATALOG.ngc["images"]]
# Nobody has read what these were built for, and it is not between two that are alike.
UNREAD = [f"{CATALOG.ngc['repository']}:24.{month:02}-py3" for month in range(8, 13)]


@pytest.mark.parametrize("reference", [*NGC, *UPSTREAM])
def test_every_image_has_its_cuda_and_the_code_in_it(reference: str) -> None:
    image = CATALOG.image(reference)
    assert image is not None
    assert image["cuda"].partition(".")[0] in CATALOG.cuda["min_driver"]
    assert ("linux/amd64" in image["architectures"]) == (reference not in UNREAD)
    if image["toolkit_driver"] is not None:
        assert at_least(image["toolkit_driver"], CATALOG.cuda["min_driver"][image["cuda"].partition(".")[0]]["driver"])
    for code in image["architectures"].values():
        assert runs_on(code, "8.0") is not None
    if "min_compute_capability" in image:
        assert runs_on(image["architectures"]["linux/amd64"], image["min_compute_capability"]) is not None


@pytest.mark.parametrize(
    ("reference", "code", "verified"),
    [
        ("docker.io/pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime", "7.0 7.5 8.0 8.6 9.0 10.0 12.0", True),
        # The tag is of a patch release of which nobody has listed the architectures.
        ("docker.io/pytorch/pytorch:2.14.0-cuda12.6-cudnn9-devel", "5.0 6.0 7.0 7.5 8.0 8.6 9.0", False),
        ("docker.io/pytorch/pytorch:2.6.0-cuda12.4-cudnn9-devel", "5.0 6.0 7.0 7.5 8.0 8.6 9.0", False),
        ("docker.io/pytorch/pytorch:2.15.0-cuda13.2-cudnn9-runtime", None, False),
        ("docker.io/pytorch/pytorch:3.0.0-cuda14.0-cudnn9-runtime", None, False),
    ],
)
def test_an_image_of_the_pytorch_project_is_known_by_its_tag(reference: str, code: str | None, verified: bool) -> None:
    image = CATALOG.image(reference)
    assert image is not None
    assert (image["architectures"].get("linux/amd64"), image["architectures_verified"]) == (code, verified)


@pytest.mark.parametrize("reference", ["docker.io/pytorch/pytorch:latest", "nvcr.io/nvidia/pytorch:99.01-py3", "docker.io/library/debian:13", "registry/x"])
def test_other_images_are_not_known(reference: str) -> None:
    assert CATALOG.image(reference) is None


# --- releases


@pytest.mark.parametrize("release", CATALOG.releases.values(), ids=lambda release: release["release"])
def test_releases_fit_together(release: dict[str, Any]) -> None:
    driver = release["driver"]
    known = CATALOG.drivers["branches"][driver["branch"]]
    assert known["status"] == "current"
    assert known["verified"]
    assert driver.get("flavour", "open") in known["flavours"]
    # The number of a driver is one that was seen, or none is named.
    assert driver["at_least"] == known["newest_seen"]
    image = CATALOG.image(release["image"])
    assert image is not None
    assert image["verified"]
    assert image["architectures_verified"]
    assert at_least(driver["at_least"] or f"{driver['branch']}.0", CATALOG.cuda["min_driver"][image["cuda"].partition(".")[0]]["driver"])
    toolkit = release["container_toolkit"]["version"]
    assert toolkit in CATALOG.toolkit["released"]
    assert at_least(toolkit, CATALOG.toolkit["cdi_refresh_since"])
    assert at_least(toolkit, CATALOG.toolkit["security_floor"]["version"])
    assert toolkit not in CATALOG.toolkit["known_bad"]


def served(release: dict[str, Any]) -> set[str]:
    """Architectures of which the release's driver, kernel modules and image all serve every card of the catalog."""
    driver, image = release["driver"], CATALOG.image(release["image"])
    assert image is not None
    fitting: dict[str, bool] = {}
    for slug, gpu in CATALOG.gpus.items():
        flavours = [flavour for flavour in flavours_of(CATALOG, [slug]) if flavour == driver.get("flavour", flavour)]
        fits = (
            any(flavour in CATALOG.drivers["branches"][driver["branch"]]["flavours"] for flavour in flavours)
            and not_listed(CATALOG, slug, driver["branch"], driver["at_least"]) is None
            and runs_on(image["architectures"]["linux/amd64"], gpu["compute_capability"]) is not None
        )
        fitting[gpu["architecture"]] = fitting.get(gpu["architecture"], True) and fits
    return {architecture for architecture, fits in fitting.items() if fits}


NEW = {"turing", "ampere", "ada", "hopper", "grace-hopper", "blackwell"}


@pytest.mark.parametrize(
    ("name", "architectures"),
    [
        ("2026.11-longterm", NEW),
        ("2026.11-production", NEW),
        ("2026.11-newest", NEW),
        ("2026.11-torch28", NEW | {"volta"}),
        ("2026.11-legacy", {"pascal", "volta", "turing", "ampere", "ada", "hopper"}),
    ],
)
def test_releases_serve_whole_architectures(name: str, architectures: set[str]) -> None:
    assert served(CATALOG.releases[name]) == architectures
    assert len(CATALOG.releases) == 5


def test_a_release_is_in_the_file_of_its_name() -> None:
    assert [path.stem for path in sorted((DIRECTORY / "releases").glob("*.yml"))] == list(CATALOG.releases)


# --- the matrix distribution x architecture x branch

CUDA_APT = {
    ("debian-12", "x86_64"): ("535", "620"),
    ("debian-13", "x86_64"): ("535", "620"),
    ("ubuntu-22.04", "x86_64"): ("535", "620"),
    ("ubuntu-22.04", "aarch64"): ("535", "620"),
    ("ubuntu-24.04", "x86_64"): ("535", "620"),
    ("ubuntu-24.04", "aarch64"): ("535", "620"),
    # Its package list begins where the names lost the branch.
    ("ubuntu-26.04", "x86_64"): ("590", "620"),
}
BRANCHES = list(CATALOG.drivers["branches"])


@pytest.mark.parametrize("distribution", CATALOG.distributions)
@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
def test_the_matrix_of_driver_packages_is_the_one_of_the_facts(distribution: str, architecture: str) -> None:
    found = [branch for branch in BRANCHES if CATALOG.driver_cell(distribution, architecture, branch) is not None]
    expected: list[str] = []
    if (distribution, architecture) in CUDA_APT:
        first, last = CUDA_APT[distribution, architecture]
        expected = [branch for branch in BRANCHES if first <= branch <= last]
    elif CATALOG.distributions[distribution]["package_manager"] == "dnf":
        expected = BRANCHES if architecture in CATALOG.distributions[distribution]["architectures"] else []
    elif CATALOG.distributions[distribution]["package_manager"] == "zypper" and architecture == "x86_64":
        from_580 = BRANCHES[BRANCHES.index("580") :]
        expected = from_580 if distribution.endswith("-15") else [branch for branch in from_580 if branch != "580"]
    assert found == expected


NAMES: dict[tuple[str, str], tuple[list[str], list[str] | None, str | None]] = {
    ("debian-12", "580"): (["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"], None, "nvidia-fabricmanager"),
    ("debian-13", "570"): (["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"], None, None),
    ("ubuntu-22.04", "570"): (["nvidia-open-{branch}"], ["cuda-drivers-{branch}"], "nvidia-fabricmanager-{branch}"),
    ("ubuntu-24.04", "580"): (["nvidia-open-{branch}"], ["cuda-drivers-{branch}"], "nvidia-fabricmanager"),
    ("ubuntu-24.04", "590"): (["nvidia-open"], ["cuda-drivers"], "nvidia-fabricmanager"),
    ("rocky-9", "580"): (["nvidia-driver-cuda", "kmod-nvidia-open-dkms"], ["nvidia-driver-cuda", "kmod-nvidia-latest-dkms"], "nvidia-fabricmanager"),
    ("rocky-9", "570"): (["nvidia-driver-cuda", "kmod-nvidia-open-dkms"], ["nvidia-driver-cuda", "kmod-nvidia-latest-dkms"], "nvidia-fabric-manager"),
}


@pytest.mark.parametrize(("distribution", "branch"), NAMES)
def test_packages_have_the_names_of_their_distribution_and_branch(distribution: str, branch: str) -> None:
    opened, proprietary, manager = NAMES[distribution, branch]
    cell = CATALOG.driver_cell(distribution, "x86_64", branch)
    assert cell is not None
    assert cell["flavours"]["open"] == opened
    assert proprietary is None or cell["flavours"]["proprietary"] == proprietary
    fabric = CATALOG.fabric_cell(distribution, "nvidia-cuda", branch)
    assert (fabric["parts"]["fabricmanager"]["name"] if fabric else None) == manager


def test_rhel_10_has_no_module_streams_and_no_proprietary_packages() -> None:
    cell = CATALOG.driver_cell("almalinux-10", "aarch64", "595")
    assert cell is not None
    assert cell["pin"]["kind"] == "dnf-versionlock"
    assert "proprietary" not in cell["flavours"]


@pytest.mark.parametrize(
    ("distribution", "cuda", "toolkit"),
    [("ubuntu-24.04", "ubuntu2404/sbsa", "stable/deb/arm64"), ("ubuntu-22.04", "ubuntu2204/sbsa", "stable/deb/arm64")],
)
def test_arm64_has_another_name_in_each_repository(distribution: str, cuda: str, toolkit: str) -> None:
    origins = [CATALOG.origin(name, distribution, "aarch64") for name in ("nvidia-cuda", "nvidia-container-toolkit")]
    assert [origin and origin["path"] for origin in origins] == [cuda, toolkit]


def test_every_distribution_that_is_provisioned_has_its_repositories_and_what_the_roles_need() -> None:
    found = []
    for name, entry in CATALOG.distributions.items():
        if not provisioned(entry):
            continue
        found.append(name)
        assert {"headers", "initramfs_command", *(["lock_package"] if entry["package_manager"] == "dnf" else ["codename"])} <= set(entry)
        build = ["epel"] if entry["package_manager"] == "dnf" else []
        for architecture in entry["architectures"]:
            for repository in ("nvidia-cuda", CATALOG.toolkit["repository"], CATALOG.docker["docker"]["repository"], *build):
                origin = CATALOG.origin(repository, name, architecture)
                assert origin is not None, (repository, name, architecture)
                assert {"path", "key", "fingerprint"} <= set(origin)
                assert build == [] or CATALOG.repositories[repository]["rpm_signature"] in ("packages", "metadata")
    assert found == [
        *("debian-12", "debian-13", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04"),
        *("rhel-9", "rocky-9", "almalinux-9", "rhel-10", "rocky-10", "almalinux-10"),
    ]


def test_cells_name_distributions_that_exist() -> None:
    for cell in (*CATALOG.driver_packages.values(), *CATALOG.fabric_packages.values()):
        assert set(cell["distributions"]) <= set(CATALOG.distributions)
    for entry in CATALOG.distributions.values():
        assert entry.get("like", "rhel-9") in CATALOG.distributions


def test_cells_that_the_facts_do_not_give_are_none() -> None:
    assert CATALOG.origin("nvidia-cuda", "debian-13", "aarch64") is None
    assert CATALOG.origin("nvidia-cuda", "plan9-4", "x86_64") is None
    assert CATALOG.driver_cell("plan9-4", "x86_64", "580") is None
    assert CATALOG.driver_cell("debian-13", "x86_64", None) is None


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
    (tmp_path / "floors.yml").write_text("- just a list\n", encoding="utf-8")
    with pytest.raises(yaml.YAMLError, match=r"floors\.yml does not hold a mapping"):
        catalog_loader.read(tmp_path)


def test_a_gpu_in_two_files_is_refused(tmp_path: Path) -> None:
    for path in FILES:
        copy = tmp_path / path.relative_to(DIRECTORY)
        copy.parent.mkdir(exist_ok=True)
        copy.write_text(path.read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "gpus" / "more.yml").write_text((DIRECTORY / "gpus" / "turing.yml").read_text(encoding="utf-8"), encoding="utf-8")
    with pytest.raises(yaml.YAMLError, match="t4-16gb, which another file of gpus has too"):
        catalog_loader.read(tmp_path)
