# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From what a fleet asks for to a lock, and back into a request."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any

import pytest
import yaml
from ansible_collections.rackready.gpu.plugins.plugin_utils import pin
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from ansible_collections.rackready.gpu.plugins.plugin_utils.request import parse

from tests.unit import plans

CATALOG = load()
CELL = "debian-13/x86_64"
CUDA = f"nvidia-cuda/{CELL}"


def needs(*requests: dict[str, Any], cell: str = CELL) -> pin.Needs:
    found = pin.Needs()
    for number, variables in enumerate(requests):
        found.add(f"host-{number}", parse(variables, CATALOG), CATALOG, cell)
    return found


def answers(found: pin.Needs, versions: dict[str, list[str]]) -> dict[str, Any]:
    """What stack_sources would answer if repositories had these versions of the packages asked for."""
    return {
        "repositories": [
            {
                "name": entry["name"],
                "url": entry["url"],
                "key": plans.KEY,
                "key_sha256": hashlib.sha256(plans.KEY.encode()).hexdigest(),
                "packages": {name: versions[name] for name in [*entry["packages"], *entry["optional"]] if name in versions},
            }
            for entry in found.questions()["repositories"]
        ],
        "images": [
            {"ref": entry["ref"], "index": plans.INDEX, "platforms": {"linux/amd64": {"digest": plans.INDEX, "size_bytes": 1}}}
            for entry in found.questions()["images"]
        ],
    }


VERSIONS = {
    **{name: ["580.65.06-1", "580.178.04-1", "580.200.01-1", "595.91.07-1"] for name in plans.DRIVER_PACKAGES},
    **{name: ["1.19.1-1", "1.20.0-1", "1.20.0-2", "1.21.0-1"] for name in plans.TOOLKIT_PACKAGES},
}


def test_the_questions_name_repositories_keys_and_images() -> None:
    questions = needs({}).questions()
    cuda = next(entry for entry in questions["repositories"] if entry["name"] == CUDA)
    assert cuda["url"] == "https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64/"
    assert cuda["key_url"] == "https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64/8793F200.pub"
    assert cuda["fingerprint"].endswith("8793F200")
    assert set(cuda["packages"]) == {"nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"}
    assert set(cuda["optional"]) == {"nvidia-kernel-dkms", "nvidia-fabricmanager", "nvlsm", "nvidia-imex"}
    assert questions["images"] == [{"ref": plans.IMAGE}]


def test_a_mirror_is_asked_and_its_key_may_be_another() -> None:
    questions = needs({"rackready_mirror": {"packages": {"nvidia-cuda": "https://m.example/cuda/"}, "images": {"nvcr.io": "r.example:5000"}}}).questions()
    cuda = next(entry for entry in questions["repositories"] if entry["name"] == CUDA)
    assert cuda["url"] == "https://m.example/cuda/debian13/x86_64/"
    assert cuda["key_url"] == "https://m.example/cuda/debian13/x86_64/8793F200.pub"
    assert cuda["fingerprint"] is None
    assert questions["images"] == [{"ref": "r.example:5000/nvidia/pytorch:26.07-py3"}]


def test_the_newest_version_that_fits_is_locked() -> None:
    found = needs({})
    content, problems = pin.lock(found, answers(found, VERSIONS), "2026-12-01T04:00:00Z")
    assert problems == []
    packages = content["repositories"][CUDA]["packages"]
    assert packages["nvidia-driver-cuda"] == packages["nvidia-fabricmanager"] == ["580.200.01-1"]
    assert "nvlsm" not in packages
    assert content["repositories"][f"nvidia-container-toolkit/{CELL}"]["packages"]["libnvidia-container1"] == ["1.20.0-2"]
    assert content["images"] == {plans.IMAGE: {"index": plans.INDEX, "platforms": {"linux/amd64": {"digest": plans.INDEX, "size_bytes": 1}}}}


def test_hosts_that_ask_for_different_versions_are_all_locked() -> None:
    found = needs(
        {}, {"nvidia_driver_branch": 595}, {"nvidia_driver_version": "580.65.06", "pytorch_image_ref": "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"}
    )
    content, problems = pin.lock(found, answers(found, VERSIONS), "2026-12-01T04:00:00Z")
    assert problems == []
    assert content["repositories"][CUDA]["packages"]["nvidia-driver-cuda"] == ["580.65.06-1", "580.200.01-1", "595.91.07-1"]
    assert list(content["images"]) == ["docker.io/pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime", plans.IMAGE]


def test_a_rule_that_nothing_fits_is_a_problem() -> None:
    found = needs({"nvidia_driver_version": "580.1.1"})
    _content, problems = pin.lock(found, answers(found, VERSIONS), "2026-12-01T04:00:00Z")
    assert len(problems) == 3
    assert "has no nvidia-driver-cuda that is 580.1.1 (its newest is 595.91.07-1)" in problems[0]


@pytest.mark.parametrize("cell", ["debian-13/aarch64", "plan9-4/x86_64"])
def test_what_the_catalog_does_not_know_cannot_be_locked(cell: str) -> None:
    (problem,) = needs({}, cell=cell).problems
    assert problem.startswith(f"host-0: {cell} is not supported, so nothing can be locked for it: use one of debian-12/x86_64, debian-13/x86_64, ubuntu")
    assert "rocky-9/aarch64" in problem
    assert "rhel-8" not in problem
    assert "sles" not in problem


def test_a_branch_that_is_not_packaged_there_cannot_be_locked() -> None:
    words = "the catalog has no driver packages of branch 580 for ubuntu-26.04/x86_64: use another release or branch."
    assert needs({}, cell="ubuntu-26.04/x86_64").problems == [f"host-0: {words}"]
    assert needs({"gpu_stack_release": "2026.11-production"}, cell="ubuntu-26.04/x86_64").problems == []


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("sles-15/x86_64", "SUSE Linux Enterprise Server 15 is installed with zypper, which rackready cannot do yet: nothing is locked for sles-15/x86_64."),
        ("rocky-8/x86_64", "Rocky Linux 8 has dnf for its own Python 3.6 only: nothing is locked for rocky-8/x86_64."),
    ],
)
def test_what_is_not_provisioned_cannot_be_locked(cell: str, words: str) -> None:
    assert needs({}, cell=cell).problems == [f"host-0: {words}"]


ROCKY = "rocky-9/x86_64"


def test_of_dnf_s_repositories_the_streams_of_every_flavour_are_asked() -> None:
    questions = {entry["name"]: entry for entry in needs({}, {"gpu_stack_release": "2026.11-production"}, cell=ROCKY).questions()["repositories"]}
    assert list(questions) == [f"{name}/{ROCKY}" for name in ("docker-ce", "epel", "nvidia-container-toolkit", "nvidia-cuda")]
    cuda = questions[f"nvidia-cuda/{ROCKY}"]
    assert (cuda["type"], cuda["architecture"]) == ("rpm", "x86_64")
    assert cuda["url"] == "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/"
    assert cuda["key_url"] == "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/D42D0685.pub"
    assert cuda["streams"] == [f"nvidia-driver:{stream}" for stream in ("580-dkms", "580-open", "595-dkms", "595-open")]
    assert set(cuda["packages"]) == {"nvidia-driver-cuda", "kmod-nvidia-open-dkms"}
    assert set(cuda["optional"]) == {"kmod-nvidia-latest-dkms", "nvidia-fabricmanager", "nvlsm", "nvidia-imex"}
    epel = questions[f"epel/{ROCKY}"]
    assert (epel["packages"], epel["key_url"]) == ({"dkms": None}, "https://dl.fedoraproject.org/pub/epel/RPM-GPG-KEY-EPEL-9")
    assert needs({}, cell="rhel-10/aarch64").questions()["repositories"][3]["streams"] == []


def test_arm64_is_sbsa_in_one_repository_only() -> None:
    urls = [entry["url"] for entry in needs({}, cell="rocky-9/aarch64").questions()["repositories"]]
    assert urls == [
        "https://download.docker.com/linux/rhel/9/aarch64/stable/",
        "https://dl.fedoraproject.org/pub/epel/9/Everything/aarch64/",
        "https://nvidia.github.io/libnvidia-container/stable/rpm/aarch64/",
        "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/sbsa/",
    ]


def test_rpm_versions_are_locked_in_rpm_s_order() -> None:
    found = needs({}, cell=ROCKY)
    rpms = ["3:580.178.04-1.el9", "3:580.178.04-1.el9_6", "3:580.200.01~rc1-1.el9"]
    versions = {
        **dict.fromkeys(("nvidia-driver-cuda", "kmod-nvidia-open-dkms"), rpms),
        **{name: ["1.20.0-1"] for name in plans.TOOLKIT_PACKAGES},
        **{name: ["3:29.2.1-1.el9"] for name in plans.DOCKER_PACKAGES},
        "dkms": ["3.2.2-1.el9"],
    }
    content, problems = pin.lock(found, answers(found, versions), "2026-12-01T04:00:00Z")
    assert problems == []
    assert content["repositories"][f"nvidia-cuda/{ROCKY}"]["packages"]["nvidia-driver-cuda"] == ["3:580.200.01~rc1-1.el9"]
    assert parse({"rackready_lock": content}, CATALOG).lock == content


def test_a_repository_that_does_not_serve_the_cell_is_a_problem() -> None:
    """A cell that only a mistake in the catalog can make: nothing is left out of a lock silently."""
    catalog = replace(CATALOG, repositories={**CATALOG.repositories, "nvidia-container-toolkit": {**CATALOG.repositories["docker-ce"], "origins": {}}})
    found = pin.Needs()
    found.add("host", parse({}, catalog), catalog, CELL)
    assert found.problems[0] == f"host: the repository nvidia-container-toolkit has nothing known for {CELL}, so nvidia-container-toolkit cannot be locked."


@pytest.mark.parametrize(
    ("cell", "variables", "required", "optional"),
    [
        ("ubuntu-24.04/aarch64", {}, {"nvidia-open-580"}, {"cuda-drivers-580", "nvidia-fabricmanager", "nvlsm", "nvidia-imex"}),
        ("ubuntu-24.04/x86_64", {"gpu_stack_release": "2026.11-newest"}, {"nvidia-open"}, {"cuda-drivers", "nvidia-fabricmanager", "nvlsm", "nvidia-imex"}),
        (
            "ubuntu-22.04/x86_64",
            {"gpu_stack_release": "2026.11-legacy"},
            {"cuda-drivers-580"},
            {"nvidia-open-580", "nvidia-fabricmanager", "nvlsm", "nvidia-imex"},
        ),
        ("ubuntu-22.04/x86_64", {"nvidia_driver_branch": 570}, {"nvidia-open-570"}, {"cuda-drivers-570", "nvidia-fabricmanager-570"}),
    ],
)
def test_names_of_packages_are_those_of_distribution_and_branch(cell: str, variables: dict[str, Any], required: set[str], optional: set[str]) -> None:
    found = needs(variables, cell=cell)
    cuda = next(entry for entry in found.questions()["repositories"] if entry["name"] == f"nvidia-cuda/{cell}")
    assert (set(cuda["packages"]), set(cuda["optional"])) == (required, optional)


def test_a_release_without_a_number_takes_the_newest_driver_of_its_branch() -> None:
    found = needs({"gpu_stack_release": "2026.11-newest"})
    versions = {**VERSIONS, **{name: ["595.91.07-1", "620.40.01-1", "620.41.03-1"] for name in plans.DRIVER_PACKAGES}}
    content, problems = pin.lock(found, answers(found, versions), "2026-12-01T04:00:00Z")
    assert problems == []
    assert content["repositories"][CUDA]["packages"]["nvidia-driver-cuda"] == ["620.41.03-1"]


def test_docker_s_repository_is_locked_exactly_where_the_distribution_s_engine_is_too_old() -> None:
    assert "docker-ce/debian-12/x86_64" in needs({}, cell="debian-12/x86_64").repositories
    assert "docker-ce/debian-13/x86_64" not in needs({}, cell="debian-13/x86_64").repositories
    assert "docker-ce/debian-13/x86_64" in needs({"docker_source": "docker"}, cell="debian-13/x86_64").repositories


def test_two_mirrors_for_one_repository_are_a_problem() -> None:
    found = needs({}, {"rackready_mirror": {"packages": {"nvidia-cuda": "https://m.example/cuda"}}})
    assert any("set one rackready_mirror for the fleet" in problem for problem in found.problems)


def test_the_lock_that_is_written_can_be_read_by_a_request() -> None:
    found = needs({"docker_source": "docker"})
    versions = {**VERSIONS, **{name: ["5:29.2.1-1~debian.13~trixie"] for name in plans.DOCKER_PACKAGES}}
    content, problems = pin.lock(found, answers(found, versions), "2026-12-01T04:00:00Z")
    assert problems == []
    text = pin.render(content)
    assert text.startswith("---\n# Written by playbooks/pin.yml")
    assert "key: |\n" in text
    loaded = yaml.safe_load(text)
    assert loaded == {"rackready_lock": content}
    assert parse(loaded, CATALOG).lock == content


def test_the_time_of_writing_is_no_difference() -> None:
    found = needs({})
    old, _problems = pin.lock(found, answers(found, VERSIONS), "2026-12-01T04:00:00Z")
    new, _problems = pin.lock(found, answers(found, VERSIONS), "2027-01-01T04:00:00Z")
    assert pin.same(old, new)
    assert not pin.same(None, new)
    new["images"] = {}
    assert not pin.same(old, new)
