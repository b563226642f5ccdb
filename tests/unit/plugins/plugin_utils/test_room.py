# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""File systems that cannot take what a plan would write."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import host
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from ansible_collections.rackready.gpu.plugins.plugin_utils.managers import MANAGERS
from ansible_collections.rackready.gpu.plugins.plugin_utils.planner import AREAS

from tests.unit.hosts import DISKS, ROCKY, facts_for
from tests.unit.plans import accept, apply_plan, lock_for, plan_for

ROOM = load().room
INSTALLING = "installing nvidia_driver, nvidia_fabric, docker, nvidia_container_toolkit"


def refusals(**disks: dict[str, Any]) -> list[str]:
    """Of a bare host with changes to its file systems; var_cache_apt stands for /var/cache/apt, root for /."""
    changes = {("/" if name == "root" else "/" + name.replace("_", "/")): fields for name, fields in disks.items()}
    found: list[str] = plan_for(facts_for(disks=changes))["refusals"]
    return found


def test_every_area_and_directory_of_the_catalog_is_one_that_the_facts_and_the_planner_have() -> None:
    assert set(ROOM["room"]) <= set(AREAS)
    paths = {path for table in [ROOM["always"]["mib"], *ROOM["room"].values()] for path in table}
    assert {*paths - {"archives"}, *ROOM["archives"].values(), *ROOM["installing"]} <= set(DISKS) == set(host.DISKS)
    assert set(ROOM["archives"]) == set(MANAGERS)


def test_what_shares_a_file_system_is_added_up() -> None:
    needed = sum(sum(table.values()) for table in [ROOM["always"]["mib"], *ROOM["room"].values()])
    roomy = {path for path in DISKS if path.startswith("/var/lib/")}
    for free, expected in ((needed, []), (needed - 1, [f"/ with /boot, /tmp, /usr, /var, /var/cache/apt has {needed - 1} MiB free and {INSTALLING}"])):
        facts = facts_for(disks={path: {"device": 1, "free_mib": free} for path in DISKS if path not in roomy})
        found = plan_for(facts)["refusals"]
        assert [sentence.partition(" needs ")[0] for sentence in found] == expected


@pytest.mark.parametrize(
    ("disks", "words"),
    [
        ({"var_cache_apt": {"device": 2, "free_mib": 10}}, f"/var/cache/apt has 10 MiB free and {INSTALLING} needs 620 MiB there, so it could stop half-way"),
        ({"boot": {"device": 2, "free_mib": 3}}, f"/boot has 3 MiB free and {INSTALLING} needs 150 MiB there"),
        ({"usr": {"device": 2, "free_mib": 0}}, f"/usr has 0 MiB free and {INSTALLING} needs 1800 MiB there"),
        ({"root": {"device": 2, "free_mib": 10}}, f"/ has 10 MiB free and {INSTALLING} needs 16 MiB there"),
        (
            {"var": {"device": 2, "free_inodes": 12}},
            "/var has 12 inodes free and installing needs 20000, so no more files could be made although there is room",
        ),
        ({"root": {"device": 2, "read_only": True}}, "The file system of / is read-only, so nothing can be written to it: look in dmesg"),
        ({"usr": {"device": 2, "read_only": True, "free_mib": 0}}, "The file system of /usr is read-only"),
        ({"usr": {"device": 1, "read_only": True}}, "The file system of /usr is read-only"),
    ],
)
def test_one_file_system_that_cannot_take_it_is_one_sentence(disks: dict[str, dict[str, Any]], words: str) -> None:
    [sentence] = refusals(**disks)
    assert sentence.startswith(words)
    assert sentence.endswith("then run again.")


def written(plan: dict[str, Any]) -> set[str]:
    """Directories of all files that the plan's actions say they write, beside what lies in memory."""
    actions = [action for area in plan["areas"].values() for action in area["actions"] if action.startswith(("write ", "merge "))]
    paths = [word for action in actions for word in action.split() if word.startswith(("/etc/", "/usr/"))]
    return {path.rpartition("/")[0] for path in paths}


APT = facts_for()
DNF = facts_for(**ROCKY)
DNF_LOCK = {"rackready_lock": lock_for("rocky-9/x86_64")}


@pytest.mark.parametrize(("facts", "variables"), [(APT, {}), (DNF, DNF_LOCK)], ids=["apt", "dnf"])
def test_every_directory_that_a_plan_writes_to_is_seen_when_it_is_mounted_read_only(facts: dict[str, Any], variables: dict[str, Any]) -> None:
    directories = {*written(plan_for(facts, **variables)), *ROOM["installing"], "/etc/systemd/system", "/var/lib/docker"}
    assert len(directories) >= 9
    assert directories <= set(DISKS)
    for directory in directories:
        broken = copy.deepcopy(facts)
        broken["disk"][directory].update(device=1, read_only=True)  # bound to itself
        [sentence] = plan_for(broken, **variables)["refusals"]
        assert sentence.startswith(f"The file system of {directory} is read-only, so nothing can be written to it: ")
        assert f"findmnt --target {directory} " in sentence


def test_of_one_read_only_file_system_the_top_is_named() -> None:
    facts = facts_for(disks={path: {"device": 2, "read_only": True} for path in DISKS if path.startswith("/etc")})
    [sentence] = plan_for(facts)["refusals"]
    assert sentence.startswith("The file system of /etc is read-only, ")
    facts = facts_for(disks={path: {"read_only": True} for path in DISKS})
    [sentence] = plan_for(facts)["refusals"]
    assert sentence.startswith("The file system of / is read-only, ")


def test_a_read_only_directory_that_nothing_is_written_to_is_nobody_s_business() -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    del facts["files"]["/etc/modprobe.d/rackready-nouveau.conf"]
    for path, entry in facts["disk"].items():
        entry["read_only"] = path not in ("/", "/tmp", "/var", "/boot", "/etc/modprobe.d")
    assert plan_for(facts)["refusals"] == []
    facts["disk"]["/etc/modprobe.d"]["read_only"] = True
    assert len(plan_for(facts)["refusals"]) == 1


@pytest.mark.parametrize("directory", ["/boot", "/usr/lib/modules", "/var/lib/dkms"])
def test_what_a_build_for_the_running_kernel_writes_to_is_seen_when_nothing_is_installed(directory: str) -> None:
    """The initramfs, and modules that dkms builds."""
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    facts["packages"]["installed"]["dkms"] = {"version": "3.2.2-1~deb13u1", "held": False}
    for name in ("nvidia", "nvidia_uvm"):
        facts["modules"][name] = {"loaded": False, "version": None, "flavour": None, "available": None}
    desired = plan_for(facts)["areas"]["nvidia_driver"]["desired"]
    assert desired["initramfs_commands"]
    assert desired["build_command"]
    facts["disk"][directory]["read_only"] = True
    [sentence] = [refused for refused in plan_for(facts)["refusals"] if "read-only" in refused]
    assert sentence.startswith(f"The file system of {directory} is read-only, ")


def test_a_file_system_that_counts_no_inodes_is_not_out_of_them() -> None:
    assert refusals(var={"device": 2, "free_inodes": None}) == []


def test_a_host_that_is_as_planned_needs_no_room() -> None:
    facts = facts_for()
    done = accept(apply_plan(facts, plan_for(facts)), apply_and_plan(facts))
    for entry in done["disk"].values():
        entry.update(free_mib=0, free_inodes=0, read_only=True)
    plan = plan_for(done)
    assert plan["refusals"] == []
    assert plan["converged"]


def apply_and_plan(facts: dict[str, Any]) -> dict[str, Any]:
    plan: dict[str, Any] = plan_for(apply_plan(facts, plan_for(facts)))
    return plan


def test_a_masked_unit_needs_no_room_for_packages() -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    facts["units"]["docker.service"] = {"load": "loaded", "active": "inactive", "enabled": "disabled"}
    for entry in facts["disk"].values():
        entry.update(free_mib=100, free_inodes=100)
    assert plan_for(facts)["refusals"] == []


def test_another_version_needs_room_too() -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    facts["packages"]["installed"]["nvidia-container-toolkit"]["version"] = "1.19.0-1"
    assert plan_for(facts)["refusals"] == []
    facts["disk"]["/var/cache/apt"].update(device=2, free_mib=10)
    [sentence] = plan_for(facts)["refusals"]
    assert sentence.startswith("/var/cache/apt has 10 MiB free and installing nvidia_container_toolkit needs 20 MiB there")
