# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The verdict over several hosts: the slow one, the wrong one and the slow way are named, and what was not told by all who know it is never a pass."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import jsonschema
import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import hosts as payload
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.tournament import pairs_of
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import make_check
from ansible_collections.rackready.gpu.plugins.plugin_utils.cluster_verdict import ALL_SPEED, PAIR_SPEED, PAIRS, Member, judge, suspect
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.smoke_fakes import figure

MODEL = "h100-sxm5-80gb"
RATE, ALL_RATE = 48.0, 45.0
CHECK = json.loads((Path(__file__).parents[4] / "plugins/plugin_utils/schemas/check.schema.json").read_text(encoding="utf-8"))
Floors = dict[str, Any]


def floors(pair: float = 40.0, whole: float = 40.0, verified: bool = True, hosts: int = 3) -> Floors:
    """Floors of both figures for hosts with two GPUs."""
    known = {"unit": "GB/s", "source": ["lab"], "date": "2026-12", "verified": verified}
    of_pair = {**known, "floor": pair, "gpus": 4, "kernel": "torch.distributed.all_reduce", "conditions": payload.conditions_of("cuda")}
    of_all = {**known, "floor": whole, "gpus": 2 * hosts, "kernel": "torch.mm", "conditions": "8192 x 8192 x 8192, random data"}
    return {MODEL: {"hosts.pair.busbw": [of_pair], "hosts.all_reduce.busbw": [of_all]}}


def gpus(count: int = 2, model: str | None = MODEL) -> list[dict[str, Any]]:
    return [{"pci_bus_id": f"0000:{index + 1:02x}:00.0", "pci_id": "10de:2330", "uuid": f"GPU-{index}", "model": model} for index in range(count)]


def own_checks(count: int) -> list[Any]:
    """What the report of a sound host has."""
    checks = [make_check(name, "pass") for name in ("hosts_meeting", "container_run", "container_limits", "hosts_transport")]
    for gpu in gpus(count):
        named: Any = {"uuid": gpu["uuid"], "pci_bus_id": gpu["pci_bus_id"]}
        checks += [make_check(name, "pass", gpu=named) for name in ("gpu_identity", "all_reduce_exact")]
    return checks


def fleet(
    count: int = 3, rates: Mapping[tuple[int, int], float] | None = None, wrong: Mapping[tuple[int, int], int] | None = None, backend: str = "cuda"
) -> Any:
    """Hosts named h0, h1, ... that are sound but for what is given by pair."""
    members = []
    for node in range(count):
        entries = []
        for pair in pairs_of(count):
            if node in pair:
                other = pair[0] if node == pair[1] else pair[1]
                entries.append([other, (rates or {}).get(pair, RATE), payload.elements_of(backend), (wrong or {}).get(pair, 0)])
        report = {
            "checks": own_checks(2),
            "pairs": {"pairs": entries},
            "pairs_reason": None,
            "all_reduce": figure("all_reduce.busbw", ALL_RATE, world=2 * count, unit="GB/s"),
            "all_reduce_reason": None,
        }
        members.append(Member(f"h{node}", gpus(), 2, "accept", report))
    return members


def slow(node: int, rate: float, count: int = 3) -> dict[tuple[int, int], float]:
    """All pairs of one host at this rate."""
    return {pair: rate for pair in pairs_of(count) if node in pair}


def check(judged: Any, host: str, name: str) -> Any:
    [found] = [one for one in judged[host]["checks"] if one["name"] == name]
    return found


def verdicts(judged: Any) -> list[str]:
    return [one["verdict"] for one in judged.values()]


def changed(members: list[Member], node: int, change: Callable[[dict[str, Any]], Any]) -> list[Member]:
    """The members with something changed in one's report."""
    report: Any = copy.deepcopy(members[node].report)
    change(report)
    return [*members[:node], members[node]._replace(report=report), *members[node + 1 :]]


class TestSound:
    def test_with_confirmed_floors_all_are_accepted(self) -> None:
        judged = judge(fleet(), "cuda", floors())
        assert verdicts(judged) == ["accepted"] * 3
        assert judged["h0"]["slow"] == judged["h0"]["wrong"] == []
        assert {(one["status"], one["reason"]) for host in judged.values() for one in host["checks"]} == {("pass", None)}
        for host in judged.values():
            for one in host["checks"]:
                jsonschema.Draft202012Validator(CHECK).validate(one)

    def test_simulated_hosts_are_simulated_and_no_speed_of_theirs_is_judged(self) -> None:
        judged = judge(fleet(rates=slow(2, 1.0), backend="cpu"), "cpu", {})
        assert verdicts(judged) == ["simulated"] * 3
        for name in (PAIR_SPEED, ALL_SPEED):
            assert check(judged, "h2", name)["status"] == "not_applicable"
        assert check(judged, "h2", PAIR_SPEED)["value"]["best"] == 1.0
        assert check(judged, "h2", PAIRS)["status"] == "pass"
        assert judged["h2"]["slow"] == []

    def test_without_a_floor_it_is_degraded_and_never_passed_in_silence(self) -> None:
        judged = judge(fleet(), "cuda", {})
        assert verdicts(judged) == ["accepted"] * 3
        for name in (PAIR_SPEED, ALL_SPEED):
            found = check(judged, "h1", name)
            assert found["status"] == "degraded"
            assert found["reason"] == "no floor known for this model, number of GPUs, kernel and conditions"
        assert "2 degraded" in judged["h1"]["reason"]

    def test_a_floor_that_was_never_confirmed_is_no_pass_either(self) -> None:
        judged = judge(fleet(), "cuda", floors(verified=False))
        assert {check(judged, "h1", name)["status"] for name in (PAIR_SPEED, ALL_SPEED)} == {"degraded"}

    def test_a_site_may_reject_what_is_degraded_host_by_host(self) -> None:
        members = fleet()
        members[1] = members[1]._replace(degraded="reject")
        assert verdicts(judge(members, "cuda", {})) == ["accepted", "rejected", "accepted"]

    def test_the_value_of_a_host_has_its_best_all_its_pairs_and_the_median_of_the_hosts(self) -> None:
        value = check(judge(fleet(rates={(0, 1): 50.0}), "cuda", floors()), "h0", PAIR_SPEED)["value"]
        assert value == {"best": 50.0, "pairs": {"h1": 50.0, "h2": RATE}, "median_of_hosts": 50.0}


class TestSlow:
    # At 4.9 % nothing is said, from 5 % on it is degraded, beyond 8 % it fails.
    @pytest.mark.parametrize(
        ("part", "status"),
        [(0.051, "degraded"), (0.05, "degraded"), (0.049, "pass"), (0.08, "degraded"), (0.081, "fail"), (0.5, "fail")],
    )
    @pytest.mark.parametrize("count", [3, 4, 8])
    def test_a_slow_host_is_named_and_the_others_are_not(self, part: float, status: str, count: int) -> None:
        # A round number, so that the part is exact.
        rates = {pair: 1000.0 * (1 - part) if count - 1 in pair else 1000.0 for pair in pairs_of(count)}
        judged = judge(fleet(count, rates), "cuda", floors(hosts=count))
        last = f"h{count - 1}"
        assert check(judged, last, PAIR_SPEED)["status"] == status
        assert [judged[f"h{node}"]["verdict"] for node in range(count - 1)] == ["accepted"] * (count - 1)
        assert {check(judged, f"h{node}", PAIR_SPEED)["status"] for node in range(count - 1)} == {"pass"}
        assert judged["h0"]["slow"] == ([last] if status == "fail" else [])
        assert judged[last]["verdict"] == ("rejected" if status == "fail" else "accepted")

    def test_its_sentence_has_the_numbers_and_its_remedy_the_network(self) -> None:
        found = check(judge(fleet(rates=slow(2, 24.0)), "cuda", {}), "h2", PAIR_SPEED)
        assert found["reason"].startswith("this host is slow: 24 GB/s, the best of its pairs, is 50.0 % under the median of 3 hosts (48)")
        assert "adapters" in found["remedy"]

    def test_half_of_the_hosts_may_be_slow_and_only_those_are_named(self) -> None:
        rates = {pair: 24.0 if set(pair) & {2, 3} else 48.0 for pair in pairs_of(4)}
        judged = judge(fleet(4, rates), "cuda", floors(pair=20, hosts=4))
        assert judged["h0"]["slow"] == ["h2", "h3"]
        assert verdicts(judged) == ["accepted", "accepted", "rejected", "rejected"]

    def test_a_large_fleet_of_which_each_host_meets_four(self) -> None:
        judged = judge(fleet(20, slow(7, 24.0, 20)), "cuda", floors(pair=20, hosts=20))
        assert judged["h0"]["slow"] == ["h7"]
        assert [name for name, one in judged.items() if one["verdict"] != "accepted"] == ["h7"]

    def test_two_hosts_cannot_tell_which_of_them_is_slow_and_that_is_said(self) -> None:
        for known, status in (({}, "degraded"), (floors(pair=40, hosts=2), "fail")):
            judged = judge(fleet(2, slow(1, 24.0, 2)), "cuda", known)
            for name in ("h0", "h1"):
                found = check(judged, name, PAIR_SPEED)
                assert found["status"] == status
                assert found["reason"].endswith("with 2 of its kind a pair cannot tell which host is slow: test three or more")
        assert check(judge(fleet(2), "cuda", floors(hosts=2)), "h0", PAIR_SPEED)["status"] == "pass"

    @pytest.mark.parametrize(("part", "said"), [(0.07, False), (0.08, False), (0.081, True), (0.6, True)])
    def test_a_slow_way_between_two_sound_hosts_is_named_as_the_way(self, part: float, said: bool) -> None:
        rates = dict.fromkeys(pairs_of(4), 1000.0) | {(1, 3): 1000.0 * (1 - part)}
        judged = judge(fleet(4, rates), "cuda", floors(hosts=4))
        for name, other in (("h1", "h3"), ("h3", "h1")):
            found = check(judged, name, PAIR_SPEED)
            assert found["status"] == ("degraded" if said else "pass")
            assert (f"the way to {other} is slow: {1000 * (1 - part):.4g} GB/s, both reach 1000 elsewhere" in str(found["reason"])) == said
        assert {check(judged, name, PAIR_SPEED)["status"] for name in ("h0", "h2")} == {"pass"}
        assert judged["h1"]["slow"] == []

    def test_hosts_of_another_kind_are_compared_among_themselves(self) -> None:
        rates = {pair: 12.0 if 3 in pair else RATE for pair in pairs_of(4)}
        members = fleet(4, rates)
        for change in ({"ranks": 1, "gpus": gpus(1)}, {"gpus": gpus(2, "h200-sxm-141gb")}, {"gpus": gpus(2, None)}):
            judged = judge([*members[:3], members[3]._replace(**change)], "cuda", floors())
            found = check(judged, "h3", PAIR_SPEED)
            assert found["status"] == "degraded", change
            assert "with 1 of its kind a pair cannot tell" in found["reason"]
            assert judged["h0"]["slow"] == []
            assert check(judged, "h0", PAIR_SPEED)["status"] == "pass"

    def test_below_a_confirmed_floor_all_fail_though_they_are_alike(self) -> None:
        judged = judge(fleet(), "cuda", floors(pair=RATE + 1))
        assert verdicts(judged) == ["rejected"] * 3
        assert check(judge(fleet(), "cuda", floors(pair=RATE)), "h0", PAIR_SPEED)["status"] == "pass"

    def test_all_together_are_held_against_a_floor_alone(self) -> None:
        assert check(judge(fleet(), "cuda", floors(whole=ALL_RATE)), "h0", ALL_SPEED)["status"] == "pass"
        assert check(judge(fleet(), "cuda", floors(whole=ALL_RATE + 1)), "h0", ALL_SPEED)["status"] == "fail"
        known = floors()[MODEL]["hosts.all_reduce.busbw"][0]
        assert check(judge(fleet(), "cuda", floors()), "h0", ALL_SPEED)["floor"] == known
        members = fleet()
        members[2] = members[2]._replace(gpus=gpus(2, "h200-sxm-141gb"))
        both = {**floors(), "h200-sxm-141gb": floors()[MODEL]}
        assert check(judge(members, "cuda", both), "h0", ALL_SPEED)["status"] == "degraded", "no floor stands for two models"

    def test_a_host_with_two_models_has_no_floor(self) -> None:
        mixed = [*gpus(1), {**gpus(2)[1], "model": "h200-sxm-141gb"}]
        members = [member._replace(gpus=mixed) for member in fleet()]
        judged = judge(members, "cuda", {**floors(), "h200-sxm-141gb": floors()[MODEL]})
        assert {check(judged, "h0", name)["status"] for name in (PAIR_SPEED, ALL_SPEED)} == {"degraded"}

    def test_cards_that_the_catalog_does_not_know_are_told_apart_by_their_pci_id(self) -> None:
        unknown = [member._replace(gpus=[{**gpu, "pci_id": f"10de:{min(node, 1)}"} for gpu in gpus(2, None)]) for node, member in enumerate(fleet(4))]
        assert "with 1 of its kind" in check(judge(unknown, "cuda", {}), "h0", PAIR_SPEED)["reason"]
        assert "of its kind" not in check(judge(unknown, "cuda", {}), "h1", PAIR_SPEED)["reason"]

    def test_the_best_of_a_host_is_with_one_of_its_kind_if_there_is_any(self) -> None:
        members = fleet(4, {(0, 3): 100.0, (1, 3): 90.0})
        members[3] = members[3]._replace(gpus=gpus(2, "h200-sxm-141gb"))
        judged = judge(members, "cuda", floors())
        assert [check(judged, name, PAIR_SPEED)["value"]["best"] for name in ("h0", "h1", "h3")] == [RATE, RATE, 100.0]
        assert check(judged, "h0", PAIR_SPEED)["reason"] is None

    def test_only_the_speed_of_pairs_makes_a_host_slow(self) -> None:
        judged = judge(changed(fleet(), 1, lambda report: report["checks"][0].update(status="fail", reason="no")), "cuda", floors())
        assert (judged["h1"]["verdict"], judged["h1"]["slow"]) == ("rejected", [])


class TestWrong:
    def wrong(self, members: list[Member], nodes: range | list[int]) -> list[Member]:
        """Ranks of these hosts saw wrong sums over all hosts."""
        for node in nodes:

            def bend(report: dict[str, Any]) -> None:
                found = next(one for one in report["checks"] if one["name"] == "all_reduce_exact")
                found.update(status="fail", reason=f"rank {2 * node} on h{node}: 7 of 9 exchanged elements are wrong")  # noqa: B023

            members = changed(members, node, bend)
        return members

    def test_the_host_that_all_wrong_pairs_point_at_fails_and_the_others_could_not_be_tested(self) -> None:
        members = self.wrong(fleet(wrong=dict.fromkeys(slow(1, 0), 5)), range(3))
        judged = judge(members, "cuda", floors())
        assert verdicts(judged) == ["incomplete", "rejected", "incomplete"]
        assert {tuple(one["wrong"]) for one in judged.values()} == {("h1",)}
        assert "rank 2 on h1: 7 of 9 exchanged elements are wrong" in judged["h1"]["reason"]
        assert "all pairs with wrong sums have h1 in them" in judged["h0"]["reason"]
        assert judged["h0"]["remedy"] == "take h1 out (-l) and test the others again"
        found = check(judged, "h0", PAIRS)
        assert (found["status"], found["value"]) == ("could_not_run", {"wrong": {"h1": 5}, "right": 1, "of": 2})
        assert found["reason"] == "sums of h0 with h1 (5 wrong elements) are wrong; all pairs with wrong sums have h1 in them"
        assert check(judged, "h1", PAIRS)["status"] == "fail"
        assert check(judged, "h1", PAIRS)["reason"].startswith("sums of h1 with h0 (5 wrong elements), h2 (5 wrong elements) are wrong; all pairs")
        exact = {name: [one["status"] for one in found["checks"] if one["name"] == "all_reduce_exact"] for name, found in judged.items()}
        assert exact == {"h0": ["could_not_run", "pass"], "h1": ["fail", "pass"], "h2": ["could_not_run", "pass"]}

    def test_what_else_failed_on_another_host_stays_its_own(self) -> None:
        members = self.wrong(fleet(wrong=dict.fromkeys(slow(1, 0), 5)), range(3))
        members = changed(members, 0, lambda report: report["checks"][4].update(status="fail", reason="another card"))
        judged = judge(members, "cuda", floors())
        assert judged["h0"]["verdict"] == "rejected"
        assert "gpu_identity" in judged["h0"]["reason"]

    def test_where_the_pairs_do_not_tell_everybody_with_wrong_sums_fails(self) -> None:
        judged = judge(self.wrong(fleet(), range(3)), "cuda", floors())
        assert verdicts(judged) == ["rejected"] * 3
        assert judged["h0"]["wrong"] == []

    def test_one_wrong_pair_fails_both_its_hosts(self) -> None:
        judged = judge(fleet(4, wrong={(0, 1): 1}), "cuda", floors(hosts=4))
        assert verdicts(judged) == ["rejected", "rejected", "accepted", "accepted"]

    def test_of_two_hosts_neither_can_be_cleared(self) -> None:
        assert verdicts(judge(self.wrong(fleet(2, wrong={(0, 1): 1}), range(2)), "cuda", floors(hosts=2))) == ["rejected"] * 2

    def test_one_end_that_saw_it_is_enough(self) -> None:
        members = changed(fleet(), 2, lambda report: report["pairs"]["pairs"][0].__setitem__(3, 9))
        assert check(judge(members, "cuda", floors()), "h0", PAIRS)["status"] == "fail"

    def test_suspect(self) -> None:
        table = dict.fromkeys(pairs_of(4), 0)
        assert suspect(table) is None
        assert suspect({**table, (0, 2): 1}) is None
        assert suspect({**table, (0, 2): 1, (1, 2): 1}) is None, "its pair with 3 was right, so it may be a way"
        assert suspect({**table, (0, 2): 1, (1, 2): 1, (2, 3): 4}) == 2
        assert suspect(dict.fromkeys(pairs_of(4), 1)) is None
        assert suspect({(0, 1): 1}) is None
        assert suspect({(0, 1): 0, (0, 2): 1, (1, 2): 1}) == 2

    def test_a_simulated_host_with_a_wrong_sum_is_rejected(self) -> None:
        assert verdicts(judge(self.wrong(fleet(backend="cpu"), [0]), "cpu", {})) == ["rejected", "simulated", "simulated"]


class TestMissing:
    def test_a_host_without_a_report_is_incomplete_and_so_is_whoever_was_paired_with_it(self) -> None:
        members = fleet()
        members[1] = members[1]._replace(report=None, absent="it fell out of the run before it reported")
        judged = judge(members, "cuda", floors())
        assert verdicts(judged) == ["incomplete"] * 3
        assert "h1: it fell out of the run before it reported" in judged["h1"]["reason"]
        found = check(judged, "h0", PAIRS)
        assert (found["status"], found["reason"]) == ("could_not_run", "1 of its 2 pairs have no result, first that with h1: h1 told nothing of it")
        assert check(judged, "h0", PAIR_SPEED)["status"] == "could_not_run"

    @pytest.mark.parametrize("backend", ["cuda", "cpu"])
    def test_pairs_that_were_not_told_are_no_pass_and_the_reason_is_passed_on(self, backend: str) -> None:
        members = changed(fleet(backend=backend), 0, lambda report: report.update(pairs=None, pairs_reason="no time left: 3 rounds"))
        judged = judge(members, backend, floors())
        assert verdicts(judged) == ["incomplete"] * 3
        assert "h0: no time left: 3 rounds" in check(judged, "h0", PAIRS)["reason"]

    ODD: ClassVar[dict[str, Callable[[list[Any]], Any]]] = {
        "left out": lambda entries: entries.pop(0),
        "half a line": lambda entries: entries[0].pop(),
        "fewer elements": lambda entries: entries[0].__setitem__(2, 8193),
        "true for one": lambda entries: entries[0].__setitem__(3, False),
        "elements with a point": lambda entries: entries[0].__setitem__(2, float(entries[0][2])),
        "elements as text": lambda entries: entries[0].__setitem__(2, "8194"),
        "less than none wrong": lambda entries: entries[0].__setitem__(3, -1),
        "no list": lambda entries: entries.__setitem__(0, None),
    }

    @pytest.mark.parametrize("name", ODD)
    def test_an_entry_that_does_not_show_the_whole_work_is_none(self, name: str) -> None:
        judged = judge(changed(fleet(), 0, lambda report: self.ODD[name](report["pairs"]["pairs"])), "cuda", floors())
        assert verdicts(judged) == ["incomplete", "incomplete", "accepted"]
        assert "h0 told nothing of it" in check(judged, "h1", PAIRS)["reason"]

    @pytest.mark.parametrize("pairs", [None, [], {}, {"pairs": None}, {"pairs": {}}, "x"])
    def test_nonsense_instead_of_pairs(self, pairs: Any) -> None:
        assert verdicts(judge(changed(fleet(), 0, lambda report: report.update(pairs=pairs)), "cuda", floors()))[0] == "incomplete"

    @pytest.mark.parametrize(("rate", "words"), [(None, "there was no time to measure it"), (0, "there was no time"), (float("nan"), "there was no time")])
    def test_a_pair_that_was_compared_and_not_timed_has_no_speed(self, rate: Any, words: str) -> None:
        judged = judge(fleet(rates={(0, 1): rate}), "cuda", floors())
        assert check(judged, "h0", PAIRS)["status"] == "pass"
        found = check(judged, "h0", PAIR_SPEED)
        assert found["status"] == "could_not_run"
        assert f"1 of its pairs have no figure, first that with h1: {words}" in found["reason"]
        assert verdicts(judged) == ["incomplete", "incomplete", "accepted"]

    def test_ends_may_differ_by_one_percent_of_the_higher_one(self) -> None:
        members = changed(fleet(2, {(0, 1): 100.0}), 1, lambda report: report["pairs"]["pairs"][0].__setitem__(1, 99.0))
        assert check(judge(members, "cuda", floors(hosts=2)), "h0", PAIR_SPEED)["value"]["best"] == 99.0

    @pytest.mark.parametrize("node", [0, 1])
    def test_one_end_without_a_figure_is_a_pair_without_one(self, node: int) -> None:
        members = changed(fleet(2), node, lambda report: report["pairs"]["pairs"][0].__setitem__(1, None))
        found = check(judge(members, "cuda", floors(hosts=2)), "h0", PAIR_SPEED)
        assert (found["status"], "there was no time" in found["reason"]) == ("could_not_run", True)

    @pytest.mark.parametrize("node", [0, 1])
    @pytest.mark.parametrize("rate", [24.0, 96.0])
    def test_either_end_may_be_the_one_that_differs(self, node: int, rate: float) -> None:
        members = changed(fleet(2), node, lambda report: report["pairs"]["pairs"][0].__setitem__(1, rate))
        assert "its ends do not agree" in check(judge(members, "cuda", floors(hosts=2)), "h1", PAIR_SPEED)["reason"]

    def test_a_host_whose_container_ended_is_named_to_those_who_waited_for_it(self) -> None:
        def hung(report: dict[str, Any]) -> None:
            report["checks"][1].update(status="could_not_run", reason="not done within 300 s", value={"timed_out": True})

        def died(report: dict[str, Any]) -> None:
            report["checks"][1].update(status="could_not_run", reason="exit status -9", value={"timed_out": False})

        judged = judge(changed(changed(changed(fleet(), 0, hung), 1, hung), 2, died), "cuda", floors())
        for name in ("h0", "h1"):
            found = check(judged, name, "container_run")
            assert found["reason"] == "it waited in vain for h2, whose container had ended: not done within 300 s"
            assert found["remedy"] == "see container_run in the record of h2"
        assert check(judged, "h2", "container_run")["reason"] == "exit status -9"
        unstarted = changed(changed(fleet(), 0, hung), 2, lambda report: report["checks"][1].update(status="could_not_run", reason="no engine"))
        assert "it waited in vain for h2" in check(judge(unstarted, "cuda", floors()), "h0", "container_run")["reason"]
        other = changed(changed(fleet(), 0, hung), 2, lambda report: report["checks"][3].update(status="degraded", reason="sockets"))
        assert check(judge(other, "cuda", floors()), "h0", "container_run")["reason"] == "not done within 300 s"
        odd = changed(changed(fleet(), 2, died), 0, lambda report: report["checks"][3].update(status="degraded", reason="sockets", value={"timed_out": True}))
        assert check(judge(odd, "cuda", floors()), "h0", "hosts_transport")["reason"] == "sockets"
        all_hang = judge(changed(changed(fleet(), 0, hung), 1, hung), "cuda", floors())
        assert check(all_hang, "h0", "container_run")["reason"] == "not done within 300 s"

    @pytest.mark.parametrize(("factor", "agree"), [(0.9905, True), (0.989, False), (0.5, False)])
    def test_ends_that_do_not_agree_measured_something_else(self, factor: float, agree: bool) -> None:
        for node, entry in ((0, 0), (1, 0)):
            members = changed(fleet(), node, lambda report: report["pairs"]["pairs"][entry].__setitem__(1, RATE * factor))  # noqa: B023
            found = check(judge(members, "cuda", floors()), "h0", PAIR_SPEED)
            assert (found["status"] == "pass") == agree
            if not agree:
                assert "its ends do not agree" in found["reason"]

    def test_of_two_ends_the_lower_figure_counts(self) -> None:
        for node in (0, 1):
            members = changed(fleet(2), node, lambda report: report["pairs"]["pairs"][0].__setitem__(1, RATE * 0.995))
            assert check(judge(members, "cuda", floors(hosts=2)), "h0", PAIR_SPEED)["value"]["best"] == RATE * 0.995

    ALL: ClassVar[dict[str, tuple[dict[str, Any], str]]] = {
        "not told": ({"all_reduce": None, "all_reduce_reason": "the limit of 300 s was over"}, "the limit of 300 s was over"),
        "fewer ranks": ({"all_reduce": figure("all_reduce.busbw", ALL_RATE, world=4)}, "4 ranks took part, there are 6"),
        "not told, nobody knows why": ({"all_reduce": None}, "it was not told"),
        "no numbers": ({"all_reduce": {"world": 6}}, "its median is None"),
        "nonsense": ({"all_reduce": [6]}, "it gave no numbers"),
    }

    @pytest.mark.parametrize("name", ALL)
    def test_a_figure_of_all_that_is_none(self, name: str) -> None:
        change, words = self.ALL[name]
        found = check(judge(changed(fleet(), 1, lambda report: report.update(change)), "cuda", floors()), "h1", ALL_SPEED)
        assert found["status"] == "could_not_run"
        assert words in found["reason"]

    @pytest.mark.parametrize("number", range(8))
    def test_every_check_of_the_report_is_required(self, number: int) -> None:
        judged = judge(changed(fleet(), 2, lambda report: report["checks"].pop(number)), "cuda", floors())
        assert verdicts(judged) == ["accepted", "accepted", "incomplete"]
        assert "there is no result of it" in judged["h2"]["reason"]

    def test_of_a_simulated_host_two_gpus_are_required(self) -> None:
        members = [member._replace(gpus=gpus(8)) for member in fleet(backend="cpu")]
        assert verdicts(judge(members, "cpu", {})) == ["simulated"] * 3
        assert verdicts(judge([member._replace(ranks=8) for member in members], "cuda", {})) == ["incomplete"] * 3

    @given(st.integers(2, 6), st.data())
    def test_whatever_is_missing_of_a_report_its_host_is_not_accepted(self, count: int, data: st.DataObject) -> None:
        node = data.draw(st.integers(0, count - 1))
        key = data.draw(st.sampled_from(["checks", "pairs", "all_reduce"]))
        members = changed(fleet(count), node, lambda report: report.update({key: [] if key == "checks" else None}))
        assert judge(members, "cuda", floors(hosts=count))[f"h{node}"]["verdict"] == "incomplete"
