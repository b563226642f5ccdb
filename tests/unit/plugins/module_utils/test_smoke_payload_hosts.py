# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who is paired with whom, and the pairs themselves with a real torch on the CPU, as ranks of several hosts under torchrun with gloo."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import write_payload
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import exchange, figures, hosts
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.budget import Deadline
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.options import parse
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.place import Place
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.rank import Rank
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.tournament import FULL, pairs_of, rounds_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import PAYLOAD_MODULE, Transcript
from hypothesis import given
from hypothesis import strategies as st


class TestTournament:
    @given(st.integers(0, 300))
    def test_nobody_has_two_partners_in_a_round_and_no_pair_comes_twice(self, count: int) -> None:
        rounds = rounds_of(count)
        for pairs in rounds:
            playing = [host for pair in pairs for host in pair]
            assert pairs
            assert len(playing) == len(set(playing))
            assert all(0 <= low < high < count for low, high in pairs)
        assert len(pairs_of(count)) == len(set(pairs_of(count))) == sum(map(len, rounds))

    @given(st.integers(2, FULL))
    def test_up_to_sixteen_everybody_meets_everybody_in_as_few_rounds_as_can_be(self, count: int) -> None:
        assert pairs_of(count) == [(low, high) for low in range(count) for high in range(low + 1, count)]
        assert len(rounds_of(count)) == count - 1 + count % 2

    @given(st.integers(FULL + 1, 300))
    def test_of_more_each_one_meets_four_and_the_rounds_do_not_grow(self, count: int) -> None:
        met = Counter(host for pair in pairs_of(count) for host in pair)
        assert set(met.values()) == {4}
        assert len(met) == count
        assert len(rounds_of(count)) <= 7

    def test_one_host_has_no_pair(self) -> None:
        assert (rounds_of(0), rounds_of(1), rounds_of(2)) == ([], [], [[(0, 1)]])
        assert (len(rounds_of(FULL)), len(rounds_of(FULL + 1)) <= 7) == (15, True)


SETTINGS: dict[str, Any] = {"backend": "cpu", "run": "abc", "dtypes": [], "collective": True, "limit": 170, "budget": 150}


class TestOptions:
    def test_hosts_are_counted_in_ranks(self) -> None:
        assert parse(json.dumps({**SETTINGS, "hosts": [8, 1]})).hosts == (8, 1)
        assert parse(json.dumps(SETTINGS)).hosts == ()

    def test_ranks_that_do_not_add_up_are_an_error_and_not_another_test(self) -> None:
        report: Any = SimpleNamespace()
        with pytest.raises(ValueError, match="hosts with 9 ranks are given for 8 ranks"):
            Rank(parse(json.dumps({**SETTINGS, "hosts": [8, 1]})), {"RANK": "0", "WORLD_SIZE": "8", "LOCAL_RANK": "0"}, report)

    def test_the_cpus_are_shared_by_the_ranks_of_this_host_alone(self) -> None:
        report: Any = SimpleNamespace()
        options = parse(json.dumps({**SETTINGS, "hosts": [8, 1]}))
        env = {"RANK": "8", "WORLD_SIZE": "9", "LOCAL_RANK": "0"}
        assert Rank(options, {**env, "LOCAL_WORLD_SIZE": "1"}, report).local_world == 1
        assert Rank(options, env, report).local_world == 9


def run_hosts(tmp_path: Path, ranks: list[int], port: int, **settings: Any) -> list[Transcript]:
    """The payload as several hosts run it, each under its own torchrun; what each host's ranks said."""
    write_payload(tmp_path / "payload")
    whole = {**SETTINGS, "hosts": ranks, "figures": [figures.HOST_PAIRS, figures.ALL_REDUCE_SPEED], **settings}
    env = {**os.environ, "RACKREADY_SMOKE": json.dumps(whole), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    started = []
    for node, count in enumerate(ranks):
        command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(len(ranks)), "--node-rank", str(node), "--local-addr", "127.0.0.1"]
        command += ["--nproc-per-node", str(count), "--master-addr", "127.0.0.1", "--master-port", str(port), "--module", PAYLOAD_MODULE]
        started.append(subprocess.Popen(command, cwd=tmp_path / "payload", env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    transcripts = []
    for node, process in enumerate(started):
        out, err = process.communicate(timeout=160)
        assert process.returncode == 0, err[-2000:]
        transcript = Transcript("abc", ranks[node], first=sum(ranks[:node]))
        transcript.feed(out.splitlines())
        assert all(log.started and log.ended for log in transcript.ranks.values())
        transcripts.append(transcript)
    return transcripts


def told(transcript: Transcript, name: str) -> list[Any]:
    return [value for log in transcript.ranks.values() for value in log.measured.get(name, [])]


class TestUnderTorchrun:
    @pytest.fixture(autouse=True)
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="torch is not installed here")

    def test_hosts_with_different_numbers_of_ranks(self, tmp_path: Path) -> None:
        ranks = [2, 1, 1]
        transcripts = run_hosts(tmp_path, ranks, 29671)
        table: dict[tuple[int, int], Any] = {}
        for node, transcript in enumerate(transcripts):
            for log in transcript.ranks.values():
                assert [(result.status, result.value["world"]) for result in log.results["all_reduce_exact"]] == [("pass", 4)]
                assert [value["world"] for value in log.measured[figures.ALL_REDUCE_SPEED]] == [4]
            [value] = told(transcript, figures.HOST_PAIRS)
            assert (value["host"], value["rounds"], value["of"], value["world"]) == (node, 3, 3, 4)
            assert value["conditions"] == hosts.conditions_of("cpu") == "65536 bytes of fp32, sum, bus bandwidth of two hosts"
            table.update({(node, entry[0]): entry[1:] for entry in value["pairs"]})
        assert sorted(table) == [(one, other) for one in range(3) for other in range(3) if one != other]
        for (one, other), (rate, elements, wrong) in table.items():
            assert rate > 0
            assert (elements, wrong) == (hosts.elements_of("cpu"), 0)
            assert table[other, one] == [rate, elements, wrong], "both ends of a pair tell the same"

    def test_without_time_pairs_are_told_as_not_made_and_nobody_hangs(self, tmp_path: Path) -> None:
        for transcript in run_hosts(tmp_path, [1, 1], 29673, budget=0.001):
            [log] = transcript.ranks.values()
            assert [result.status for result in log.results[figures.HOST_PAIRS]] == ["could_not_run"]
            assert not log.measured


class Group:
    """A double of the distributed world in which this rank's partners do what sound ones do, and ``bend`` may change a sum."""

    def __init__(self, torch: Any, partners: int, bend: Any = lambda out: None) -> None:
        self.torch = torch
        self.partners = partners
        self.bend = bend
        self.turn = 0
        self.made: list[list[int]] = []
        self.destroyed: list[Any] = []

    def new_group(self, ranks: list[int]) -> list[int]:
        self.made.append(ranks)
        return ranks

    def destroy_process_group(self, group: list[int]) -> None:
        self.destroyed.append(group)

    def all_reduce(self, out: Any, op: Any = None, group: Any = None) -> None:
        if op is None and out.numel() == hosts.EXACT["cpu"]:
            out.copy_(exchange.sum_of_terms(self.torch, out.numel(), self.partners, self.turn % hosts.TURNS))
            self.turn += 1
            self.bend(out)


class TestPairs:
    @pytest.fixture
    def torch(self) -> Any:
        return pytest.importorskip("torch", reason="torch is not installed here")

    def run(self, torch: Any, monkeypatch: pytest.MonkeyPatch, bend: Any = lambda out: None, rank: int = 0, until: float = 1e9) -> tuple[Any, Group]:
        group = Group(torch, 2, bend)
        for name in ("new_group", "destroy_process_group", "all_reduce"):
            monkeypatch.setattr(torch.distributed, name, getattr(group, name))
        place = Place(torch, "cpu", "cpu", rank=rank, world=3)
        return hosts.host_pairs(place, [1, 1, 1], Deadline(until, clock=lambda: 0.0)), group

    def test_every_rank_makes_every_group_in_one_order_and_ends_its_own(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        value, group = self.run(torch, monkeypatch)
        assert group.made == [[low, high] for pairs in rounds_of(3) for low, high in pairs]
        assert sorted(group.destroyed) == [[0, 1], [0, 2]]
        assert sorted(entry[0] for entry in value["pairs"]) == [1, 2]
        assert all(entry[2] == hosts.elements_of("cpu") and entry[3] == 0 for entry in value["pairs"])

    def test_a_wrong_sum_is_counted_in_its_pair(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        turns: list[int] = []

        def bend(out: Any) -> None:
            turns.append(1)
            if len(turns) == 3:
                out[7] += 1
                out[9] = float("nan")

        found, _group = self.run(torch, monkeypatch, bend)
        assert [entry[3] for entry in found["pairs"]] == [0, 2]

    def test_a_sum_that_never_happened_is_wrong(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        found, _group = self.run(torch, monkeypatch, lambda out: out.zero_())
        assert all(entry[3] > hosts.EXACT["cpu"] for entry in found["pairs"])

    def test_when_time_is_over_no_round_is_begun(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        found, group = self.run(torch, monkeypatch, until=-1.0)
        assert (found["pairs"], found["rounds"], found["of"], group.made) == ([], 0, 3, [])

    def test_a_pair_for_which_there_is_no_time_is_compared_and_not_timed(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        found, _group = self.run(torch, monkeypatch, until=1e-9)
        assert [entry[1:] for entry in found["pairs"]] == [[None, hosts.elements_of("cpu"), 0]] * 2
        assert found["rounds"] == 3

    def test_only_a_host_s_first_rank_tells(self, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        group = Group(torch, 3)
        for name in ("new_group", "destroy_process_group", "all_reduce"):
            monkeypatch.setattr(torch.distributed, name, getattr(group, name))
        later = Deadline(1e9, clock=lambda: 0.0)
        assert hosts.host_pairs(Place(torch, "cpu", "cpu", rank=1, world=3), [2, 1], later) is None
        value = hosts.host_pairs(Place(torch, "cpu", "cpu", rank=2, world=3), [2, 1], later)
        assert value is not None
        assert (value["host"], [entry[0] for entry in value["pairs"]], group.made) == (1, [0], [[0, 1, 2]] * 2)
