# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Ubuntu with Secure Boot: its own signed modules where it has them for this kernel and this driver, and what is said where it has not."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from tests.unit.hosts import facts_for as host
from tests.unit.hosts import signed_by_ubuntu
from tests.unit.plans import apply_plan, lock_for, plan_for

KERNEL = "6.8.0-87-generic"
MODULES = f"linux-modules-nvidia-580-server-open-{KERNEL}"
USER_SPACE = ("nvidia-utils-580-server", "nvidia-compute-utils-580-server", "nvidia-headless-no-dkms-580-server-open")
SOURCES = "Types: deb\nURIs: http://archive.ubuntu.com/ubuntu/\nSuites: noble noble-updates\nComponents: main restricted universe\n"
KEY = "Secure Boot is on: the kernel loads the driver only after its signing key was enrolled at the console (mokutil)."
NAME = "Ubuntu 24.04 LTS"
PREFERENCES = "/etc/apt/preferences.d/rackready-nvidia.pref"


@cache
def lock_text(*variables: tuple[str, str]) -> str:
    return json.dumps(lock_for("ubuntu-24.04/x86_64", **dict(variables)))


def ubuntu(signed: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Facts of an Ubuntu host with Secure Boot."""
    return host(
        **{
            "distribution": ("ubuntu", "24.04", "noble", "Ubuntu 24.04.3 LTS"),
            "kernel": KERNEL,
            "secure_boot": "enabled",
            "signed_modules": signed,
            "files": {"/etc/apt/sources.list.d/ubuntu.sources": SOURCES},
            **changes,
        }
    )


def plan_of(facts: dict[str, Any], **variables: Any) -> dict[str, Any]:
    return plan_for(facts, rackready_lock=json.loads(lock_text(*variables.items())), **variables)


def driver(plan: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = plan["areas"]["nvidia_driver"]
    return found


def converged(**changes: Any) -> dict[str, Any]:
    """Facts after the plan of a bare host; Ubuntu's persistence daemon is started by a udev rule, its unit cannot be enabled."""
    bare = ubuntu(signed_by_ubuntu(KERNEL), **changes)
    after = apply_plan(bare, plan_of(bare))
    after["units"]["nvidia-persistenced.service"]["enabled"] = "static"
    after["kernel"]["headers"] = False
    return after


def test_nothing_is_built_and_no_key_is_asked_for() -> None:
    plan = plan_of(ubuntu(signed_by_ubuntu(KERNEL)))
    assert plan["refusals"] == []
    assert KEY not in plan["warnings"]
    desired = driver(plan)["desired"]
    assert not any("headers" in name or "dkms" in name.replace("no-dkms", "") for name in desired["install"])
    assert desired["build_command"] == []
    assert desired["hold"] == sorted([*USER_SPACE, MODULES])
    assert desired["version"] == "580.178.04"


def test_the_archive_is_asked_for_the_very_versions_before_anything_changes() -> None:
    (asked,) = [entry for entry in plan_of(ubuntu(signed_by_ubuntu(KERNEL)))["sources"]["repositories"] if entry["name"] == "ubuntu-24.04"]
    assert asked["packages"] == {**dict.fromkeys(USER_SPACE, "580.178.04-0ubuntu0.24.04.1"), MODULES: "6.8.0-87.88+1"}
    assert asked["components"] == ["main", "restricted", "universe"]
    assert asked["hint"].startswith("run apt-get update on the host")


def test_the_pin_lets_the_archive_in_and_keeps_the_version() -> None:
    signed, built = plan_of(ubuntu(signed_by_ubuntu(KERNEL))), plan_of(ubuntu())
    pins = [{spec["path"]: spec["content"] for spec in driver(plan)["desired"]["files"]}[PREFERENCES] for plan in (signed, built)]
    assert ["o=Ubuntu" in pin for pin in pins] == [False, True]
    assert all("Pin: version 580.178.04-*\nPin-Priority: 1001\n" in pin for pin in pins)


@pytest.mark.parametrize(("nvswitches", "there"), [(4, True), (0, False)])
def test_nvidia_s_repository_is_added_for_what_the_fabric_takes_from_it(nvswitches: int, there: bool) -> None:
    plan = plan_of(ubuntu(signed_by_ubuntu(KERNEL), nvswitches=nvswitches))
    assert any("rackready-nvidia-cuda" in spec["path"] for spec in driver(plan)["desired"]["files"]) is there
    questions = {entry["name"]: entry["packages"] for entry in plan["sources"]["repositories"]}
    assert questions.get("nvidia-cuda") == ({"nvidia-fabricmanager": "580.178.04-1"} if there else None)


def test_a_host_with_them_holds() -> None:
    plan = plan_of(converged())
    assert plan["refusals"] == []
    assert plan["converged"], driver(plan)


@pytest.mark.parametrize("driver_now", ["580.178.04", "580.199.09"])
def test_a_rebuild_or_a_newer_driver_in_the_archive_moves_nothing(driver_now: str) -> None:
    facts = converged()
    facts["packages"]["signed_modules"]["packages"] = {MODULES: {"6.8.0-87.88+2": driver_now}, USER_SPACE[0]: {f"{driver_now}-0ubuntu0.24.04.2": driver_now}}
    plan = plan_of(facts)
    assert plan["converged"], (plan["refusals"], driver(plan)["actions"])


def test_another_kernel_gets_its_modules() -> None:
    facts = converged()
    newer = KERNEL.replace("87", "90")
    facts["kernel"] = {**facts["kernel"], "release": newer, "others": {KERNEL: False}}
    facts["packages"]["signed_modules"] = signed_by_ubuntu(newer)
    facts["modules"]["nvidia"].update(loaded=False, version=None, flavour=None, available=None)
    plan = plan_of(facts)
    assert plan["refusals"] == []
    assert f"install {MODULES.replace('87', '90')}=6.8.0-90.88+1" in driver(plan)["actions"]


def test_a_kernel_that_boots_next_without_modules_is_warned_about() -> None:
    facts = converged()
    facts["kernel"]["others"] = {KERNEL.replace("87", "90"): False, KERNEL.replace("87", "71"): False}
    (warning,) = [sentence for sentence in plan_of(facts)["warnings"] if "after the next boot" in sentence]
    assert warning == (
        f"The kernel 6.8.0-90-generic is installed beside the running {KERNEL} and {MODULES.replace('87', '90')} is not: the driver "
        "will be missing after the next boot. Run this again once 6.8.0-90-generic runs."
    )


NOT_PLANNED: dict[str, tuple[dict[str, Any] | None, str]] = {
    "no lists": (
        None,
        f"Whether {NAME} has modules for the kernel {KERNEL} that it signed itself is not known, as apt's lists on the host have nothing of its component "
        "restricted; with them no key would have to be enrolled: add restricted to /etc/apt, run apt-get update there and plan again.",
    ),
    "another kernel": (
        signed_by_ubuntu("6.8.0-71-generic"),
        f"{NAME} has no modules of branch 580 for the kernel {KERNEL} that it signed itself ({MODULES} is not in apt's lists); with them no key would have to "
        "be enrolled: run apt-get update on the host, or boot a kernel that has them, and plan again.",
    ),
    "another driver": (
        signed_by_ubuntu(KERNEL, "580.173.02"),
        f"The modules for the kernel {KERNEL} that {NAME} signed itself are of the driver 580.173.02 and 580.178.04 is planned; with them no key would have to "
        'be enrolled: set nvidia_driver_version: "580.173.02" and run playbooks/pin.yml.',
    ),
    "user space of another driver": (
        signed_by_ubuntu(KERNEL, user_space="580.173.02"),
        f"Apt's lists on the host have no {' and no '.join(USER_SPACE)} of the driver 580.178.04; with them no key would have to be enrolled: "
        "run apt-get update on the host and plan again.",
    ),
}


@pytest.mark.parametrize(("signed", "words"), NOT_PLANNED.values(), ids=list(NOT_PLANNED))
def test_without_them_the_driver_is_built_and_it_is_said_why(signed: dict[str, Any] | None, words: str) -> None:
    plan = plan_of(ubuntu(signed))
    assert plan["refusals"] == []
    assert KEY in plan["warnings"]
    assert [sentence for sentence in plan["warnings"] if "no key would have to" in sentence] == [words]
    assert driver(plan)["desired"]["install"] == [f"linux-headers-{KERNEL}", "nvidia-open-580=580.178.04-1"]


def test_signed_modules_that_no_longer_match_are_refused_and_not_mixed_with_another_packaging() -> None:
    facts = converged()
    facts["packages"]["signed_modules"] = signed_by_ubuntu(KERNEL.replace("87", "90"), "580.199.09")
    facts["kernel"]["release"] = KERNEL.replace("87", "90")
    facts["modules"]["nvidia"].update(loaded=False, version=None, flavour=None, available=None)
    (sentence,) = plan_of(facts)["refusals"]
    assert sentence == (
        f"{' '.join(USER_SPACE)} are installed and the modules for the kernel 6.8.0-90-generic that {NAME} signed itself are of the driver 580.199.09 and "
        "580.178.04 is planned, so the driver would not match them or would not load: "
        'set nvidia_driver_version: "580.199.09" and run playbooks/pin.yml.'
    )


@pytest.mark.parametrize(
    "changes",
    [
        {"secure_boot": "disabled"},
        # Built here, with a key that somebody enrolled.
        {"packages": {"nvidia-open-580": "580.178.04-1"}},
    ],
)
def test_signed_modules_are_for_secure_boot_and_for_hosts_without_a_driver_that_was_built_there(changes: dict[str, Any]) -> None:
    plan = plan_of(ubuntu(signed_by_ubuntu(KERNEL), **changes))
    assert "nvidia-open-580=580.178.04-1" in driver(plan)["desired"]["install"]
    assert not any("no key would" in sentence for sentence in plan["warnings"])


def test_flavours_that_the_catalog_has_no_signed_modules_of_are_built() -> None:
    plan = plan_of(ubuntu(signed_by_ubuntu(KERNEL, open_="")), nvidia_driver_flavour="proprietary")
    assert plan["refusals"] == []
    assert "cuda-drivers-580=580.178.04-1" in driver(plan)["desired"]["install"]
    assert KEY in plan["warnings"]
