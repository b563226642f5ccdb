# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A pass of the payload without the numbers of the whole work is none, whichever check it is and whichever number is missing."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_evidence import lacking
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import least_repeats

from tests.unit.smoke_fakes import container, rank_events

WORLD = 2
# Not every one of these numbers shows work.
TOLD_ONLY = ("first_wrong", "sha256", "dtype", "shape_of")


def passes(tier: str, backend: str = "cuda") -> dict[str, dict[str, Any]]:
    """Every check that a sound rank passes, with its numbers."""
    events = rank_events(0, WORLD, backend, tier=tier, burn_seconds=600 if tier == "burn" else 0)
    return {event["name"]: event["value"] for event in events if event["event"] == "check" and event["status"] == "pass"}


def of(tier: str, backend: str = "cuda") -> Any:
    return container(ranks=WORLD, backend=backend, tier=tier, burn_seconds=600 if tier == "burn" else 0)


CASES = [(tier, name, key) for tier in ("quick", "accept", "burn") for name, value in passes(tier).items() for key in value if key not in TOLD_ONLY]


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
@pytest.mark.parametrize("tier", ["quick", "accept", "burn"])
def test_the_whole_work_lacks_nothing(tier: str, backend: str) -> None:
    assert {name: lacking(name, value, of(tier, backend)) for name, value in passes(tier, backend).items()} == dict.fromkeys(passes(tier, backend))


@pytest.mark.parametrize(("tier", "name", "key"), CASES)
def test_each_number_is_needed_and_none_may_be_another(tier: str, name: str, key: str) -> None:
    value = passes(tier)[name]
    without = {other: number for other, number in value.items() if other != key}
    if (name, key) != ("training.fp8", "wrong"):
        assert str(lacking(name, without, of(tier))).startswith(f"{key} is None")
    odds: tuple[Any, ...] = (None, "1", -1, float("nan"), [], True, False)
    for odd in odds:
        if odd is not value[key]:
            assert str(lacking(name, {**value, key: odd}, of(tier))).startswith(f"{key} is {odd!r}"), odd


@pytest.mark.parametrize("kind", ["matmul_exact", "matmul_repeat"])
@pytest.mark.parametrize(("tier", "dtype"), [("quick", "fp64"), ("accept", "fp64"), ("accept", "bf16"), ("burn", "fp32")])
def test_more_repetitions_are_no_fault_fewer_are(kind: str, tier: str, dtype: str) -> None:
    name, least = f"{kind}.{dtype}", least_repeats(dtype, "cuda", tier)
    value = passes(tier)[name]
    assert lacking(name, {**value, "repeats": least + 5}, of(tier)) is None
    assert lacking(name, {**value, "repeats": least - 1}, of(tier)) == f"repeats is {least - 1}, {least} is the least"


@pytest.mark.parametrize(("key", "value"), [("seconds", 599.9), ("products", 0), ("wrong", 1), ("nan", 1), ("inf", 1)])
def test_a_burn_lasts_as_long_as_was_asked_for(key: str, value: float) -> None:
    assert str(lacking("burn", {**passes("burn")["burn"], key: value}, of("burn"))).startswith(f"{key} is {value}")


@pytest.mark.parametrize(("key", "value"), [("seconds", 600), ("products", 1)])
def test_a_burn_of_just_so_much_is_one(key: str, value: float) -> None:
    assert lacking("burn", {**passes("burn")["burn"], key: value}, of("burn")) is None


@pytest.mark.parametrize("value", [None, [], "x", 3])
@pytest.mark.parametrize("name", ["matmul_exact.bf16", "burn", "training.compile", "unheard_of"])
def test_no_numbers_at_all(name: str, value: Any) -> None:
    assert lacking(name, value, of("quick")) == "gave no numbers"


def test_a_check_of_which_nobody_knows_what_its_work_is_cannot_pass() -> None:
    assert lacking("unheard_of", {"elements": 3, "wrong": 0}, of("quick")) == "nobody knows what its work is"
    assert lacking("memory.copy", {"elements": 3, "wrong": 0}, of("quick")) == "nobody knows what its work is"


def test_a_step_of_an_image_that_can_more_than_we_know() -> None:
    assert lacking("training.transformer_engine", {"elements": 4096, "outputs_off": 0.01}, of("accept")) is None
    assert lacking("training.transformer_engine", {"elements": 1}, of("accept")) is None
    assert lacking("training.transformer_engine", {"elements": 0}, of("accept")) == "elements is 0, 1 is the least"
    assert lacking("training.compile", {"elements": 9, "wrong": 1}, of("accept")) == "wrong is 1, 0 is the whole test"


def test_fewer_ranks_are_not_the_whole_work() -> None:
    value = passes("accept")
    alone = of("accept")._replace(ranks=3)
    for name in ("all_reduce_exact", "all_to_all_exact", "pair_exact", "training.ddp_step"):
        assert lacking(name, value[name], alone) == "world is 2, 3 is the whole test"
