# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Figures against floors and against the host, and products against each other: where each line is drawn, and who is named."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import (
    ALL_REDUCE,
    Figure,
    below_its_floor,
    integer,
    judge_all_reduce,
    judge_gpus,
    judge_pairs,
    lacking,
    product_match,
    unit_of,
    why_slow,
)
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Check
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import BUS_IDS
from tests.unit.smoke_fakes import MODEL, figure, floor, gpus

NAME = "matmul.bf16"


def judged(medians: list[float], floors: Any = None, cards: list[ExpectedGpu] | None = None, name: str = NAME, **more: Any) -> list[Check]:
    known = {MODEL: {name: [floor(5, unit=unit_of(name))]}} if floors is None else floors
    return judge_gpus(name, [Figure(gpu, figure(name, median)) for gpu, median in zip(cards or gpus(), medians, strict=False)], known, **more)


@pytest.mark.parametrize(("value", "found"), [(0, 0), (-1, -1), (True, None), (False, None), (1.0, None), ("1", None), (None, None)])
def test_an_integer_is_no_truth_and_no_fraction(value: Any, found: int | None) -> None:
    assert integer(value) is found


def said(checks: list[Check]) -> list[str]:
    return [check["status"] for check in checks]


class TestFloor:
    @pytest.mark.parametrize(("median", "status"), [(620.0, "pass"), (621.0, "pass"), (619.9, "fail"), (1.0, "fail")])
    def test_a_confirmed_one_fails_what_is_below_it(self, median: float, status: str) -> None:
        [check] = judged([median], {MODEL: {NAME: [floor(620)]}})
        assert check["status"] == status
        assert (check["name"], check["unit"], check["floor"]["floor"], check["source"]) == ("speed.matmul.bf16", "TFLOP/s", 620, "lab 2026-12")
        assert check["gpu"] == gpus(1)[0].gpu
        if status == "fail":
            assert check["reason"] == f"{median:.4g} TFLOP/s is below the floor of 620"
            assert "window.throttle" in str(check["remedy"])

    @pytest.mark.parametrize(
        ("median", "words"),
        [
            (700.0, "the floor of 620 TFLOP/s, which it reaches, was never confirmed on hardware"),
            (600.0, "600 TFLOP/s is below the floor of 620, which was never confirmed on hardware"),
        ],
    )
    def test_one_that_was_never_confirmed_neither_passes_nor_fails(self, median: float, words: str) -> None:
        [check] = judged([median], {MODEL: {NAME: [floor(620, verified=False)]}})
        assert (check["status"], check["reason"]) == ("degraded", words)
        assert "floors.yml" in str(check["remedy"])

    @pytest.mark.parametrize(
        "floors",
        [
            {},
            {"other": {NAME: [floor(1)]}},
            {MODEL: {}},
            {MODEL: {"memory.copy": [floor(1)]}},
            {MODEL: {NAME: [floor(1, gpus=8)]}},
            {MODEL: {NAME: [floor(1, kernel="another")]}},
            {MODEL: {NAME: [floor(1, conditions="another size")]}},
            {MODEL: {NAME: [floor(1, unit="GFLOP/s")]}},
        ],
    )
    def test_one_for_something_else_is_none(self, floors: Any) -> None:
        [check] = judged([700.0], floors)
        assert (check["status"], check["floor"], check["source"]) == ("degraded", None, "measured in the container")
        assert str(check["reason"]).startswith("no floor known for this model")

    def test_of_several_the_one_that_fits_counts(self) -> None:
        several = [floor(900, gpus=8), floor(900, kernel="x"), floor(600), floor(900, gpus=4)]
        assert said(judged([700.0], {MODEL: {NAME: several}})) == ["pass"]

    def test_a_card_of_no_model_has_none(self) -> None:
        assert said(judged([700.0], cards=gpus(1, model=None))) == ["degraded"]


class TestAgainstTheHost:
    @pytest.mark.parametrize(
        ("mine", "status"),
        [(100.0, "pass"), (95.1, "pass"), (95.0, "degraded"), (92.0, "degraded"), (91.9, "fail"), (10.0, "fail"), (150.0, "pass")],
    )
    def test_the_straggler_is_named_and_alone(self, mine: float, status: str) -> None:
        checks = judged([100.0, 100.0, mine])
        assert said(checks) == ["pass", "pass", status]
        assert checks[2]["gpu"] == gpus(3)[2].gpu
        assert checks[2]["value"]["host_median"] == 100.0
        if status == "pass":
            assert checks[2]["reason"] is None
        else:
            assert checks[2]["reason"] == f"{mine:.4g} TFLOP/s is {100 - mine:.1f} % under the median of this host's 3 GPUs (100)"

    def test_two_have_no_median(self) -> None:
        assert said(judged([100.0, 60.0])) == ["pass", "pass"]
        assert "host_median" not in judged([100.0, 60.0])[0]["value"]

    def test_only_cards_of_one_model_are_compared(self) -> None:
        cards = [*gpus(3), *(gpu._replace(pci_id="10de:2335") for gpu in gpus(6)[3:])]
        assert said(judged([100.0, 100.0, 100.0, 60.0, 60.0, 60.0], cards=cards)) == ["pass"] * 6
        assert said(judged([100.0, 100.0, 60.0, 60.0, 60.0, 60.0], cards=cards)) == ["pass", "pass", "fail", "pass", "pass", "pass"]

    def test_cards_that_nobody_can_tell_apart_are_not_compared(self) -> None:
        cards = [gpu._replace(pci_id=None, name=None) for gpu in gpus(3)]
        assert said(judged([100.0, 100.0, 51.0], cards=cards)) == ["pass"] * 3

    def test_a_part_of_a_card_is_not_held_against_whole_ones(self) -> None:
        cards = [*gpus(3), gpus(4)[3]._replace(instance="MIG-1")]
        assert said(judged([100.0, 100.0, 100.0, 30.0], cards=cards)) == ["pass"] * 4

    def test_one_of_no_card_is_nobodys(self) -> None:
        own, missing = Figure(gpus(1)[0], figure(NAME, 100.0)), Figure(None, None, "it hung")
        for odd in (own._replace(gpu=None), missing):
            [check] = judge_gpus(NAME, [odd, own], {MODEL: {NAME: [floor(50)]}})
            assert (check["status"], check["gpu"]) == ("pass", gpus(1)[0].gpu)

    def test_one_that_has_no_figure_is_not_in_the_median(self) -> None:
        figures = [Figure(gpu, figure(NAME, 100.0)) for gpu in gpus(3)]
        figures[2] = Figure(gpus(3)[2], None, "it hung")
        checks = judge_gpus(NAME, figures, {MODEL: {NAME: [floor(50)]}})
        assert said(checks) == ["pass", "pass", "could_not_run"]
        assert "host_median" not in checks[0]["value"]

    def test_floor_and_median_are_both_said_the_worse_one_first(self) -> None:
        checks = judged([100.0, 100.0, 90.0], {MODEL: {NAME: [floor(95, verified=False)]}})
        assert said(checks) == ["degraded", "degraded", "fail"]
        assert str(checks[2]["reason"]).startswith("90 TFLOP/s is 10.0 % under the median")
        assert "90 TFLOP/s is below the floor of 95, which was never confirmed" in str(checks[2]["reason"])


class TestLopsided:
    @pytest.mark.parametrize(("mine", "status"), [(26.0, "pass"), (20.8, "pass"), (20.7, "degraded"), (6.27, "degraded")])
    def test_the_slow_direction_is_said(self, mine: float, status: str) -> None:
        name = "copy.device_to_host"
        [check] = judged([mine], {MODEL: {name: [floor(5, unit="GB/s")]}}, name=name, backs={BUS_IDS[0]: 26.0})
        assert check["status"] == status
        if status == "degraded":
            assert check["reason"] == f"{mine:.4g} GB/s is {mine / 26 * 100:.0f} % of the other direction (26)"

    @pytest.mark.parametrize("back", [None, {}, {BUS_IDS[1]: 99.0}, {BUS_IDS[0]: None}, {BUS_IDS[0]: 0}])
    def test_without_the_other_direction_nothing_is(self, back: Any) -> None:
        name = "copy.device_to_host"
        assert said(judged([26.0], {MODEL: {name: [floor(5, unit="GB/s")]}}, name=name, backs=back)) == ["pass"]


ODD = st.none() | st.integers() | st.text() | st.lists(st.floats())


class TestEvidence:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"median": None}, "its median is None"),
            ({"median": True}, "its median is True"),
            ({"median": 0}, "its median is 0"),
            ({"median": -1.0}, "its median is -1.0"),
            ({"median": float("nan")}, "its median is nan"),
            ({"median": float("inf")}, "its median is inf"),
            ({"median": "100"}, "its median is '100'"),
            ({"unit": "GFLOP/s"}, "its unit is 'GFLOP/s', not TFLOP/s"),
            ({"unit": None}, "its unit is None, not TFLOP/s"),
            ({"samples": []}, "its samples are not numbers above zero"),
            ({"samples": None}, "its samples are not numbers above zero"),
            ({"samples": 5}, "its samples are not numbers above zero"),
            ({"samples": [100.0, 0.0]}, "its samples are not numbers above zero"),
            ({"samples": [100.0, "x"]}, "its samples are not numbers above zero"),
            ({"samples": [1.0, 2.0]}, "its median 100 lies outside its samples"),
            ({"samples": [101.0, 102.0]}, "its median 100 lies outside its samples"),
            ({"kernel": ""}, "it does not name its kernel"),
            ({"kernel": None, "conditions": 3}, "it does not name its kernel and conditions"),
        ],
    )
    def test_what_lacks_its_numbers_is_no_figure(self, change: dict[str, Any], words: str) -> None:
        assert lacking(NAME, figure(NAME)) is None
        assert lacking(NAME, {**figure(NAME), **change}) == words
        [check] = judge_gpus(NAME, [Figure(gpus(1)[0], {**figure(NAME), **change})], {MODEL: {NAME: [floor(1)]}})
        assert (check["status"], check["reason"]) == ("could_not_run", f"the payload gave a figure, but {words}")

    @pytest.mark.parametrize("value", [None, [], 3, "x"])
    def test_what_is_no_figure_at_all(self, value: Any) -> None:
        assert lacking(NAME, value) == "it gave no numbers"

    @pytest.mark.parametrize(("failed", "status"), [(False, "could_not_run"), (True, "fail")])
    def test_a_missing_one_says_why(self, failed: bool, status: str) -> None:
        [check] = judge_gpus(NAME, [Figure(gpus(1)[0], None, "rank 0 hung in it", failed)], {})
        assert (check["status"], check["reason"], check["value"]) == (status, "rank 0 hung in it", None)

    @given(
        st.dictionaries(st.sampled_from(["median", "samples", "unit", "kernel", "conditions"]), st.none() | st.integers() | st.text() | st.lists(st.floats()))
    )
    def test_nothing_odd_ever_passes(self, change: dict[str, Any]) -> None:
        [check] = judge_gpus(NAME, [Figure(gpus(1)[0], {**figure(NAME), **change})], {MODEL: {NAME: [floor(1)]}})
        assert check["status"] != "pass" or lacking(NAME, {**figure(NAME), **change}) is None


def reduced(median: float, world: int = 8, **more: Any) -> Figure:
    return Figure(None, figure(ALL_REDUCE, median, world=world, **more))


BUSBW = {MODEL: {ALL_REDUCE: [floor(430, gpus=8, unit="GB/s"), floor(325, gpus=4, unit="GB/s")]}}


class TestAllReduce:
    @pytest.mark.parametrize(("median", "world", "status"), [(430, 8, "pass"), (429, 8, "fail"), (325, 4, "pass"), (324, 4, "fail"), (999, 2, "degraded")])
    def test_floors_go_by_the_number_of_gpus(self, median: float, world: int, status: str) -> None:
        check = judge_all_reduce(reduced(median, world), BUSBW, MODEL, world)
        assert (check["name"], check["status"], check["gpu"]) == ("speed.all_reduce.busbw", status, None)

    def test_fewer_ranks_than_gpus_are_no_figure_of_this_host(self) -> None:
        check = judge_all_reduce(reduced(999, 4), BUSBW, MODEL, 8)
        assert (check["status"], check["reason"]) == ("could_not_run", "4 ranks took part, 8 GPUs are expected")

    def test_without_a_figure_it_says_why(self) -> None:
        check = judge_all_reduce(Figure(None, None, "rank 0 never reported"), BUSBW, MODEL, 8)
        assert (check["status"], check["reason"]) == ("could_not_run", "rank 0 never reported")

    @pytest.mark.parametrize(("median", "world", "low"), [(429, 8, True), (430, 8, False), (1, 2, False), (324, 4, True)])
    def test_what_is_low_is_worth_a_question(self, median: float, world: int, low: bool) -> None:
        assert below_its_floor(reduced(median, world), BUSBW, MODEL, world) == low
        assert not below_its_floor(reduced(median, world), BUSBW, None, world)
        assert not below_its_floor(Figure(None, None, "none"), BUSBW, MODEL, world)

    def test_an_unconfirmed_floor_is_worth_it_too(self) -> None:
        floors = {MODEL: {ALL_REDUCE: [floor(430, gpus=8, unit="GB/s", verified=False)]}}
        assert below_its_floor(reduced(400), floors, MODEL, 8)
        check = judge_all_reduce(reduced(400), floors, MODEL, 8, reduced(380))
        assert check["status"] == "degraded"

    @pytest.mark.parametrize(
        ("reached", "without", "words"),
        [
            (400.0, None, "the reason is not known"),
            (400.0, 340.0, "reduction in the switches works, and the links are slow"),
            (360.0, 366.0, "reduction in the switches is not in use (multicast is missing)"),
            (366.0, 366.0, "is not in use"),
            (384.4, 366.0, "the links are slow"),
            (105.0, 100.0, "is not in use"),
            (95.0, 100.0, "is not in use"),
            (384.2, 366.0, "is not in use"),
            (347.7, 366.0, "is not in use"),
            (347.6, 366.0, "reduction in the switches is what slows it"),
            (200.0, 366.0, "reduction in the switches is what slows it"),
        ],
    )
    def test_the_second_measurement_names_the_reason(self, reached: float, without: float | None, words: str) -> None:
        assert words in why_slow(reached, without)

    def test_a_second_measurement_is_never_said_of_a_pass(self) -> None:
        assert judge_all_reduce(reduced(500), BUSBW, MODEL, 8, reduced(480))["status"] == "degraded"

    def test_the_reason_stands_beside_the_failure(self) -> None:
        check = judge_all_reduce(reduced(366), BUSBW, MODEL, 8, reduced(366))
        assert check["status"] == "fail"
        assert str(check["reason"]).startswith("366 GB/s is below the floor of 430; without NVLS it is 366 GB/s, the same")
        assert check["value"]["without_nvls"] == 366
        assert "reason is not known" in str(judge_all_reduce(reduced(366), BUSBW, MODEL, 8, Figure(None, None, "no"))["reason"])


def pairs(world: int = 4, **speeds: float) -> Figure:
    """All ordered pairs at 390 GB/s, but for those given as ``_<source>_<target>``."""
    table = [[src, dst, speeds.get(f"_{src}_{dst}", 390.0)] for src in range(world) for dst in range(world) if src != dst]
    return Figure(None, figure("pair.copy", 390.0, pairs=table))


PAIR_FLOORS = {MODEL: {"pair.copy": [floor(300, gpus=2, unit="GB/s")]}}


class TestPairs:
    def test_a_slow_way_is_named_at_both_ends(self) -> None:
        checks = judge_pairs(pairs(_1_3=350.0), gpus(4), PAIR_FLOORS, uniform=True)
        assert said(checks) == ["pass", "fail", "pass", "pass"]
        assert checks[1]["gpu"] == gpus(2)[1].gpu
        assert checks[1]["reason"] == f"to {BUS_IDS[3]} 350 GB/s is 10.3 % under the median of this host's 12 pairs (390)"
        assert checks[1]["value"]["to"] == BUS_IDS[3]

    def test_where_ways_differ_by_design_they_are_not_compared(self) -> None:
        assert said(judge_pairs(pairs(_1_3=350.0), gpus(4), PAIR_FLOORS, uniform=False)) == ["pass"] * 4

    @pytest.mark.parametrize(("speed", "status"), [(299.9, "fail"), (300.0, "pass")])
    def test_the_floor_holds_for_the_slowest_way(self, speed: float, status: str) -> None:
        assert said(judge_pairs(pairs(_1_3=speed), gpus(4), PAIR_FLOORS, uniform=False)) == ["pass", status, "pass", "pass"]

    def test_without_a_floor_it_is_told(self) -> None:
        assert said(judge_pairs(pairs(), gpus(4), {}, uniform=True)) == ["degraded"] * 4

    @pytest.mark.parametrize(
        "table",
        [
            None,
            5,
            [],
            [[0, 1, 390.0]],
            [[0, 1, None], [1, 0, 390.0]],
            [[0, 1, 390.0], [1, 0, 0]],
            [[0, 1], [1, 0]],
            [[0, True, 3.0], [1, 0, 3.0]],
            [5, [1, 0, 3.0]],
            "x",
        ],
    )
    def test_a_missing_pair_is_no_pass_for_anybody(self, table: Any) -> None:
        checks = judge_pairs(Figure(None, figure("pair.copy", pairs=table)), gpus(2), PAIR_FLOORS, uniform=True)
        assert said(checks) == ["could_not_run"] * 2
        assert "of 2 pairs" in str(checks[0]["reason"])

    def test_a_pair_that_nobody_has_is_none_either(self) -> None:
        odd = Figure(None, figure("pair.copy", pairs=[[0, 1, 3.0], [1, 0, 3.0], [0, 2, 3.0]]))
        assert said(judge_pairs(odd, gpus(2), PAIR_FLOORS, uniform=True)) == ["could_not_run"] * 2

    @pytest.mark.parametrize(("failed", "status"), [(True, "fail"), (False, "could_not_run")])
    def test_a_missing_table_says_why(self, failed: bool, status: str) -> None:
        checks = judge_pairs(Figure(None, None, "rank 0 hung in it", failed), gpus(2), {}, uniform=True)
        assert [(check["status"], check["reason"]) for check in checks] == [(status, "rank 0 hung in it")] * 2
        assert said(judge_pairs(Figure(None, "x"), gpus(2), {}, uniform=True)) == ["could_not_run"] * 2

    def test_one_gpu_has_no_pair(self) -> None:
        assert judge_pairs(Figure(None, None, "none"), gpus(1), {}, uniform=True) == []


def hashes(*digests: str | None) -> dict[str, Any]:
    return {BUS_IDS[index]: {"fp64": "a", "fp32": "a", "fp16": digest} if digest else None for index, digest in enumerate(digests)}


def matched(*digests: str | None) -> list[Check]:
    return product_match(gpus(len(digests), "7.5"), hashes(*digests))


class TestProducts:
    @pytest.mark.parametrize(
        ("digests", "statuses"),
        [
            (("a", "a"), ["pass", "pass"]),
            (("a", "a", "b"), ["pass", "pass", "fail"]),
            (("b", "a", "a", "a"), ["fail", "pass", "pass", "pass"]),
            (("a", "b"), ["fail", "fail"]),
            (("a", "a", "b", "b"), ["fail"] * 4),
            (("a", "b", "c"), ["fail"] * 3),
            (("a", "a", None), ["pass", "pass", "could_not_run"]),
            (("a", None), ["could_not_run", "could_not_run"]),
            (("a", "b", None), ["fail", "fail", "could_not_run"]),
        ],
    )
    def test_the_odd_one_is_named_or_all(self, digests: tuple[str | None, ...], statuses: list[str]) -> None:
        assert said(matched(*digests)) == statuses

    def test_it_says_in_which_format_and_whether_anybody_agrees(self) -> None:
        assert matched("a", "a", "b")[2]["reason"] == "its product in fp16 is that of 0 of 2 other GPUs of its model"
        assert matched("a", "a", "b")[2]["gpu"] == gpus(3)[2].gpu
        assert matched("a", "b")[0]["reason"] == "its product in fp16 is that of 0 of 1 other GPUs of its model, and none has a majority"
        assert matched("a", "a", "b", "b")[0]["reason"] == "its product in fp16 is that of 1 of 3 other GPUs of its model, and none has a majority"

    @pytest.mark.parametrize(
        "value", [None, {}, "x", {"fp64": "a", "fp32": "a"}, {"fp64": "a", "fp32": "a", "fp16": ""}, {"fp64": "a", "fp32": "a", "fp16": 3}]
    )
    def test_a_hash_that_is_missing_is_no_pass(self, value: Any) -> None:
        checks = product_match(gpus(2, "7.5"), {**hashes("a", "a"), BUS_IDS[1]: value})
        assert said(checks) == ["could_not_run", "could_not_run"]
        assert "gave no hash of its product in" in str(checks[1]["reason"])
        assert "no other GPU of its model gave a hash" in str(checks[0]["reason"])
        assert [check["gpu"] for check in checks] == [gpu.gpu for gpu in gpus(2)]

    def test_cards_of_other_models_and_parts_are_not_compared(self) -> None:
        one, other = gpus(2, "7.5")
        assert product_match([one, other._replace(pci_id="10de:2335")], hashes("a", "b")) == []
        assert product_match([one._replace(instance="MIG-1"), other._replace(instance="MIG-2")], hashes("a", "b")) == []
        assert product_match([one._replace(pci_id=None, name=None), other._replace(pci_id=None, name=None)], hashes("a", "b")) == []
