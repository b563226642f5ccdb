# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the container of a test was started and ended, in words and numbers; and why a rank has no result of a check."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_container import (
    SILENT_REMEDY,
    container_limits,
    container_run,
    limit_problems,
    parse_size,
    without_result,
)
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import ChildResult, Cluster, Outcome, Transcript
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Check

from tests.unit.hosts import BUS_IDS
from tests.unit.smoke_fakes import LIMITS, RUN, TORCHRUN_CRASH, Event, container, gpus, lines, rank_events

OWNERS = dict(enumerate(gpus(2)))
STAGE = "matmul_exact.bf16"


def ran(events: list[list[Event]] | None = None, exit_code: int | None = 0, at: float = 0.0, **child: Any) -> Outcome:
    """``at``: when the ranks said all that they said."""
    said = [rank_events(rank, 2) for rank in range(2)] if events is None else events
    clock = iter([0.0])
    transcript = Transcript(RUN, len(said), clock=lambda: next(clock, at))
    for rank, one in enumerate(said):
        transcript.feed(lines(rank, one))
    ended: dict[str, Any] = {"exit_code": exit_code, "timed_out": False, "seconds": 20.06, "stdout": [], "stderr": [], **child}
    return Outcome(container(ranks=len(said), limit_s=300), ChildResult(**ended), transcript)


def run(outcome: Outcome, owners: Any = None) -> Check:
    return container_run(outcome, OWNERS if owners is None else owners)


def until(stage: str, rank: int = 0) -> list[Event]:
    said = rank_events(rank, 2)
    return said[: said.index({"event": "stage", "name": stage}) + 1]


STARTED: list[list[Event]] = [[{"event": "start"}], []]


class TestRun:
    def test_a_sound_one(self) -> None:
        check = run(ran(stdout=["NCCL version 2.28.9"]))
        assert (check["status"], check["reason"], check["remedy"], check["duration_s"], check["floor"], check["unit"]) == ("pass", None, None, 20.1, 300, "s")
        assert check["value"] == {"exit_code": 0, "timed_out": False, "ranks": 2, "ranks_ended": 2, "stages": {}, "output": []}

    @pytest.mark.parametrize(("events", "exit_code"), [(None, 1), ([rank_events(0, 2), until(STAGE, 1)], 0)])
    def test_of_a_bad_end_the_last_words_are_kept(self, events: list[list[Event]] | None, exit_code: int) -> None:
        out = [f"line {number}" for number in range(15)]
        value = run(ran(events, exit_code, stdout=out, stderr=["x" * 900, *out]))["value"]
        assert value["output"] == [*out[11:], "x" * 500, *out]
        assert value["stages"] == ({"1": STAGE} if events else {})

    def test_a_container_that_was_never_started(self) -> None:
        check = run(ran([[], []], None, error="docker cannot be started: No such file or directory"))
        assert (check["status"], check["reason"]) == ("could_not_run", "docker cannot be started: No such file or directory")
        assert check["remedy"] == "install and start the container engine with playbooks/provision.yml"

    @pytest.mark.parametrize("exit_code", [125, 126, 127])
    def test_what_the_engine_could_not_start(self, exit_code: int) -> None:
        words = f"exit status {exit_code}; last words: boom"
        assert run(ran([[], []], exit_code, stderr=["boom"]))["reason"] == f"the engine could not start it: {words}"
        # Once a rank has spoken it was the program's status.
        assert run(ran(STARTED, exit_code, stderr=["boom"]))["reason"] == words

    @pytest.mark.parametrize("exit_code", [1, 124, 128, 137])
    def test_another_status_is_not_the_engines(self, exit_code: int) -> None:
        check = run(ran([[], []], exit_code, stderr=["boom"]))
        assert (check["reason"], check["remedy"]) == (f"exit status {exit_code}; last words: boom", "read the output under `value`")

    @pytest.mark.parametrize(
        ("words", "remedy"),
        [
            ("Unable to find image 'x' locally", "pull the image"),
            ("no such image: x", "pull the image"),
            ("error setting rlimit type 8", "smoke_test_ulimits"),
            ("permission: operation not permitted", "smoke_test_ulimits"),
            ("exec: torchrun: not found", "no torchrun"),
            ("cdi: no such image, torchrun, rlimit", "nvidia-cdi-refresh"),
            ("boom", "journalctl -u docker"),
        ],
    )
    @pytest.mark.parametrize("stream", ["stdout", "stderr"])
    def test_the_remedy_is_for_what_the_engine_says(self, words: str, remedy: str, stream: str) -> None:
        said: dict[str, Any] = {stream: [words, "See 'docker run --help'."]}
        assert remedy in str(run(ran([[], []], 125, **said))["remedy"])

    @pytest.mark.parametrize(("at", "since"), [(30.0, 50), (79.6, 0), (90.0, 0)])
    def test_a_hang_says_since_when_and_where_a_process_waits(self, at: float, since: int) -> None:
        outcome = ran(
            [until(STAGE), until(STAGE, 1)], None, at, timed_out=True, seconds=80.0, stuck={1: "process 47 (state D, in nv_wait)"}, left_behind="it stays"
        )
        first = f"rank 0 (GPU {BUS_IDS[0]}) in {STAGE} since {since} s"
        second = f"rank 1 (GPU {BUS_IDS[1]}) in {STAGE} since {since} s, process 47 (state D, in nv_wait)"
        assert run(outcome)["reason"] == f"not done within 300 s: {first}; {second}; it stays"
        assert str(run(outcome, {})["reason"]).startswith(f"not done within 300 s: rank 0 in {STAGE}")

    def test_a_rank_that_has_ended_does_not_hang(self) -> None:
        check = run(ran([rank_events(0, 2), until(STAGE, 1)], None, timed_out=True, seconds=80.0))
        assert check["reason"] == f"not done within 300 s: rank 1 (GPU {BUS_IDS[1]}) in {STAGE} since 80 s"
        assert (check["value"]["ranks_ended"], check["value"]["stages"]) == (1, {"1": STAGE})

    def test_ranks_without_an_end_are_named(self) -> None:
        assert run(ran([until(STAGE), until(STAGE, 1)]))["reason"] == "it ended with status 0, but of rank 0, 1 the end is missing"


class TestWords:
    @pytest.mark.parametrize(
        ("stderr", "last"),
        [
            (["RuntimeError: boom", "and more"], "RuntimeError: boom"),
            (["first error", "second error"], "second error"),
            (["= error =", "- error -", "words"], "words"),
            (["Permission denied", "x"], "Permission denied"),
            (["FATAL: y", "x"], "FATAL: y"),
            (["cannot z", "x"], "cannot z"),
            (["no such w", "x"], "no such w"),
            (["v not found", "x"], "v not found"),
            (["unresolvable u", "x"], "unresolvable u"),
            (["error " + "e" * 900], "error " + "e" * 494),
            (["w" * 900], "w" * 500),
        ],
    )
    def test_the_line_that_tells_most(self, stderr: list[str], last: str) -> None:
        assert run(ran([[], []], 1, stderr=stderr))["reason"] == f"exit status 1; last words: {last}"

    def test_what_was_said_on_the_way_out_comes_before_what_was_said_before(self) -> None:
        assert run(ran([[], []], 1, stdout=["an error"], stderr=["x"]))["reason"] == "exit status 1; last words: an error"
        assert run(ran([[], []], 1))["reason"] == "exit status 1"


class TestNoResult:
    @pytest.mark.parametrize(("at", "status"), [(0.0, "fail"), (20.0, "fail"), (20.1, "could_not_run"), (79.0, "could_not_run"), (99.0, "could_not_run")])
    def test_a_minute_in_a_stage_is_a_hang(self, at: float, status: str) -> None:
        found = without_result(1, STAGE, ran([until(STAGE), until(STAGE, 1)], None, at, timed_out=True, seconds=80.0))
        assert found.status == status
        assert found.duration_s == pytest.approx(max(0.0, 80.0 - at))
        words = f"hung in it for {80 - at:.0f} s, until" if status == "fail" else f"had been in it for {max(0.0, 80 - at):.0f} s when"
        assert found.reason == f"rank 1 {words} the limit of 300 s was over"

    @pytest.mark.parametrize(("number", "name"), [(11, "SIGSEGV"), (6, "SIGABRT"), (7, "SIGBUS"), (8, "SIGFPE"), (4, "SIGILL")])
    def test_signals_of_a_fault(self, number: int, name: str) -> None:
        stderr = TORCHRUN_CRASH.replace("-11", f"-{number}").splitlines()
        found = without_result(1, STAGE, ran([until(STAGE), until(STAGE, 1)], 1, stderr=stderr))
        assert (found.status, found.reason) == ("fail", f"rank 1 crashed in it with {name}")

    @pytest.mark.parametrize(("code", "words"), [("-9", "SIGKILL"), ("-2", "SIGINT"), ("1", "exit code 1"), ("0", "exit code 0")])
    def test_other_ends_are_no_fault(self, code: str, words: str) -> None:
        stderr = TORCHRUN_CRASH.replace("-11", code).splitlines()
        found = without_result(1, STAGE, ran([until(STAGE), until(STAGE, 1)], 1, stderr=stderr))
        assert (found.status, found.reason) == ("could_not_run", f"rank 1 ended in it with {words}")

    def test_a_container_that_was_never_started(self) -> None:
        found = without_result(0, STAGE, ran([[], []], None, error="docker cannot be started"))
        assert (found.status, found.reason) == ("could_not_run", "the container was not started: docker cannot be started")

    def test_a_rank_that_never_spoke(self) -> None:
        found = without_result(1, STAGE, ran(STARTED, 1))
        assert (found.status, found.reason) == ("could_not_run", "rank 1 never reported: exit status 1")

    def test_an_end_in_a_stage_of_which_nobody_says_whose_it_was(self) -> None:
        found = without_result(1, STAGE, ran([until(STAGE), until(STAGE, 1)], 1))
        assert (found.status, found.reason) == ("could_not_run", "rank 1 was in it when the run ended: exit status 1")

    def test_a_line_that_breaks_off_is_shown_as_far_as_it_goes(self) -> None:
        half = lines(0, rank_events(0, 2))[8] + "x" * 600
        found = without_result(0, STAGE, ran(stdout=["words", half]))
        assert found.reason == f"its result is not in the output of rank 0; a line of the output breaks off: {half[:300]}"
        assert without_result(0, STAGE, ran(stdout=["words"])).reason == "its result is not in the output of rank 0"
        assert without_result(0, STAGE, ran()).status == "could_not_run"

    def test_where_the_rank_was_instead(self) -> None:
        outcome = ran([until("meet"), STARTED[0]], 1, stderr=["boom"])
        reasons = [without_result(rank, STAGE, outcome).reason for rank in range(2)]
        assert reasons == [
            f"rank {rank} was {where} when the run ended: exit status 1; last words: boom" for rank, where in enumerate(("in meet", "at its start"))
        ]


class TestLimits:
    @pytest.mark.parametrize("value", [None, "x", []])
    def test_limits_that_no_rank_told(self, value: Any) -> None:
        said: list[Event] = [{"event": "start"}, {"event": "found", "name": "container_limits", "value": value}]
        check = container_limits(ran([said, STARTED[0]], 1))
        assert (check["status"], check["reason"], check["remedy"]) == ("could_not_run", "no rank told its limits: exit status 1", SILENT_REMEDY)
        assert check["floor"] == {"ulimits": ["memlock=-1", "stack=67108864"], "shm_size": "1g"}

    def test_without_a_container_nobody_tells_any(self) -> None:
        check = container_limits(ran([[], []], None, error="docker cannot be started"))
        assert (check["status"], check["reason"]) == ("could_not_run", "no rank told its limits: docker cannot be started")

    def test_one_that_a_rank_told_counts(self) -> None:
        check = container_limits(ran([rank_events(0, 2), STARTED[0]]))
        assert (check["status"], check["reason"], check["remedy"], check["value"]) == ("pass", None, None, LIMITS)

    @pytest.mark.parametrize(
        ("limits", "problems"),
        [
            ({"memlock": [-1, -1], "stack": [67108864, -1]}, []),
            ({"memlock": [-1, -1], "stack": [-1, -1]}, []),
            ({"memlock": [-1, -1], "stack": [67108863, -1]}, ["stack"]),
            ({"memlock": [2**50, 2**50], "stack": [67108864, -1]}, ["memlock"]),
            ({"memlock": [0, 0], "stack": [0, 0]}, ["memlock", "stack"]),
            ({}, ["memlock", "stack"]),
            (None, ["memlock", "stack"]),
        ],
    )
    def test_what_pytorch_needs_on_gpus(self, limits: Any, problems: list[str]) -> None:
        found = limit_problems({**LIMITS, "ulimits": limits}, container(ulimits=[]))
        assert [problem.split()[0] for problem in found] == problems
        if not limits:
            # What was not told is taken for nothing.
            assert all(" is 0 bytes, " in problem for problem in found)

    @pytest.mark.parametrize(
        ("shm", "asked", "words"),
        [
            (2**26, "64m", "with which NCCL fails"),
            (2**26 + 1, "64m", None),
            (2**26 - 1, "64m", "were asked for"),
            (2**30, "1g", None),
            (2**30 - 1, "1g", "were asked for"),
            ("much", "64m", "were asked for"),
        ],
    )
    def test_shared_memory(self, shm: Any, asked: str, words: str | None) -> None:
        found = limit_problems({**LIMITS, "shm_bytes": shm}, container(shm_size=asked))
        assert len(found) == (words is not None)
        assert all(problem.startswith(f"/dev/shm has {shm} bytes") and str(words) in problem for problem in found)

    @pytest.mark.parametrize(("interfaces", "seen"), [(["eth0", "lo"], True), (["lo"], False), ([], False), (None, False)])
    def test_of_several_hosts_each_needs_the_interface_to_the_others(self, interfaces: Any, seen: bool) -> None:
        cluster = Cluster(ranks=(2, 2), node=0, address="10.0.0.1", interface="eth0", master="10.0.0.1", port=29500)
        found = limit_problems({**LIMITS, "interfaces": interfaces}, container(cluster=cluster))
        assert found == ([] if seen else [f"the network interfaces that are up are {interfaces}, and eth0 is not among them"])

    @pytest.mark.parametrize(("text", "size"), [("2t", 2**41), ("3b", 3), ("3", 3), ("1k", 1024), ("1m", 2**20), ("1g", 2**30), (" 1 G ", 2**30)])
    def test_every_unit(self, text: str, size: int) -> None:
        assert parse_size(text) == size
