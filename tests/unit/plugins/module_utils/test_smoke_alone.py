# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command with which a host tests itself: exit statuses, what it prints and keeps, what becomes of the stamp, and the real program in one file."""

from __future__ import annotations

import fcntl
import io
import json
import os
import signal
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import facts, smoke_alone, smoke_machine, smoke_test, stamp, tool_archive
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_alone import ACCEPTED, INCOMPLETE, NOT_TESTED, REJECTED, UNUSABLE
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import Look, Machine
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container, Outcome
from ansible_collections.rackready.gpu.plugins.module_utils.units import UnitsError
from ansible_collections.rackready.gpu.plugins.modules import gpu_smoke_test

from tests.unit.hosts import CONVERGED, facts_for
from tests.unit.plans import plan_for
from tests.unit.playbooks import ROOT
from tests.unit.plugins.module_utils.test_tool_archive import OTHER_PYTHONS
from tests.unit.smoke_fakes import rank_events, result
from tests.unit.smoke_hosts import CPU, OLD, STAMP, WORLD, Host, floors_of, request

SCHEMA = json.loads((ROOT / "plugins/plugin_utils/schemas/verify.schema.json").read_text(encoding="utf-8"))


def asked(**changes: Any) -> dict[str, Any]:
    """A request as the plan writes it."""
    made = {name: value for name, value in request(timeout=None, floors=floors_of("burn"))._asdict().items() if name not in ("bought", "planned", "shm_size")}
    return {**made, "expected": {"model": "h100-sxm5-80gb", "count": WORLD}, "burn_minutes": 10, "data_paths": [], **changes}


class Alone:
    """A host with its request, on which the command is called in this process."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.host = Host(folder)
        self.state = self.host.state_dir
        self.request = folder / "verify.json"
        self.monkeypatch = monkeypatch
        self.capsys = capsys
        self.ask()
        monkeypatch.setattr(smoke_alone, "REQUEST", self.request)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setattr(smoke_machine, "real_machine", lambda gather, timeout: self.machine())
        # Where the command looks without a machine, and its default is bound already.
        monkeypatch.setattr(stamp, "STATE_DIR", self.state)
        monkeypatch.setattr(stamp.read, "__defaults__", (self.state,))

    def machine(self) -> Machine:
        return self.host.machine()

    def ask(self, **changes: Any) -> None:
        self.request.write_text(json.dumps(asked(**changes)), encoding="utf-8")

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, standard output and standard error."""
        code = smoke_alone.main(arguments)
        told = self.capsys.readouterr()
        return code, told.out, told.err

    def json(self, *arguments: str) -> dict[str, Any]:
        """What --json says, which must be as its schema says and say the exit status."""
        code, out, _err = self.run("--json", *arguments)
        told: dict[str, Any] = json.loads(out)
        jsonschema.Draft202012Validator(SCHEMA).validate(told)
        assert told["exit_status"] == code
        return told

    @property
    def kept(self) -> dict[str, Any] | None:
        """The result that lies on the host, which must be as its schema says."""
        path = self.state / smoke_alone.LAST
        if not path.exists():
            return None
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        jsonschema.Draft202012Validator(SCHEMA).validate(told)
        return told


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    before = {number: signal.getsignal(number) for number in smoke_alone.ENDINGS}
    yield Alone(tmp_path, monkeypatch, capsys)
    for number, handler in before.items():
        signal.signal(number, handler)


def wrong_product(host: Host) -> None:
    events = [rank_events(rank, WORLD) for rank in range(WORLD)]
    at = next(index for index, event in enumerate(events[1]) if event.get("name") == "matmul_exact.fp8" and event["event"] == "check")
    events[1][at] = result("matmul_exact.fp8", "fail", "1 of 9 elements are wrong")
    host.runs[0].events = events


def silent(host: Host) -> None:
    host.runs[0].events = [[], []]
    host.runs[0].child = {"exit_code": None, "timed_out": True, "seconds": 270.0}


def no_engine(host: Host) -> None:
    host.engine_error = "docker could not be started"


def in_use(host: Host) -> None:
    facts = facts_for(**{**CONVERGED, "gpus": WORLD})
    facts["holders"].append({"device": "/dev/nvidia0", "pid": 7, "command": "train", "unit": None, "container": None, "role": "workload"})
    host.facts = [facts]


def gpu_gone(host: Host) -> None:
    host.facts = [facts_for(**{**CONVERGED, "gpus": 1})]


def in_use_and_gone(host: Host) -> None:
    in_use(host)
    host.facts[0]["gpus"] = host.facts[0]["gpus"][:1]


def in_use_and_exclusive(host: Host) -> None:
    in_use(host)
    host.facts[0]["nvidia_smi"]["gpus"][0]["compute_mode"] = "Prohibited"


def in_use_and_hung(host: Host) -> None:
    in_use(host)
    host.facts[0]["nvidia_smi"].update(state="hung", gpus=[])


class TestExitStatus:
    @pytest.mark.parametrize(("backend", "verdict"), [("cuda", "accepted"), ("cpu", "simulated")])
    def test_accepted_and_simulated_are_0(self, alone: Alone, backend: str, verdict: str) -> None:
        alone.ask(backend=backend, **({"not_applicable": CPU} if backend == "cpu" else {}))
        told = alone.json()
        assert (told["verdict"], told["exit_status"], told["container_started"]) == (verdict, 0, True)

    @pytest.mark.parametrize(
        ("what", "code", "verdict"),
        [
            (wrong_product, REJECTED, "rejected"),
            (gpu_gone, REJECTED, "rejected"),
            (silent, INCOMPLETE, "incomplete"),
            (no_engine, INCOMPLETE, "incomplete"),
            (in_use, NOT_TESTED, "incomplete"),
            # What was seen to be wrong counts, whoever uses the GPUs.
            (in_use_and_gone, REJECTED, "rejected"),
            (in_use_and_hung, REJECTED, "rejected"),
            # Where something else needs mending too it is no host that is only busy: a prolog that lets 3 pass must not let it pass.
            (in_use_and_exclusive, INCOMPLETE, "incomplete"),
        ],
    )
    def test_what_else_comes_of_a_test(self, alone: Alone, what: Callable[[Host], None], code: int, verdict: str) -> None:
        what(alone.host)
        told = alone.json()
        assert (told["exit_status"], told["verdict"]) == (code, verdict)

    def test_another_test_that_runs_is_3(self, alone: Alone) -> None:
        alone.host.with_stamp(OLD)
        with (alone.state / smoke_test.LOCK).open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            told = alone.json()
        assert (told["exit_status"], told["stamp"], alone.host.containers) == (NOT_TESTED, OLD, [])
        assert "another smoke test of this host is running" in told["reason"]

    def test_gpus_that_are_taken_while_it_runs_are_an_incomplete_test_and_not_one_that_was_never_made(self) -> None:
        check = {"name": "gpu_idle", "status": "could_not_run", "required": True, "reason": "in use"}
        assert smoke_alone.exit_status({"verdict": "incomplete", "checks": [check], "container_started": True}) == INCOMPLETE
        assert smoke_alone.exit_status({"verdict": "incomplete", "checks": [check], "container_started": False}) == NOT_TESTED

    @pytest.mark.parametrize(
        ("changes", "code"),
        [({}, INCOMPLETE), ({"required": False}, NOT_TESTED), ({"status": "pass"}, NOT_TESTED), ({"reason": "there is no result of it"}, NOT_TESTED)],
    )
    def test_only_what_is_required_and_could_not_run_for_a_reason_of_its_own_makes_it_more_than_busy(self, changes: dict[str, Any], code: int) -> None:
        busy = {"name": "gpu_idle", "status": "could_not_run", "required": True, "reason": "in use"}
        other = {"name": "fabric", "status": "could_not_run", "required": True, "reason": "it does not answer", **changes}
        assert smoke_alone.exit_status({"verdict": "incomplete", "checks": [busy, other], "container_started": False}) == code

    def test_an_incomplete_test_without_any_check_is_2(self) -> None:
        assert smoke_alone.exit_status({"verdict": "incomplete", "checks": [], "container_started": False}) == INCOMPLETE

    @pytest.mark.parametrize("error", [UnitsError("systemd does not answer"), OSError(28, "No space left on device")])
    def test_a_host_that_cannot_be_read_is_2(self, alone: Alone, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        def run_test(*_arguments: Any) -> dict[str, Any]:
            raise error

        monkeypatch.setattr(smoke_test, "run_test", run_test)
        told = alone.json()
        assert (told["exit_status"], told["verdict"], told["tier"]) == (INCOMPLETE, "incomplete", "quick")
        assert (told["image"], told["backend"]) == (asked()["image"], "cuda")
        assert told["reason"] == f"the smoke test could not be made: {error}"

    @pytest.mark.parametrize("error", [KeyError("nvidia_smi"), RecursionError("too deep"), MemoryError()])
    def test_a_mistake_of_ours_rejects_no_host(
        self, alone: Alone, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception
    ) -> None:
        """Left to Python its exit status would be 1."""

        def run_test(*_arguments: Any) -> dict[str, Any]:
            raise error

        monkeypatch.setattr(smoke_test, "run_test", run_test)
        code, out, err = alone.run()
        assert code == INCOMPLETE
        assert f"broke off with {type(error).__name__}" in out and "report it" in out
        assert "Traceback" in err
        assert alone.kept is not None

    @pytest.mark.parametrize(("path", "searched"), [(None, "/usr/bin"), ("/opt/site", "/opt/site")])
    def test_without_a_search_path_as_in_a_prolog_of_slurm_the_usual_one_is_taken(
        self, alone: Alone, monkeypatch: pytest.MonkeyPatch, path: str | None, searched: str
    ) -> None:
        if path is None:
            monkeypatch.delenv("PATH")
        else:
            monkeypatch.setenv("PATH", path)
        assert alone.run()[0] == ACCEPTED
        assert searched in os.environ["PATH"].split(":")
        assert path in (None, os.environ["PATH"])

    def test_a_user_who_is_not_root_is_told_so(self, alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: 1000)
        code, out, err = alone.run()
        assert (code, out) == (UNUSABLE, "")
        assert err == "rackready-verify: rackready-verify runs as user 1000 and needs root, since who holds a GPU is hidden from others\n"

    @pytest.mark.parametrize("arguments", [["--tier", "long"], ["--teir", "quick"], ["quick"], ["--tier"]])
    def test_a_wrong_call_is_no_incomplete_test(self, alone: Alone, arguments: list[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            smoke_alone.main(arguments)
        assert ended.value.code == UNUSABLE
        assert alone.capsys.readouterr().err.splitlines()[-1].startswith("rackready-verify: ")
        assert alone.host.containers == []


class TestTheRequest:
    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (None, "cannot be read"),
            (b"", "cannot be used"),
            (json.dumps(asked()).encode()[:-40], "cannot be used"),
            (b"\xff\xfe", "cannot be used"),
            (b"[" * 100_000, "cannot be used"),
            (b"null", "none of this version"),
            (b"[]", "none of this version"),
            (b"{}", "none of this version"),
            (json.dumps({**asked(), "gpus": ["0000:1a:00.0"]}).encode(), "none of this version"),
            (json.dumps({**asked(), "env": ["A=1"]}).encode(), "none of this version"),
            (json.dumps({**asked(), "image": "pytorch:latest"}).encode(), "not given by digest"),
            (json.dumps({**asked(), "tier": "long", "stamp": {**STAMP, "tier": "long"}}).encode(), "tier 'long' is not one of quick, accept, burn"),
            (json.dumps({**asked(), "backend": "rocm"}).encode(), "backend 'rocm' is not one of cuda, cpu"),
            (json.dumps({**asked(), "degraded": "ignore"}).encode(), "degraded 'ignore' is not one of accept, reject"),
            (json.dumps({**asked(), "gpus": []}).encode(), "no GPUs are given"),
        ],
    )
    def test_one_that_cannot_be_used_is_64_and_one_sentence_with_what_to_do(self, alone: Alone, text: bytes | None, words: str) -> None:
        alone.host.with_stamp(OLD)
        if text is None:
            alone.request.unlink()
        else:
            alone.request.write_bytes(text)
        code, out, err = alone.run()
        assert (code, out) == (UNUSABLE, "")
        assert err.count("\n") == 1 and err.endswith("run site.yml for this host, which writes it\n")
        assert words in err and str(alone.request) in err
        assert (alone.host.stamp, alone.host.containers, alone.kept) == (OLD, [], None)
        told = alone.json()
        assert (told["exit_status"], told["verdict"], told["tier"], told["stamp"]) == (UNUSABLE, "incomplete", None, OLD)

    def test_a_burn_that_was_planned_without_its_minutes_is_refused_and_not_started(self, alone: Alone) -> None:
        alone.ask(burn_minutes=0)
        assert alone.json("--tier", "burn")["exit_status"] == UNUSABLE
        assert alone.json("--tier", "quick")["exit_status"] == ACCEPTED

    @pytest.mark.parametrize("arguments", [[], ["--tier", "accept"]])
    def test_one_whose_stamp_says_something_else_than_is_tested_is_refused_in_every_tier(self, alone: Alone, arguments: list[str]) -> None:
        alone.ask(stamp={**STAMP, "tier": "burn"})
        assert alone.json(*arguments)["exit_status"] == UNUSABLE

    def test_the_plans_own_words_are_one(self, alone: Alone) -> None:
        desired = plan_for(facts_for(**CONVERGED))["areas"]["smoke_test"]["desired"]
        alone.request.write_text(json.dumps(desired), encoding="utf-8")
        assert smoke_alone.read_request(None).tier == desired["tier"]
        assert len(smoke_alone.read_request("accept").gpus) == 8

    @pytest.mark.parametrize(("expected", "bought"), [({"model": "h100-sxm5-80gb", "count": 4}, ("h100-sxm5-80gb", 4)), (None, None)])
    def test_what_was_bought_is_compared_where_the_site_says_it(self, alone: Alone, expected: Any, bought: Any) -> None:
        alone.ask(expected=expected)
        assert smoke_alone.read_request(None).bought == bought
        assert alone.json()["exit_status"] == (REJECTED if expected else ACCEPTED)

    def test_the_planned_tier_is_tested_unless_another_is_asked_for(self, alone: Alone) -> None:
        assert [alone.json()["tier"], alone.json("--tier", "accept")["tier"]] == ["quick", "accept"]
        assert [container.tier for container in alone.host.containers] == ["quick", "accept"]


class TestWhatIsToldAndKept:
    def test_the_table_begins_with_host_and_verdict(self, alone: Alone) -> None:
        code, out, err = alone.run()
        assert (code, err) == (ACCEPTED, "")
        first, *_rest = out.splitlines()
        assert first.startswith(f"{os.uname().nodename}: ACCEPTED (tier quick, ")
        assert out.isascii()

    def test_the_result_is_kept_as_it_was_told_readable_for_monitoring(self, alone: Alone) -> None:
        assert alone.json() == alone.kept
        assert stat.S_IMODE((alone.state / smoke_alone.LAST).stat().st_mode) == 0o644

    @pytest.mark.parametrize(("what", "code"), [(wrong_product, REJECTED), (silent, INCOMPLETE)])
    def test_also_of_a_test_that_did_not_end_well(self, alone: Alone, what: Callable[[Host], None], code: int) -> None:
        what(alone.host)
        assert alone.json() == alone.kept
        assert alone.kept is not None and alone.kept["exit_status"] == code

    def test_what_tested_nothing_hides_nothing(self, alone: Alone) -> None:
        """So that monitoring on a busy host still sees that it was rejected."""
        wrong_product(alone.host)
        before = alone.json()
        in_use(alone.host)
        assert alone.json()["exit_status"] == NOT_TESTED
        assert alone.kept == before

    def test_that_it_cannot_be_kept_is_told_and_changes_nothing(self, alone: Alone) -> None:
        (alone.state / smoke_alone.LAST).mkdir(parents=True)
        code, out, err = alone.run()
        assert code == ACCEPTED and "ACCEPTED" in out
        assert err.startswith(f"rackready-verify: the result could not be kept in {alone.state / smoke_alone.LAST}: ")


def stamped(tier: str) -> dict[str, Any]:
    return {**OLD, "tier": tier}


class Gone(io.StringIO):
    """Standard output whose reader has left."""

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")


@pytest.mark.parametrize("arguments", [[], ["--json"]])
def test_a_reader_who_left_is_told_and_python_has_nothing_left_to_write(
    alone: Alone, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    given: list[tuple[str, int]] = []
    monkeypatch.setattr(sys, "stdout", Gone())
    monkeypatch.setattr(os, "dup2", lambda source, target: given.append((str(Path(f"/proc/self/fd/{source}").readlink()), target)))
    assert smoke_alone.main(arguments) == ACCEPTED
    assert given == [("/dev/null", 1)]
    assert capsys.readouterr().err == "rackready-verify: the result could not be printed: Broken pipe\n"


class TestStamp:
    def test_the_planned_tier_writes_it(self, alone: Alone) -> None:
        told = alone.json()
        assert told["stamp"] == alone.host.stamp == {**STAMP, "schema": 1, "verdict": "accepted", "time": "2026-12-01T04:00:00Z"}

    def test_a_deeper_tier_writes_its_own(self, alone: Alone) -> None:
        alone.host.with_stamp(OLD)
        assert alone.json("--tier", "accept")["stamp"]["tier"] == "accept"

    @pytest.mark.parametrize("before", ["accept", "burn"])
    def test_a_shallower_tier_that_passes_leaves_a_deeper_one(self, alone: Alone, before: str) -> None:
        """The timer's quick test must not make the next site.yml repeat an hour of burn."""
        alone.ask(tier="accept", stamp={**STAMP, "tier": "accept"})
        alone.host.with_stamp(stamped(before))
        assert alone.json("--tier", "quick")["stamp"] == alone.host.stamp == stamped(before)

    @pytest.mark.parametrize("change", [{"driver": "570.1"}, {"image_digest": "sha256:" + "0" * 64}, {"gpus": ["GPU-x"]}, {"verdict": "simulated"}])
    def test_but_not_one_of_something_else(self, alone: Alone, change: dict[str, Any]) -> None:
        alone.ask(tier="accept", stamp={**STAMP, "tier": "accept"})
        alone.host.with_stamp({**stamped("burn"), **change})
        assert alone.json("--tier", "quick")["stamp"]["tier"] == "quick"
        assert alone.host.stamp["driver"] == STAMP["driver"]

    def test_the_planned_tier_replaces_also_a_deeper_one(self, alone: Alone) -> None:
        alone.host.with_stamp(stamped("burn"))
        assert alone.json()["stamp"]["tier"] == "quick"

    @pytest.mark.parametrize("what", [wrong_product, silent, gpu_gone])
    @pytest.mark.parametrize("tier", ["quick", "accept"])
    def test_a_failure_withdraws_it_in_whichever_tier(self, alone: Alone, what: Callable[[Host], None], tier: str) -> None:
        alone.host.with_stamp(stamped("burn"))
        what(alone.host)
        told = alone.json("--tier", tier)
        assert told["exit_status"] in (REJECTED, INCOMPLETE)
        assert (told["stamp"], alone.host.stamp) == (None, None)

    @pytest.mark.parametrize("what", [in_use, no_engine])
    def test_where_nothing_was_started_it_stays(self, alone: Alone, what: Callable[[Host], None]) -> None:
        alone.host.with_stamp(OLD)
        what(alone.host)
        assert alone.json()["stamp"] == alone.host.stamp == OLD

    def test_it_is_written_also_where_nobody_listens(self, alone: Alone) -> None:
        """Unlike Ansible's module, whose result would be lost, the command keeps its own."""
        alone.host.heard = False
        assert alone.json()["stamp"]["tier"] == "quick"

    def test_a_mistake_in_the_middle_tells_that_it_is_gone(self, alone: Alone) -> None:
        alone.host.with_stamp(OLD)

        def broken(container: Container, look: Look) -> Outcome:
            raise KeyError("rank")

        machine = alone.host.machine()._replace(run_container=broken)
        alone.machine = lambda: machine  # type: ignore[method-assign]
        told = alone.json()
        assert (told["exit_status"], told["stamp"], alone.host.stamp) == (INCOMPLETE, None, None)


def test_the_host_is_read_with_the_patience_that_the_module_has(alone: Alone, monkeypatch: pytest.MonkeyPatch) -> None:
    patience: list[float] = []

    def machine(gather: Callable[[], Any], timeout: float) -> Machine:
        patience.append(timeout)
        gather()
        return alone.host.machine()

    monkeypatch.setattr(smoke_machine, "real_machine", machine)
    monkeypatch.setattr(facts, "gather", patience.append)
    assert alone.run()[0] == ACCEPTED
    assert patience == [gpu_smoke_test.ARGUMENTS["smi_timeout"]["default"]] * 2


def test_a_second_signal_does_not_break_off_the_ending(alone: Alone) -> None:
    alone.run()
    assert {signal.getsignal(number) for number in smoke_alone.ENDINGS} == {smoke_alone.ended_from_outside}
    with pytest.raises(SystemExit) as ended:
        smoke_alone.ended_from_outside(signal.SIGTERM, None)
    assert ended.value.code == 143
    assert {signal.getsignal(number) for number in smoke_alone.ENDINGS} == {signal.SIG_IGN}


# --- as a process -----------------------------------------------------------------------------------------------------------------------

ENGINE = """\
#!/bin/sh
echo "$@" >>{log}
case "$1" in
  run) exec sleep 60 ;;
esac
"""
TEST_IN_A_PROCESS = """
import sys
from pathlib import Path
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_alone, smoke_machine, stamp
from tests.unit.smoke_hosts import OLD, Host
folder = Path(sys.argv[1])
host = Host(folder).with_stamp(OLD)
smoke_alone.REQUEST = folder / "verify.json"
smoke_alone.os.geteuid = lambda: 0
stamp.STATE_DIR = host.state_dir
machine = host.machine()._replace(run_container=smoke_machine.run_container)
smoke_machine.real_machine = lambda gather, timeout: machine
sys.exit(smoke_alone.main([]))
"""


@pytest.mark.parametrize("number", smoke_alone.ENDINGS)
def test_a_signal_ends_the_container_and_withdraws_the_stamp(tmp_path: Path, number: signal.Signals) -> None:
    """As systemctl stop, a closed terminal and Ctrl-C do it; the engine's client is real, what answers it is not."""
    log, tools = tmp_path / "log", tmp_path / "bin"
    tools.mkdir()
    (tools / "docker").write_text(ENGINE.format(log=log), encoding="utf-8")
    (tools / "docker").chmod(0o755)
    (tmp_path / "verify.json").write_text(json.dumps(asked()), encoding="utf-8")
    environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "PYTHONPATH": f"{ROOT / 'collections'}:{ROOT}"}
    with subprocess.Popen([sys.executable, "-c", TEST_IN_A_PROCESS, str(tmp_path)], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        until = time.monotonic() + 60
        while not (log.exists() and "run" in log.read_text(encoding="utf-8")):
            assert time.monotonic() < until and process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 128 + number, err
    assert (out, err) == (b"", b"")
    asked_for = [line.split()[0] for line in log.read_text(encoding="utf-8").splitlines()]
    assert [word for word in asked_for if word in ("run", "kill", "rm")] == ["run", "kill", "rm"]
    # No stamp, no payload, and no result of a test that has none.
    assert [path.name for path in (tmp_path / "rackready").iterdir()] == [smoke_test.LOCK]


def program(folder: Path) -> Path:
    """The command as it is installed, but with its request and its state in a folder."""
    path = folder / "rackready-verify"
    with zipfile.ZipFile(io.BytesIO(tool_archive.build("smoke_alone"))) as built, zipfile.ZipFile(path, "w") as changed:
        for member in built.infolist():
            text = built.read(member).decode("utf-8")
            text = text.replace('Path("/etc/rackready/', f'Path("{folder}/').replace('Path("/var/lib/rackready")', f'Path("{folder}/state")')
            changed.writestr(member.filename, text)
    return path


def start(python: str, tool: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As the kernel starts it, in an empty folder and with no engine."""
    nothing = tool.parent / "empty"
    nothing.mkdir(exist_ok=True)
    environment = {"PATH": str(nothing), "LC_ALL": "C"}
    return subprocess.run([python, "-I", str(tool), *arguments], env=environment, cwd=nothing, capture_output=True, text=True, check=False, timeout=120)


AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="the command needs root")


@pytest.mark.parametrize("python", [sys.executable, *OTHER_PYTHONS], ids=lambda path: Path(path).name)
class TestArchivedProgram:
    def test_its_help_names_every_exit_status(self, python: str, tmp_path: Path) -> None:
        ran = start(python, program(tmp_path), "--help")
        assert (ran.returncode, ran.stderr) == (0, "")
        lines = [line.strip().partition(" ")[0] for line in ran.stdout.partition("exit status:")[2].splitlines()]
        assert {str(code) for code in (ACCEPTED, REJECTED, INCOMPLETE, NOT_TESTED, UNUSABLE)} <= set(lines)

    def test_a_wrong_call_is_64(self, python: str, tmp_path: Path) -> None:
        ran = start(python, program(tmp_path), "--tier", "long")
        assert (ran.returncode, ran.stdout) == (UNUSABLE, "")
        assert "invalid choice" in ran.stderr

    @AS_ROOT
    def test_a_request_that_is_not_there_is_64_and_one_sentence(self, python: str, tmp_path: Path) -> None:
        ran = start(python, program(tmp_path))
        assert (ran.returncode, ran.stdout) == (UNUSABLE, "")
        sentence = f"the request of this host cannot be read ({tmp_path}/verify.json: No such file or directory): run site.yml for this host, which writes it"
        assert ran.stderr == f"rackready-verify: {sentence}\n"

    @AS_ROOT
    def test_a_host_without_the_planned_gpus_is_read_and_rejected(self, python: str, tmp_path: Path) -> None:
        """The whole of it on the machine that runs the tests, whose bus has no GPU at this address."""
        gpus = [{**asked()["gpus"][0], "pci_bus_id": "ffff:ff:1f.0"}]
        (tmp_path / "verify.json").write_text(json.dumps(asked(gpus=gpus, stamp={**STAMP, "gpus": None})), encoding="utf-8")
        ran = start(python, program(tmp_path), "--json")
        assert ran.stderr == ""
        told = json.loads(ran.stdout)
        jsonschema.Draft202012Validator(SCHEMA).validate(told)
        assert (ran.returncode, told["exit_status"], told["verdict"], told["container_started"]) == (REJECTED, REJECTED, "rejected", False)
        assert "the PCI bus lacks ffff:ff:1f.0" in json.dumps(told["checks"])
        assert json.loads((tmp_path / "state" / smoke_alone.LAST).read_text(encoding="utf-8")) == told


@AS_ROOT
@pytest.mark.parametrize("arguments", [["--json"], []])
def test_of_the_archive_a_reader_who_left_does_not_change_the_exit_status(tmp_path: Path, arguments: list[str]) -> None:
    """As `rackready-verify | head -1` does; Python would end with 1 or 120."""
    gpus = [{**asked()["gpus"][0], "pci_bus_id": "ffff:ff:1f.0"}]
    (tmp_path / "verify.json").write_text(json.dumps(asked(gpus=gpus, stamp={**STAMP, "gpus": None}, degraded="reject")), encoding="utf-8")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-I", str(program(tmp_path)), *arguments]
        ran = subprocess.run(command, env={"PATH": str(tmp_path / "none")}, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, timeout=120)
    finally:
        os.close(writing)
    assert ran.returncode == REJECTED
    assert ran.stderr == "rackready-verify: the result could not be printed: Broken pipe\n"
    assert (tmp_path / "state" / smoke_alone.LAST).exists()
