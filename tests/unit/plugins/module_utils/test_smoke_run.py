# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container's command line, children that hang, crash or babble, and what counts in their output. The children are doubles, the processes are real."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_run
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import (
    Transcript,
    build_command,
    crashed_rank,
    kill_container,
    remove_leftovers,
    run_bounded,
    run_child,
)
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.smoke_fakes import IMAGE, RUN, TORCHRUN_CRASH, all_lines, child, container, lines, rank_events, result


def pairs(command: list[str], option: str) -> list[str]:
    return [command[index + 1] for index, word in enumerate(command) if word == option]


class TestCommand:
    def test_nothing_is_open_that_the_test_does_not_need(self) -> None:
        command = build_command(container(ranks=8))
        assert command[:3] == ["docker", "run", "--rm"]
        for flag, value in (("--network", "none"), ("--cap-drop", "ALL"), ("--security-opt", "no-new-privileges"), ("--pull", "never")):
            assert pairs(command, flag) == [value]
        assert "--read-only" in command
        assert not {"--privileged", "--pid", "--ipc", "--cap-add", "-v"} & set(command)
        assert pairs(command, "--volume") == ["/var/lib/rackready/smoke-x/payload:/rackready:ro"]
        assert [word.split(":")[0] for word in pairs(command, "--tmpfs")] == ["/tmp"]

    def test_it_is_ours_and_can_be_found_again(self) -> None:
        command = build_command(container())
        assert pairs(command, "--name") == [f"rackready-smoke-{RUN}"]
        assert pairs(command, "--label") == [smoke_run.LABEL]

    def test_gpus_limits_and_the_image_by_digest(self) -> None:
        command = build_command(container(ranks=8))
        assert pairs(command, "--device") == ["nvidia.com/gpu=all"]
        assert pairs(command, "--ulimit") == ["memlock=-1", "stack=67108864"]
        assert pairs(command, "--shm-size") == ["1g"]
        assert pairs(command, "--entrypoint") == ["torchrun"]
        after = command[command.index(IMAGE) + 1 :]
        assert pairs(after, "--nproc-per-node") == ["8"]
        assert pairs(after, "--master-addr") == ["127.0.0.1"]
        assert after[-2:] == ["--module", "smoke_payload"]

    def test_the_payload_is_found_by_the_working_directory_and_no_path_of_the_image_is_replaced(self) -> None:
        command = build_command(container())
        assert pairs(command, "--workdir") == ["/rackready"]
        assert not [entry for entry in pairs(command, "--env") if entry.startswith("PYTHONPATH")]

    def test_the_operators_environment_wins_over_ours_but_not_over_the_protocol(self) -> None:
        command = build_command(container(env={"NCCL_SOCKET_IFNAME": "eth0", "NCCL_NVLS_ENABLE": "0", "RACKREADY_SMOKE": "{}"}))
        env = dict(entry.split("=", 1) for entry in pairs(command, "--env"))
        assert env["NCCL_SOCKET_IFNAME"] == "eth0"
        assert env["GLOO_SOCKET_IFNAME"] == "lo"
        assert env["NCCL_NVLS_ENABLE"] == "0"
        assert env["OMP_NUM_THREADS"] == "4"
        settings = json.loads(env["RACKREADY_SMOKE"])
        asked = {"backend": "cuda", "run": RUN, "dtypes": ["fp64", "bf16"], "collective": True, "limit": 130, "tier": "quick", "budget": 60}
        assert settings == {**asked, "figures": [], "trainings": [], "mig": False, "visible": [], "burn_seconds": 0}


class Engine:
    """A double of the engine's client: answers by sub-command, remembers what it was asked."""

    def __init__(self, **answers: tuple[int | None, str, str]) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []

    def __call__(self, command: Sequence[str], limit_s: float) -> tuple[int | None, str, str]:
        assert limit_s > 0
        self.asked.append(list(command))
        return self.answers.get(command[1], (0, "", ""))


class TestContainersOfOurs:
    def test_leftovers_are_found_by_our_label_alone_and_removed(self) -> None:
        engine = Engine(ps=(0, "aaa\nbbb\n", ""))
        assert remove_leftovers(engine) == (["aaa", "bbb"], None)
        assert f"label={smoke_run.LABEL}" in engine.asked[0]
        assert engine.asked[1] == ["docker", "rm", "--force", "aaa", "bbb"]

    def test_without_leftovers_nothing_is_removed(self) -> None:
        engine = Engine()
        assert remove_leftovers(engine) == ([], None)
        assert [words[1] for words in engine.asked] == ["ps"]

    def test_the_engines_refusal_is_told(self) -> None:
        assert remove_leftovers(Engine(ps=(1, "", "permission denied\n"))) == ([], "docker ps: permission denied")
        found, error = remove_leftovers(Engine(ps=(0, "aaa", ""), rm=(1, "", "in use")))
        assert (found, error) == (["aaa"], "docker rm --force aaa: in use")

    def test_an_engine_that_is_not_there(self) -> None:
        code, _, error = run_bounded(["/nonexistent/docker", "ps"], 5)
        assert code is None
        assert "could not be started" in error

    def test_killing_says_whether_it_is_gone(self) -> None:
        engine = Engine(kill=(1, "", "is not running"))
        assert kill_container(engine, "rackready-smoke-x") is None
        assert [words[1] for words in engine.asked] == ["kill", "rm", "ps"]
        assert "could not be killed" in str(kill_container(Engine(ps=(0, "abc\n", "")), "rackready-smoke-x"))
        assert "is not known: no answer" in str(kill_container(Engine(ps=(None, "", "no answer")), "rackready-smoke-x"))


class TestChild:
    def test_lines_arrive_whole_and_the_rest_is_kept(self) -> None:
        taken: list[str] = []

        def take(line: str) -> bool:
            taken.append(line)
            return line.startswith("ours")

        ended = run_child(child("import sys; print('ours 1'); print('banner'); sys.stderr.write('warn\\n'); print('ours 2', end='')"), 20, take)
        assert (ended.exit_code, ended.timed_out, ended.left_behind) == (0, False, None)
        assert taken == ["ours 1", "banner"]
        assert ended.stdout == ["banner", "ours 2"]
        assert ended.stderr == ["warn"]

    def test_exit_status_and_signals(self) -> None:
        assert run_child(child("raise SystemExit(125)"), 20).exit_code == 125
        assert run_child(child("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"), 20).exit_code == -signal.SIGSEGV

    def test_a_program_that_is_not_there(self) -> None:
        ended = run_child(["/nonexistent/docker", "run"], 20)
        assert ended.error == "/nonexistent/docker cannot be started: No such file or directory"
        assert ended.exit_code is None

    def test_a_hang_ends_at_the_limit_and_the_container_is_killed_first(self) -> None:
        killed: list[bool] = []
        started = time.monotonic()
        ended = run_child(child("import time; print('begun'); time.sleep(600)"), 1.0, kill=lambda: killed.append(True))
        assert ended.timed_out
        assert killed == [True]
        assert ended.stdout == ["begun"]
        assert time.monotonic() - started < 8

    def test_a_child_that_ignores_the_polite_signal(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(smoke_run, "KILL_GRACE_S", 0.5)
        ended = run_child(child("import signal, time; signal.signal(15, signal.SIG_IGN); print('x'); time.sleep(600)"), 1.0)
        assert (ended.timed_out, ended.exit_code) == (True, -signal.SIGKILL)

    def test_a_grandchild_that_keeps_the_pipe_holds_nobody_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(smoke_run, "DRAIN_S", 0.3)
        started = time.monotonic()
        ended = run_child(child("import subprocess; p = subprocess.Popen(['sleep', '30']); print(p.pid)"), 20)
        assert ended.exit_code == 0
        assert time.monotonic() - started < 10
        os.kill(int(ended.stdout[0]), signal.SIGKILL)

    def test_a_child_that_does_not_die_is_left_behind_and_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(smoke_run, "KILL_GRACE_S", 0.2)
        hit: list[int] = []
        real: Callable[[int, int], None] = os.killpg
        # A process in uninterruptible sleep cannot be made at will; one that no signal reaches looks the same from outside.
        monkeypatch.setattr(os, "killpg", lambda pid, number: hit.append(pid))
        ended = run_child(child("import time; time.sleep(600)"), 0.5)
        real(hit[0], signal.SIGKILL)
        assert (ended.exit_code, ended.timed_out) == (None, True)
        assert ended.left_behind is not None
        assert ended.left_behind.startswith(f"process {hit[0]} does not die (state ")

    def test_leaving_by_an_exception_kills_the_container(self) -> None:
        killed: list[bool] = []

        def stop(line: str) -> bool:
            raise SystemExit(143)

        with pytest.raises(SystemExit):
            run_child(child("import time; print('x'); time.sleep(600)"), 20, stop, kill=lambda: killed.append(True))
        assert killed == [True]

    def test_an_endless_line_does_not_fill_the_memory(self) -> None:
        ended = run_child(child("import sys; sys.stdout.write('x' * 3000000); print(); print('after')"), 20)
        assert ended.stdout[-1] == "after"
        assert max(len(line) for line in ended.stdout) <= smoke_run.LINE_MAX * 2


class TestTicks:
    def test_while_the_child_runs_and_not_afterwards(self) -> None:
        ticks: list[float] = []
        run_child(child("import time; time.sleep(0.9)"), 20, tick=lambda: ticks.append(time.monotonic()))
        assert 3 <= len(ticks) <= 8
        assert all(later - earlier >= smoke_run.TICK_S * 0.9 for earlier, later in itertools.pairwise(ticks))

    def test_one_that_raises_ends_the_child(self) -> None:
        killed: list[bool] = []

        def tick() -> None:
            raise OSError(5, "Input/output error")

        with pytest.raises(OSError, match="Input/output"):
            run_child(child("import time; time.sleep(600)"), 20, kill=lambda: killed.append(True), tick=tick)
        assert killed == [True]


TOP = """\
PID                 STAT                WCHAN
4711                D                   nv_wait_for_gsp
4712                Sl                  -
4713                Z                   do_exit
garbage
"""


class TestStuckProcesses:
    def test_by_rank_with_state_and_wait_channel(self, tmp_path: Path) -> None:
        for pid, inside in ((4711, 17), (4712, 18), (4713, 1)):
            (tmp_path / f"proc/{pid}").mkdir(parents=True)
            (tmp_path / f"proc/{pid}/status").write_text(f"Name:\tpython3\nNSpid:\t{pid}\t{inside}\n")
        engine = Engine(top=(0, TOP, ""))
        found = smoke_run.stuck_processes(engine, "rackready-smoke-x", {0: 17, 3: 18, 5: 99}, tmp_path)
        assert found == {0: "process 4711 (state D, in nv_wait_for_gsp)", 3: "process 4712 (state Sl, in -)"}
        assert engine.asked == [["docker", "top", "rackready-smoke-x", "-eo", "pid,stat,wchan:48"]]

    @pytest.mark.parametrize("answer", [(1, "", "no such container"), (None, "", "no answer"), (0, "", "")])
    def test_an_engine_that_does_not_tell(self, tmp_path: Path, answer: tuple[int | None, str, str]) -> None:
        assert smoke_run.stuck_processes(Engine(top=answer), "x", {0: 17}, tmp_path) == {}


class TestTranscript:
    def test_everything_that_sound_ranks_say(self) -> None:
        transcript = Transcript(RUN, 2)
        assert all(transcript.take(line) for line in all_lines(2))
        for log in transcript.ranks.values():
            assert log.started and log.ended and log.stage is None
            assert log.results["matmul_exact.bf16"][0].status == "pass"
            assert log.found["torch"]["torch"] == "2.11.0"

    def test_the_last_stage_is_that_of_a_hang(self) -> None:
        now = iter([0.0, *range(100)])
        transcript = Transcript(RUN, 1, clock=lambda: next(now))
        transcript.feed(lines(0, rank_events(0, 1)[:9]))
        assert transcript.ranks[0].stage == ("matmul_exact.fp64", 8)
        assert not transcript.ranks[0].ended

    @pytest.mark.parametrize(
        "line",
        [
            "",
            "NCCL version 2.28.9+cuda13.0",
            "{}",
            "[1, 2]",
            '{"rackready_smoke"',
            '{"rackready_smoke":1,"run":"0123456789ab","rank":0,"seq":1,"event":"en',
            '{"rackready_smoke":2,"run":"0123456789ab","rank":0,"seq":1,"event":"end"}',
            '{"rackready_smoke":1,"run":"another","rank":0,"seq":1,"event":"end"}',
            '{"rackready_smoke":1,"run":"0123456789ab","rank":8,"seq":1,"event":"end"}',
            '{"rackready_smoke":1,"run":"0123456789ab","rank":-1,"seq":1,"event":"end"}',
            '{"rackready_smoke":1,"run":"0123456789ab","rank":"0","seq":1,"event":"end"}',
            '{"rackready_smoke":1,"run":"0123456789ab","rank":false,"seq":1,"event":"end"}',
            '{"rackready_smoke":1,"run":"0123456789ab","seq":1,"event":"end"}',
            '{"rackready_smoke":1,"run":"0123456789ab","rank":0,"seq":1,"event":7}',
            '{"rackready_smoke":1,"run":"0123456789ab","rank":0,"seq":1}',
            pytest.param('{"rackready_smoke":' + "[" * 50000, id="nested too deeply"),
        ],
    )
    def test_what_is_not_a_complete_line_of_this_run_counts_for_nothing(self, line: str) -> None:
        transcript = Transcript(RUN, 2)
        assert not transcript.take(line)
        assert not any(log.started or log.ended or log.results or log.stages for log in transcript.ranks.values())

    def test_a_foreign_half_line_before_ours_does_not_hide_it(self) -> None:
        transcript = Transcript(RUN, 1)
        assert transcript.take("loading libraries..." + lines(0, rank_events(0, 1))[-1] + " trailing")
        assert transcript.ranks[0].ended

    def test_a_repeated_line_counts_once_and_a_contradicting_one_counts_too(self) -> None:
        transcript = Transcript(RUN, 1)
        good = lines(0, [result("matmul_exact.fp64", "pass")])
        bad = lines(0, [{"event": "start"}, result("matmul_exact.fp64", "fail", "wrong")])[1:]
        transcript.feed([*good, *good, *bad])
        assert [r.status for r in transcript.ranks[0].results["matmul_exact.fp64"]] == ["pass", "fail"]

    def test_figures_are_kept_as_they_come(self) -> None:
        transcript = Transcript(RUN, 1)
        transcript.feed(lines(0, [{"event": "measured", "name": "memory.copy", "value": value} for value in ({"median": 1}, 2)]))
        assert transcript.ranks[0].measured == {"memory.copy": [{"median": 1}, 2]}

    @pytest.mark.parametrize(("pid", "known"), [(17, 17), (True, None), ("17", None), (None, None)])
    def test_the_process_id_of_a_rank(self, pid: object, known: int | None) -> None:
        transcript = Transcript(RUN, 1)
        transcript.feed(lines(0, [{"event": "start", "pid": pid}]))
        assert (transcript.ranks[0].started, transcript.ranks[0].pid) == (True, known)

    def test_a_duration_that_is_none_is_left_out(self) -> None:
        transcript = Transcript(RUN, 1)
        transcript.feed(lines(0, [{**result("matmul_exact.fp64", "pass"), "duration_s": 10**400}]))
        assert [r.duration_s for r in transcript.ranks[0].results["matmul_exact.fp64"]] == [None]

    def test_events_without_a_name_or_of_unknown_kind_are_nothing(self) -> None:
        transcript = Transcript(RUN, 1)
        transcript.feed(lines(0, [{"event": "stage"}, {"event": "check", "name": 3, "status": "pass"}, {"event": "dance", "name": "x"}]))
        assert not (transcript.ranks[0].stages or transcript.ranks[0].results or transcript.ranks[0].found)

    @given(st.lists(st.one_of(st.text(max_size=80), st.binary(max_size=80).map(lambda b: b.decode("latin-1")), st.sampled_from(all_lines(2))), max_size=20))
    def test_garbage_never_raises_and_never_becomes_a_result(self, given_lines: list[str]) -> None:
        transcript = Transcript(RUN, 2)
        transcript.feed(given_lines)
        ours = set(all_lines(2))
        results = sum(len(r) for log in transcript.ranks.values() for r in log.results.values())
        assert results <= len({line for line in given_lines if line in ours and '"check"' in line})

    @given(st.integers(0, 400))
    def test_a_line_cut_anywhere_is_no_result(self, at: int) -> None:
        line = lines(0, [result("matmul_exact.fp64", "pass", None, {"elements": 4})])[0]
        transcript = Transcript(RUN, 1)
        transcript.take(line[:at])
        assert bool(transcript.ranks[0].results) == (at >= len(line))


def test_the_rank_that_crashed_is_read_from_torchruns_words() -> None:
    assert crashed_rank(TORCHRUN_CRASH.splitlines()) == (1, -11)
    assert crashed_rank(["rank : 3", "exitcode : 1"]) is None
    assert crashed_rank([]) is None
