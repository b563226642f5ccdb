# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people met on their hosts elsewhere, by the id of the case; distributions that are not supported yet are replaced by Debian 13."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit import plans
from tests.unit.hosts import BUS_IDS, facts_for
from tests.unit.plans import apply_plan, plan_for

H200 = {"pci_id": "10de:2335"}
NGC_25_08 = "nvcr.io/nvidia/pytorch:25.08-py3"
KERNEL = "6.12.1+deb13-amd64"


def lock_with(*drivers: str, image: str = plans.IMAGE) -> dict[str, Any]:
    lock = plans.lock(drivers=drivers)
    lock["images"] = {image: lock["images"][plans.IMAGE]}
    return lock


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "P7": (
        {"pci_id": "10de:2901", "nvswitches": 0},
        {"gpu_expected": None, "nvidia_driver_flavour": "proprietary"},
        ("B200 180GB (Blackwell) needs the open kernel modules", "set nvidia_driver_flavour: open"),
    ),
    "P13": (
        H200,
        {"gpu_expected": None, "nvidia_driver_version": "535.183.06"},
        ("Driver branch 535 ended in 2026-06", "H200 SXM 141GB is listed from driver 550.90.07"),
    ),
    "P14": (
        H200,
        {
            "gpu_expected": None,
            "nvidia_driver_branch": 550,
            "pytorch_image_ref": NGC_25_08,
            "rackready_lock": lock_with("550.163.01", image=NGC_25_08),
        },
        (f"CUDA 13 in {NGC_25_08} needs driver 580.65.06 or newer", "use an image with CUDA 12 or a newer driver"),
    ),
    "P16": ({"distribution": ("debian", "11", "bullseye", "Debian GNU/Linux 11 (bullseye)")}, {}, ("is not a supported distribution",)),
    "P17": ({"gpus": 0}, {}, ("There is no NVIDIA GPU on the PCI bus",)),
    "P18": ({"gpus": 7}, {}, ("7 of 8 H100 SXM5 80GB are on the PCI bus", f"present: {', '.join(BUS_IDS[:7])}")),
    "P25 F14": ({}, {"nvidia_container_toolkit_version": "1.17.0", "rackready_lock": plans.lock(toolkits=("1.17.0",))}, ("Toolkit 1.17.0 fails on images",)),
    "F7": ({}, {"nvidia_container_toolkit_version": "1.17.7", "rackready_lock": plans.lock(toolkits=("1.17.7",))}, ("Toolkit 1.17.7 GPU containers fail",)),
    "P27": ({}, {"rackready_lock": {**plans.lock(), "images": {}}}, (f"The image {plans.IMAGE} is not in the lock", "playbooks/pin.yml")),
    # One sentence for all cards of which the same is said.
    "M1 with too much": (
        {},
        {"mig_layout": [{"gpus": "all", "instances": {"3g.40gb": 2, "1g.10gb": 1}}]},
        (f"2 x 3g.40gb, 1 x 1g.10gb do not fit on H100 SXM5 80GB at {', '.join(BUS_IDS)} together, so the layout does not exist on it: ask for less",),
    ),
    "G2 M11": (
        {},
        {"mig_layout": [{"gpus": "all", "instances": {"1g.5gb": 7}}]},
        (f"H100 SXM5 80GB at {', '.join(BUS_IDS)} has no MIG profile 1g.5gb", "use 1g.10gb, 1g.10gb+me, 1g.20gb"),
    ),
    "P12 with a layout": (
        {"pci_id": "10de:26b9", "nvswitches": 0},
        {"gpu_expected": None, "mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 1}}]},
        ("L40S", "has no MIG that is known, so mig_layout cannot be applied to it: leave that GPU out of mig_layout"),
    ),
    "a GPU that is not there": (
        {},
        {"mig_layout": [{"gpus": [8], "instances": {"1g.10gb": 1}}]},
        ("mig_layout[0] names the GPU 8, which this host does not have", "name one of 0 (0000:1a:00.0), 1 "),
    ),
    "a GPU twice": (
        {},
        {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}, {"gpus": [0], "instances": {"3g.40gb": 2}}]},
        ("mig_layout asks twice for the GPU 0000:1a:00.0, so it is not clear which layout it gets: name each GPU once",),
    ),
    "a lock of another release": ({}, {"rackready_lock": lock_with("570.211.01")}, ("The lock has no nvidia-driver-cuda that is 580", "playbooks/pin.yml")),
    "M4": ({}, {"mig_layout": [{"gpus": [0], "instances": {"1g.10gb+me": 2}}]}, ("2 x 1g.10gb+me do not fit", "1g.10gb+me up to 1", "7g.80gb up to 1")),
}


@pytest.mark.parametrize(("changes", "variables", "words"), REFUSED.values(), ids=list(REFUSED))
def test_refused(changes: dict[str, Any], variables: dict[str, Any], words: tuple[str, ...]) -> None:
    plan = plan_for(facts_for(**changes), **variables)
    said = " ".join(plan["refusals"])
    assert len(plan["refusals"]) == len(set(plan["refusals"])) <= 4, plan["refusals"]
    assert [word for word in words if word not in said] == [], plan["refusals"]
    assert not plan["converged"]


# What the plan must hold: a path into it, and the value there.
Wanted = dict[tuple[str | int, ...], Any]
PLANNED: dict[str, tuple[dict[str, Any], dict[str, Any], Wanted]] = {
    "P1 D1": (
        {},
        {},
        {
            ("areas", "nvidia_driver", "desired", "flavour"): "open",
            ("areas", "nvidia_driver", "desired", "version"): "580.178.04",
            ("areas", "nvidia_fabric", "desired", "install"): ["nvidia-fabricmanager=580.178.04-1"],
            ("areas", "nvidia_fabric", "reasons", 0, "rule"): "4 NVSwitches on the PCI bus (NVSwitch 3 (H100, H200))",
        },
    ),
    "P20": (
        {},
        {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}]},
        {
            ("areas", "mig", "desired", "resets"): [],
            ("areas", "smoke_test", "desired", "not_applicable"): {
                "all_reduce_exact": "MIG instances cannot talk to each other, and a process sees one of them"
            },
        },
    ),
    "M1": (
        {},
        {"mig_layout": [{"gpus": [0], "instances": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}]},
        {
            ("areas", "mig", "desired", "gpus", 0, "instances"): [
                {"profile": "2g.20gb", "start": 0},
                {"profile": "1g.10gb", "start": 2},
                {"profile": "1g.10gb", "start": 3},
                {"profile": "3g.40gb", "start": 4},
            ]
        },
    ),
    # The archive is asked for the headers of the kernel that runs, before anything changes; if it lacks them the run ends with the hint.
    "P24 B1 B5": (
        {"kernel": KERNEL, "docker": "26.1.5", "packages": {"docker-cli": "26.1.5-1"}},
        {},
        {
            ("areas", "nvidia_driver", "desired", "install", 0): f"linux-headers-{KERNEL}",
            ("sources", "repositories", -1, "packages"): {f"linux-headers-{KERNEL}": None},
            ("sources", "repositories", -1, "hint"): f"the archive has moved on from the running kernel {KERNEL} or a suite is missing in /etc/apt; "
            "install and boot the newest kernel first",
        },
    ),
}


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@pytest.mark.parametrize(("changes", "variables", "wanted"), PLANNED.values(), ids=list(PLANNED))
def test_planned(changes: dict[str, Any], variables: dict[str, Any], wanted: Wanted) -> None:
    plan = plan_for(facts_for(**changes), **variables)
    assert plan["refusals"] == []
    assert {path: at(plan, path) for path in wanted} == wanted


# On a host that was as planned: a change of the facts, and the actions of the one area that must act then.
MASKED = {"load": "masked", "active": "inactive", "enabled": "masked"}
FAILED = {"load": "loaded", "active": "failed", "enabled": "enabled"}
DRIFTED: dict[str, tuple[tuple[str, str, dict[str, Any]], str, list[str]]] = {
    "I3": (
        ("units", "nvidia-persistenced.service", MASKED),
        "nvidia_driver",
        ["unmask nvidia-persistenced.service", "enable and start nvidia-persistenced.service"],
    ),
    "D7": (
        ("units", "nvidia-fabricmanager.service", MASKED),
        "nvidia_fabric",
        ["unmask nvidia-fabricmanager.service", "enable and start nvidia-fabricmanager.service"],
    ),
    "F6": (("units", "nvidia-cdi-refresh.service", FAILED), "nvidia_container_toolkit", ["enable and start nvidia-cdi-refresh.service"]),
}


@pytest.mark.parametrize(("change", "area", "actions"), DRIFTED.values(), ids=list(DRIFTED))
def test_drifted(change: tuple[str, str, dict[str, Any]], area: str, actions: list[str]) -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    part, name, value = change
    facts[part][name] = value
    plan = plan_for(facts)
    assert plan["refusals"] == []
    assert {name: entry["actions"] for name, entry in plan["areas"].items() if not entry["converged"] and name != "smoke_test"} == {area: actions}


def test_b4_installed_packages_are_no_driver_for_another_kernel() -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    facts["kernel"].update(release=KERNEL, headers=False)
    for name in ("nvidia", "nvidia_uvm"):
        facts["modules"][name] = {"loaded": False, "version": None, "flavour": None, "available": None}
    facts["nvidia_smi"].update(state="failed", error="nvidia-smi was not asked", driver_version=None, gpus=[])
    plan = plan_for(facts)
    assert plan["refusals"] == []
    assert not plan["converged"]
    assert plan["areas"]["nvidia_driver"]["actions"] == [
        "rebuild the initramfs",
        f"install linux-headers-{KERNEL}",
        "load nvidia, nvidia_uvm 580.178.04 (open)",
    ]


def test_a9_a_loaded_module_older_than_its_packages_asks_for_a_reboot() -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    facts["modules"]["nvidia"]["version"] = "580.65.06"
    plan = plan_for(facts)
    assert plan["reboot"]
    assert ["580.65.06 open is loaded and 580.178.04 open is planned, so a reboot is needed" in sentence for sentence in plan["refusals"]] == [True]
