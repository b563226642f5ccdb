# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole tests of each tier on a double of a host: what is asked of the payload, what is repeated, what comes after it, and what holds whatever happens."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_tiers, verdict
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import RequestError
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_test import LEAST_S, RESERVE_S, run_test
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.hosts import BUS_IDS, CONVERGED, facts_for
from tests.unit.smoke_fakes import TORCHRUN_CRASH, Event, figure, floor, rank_events, result, snapshot, uuid_of, window
from tests.unit.smoke_hosts import EXCUSES, OLD, STAMP, WORLD, Host, Ran, floors_of, named, replaced, request, request_of, sound

ROOT = Path(__file__).parents[4]
NVLS = "NCCL WARN transport/nvls.cc:245 Failed to bind NVLink SHARP (NVLS) Multicast memory"


class TestTiers:
    @pytest.mark.parametrize("tier", smoke_tiers.TIERS)
    def test_a_sound_host_is_accepted_with_nothing_degraded(self, tmp_path: Path, tier: str) -> None:
        returned = run_test(request_of(tier), Host(tmp_path).machine())
        assert returned["verdict"] == "accepted", returned["reason"]
        assert "degraded" not in returned["reason"]
        assert {check["status"] for check in returned["checks"] if check["required"]} == {"pass"}
        assert returned["topology"] == "GPU0 X"

    def test_quick(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        run_test(request_of("quick"), host.machine())
        [container] = host.containers
        assert (container.tier, container.limit_s, container.budget, container.burn_seconds) == ("quick", 80, 60, 0)
        assert list(container.figures) == ["matmul.bf16", "memory.copy", "copy.host_to_device", "copy.device_to_host"]
        assert (list(container.trainings), list(container.visible), container.collective) == ([], [], True)

    def test_accept(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        returned = run_test(request_of("accept"), host.machine())
        [container] = host.containers
        assert (container.tier, container.limit_s, container.budget) == ("accept", 560, 420)
        assert {"all_reduce.busbw", "pair.copy", "matmul.fp8"} <= set(container.figures)
        # What only some images can do is told and not counted.
        [compile_, *_more] = named(returned, "training.compile")
        assert (compile_["status"], compile_["required"]) == ("could_not_run", False)
        assert returned["not_exercised"] == [
            "exchange between hosts: one host was tested by itself",
            "hours under load: only tier burn runs longer than some minutes",
        ]

    def test_burn_is_given_its_time_beside_the_work(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        returned = run_test(request_of("burn"), host.machine())
        [container] = host.containers
        assert (container.burn_seconds, container.limit_s) == (600, 600 + 560)
        assert container.budget == 600 + 420
        assert [check["status"] for check in named(returned, "burn")] == ["pass"] * WORLD

    def test_a_burn_of_no_time_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(RequestError, match="burn_minutes of 1 or more"):
            run_test(request_of("burn", burn_minutes=0), Host(tmp_path).machine())

    @pytest.mark.parametrize(
        ("tier", "name"),
        [("accept", "all_gather_exact"), ("accept", "pair_exact"), ("accept", "training.ddp_step"), ("burn", "burn"), ("quick", "matmul_repeat.fp8")],
    )
    def test_what_a_tier_asks_for_must_be_there(self, tmp_path: Path, tier: str, name: str) -> None:
        events = [replaced(said, name, None) for said in sound(tier, 600 if tier == "burn" else 0)]
        returned = run_test(request_of(tier), Host(tmp_path, events=events).machine())
        assert returned["verdict"] == "incomplete"
        assert {check["status"] for check in named(returned, name)} == {"could_not_run"}

    @pytest.mark.parametrize("name", ["training.fp8", "training.compile"])
    def test_an_optional_step_that_is_wrong_counts(self, tmp_path: Path, name: str) -> None:
        events = sound("accept")
        events[1] = replaced(events[1], name, result(name, "fail", "3 of 9 elements are wrong"))
        assert run_test(request_of("accept"), Host(tmp_path, events=events).machine())["verdict"] == "rejected"


class TestFigures:
    def test_a_straggler_rejects_and_is_named(self, tmp_path: Path) -> None:
        count = 4
        gpus = [{"pci_bus_id": bus_id, "pci_id": "10de:2330", "compute_capability": "9.0", "memory_gb": 80} for bus_id in BUS_IDS[:count]]
        events = [rank_events(rank, count) for rank in range(count)]
        events[2] = replaced(events[2], "memory.copy", {"event": "measured", "name": "memory.copy", "value": figure("memory.copy", 91.0)})
        host = Host(tmp_path, [facts_for(**{**CONVERGED, "gpus": count})], events)
        host.window = window(count)
        returned = run_test(request(gpus=gpus, stamp={**STAMP, "gpus": None}, bought=None, floors={}), host.machine())
        assert returned["verdict"] == "rejected"
        assert returned["reason"].startswith(f"speed.memory.copy on GPU {BUS_IDS[2]} ({uuid_of(2)}) failed: 91 GB/s is 9.0 % under the median")

    def test_without_floors_a_host_is_accepted_and_every_figure_named(self, tmp_path: Path) -> None:
        returned = run_test(request(floors={}), Host(tmp_path).machine())
        assert returned["verdict"] == "accepted"
        assert "8 degraded: speed.matmul.bf16 x2, speed.memory.copy x2" in returned["reason"]
        assert run_test(request(floors={}, degraded="reject"), Host(tmp_path).machine())["verdict"] == "rejected"

    def test_lopsided_copies_are_said(self, tmp_path: Path) -> None:
        events = sound()
        name = "copy.device_to_host"
        events[0] = replaced(events[0], name, {"event": "measured", "name": name, "value": figure(name, 60.0)})
        returned = run_test(request(floors={}), Host(tmp_path, events=events).machine())
        assert "60 % of the other direction (100)" in str(named(returned, name.replace("copy", "speed.copy"))[0]["reason"])
        assert "other direction" not in str(named(returned, "speed.copy.host_to_device")[0]["reason"])

    @pytest.mark.parametrize(("second", "status"), [(80.0, "fail"), (200.0, "pass")])
    def test_of_two_values_the_lower_one_counts(self, tmp_path: Path, second: float, status: str) -> None:
        events = sound()
        events[1].insert(-2, {"event": "measured", "name": "memory.copy", "value": figure("memory.copy", second)})
        assert named(run_test(request(), Host(tmp_path, events=events).machine()), "speed.memory.copy")[1]["status"] == status

    def test_a_second_value_that_is_none_counts_too(self, tmp_path: Path) -> None:
        events = sound()
        events[1].insert(-2, {"event": "measured", "name": "memory.copy", "value": {"median": "many"}})
        assert named(run_test(request(), Host(tmp_path, events=events).machine()), "speed.memory.copy")[1]["status"] == "could_not_run"

    @pytest.mark.parametrize(("status", "verdict_"), [("fail", "rejected"), ("could_not_run", "incomplete"), ("pass", "incomplete")])
    def test_a_figure_that_could_not_be_measured_says_why(self, tmp_path: Path, status: str, verdict_: str) -> None:
        events = sound()
        events[1] = replaced(events[1], "memory.copy", result("memory.copy", status, "3 of 9 copied words are wrong"))
        returned = run_test(request(), Host(tmp_path, events=events).machine())
        assert returned["verdict"] == verdict_
        assert named(returned, "speed.memory.copy")[1]["reason"] == "3 of 9 copied words are wrong"

    def test_a_product_that_differs_between_siblings(self, tmp_path: Path) -> None:
        events = sound()
        hashes = next(event["value"] for event in events[1] if event.get("name") == "product_hash")
        hashes["bf16"] = "another"
        returned = run_test(request(), Host(tmp_path, events=events).machine())
        assert returned["verdict"] == "rejected"
        assert [check["status"] for check in named(returned, "product_match")] == ["fail", "fail"]


def busbw(median: float, world: int = WORLD) -> Event:
    return {"event": "measured", "name": "all_reduce.busbw", "value": figure("all_reduce.busbw", median, world=world)}


class TestNvlsAttribution:
    FLOORS = {**floors_of("accept")["h100-sxm5-80gb"], "all_reduce.busbw": [floor(430, gpus=WORLD, unit="GB/s")]}  # noqa: RUF012

    def low(self, again: float | None, **changes: Any) -> tuple[Host, dict[str, Any]]:
        events = [replaced(said, "all_reduce.busbw", busbw(366.0)) for said in sound("accept")]
        second = [[busbw(again)] if again else [] for _rank in range(WORLD)]
        host = Host(changes.pop("path"), events=events)
        host.runs.append(Ran(second))
        return host, run_test(request_of("accept", floors={"h100-sxm5-80gb": self.FLOORS}, **changes), host.machine())

    def test_a_low_all_reduce_is_measured_once_more_without_nvls(self, tmp_path: Path) -> None:
        host, returned = self.low(366.0, path=tmp_path)
        first, second = host.containers
        assert second.env == {"NCCL_NVLS_ENABLE": "0"}
        assert (second.dtypes, list(second.figures), list(second.trainings), second.tier, second.limit_s) == ([], ["all_reduce.busbw"], [], "quick", 60)
        assert first.env == {}
        [check] = named(returned, "speed.all_reduce.busbw")
        assert (check["status"], check["value"]["without_nvls"]) == ("fail", 366.0)
        assert "reduction in the switches is not in use" in check["reason"]
        assert returned["retries"] == []

    def test_where_the_operator_has_turned_it_off_nothing_is_measured_again(self, tmp_path: Path) -> None:
        host, returned = self.low(366.0, path=tmp_path, env={"NCCL_NVLS_ENABLE": "0"})
        assert len(host.containers) == 1
        assert "without NVLS" not in named(returned, "speed.all_reduce.busbw")[0]["reason"]

    def test_a_second_run_that_gives_nothing_names_no_reason(self, tmp_path: Path) -> None:
        _host, returned = self.low(None, path=tmp_path)
        assert "the reason is not known" in named(returned, "speed.all_reduce.busbw")[0]["reason"]

    def test_a_good_one_is_not_asked_about(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        run_test(request_of("accept"), host.machine())
        assert len(host.containers) == 1

    def test_without_time_it_is_not_asked(self, tmp_path: Path) -> None:
        events = [replaced(said, "all_reduce.busbw", busbw(366.0)) for said in sound("accept")]
        host = Host(tmp_path, events=events)
        host.takes_s = 600 - RESERVE_S - LEAST_S + 1
        run_test(request_of("accept", floors={"h100-sxm5-80gb": self.FLOORS}), host.machine())
        assert len(host.containers) == 1


class TestRetry:
    def crashed(self) -> Ran:
        stderr = TORCHRUN_CRASH.replace("-11", "1").splitlines()
        return Ran([[], []], {"exit_code": 1, "stderr": stderr, "seconds": 12.34})

    def test_a_rank_that_did_not_come_up_is_tried_once_more_and_recorded(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.runs.insert(0, self.crashed())
        returned = run_test(request(), host.machine())
        assert returned["verdict"] == "accepted", returned["reason"]
        assert returned["retries"] == [{"reason": "rank 1 ended at its start, before any work on a GPU", "seconds": 12.3, "env": {}}]
        assert len(host.containers) == 2
        assert named(returned, "nvls") == []

    def test_at_most_once(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.runs = [self.crashed(), self.crashed(), Ran()]
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], len(host.containers), len(returned["retries"])) == ("incomplete", 2, 1)

    def test_the_second_run_counts_alone(self, tmp_path: Path) -> None:
        wrong = sound()
        wrong[1] = replaced(wrong[1], "matmul_exact.fp8", result("matmul_exact.fp8", "fail", "1 of 9 elements are wrong"))
        host = Host(tmp_path)
        host.runs = [self.crashed(), Ran(wrong)]
        assert run_test(request(), host.machine())["verdict"] == "rejected"

    def test_a_wrong_product_is_never_tried_again(self, tmp_path: Path) -> None:
        wrong = sound()
        wrong[1] = replaced(wrong[1], "matmul_exact.fp8", result("matmul_exact.fp8", "fail", "1 of 9 elements are wrong"))
        host = Host(tmp_path, events=wrong, exit_code=1, stderr=["address already in use"])
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], len(host.containers), returned["retries"]) == ("rejected", 1, [])

    def test_without_time_it_is_not_tried(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.runs.insert(0, self.crashed())
        host.takes_s = 300 - RESERVE_S - LEAST_S + 1
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], len(host.containers), returned["retries"]) == ("incomplete", 1, [])

    def test_nvls_that_cannot_be_set_up_degrades(self, tmp_path: Path) -> None:
        refused = [replaced(said, "all_reduce_exact", result("all_reduce_exact", "fail", "DistBackendError: NCCL error")) for said in sound()]
        for said in refused:
            said.insert(-2, {"event": "found", "name": "nccl", "value": {"multicast": True, "ways": {}, "warnings": [NVLS]}})
        host = Host(tmp_path)
        host.runs.insert(0, Ran(refused))
        returned = run_test(request(), host.machine())
        assert returned["verdict"] == "accepted", returned["reason"]
        assert host.containers[1].env == {"NCCL_NVLS_ENABLE": "0"}
        [check] = named(returned, "nvls")
        assert (check["status"], check["required"]) == ("degraded", True)
        assert NVLS in check["reason"]
        assert returned["retries"][0]["env"] == {"NCCL_NVLS_ENABLE": "0"}


class TestAfterTheWork:
    def test_a_container_that_loses_its_gpus_rejects(self, tmp_path: Path) -> None:
        host = Host(tmp_path).with_stamp(OLD)
        host.engine["call"] = [(0, "used 2 GPUs", ""), (1, "cuInit failed with CUDA error 999", "")]
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], host.stamp) == ("rejected", None)
        assert returned["reason"].startswith("daemon_reload failed: after `systemctl daemon-reload`")

    def test_without_systemd_it_is_excused_by_the_plan_alone(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.engine["reload"] = [(1, "", "not booted with systemd")]
        assert run_test(request(), host.machine())["verdict"] == "incomplete"
        host = Host(tmp_path)
        assert run_test(request(not_applicable={**EXCUSES, "daemon_reload": "process 1 is runit"}), host.machine())["verdict"] == "accepted"
        assert not [command for command in host.asked if "daemon-reload" in command]

    def test_a_new_xid_rejects(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.window.new.take("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
        returned = run_test(request(), host.machine())
        assert returned["verdict"] == "rejected"
        assert returned["reason"].startswith(f"window.xid on GPU {BUS_IDS[1]}")

    def test_new_memory_errors_reject_and_old_ones_do_not(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        end = copy.deepcopy(snapshot(WORLD))
        end.gpus[BUS_IDS[0]]["ecc"]["aggregate_uncorrectable"] += 1
        host.window = window(WORLD, after=end)
        assert run_test(request(), host.machine())["reason"].startswith(f"window.ecc on GPU {BUS_IDS[0]}")
        host.window = window(WORLD, before=end, after=end)
        assert run_test(request(), host.machine())["verdict"] == "accepted"

    def test_when_time_is_over_only_the_kernels_log_is_read(self, tmp_path: Path) -> None:
        host = Host(tmp_path, events=[[], []], exit_code=None, timed_out=True, seconds=260.0)
        host.window.new.take("NVRM: Xid (PCI:0000:1b:00): 119, Timeout after 6s of waiting for RPC response from GPU0 GSP!")
        returned = run_test(request(), host.machine())
        assert host.looked is not None and host.looked.asked == [False]
        assert (returned["verdict"], returned["topology"]) == ("rejected", None)
        assert "Xid 119 during the test" in named(returned, "window.xid")[1]["reason"]
        assert not [command for command in host.asked if "daemon-reload" in command]
        assert len(named(returned, "pcie_path")) == 1

    def test_where_nothing_was_started_the_kernels_log_is_shown(self, tmp_path: Path) -> None:
        hung = facts_for(**{**CONVERGED, "gpus": WORLD})
        hung["nvidia_smi"].update(state="hung", error="nvidia-smi did not end within 15 s", gpus=[])
        host = Host(tmp_path, [hung])
        host.log.take("NVRM: Xid (PCI:0000:1b:00): 119, Timeout after 6s of waiting for RPC response from GPU0 GSP!")
        returned = run_test(request(stamp={**STAMP, "gpus": None}), host.machine())
        assert (returned["verdict"], host.containers) == ("incomplete", [])
        [check] = named(returned, "kernel_log")
        assert (check["status"], check["required"]) == ("degraded", False)
        assert "119" in check["reason"]
        assert returned["not_exercised"] == []

    def test_advice_never_decides(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.advice = [verdict.make_check("data_path", status, "x", required=False) for status in ("fail", "could_not_run", "degraded")]
        returned = run_test(request(degraded="reject"), host.machine())
        assert returned["verdict"] == "accepted"
        assert len(named(returned, "data_path")) == 3

    def test_a_test_that_took_its_time_reads_no_data(self, tmp_path: Path) -> None:
        host = Host(tmp_path)
        host.advice.append(verdict.make_check("data_path", "pass", required=False))
        host.takes_s = 300 - RESERVE_S - LEAST_S
        returned = run_test(request(), host.machine())
        assert (returned["verdict"], returned["topology"], named(returned, "data_path")) == ("accepted", None, [])
        assert len(named(returned, "pcie_path")) == 1

    @pytest.mark.parametrize("tier", smoke_tiers.TIERS)
    def test_a_container_never_gets_more_than_the_tier_has(self, tmp_path: Path, tier: str) -> None:
        """What is kept back is enough to end one that does not end: asking the engine three times, and two signals."""
        host = Host(tmp_path)
        asked = request_of(tier)
        run_test(asked, host.machine())
        assert all(container.limit_s + RESERVE_S <= asked.limit_s for container in host.containers)


def divided() -> dict[str, Any]:
    """Two GPUs, the second of which is divided into two."""
    facts = facts_for(**{**CONVERGED, "gpus": WORLD})
    instances = [{"profile": "3g.40gb", "gi": gi, "ci": 0, "placement_start": 4 * gi, "uuid": f"MIG-{gi}"} for gi in (1, 2)]
    facts["nvidia_smi"]["gpus"][1]["mig"] = {"current": "enabled", "pending": "enabled", "instances": instances}
    return facts


class TestDividedGpus:
    EXCUSED = {  # noqa: RUF012
        **EXCUSES,
        **dict.fromkeys(smoke_tiers.BETWEEN, "divided"),
        **dict.fromkeys((f"speed.{name}" for name in ("matmul.bf16", "memory.copy", "copy.host_to_device", "copy.device_to_host")), "divided"),
        "product_match": "divided",
    }
    LAYOUT = {**STAMP, "mig": {BUS_IDS[1]: ["3g.40gb", "3g.40gb"]}}  # noqa: RUF012
    VISIBLE = (uuid_of(0), "MIG-1", "MIG-2")

    def said(self, rank: int) -> list[Event]:
        events = [event for event in rank_events(min(rank, 1), WORLD) if event.get("name") != "all_reduce_exact"]
        identity = next(event for event in events if event.get("name") == "gpu_identity" and event["event"] == "found")
        identity["value"] = {**identity["value"], "visible": self.VISIBLE[rank], "device_count": 1}
        if rank:
            identity["value"].update(name="NVIDIA H100 80GB HBM3 MIG 3g.40gb", memory_mib=40000)
        return events

    def test_each_part_has_a_process_and_a_result_of_its_own(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [divided()], [self.said(rank) for rank in range(3)])
        returned = run_test(request(stamp=self.LAYOUT, not_applicable=self.EXCUSED), host.machine())
        assert returned["verdict"] == "accepted", returned["reason"]
        [container] = host.containers
        assert (container.ranks, list(container.visible), container.collective) == (3, list(self.VISIBLE), False)
        products = named(returned, "matmul_exact.bf16")
        assert [(check["status"], check["gpu"]["uuid"]) for check in products] == [("pass", uuid) for uuid in self.VISIBLE]
        assert {check["status"] for check in named(returned, "speed.matmul.bf16")} == {"not_applicable"}
        assert any("GPUs are divided" in sentence for sentence in returned["not_exercised"])

    @pytest.mark.parametrize("rank", [0, 1, 2])
    def test_one_part_without_a_result_is_no_pass_for_the_others_on_its_card(self, tmp_path: Path, rank: int) -> None:
        events = [self.said(each) for each in range(3)]
        events[rank] = replaced(events[rank], "matmul_exact.bf16", None)
        returned = run_test(request(stamp=self.LAYOUT, not_applicable=self.EXCUSED), Host(tmp_path, [divided()], events).machine())
        assert returned["verdict"] == "incomplete"
        assert self.VISIBLE[rank] in returned["reason"]

    def test_a_layout_that_is_not_the_planned_one_is_not_tested(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [divided()])
        returned = run_test(request(not_applicable=self.EXCUSED), host.machine())
        assert (returned["verdict"], host.containers) == ("incomplete", [])
        assert returned["reason"].startswith(f"mig_mode on GPU {BUS_IDS[1]}")

    def test_on_the_cpu_there_is_one_process_for_each_card(self, tmp_path: Path) -> None:
        host = Host(tmp_path, [divided()])
        run_test(request(backend="cpu", stamp=self.LAYOUT, not_applicable=self.EXCUSED), host.machine())
        [container] = host.containers
        assert (container.ranks, list(container.visible)) == (2, [])


ANSWER = ("verdict", "reason", "remedy", "checks", "retries", "not_exercised", "stamp")
# A host on which much is wrong at once, tested in a process of its own.
BENT = """
import json, tempfile
from pathlib import Path
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_test import run_test
from tests.unit.smoke_fakes import result
from tests.unit.smoke_hosts import Host, request_of, sound
events = sound("accept")
events[0] = [event for event in events[0] if not str(event.get("name")).startswith(("matmul_exact", "container"))]
events[1][1:1] = [result(name, "fail", name) for name in ("another", "pair_exact", "training.fp8", "speed", "matmul.bf16")]
host = Host(Path(tempfile.mkdtemp()), events=events, exit_code=1, stderr=["boom"])
for line in ("NVRM: Xid (PCI:0000:1b:00): 79, x", "NVRM: Xid (PCI:0000:9b:00): 48, x", "NVRM: Xid (PCI:0000:ab:00): 31, x"):
    host.window.new.take(line)
host.window.after.gpus["0000:1a:00.0"]["ecc"].update(volatile_uncorrectable=7, aggregate_correctable=30)
print(json.dumps(run_test(request_of("accept"), host.machine())))
"""
ORDER = {"accepted": 0, "incomplete": 1, "rejected": 2}
NAMES = sorted({check for rank in sound("accept") for check in (event.get("name") for event in rank) if check})


class TestAlways:
    """Properties of whole tests."""

    # The other rank tells the same, or only some images can do it.
    MISSED_BY_NOBODY = ("container_limits", "device_nodes", "training.fp8", "training.compile")

    @staticmethod
    def of(path: Path, tier: str, events: list[list[Event]], **child: Any) -> dict[str, Any]:
        return run_test(request_of(tier), Host(path, events=events, **child).machine())

    def test_the_same_input_gives_the_same_answer(self, tmp_path: Path) -> None:
        for tier in smoke_tiers.TIERS:
            burn = 600 if tier == "burn" else 0
            first, second = (self.of(tmp_path, tier, sound(tier, burn)) for _run in range(2))
            assert [first[key] for key in ANSWER] == [second[key] for key in ANSWER]

    @given(
        st.sampled_from(["quick", "accept"]),
        st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, WORLD - 1), st.sampled_from(["fail", "could_not_run", "pass", None])), max_size=4),
        st.sampled_from([{}, {"exit_code": 1}, {"exit_code": -9, "timed_out": True, "seconds": 90.0}]),
        st.randoms(use_true_random=False),
    )
    @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_in_which_order_ranks_speak_and_what_they_say_twice_makes_no_difference(
        self, tmp_path: Path, tier: str, bent: list[tuple[str, int, str | None]], child: dict[str, Any], chance: Random
    ) -> None:
        """Of each rank the order is its own; between the ranks, and where a line comes again, everything is possible."""
        events = sound(tier)
        for name, rank, status in bent:
            events[rank] = replaced(events[rank], name, result(name, status, f"{name} of rank {rank}") if status else None)

        def mixed(ranks: list[list[str]]) -> list[str]:
            turns = [rank for rank, said in enumerate(ranks) for _line in said]
            chance.shuffle(turns)
            left = [iter(said) for said in ranks]
            came: list[str] = []
            for rank in turns:
                came.append(next(left[rank]))
                # Again, whole or within a line of somebody else's.
                came += [chance.choice(["", "NCCL INFO "]) + chance.choice(came[-40:])] if chance.random() < 0.2 else []
            return came

        plain, other = Host(tmp_path), Host(tmp_path)
        plain.runs, other.runs = [Ran(events, child)], [Ran(events, child, mixed)]
        first, second = (run_test(request_of(tier), host.machine()) for host in (plain, other))
        assert [first[key] for key in ANSWER] == [second[key] for key in ANSWER]

    @given(st.sampled_from([{}, {"gpus": 1}, {"fabric_state": "In Progress"}, {"library": "580.65.06"}]), st.randoms(use_true_random=False))
    @settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_in_which_order_a_host_lists_its_gpus_makes_no_difference(self, tmp_path: Path, bent: dict[str, Any], chance: Random) -> None:
        facts = facts_for(**{**CONVERGED, "gpus": WORLD, **bent})
        other = copy.deepcopy(facts)
        for listed in (other["gpus"], other["nvidia_smi"]["gpus"], other["device_nodes"]):
            chance.shuffle(listed)
        cards = list(request().gpus)
        chance.shuffle(cards)
        first = run_test(request(), Host(tmp_path, [facts]).machine())
        second = run_test(request(gpus=cards), Host(tmp_path, [other]).machine())
        assert [first[key] for key in ANSWER] == [second[key] for key in ANSWER]

    def test_nor_does_the_seed_of_pythons_hashes(self) -> None:
        """A sentence that is made of a set would be another one in each process."""
        said = set()
        for seed in ("0", "1", "2", "3"):
            path = os.pathsep.join(str(ROOT / folder) for folder in ("collections", "molecule", "."))
            done = subprocess.run(
                [sys.executable, "-c", BENT], env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": path}, capture_output=True, text=True, check=True
            )
            said.add(done.stdout)
        [only] = said
        assert json.loads(only)["verdict"] == "rejected"

    @given(st.sampled_from(["quick", "accept"]), st.integers(0, 10_000), st.integers(0, WORLD - 1))
    @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_line_less_never_leads_to_acceptance_of_more(self, tmp_path: Path, tier: str, at: int, rank: int) -> None:
        """Each result, figure and finding that is required is missed."""
        events = sound(tier)
        said = events[rank]
        gone = said.pop(at % len(said))
        returned = self.of(tmp_path, tier, events)
        if gone["event"] not in ("stage", "start") and gone.get("name") not in self.MISSED_BY_NOBODY:
            assert returned["verdict"] == "incomplete", gone

    @given(st.sampled_from(["quick", "accept"]), st.sampled_from([*NAMES, "another", "Odd Name"]), st.integers(0, WORLD - 1), st.booleans())
    @settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_a_failure_that_is_added_is_never_accepted(self, tmp_path: Path, tier: str, name: str, rank: int, first: bool) -> None:
        events = sound(tier)
        said = events[rank]
        said.insert(1 if first else len(said) - 1, result(name, "fail", "something is wrong"))
        assert self.of(tmp_path, tier, events)["verdict"] == "rejected"

    @given(st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, WORLD - 1)), max_size=6), st.sampled_from([0, 1, 125, 137]), st.booleans())
    @settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    def test_what_is_missing_is_never_accepted(self, tmp_path: Path, missing: list[tuple[str, int]], exit_code: int, timed_out: bool) -> None:
        events = sound("accept")
        for name, rank in missing:
            events[rank] = replaced(events[rank], name, None)
        returned = self.of(tmp_path, "accept", events, exit_code=exit_code, timed_out=timed_out)
        if exit_code or timed_out:
            assert returned["verdict"] != "accepted"
        if returned["verdict"] == "accepted":
            required = [check for check in returned["checks"] if check["required"]]
            assert {check["status"] for check in required} <= {"pass", "degraded"}
            wanted = smoke_tiers.requirements([], [], "accept", "cuda")
            assert {entry.name for entry in wanted} <= {check["name"] for check in returned["checks"]}

    def test_removing_any_check_of_a_whole_test_never_helps(self, tmp_path: Path) -> None:
        """Every check that is required is named by the requirements: without it the verdict is incomplete."""
        asked = request_of("accept")
        returned = run_test(asked, Host(tmp_path).machine())
        made = asked.asked(facts_for(**{**CONVERGED, "gpus": WORLD}))
        required = smoke_tiers.requirements(made.gpus, made.parts, "accept", "cuda")
        checks = returned["checks"]
        keys = {(check["name"], check["gpu"]["pci_bus_id"] if check["gpu"] else None) for check in checks if check["required"]}
        assert keys >= {(entry.name, entry.gpu["pci_bus_id"] if entry.gpu else None) for entry in required if entry.name not in EXCUSES}
        for at, check in enumerate(checks):
            rest = checks[:at] + checks[at + 1 :]
            after = verdict.evaluate(rest, required, "cuda", "accept", EXCUSES)["verdict"]
            assert after == ("incomplete" if check["required"] else "accepted"), check["name"]


def test_containers_are_told_apart_by_their_run(tmp_path: Path) -> None:
    """A second container must not read the lines of the first one for its own."""
    ids = iter(["first0", "second"])
    host = Host(tmp_path)
    host.runs.insert(0, Ran([[], []], {"exit_code": 1, "stderr": ["address already in use"]}))
    run_test(request(), host.machine()._replace(run_id=lambda: next(ids)))
    containers: list[Container] = host.containers
    assert [container.run_id for container in containers] == ["first0", "second"]
