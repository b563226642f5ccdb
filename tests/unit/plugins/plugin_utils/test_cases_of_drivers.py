# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people met elsewhere with drivers, kernels and fabrics, by the id of the case, where the plan decides it. Others are in ``test_cases.py``."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit import plans
from tests.unit.hosts import facts_for
from tests.unit.plans import accept, apply_plan, plan_for
from tests.unit.plugins.plugin_utils.test_cases import PLANS, Case

WORKLOAD = {"device": "/dev/nvidia0", "pid": 4711, "command": "python3 train.py", "unit": "session-3.scope", "container": None, "role": "workload"}
LOCK = plans.lock(drivers=("580.178.04", "580.200.01", "595.91.07"))
SEVEN = [{"gpus": "all", "instances": {"1g.10gb": 7}}]
# Packages of the fabric that have versions of their own, or whichever the distribution has.
OWN_VERSION = ("nvlsm", "infiniband-diags", "dkms")


def unloaded(facts: dict[str, Any]) -> dict[str, Any]:
    """A host whose packages are there and whose modules are out, as after the drain and the reboot that an upgrade needs."""
    for name in ("nvidia", "nvidia_uvm"):
        facts["modules"][name].update(loaded=False, version=None, flavour=None, available=None)
    facts["nvidia_smi"].update(state="failed", error="no driver", driver_version=None, gpus=[])
    return facts


def accepted(**variables: Any) -> dict[str, Any]:
    there = apply_plan(facts_for(), plan_for(facts_for(), **variables))
    return accept(there, plan_for(there, **variables))


def pinned(install: list[str]) -> dict[str, str]:
    """Name to upstream version of what is installed at one version: ``name=1.2-1`` with apt, ``name-1:1.2-1.el9`` with dnf."""
    found = {}
    for entry in install:
        with_apt = re.fullmatch(r"([^= ]+)=(?:\d+:)?([\d.]+)-\S+", entry)
        with_dnf = re.fullmatch(r"([a-z][a-z0-9-]*?[a-z0-9])-(?:\d+:)?(\d+\.[\d.]+)-\S+", entry)
        if match := with_apt or with_dnf:
            found[match.group(1)] = match.group(2)
    return found


@pytest.mark.parametrize("before", ["570.211.01", "595.45.04"])
def test_a1_another_branch_is_reached_with_the_whole_set_at_once(before: str) -> None:
    """Both ways. Packages that are newer than planned are refused with the ways out, as apt would stop at the downgrade."""
    facts = unloaded(apply_plan(facts_for(), plan_for(facts_for())))
    for name, package in facts["packages"]["installed"].items():
        if "580.178.04" in package["version"]:
            facts["packages"]["installed"][name]["version"] = f"{before}-1"
    facts["library_version"] = before
    plan = plan_for(facts)
    if before.startswith("595"):
        assert any("newer than the planned 580.178.04-1" in sentence for sentence in plan["refusals"])
        return
    assert plan["refusals"] == []
    driver = plan["areas"]["nvidia_driver"]
    moved = {"nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"}
    assert {name for name, version in pinned(driver["desired"]["install"]).items() if version == "580.178.04"} == moved
    [install] = [action for action in driver["actions"] if action.startswith("install nvidia-driver-cuda")]
    assert all(name in install for name in moved)
    assert plan_for(apply_plan(facts, plan))["converged"]


BUILT = {name: case for name, case in PLANS.items() if not case.host.get("signed_modules")}
"""Ubuntu's own modules have Ubuntu's versions: P23 has them literally."""


@pytest.mark.parametrize("case", BUILT.values(), ids=list(BUILT))
def test_a6_d2_everything_that_must_match_has_one_exact_version_and_is_held(case: Case) -> None:
    """Driver, fabric and toolkit are tuples: no package of them is left to float, and no CUDA toolkit is put beside them."""
    areas = case.plan()["areas"]
    driver = areas["nvidia_driver"]["desired"]
    fabric = areas["nvidia_fabric"]["desired"].get("install", [])
    versions = {name: version for name, version in pinned([*driver["install"], *fabric]).items() if name not in OWN_VERSION}
    assert set(versions.values()) == {driver["version"]}
    loose = [entry for entry in [*driver["install"], *fabric] if entry not in OWN_VERSION and not pinned([entry])]
    assert [entry for entry in loose if not entry.startswith("linux-headers-")] == []
    assert set(versions) <= {*driver["hold"], *areas["nvidia_fabric"]["desired"].get("hold", [])}
    assert [name for name in versions if name.startswith("cuda") and not name.startswith("cuda-drivers")] == []
    toolkit = pinned(areas["nvidia_container_toolkit"]["desired"]["install"])
    assert len(toolkit) == 4 and len(set(toolkit.values())) == 1


@pytest.mark.parametrize("case", PLANS.values(), ids=list(PLANS))
def test_b3_no_plan_asks_for_a_kernel(case: Case) -> None:
    areas = case.plan()["areas"]
    entries = [entry for area in areas.values() for entry in (*area["desired"].get("install", []), *area["desired"].get("before", {}).get("packages", []))]
    kernel = case.host.get("kernel", facts_for()["kernel"]["release"])
    assert [entry for entry in entries if re.match(r"linux-(image|generic|cloud)|kernel(-core|-modules)?(\d|-\d|$)|kernel-64k", entry)] == []
    headers = [entry for entry in entries if entry.startswith(("linux-headers", "kernel-devel-uname-r"))]
    assert headers == [] or all(entry.endswith(kernel) for entry in headers)


@pytest.mark.parametrize("case", PLANS.values(), ids=list(PLANS))
def test_c1_c2_nouveau_is_kept_out_on_every_path(case: Case) -> None:
    """Blacklisted, out of the initramfs of every kernel, unloaded, and not converged before it is gone: which is read again after each boot."""
    facts = {**case.facts, "modules": {**case.facts.get("modules", {}), "nouveau": {"loaded": True, "version": None, "flavour": None, "available": None}}}
    driver = Case(**{**vars(case), "facts": facts}).plan()["areas"]["nvidia_driver"]
    assert ["blacklist nouveau" in spec["content"] for spec in driver["desired"]["files"] if spec["path"] == "/etc/modprobe.d/rackready-nouveau.conf"] == [True]
    assert driver["desired"]["initramfs_commands"]
    assert driver["desired"]["unload"] == ["nouveau"]
    assert (driver["target"]["nouveau"], driver["actual"]["nouveau"], driver["converged"]) == ("not loaded", "loaded", False)


def test_c2_nouveau_that_came_back_with_a_boot_is_no_converged_host() -> None:
    facts = accepted()
    assert plan_for(facts)["converged"]
    facts["modules"]["nouveau"]["loaded"] = True
    plan = plan_for(facts)
    assert not plan["converged"]
    assert plan["areas"]["nvidia_driver"]["actions"] == ["unload nouveau", "rebuild the initramfs"]


@pytest.mark.parametrize("found", ["580.178.03-1", "580.178.04-0", "580.65.06-1"])
def test_d1_a_fabric_manager_that_differs_in_its_last_digit_is_another_one(found: str) -> None:
    facts = accepted()
    facts["packages"]["installed"]["nvidia-fabricmanager"]["version"] = found
    plan = plan_for(facts)
    assert plan["refusals"] == []
    assert not plan["areas"]["nvidia_fabric"]["converged"]
    assert plan["areas"]["nvidia_fabric"]["actions"] == ["install nvidia-fabricmanager=580.178.04-1"]


@pytest.mark.parametrize("branch", ["580", "595"])
def test_d2_the_fabric_manager_follows_the_driver_also_where_a_newer_one_is_in_the_lock(branch: str) -> None:
    plan = plan_for(facts_for(), rackready_lock=LOCK, nvidia_driver_branch=int(branch))
    version = plan["areas"]["nvidia_driver"]["desired"]["version"]
    assert version.startswith(branch)
    assert plan["areas"]["nvidia_fabric"]["desired"]["install"] == [f"nvidia-fabricmanager={version}-1"]
    assert plan["areas"]["nvidia_fabric"]["desired"]["hold"] == ["nvidia-fabricmanager"]


def test_d6_the_vendors_unit_starts_the_fabric_of_an_nvlink5_board_and_no_file_of_ours_is_in_it() -> None:
    """Which management port nvlsm takes is decided by the start script of NVIDIA's package. That each GPU is looked at: ``roles/test_nvidia_fabric.py``."""
    fabric = plan_for(facts_for(pci_id="10de:2901", nvswitches=0), gpu_expected=None)["areas"]["nvidia_fabric"]["desired"]
    assert fabric["units"] == ["nvidia-fabricmanager.service"]
    assert "files" not in fabric
    assert fabric["gpus_completed"]


@pytest.mark.parametrize("found", ["bare", "image of another machine"])
def test_h6_i4_on_a_host_without_a_gpu_nothing_is_installed_started_or_changed(found: str) -> None:
    """Such a host is refused by name and not passed over in silence: whoever lists it expects GPUs. No area is planned, so no role runs and no unit is started.

    Units of an image that was built elsewhere are left as they are: ``systemctl --failed`` is as it was before.
    """
    facts = facts_for() if found == "bare" else apply_plan(facts_for(), plan_for(facts_for()))
    facts["gpus"] = []
    facts["nvidia_smi"]["gpus"] = []
    plan = plan_for(facts)
    assert plan["refusals"] == [sentence for sentence in plan["refusals"] if sentence.startswith("There is no NVIDIA GPU on the PCI bus")] != []
    assert (plan["areas"], plan["sources"], plan["converged"]) == ({}, {"repositories": [], "images": []}, False)


def test_a10_an_upgrade_is_one_variable_and_waits_for_the_drain() -> None:
    """What upgrades is the one version variable, or the release. Under jobs it is refused with who they are, ``drain`` and ``reboot`` in the plan; once the
    host is drained and the old module is out, the plan of the same variable moves driver and fabric together. No playbook drains or reboots a host (B7: so
    there is no limit of a reboot either).
    """
    facts = accepted(rackready_lock=plans.lock())
    newer = {"rackready_lock": LOCK, "nvidia_driver_version": "580.200.01"}
    facts["holders"] = [WORKLOAD]
    busy = plan_for(facts, **newer)
    assert (busy["drain"], busy["reboot"], busy["converged"]) == (True, True, False)
    assert any("python3 train.py" in sentence for sentence in busy["refusals"])
    assert any("take the host out of service" in sentence for sentence in busy["refusals"])
    facts["holders"] = []
    ready = plan_for(unloaded(facts), **newer)
    assert ready["refusals"] == []
    moved = {**pinned(ready["areas"]["nvidia_driver"]["desired"]["install"]), **pinned(ready["areas"]["nvidia_fabric"]["desired"]["install"])}
    assert set(moved.values()) == {"580.200.01"}
    assert plan_for(apply_plan(facts, ready), **newer)["converged"]


def test_a12_a_driver_of_the_other_flavour_in_use_is_refused_with_who_holds_it() -> None:
    """Holders are named, not stopped, and packages of the other flavour are not removed: the refusals have the commands. A runfile's driver: A11."""
    facts = accepted()
    facts["modules"]["nvidia"]["flavour"] = "proprietary"
    facts["holders"] = [WORKLOAD]
    plan = plan_for(facts)
    assert (plan["reboot"], plan["drain"]) == (True, True)
    assert any("580.178.04 proprietary is loaded and 580.178.04 open is planned, so a reboot is needed" in sentence for sentence in plan["refusals"])
    assert any("in use by python3 train.py" in sentence for sentence in plan["refusals"])


def test_m12_after_a_new_driver_on_an_h100_the_same_layout_is_made_and_tested_again() -> None:
    """Mode and instances went with the module. The layout is saved where it was asked for, in the inventory."""
    asked = {"mig_layout": SEVEN, "rackready_lock": LOCK}
    facts = accepted(**asked)
    assert plan_for(facts, **asked)["converged"]
    upgraded = {**asked, "nvidia_driver_branch": 595}
    after = apply_plan(unloaded(facts), plan_for(unloaded(facts), **upgraded))
    for gpu in after["nvidia_smi"]["gpus"]:
        gpu["mig"].update(current="disabled", pending="disabled", instances=[])
    plan = plan_for(after, **upgraded)
    assert plan["refusals"] == []
    assert not plan["areas"]["mig"]["converged"]
    assert [len(gpu["instances"]) for gpu in plan["areas"]["mig"]["desired"]["gpus"]] == [7] * 8
    again = plan_for(apply_plan(after, plan), **upgraded)
    assert again["areas"]["mig"]["converged"]
    assert not again["areas"]["smoke_test"]["converged"], "the stamp is of the old driver"
