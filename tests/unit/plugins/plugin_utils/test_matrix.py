# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever GPUs, distribution, architecture and release: a plan that keeps every rule, or a refusal that names one. The rules are written here once more."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.packages import parse_dpkg_status, parse_rpm_list
from ansible_collections.rackready.gpu.plugins.plugin_utils import planner, versionlock
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least, branch
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.unit import plans
from tests.unit.hosts import facts_for
from tests.unit.plans import apply_plan, canonical, lock_for, plan_for

CATALOG = load()
VALIDATOR = Draft202012Validator(json.loads(Path(planner.__file__).with_name("schemas").joinpath("plan.schema.json").read_text(encoding="utf-8")))
BY_ID = {pci_id: gpu for gpu in CATALOG.gpus.values() for pci_id in gpu["pci_ids"]}
UNKNOWN = "10de:2684"
PLATFORM = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
NGC = [f"nvcr.io/nvidia/pytorch:{tag}" for tag in ("23.10-py3", "24.08-py3", "25.07-py3", "25.10-py3")]
UPSTREAM = [
    f"docker.io/pytorch/pytorch:{tag}-runtime"
    for tag in ("2.7.0-cuda12.8-cudnn9", "2.12.0-cuda12.6-cudnn9", "2.13.0-cuda13.0-cudnn9", "2.15.0-cuda13.2-cudnn9")
]

APT = [name for name, entry in CATALOG.distributions.items() if entry["package_manager"] == "apt"]
DNF = ["rhel-9", "rocky-9", "almalinux-9", "rhel-10", "rocky-10", "almalinux-10"]


def hosts(distributions: list[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "distribution": st.sampled_from(distributions),
            "architecture": st.sampled_from(list(PLATFORM)),
            "gpus": st.one_of(
                st.sampled_from([*BY_ID, UNKNOWN]).map(lambda pci_id: [pci_id] * 8),
                st.lists(st.sampled_from([*BY_ID, UNKNOWN]), min_size=1, max_size=3),
            ),
            "switches": st.booleans(),
            "secure_boot": st.sampled_from(["enabled", "disabled"]),
        }
    )


requests = st.fixed_dictionaries(
    {"gpu_stack_release": st.sampled_from(list(CATALOG.releases))},
    optional={
        "nvidia_driver_flavour": st.sampled_from(["open", "proprietary"]),
        "nvidia_driver_branch": st.sampled_from([int(number) for number in CATALOG.drivers["branches"]]),
        "pytorch_image_ref": st.sampled_from([*NGC, *UPSTREAM]),
    },
)


@cache
def locked(cell: str, asked: str) -> Any:
    """The lock of a cell; of one that cannot be locked there is none."""
    try:
        return lock_for(cell, **json.loads(asked))
    except AssertionError:
        return plans.lock()


def facts_of(host: dict[str, Any]) -> dict[str, Any]:
    identifier, _dash, version = host["distribution"].rpartition("-")
    facts = facts_for(
        gpus=len(host["gpus"]),
        nvswitches=4 if host["switches"] else 0,
        distribution=(identifier, version, "", host["distribution"]),
        architecture=host["architecture"],
        secure_boot=host["secure_boot"],
        **({"kernel": f"5.14.0-570.el9.{host['architecture']}"} if host["distribution"] in DNF else {}),
    )
    for gpu, pci_id in zip(facts["gpus"], host["gpus"], strict=True):
        gpu["pci_id"] = pci_id
    return facts


def variables_of(host: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
    cell = f"{host['distribution']}/{host['architecture']}"
    return {"gpu_expected": None, **request, "rackready_lock": locked(cell, json.dumps(request, sort_keys=True))}


# --- the rules once more


def broken_rules(host: dict[str, Any], request: dict[str, Any]) -> Iterator[str]:
    """Why such a host cannot be had with such a request."""
    release = CATALOG.releases[request["gpu_stack_release"]]
    known = CATALOG.distributions[host["distribution"]]
    if host["architecture"] not in known["architectures"]:
        yield "architecture"
        return
    if host["distribution"] not in APT + DNF:
        yield "package manager"
    number = str(request.get("nvidia_driver_branch", release["driver"]["branch"]))
    cell = CATALOG.driver_cell(host["distribution"], host["architecture"], number)
    models = [BY_ID[pci_id] for pci_id in set(host["gpus"]) if pci_id in BY_ID]
    takes = [set(CATALOG.drivers["architectures"][gpu["architecture"]]["flavours"]) for gpu in models]
    common = set.intersection({"open", "proprietary"}, *takes)
    flavour = request.get("nvidia_driver_flavour") or release["driver"].get("flavour") or ("open" if "open" in common or not common else "proprietary")
    if cell is None:
        yield "cell"
    elif flavour not in cell["flavours"]:
        yield "cell without flavour"
    if flavour not in CATALOG.drivers["branches"][number]["flavours"]:
        yield "branch without flavour"
    if any(flavour not in flavours for flavours in takes):
        yield "flavour"
    at_floor = number == release["driver"]["branch"] and release["driver"]["at_least"]
    version = at_floor or f"{number}.100.01"
    for gpu in models:
        last = CATALOG.drivers["architectures"][gpu["architecture"]]["last_branch"]
        floors = [gpu.get("late_in_branch", {}).get(number) or gpu["first_driver"], gpu.get("platform", {}).get("driver")]
        if (last and int(number) > int(last)) or number in gpu.get("missing_in_branch", []):
            yield "branch"
        elif any(floor and not at_least(version, floor) for floor in floors):
            yield "driver"
    image = CATALOG.image(request.get("pytorch_image_ref", release["image"]))
    assert image is not None
    if not at_least(version, CATALOG.cuda["min_driver"][image["cuda"].split(".")[0]]["driver"]):
        yield "cuda"
    if not all(may_run(image, PLATFORM[host["architecture"]], gpu) for gpu in models):
        yield "image"
    kinds = {gpu["fabric"] for gpu in models}
    kind = "imex" if "imex" in kinds else "nvlink5" if "nvlink5" in kinds else "nvswitch" if host["switches"] else None
    parts = (CATALOG.fabric_cell(host["distribution"], "nvidia-cuda", number) or {"parts": {}})["parts"]
    if kind is not None and cell is not None and not set(CATALOG.fabrics[kind]["parts"]) <= set(parts):
        yield "fabric"


def may_run(image: Any, platform: str, gpu: dict[str, Any]) -> bool:
    """By the code of the image; where nobody knows that, by its CUDA."""
    last = CATALOG.drivers["architectures"][gpu["architecture"]]["last_cuda"]
    code = image["architectures"].get(platform)
    return fits(code, gpu["compute_capability"]) if code is not None else last is None or int(image["cuda"].split(".")[0]) <= int(last)


def fits(code: str, capability: str) -> bool:
    major, minor = map(int, capability.split("."))
    entries = [(*map(int, entry.removesuffix("+PTX").split(".")), entry.endswith("+PTX")) for entry in code.split()]
    return any((a == major and b <= minor) or (portable and (a, b) <= (major, minor)) for a, b, portable in entries)


ONE_SENTENCE = re.compile(r".+, so .+: .+\.")


def check(host: dict[str, Any], request: dict[str, Any]) -> None:
    facts, variables = facts_of(host), variables_of(host, request)
    before = canonical(facts)
    plan = plan_for(facts, **variables)
    VALIDATOR.validate(plan)
    assert canonical(plan_for(facts_of(host), **variables)) == canonical(plan)
    assert canonical(facts) == before, "planning must not change the facts"
    broken = list(broken_rules(host, request))
    assert bool(plan["refusals"]) == bool(broken), (broken, plan["refusals"])
    if broken:
        assert not plan["converged"]
        assert [sentence for sentence in plan["refusals"] if not ONE_SENTENCE.fullmatch(sentence)] == []
        return
    driver = plan["areas"]["nvidia_driver"]["desired"]
    fabric = plan["areas"]["nvidia_fabric"]["desired"]
    assert driver["branch"] == branch(driver["version"])
    of_driver = [entry for entry in fabric.get("install", []) if entry.startswith(("nvidia-fabricmanager", "nvidia-fabric-manager", "nvidia-imex"))]
    assert all(f"{driver['version']}-1" in entry for entry in of_driver)
    assert fabric["required"] == bool(of_driver)
    after = apply_plan(facts, plan)
    again = plan_for(after, **variables)
    assert again["refusals"] == []
    assert again["converged"], [(name, area["actions"]) for name, area in again["areas"].items() if not area["converged"]]
    # What the roles can install and hold, the host must report, or no run would ever end as planned.
    assert sorted(after["packages"]["installed"].keys() - reported(after).keys()) == []


def reported(facts: dict[str, Any]) -> dict[str, Any]:
    """Packages as the module would read them from the package manager's own state."""
    installed, kernel = facts["packages"]["installed"], facts["kernel"]["release"]
    if facts["packages"]["manager"] == "apt":
        status = "".join(f"Package: {name}\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n\n" for name in installed)
        return parse_dpkg_status(status, kernel, facts["architecture"])
    of_kernel = f"{kernel.rpartition('.')[0]}\t{kernel.rpartition('.')[2]}"
    listing = "".join(
        f"{name.removesuffix(f'-{kernel}')}\t{of_kernel}\n" if name.endswith(f"-{kernel}") else f"{name}\t{entry['version']}\tnoarch\n"
        for name, entry in installed.items()
    )
    found = parse_rpm_list(listing, facts["files"].get(versionlock.FILE, "").splitlines(), [], kernel)
    libraries = plans.LIBRARY_PACKAGES["dnf"]  # these are locked once the plan was made again
    assert [name for name, entry in found.items() if entry["held"] != installed[name]["held"] and name not in libraries] == []
    return found


@given(host=hosts(list(CATALOG.distributions)), request=requests)
@settings(max_examples=100)
def test_any_host_is_planned_by_the_rules_or_refused_by_one(host: dict[str, Any], request: dict[str, Any]) -> None:
    check(host, request)


@given(host=hosts(APT), request=requests)
@settings(max_examples=100)
def test_any_host_with_apt_is_planned_by_the_rules_or_refused_by_one(host: dict[str, Any], request: dict[str, Any]) -> None:
    check(host, request)


@given(host=hosts(DNF), request=requests)
@settings(max_examples=100)
def test_any_host_with_dnf_is_planned_by_the_rules_or_refused_by_one(host: dict[str, Any], request: dict[str, Any]) -> None:
    check(host, request)


@pytest.mark.parametrize("release", CATALOG.releases)
@pytest.mark.parametrize("distribution", [*APT, "rocky-9", "rhel-10"])
def test_every_gpu_is_planned_by_the_rules_or_refused_by_one(distribution: str, release: str) -> None:
    for gpu in CATALOG.gpus.values():
        for architecture in CATALOG.distributions[distribution]["architectures"]:
            host = {
                "distribution": distribution,
                "architecture": architecture,
                "gpus": [gpu["pci_ids"][0]] * 2,
                "switches": False,
                "secure_boot": "disabled",
            }
            check(host, {"gpu_stack_release": release})


def test_every_gpu_can_be_had_somehow() -> None:
    """With some release on some distribution; a card that nobody can have would have no place in the catalog."""
    for slug, gpu in CATALOG.gpus.items():
        ways = [
            (distribution, release)
            for distribution in ("debian-13", "ubuntu-24.04", "rocky-9")
            for release in CATALOG.releases
            if not list(
                broken_rules(
                    {"distribution": distribution, "architecture": "x86_64", "gpus": [gpu["pci_ids"][0]], "switches": False}, {"gpu_stack_release": release}
                )
            )
        ]
        assert ways, slug
