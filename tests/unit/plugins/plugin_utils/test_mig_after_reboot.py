# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""G3: what a reboot leaves of a MIG layout is planned again. On A100 the mode stays and the instances are gone, from Hopper on the mode is gone, too."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.hosts import facts_for
from tests.unit.plans import accept, apply_plan, plan_for

LAYOUT: dict[str, Any] = {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}], "gpu_expected": None}


def accepted(pci_id: str) -> dict[str, Any]:
    """Facts of a host that was accepted with seven instances on each card."""
    bare = facts_for(pci_id=pci_id)
    there = apply_plan(bare, plan_for(bare, **LAYOUT))
    facts = accept(there, plan_for(there, **LAYOUT))
    assert plan_for(facts, **LAYOUT)["converged"]
    return facts


@pytest.mark.parametrize(("pci_id", "mode_stays"), [("10de:20b2", True), ("10de:2330", False)], ids=["A100", "H100"])
def test_g3_a_layout_that_a_reboot_took_is_made_again_without_a_reset(pci_id: str, mode_stays: bool) -> None:
    facts = accepted(pci_id)
    for gpu in facts["nvidia_smi"]["gpus"]:
        mode = "enabled" if mode_stays else "disabled"
        gpu["mig"].update(current=mode, pending=mode, instances=[])
    plan = plan_for(facts, **LAYOUT)
    assert plan["refusals"] == []
    assert not plan["converged"]
    assert not plan["reboot"]
    mig = plan["areas"]["mig"]
    assert mig["desired"]["resets"] == []
    assert mig["actions"], mig
    assert [len(gpu["instances"]) for gpu in mig["desired"]["gpus"]] == [7] * 8


@pytest.mark.parametrize("pci_id", ["10de:20b2", "10de:2330"], ids=["A100", "H100"])
def test_g3_the_mode_on_an_a100_that_lost_it_too_waits_for_the_operator(pci_id: str) -> None:
    facts = accepted(pci_id)
    for gpu in facts["nvidia_smi"]["gpus"]:
        gpu["mig"].update(current="disabled", pending="disabled", instances=[])
    refusals = plan_for(facts, **LAYOUT)["refusals"]
    assert (refusals == []) is (pci_id == "10de:2330")
    assert all("and reboot the host" in sentence for sentence in refusals)
