# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The payload's time, its stages and how its ranks agree, without torch: what does not fit or cannot take part says so, and nobody waits for ever."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import exchange, meeting, pairs, products, timing
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.budget import Budget, Deadline, NoTimeLeft, interrupted
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.figures import NAMES as FIGURES
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.figures import WrongResult
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.identity import driver_facts
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.meeting import READY, Meeting
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.nccl_log import hear, listen
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.options import Options
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.place import Place
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.rank import Rank
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.report import Reporter
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.stages import AT_ONCE, BY_ITSELF, IN_TURN, Stage, stages_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.surroundings import cpus_near
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.training import NAMES as TRAININGS


class Clock:
    """Seconds that pass only when somebody says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Store:
    """A store of one process for ranks that are threads, as torch's waits and answers."""

    def __init__(self) -> None:
        self.said: dict[str, bytes] = {}
        self.changed = threading.Condition()

    def set(self, key: str, value: str) -> None:
        with self.changed:
            self.said[key] = value.encode()
            self.changed.notify_all()

    def get(self, key: str) -> bytes:
        return self.said[key]

    def wait(self, keys: list[str], patience: timedelta) -> None:
        with self.changed:
            if not self.changed.wait_for(lambda: all(key in self.said for key in keys), patience.total_seconds()):
                raise RuntimeError("Socket Timeout")


class Said(list[dict[str, Any]]):
    """What a rank reported."""

    def __call__(self, data: bytes) -> None:
        self.append(json.loads(data))

    def checks(self) -> dict[str, tuple[str, str | None]]:
        return {event["name"]: (event["status"], event["reason"]) for event in self if event["event"] == "check"}


def rank_of(store: Store | None, number: int = 0, world: int = 2, budget: float = 60) -> tuple[Rank, Said]:
    """A rank that has met the others in a store, with what it says."""
    said = Said()
    made = Rank(
        Options("cpu", "abc", [], True, 60, budget=budget), {"RANK": str(number), "WORLD_SIZE": str(world), "LOCAL_RANK": "0"}, Reporter("abc", number, said)
    )
    made.meeting = Meeting(store, number, world) if store else None
    # The communicator is torch's; here it is there already.
    made.group = True
    return made, said


def all_at_once(ranks: list[Rank], stage: Stage, later: float = 0) -> None:
    threads = [threading.Thread(target=each.begin, args=(None, stage, later)) for each in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)


class TestBudget:
    def test_a_stage_gets_what_the_later_ones_do_not_need(self) -> None:
        clock = Clock()
        budget = Budget(30, clock)
        assert budget.stage(1, later=10).left() == 20
        clock.now += 25
        # It may still take its least from those behind it, and they then see for themselves.
        assert budget.stage(2, later=10).left() == 2

    def test_what_does_not_fit_says_so(self) -> None:
        clock = Clock()
        budget = Budget(30, clock)
        clock.now += 29.5
        with pytest.raises(NoTimeLeft, match=r"it needs 1 s at least, 0\.5 s were left"):
            budget.stage(1, 0)
        clock.now += 5
        with pytest.raises(NoTimeLeft, match=r"0\.0 s were left"):
            budget.stage(1, 0)

    def test_a_deadline_comes_sooner_never_later(self) -> None:
        clock = Clock()
        deadline = Deadline(110, clock)
        assert (deadline.sooner(3).left(), deadline.sooner(30).left(), deadline.over()) == (3, 10, False)
        clock.now = 110
        assert deadline.over()

    def test_a_program_that_is_waited_for_is_interrupted(self) -> None:
        started = time.monotonic()
        with pytest.raises(NoTimeLeft, match="were not enough"), interrupted(Deadline(started + 0.2)):
            subprocess.run([sys.executable, "-c", "import time; time.sleep(30)"], check=True)
        assert time.monotonic() - started < 10
        with interrupted(Deadline(time.monotonic() + 0.15)):
            pass
        time.sleep(0.2)  # nothing comes afterwards


class TestSamples:
    def place(self) -> Place:
        return Place(None, "cpu", "cpu")

    def test_each_counts_by_itself_and_the_warm_up_does_not(self) -> None:
        calls: list[int] = []
        between: list[int] = []

        def work() -> None:
            time.sleep(0.001)
            calls.append(1)

        made = timing.sample(self.place(), work, 0.2, Deadline(time.monotonic() + 60), lambda: between.append(1))
        assert timing.LEAST <= len(made.seconds) <= timing.MOST
        assert len(between) == len(made.seconds)
        assert made.calls < len(calls)
        assert min(made.seconds) >= 0.001

    def test_too_few_are_none(self) -> None:
        with pytest.raises(NoTimeLeft, match="0 of at least 3 samples were taken, one call takes"):
            timing.sample(self.place(), lambda: time.sleep(0.02), 1, Deadline(time.monotonic() - 1))

    def test_a_slow_call_is_one_of_a_sample_and_a_fast_one_is_not(self) -> None:
        assert timing.calls_for(5.0, 2.0) == 1
        assert timing.calls_for(0.001, 2.0) == 62
        assert timing.calls_for(0.0, 2.0) == timing.CALLS_MAX

    def test_a_figure_has_all_that_the_host_judges(self) -> None:
        value = timing.figure(timing.Samples([0.5, 0.25, 0.2], 30, 1.23456), 10.0, "GB/s", "copy", "small", bytes=3)
        assert value == {
            "median": 40.0,
            "samples": [20.0, 40.0, 50.0],
            "unit": "GB/s",
            "kernel": "copy",
            "conditions": "small",
            "seconds": 1.235,
            "calls": 30,
            "bytes": 3,
        }
        assert (timing.median([4.0, 1.0]), timing.rounded(123.456789)) == (2.5, 123.46)


class TestMeeting:
    def test_all_hear_the_same(self) -> None:
        store = Store()
        ranks = [Meeting(store, number, 3) for number in range(3)]
        for each in ranks[1:]:
            each.tell("all_reduce_exact", READY)
        assert ranks[0].refusal("all_reduce_exact", READY, 1) is None

    def test_who_cannot_is_named_and_knows_it_of_itself(self) -> None:
        store = Store()
        ranks = [Meeting(store, number, 2) for number in range(2)]
        ranks[1].tell("x", "Error 802")
        assert ranks[0].refusal("x", READY, 1) == "rank 1 cannot take part: Error 802"
        assert ranks[1].refusal("x", "Error 802", 1) == "Error 802"

    def test_who_does_not_come_is_waited_for_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(meeting, "PATIENCE", 0.1)
        store = Store()
        mine = Meeting(store, 0, 2)
        with pytest.raises(TimeoutError, match="rank 1 did not come to x: RuntimeError: Socket Timeout"):
            mine.gather("x", READY, 0)
        # Neither who comes late must begin with it, nor anybody the next one.
        late = Meeting(store, 1, 2)
        assert str(late.refusal("x", READY, 0)).startswith("rank 0 cannot take part: rank 1 did not come to x")
        with pytest.raises(TimeoutError, match="rank 1 did not come to x"):
            mine.gather("y", READY, 0)
        assert str(late.refusal("y", READY, 0)).startswith("rank 0 cannot take part: rank 1 did not come to x")


class TestStages:
    def names(self, tier: str, world: int, **changes: Any) -> list[str]:
        options = Options("cuda", "a", ["bf16"], True, 60, tier)._replace(**changes)
        return [stage.name for stage in stages_of(Place(None, "cuda", "cuda:0", tier, 0, world), ["bf16"], options)]

    def test_quick(self) -> None:
        assert self.names("quick", 8) == ["matmul_exact.bf16", "matmul_repeat.bf16", "all_reduce_exact"]

    def test_accept(self) -> None:
        names = self.names("accept", 8, figures=FIGURES, trainings=TRAININGS)
        exchanges = ["all_reduce_exact", "all_gather_exact", "reduce_scatter_exact", "all_to_all_exact", "pair_exact"]
        assert names == ["matmul_exact.bf16", "matmul_repeat.bf16", *exchanges, *FIGURES, *TRAININGS]

    def test_one_gpu_has_no_pairs_and_an_instance_nothing_together(self) -> None:
        assert "pair_exact" not in self.names("accept", 1)
        assert self.names("accept", 7, collective=False) == ["matmul_exact.bf16", "matmul_repeat.bf16"]

    def test_burn_comes_last_and_keeps_its_time(self) -> None:
        place = Place(None, "cuda", "cuda:0", "burn")
        last = stages_of(place, ["fp32", "fp16"], Options("cuda", "a", [], True, 60, "burn", trainings=TRAININGS, burn_seconds=600))[-1]
        assert (last.name, last.least, last.begun) == ("burn", 600, AT_ONCE)

    def test_what_is_done_together_is_in_the_same_order_on_every_chip(self) -> None:
        options = Options("cuda", "a", [], True, 60, "accept", figures=FIGURES, trainings=TRAININGS)
        old, new = (stages_of(Place(None, "cuda", "cuda:0", "accept", 0, 2), dtypes, options) for dtypes in (["fp32"], list(products.PRODUCTS)))
        assert [s.name for s in old if s.begun != BY_ITSELF] == [s.name for s in new if s.begun != BY_ITSELF]


class TestBeginning:
    def stage(self, work: Any, begun: str = BY_ITSELF, **changes: Any) -> Stage:
        return Stage("some", begun, 0.5, work)._replace(**changes)

    def test_without_time_it_is_not_begun(self) -> None:
        made, said = rank_of(None, budget=0.2)
        made.begin(None, self.stage(lambda deadline: ("pass", None, {})), 0)
        status, reason = said.checks()["some"]
        assert status == "could_not_run"
        assert str(reason).startswith("no time left: it needs 0.5 s at least, 0.")
        assert not [event for event in said if event["event"] == "stage"]

    def test_time_that_is_over_within_it_is_no_failure(self) -> None:
        def work(deadline: Deadline) -> Any:
            raise NoTimeLeft("7 of 64 products were made and right")

        made, said = rank_of(None)
        made.begin(None, self.stage(work), 0)
        assert said.checks() == {"some": ("could_not_run", "no time left: 7 of 64 products were made and right")}

    def test_a_figure_is_measured_or_says_why_not(self) -> None:
        made, said = rank_of(None)
        made.begin(None, self.stage(lambda deadline: {"median": 3}, measures=True), 0)
        assert [(event["event"], event.get("value")) for event in said] == [("stage", None), ("measured", {"median": 3})]
        made.begin(None, self.stage(lambda deadline: None, measures=True), 0)
        assert [event["event"] for event in said] == ["stage", "measured", "stage"]

        def wrong(deadline: Deadline) -> Any:
            raise WrongResult("1 of 9 copied words are wrong")

        made.begin(None, self.stage(wrong, measures=True), 0)
        assert said.checks() == {"some": ("fail", "WrongResult: 1 of 9 copied words are wrong")}

    def test_together_only_if_all_are_ready(self) -> None:
        store = Store()
        (one, said_one), (two, said_two) = rank_of(store, 0), rank_of(store, 1)
        two.not_ready = "CUDA error: unspecified launch failure"
        all_at_once([one, two], self.stage(lambda deadline: ("pass", None, {}), AT_ONCE))
        assert said_one.checks() == {"some": ("could_not_run", "not attempted: rank 1 cannot take part: CUDA error: unspecified launch failure")}
        assert said_two.checks() == {"some": ("could_not_run", "not attempted: CUDA error: unspecified launch failure")}

    def test_one_without_time_stops_all_of_them(self) -> None:
        store = Store()
        (one, said_one), (two, said_two) = rank_of(store, 0), rank_of(store, 1, budget=0.1)
        all_at_once([one, two], self.stage(lambda deadline: ("pass", None, {}), AT_ONCE))
        assert str(said_one.checks()["some"][1]).startswith("no time left in rank 1: it needs 0.5 s")
        assert str(said_two.checks()["some"][1]).startswith("no time left: it needs 0.5 s")

    def test_an_error_in_one_keeps_a_rank_from_the_next(self) -> None:
        store = Store()
        (one, said_one), (two, said_two) = rank_of(store, 0), rank_of(store, 1)

        def broken(deadline: Deadline) -> Any:
            if threading.current_thread().name == "two":
                raise RuntimeError("NCCL error: unhandled system error")
            return "pass", None, {}

        threads = [threading.Thread(target=r.begin, args=(None, self.stage(broken, AT_ONCE), 0), name=name) for r, name in ((one, "one"), (two, "two"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        all_at_once([one, two], self.stage(lambda deadline: ("pass", None, {}), AT_ONCE, name="next"))
        assert said_two.checks()["some"][0] == "fail"
        assert said_one.checks()["next"] == (
            "could_not_run",
            "not attempted: rank 1 cannot take part: some ended with RuntimeError: NCCL error: unhandled system error",
        )
        assert said_two.checks()["next"][0] == "could_not_run"

    def test_a_gpu_that_is_wrong_by_itself_still_takes_part(self) -> None:
        store = Store()
        (one, _said_one), (two, said_two) = rank_of(store, 0), rank_of(store, 1)

        def wrong(deadline: Deadline) -> Any:
            raise WrongResult("1 of 9 elements of the product that was timed differ")

        two.begin(None, self.stage(wrong, name="matmul.bf16", measures=True), 0)
        all_at_once([one, two], self.stage(lambda deadline: ("pass", None, {}), AT_ONCE))
        assert [status for status, _reason in said_two.checks().values()] == ["fail", "pass"]

    def test_in_turn_one_after_the_other_and_who_cannot_is_passed_over(self) -> None:
        store = Store()
        ranks = [rank_of(store, number, 3) for number in range(3)]
        ranks[1][0].not_ready = "CUDA error"
        busy: list[str] = []

        def work(deadline: Deadline) -> Any:
            busy.append("in")
            time.sleep(0.05)
            busy.append("out")
            return {"median": 1.0}

        all_at_once([each for each, _said in ranks], self.stage(work, IN_TURN, measures=True))
        assert busy == ["in", "out", "in", "out"]
        assert ranks[1][1].checks() == {"some": ("could_not_run", "not attempted: CUDA error")}
        for said in (ranks[0][1], ranks[2][1]):
            assert [(event["event"], event["name"]) for event in said] == [("stage", "wait_for_turn"), ("stage", "some"), ("measured", "some")]

    def test_ranks_that_never_met_do_nothing_together(self) -> None:
        made, said = rank_of(None)
        made.apart = "the ranks could not meet: RuntimeError: refused"
        for begun in (AT_ONCE, IN_TURN):
            made.begin(None, self.stage(lambda deadline: ("pass", None, {}), begun, name=begun), 0)
        assert set(said.checks().values()) == {("could_not_run", "not attempted: the ranks could not meet: RuntimeError: refused")}

    def test_hashes_are_told_once(self) -> None:
        made, said = rank_of(None)
        for dtype in ("fp32", "bf16"):
            made.begin(None, self.stage(lambda deadline, d=dtype: ("pass", None, {"sha256": d}), name=f"matmul_repeat.{dtype}"), 0)
        made.begin(None, self.stage(lambda deadline: ("fail", "1 wrong", {"sha256": "x"}), name="matmul_repeat.fp16"), 0)
        made.tell_hashes()
        made.tell_hashes()
        assert [event["value"] for event in said if event["event"] == "found"] == [{"fp32": "fp32", "bf16": "bf16"}]


class TestAmounts:
    def test_of_repeats(self) -> None:
        assert (products.least_repeats("bf16", "cuda", "quick"), products.least_repeats("fp32", "cuda", "quick")) == (64, 8)
        assert products.least_repeats("bf16", "cuda", "accept") >= 1000
        assert products.least_repeats("fp64", "cuda", "burn") == 64

    def test_of_collectives(self) -> None:
        assert exchange.amount_of("all_reduce_exact", "cpu", "quick", 3) == {"world": 3, "rounds": 30, "elements": 665610}
        gathered, scattered = (exchange.amount_of(name, "cuda", "accept", 8) for name in ("all_gather_exact", "reduce_scatter_exact"))
        assert gathered["elements"] == 8 * scattered["elements"]
        assert gathered["rounds"] == 100 * 4 * 3
        assert exchange.amount_of("all_reduce_exact", "cuda", "accept", 18)["rounds"] == 100 * 4 * 2

    def test_the_pairs_of_sixteen_fit_into_a_line(self) -> None:
        said: list[bytes] = []
        rates = [[a, b, 389.1] for a in range(16) for b in range(16) if a != b]
        value = {
            "median": 389.1,
            "samples": [389.1] * 32,
            "unit": "GB/s",
            "kernel": "k" * 40,
            "conditions": "c" * 60,
            "seconds": 1.5,
            "world": 16,
            "pairs": rates,
        }
        Reporter("0123456789ab", 0, said.append).emit("measured", name="pair.copy", value=value)
        assert len(json.loads(said[0])["value"]["pairs"]) == 240

    def test_of_pairs(self) -> None:
        assert pairs.amount_of("cpu", 4) == {"world": 4, "senders": 3, "bytes": 2 * 3 * (1 + 4097 + 65539)}


class TestWhatTheDriverSays:
    class Driver:
        """libcuda with some attributes."""

        def __init__(self, attributes: dict[int, int]) -> None:
            self.attributes = attributes

        def cuDeviceGet(self, device: Any, index: Any) -> int:
            return 0

        def cuDeviceGetAttribute(self, number: Any, attribute: Any, device: Any) -> int:
            if attribute.value not in self.attributes:
                return 1
            number._obj.value = self.attributes[attribute.value]
            return 0

        def cuDriverGetVersion(self, number: Any) -> int:
            number._obj.value = 13020
            return 0

    def test_mode_ecc_multicast_and_version(self, monkeypatch: pytest.MonkeyPatch) -> None:
        where = "ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.identity.driver_library"
        monkeypatch.setattr(where, lambda: self.Driver({20: 3, 32: 1}))
        assert driver_facts(0) == {"compute_mode": "exclusive process", "ecc": True, "multicast": None, "driver_cuda": "13.2"}
        monkeypatch.setattr(where, lambda: self.Driver({20: 9, 32: 0, 132: 1}))
        assert driver_facts(0) == {"compute_mode": "9", "ecc": False, "multicast": True, "driver_cuda": "13.2"}
        monkeypatch.setattr(where, lambda: None)
        assert set(driver_facts(0).values()) == {None}


class TestWhatNcclSays:
    LOG = """\
gpu7:52:52 [0] NCCL INFO NVLS multicast support is available on dev 0 (NVLS_NCHANNELS 16)
gpu7:52:70 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM
gpu7:52:70 [0] NCCL INFO Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM
gpu7:52:70 [0] NCCL INFO Channel 00 : 1[1] -> 2[2] via SHM/direct/direct
[2026-12-01 05:00:00] gpu7:52:70 [0] misc/shmutils.cc:87 NCCL WARN Error: failed to extend /dev/shm/nccl-x to 9637892 bytes
"""

    def test_ways_multicast_and_warnings(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        log.write_text(self.LOG, encoding="utf-8")
        warnings = ["Error: failed to extend /dev/shm/nccl-x to 9637892 bytes"]
        assert hear(log) == {"multicast": True, "ways": {"P2P": 2, "SHM": 1}, "networks": {}, "direct": 0, "warnings": warnings}
        log.write_text(self.LOG.replace("is available", "is not available"), encoding="utf-8")
        assert hear(log)["multicast"] is False
        assert hear(tmp_path / "none") == {"multicast": None, "ways": {}, "networks": {}, "direct": 0, "warnings": []}

    def test_networks_to_other_hosts(self, tmp_path: Path) -> None:
        log = tmp_path / "log"
        lines = [
            "8[0] -> 15[7] via P2P/IPC/read",
            "15[7] -> 6[6] [send] via NET/Socket/3",
            "5[5] -> 12[4] [send] via NET/IB/3",
            "6[6] -> 4[4] via NET/IB/3/GDRDMA",
        ]
        lines += ["47[7] -> 39[7] [receive] via NET/IBext_v8/2"]
        log.write_text("".join(f"gpu7:52:70 [0] NCCL INFO Channel 00/0 : {line}\n" for line in lines), encoding="utf-8")
        assert hear(log) == {"multicast": None, "ways": {"NET": 4, "P2P": 1}, "networks": {"IB": 2, "IBext_v8": 1, "Socket": 1}, "direct": 1, "warnings": []}

    def test_what_an_operator_asked_it_for_is_left_alone(self) -> None:
        for env in ({"NCCL_DEBUG": "INFO"}, {"NCCL_DEBUG": "TRACE"}, {"NCCL_DEBUG": "WARN", "NCCL_DEBUG_FILE": "/tmp/x"}):
            before = dict(env)
            assert listen(env, 7) is None
            assert env == before
        ours = {"NCCL_DEBUG": "WARN"}
        assert str(listen(ours, 7)) == ours["NCCL_DEBUG_FILE"] == "/tmp/rackready-nccl.7"
        assert ours["NCCL_DEBUG"] == "INFO"

    def test_warnings_go_on_to_where_they_would_have_been_seen(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        made, said = rank_of(None)
        made.nccl_log = tmp_path / "log"
        made.nccl_log.write_text(self.LOG, encoding="utf-8")
        made.tell_nccl()
        made.tell_nccl()
        assert [event["name"] for event in said] == ["nccl"]
        assert capsys.readouterr().err == "NCCL WARN Error: failed to extend /dev/shm/nccl-x to 9637892 bytes\n"


def test_cpus_next_to_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "sys/bus/pci/devices/0000:1a:00.0"
    folder.mkdir(parents=True)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {0, 1, 2, 3, 4, 5, 6, 7, 96})
    (folder / "local_cpulist").write_text("4-7,96-99,200\n", encoding="utf-8")
    assert cpus_near("0000:1a:00.0", tmp_path) == {4, 5, 6, 7, 96}
    (folder / "local_cpulist").write_text("\n", encoding="utf-8")
    assert cpus_near("0000:1a:00.0", tmp_path) == cpus_near("0000:1b:00.0", tmp_path) == cpus_near(None, tmp_path) == set()
