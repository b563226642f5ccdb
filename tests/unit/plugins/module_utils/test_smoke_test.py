# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole smoke test on a double of a host: what starts a container, what does not, and what becomes of the stamp."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_machine, smoke_payload, smoke_test
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import Look, payload_source
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import RequestError
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container, Outcome, build_command
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_test import run_test

from tests.unit.hosts import BUS_IDS, CONVERGED, facts_for
from tests.unit.smoke_fakes import IMAGE, Event, rank_events, result, uuid_of
from tests.unit.smoke_hosts import CPU, EXCUSES, OLD, STAMP, WORLD, Host, request

SCHEMAS = Path(__file__).parents[4] / "plugins/plugin_utils/schemas"
ROOT = Path(__file__).parents[4]
PAYLOAD = {path.name: path.read_text(encoding="utf-8") for path in Path(smoke_payload.__path__[0]).glob("*.py")}
READ_PAYLOAD = """
import json, sys
sys.path.insert(0, sys.argv[1])
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_machine
print(json.dumps(smoke_machine.payload_source()))
"""


def busy() -> dict[str, Any]:
    facts = facts_for(**{**CONVERGED, "gpus": WORLD})
    facts["holders"].append({"device": "/dev/nvidia0", "pid": 7, "command": "train", "unit": None, "container": None, "role": "workload"})
    return facts


def registering(state: str = "In Progress") -> dict[str, Any]:
    facts = facts_for(**{**CONVERGED, "gpus": WORLD})
    facts["nvidia_smi"]["gpus"][0]["fabric"] = {"state": state, "status": None}
    return facts


def one_wrong() -> list[list[Event]]:
    events = [rank_events(rank, WORLD) for rank in range(WORLD)]
    at = next(index for index, event in enumerate(events[1]) if event.get("name") == "matmul_exact.fp8" and event["event"] == "check")
    events[1][at] = result("matmul_exact.fp8", "fail", "1 of 9 elements are wrong")
    return events


def valid(schema: str, value: object) -> None:
    jsonschema.Draft202012Validator(json.loads((SCHEMAS / f"{schema}.schema.json").read_text(encoding="utf-8"))).validate(value)


class TestVerdicts:
    @pytest.mark.parametrize(("backend", "verdict"), [("cuda", "accepted"), ("cpu", "simulated")])
    def test_a_sound_host_gets_its_stamp(self, tmp_path: Path, backend: str, verdict: str) -> None:
        host = Host(tmp_path)
        returned = run_test(request(backend=backend, not_applicable=CPU if backend == "cpu" else EXCUSES), host.machine())
        assert (returned["verdict"], returned["changed"]) == (verdict, True), returned["reason"]
        assert host.stamp == {**STAMP, "schema": 1, "verdict": verdict, "time": "2026-12-01T04:00:00Z"} == returned["stamp"]
        assert stat.S_IMODE((host.state_dir / "stamp.json").stat().st_mode) == 0o644
        assert returned["torch"]["torch"] == "2.11.0"
        valid("stamp", host.stamp)
        for check in returned["checks"]:
            valid("check", check)

    def test_each_check_of_each_gpu_is_told_once(self, tmp_path: Path) -> None:
        """What is looked at before and after the work is told as it was after it."""
        told = [(check["name"], str(check["gpu"])) for check in run_test(request(), Host(tmp_path).machine())["checks"]]
        assert {"gpu_count", "gpu_model", "gpu_memory", "device_nodes", "gpu_health"} <= {name for name, _gpu in told}
        assert sorted(told) == sorted(set(told))

    def test_uuids_that_the_plan_could_not_know_are_filled_in(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        run_test(request(stamp={**STAMP, "gpus": None}), host.machine())
        assert host.stamp["gpus"] == [uuid_of(0), uuid_of(1)]

    def test_a_new_test_renews_the_stamp(self, tmp_path: Path) -> None:
        host = Host(tmp_path).with_stamp(OLD)
        returned = run_test(request(), host.machine())
        assert (returned["changed"], returned["diff"]["before"]["time"], host.stamp["time"]) == (True, OLD["time"], "2026-12-01T04:00:00Z")

    def test_a_success_that_nobody_hears_of_leaves_no_stamp_so_that_the_next_run_tests_again(self, tmp_path: Path) -> None:
        host = Host(tmp_path).with_stamp(OLD)
        host.heard = False
        found = run_test(request(), host.machine())
        assert host.containers and found["verdict"] == "accepted"
        assert found["stamp"] is None and host.stamp is None

    def test_a_failed_test_withdraws_the_stamp(self, tmp_path: Path) -> None:
        host = Host(tmp_path, events=one_wrong()).with_stamp(OLD)
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], returned["changed"], returned["stamp"], host.stamp) == ("rejected", True, None, None)
        assert returned["diff"] == {"before": OLD, "after": {}}

    def test_a_failed_test_without_a_stamp_changes_nothing(self, tmp_path: Path) -> None:
        returned = run_test(request(), Host(tmp_path, events=one_wrong()).machine())
        assert (returned["verdict"], returned["changed"], returned["stamp"]) == ("rejected", False, None)

    def test_a_test_that_was_started_and_could_not_be_finished_withdraws_it_too(self, tmp_path: Path) -> None:
        host = Host(tmp_path, events=[[], []], exit_code=None, timed_out=True, seconds=270.0).with_stamp(OLD)
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], host.stamp) == ("incomplete", None)

    def test_a_gpu_that_is_gone_rejects_without_a_container_and_withdraws_it(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [facts_for(**{**CONVERGED, "gpus": 1})]).with_stamp(OLD)
        returned = run_test(request(stamp={**STAMP, "gpus": None}), host.machine())
        assert (returned["verdict"], returned["container_started"], host.containers, host.stamp) == ("rejected", False, [], None)
        assert "the PCI bus lacks 0000:1b:00.0" in returned["reason"]

    def test_a_busy_gpu_starts_nothing_and_keeps_the_stamp(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [busy()]).with_stamp(OLD)
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], returned["container_started"], host.containers) == ("incomplete", False, [])
        assert (returned["changed"], returned["stamp"], host.stamp) == (False, OLD, OLD)
        assert returned["reason"].startswith("gpu_idle could not run: the GPUs are in use, so nothing was started: /dev/nvidia0 is open in process 7 (train)")

    def test_other_cards_than_the_stamp_names(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        returned = run_test(request(stamp={**STAMP, "gpus": ["GPU-x", "GPU-y"]}), host.machine())
        assert (returned["verdict"], host.containers) == ("rejected", [])
        assert "the plan names the GPUs GPU-x, GPU-y" in returned["reason"]

    def test_another_driver_than_the_stamp_names(self, tmp_path: Path) -> None:
        returned = run_test(request(stamp={**STAMP, "driver": "570.1"}), Host(tmp_path).machine())
        assert (returned["verdict"], returned["container_started"]) == ("rejected", False)

    def test_an_engine_that_does_not_answer(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.engine_error = "docker could not be started"
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], host.containers) == ("incomplete", [])
        assert returned["reason"].startswith("container_run could not run: docker ps: docker could not be started")

    def test_degraded_policy_reaches_the_verdict(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="policy"):
            run_test(request(degraded="sometimes"), Host(tmp_path).machine())


class TestTheStampWhileTheTestRuns:
    """An accepted stamp must not outlive a test that did not end well, however it ended."""

    @pytest.mark.parametrize("ending", [SystemExit(143), KeyboardInterrupt(), OSError(5, "Input/output error"), MemoryError()])
    def test_a_test_that_is_torn_down_leaves_none(self, tmp_path: Path, ending: BaseException) -> None:
        host = Host(tmp_path).with_stamp(OLD)

        def torn(container: Container, look: Look) -> Outcome:
            raise ending

        with pytest.raises(type(ending)):
            run_test(request(), host.machine()._replace(run_container=torn))
        assert host.stamp is None

    def test_it_is_gone_before_the_container_is_started(self, tmp_path: Path) -> None:
        """So that a host which dies in the middle comes back without it."""
        host = Host(tmp_path).with_stamp(OLD)
        seen: list[Any] = []

        def watched(container: Container, look: Look) -> Outcome:
            seen.append(host.stamp)
            return host.run_container(container, look)

        returned = run_test(request(), host.machine()._replace(run_container=watched))
        assert (seen, returned["verdict"], returned["diff"]["before"]) == ([None], "accepted", OLD)
        assert host.stamp["time"] == "2026-12-01T04:00:00Z"

    @pytest.mark.parametrize("what", ["busy", "engine", "other_test"])
    def test_where_nothing_was_started_it_stays(self, tmp_path: Path, what: str) -> None:
        host = Host(tmp_path, [busy()] if what == "busy" else None).with_stamp(OLD)
        host.engine_error = "docker could not be started" if what == "engine" else None
        with (host.state_dir / smoke_test.LOCK).open("w", encoding="utf-8") as lock:
            if what == "other_test":
                fcntl.flock(lock, fcntl.LOCK_EX)
            returned = run_test(request(), host.machine())
        assert (returned["verdict"], returned["changed"], returned["stamp"], host.stamp) == ("incomplete", False, OLD, OLD)


def sick(**change: Any) -> dict[str, Any]:
    facts = facts_for(**{**CONVERGED, "gpus": WORLD})
    facts["nvidia_smi"]["gpus"][1].update(change)
    return facts


class TestHealth:
    def test_a_sick_gpu_is_not_tested_any_further(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [sick(remapped_rows={"pending": True, "failure": False})]).with_stamp(OLD)
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], host.containers, host.stamp) == ("rejected", [], None)

    def test_errors_that_the_test_brings_out_count(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [sick(), sick(ecc={"volatile_uncorrectable": 1, "aggregate_uncorrectable": 1})])
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], returned["container_started"], host.stamp) == ("rejected", True, None)
        assert returned["reason"].startswith(f"gpu_health on GPU {BUS_IDS[1]}")
        assert len([check for check in returned["checks"] if check["name"] == "gpu_health"]) == WORLD

    def test_a_driver_that_hangs_after_the_test_is_no_pass(self, tmp_path: Path) -> None:
        hung = sick()
        hung["nvidia_smi"].update(state="hung", gpus=[])
        returned = run_test(request(), Host(tmp_path, [sick(), hung]).machine())
        assert returned["verdict"] == "incomplete"

    def test_a_test_whose_time_is_up_does_not_ask_again(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [sick(), sick(recovery_action="Reset")], events=[[], []], exit_code=None, timed_out=True, seconds=270.0)
        run_test(request(), host.machine())
        assert len(host.facts) == 1
        assert host.facts[0]["nvidia_smi"]["gpus"][1]["recovery_action"] == "Reset"


class TestFabric:
    def test_registration_is_waited_for(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [registering(), registering(), facts_for(**{**CONVERGED, "gpus": WORLD})])
        assert run_test(request(), host.machine())["verdict"] == "accepted"
        assert host.now == 1000 + 2 * smoke_test.FABRIC_PAUSE_S

    def test_but_not_for_ever(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [registering()])
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], host.containers) == ("rejected", [])
        assert host.now == 1000 + smoke_test.FABRIC_WAIT_S
        assert "State In Progress, Status N/A instead of Completed, Success" in returned["reason"]

    def test_a_board_without_one_is_not_waited_for(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [registering()])
        returned = run_test(request(not_applicable={**EXCUSES, "fabric": "no NVSwitch"}), host.machine())
        assert (returned["verdict"], host.now) == ("accepted", 1000)
        assert [c["reason"] for c in returned["checks"] if c["name"] == "fabric"] == ["no NVSwitch"] * 2


class TestContainer:
    def test_it_gets_what_was_asked_for_and_the_rest_of_the_time(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        run_test(request(env={"NCCL_DEBUG": "INFO"}), host.machine())
        [container] = host.containers
        assert (container.image, container.ranks, container.backend, container.limit_s) == (IMAGE, WORLD, "cuda", 260)
        assert container.dtypes == ["fp64", "fp32", "fp16", "tf32", "bf16", "fp8"]
        assert container.collective
        assert "NCCL_DEBUG=INFO" in build_command(container)

    def test_what_the_plan_excused_is_not_tried(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        excused = {**EXCUSES, "all_reduce_exact": "instances cannot talk to each other", "matmul_exact.fp8": "no such unit"}
        returned = run_test(request(not_applicable=excused), host.machine())
        [container] = host.containers
        assert (container.collective, "fp8" in container.dtypes, "bf16" in container.dtypes) == (False, False, True)
        assert returned["verdict"] == "accepted"

    def test_the_payload_is_the_real_one_readable_and_gone_afterwards(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        run_test(request(), host.machine())
        assert host.payloads == [(PAYLOAD, {0o444})]
        assert sorted(path.name for path in host.state_dir.iterdir()) == ["smoke-test.lock", "stamp.json"]

    def test_the_payload_is_gone_also_after_an_exception(self, tmp_path: Path) -> None:
        host = Host(tmp_path)

        def interrupted(container: Container, look: Look) -> Outcome:
            raise SystemExit(143)

        with pytest.raises(SystemExit):
            run_test(request(), host.machine()._replace(run_container=interrupted))
        assert [path.name for path in host.state_dir.iterdir()] == ["smoke-test.lock"]

    def test_leftovers_are_removed_before_holders_are_looked_for(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.leftovers = "aaa\n"
        order: list[str] = []
        machine = host.machine()

        def note(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                order.append(name)
                return real(*arguments)

            return call

        returned = run_test(request(), machine._replace(gather=note("gather", machine.gather), run=note("run", machine.run)))
        assert order[:4] == ["run", "run", "gather", "gather"]
        assert returned["containers_removed"] == ["aaa"]

    def test_without_time_left_none_is_started(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        returned = run_test(request(timeout=45), host.machine())
        assert (returned["verdict"], host.containers) == ("incomplete", [])
        assert "of 45 s only 5 s were left for the container" in returned["reason"]

    def test_two_tests_of_a_host_do_not_mix(self, tmp_path: Path) -> None:
        host = Host(tmp_path).with_stamp(OLD)
        with (host.state_dir / smoke_test.LOCK).open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            returned = run_test(request(), host.machine())
        assert (returned["verdict"], host.asked, host.containers, host.stamp) == ("incomplete", [], [], OLD)
        assert "another smoke test of this host is running" in returned["reason"]


class TestRequest:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"image": "registry.example/pytorch:26.07"}, "is not given by digest"),
            ({"stamp": {**STAMP, "image_digest": "sha256:" + "0" * 64}}, "the stamp to be written says image_digest"),
            ({"tier": "burn"}, "the stamp to be written says tier 'quick', but 'burn' is tested"),
            ({"gpus": []}, "no GPUs are given"),
            ({"gpus": [{"pci_bus_id": "1a:00.0"}, {"pci_bus_id": BUS_IDS[0]}]}, "GPU 0000:1a:00.0 is given twice"),
            ({"gpus": [{"pci_bus_id": "gpu0"}]}, "not a PCI address"),
            ({"ulimits": ["memlock"]}, "ulimit 'memlock' is not of the form"),
            ({"shm_size": "much"}, "size 'much' is not a number"),
        ],
    )
    def test_what_contradicts_itself_is_refused_before_anything(self, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
        host = Host(tmp_path)
        with pytest.raises(RequestError, match=words.replace("(", r"\(")):
            run_test(request(**changes), host.machine())
        assert not host.state_dir.exists()


class TestPayloadSource:
    def test_from_a_checkout(self) -> None:
        assert payload_source() == PAYLOAD

    def test_from_the_archive_that_ansible_sends(self, tmp_path: Path) -> None:
        """The archive is made by Ansible itself, which takes along only what it sees being imported."""
        settings = {"COLLECTIONS_PATH": f"{ROOT}/collections", "KEEP_REMOTE_FILES": "1", "PIPELINING": "0", "REMOTE_TMP": f"{tmp_path}/sent"}
        arguments = json.dumps({"image": IMAGE, "gpus": [{"pci_bus_id": BUS_IDS[0]}], "stamp": STAMP})
        command = [sys.executable, "-m", "ansible", "adhoc", "localhost", "--check", "--connection", "local", "--module-name", "rackready.gpu.gpu_smoke_test"]
        env = {**os.environ, "ANSIBLE_PYTHON_INTERPRETER": sys.executable, **{f"ANSIBLE_{key}": value for key, value in settings.items()}}
        subprocess.run([*command, "--args", arguments], check=True, cwd=tmp_path, env=env, stdout=subprocess.DEVNULL)
        [sent] = tmp_path.glob("sent/*/AnsiballZ_gpu_smoke_test.py")
        archive = tmp_path / "module.zip"
        archive.write_bytes(base64.b64decode(max(re.findall(r"[A-Za-z0-9+/=]+", sent.read_text(encoding="utf-8")), key=len)))
        # -I -S: nothing but the archive, as on a host where Ansible is not installed.
        read = [sys.executable, "-I", "-S", "-c", READ_PAYLOAD, str(archive)]
        assert json.loads(subprocess.run(read, check=True, cwd=tmp_path, capture_output=True, text=True).stdout) == PAYLOAD


class TestWhetherSomebodyHears:
    """As sshd gives a module its standard output: a pipe or a socket whose other end it closes when the connection is gone."""

    @pytest.mark.parametrize("make", [os.pipe, lambda: tuple(end.detach() for end in socket.socketpair())], ids=["pipe", "socket"])
    def test_until_the_other_end_is_closed(self, make: Callable[[], tuple[int, int]]) -> None:
        theirs, ours = make()
        try:
            assert smoke_machine.is_heard(ours)
            os.write(ours, b"an unread line\n")
            assert smoke_machine.is_heard(ours)
            os.close(theirs)
            assert not smoke_machine.is_heard(ours)
        finally:
            os.close(ours)

    def test_a_file_and_the_null_device_are_no_closed_connections(self, tmp_path: Path) -> None:
        for path in (tmp_path / "output", Path("/dev/null")):
            with path.open("w", encoding="utf-8") as stream:
                assert smoke_machine.is_heard(stream.fileno())
