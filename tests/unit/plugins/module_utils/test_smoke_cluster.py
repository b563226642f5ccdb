# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A host's part in a test of several hosts, on a double of a host: what starts a container, what all are told, and what is reported of it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_cluster
from ansible_collections.rackready.gpu.plugins.module_utils.cluster_meeting import Met, Party, Peer
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_cluster import CPU_RANKS, Request, ranks_of, run_test
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import Bought
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import Look
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import RequestError
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import ChildResult, Container, Outcome, Transcript, build_command

from tests.unit.hosts import BUS_IDS, CONVERGED, DRIVER, facts_for
from tests.unit.smoke_fakes import IMAGE, LIMITS, MODEL, Event, checked, figure, lines, rank_events, reduce_value, result
from tests.unit.smoke_hosts import EXCUSES, OLD, Host

PEERS = [Peer("h100-01", "10.0.0.1"), Peer("h100-02", "10.0.0.2")]
ANOTHER = [[1, 48.0, 2097154, 0]]


def request(**changes: Any) -> Request:
    made = Request(
        image=IMAGE,
        backend="cuda",
        gpus=[{"pci_bus_id": bus_id, "pci_id": "10de:2330", "compute_capability": "9.0", "model": MODEL, "memory_gb": 80} for bus_id in BUS_IDS[:2]],
        peers=PEERS,
        ranks=[4, 2],
        node=1,
        interface="eth0",
        port=29500,
        token="token",
        ulimits=["memlock=-1", "stack=67108864"],
        shm_size="1g",
        env={"NCCL_NVLS_ENABLE": "0"},
        not_applicable=EXCUSES,
        driver=DRIVER,
        bought=Bought(MODEL, 2),
        infiniband=["mlx5_0:1"],
        devices=["/dev/infiniband/uverbs0"],
    )
    return made._replace(**changes)


def said(local: int, backend: str = "cuda", networks: dict[str, int] | None = None) -> list[Event]:
    """What a sound rank of the second host says."""
    events = [event for event in rank_events(local, 2, backend, ()) if event.get("name") not in ("all_reduce_exact", "product_hash")]
    kept = [event for event in events if event["event"] != "measured"]
    for event in kept:
        if event.get("name") == "container_limits":
            event["value"] = {**LIMITS, "interfaces": ["eth0", "ib0", "lo"]}
    more: list[Event] = checked("all_reduce_exact", reduce_value(6, backend))
    if local == 0:
        more.append({"event": "measured", "name": "hosts.pair.busbw", "value": {"pairs": ANOTHER, "host": 1}})
    more.append({"event": "measured", "name": "all_reduce.busbw", "value": figure("all_reduce.busbw", 40.0 + local, world=6)})
    if backend == "cuda":
        more.append({"event": "found", "name": "nccl", "value": {"networks": {"IB": 3} if networks is None else networks, "direct": 2, "warnings": []}})
    return [*kept[:-1], *more, kept[-1]]


class Clustered(Host):
    """A host whose ranks are numbered through all hosts."""

    def run_container(self, container: Container, look: Look) -> Outcome:
        look.tick({})
        assert {"__main__.py", "hosts.py", "tournament.py"} <= {path.name for path in (Path(container.payload) / "smoke_payload").iterdir()}
        self.containers.append(container)
        transcript = Transcript(container.run_id, container.ranks, clock=lambda: 0.0, first=container.first)
        ran = self.runs[0]
        for local in range(container.ranks):
            transcript.feed(lines(container.first + local, ran.events[local] if ran.events else said(local, container.backend)))
        ended: dict[str, Any] = {"exit_code": 0, "timed_out": False, "seconds": 20.0, "stdout": [], "stderr": [], **ran.child}
        return Outcome(container, ChildResult(**ended), transcript)


class Meetings:
    """A double of the meeting: what came to it, and how it ends."""

    def __init__(self, problem: str | None = None, own: bool = False) -> None:
        self.parties: list[Party] = []
        self.met = Met(problem, own)

    def __call__(self, party: Party) -> Met:
        self.parties.append(party)
        return self.met if party.problem is None else Met(f"{party.me.name}: {party.problem}", True)


def statuses(report: dict[str, Any]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for check in report["checks"]:
        found.setdefault(check["name"], set()).add(check["status"])
    return found


def run(tmp_path: Path, meetings: Meetings | None = None, host: Host | None = None, **changes: Any) -> tuple[dict[str, Any], Host]:
    host = host or Clustered(tmp_path)
    return run_test(request(**changes), host.machine(), meetings or Meetings()), host


def bent(change: Callable[[list[list[Event]]], Any]) -> list[list[Event]]:
    events = [said(0), said(1)]
    change(events)
    return events


class TestSound:
    def test_a_report_has_everything_that_is_judged(self, tmp_path: Path) -> None:
        report, host = run(tmp_path)
        names = ("hosts_meeting", "container_run", "container_limits", "gpu_identity", "all_reduce_exact", "hosts_transport")
        assert statuses(report) == {name: {"pass"} for name in names}
        assert len([check for check in report["checks"] if check["name"] == "all_reduce_exact"]) == 2
        assert (report["pairs"], report["pairs_reason"]) == ({"pairs": ANOTHER, "host": 1}, None)
        assert (report["all_reduce"]["median"], report["all_reduce_reason"]) == (40.0, None)
        assert report["seconds"] == 0.0
        assert (report["token"], report["node"], report["container_started"], report["torch"]["torch"]) == ("token", 1, True, "2.11.0")
        assert json.loads(json.dumps(report)) == report
        assert list(host.state_dir.glob("smoke-*/")) == []

    def test_the_container_gets_its_ranks_of_all_and_no_more_time_than_there_is(self, tmp_path: Path) -> None:
        _report, host = run(tmp_path)
        [container] = host.containers
        assert (container.ranks, container.first, container.world, container.limit_s) == (2, 4, 6, smoke_cluster.RUN_S)
        assert container.budget == 210
        # Coming, answering twice, running and ending: what the playbook's documentation calls 10 minutes.
        assert request().limit_s == 90 + 60 + 300 + 40
        assert (container.dtypes, container.figures, container.collective, container.tier) == ([], ["hosts.pair.busbw", "all_reduce.busbw"], True, "quick")
        assert container.env == {"NCCL_NVLS_ENABLE": "0"}

    def test_the_first_host_has_the_first_ranks(self, tmp_path: Path) -> None:
        report, host = run(tmp_path, node=0, ranks=[2, 4])
        assert (host.containers[0].first, report["node"]) == (0, 0)
        assert statuses(report)["all_reduce_exact"] == {"pass"}
        assert host.containers[0].cluster is not None
        assert (host.containers[0].cluster.address, host.containers[0].cluster.master) == ("10.0.0.1", "10.0.0.1")

    def test_on_the_cpu_two_processes_are_enough(self, tmp_path: Path) -> None:
        assert (ranks_of("cuda", 8), ranks_of("cpu", 8), ranks_of("cpu", 1)) == (8, CPU_RANKS, 1)
        report, _host = run(tmp_path, backend="cpu", ranks=[1, 2], host=Clustered(tmp_path, events=[said(0, "cpu"), said(1, "cpu")]))
        [way] = [check for check in report["checks"] if check["name"] == "hosts_transport"]
        assert (way["status"], way["reason"], way["value"]) == ("pass", "gloo over eth0", {"networks": {"gloo": 1}})
        # Three ranks, where these said six.
        assert statuses(report)["all_reduce_exact"] == {"could_not_run"}

    @pytest.mark.parametrize(("gpus", "cpus", "threads"), [(2, 16, 8), (2, 1, 1), (1, None, 1), (2, None, 1)])
    def test_the_processes_of_a_host_share_its_cores(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gpus: int, cpus: int | None, threads: int) -> None:
        monkeypatch.setattr(os, "cpu_count", lambda: cpus)
        changes: dict[str, Any] = {"gpus": request().gpus[:gpus], "ranks": [4, gpus], "bought": Bought(MODEL, gpus)}
        for backend, each in (("cuda", threads), ("cpu", 1)):
            host = Clustered(tmp_path, facts=[facts_for(**{**CONVERGED, "gpus": gpus})])
            run(tmp_path, host=host, backend=backend, **changes)
            assert [container.threads for container in host.containers] == [each]

    def test_neither_stamp_nor_verdict_of_the_single_host_test_is_touched(self, tmp_path: Path) -> None:
        host = Clustered(tmp_path).with_stamp(OLD)
        report, _host = run(tmp_path, host=host)
        assert host.stamp == OLD
        assert not {"verdict", "stamp"} & set(report)

    def test_only_root_writes_where_the_state_is_kept(self, tmp_path: Path) -> None:
        before = os.umask(0)
        try:
            _report, host = run(tmp_path)
        finally:
            os.umask(before)
        assert host.state_dir.stat().st_mode & 0o777 == 0o755


class TestCommand:
    def command(self, tmp_path: Path, **changes: Any) -> list[str]:
        _report, host = run(tmp_path, **changes)
        return build_command(host.containers[0])

    def pairs(self, command: list[str], option: str) -> list[str]:
        return [command[index + 1] for index, word in enumerate(command) if word == option]

    def test_torchrun_over_the_host_s_network(self, tmp_path: Path) -> None:
        command = self.command(tmp_path)
        after = command[command.index(IMAGE) + 1 :]
        wanted = [
            "--nnodes",
            "2",
            "--node-rank",
            "1",
            "--local-addr",
            "10.0.0.2",
            "--nproc-per-node",
            "2",
            "--master-addr",
            "10.0.0.1",
            "--master-port",
            "29500",
        ]
        assert after == [*wanted, "--module", "smoke_payload"]
        assert self.pairs(command, "--network") == ["host"]
        env = dict(entry.split("=", 1) for entry in self.pairs(command, "--env"))
        assert (env["GLOO_SOCKET_IFNAME"], env["NCCL_SOCKET_IFNAME"], env["NCCL_NVLS_ENABLE"]) == ("eth0", "=eth0", "0")
        assert json.loads(env["RACKREADY_SMOKE"])["hosts"] == [4, 2]

    def test_adapters_for_rdma_and_the_right_to_lock_memory_come_together(self, tmp_path: Path) -> None:
        command = self.command(tmp_path)
        assert self.pairs(command, "--device") == ["nvidia.com/gpu=all", "/dev/infiniband/uverbs0"]
        assert (self.pairs(command, "--cap-drop"), self.pairs(command, "--cap-add")) == (["ALL"], ["IPC_LOCK"])
        assert self.pairs(self.command(tmp_path, devices=[]), "--cap-add") == []

    def test_everything_else_stays_shut(self, tmp_path: Path) -> None:
        command = self.command(tmp_path)
        assert "--read-only" in command
        assert not {"--privileged", "--pid", "--ipc"} & set(command)
        assert self.pairs(command, "--label") == ["io.rackready.smoke-test"]


class TestNothingIsStarted:
    def unstarted(self, report: dict[str, Any], host: Host) -> None:
        assert host.containers == []
        assert statuses(report)["hosts_meeting"] == {"could_not_run"}
        assert (report["container_started"], report["pairs"], report["pairs_reason"]) == (False, None, "nothing was started")
        assert (report["all_reduce"], report["all_reduce_reason"]) == (None, "nothing was started")

    def test_while_a_gpu_is_in_use_and_the_others_hear_why(self, tmp_path: Path) -> None:
        facts = facts_for(**{**CONVERGED, "gpus": 2})
        facts["holders"].append({"device": "/dev/nvidia0", "pid": 7, "command": "train", "unit": None, "container": None, "role": "workload"})
        meetings = Meetings()
        report, host = run(tmp_path, meetings, Clustered(tmp_path, facts=[facts]))
        self.unstarted(report, host)
        assert str(meetings.parties[0].problem).startswith("gpu_idle: ")
        assert "gpu_idle" in report["checks"][-1]["reason"]

    def test_without_an_engine(self, tmp_path: Path) -> None:
        host = Clustered(tmp_path)
        host.engine_error = "docker is not there"
        meetings = Meetings()
        report, _host = run(tmp_path, meetings, host)
        self.unstarted(report, host)
        assert statuses(report)["container_run"] == {"could_not_run"}
        assert meetings.parties[0].problem == "container_run: docker ps: docker is not there"

    def test_by_a_host_that_cannot_take_part_whatever_the_meeting_says(self, tmp_path: Path) -> None:
        host = Clustered(tmp_path)
        host.engine_error = "docker is not there"
        report = run_test(request(), host.machine(), lambda party: Met(None))
        self.unstarted(report, host)
        assert report["checks"][-1]["reason"] == "container_run: docker ps: docker is not there"

    def test_where_a_gpu_is_missing_which_is_the_host_s_own_fault(self, tmp_path: Path) -> None:
        meetings = Meetings()
        report, host = run(tmp_path, meetings, Clustered(tmp_path, facts=[facts_for(**{**CONVERGED, "gpus": 1})]))
        self.unstarted(report, host)
        assert statuses(report)["gpu_count"] == {"fail"}
        assert "gpu_count: " in str(meetings.parties[0].problem)

    def test_where_the_hosts_do_not_meet(self, tmp_path: Path) -> None:
        words = "h100-02 cannot reach h100-01 at 10.0.0.1:29500 (connection refused)"
        report, host = run(tmp_path, Meetings(words, own=True))
        self.unstarted(report, host)
        [check] = [check for check in report["checks"] if check["name"] == "hosts_meeting"]
        assert (check["reason"], check["remedy"]) == (words, smoke_cluster.MEETING_REMEDY)
        assert check["value"] == {"interface": "eth0", "address": "10.0.0.2", "port": 29500, "own": True}

    def test_beside_another_smoke_test(self, tmp_path: Path) -> None:
        host = Clustered(tmp_path)
        host.state_dir.mkdir()
        with (host.state_dir / "smoke-test.lock").open("w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            meetings = Meetings()
            report, _host = run(tmp_path, meetings, host)
        self.unstarted(report, host)
        assert statuses(report) == {"gpu_idle": {"could_not_run"}, "hosts_meeting": {"could_not_run"}}
        assert meetings.parties[0].problem == "gpu_idle: another smoke test of this host is running"
        assert host.asked == []

    def test_what_the_plan_excuses_stops_nobody(self, tmp_path: Path) -> None:
        facts = facts_for(**{**CONVERGED, "gpus": 2})
        facts["holders"].append({"device": "/dev/nvidia0", "pid": 7, "command": "train", "unit": None, "container": None, "role": "workload"})
        report, host = run(tmp_path, None, Clustered(tmp_path, facts=[facts]), not_applicable={**EXCUSES, "gpu_idle": "said beforehand"})
        assert len(host.containers) == 1
        assert "gpu_idle" not in statuses(report)

    def test_a_container_that_a_killed_test_left_behind_is_removed_first(self, tmp_path: Path) -> None:
        host = Clustered(tmp_path)
        host.leftovers = "aaa\n"
        report, _host = run(tmp_path, host=host)
        assert report["containers_removed"] == ["aaa"]
        assert ["docker", "rm", "--force", "aaa"] in host.asked


class TestWhoIsAtFault:
    def report(self, tmp_path: Path, change: Callable[[list[list[Event]]], Any], **child: Any) -> dict[str, Any]:
        return run(tmp_path, host=Clustered(tmp_path, events=bent(change), **child))[0]

    def exact(self, report: dict[str, Any]) -> list[tuple[str, Any]]:
        return [(check["status"], check["reason"]) for check in report["checks"] if check["name"] == "all_reduce_exact"]

    def replace(self, event: Event) -> Callable[[list[list[Event]]], Any]:
        def change(events: list[list[Event]]) -> None:
            at = next(index for index, one in enumerate(events[1]) if one["event"] == "check" and one["name"] == "all_reduce_exact")
            events[1][at] = event

        return change

    def test_a_wrong_sum_fails_and_names_rank_host_and_gpu(self, tmp_path: Path) -> None:
        wrong = result("all_reduce_exact", "fail", "7 of 9 exchanged elements are wrong", {**reduce_value(6), "wrong": 7})
        report = self.report(tmp_path, self.replace(wrong))
        assert self.exact(report) == [("pass", None), ("fail", "rank 5 on h100-02: 7 of 9 exchanged elements are wrong")]
        [check] = [check for check in report["checks"] if check["name"] == "all_reduce_exact" and check["status"] == "fail"]
        assert check["gpu"]["pci_bus_id"] == BUS_IDS[1]

    def test_an_error_of_this_gpu_fails(self, tmp_path: Path) -> None:
        report = self.report(tmp_path, self.replace(result("all_reduce_exact", "fail", "RuntimeError: CUDA error: an illegal memory access")))
        assert self.exact(report)[1][0] == "fail"

    def test_so_does_one_after_which_the_others_hung(self, tmp_path: Path) -> None:
        event = result("all_reduce_exact", "fail", "RuntimeError: CUDA error: an illegal memory access")
        report = self.report(tmp_path, self.replace(event), timed_out=True, exit_code=None, seconds=300.0)
        assert self.exact(report)[1][0] == "fail"

    @pytest.mark.parametrize("value", [None, {**reduce_value(6), "wrong": 0}])
    @pytest.mark.parametrize("reason", [None, "it is said to have failed"])
    def test_a_failure_that_shows_nothing_is_held_against_nobody(self, tmp_path: Path, value: Any, reason: str | None) -> None:
        report = self.report(tmp_path, self.replace(result("all_reduce_exact", "fail", reason, value)))
        assert self.exact(report)[1][0] == "could_not_run"

    def test_a_rank_with_a_gpu_that_nobody_expects_gives_none_of_the_host_s_a_result(self, tmp_path: Path) -> None:
        def change(events: list[list[Event]]) -> None:
            next(event for event in events[1] if event["event"] == "found" and event["name"] == "gpu_identity")["value"].update(
                pci_bus_id="0000:ff:00.0", uuid="GPU-another"
            )

        assert len(self.exact(self.report(tmp_path, change))) == 1

    def test_a_partner_that_hung_up_is_no_fault_of_this_host(self, tmp_path: Path) -> None:
        report = self.report(tmp_path, self.replace(result("all_reduce_exact", "fail", "RuntimeError: Connection closed by peer [10.0.0.1]:41234")))
        assert self.exact(report)[1] == ("could_not_run", "rank 5 on h100-02: RuntimeError: Connection closed by peer [10.0.0.1]:41234")
        [check] = [check for check in report["checks"] if check["name"] == "all_reduce_exact" and check["status"] != "pass"]
        assert check["remedy"] == smoke_cluster.WAITED_REMEDY

    def hang(self, events: list[list[Event]]) -> None:
        """Both ranks begin the sum over all hosts and say no more."""
        for local in range(2):
            at = next(index for index, one in enumerate(events[local]) if one.get("name") == "all_reduce_exact")
            events[local] = events[local][: at + 1]

    def test_whoever_waited_in_vain_for_the_others_is_not_at_fault(self, tmp_path: Path) -> None:
        report = self.report(tmp_path, self.hang, timed_out=True, exit_code=None, seconds=300.0)
        assert [status for status, _reason in self.exact(report)] == ["could_not_run"] * 2
        assert "rank 4 hung in it for 300 s" in self.exact(report)[0][1]
        assert statuses(report)["container_run"] == {"could_not_run"}
        assert report["pairs"] is None
        assert "the limit of 300 s was over" in report["pairs_reason"]
        assert report["all_reduce"] is None

    def test_a_process_that_crashed_in_it_is(self, tmp_path: Path) -> None:
        stderr = ["Root Cause (first observed failure):", "  rank      : 5 (local_rank: 1)", "  exitcode  : -11 (pid: 17972)"]
        report = self.report(tmp_path, self.hang, exit_code=1, stderr=stderr)
        assert [status for status, _reason in self.exact(report)] == ["could_not_run", "fail"]

    def test_a_pass_without_the_numbers_of_all_hosts_is_none(self, tmp_path: Path) -> None:
        report = self.report(tmp_path, self.replace(result("all_reduce_exact", "pass", None, reduce_value(2))))
        assert self.exact(report)[1] == ("could_not_run", "the payload said pass, but world is 2, 6 is the whole test")

    def test_why_pairs_were_not_measured_is_passed_on(self, tmp_path: Path) -> None:
        def change(events: list[list[Event]]) -> None:
            kept = [event for event in events[0] if event.get("name") != "hosts.pair.busbw"]
            events[0] = [*kept[:-1], result("hosts.pair.busbw", "could_not_run", "no time left: it needs 1 s"), kept[-1]]

        report = self.report(tmp_path, change)
        assert (report["pairs"], report["pairs_reason"]) == (None, "no time left: it needs 1 s")

    def test_a_figure_that_failed_is_none_also_where_it_came_with_numbers(self, tmp_path: Path) -> None:
        def change(events: list[list[Event]]) -> None:
            kept = [event for event in events[0] if event["event"] != "measured"]
            failed = [result(name, "fail", None, figure("all_reduce.busbw")) for name in ("hosts.pair.busbw", "all_reduce.busbw")]
            events[0] = [*kept[:-1], *failed, kept[-1]]

        report = self.report(tmp_path, change)
        assert (report["pairs"], report["pairs_reason"]) == (None, "rank 4 gave no reason")
        assert (report["all_reduce"], report["all_reduce_reason"]) == (None, "the payload gave no reason")

    def test_of_torch_any_rank_may_tell(self, tmp_path: Path) -> None:
        def change(events: list[list[Event]]) -> None:
            events[0] = [event for event in events[0] if event.get("name") != "torch"]

        assert self.report(tmp_path, change)["torch"]["torch"] == "2.11.0"

    def test_an_interface_that_the_container_does_not_see(self, tmp_path: Path) -> None:
        report, _host = run(tmp_path, interface="eth9")
        [check] = [check for check in report["checks"] if check["name"] == "container_limits"]
        assert (check["status"], check["reason"]) == (
            "could_not_run",
            "the network interfaces that are up are ['eth0', 'ib0', 'lo'], and eth9 is not among them",
        )


class TestTransport:
    def transport(self, tmp_path: Path, networks: dict[str, int], **changes: Any) -> dict[str, Any]:
        events = [said(local, networks=networks) for local in range(2)]
        report, _host = run(tmp_path, host=Clustered(tmp_path, events=events), **changes)
        [check] = [check for check in report["checks"] if check["name"] == "hosts_transport"]
        return dict(check)

    def test_rdma(self, tmp_path: Path) -> None:
        check = self.transport(tmp_path, {"IB": 4})
        assert (check["status"], check["required"]) == ("pass", True)
        assert check["value"] == {"networks": {"IB": 8}, "gpu_direct": 4, "infiniband": ["mlx5_0:1"], "devices": ["/dev/infiniband/uverbs0"]}

    def test_sockets_although_an_adapter_is_active_are_degraded(self, tmp_path: Path) -> None:
        check = self.transport(tmp_path, {"Socket": 4})
        assert (check["status"], check["reason"]) == ("degraded", "NCCL used sockets over eth0, although mlx5_0:1 are active")

    def test_sockets_where_there_is_nothing_else(self, tmp_path: Path) -> None:
        assert self.transport(tmp_path, {"Socket": 4}, infiniband=[])["status"] == "pass"

    def test_nccl_that_tells_nothing(self, tmp_path: Path) -> None:
        check = self.transport(tmp_path, {})
        assert (check["status"], check["remedy"]) == ("degraded", "see container_run")
        check = self.transport(tmp_path, {}, env={"NCCL_DEBUG": "INFO"})
        assert check["remedy"] == "leave NCCL_DEBUG and NCCL_DEBUG_FILE out of smoke_test_env"

    @pytest.mark.parametrize("told", [None, "x", {}, {"networks": None, "direct": None}])
    def test_what_is_no_account_of_it_counts_as_none(self, tmp_path: Path, told: Any) -> None:
        def change(events: list[list[Event]]) -> None:
            for event in [event for one in events for event in one if event.get("name") == "nccl"]:
                event["value"] = told

        report, _host = run(tmp_path, host=Clustered(tmp_path, events=bent(change)))
        [check] = [check for check in report["checks"] if check["name"] == "hosts_transport"]
        assert (check["status"], check["reason"]) == ("degraded", "NCCL did not tell how it reached other hosts")
        assert (check["value"]["networks"], check["value"]["gpu_direct"]) == ({}, 0)


class TestRequest:
    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"image": "registry.example/pytorch:26.07"}, "is not given by digest"),
            ({"peers": PEERS[:1], "ranks": [2], "node": 0}, "node 0 of 1 hosts with 1 numbers of ranks cannot be"),
            ({"node": 2}, "node 2 of 2 hosts"),
            ({"node": -1}, "node -1 of 2 hosts"),
            ({"ranks": [2]}, "with 1 numbers of ranks"),
            ({"ranks": [4, 3]}, "3 ranks are asked for on a host with 2 GPUs"),
            ({"ulimits": ["memlock"]}, "ulimit 'memlock'"),
            ({"shm_size": "big"}, "size 'big'"),
        ],
    )
    def test_what_contradicts_itself_is_refused(self, tmp_path: Path, changes: dict[str, Any], words: str) -> None:
        meetings = Meetings()
        with pytest.raises(RequestError, match=words):
            run(tmp_path, meetings, **changes)
        assert meetings.parties == []

    def test_what_check_mode_says(self) -> None:
        assert smoke_cluster.plan_sentence(request()).startswith("would test 6 processes on h100-01, h100-02 together in registry.example:5000/pytorch@sha256:")
