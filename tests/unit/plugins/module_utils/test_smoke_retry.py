# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which runs are repeated, once: the port, the start of a rank, NVLS; never a wrong result, a hang or a crash at work."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_retry import NVLS_OFF, Retry, nvls_check, retry_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import ChildResult, Outcome, Transcript

from tests.unit.smoke_fakes import RUN, TORCHRUN_CRASH, Event, container, lines, rank_events, reduce_value, result

PORT = "RuntimeError: The server socket has failed to listen on any local network address. port: 29500, EADDRINUSE: address already in use"
NVLS = "NCCL WARN transport/nvls.cc:245 Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152: CUDA error 401"


def ran(events: list[list[Event]], exit_code: int | None = 1, **child: Any) -> Outcome:
    transcript = Transcript(RUN, len(events), clock=lambda: 0.0)
    for rank, said in enumerate(events):
        transcript.feed(lines(rank, said))
    ended: dict[str, Any] = {"exit_code": exit_code, "timed_out": False, "seconds": 20.0, "stdout": [], "stderr": [], **child}
    return Outcome(container(ranks=len(events)), ChildResult(**ended), transcript)


def until(stage: str, events: list[Event] | None = None) -> list[Event]:
    said = events or rank_events(1, 2)
    return said[: said.index({"event": "stage", "name": stage}) + 1]


def changed(events: list[Event], name: str, new: Event) -> list[Event]:
    return [new if event.get("name") == name and event["event"] == "check" else event for event in events]


def crash(code: int) -> list[str]:
    return TORCHRUN_CRASH.replace("-11", str(code)).splitlines()


SOUND = [rank_events(0, 2), rank_events(1, 2)]


def test_a_run_that_ended_well_is_not_repeated() -> None:
    assert retry_of(ran(SOUND, 0), {}) is None
    assert retry_of(ran(SOUND, 0, stdout=[NVLS, PORT]), {}) is None


@pytest.mark.parametrize("where", ["stderr", "stdout"])
def test_a_port_that_was_taken(where: str) -> None:
    retry = retry_of(ran([[], []], 1, **{where: [PORT]}), {})
    assert retry is not None and retry.env == {}
    assert retry.reason.startswith("the ranks could not meet: RuntimeError: The server socket")


def test_ranks_that_could_not_meet_say_so_themselves() -> None:
    events = [changed(said, "all_reduce_exact", result("all_reduce_exact", "could_not_run", "the ranks could not meet: x")) for said in SOUND]
    retry = retry_of(ran(events, 0), {})
    assert retry == Retry("the ranks could not meet: the ranks could not meet: x", {})


@pytest.mark.parametrize("stage", ["import_torch", "meet"])
@pytest.mark.parametrize("code", [1, -9, -11])
def test_a_rank_that_ended_before_any_work(stage: str, code: int) -> None:
    retry = retry_of(ran([SOUND[0], until(stage)], 1, stderr=crash(code)), {})
    assert retry == Retry("rank 1 ended at its start, before any work on a GPU", {})
    assert retry_of(ran([SOUND[0], []], 1, stderr=crash(code)), {}) == retry


def test_a_rank_that_is_none_of_ours_was_at_no_work() -> None:
    stderr = [line.replace("rank      : 1", "rank      : 7") for line in crash(1)]
    assert retry_of(ran(SOUND, 1, stderr=stderr), {}) == Retry("rank 7 ended at its start, before any work on a GPU", {})


@pytest.mark.parametrize("stage", ["gpu_identity", "matmul_exact.bf16", "copy.host_to_device", "all_reduce_exact"])
@pytest.mark.parametrize("code", [-11, -6, -7, -9, 1])
def test_one_that_ended_at_work_is_not_repeated(stage: str, code: int) -> None:
    assert retry_of(ran([SOUND[0], until(stage)], 1, stderr=crash(code)), {}) is None
    # What else was said counts only where the end was no fault of the machine.
    again = retry_of(ran([SOUND[0], until(stage)], 1, stderr=[*crash(code), PORT]), {})
    assert (again is None) == (code in (-11, -6, -7))


@pytest.mark.parametrize("name", ["matmul_exact.bf16", "gpu_identity", "training.ddp_step", "all_reduce_exact"])
def test_never_after_something_wrong(name: str) -> None:
    wrong = [*SOUND[1][:-1], result(name, "fail", "3 of 9 elements are wrong", {"wrong": 3})]
    for more in ([PORT], [NVLS], [*crash(1)]):
        assert retry_of(ran([SOUND[0], wrong], 1, stderr=more), {}) is None


@pytest.mark.parametrize("child", [{"timed_out": True}, {"error": "docker cannot be started"}])
def test_never_after_a_hang_or_without_an_engine(child: dict[str, Any]) -> None:
    assert retry_of(ran([[], []], None, stderr=[PORT, NVLS], **child), {}) is None


def test_a_failed_start_that_nobody_understands_is_not_repeated() -> None:
    assert retry_of(ran([[], []], 125, stderr=["docker: no such image"]), {}) is None
    assert retry_of(ran([[], []], 1, stderr=["boom"]), {}) is None


class TestNvls:
    FAILED = "DistBackendError: NCCL error: unhandled cuda error, Last error: Failed to bind NVLink SHARP (NVLS) Multicast memory"

    @pytest.mark.parametrize("status", ["fail", "could_not_run"])
    def test_what_nccl_could_not_set_up_is_tried_without(self, status: str) -> None:
        events = [changed(said, "all_reduce_exact", result("all_reduce_exact", status, self.FAILED)) for said in SOUND]
        retry = retry_of(ran(events, 0), {})
        assert retry is not None and retry.env == NVLS_OFF == {"NCCL_NVLS_ENABLE": "0"}
        assert "NVLS" in retry.reason
        check = nvls_check(retry)
        assert (check["name"], check["status"], check["required"]) == ("nvls", "degraded", True)
        assert str(check["reason"]).endswith("; tested without it")

    def test_also_where_only_its_warning_names_it(self) -> None:
        events = [changed(said, "all_reduce_exact", result("all_reduce_exact", "fail", "unhandled cuda error")) for said in SOUND]
        retry = retry_of(ran(events, 0, stdout=[NVLS]), {})
        assert retry is not None and retry.env == NVLS_OFF
        # A rank that crashed in it gave no result.
        retry = retry_of(ran([until("all_reduce_exact", SOUND[0]), until("all_reduce_exact")], 1, stderr=[NVLS, *crash(-6)]), {})
        assert retry is not None and retry.env == NVLS_OFF

    def test_where_the_operator_has_turned_it_off_it_is_not_why(self) -> None:
        events = [changed(said, "all_reduce_exact", result("all_reduce_exact", "fail", self.FAILED)) for said in SOUND]
        assert retry_of(ran(events, 0), {"NCCL_NVLS_ENABLE": "0"}) is None
        assert retry_of(ran(events, 0), {"NCCL_NVLS_ENABLE": "1"}) is not None

    def test_a_sum_that_is_wrong_is_no_trouble_of_setting_up(self) -> None:
        wrong = result("all_reduce_exact", "fail", "3 of 9 summed elements are wrong", {**reduce_value(2), "wrong": 3})
        events = [SOUND[0], changed(SOUND[1], "all_reduce_exact", wrong)]
        assert retry_of(ran(events, 0, stdout=[NVLS]), {}) is None

    @pytest.mark.parametrize("sound", [0, 1])
    def test_one_rank_that_came_through_does_not_hide_the_other(self, sound: int) -> None:
        events = [changed(said, "all_reduce_exact", result("all_reduce_exact", "fail", self.FAILED)) for said in SOUND]
        events[sound] = SOUND[sound]
        retry = retry_of(ran(events, 0), {})
        assert retry is not None and retry.env == NVLS_OFF

    def test_of_a_long_line_the_beginning_is_kept(self) -> None:
        events = [changed(said, "all_reduce_exact", result("all_reduce_exact", "fail", f"NVLS {'x' * 900}")) for said in SOUND]
        retry = retry_of(ran(events, 0), {})
        assert retry is not None and retry.reason.endswith(f": NVLS {'x' * 295}")
        met = retry_of(ran([[], []], 1, stderr=[f"EADDRINUSE {'x' * 900}"]), {})
        assert met is not None and met.reason == f"the ranks could not meet: EADDRINUSE {'x' * 289}"

    @pytest.mark.parametrize("value", [None, {}, {"world": 2}])
    def test_numbers_of_what_could_not_run_are_no_wrong_sum(self, value: Any) -> None:
        events = [changed(said, "all_reduce_exact", result("all_reduce_exact", "could_not_run", self.FAILED, value)) for said in SOUND]
        retry = retry_of(ran(events, 0), {})
        assert retry is not None and retry.env == NVLS_OFF

    def test_another_failure_beside_it_is_not_hidden(self) -> None:
        events = [changed(said, "all_reduce_exact", result("all_reduce_exact", "fail", self.FAILED)) for said in SOUND]
        events[1] = changed(events[1], "matmul_exact.bf16", result("matmul_exact.bf16", "fail", "wrong", {"wrong": 1}))
        assert retry_of(ran(events, 0), {}) is None
