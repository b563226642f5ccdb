# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Health and fabric of each GPU, as the driver tells them: whose check it is, what is missing, and what is said of it."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_health import fabric, gpu_health
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Check

from tests.unit.hosts import CONVERGED, DRIVER, facts_for
from tests.unit.smoke_fakes import gpus

CARDS = gpus(2)
GOOD = {"volatile_uncorrectable": 0, "row_remap_failure": False, "row_remap_pending": False, "recovery_action": "None"}


def host(**smi: Any) -> dict[str, Any]:
    """Facts of two GPUs, of which nvidia-smi says this of the second one."""
    facts = facts_for(**{**CONVERGED, "gpus": 2})
    for gpu in facts["nvidia_smi"]["gpus"]:
        gpu.update(
            ecc={"volatile_uncorrectable": 0, "aggregate_uncorrectable": 2},
            remapped_rows={"failure": False, "pending": False},
            recovery_action="None",
            errors=[],
        )
    facts["nvidia_smi"]["gpus"][1].update(smi)
    return facts


def second(**smi: Any) -> Check:
    return gpu_health(CARDS, host(**smi))[1]


def test_a_sound_card_has_nothing_to_be_said_of_it() -> None:
    for check, card in zip(gpu_health(CARDS, host()), CARDS, strict=True):
        assert (check["status"], check["reason"], check["remedy"], check["gpu"]) == ("pass", None, None, card.gpu)
        assert check["value"] == check["floor"] == GOOD


@pytest.mark.parametrize("check", [gpu_health, lambda cards, facts: fabric(cards, facts, {})], ids=["gpu_health", "fabric"])
@pytest.mark.parametrize("state", ["hung", "absent", "failed"])
def test_without_an_answer_of_nvidia_smi_each_card_has_a_check_that_says_so(check: Any, state: str) -> None:
    facts = host()
    facts["nvidia_smi"].update(state=state, error="words", gpus=[])
    found = check(CARDS, facts)
    assert [(one["status"], one["reason"], one["gpu"]) for one in found] == [("could_not_run", f"nvidia-smi is {state}: words", card.gpu) for card in CARDS]
    # Also where it had told of cards before it failed.
    kept = host()
    kept["nvidia_smi"].update(state=state, error="words")
    assert {one["status"] for one in check(CARDS, kept)} == {"could_not_run"}


@pytest.mark.parametrize("check", [gpu_health, lambda cards, facts: fabric(cards, facts, {})], ids=["gpu_health", "fabric"])
def test_a_card_that_nvidia_smi_does_not_list_is_the_one_that_is_named(check: Any) -> None:
    facts = host()
    facts["nvidia_smi"]["gpus"].pop()
    found = check(CARDS, facts)
    assert [one["gpu"] for one in found] == [card.gpu for card in CARDS]
    assert (found[1]["status"], found[1]["reason"]) == ("could_not_run", "nvidia-smi does not list the GPU")


def test_a_fabric_that_is_complete_has_nothing_to_be_said_of_it() -> None:
    for check, card in zip(fabric(CARDS, host(), {}), CARDS, strict=True):
        assert (check["status"], check["reason"], check["remedy"], check["gpu"]) == ("pass", None, None, card.gpu)


@pytest.mark.parametrize(("manager", "status"), [(DRIVER, "pass"), ("580.65.06", "fail"), (None, "could_not_run")])
def test_before_hopper_each_card_has_a_check_of_the_one_manager(manager: str | None, status: str) -> None:
    cards = [card._replace(compute_capability="8.0") for card in CARDS]
    found = fabric(cards, facts_for(**{**CONVERGED, "gpus": 2, "fabric_manager": manager, "fabric_state": "N/A"}), {})
    assert [(check["status"], check["gpu"]) for check in found] == [(status, card.gpu) for card in cards]


def test_a_fabric_that_the_plan_excuses_is_not_applicable_on_each_card() -> None:
    found = fabric(CARDS, host(), {"fabric": "no NVSwitch"})
    assert [(check["status"], check["reason"], check["gpu"]) for check in found] == [("not_applicable", "no NVSwitch", card.gpu) for card in CARDS]


def test_of_a_chip_that_nobody_knows_it_is_said_which_card_it_is() -> None:
    [check] = fabric([CARDS[1]._replace(compute_capability=None)], host(), {})
    assert (check["status"], check["gpu"]) == ("could_not_run", CARDS[1].gpu)


@pytest.mark.parametrize("change", [{"ecc": None}, {"remapped_rows": None}, {"errors": None}, {"recovery_action": None}])
def test_what_a_card_does_not_tell_at_all_is_no_error_of_ours(change: dict[str, Any]) -> None:
    check = second(**change)
    assert check["status"] == "pass"
    assert (check["reason"] is None) == (change == {"errors": None})


@pytest.mark.parametrize(
    ("errors", "words"),
    [
        (["Unknown Error"], "Unknown Error"),
        (["a: Unknown Error", "b: Unknown Error"], "a: Unknown Error, b: Unknown Error"),
        (["a: Unknown Error", "b: Unknown Error", "c: Unknown Error"], "a: Unknown Error, b: Unknown Error and 1 more"),
    ],
)
def test_what_could_not_be_read_is_named_and_cut(errors: list[str], words: str) -> None:
    check = second(errors=errors)
    assert (check["status"], check["reason"]) == ("could_not_run", f"nvidia-smi cannot read its health ({words})")


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"ecc": {"volatile_uncorrectable": 1}}, "fail"),
        ({"ecc": {"volatile_uncorrectable": 0}}, "pass"),
        ({"remapped_rows": {"failure": True, "pending": False}}, "fail"),
        ({"remapped_rows": {"failure": False, "pending": True}}, "fail"),
        ({"recovery_action": "Reset"}, "fail"),
        ({"errors": ["GPU is lost"]}, "fail"),
    ],
)
def test_one_sick_card_is_the_only_one_that_fails(change: dict[str, Any], status: str) -> None:
    assert [check["status"] for check in gpu_health(CARDS, host(**change))] == ["pass", status]
