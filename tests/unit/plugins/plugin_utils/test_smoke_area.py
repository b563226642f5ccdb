# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan asks of a smoke test: cards, floors, time, and what cannot apply on a host, said before the test."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_tiers
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu

from tests.unit.hosts import CONVERGED, facts_for
from tests.unit.plans import accept, apply_plan, plan_for

ONE = {"gpu_expected": {"model": "h100-sxm5-80gb", "count": 1}}


def desired(facts: dict[str, Any] | None = None, **variables: Any) -> dict[str, Any]:
    found: dict[str, Any] = plan_for(facts or facts_for(**CONVERGED), **variables)["areas"]["smoke_test"]["desired"]
    return found


@pytest.mark.parametrize(
    ("gpus", "variables", "seconds"),
    [
        (8, {}, 120),
        (8, {"smoke_test_tier": "accept"}, 600),
        (1, {"smoke_test_tier": "accept"}, 360),
        (8, {"smoke_test_tier": "burn"}, 600 + 3600),
        (8, {"smoke_test_tier": "burn", "smoke_test_burn_minutes": 5}, 600 + 300),
        (8, {"smoke_test_tier": "accept", "smoke_test_burn_minutes": 5}, 600),
        (8, {"smoke_test_backend": "cpu"}, 300),
    ],
)
def test_a_tier_has_its_time(gpus: int, variables: dict[str, Any], seconds: int) -> None:
    bought = {"gpu_expected": {"model": "h100-sxm5-80gb", "count": gpus}}
    assert desired(facts_for(**{**CONVERGED, "gpus": gpus}), **bought, **variables)["timeout"] == seconds


def test_cards_are_told_with_model_and_memory_and_what_was_bought() -> None:
    found = desired()
    assert found["expected"] == {"model": "h100-sxm5-80gb", "count": 8}
    assert [(gpu["model"], gpu["memory_gb"]) for gpu in found["gpus"]] == [("h100-sxm5-80gb", 80)] * 8
    assert desired(gpu_expected=None)["expected"] is None


def test_a_card_that_nobody_knows_has_no_model_and_no_floor() -> None:
    found = desired(facts_for(**CONVERGED, pci_id="10de:2684"), gpu_expected=None)
    assert {(gpu["model"], gpu["memory_gb"]) for gpu in found["gpus"]} == {(None, None)}
    assert found["floors"] == {}


@pytest.mark.parametrize("tier", smoke_tiers.TIERS)
def test_on_a_whole_board_with_switches_hardly_anything_is_excused(tier: str) -> None:
    assert set(desired(smoke_test_tier=tier)["not_applicable"]) == {"imex"}


def test_one_gpu_has_nothing_between_gpus() -> None:
    found = desired(facts_for(**{**CONVERGED, "gpus": 1}), **ONE, smoke_test_tier="accept")["not_applicable"]
    assert {"pair_exact", "speed.all_reduce.busbw", "speed.pair.copy", "product_match"} <= set(found)
    # Collectives of one rank are required: they show that the library starts.
    assert "all_reduce_exact" not in found and "all_to_all_exact" not in found


@pytest.mark.parametrize("gpus", [1, 8])
@pytest.mark.parametrize("more", [{}, {"smoke_test_backend": "cpu"}, {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}]}])
def test_what_is_excused_does_not_depend_on_the_tier_so_that_a_host_may_be_tested_in_any(gpus: int, more: dict[str, Any]) -> None:
    bought = {"gpu_expected": {"model": "h100-sxm5-80gb", "count": gpus}}
    found = [desired(facts_for(**{**CONVERGED, "gpus": gpus}), **bought, **more, smoke_test_tier=tier)["not_applicable"] for tier in smoke_tiers.TIERS]
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize(
    ("stamped", "planned", "holds"), [("burn", "quick", True), ("accept", "accept", True), ("quick", "accept", False), (None, "quick", False)]
)
def test_a_deeper_test_than_the_planned_one_was_a_test_too(stamped: str | None, planned: str, holds: bool) -> None:
    bare = facts_for()
    facts = apply_plan(bare, plan_for(bare, smoke_test_tier=planned))
    facts = accept(facts, plan_for(facts, smoke_test_tier=planned))
    facts["stamp"]["tier"] = stamped
    assert plan_for(facts, smoke_test_tier=planned)["areas"]["smoke_test"]["converged"] is holds


@pytest.mark.parametrize(("init", "excused"), [("systemd", False), ("runit", True), (None, True)])
def test_without_systemd_nothing_can_reload(init: str | None, excused: bool) -> None:
    facts = facts_for(**CONVERGED)
    facts["init"] = init
    assert ("daemon_reload" in desired(facts)["not_applicable"]) == excused


def test_a_host_of_two_models_compares_those_that_have_a_sibling() -> None:
    facts = facts_for(**{**CONVERGED, "gpus": 2})
    facts["gpus"][1]["pci_id"] = "10de:2335"
    assert "product_match" in desired(facts, gpu_expected=None)["not_applicable"]
    facts = facts_for(**{**CONVERGED, "gpus": 3})
    facts["gpus"][2]["pci_id"] = "10de:2335"
    found = desired(facts, gpu_expected=None)
    assert "product_match" not in found["not_applicable"]
    assert set(found["floors"]) == {"h100-sxm5-80gb", "h200-sxm-141gb"}


@pytest.mark.parametrize("tier", smoke_tiers.TIERS)
def test_what_is_excused_of_divided_gpus_covers_what_their_parts_cannot_do(tier: str) -> None:
    """Whatever is required of a part and not excused, a process that sees one instance and no other can do."""
    variables: dict[str, Any] = {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}], "smoke_test_tier": tier}
    excused = desired(**variables)["not_applicable"]
    part = ExpectedGpu("0000:1a:00.0", "10de:2330", compute_capability="9.0", instance="MIG-1")
    left = {entry.name for entry in smoke_tiers.requirements([part], [part], tier, "cuda")} - set(excused)
    assert not left & {*smoke_tiers.BETWEEN, "product_match"}
    assert not {name for name in left if name.startswith("speed.")}
    assert "matmul_exact.bf16" in left


@pytest.mark.parametrize("tier", smoke_tiers.TIERS)
def test_on_the_cpu_every_figure_is_told_and_none_is_judged(tier: str) -> None:
    found = desired(smoke_test_backend="cpu", smoke_test_tier=tier)
    card = ExpectedGpu("0000:1a:00.0", "10de:2330", compute_capability="9.0")
    figures = {entry.name for entry in smoke_tiers.requirements([card, card], [card, card], tier, "cpu") if entry.name.startswith("speed.")}
    assert figures and figures <= set(found["not_applicable"])
    assert "matmul_exact.bf16" not in found["not_applicable"]
