# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What facts and a payload's output mean: each way in which a host or a run can be wrong, and that nothing missing passes."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_host
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_checks import SEEN_TWICE, Asked, container_checks, host_checks, payload_checks, speed_checks
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_container import limit_problems, parse_size, parse_ulimit
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import unit_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, capability, dtypes_of, dtypes_to_run, expected_gpus
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_health import fabric_in_progress
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import Bought
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_identity import owners_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import PRODUCTS
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import ChildResult, Outcome, Transcript
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_tiers import requirements
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Check, Requirement, Verdict, evaluate

from tests.unit.hosts import BUS_IDS, CONVERGED, DRIVER, facts_for
from tests.unit.smoke_fakes import (
    LIMITS,
    MODEL,
    RUN,
    TORCHRUN_CRASH,
    Event,
    all_lines,
    container,
    figure,
    floor,
    gpus,
    lines,
    rank_events,
    reduce_value,
    result,
    uuid_of,
)

Facts = dict[str, Any]
WORLD = 2


def host(count: int = WORLD, **changes: Any) -> Facts:
    return facts_for(**{**CONVERGED, "gpus": count, **changes})


def by_name(checks: list[Check], name: str) -> list[Check]:
    return [check for check in checks if check["name"] == name]


def only(checks: list[Check], name: str) -> Check:
    found = by_name(checks, name)
    assert len(found) == 1
    return found[0]


NO_IMEX = {"imex": "no rack"}


def asked(expected: list[ExpectedGpu] | None = None, backend: str = "cuda", **changes: Any) -> Asked:
    """What the plan asks of an HGX H100 board, tier quick."""
    cards = gpus(WORLD) if expected is None else expected
    made = Asked(cards, cards, "quick", backend, Bought(MODEL, len(cards)), DRIVER, "off", NO_IMEX, {})
    return made._replace(**changes)


def checked(facts: Facts, count: int = WORLD, capability_text: str = "9.0", excuses: dict[str, str] | None = None) -> list[Check]:
    return host_checks(asked(gpus(count, capability_text), excused={**NO_IMEX, **(excuses or {})}), facts)


def seen_before(backend: str = "cuda", count: int = WORLD) -> list[Requirement]:
    """What a host and its container have to show, without what a whole test looks at beside them."""
    wanted = requirements(gpus(count), gpus(count), "quick", backend)
    return [entry for entry in wanted if not entry.name.startswith("window.") and entry.name not in ("pcie_link", "daemon_reload", "imex")]


class TestHost:
    def test_a_sound_host_passes_everything(self) -> None:
        checks = checked(host())
        cards = {"gpu_model", "gpu_memory", "compute_mode", "persistence", "mig_mode", "gpu_health", "fabric"}
        assert {check["name"] for check in checks} == {"gpu_idle", "gpu_count", "driver_library_match", "device_nodes", "imex", *cards}
        assert {check["status"] for check in checks if check["name"] != "imex"} == {"pass"}
        assert [check["gpu"]["pci_bus_id"] for check in by_name(checks, "fabric") if check["gpu"]] == list(BUS_IDS[:2])

    def test_a_missing_gpu_is_named(self) -> None:
        check = only(checked(host(1)), "gpu_count")
        assert check["status"] == "fail"
        assert "the PCI bus lacks 0000:1b:00.0" in str(check["reason"])
        assert "nvidia-smi lacks 0000:1b:00.0" in str(check["reason"])

    def test_a_gpu_too_many_is_named(self) -> None:
        check = only(checked(host(3)), "gpu_count")
        assert check["status"] == "fail"
        assert "has 0000:4a:00.0, which the plan does not expect" in str(check["reason"])

    def test_on_the_bus_but_lost_by_the_driver(self) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"].pop()
        check = only(checked(facts), "gpu_count")
        assert check["status"] == "fail"
        assert check["reason"] == "2 GPUs are expected, but nvidia-smi lacks 0000:1b:00.0"

    def test_another_card_in_the_slot(self) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"][1]["uuid"] = "GPU-other"
        check = only(checked(facts), "gpu_count")
        assert check["status"] == "fail"
        assert f"GPU 0000:1b:00.0 is GPU-other, the plan says {uuid_of(1)}" in str(check["reason"])

    def test_no_gpu_expected_is_no_pass(self) -> None:
        assert only(host_checks(asked([], bought=None), host(0)), "gpu_count")["status"] == "fail"

    @pytest.mark.parametrize("state", ["absent", "hung", "failed", "garbled"])
    def test_without_an_answer_of_nvidia_smi_nothing_is_shown(self, state: str) -> None:
        facts = host()
        facts["nvidia_smi"].update(state=state, error="its words", gpus=[], driver_version=None)
        checks = checked(facts)
        for name in ("gpu_count", "fabric"):
            assert {check["status"] for check in by_name(checks, name)} == {"could_not_run"}
            assert f"nvidia-smi is {state}: its words" in str(by_name(checks, name)[0]["reason"])
        assert only(checks, "driver_library_match")["status"] == "could_not_run"

    def test_holders_are_named_by_process_container_and_unit(self) -> None:
        facts = host()
        facts["holders"].append(
            {
                "device": "/dev/nvidia1",
                "pid": 4711,
                "command": "python3 train.py",
                "unit": "docker.service",
                "container": "abc123def4567890",
                "role": "workload",
            }
        )
        check = only(checked(facts), "gpu_idle")
        assert check["status"] == "could_not_run"
        assert check["reason"] == (
            "the GPUs are in use, so nothing was started: /dev/nvidia1 is open in process 4711 (python3 train.py), container abc123def456, unit docker.service"
        )

    def test_a_container_of_the_engine_is_named(self) -> None:
        facts = host()
        facts["docker"]["containers"] = [{"id": "abc123def456", "name": "train", "image": "pytorch", "devices": ["nvidia.com/gpu=1"]}]
        holder = {"device": "/dev/nvidia1", "pid": 4711, "command": "python3 train.py", "unit": None, "container": "abc123def456", "role": "workload"}
        facts["holders"].append(holder)
        reason = only(checked(facts), "gpu_idle")["reason"]
        assert str(reason).endswith("/dev/nvidia1 is open in process 4711 (python3 train.py), container train (abc123def456)")

    def test_a_process_that_only_nvidia_smi_shows(self) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"][0]["processes"] = [{"pid": 99, "name": "trainer", "memory_mib": 10}]
        assert "GPU 0000:1a:00.0 is used by process 99 (trainer)" in str(only(checked(facts), "gpu_idle")["reason"])

    def test_services_are_no_workload_also_where_nvidia_smi_lists_them(self) -> None:
        facts = host()
        assert facts["holders"]
        facts["nvidia_smi"]["gpus"][0]["processes"] = [{"pid": facts["holders"][0]["pid"], "name": "nvidia-persistenced", "memory_mib": 1}]
        assert only(checked(facts), "gpu_idle")["status"] == "pass"

    def test_a_holder_of_unknown_role_is_a_workload(self) -> None:
        facts = host()
        facts["holders"].append({"device": "/dev/nvidia1", "pid": 1, "command": "x", "unit": None, "container": None})
        assert only(checked(facts), "gpu_idle")["status"] == "could_not_run"

    @pytest.mark.parametrize(
        ("module", "library", "smi", "planned", "status"),
        [
            (DRIVER, DRIVER, DRIVER, DRIVER, "pass"),
            (DRIVER, DRIVER, DRIVER, None, "pass"),
            ("580.1", DRIVER, DRIVER, DRIVER, "fail"),
            (DRIVER, "580.1", DRIVER, DRIVER, "fail"),
            (DRIVER, DRIVER, "580.1", DRIVER, "fail"),
            (DRIVER, DRIVER, DRIVER, "580.1", "fail"),
            (DRIVER, "580.1", None, DRIVER, "fail"),
            (None, DRIVER, DRIVER, DRIVER, "could_not_run"),
            (DRIVER, None, DRIVER, DRIVER, "could_not_run"),
            (DRIVER, DRIVER, None, DRIVER, "could_not_run"),
            (None, None, None, None, "could_not_run"),
        ],
    )
    def test_driver_versions(self, module: str | None, library: str | None, smi: str | None, planned: str | None, status: str) -> None:
        facts = host()
        facts["modules"]["nvidia"]["version"] = module
        facts["library_version"] = library
        facts["nvidia_smi"]["driver_version"] = smi
        check = smoke_host.driver_library_match(facts, planned)
        assert check["status"] == status
        assert ("reboot" in str(check["remedy"])) == (status == "fail")

    @pytest.mark.parametrize("path", ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"])
    def test_a_missing_node(self, path: str) -> None:
        facts = host()
        facts["device_nodes"] = [node for node in facts["device_nodes"] if node["path"] != path]
        assert only(checked(facts), "device_nodes")["status"] == "could_not_run"

    def test_nodes_in_the_container_are_compared_with_the_hosts(self) -> None:
        facts = host()
        inside = {node["path"]: [node["major"], node["minor"]] for node in facts["device_nodes"]}
        assert smoke_host.device_nodes(gpus(WORLD), facts, inside)["status"] == "pass"
        without = {path: numbers for path, numbers in inside.items() if path != "/dev/nvidia-uvm"}
        assert smoke_host.device_nodes(gpus(WORLD), facts, without)["reason"] == "the container lacks /dev/nvidia-uvm"
        other = {**inside, "/dev/nvidia0": [508, 7]}
        assert smoke_host.device_nodes(gpus(WORLD), facts, other)["reason"] == "/dev/nvidia0 is 508:7 in the container and 195:0 on the host"
        assert smoke_host.device_nodes(gpus(WORLD), facts, {})["status"] == "could_not_run"


class TestFabric:
    @pytest.mark.parametrize(
        ("state", "status", "expected"),
        [
            ("Completed", "Success", "pass"),
            ("Completed", None, "fail"),
            ("Completed", "Failure", "fail"),
            ("In Progress", "N/A", "fail"),
            (None, None, "fail"),
            (None, "Success", "fail"),
            ("completed", "Success", "fail"),
        ],
    )
    def test_hopper_and_newer_say_so_themselves(self, state: str | None, status: str | None, expected: str) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"][1]["fabric"] = {"state": state, "status": status}
        assert [check["status"] for check in by_name(checked(facts), "fabric")] == ["pass", expected]

    def test_what_the_plan_excuses_is_not_looked_at(self) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"][0]["fabric"] = {"state": None, "status": None}
        checks = by_name(checked(facts, excuses={"fabric": "no NVSwitch"}), "fabric")
        assert [(check["status"], check["reason"]) for check in checks] == [("not_applicable", "no NVSwitch")] * 2

    def test_a_gpu_that_nvidia_smi_does_not_list(self) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"].pop()
        assert [check["status"] for check in by_name(checked(facts), "fabric")] == ["pass", "could_not_run"]

    def test_an_unknown_chip_is_no_pass(self) -> None:
        assert {check["status"] for check in by_name(checked(host(), capability_text=""), "fabric")} == {"could_not_run"}

    @pytest.mark.parametrize(
        ("version", "active", "status"),
        [
            (DRIVER, "active", "pass"),
            (DRIVER, "failed", "fail"),
            (DRIVER, None, "fail"),
            ("580.1", "active", "fail"),
            (None, "active", "could_not_run"),
        ],
    )
    def test_before_hopper_unit_and_version_stand_for_it(self, version: str | None, active: str | None, status: str) -> None:
        facts = host()
        for gpu in facts["nvidia_smi"]["gpus"]:
            gpu["fabric"] = {"state": None, "status": None}
        facts["packages"]["installed"] = {"nvidia-fabricmanager": {"version": f"{version}-1", "held": True}} if version else {}
        facts["units"]["nvidia-fabricmanager.service"] = {"load": "loaded", "active": active, "enabled": "enabled"}
        assert {check["status"] for check in by_name(checked(facts, capability_text="8.0"), "fabric")} == {status}

    @pytest.mark.parametrize(
        ("change", "words", "remedy"),
        [
            ({"ecc": {"volatile_uncorrectable": 2, "aggregate_uncorrectable": 2}}, "2 uncorrectable memory errors since", "reset the GPU"),
            ({"remapped_rows": {"pending": True, "failure": False}}, "waits for a reset to be remapped", "reset the GPU"),
            ({"remapped_rows": {"pending": False, "failure": True}}, "could not be remapped", "have the GPU replaced: it has no spare rows"),
            ({"remapped_rows": {"pending": True, "failure": True}}, "could not be remapped; a faulty row", "have the GPU replaced: it has no spare rows"),
            ({"recovery_action": "GPU Reset"}, "the driver asks for: GPU Reset", "reset the GPU"),
            ({"recovery_action": "Node Reboot"}, "the driver asks for: Node Reboot", "reboot"),
            ({"recovery_action": "Drain P2P"}, "the driver asks for: Drain P2P", "drain the host"),
            ({"recovery_action": None, "errors": ["gpu_recovery_action: GPU is lost"]}, "cannot read its health (gpu_recovery_action: GPU is lost)", "Xid"),
        ],
    )
    def test_a_sick_gpu_fails_alone_and_says_why(self, change: dict[str, Any], words: str, remedy: str) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"][1].update(change)
        first, second = by_name(checked(facts), "gpu_health")
        assert (first["status"], second["status"]) == ("pass", "fail")
        assert words in str(second["reason"])
        assert remedy in str(second["remedy"])
        verdict = evaluate(checked(facts), seen_before(), "cuda")
        assert verdict["verdict"] == "rejected"
        assert BUS_IDS[1] in verdict["reason"]

    @pytest.mark.parametrize(
        ("change", "silent"),
        [
            ({"ecc": {"volatile_uncorrectable": None, "aggregate_uncorrectable": None}}, "volatile_uncorrectable"),
            ({"remapped_rows": {"pending": None, "failure": None}}, "row_remap_failure, row_remap_pending"),
            ({"recovery_action": None}, "recovery_action"),
        ],
    )
    def test_what_a_card_does_not_report_is_said_and_held_for_good(self, change: dict[str, Any], silent: str) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"][0].update(change)
        check = by_name(checked(facts), "gpu_health")[0]
        assert (check["status"], check["reason"]) == ("pass", f"nvidia-smi does not report on this GPU: {silent}")
        assert set(check["value"]) == set(check["floor"])

    def test_health_that_could_not_be_read_is_no_pass(self) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"][1].update(recovery_action=None, errors=[f"{field}: Unknown Error" for field in ("total", "pending", "gpu_recovery_action")])
        first, second = by_name(checked(facts), "gpu_health")
        assert (first["status"], second["status"]) == ("pass", "could_not_run")
        assert "total: Unknown Error, pending: Unknown Error and 1 more" in str(second["reason"])
        assert "dmesg" in str(second["remedy"])
        assert evaluate(checked(facts), seen_before(), "cuda")["verdict"] == "incomplete"

    def test_errors_of_a_cards_whole_life_are_not_held_against_it(self) -> None:
        facts = host()
        facts["nvidia_smi"]["gpus"][0]["ecc"] = {"volatile_uncorrectable": 0, "aggregate_uncorrectable": 7}
        assert {check["status"] for check in by_name(checked(facts), "gpu_health")} == {"pass"}

    @pytest.mark.parametrize("state", ["absent", "hung", "failed", "garbled"])
    def test_health_that_nobody_tells_is_no_pass(self, state: str) -> None:
        facts = host()
        facts["nvidia_smi"].update(state=state, gpus=[])
        assert {check["status"] for check in by_name(checked(facts), "gpu_health")} == {"could_not_run"}

    def test_health_of_a_gpu_that_nvidia_smi_does_not_list(self) -> None:
        facts = host()
        del facts["nvidia_smi"]["gpus"][1]
        assert [check["status"] for check in by_name(checked(facts), "gpu_health")] == ["pass", "could_not_run"]

    def test_registration_under_way_is_worth_a_wait(self) -> None:
        facts = host()
        assert not fabric_in_progress(gpus(WORLD), facts)
        facts["nvidia_smi"]["gpus"][1]["fabric"] = {"state": "In Progress", "status": None}
        assert fabric_in_progress(gpus(WORLD), facts)
        assert not fabric_in_progress(gpus(1), facts)


class TestRequirements:
    @pytest.mark.parametrize(
        ("chip", "dtypes"),
        [
            ("10.0", ["fp64", "fp32", "fp16", "tf32", "bf16", "fp8"]),
            ("9.0", ["fp64", "fp32", "fp16", "tf32", "bf16", "fp8"]),
            ("8.9", ["fp64", "fp32", "fp16", "tf32", "bf16", "fp8"]),
            ("8.0", ["fp64", "fp32", "fp16", "tf32", "bf16"]),
            ("7.5", ["fp64", "fp32", "fp16"]),
            (None, ["fp64", "fp32", "fp16"]),
        ],
    )
    def test_formats_by_chip(self, chip: str | None, dtypes: list[str]) -> None:
        assert dtypes_of(gpus(1, chip)[0]) == dtypes

    def test_an_unknown_chip_runs_everything_that_it_has(self) -> None:
        assert set(dtypes_to_run(gpus(1, None))) == set(PRODUCTS)
        assert dtypes_to_run([*gpus(1, "7.5"), gpus(2, "8.0")[1]]) == ["fp64", "fp32", "fp16", "tf32", "bf16"]

    @pytest.mark.parametrize(("text", "value"), [("9.0", (9, 0)), ("12.1", (12, 1)), ("9", None), ("", None), (None, None), ("9.0a", None)])
    def test_capability(self, text: str | None, value: tuple[int, int] | None) -> None:
        assert capability(text) == value

    def test_gpus_of_the_plan_take_from_nvidia_smi_only_what_the_plan_lacks(self) -> None:
        given: list[dict[str, Any]] = [{"pci_bus_id": "00000000:1B:00.0", "uuid": "GPU-planned"}, {"pci_bus_id": BUS_IDS[0], "uuid": None}]
        found = expected_gpus(given, host())
        assert [(gpu.pci_bus_id, gpu.uuid) for gpu in found] == [(BUS_IDS[0], uuid_of(0)), (BUS_IDS[1], "GPU-planned")]


FIGURES = ("matmul.bf16", "memory.copy", "copy.host_to_device", "copy.device_to_host")
FLOORS = {MODEL: {name: [floor(90, unit=unit_of(name))] for name in FIGURES}}
CPU_EXCUSES = {f"speed.{name}": "on the CPU" for name in FIGURES}


def ran(events: list[list[Event]], exit_code: int | None = 0, backend: str = "cuda", **child: Any) -> Outcome:
    """The outcome of a container whose ranks said these events."""
    transcript = Transcript(RUN, len(events), clock=lambda: 0.0)
    for rank, said in enumerate(events):
        transcript.feed(lines(rank, said))
    ended: dict[str, Any] = {"exit_code": exit_code, "timed_out": False, "seconds": 20.0, "stdout": [], "stderr": [], **child}
    return Outcome(container(ranks=len(events), backend=backend, limit_s=300), ChildResult(**ended), transcript)


def sound(backend: str = "cuda") -> list[list[Event]]:
    return [rank_events(rank, WORLD, backend) for rank in range(WORLD)]


def judge(outcome: Outcome, facts: Facts | None = None) -> tuple[Verdict, list[Check]]:
    facts = facts or host()
    backend = outcome.container.backend
    wanted = asked(backend=backend, excused={**NO_IMEX, **({} if backend == "cuda" else CPU_EXCUSES)}, floors=FLOORS)
    first = [check for check in host_checks(wanted, facts) if check["name"] not in SEEN_TWICE and check["name"] != "imex"]
    checks = [*first, *container_checks(wanted, facts, outcome)]
    return evaluate(checks, seen_before(backend), backend, not_applicable=wanted.excused), checks


def replaced(events: list[Event], name: str, new: Event | None) -> list[Event]:
    """The events with the result (or finding) of this name replaced or left out."""
    kept = []
    for event in events:
        if event.get("name") == name and event["event"] in ("check", "found"):
            if new:
                kept.append(new)
        else:
            kept.append(event)
    return kept


def torch_built_for(*architectures: str) -> Event:
    return {"event": "found", "name": "torch", "value": {"torch": "2.11.0", "cuda": "13.0", "nccl": "2.28.9", "arch_list": list(architectures)}}


class TestContainer:
    @pytest.mark.parametrize(("backend", "verdict"), [("cuda", "accepted"), ("cpu", "simulated")])
    def test_a_sound_run(self, backend: str, verdict: str) -> None:
        judged, checks = judge(ran(sound(backend), backend=backend))
        assert judged["verdict"] == verdict, judged["reason"]
        assert {check["status"] for check in checks if not (backend == "cpu" and check["name"].startswith("speed."))} == {"pass"}

    def test_an_image_without_code_for_the_gpu_rejects_no_gpu(self) -> None:
        events = [replaced(said, "torch", torch_built_for("sm_80", "sm_100", "sm_90a_x", "compute_100")) for said in sound()]
        for said in events:
            for event in said:
                if event["event"] == "check":
                    event.update(status="could_not_run", reason="not attempted: no code", value=None)
        judged, checks = judge(ran(events))
        assert judged["verdict"] == "incomplete"
        assert "image_architecture" in judged["reason"]
        assert judged["remedy"] == "use an image built for this GPU (pytorch_image_ref)"
        for check in by_name(checks, "image_architecture"):
            assert check["status"] == "could_not_run"
            assert check["value"] == {"arch_list": ["sm_80", "sm_100", "sm_90a_x", "compute_100"], "capability": "9.0"}
        assert {check["status"] for check in by_name(checks, "matmul_exact.bf16")} == {"could_not_run"}

    @pytest.mark.parametrize("name", ["matmul_exact.bf16", "all_reduce_exact"])
    @pytest.mark.parametrize("status", ["fail", "could_not_run"])
    def test_no_kernel_image_is_no_fault_of_the_gpu_also_where_torch_lists_it(self, name: str, status: str) -> None:
        events = sound()
        reason = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
        events[1] = replaced(events[1], name, result(name, status, reason))
        judged, _checks = judge(ran(events))
        assert (judged["verdict"], judged["remedy"]) == ("incomplete", "use an image built for this GPU (pytorch_image_ref)")

    def test_no_architectures_do_not_hide_why_cuda_does_not_work(self) -> None:
        events = [replaced(replaced(said, "torch", torch_built_for()), "gpu_identity", result("gpu_identity", "fail", "Error 802")) for said in sound()]
        judged, checks = judge(ran(events))
        assert judged["verdict"] == "rejected"
        assert "gpu_identity" in judged["reason"] and "Error 802" in judged["reason"]
        assert by_name(checks, "image_architecture")[0]["reason"] == "the GPU's compute capability was not told: Error 802"

    @pytest.mark.parametrize("torch", [torch_built_for(), None])
    def test_architectures_that_nobody_tells_are_no_pass(self, torch: Event | None) -> None:
        judged, checks = judge(ran([replaced(said, "torch", torch) for said in sound()]))
        assert judged["verdict"] == "incomplete"
        assert "does not tell which GPUs it was built for" in str(by_name(checks, "image_architecture")[0]["reason"])

    def test_on_the_cpu_the_images_architectures_do_not_matter(self) -> None:
        judged, checks = judge(ran([replaced(said, "torch", torch_built_for()) for said in sound("cpu")], backend="cpu"))
        assert judged["verdict"] == "simulated"
        assert by_name(checks, "image_architecture") == []

    def test_every_gpu_is_named_by_uuid_and_bus_id(self) -> None:
        _, checks = judge(ran(sound()))
        products = by_name(checks, "matmul_exact.bf16")
        assert [check["gpu"] for check in products] == [{"uuid": uuid_of(index), "pci_bus_id": BUS_IDS[index]} for index in range(WORLD)]

    def test_one_rank_wrong(self) -> None:
        events = sound()
        events[1] = replaced(events[1], "matmul_exact.bf16", result("matmul_exact.bf16", "fail", "3 of 9 elements are wrong (0 NaN, 0 Inf)", {"wrong": 3}))
        judged, _ = judge(ran(events))
        assert judged["verdict"] == "rejected"
        assert judged["reason"] == f"matmul_exact.bf16 on GPU {BUS_IDS[1]} ({uuid_of(1)}) failed: 3 of 9 elements are wrong (0 NaN, 0 Inf)"
        assert judged["remedy"]

    @pytest.mark.parametrize("name", ["gpu_identity", "container_limits", "device_nodes", "matmul_exact.fp64", "matmul_exact.fp8", "all_reduce_exact"])
    def test_no_result_of_one_rank_is_incomplete(self, name: str) -> None:
        events = [replaced(said, name, None) if rank == 1 or name in ("container_limits", "device_nodes") else said for rank, said in enumerate(sound())]
        assert judge(ran(events))[0]["verdict"] == "incomplete"

    @pytest.mark.parametrize("status", ["not_applicable", "degraded", "ok", "None"])
    def test_a_status_that_is_not_the_payloads_to_give(self, status: str) -> None:
        events = sound()
        events[0] = replaced(events[0], "matmul_exact.fp64", result("matmul_exact.fp64", status, "because"))
        judged, checks = judge(ran(events))
        assert judged["verdict"] == "incomplete"
        assert by_name(checks, "matmul_exact.fp64")[0]["reason"] == f"the payload said {status!r}: because"

    @pytest.mark.parametrize("key", ["shape", "elements", "repeats", "wrong", "nan", "inf"])
    @pytest.mark.parametrize("change", ["missing", "different"])
    def test_a_pass_without_the_numbers_of_the_whole_work_is_none(self, key: str, change: str) -> None:
        events = sound()
        value = next(dict(event["value"]) for event in events[0] if event.get("name") == "matmul_exact.fp64" and event["event"] == "check")
        value.pop(key)
        if change == "different":
            value[key] = 1
        events[0] = replaced(events[0], "matmul_exact.fp64", result("matmul_exact.fp64", "pass", None, value))
        judged, checks = judge(ran(events))
        assert judged["verdict"] == "incomplete"
        assert f"the payload said pass, but {key} is" in str(by_name(checks, "matmul_exact.fp64")[0]["reason"])

    @pytest.mark.parametrize(("key", "value"), [("world", 1), ("rounds", 0), ("elements", 5), ("wrong", 1), ("nan", 1), ("inf", 1), ("wrong", False)])
    def test_a_collective_of_fewer_ranks_or_rounds_is_none(self, key: str, value: object) -> None:
        events = sound()
        events[0] = replaced(events[0], "all_reduce_exact", result("all_reduce_exact", "pass", None, {**reduce_value(WORLD), key: value}))
        assert judge(ran(events))[0]["verdict"] == "incomplete"

    def test_a_pass_without_a_value_is_none(self) -> None:
        events = sound()
        events[0] = replaced(events[0], "all_reduce_exact", result("all_reduce_exact", "pass"))
        assert "gave no numbers" in judge(ran(events))[0]["reason"]

    def test_a_hang_names_stage_rank_and_gpu(self) -> None:
        events = sound()
        cut = [next(i for i, event in enumerate(said) if event == {"event": "stage", "name": "all_reduce_exact"}) for said in events]
        outcome = ran([said[: at + 1] for said, at in zip(events, cut, strict=True)], None, timed_out=True, seconds=300.0)
        judged, checks = judge(outcome)
        assert judged["verdict"] == "rejected"
        assert f"all_reduce_exact on GPU {BUS_IDS[0]}" in judged["reason"]
        assert "rank 0 hung in it for 300 s, until the limit of 300 s was over" in judged["reason"]
        run = only(checks, "container_run")
        assert run["status"] == "could_not_run"
        assert (
            run["reason"]
            == "not done within 300 s: rank 0 (GPU 0000:1a:00.0) in all_reduce_exact since 300 s; rank 1 (GPU 0000:1b:00.0) in all_reduce_exact since 300 s"
        )

    def test_a_stage_that_had_no_time_is_not_called_a_hang(self) -> None:
        events = [said[: said.index({"event": "stage", "name": "matmul_exact.fp64"}) + 1] for said in sound()]
        judged, checks = judge(ran(events, None, timed_out=True, seconds=30.0))
        assert judged["verdict"] == "incomplete"
        assert "rank 0 had been in it for 30 s when the limit of 300 s was over" in str(by_name(checks, "matmul_exact.fp64")[0]["reason"])

    def test_waiting_and_importing_are_not_the_gpus_work(self) -> None:
        for stage in ("import_torch", "wait_for_ranks"):
            events = [said[: said.index({"event": "stage", "name": stage}) + 1] for said in sound()]
            judged, checks = judge(ran(events, None, timed_out=True, seconds=300.0))
            assert judged["verdict"] == "incomplete"
            assert f"rank 0 was in {stage} when the run ended" in str(by_name(checks, "all_reduce_exact")[0]["reason"])

    def test_a_child_left_behind_is_told(self) -> None:
        _, checks = judge(ran([[], []], None, timed_out=True, seconds=300.0, left_behind="process 9 does not die (state D, in nv_lock)"))
        assert "no rank reported anything; process 9 does not die (state D, in nv_lock)" in str(only(checks, "container_run")["reason"])

    @pytest.mark.parametrize(
        ("number", "verdict", "words"),
        [
            (11, "rejected", "rank 1 crashed in it with SIGSEGV"),
            (6, "rejected", "rank 1 crashed in it with SIGABRT"),
            (7, "rejected", "rank 1 crashed in it with SIGBUS"),
            (9, "incomplete", "rank 1 ended in it with SIGKILL"),
            (15, "incomplete", "rank 1 ended in it with SIGTERM"),
            (99, "incomplete", "rank 1 ended in it with signal 99"),
        ],
    )
    def test_a_crash_in_a_stage(self, number: int, verdict: str, words: str) -> None:
        events = sound()
        events[1] = events[1][: events[1].index({"event": "stage", "name": "matmul_exact.bf16"}) + 1]
        stderr = TORCHRUN_CRASH.replace("-11", f"-{number}").splitlines()
        judged, checks = judge(ran(events, 1, stderr=stderr))
        assert judged["verdict"] == verdict
        assert by_name(checks, "matmul_exact.bf16")[1]["reason"] == words
        run = only(checks, "container_run")
        assert run["reason"] == f"exit status 1, first rank 1 (GPU {BUS_IDS[1]}) with {words.rpartition(' with ')[2]}"
        assert ("oom-kill" in str(run["remedy"])) == (number == 9)

    def test_half_a_line_is_no_result_also_where_everything_else_was_said(self) -> None:
        events = sound()
        at = next(index for index, event in enumerate(events[1]) if event["event"] == "check" and event["name"] == "matmul_exact.bf16")
        half = lines(1, events[1])[at][:90]
        del events[1][at]
        judged, checks = judge(ran(events, stdout=["NCCL version 2.28.9", half]))
        lost = by_name(checks, "matmul_exact.bf16")[1]
        assert (judged["verdict"], lost["status"], lost["gpu"]) == ("incomplete", "could_not_run", gpus()[1].gpu)
        assert lost["reason"] == f"its result is not in the output of rank 1; a line of the output breaks off: {half}"
        assert judged["reason"].startswith(f"matmul_exact.bf16 on GPU {BUS_IDS[1]} ({uuid_of(1)}) could not run: its result is not in the output")
        assert str(judged["remedy"]).startswith("test again; if it comes back, look for what else writes")

    def test_what_torchrun_says_of_a_crash_is_not_taken_for_its_cause(self) -> None:
        events = sound()
        events[1] = events[1][: events[1].index({"event": "stage", "name": "matmul_exact.bf16"}) + 1]
        report = [line.strip() for line in TORCHRUN_CRASH.splitlines()]
        _, checks = judge(ran(events, 1, stderr=report))
        assert only(checks, "container_run")["reason"] == f"exit status 1, first rank 1 (GPU {BUS_IDS[1]}) with SIGSEGV"
        _, checks = judge(ran(events, 1, stderr=["free(): invalid pointer", *report]))
        assert str(only(checks, "container_run")["reason"]).endswith("with SIGSEGV; last words: free(): invalid pointer")

    def test_another_ranks_crash_is_not_this_ones_failure(self) -> None:
        events = sound()
        events[0] = events[0][: events[0].index({"event": "stage", "name": "all_reduce_exact"}) + 1]
        events[1] = events[1][: events[1].index({"event": "stage", "name": "import_torch"}) + 1]
        stderr = ["Root Cause (first observed failure):", "  rank      : 1 (local_rank: 1)", "  exitcode  : -11 (pid: 9)"]
        judged, checks = judge(ran(events, 1, stderr=stderr))
        assert judged["verdict"] == "incomplete"
        assert "rank 0 was in it when the run ended: exit status 1, first rank 1" in str(by_name(checks, "all_reduce_exact")[0]["reason"])

    def test_a_rank_that_came_to_no_stage(self) -> None:
        events = sound()
        events[1] = events[1][:1]
        _, checks = judge(ran(events, 1))
        assert by_name(checks, "gpu_identity")[1]["reason"] == "rank 1 was at its start when the run ended: exit status 1"

    def test_a_rank_that_never_reported(self) -> None:
        events = sound()
        events[1] = []
        judged, checks = judge(ran(events, 1))
        assert judged["verdict"] == "incomplete"
        assert "rank 1 never reported" in str(by_name(checks, "gpu_identity")[1]["reason"])

    @pytest.mark.parametrize("exit_code", [0, 1, 125, 137])
    def test_an_exit_status_without_output_is_never_a_pass(self, exit_code: int) -> None:
        judged, checks = judge(ran([[], []], exit_code))
        assert judged["verdict"] == "incomplete"
        assert only(checks, "container_run")["status"] == "could_not_run"
        assert {check["status"] for check in by_name(checks, "all_reduce_exact")} == {"could_not_run"}

    def test_all_results_but_a_bad_exit_status(self) -> None:
        assert judge(ran(sound(), 1))[0]["verdict"] == "incomplete"

    def test_all_results_but_no_end(self) -> None:
        events = sound()
        events[1].pop()
        judged, _ = judge(ran(events))
        assert (judged["verdict"], "of rank 1 the end is missing" in judged["reason"]) == ("incomplete", True)

    def test_an_engine_that_is_not_there(self) -> None:
        judged, checks = judge(ran([[], []], None, error="docker cannot be started: No such file or directory"))
        assert judged["verdict"] == "incomplete"
        assert only(checks, "container_run")["reason"] == "docker cannot be started: No such file or directory"

    @pytest.mark.parametrize(
        ("words", "remedy"),
        [
            ("docker: Error response from daemon: CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all", "nvidia-cdi-refresh"),
            ("docker: Error response from daemon: No such image: registry.example/x@sha256:1", "pull the image"),
            ('docker: Error response from daemon: exec: "torchrun": executable file not found in $PATH', "no torchrun"),
            ("docker: Error response from daemon: error setting rlimit type 8: operation not permitted", "smoke_test_ulimits"),
            ("docker: Error response from daemon: something else", "journalctl"),
        ],
    )
    def test_what_the_engine_says_leads_to_a_remedy(self, words: str, remedy: str) -> None:
        _, checks = judge(ran([[], []], 125, stderr=[words, "See 'docker run --help'."]))
        run = only(checks, "container_run")
        assert remedy in str(run["remedy"])
        assert words in str(run["reason"])

    def test_cuda_that_cannot_start_keeps_its_own_words(self) -> None:
        words = "CUDA cannot use device 1: RuntimeError: Error 802: system not yet initialized"
        events = sound()
        events[1] = replaced(events[1], "gpu_identity", result("gpu_identity", "fail", words))
        judged, _ = judge(ran(events))
        assert judged["verdict"] == "rejected"
        assert words in judged["reason"]

    def test_the_container_sees_too_few_devices(self) -> None:
        events = sound()
        for said in events:
            next(event for event in said if event.get("name") == "gpu_identity" and event["event"] == "found")["value"]["device_count"] = 1
        judged, checks = judge(ran(events))
        assert judged["verdict"] == "rejected"
        assert "rank 0 saw 1 in the container" in str(only(checks, "gpu_count")["reason"])

    @pytest.mark.parametrize(
        ("key", "value", "words"),
        [
            ("uuid", "GPU-other", f"uuid is GPU-other, the plan says {uuid_of(1)}"),
            ("compute_capability", "8.0", "compute_capability is 8.0, the plan says 9.0"),
        ],
    )
    def test_cuda_says_another_gpu(self, key: str, value: str, words: str) -> None:
        events = sound()
        next(event for event in events[1] if event.get("name") == "gpu_identity" and event["event"] == "found")["value"][key] = value
        judged, checks = judge(ran(events))
        assert judged["verdict"] == "rejected"
        assert by_name(checks, "gpu_identity")[1]["reason"] == words

    def test_two_ranks_on_one_gpu(self) -> None:
        events = sound()
        identity = next(event for event in events[1] if event.get("name") == "gpu_identity" and event["event"] == "found")["value"]
        identity.update(uuid=uuid_of(0), pci_bus_id=BUS_IDS[0])
        judged, _ = judge(ran(events))
        assert judged["verdict"] == "rejected"
        assert "had the same GPU" in judged["reason"]

    def test_an_old_torch_tells_one_of_the_two(self) -> None:
        events = sound()
        for said in events:
            next(event for event in said if event.get("name") == "gpu_identity" and event["event"] == "found")["value"]["pci_bus_id"] = None
        assert judge(ran(events))[0]["verdict"] == "accepted"
        for said in events:
            next(event for event in said if event.get("name") == "gpu_identity" and event["event"] == "found")["value"]["uuid"] = None
        judged, checks = judge(ran(events))
        assert judged["verdict"] == "incomplete"
        assert by_name(checks, "gpu_identity")[0]["reason"] == "CUDA told neither bus id nor UUID"

    def test_ranks_in_another_order_keep_their_gpus(self) -> None:
        events = [rank_events(0, WORLD), rank_events(1, WORLD)]
        first, second = (next(e for e in said if e.get("name") == "gpu_identity" and e["event"] == "found")["value"] for said in events)
        for key in ("uuid", "pci_bus_id"):
            first[key], second[key] = second[key], first[key]
        events[0] = replaced(events[0], "matmul_exact.fp64", result("matmul_exact.fp64", "fail", "wrong"))
        assert judge(ran(events))[0]["reason"] == f"matmul_exact.fp64 on GPU {BUS_IDS[1]} ({uuid_of(1)}) failed: wrong"

    def test_a_rank_on_a_gpu_that_nobody_expects_speaks_for_none(self) -> None:
        events = sound()
        identity = next(event for event in events[1] if event.get("name") == "gpu_identity" and event["event"] == "found")["value"]
        for said in ({"uuid": "GPU-z", "pci_bus_id": "0000:99:00.0"}, {"uuid": "GPU-z", "pci_bus_id": None}, {"uuid": None, "pci_bus_id": "0000:99:00.0"}):
            identity.update(said)
            judged, checks = judge(ran(events))
            assert judged["verdict"] == "incomplete"
            assert [check["gpu"] for check in by_name(checks, "all_reduce_exact")] == [gpus(1)[0].gpu]

    def test_a_rank_that_cannot_tell_does_not_take_anothers_gpu(self) -> None:
        events = sound()
        events[0] = replaced(events[0], "gpu_identity", None)
        next(event for event in events[1] if event.get("name") == "gpu_identity" and event["event"] == "found")["value"].update(
            uuid=uuid_of(0), pci_bus_id=BUS_IDS[0]
        )
        judged, checks = judge(ran(events))
        assert judged["verdict"] == "incomplete"
        assert len(by_name(checks, "all_reduce_exact")) == 1

    def test_a_uuid_that_the_plan_does_not_know_proves_nothing(self) -> None:
        events = sound()
        for said in events:
            next(event for event in said if event.get("name") == "gpu_identity" and event["event"] == "found")["value"]["pci_bus_id"] = None
        unknown = [gpu._replace(uuid=None) for gpu in gpus(WORLD)]
        checks = container_checks(asked(unknown), host(), ran(events))
        assert "pass" not in {check["status"] for check in by_name(checks, "gpu_identity")}

    def test_a_count_that_is_none_is_no_count(self) -> None:
        events = sound()
        next(event for event in events[1] if event.get("name") == "gpu_identity" and event["event"] == "found")["value"]["device_count"] = "2"
        check = only(judge(ran(events))[1], "gpu_count")
        assert (check["status"], check["value"]["container"]) == ("fail", -1)

    @pytest.mark.parametrize(
        ("key", "value", "name", "status", "words"),
        [
            ("name", "NVIDIA H200", "gpu_model", "fail", "CUDA calls it NVIDIA H200, nvidia-smi NVIDIA H100 80GB HBM3"),
            ("name", None, "gpu_model", "could_not_run", "CUDA told no name of it"),
            ("memory_mib", 40000, "gpu_memory", "fail", "CUDA has 40000 MiB of the 81559 MiB that nvidia-smi tells"),
            ("memory_mib", None, "gpu_memory", "could_not_run", "CUDA did not tell its memory"),
        ],
    )
    def test_model_and_memory_are_seen_by_cuda_too(self, key: str, value: object, name: str, status: str, words: str) -> None:
        events = sound()
        next(event for event in events[1] if event.get("name") == "gpu_identity" and event["event"] == "found")["value"][key] = value
        checks = by_name(judge(ran(events))[1], name)
        assert [(check["status"], check["gpu"]) for check in checks] == [("pass", gpus(1)[0].gpu), (status, gpus(2)[1].gpu)]
        assert checks[1]["reason"] == words
        # On the CPU nothing of CUDA is there to be heard.
        alone = ran([rank_events(rank, WORLD, "cpu") for rank in range(WORLD)], backend="cpu")
        assert {check["status"] for check in by_name(judge(alone)[1], name)} == {"pass"}

    def test_where_cuda_says_nothing_of_itself_nvidia_smi_is_heard(self) -> None:
        events = sound()
        events[1] = replaced(events[1], "gpu_identity", None)
        assert {check["status"] for check in by_name(judge(ran(events))[1], "gpu_model")} == {"pass"}


class TestWhatThePayloadSays:
    """Of one rank: what was asked of it, what it did beside that, and what the plan excused."""

    @staticmethod
    def of(extra: list[Event] | None = None, without: tuple[str, ...] = (), figures: tuple[str, ...] = FIGURES, **changes: Any) -> list[Check]:
        events = sound()
        for name in without:
            events[0] = replaced(events[0], name, None)
        events[0][-1:-1] = extra or []
        outcome = ran(events)
        outcome = outcome._replace(container=outcome.container._replace(figures=figures))
        return payload_checks(0, gpus(1)[0], asked(**changes), outcome)

    def test_what_was_asked_of_it(self) -> None:
        formats = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")
        wanted = ["all_reduce_exact", *(f"{kind}.{dtype}" for dtype in formats for kind in ("matmul_exact", "matmul_repeat"))]
        assert sorted(check["name"] for check in self.of()) == sorted(wanted)

    def test_what_is_excused_is_left_out_unless_it_ran(self) -> None:
        excused = {**NO_IMEX, "all_reduce_exact": "parts of GPUs"}
        assert by_name(self.of(without=("all_reduce_exact",), excused=excused), "all_reduce_exact") == []
        assert len(by_name(self.of(excused=excused), "all_reduce_exact")) == 1
        missing = only(self.of(without=("all_reduce_exact",)), "all_reduce_exact")
        assert missing["status"] == "could_not_run"

    def test_a_failure_is_told_once_under_the_name_that_people_know(self) -> None:
        """A figure's is told with the figure, the identity's with the identity."""
        for name in (*FIGURES, "gpu_identity"):
            assert by_name(self.of([result(name, "fail", "wrong")]), name) == []

    @pytest.mark.parametrize("name", ["all_reduce.busbw", "pair.copy"])
    def test_a_figure_between_gpus_that_was_not_asked_for_is_nobodys_to_hide(self, name: str) -> None:
        assert only(self.of([result(name, "fail", "wrong")]), name)["status"] == "fail"
        assert by_name(self.of([result(name, "fail", "wrong")], figures=(*FIGURES, name)), name) == []

    def test_a_failure_of_any_name_is_one(self) -> None:
        checks = self.of([result("another", "fail", "a"), result("Odd Name", "fail", "b"), result("third", "could_not_run", "c"), result("fourth", "pass")])
        more = [(check["name"], check["status"], check["reason"], check["gpu"]) for check in checks if "matmul" not in check["name"]][1:]
        assert more == [("another", "fail", "a", gpus(1)[0].gpu), ("payload", "fail", "b", gpus(1)[0].gpu)]

    def test_formats_that_nobody_asked_for_count(self) -> None:
        checks = self.of([result("matmul_exact.fp4", "fail", "wrong"), result("matmul_repeat.fp4", "could_not_run", "no kernel")])
        assert only(checks, "matmul_exact.fp4")["status"] == "fail"
        assert only(checks, "matmul_repeat.fp4")["status"] == "could_not_run"

    @pytest.mark.parametrize(
        ("status", "required", "remedy"),
        [("fail", True, "take the GPU out of use"), ("could_not_run", False, "nothing, unless the image shall be able to do it"), ("pass", False, "None")],
    )
    def test_what_only_some_images_can_do_counts_where_it_failed(self, status: str, required: bool, remedy: str) -> None:
        check = only(self.of([result("training.fp8", status, None if status == "pass" else "why", {"elements": 8192, "wrong": 0})]), "training.fp8")
        assert (check["status"], check["required"]) == (status, required)
        assert remedy in str(check["remedy"])

    @pytest.mark.parametrize(
        ("name", "status", "reason", "remedy"),
        [
            ("matmul_exact.fp64", "fail", None, "take the GPU out of use"),
            ("matmul_exact.fp64", "fail", "NCCL error: failure 217", "take the GPU out of use"),
            ("matmul_exact.fp64", "could_not_run", "no time left", "None"),
            ("matmul_exact.fp64", "odd", None, "see how container_run ended"),
            ("matmul_exact.fp64", "pass", None, "see how container_run ended"),
            ("matmul_exact.fp64", "fail", "no kernel image is available", "use an image built for this GPU"),
            ("all_reduce_exact", "fail", None, "look for Xid and NVLink errors"),
            ("all_reduce_exact", "fail", "cuda failure 217", "NCCL_CUMEM_HOST_ENABLE: 0, or NCCL_P2P_DISABLE: 1, and look at pcie_path"),
            ("all_reduce_exact", "could_not_run", "peer access is not supported between these two devices", "NCCL_P2P_DISABLE: 1"),
            ("all_reduce_exact", "fail", "attaching to shared memory segment /dev/shm/nccl-x (size 0)", "the ranks do not agree on how to share host memory"),
            ("all_reduce_exact", "odd", "peer access is not supported", "see how container_run ended"),
            ("all_reduce_exact", "fail", "ncclCuMemHostAlloc: cuMemCreate failed", "NCCL_CUMEM_ENABLE: 0 and NCCL_CUMEM_HOST_ENABLE: 0"),
            ("all_reduce_exact", "could_not_run", "no time left", "None"),
        ],
    )
    def test_the_remedy_is_for_what_went_wrong(self, name: str, status: str, reason: str | None, remedy: str) -> None:
        check = only(self.of([result(name, status, reason)], without=(name,)), name)
        assert remedy in str(check["remedy"])
        assert check["source"] == ("torch.distributed in the container" if name == "all_reduce_exact" else "torch in the container")

    @pytest.mark.parametrize("status", ["fail", "could_not_run"])
    @pytest.mark.parametrize("name", ["all_reduce_exact", "matmul_exact.fp64"])
    def test_a_setting_of_nccl_is_no_fault_of_a_gpu_and_named_from_its_warnings(self, name: str, status: str) -> None:
        told = {"event": "found", "name": "nccl", "value": {"warnings": [7, "transport/shm.cc:590 Cuda failure 217 'peer access ...'"]}}
        check = only(self.of([told, result(name, status, "unhandled cuda error")], without=(name,)), name)
        between = name != "matmul_exact.fp64"
        assert check["status"] == ("could_not_run" if between else status)
        assert ("NCCL_CUMEM_HOST_ENABLE: 0" in str(check["remedy"])) == between

    def test_numbers_that_are_wrong_are_wrong_whatever_nccl_warned_of(self) -> None:
        told = {"event": "found", "name": "nccl", "value": {"warnings": ["Cuda failure 217"]}}
        wrong = result("all_reduce_exact", "fail", "3 of 9 elements are wrong", {"wrong": 3})
        check = only(self.of([told, wrong], without=("all_reduce_exact",)), "all_reduce_exact")
        assert (check["status"], "NVLink errors" in str(check["remedy"])) == ("fail", True)

    @pytest.mark.parametrize("value", [None, 7, {}, {"warnings": None}, {"warnings": "Cuda failure 217"}])
    def test_warnings_that_are_none_name_nothing(self, value: Any) -> None:
        told = {"event": "found", "name": "nccl", "value": value}
        check = only(self.of([told, result("all_reduce_exact", "fail", "boom")], without=("all_reduce_exact",)), "all_reduce_exact")
        assert check["status"] == "fail"

    def test_a_lost_line_is_told_from_work_that_was_not_done(self) -> None:
        check = only(self.of(without=("matmul_exact.fp64",)), "matmul_exact.fp64")
        assert (check["status"], check["required"]) == ("could_not_run", True)
        assert "what else writes to the output of processes" in str(check["remedy"])


class TestSpeeds:
    """Figures from what ranks said to what is held against whom."""

    EVERY = (*FIGURES[1:], *(f"matmul.{dtype}" for dtype in ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")))

    @classmethod
    def of(
        cls, bend: dict[int, dict[str, list[Event]]] | None = None, backend: str = "cuda", cards: list[ExpectedGpu] | None = None, **changes: Any
    ) -> list[Check]:
        """Checks of accept; ``bend``: what a rank says in place of a figure."""
        wanted = asked(cards, backend, **{"tier": "accept", "floors": cls.floors(), **changes})
        world = len(wanted.parts)
        events = [rank_events(rank, world, backend, tier="accept") for rank in range(world)]
        for rank, figures in (bend or {}).items():
            for name, new in figures.items():
                events[rank] = [event for event in events[rank] if not (event["event"] == "measured" and event["name"] == name)]
                events[rank][-1:-1] = new
        outcome = ran(events)
        outcome = outcome._replace(container=outcome.container._replace(tier="accept", figures=(*cls.EVERY, "all_reduce.busbw", "pair.copy")))
        return speed_checks(wanted, outcome, owners_of(wanted.parts, outcome), None)

    @classmethod
    def floors(cls) -> dict[str, Any]:
        between = {name: [floor(90, gpus=2, unit="GB/s")] for name in ("all_reduce.busbw", "pair.copy")}
        return {MODEL: {**{name: [floor(90, unit=unit_of(name))] for name in cls.EVERY}, **between}}

    def test_each_figure_of_each_gpu(self) -> None:
        checks = self.of()
        assert {check["status"] for check in checks} == {"pass"}
        of_each = [f"speed.{name}" for name in (*self.EVERY, "pair.copy") for _gpu in range(2)]
        assert sorted(check["name"] for check in checks) == sorted([*of_each, "speed.all_reduce.busbw"])

    def test_a_pair_that_is_lopsided(self) -> None:
        checks = self.of({1: {"copy.device_to_host": [measured("copy.device_to_host", 200.0)]}})
        [check] = [check for check in checks if check["status"] != "pass"]
        assert (check["name"], check["gpu"], check["status"]) == ("speed.copy.host_to_device", gpus(2)[1].gpu, "degraded")
        assert "of the other direction (200)" in str(check["reason"])
        checks = self.of({0: {"copy.host_to_device": [measured("copy.host_to_device", 200.0)]}})
        assert [(check["name"], check["gpu"]) for check in checks if check["status"] != "pass"] == [("speed.copy.device_to_host", gpus(1)[0].gpu)]
        # A direction that was not measured is held against nobody, and one product against no other.
        checks = self.of({1: {"copy.device_to_host": [], "matmul.fp8": [measured("matmul.fp8", 2000.0)]}})
        assert [(check["name"], check["status"]) for check in checks if check["status"] != "pass"] == [("speed.copy.device_to_host", "could_not_run")]

    def test_of_two_values_the_lower_one_and_an_odd_one_first(self) -> None:
        for values in ((80.0, 100.0), (100.0, 80.0)):
            checks = self.of({0: {"memory.copy": [measured("memory.copy", value) for value in values]}})
            check = by_name(checks, "speed.memory.copy")[0]
            assert (check["status"], check["value"]["median"]) == ("fail", 80.0)
        checks = self.of({0: {"memory.copy": [measured("memory.copy", 100.0), {"event": "measured", "name": "memory.copy", "value": 3}]}})
        assert by_name(checks, "speed.memory.copy")[0]["status"] == "could_not_run"

    @pytest.mark.parametrize(
        ("new", "status", "words"),
        [
            (result("memory.copy", "fail", "wrong bytes"), "fail", "wrong bytes"),
            (result("memory.copy", "fail"), "fail", "the payload gave no reason"),
            (result("memory.copy", "could_not_run", "no time left"), "could_not_run", "no time left"),
            (result("memory.copy", "pass"), "could_not_run", "the payload said 'pass'"),
        ],
    )
    def test_a_result_in_place_of_a_figure(self, new: Event, status: str, words: str) -> None:
        check = by_name(self.of({1: {"memory.copy": [new]}}), "speed.memory.copy")[1]
        assert (check["status"], check["reason"], check["gpu"]) == (status, words, gpus(2)[1].gpu)

    def test_a_failure_counts_also_beside_a_figure(self) -> None:
        bent = {0: {"memory.copy": [measured("memory.copy", 100.0), result("memory.copy", "could_not_run", "x"), result("memory.copy", "fail", "wrong bytes")]}}
        assert by_name(self.of(bent), "speed.memory.copy")[0]["reason"] == "wrong bytes"

    def test_a_gpu_that_hangs_or_crashes_while_it_is_measured_fails(self) -> None:
        events = [said[: said.index({"event": "stage", "name": "memory.copy"}) + 1] for said in sound()]
        hung = by_name(judge(ran(events, None, timed_out=True, seconds=300.0))[1], "speed.memory.copy")
        assert [(check["status"], str(check["reason"]).partition(" for ")[0]) for check in hung] == [("fail", f"rank {rank} hung in it") for rank in range(2)]
        crashed = by_name(judge(ran([sound()[0], events[1]], 1, stderr=TORCHRUN_CRASH.splitlines()))[1], "speed.memory.copy")
        assert [(check["status"], check["reason"]) for check in crashed] == [("pass", None), ("fail", "rank 1 crashed in it with SIGSEGV")]

    def test_only_what_a_chip_can_do_is_asked_of_it(self) -> None:
        old = gpus(2)[1]._replace(compute_capability="7.5", pci_id="10de:1eb8")
        checks = self.of(cards=[gpus(1)[0], old])
        assert [check["gpu"] for check in by_name(checks, "speed.matmul.fp8")] == [gpus(1)[0].gpu]
        assert [check["gpu"] for check in by_name(checks, "speed.matmul.fp16")] == [gpus(1)[0].gpu, old.gpu]

    def test_ways_between_gpus_are_compared_where_there_is_a_fabric(self) -> None:
        cards = gpus(4)
        table = [[src, dst, 300.0 if (src, dst) == (2, 0) else 390.0] for src in range(4) for dst in range(4) if src != dst]
        bent = {0: {"pair.copy": [{"event": "measured", "name": "pair.copy", "value": figure("pair.copy", 390.0, pairs=table)}]}}
        statuses = {
            fabric: [check["status"] for check in by_name(self.of(bent, cards=cards, excused={**NO_IMEX, **fabric_excuse}), "speed.pair.copy")]
            for fabric, fabric_excuse in (("fabric", {}), ("none", {"fabric": "PCIe cards"}))
        }
        assert statuses == {"fabric": ["pass", "pass", "fail", "pass"], "none": ["pass"] * 4}

    def test_the_lowest_all_reduce_of_all_ranks_counts(self) -> None:
        for rank in (0, 1):
            low = measured("all_reduce.busbw", 80.0, world=2)
            check = only(self.of({rank: {"all_reduce.busbw": [low]}}), "speed.all_reduce.busbw")
            assert (check["status"], check["value"]["median"]) == ("fail", 80.0)

    def test_an_all_reduce_that_one_rank_lacks_is_none(self) -> None:
        for rank in (0, 1):
            assert only(self.of({rank: {"all_reduce.busbw": []}}), "speed.all_reduce.busbw")["status"] == "could_not_run"
            odd = only(self.of({rank: {"all_reduce.busbw": [{"event": "measured", "name": "all_reduce.busbw", "value": {}}]}}), "speed.all_reduce.busbw")
            assert str(odd["reason"]).startswith("the payload gave a figure, but")
            wrong = only(self.of({rank: {"all_reduce.busbw": [result("all_reduce.busbw", "fail", "wrong sums")]}}), "speed.all_reduce.busbw")
            assert (wrong["status"], wrong["reason"]) == ("fail", "wrong sums")

    @pytest.mark.parametrize("name", ["memory.copy", "all_reduce.busbw", "pair.copy"])
    def test_what_is_excused_is_told_and_held_against_nothing(self, name: str) -> None:
        """As on the CPU, whose processes share its cores: the slowest of them is no straggler."""
        excused = {**NO_IMEX, f"speed.{name}": "on the CPU"}
        cards = gpus(4)
        slow = {0: {name: [measured(name, 1.0, world=4)]}}
        checks = by_name(self.of(slow, cards=cards, excused=excused), f"speed.{name}")
        assert [(check["status"], check["reason"]) for check in checks] == [("not_applicable", "on the CPU")] * (4 if name == "memory.copy" else 1)
        assert (checks[0]["value"]["median"], checks[0]["unit"]) == (1.0, "GB/s")
        assert checks[0]["gpu"] == (gpus(1)[0].gpu if name == "memory.copy" else None)
        wrong = by_name(self.of({2: {name: [result(name, "fail", "wrong bytes")]}}, cards=cards, excused=excused), f"speed.{name}")
        assert [check["reason"] for check in wrong if check["status"] == "fail"] == ["wrong bytes"]
        missing = by_name(self.of({0: {name: []}}, cards=cards, excused=excused), f"speed.{name}")
        assert (missing[0]["status"], missing[0]["value"]) == ("not_applicable", None)

    def test_nothing_between_gpus_is_told_where_it_was_not_asked_for(self) -> None:
        outcome = ran(sound())
        checks = speed_checks(asked(floors=FLOORS), outcome, owners_of(gpus(2), outcome), None)
        assert {check["name"] for check in checks} == {f"speed.{name}" for name in FIGURES}


def measured(name: str, median: float, **more: Any) -> Event:
    return {"event": "measured", "name": name, "value": figure(name, median, **more)}


def test_several_models_have_no_model_together() -> None:
    assert asked().model == MODEL
    assert asked([*gpus(1), *gpus(1, model="h200-sxm-141gb")]).model is None
    assert asked([]).model is None


class TestLimits:
    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"ulimits": {**LIMITS["ulimits"], "memlock": [8388608, 8388608]}}, "memlock is [8388608, 8388608], [-1, -1] was asked for"),
            ({"ulimits": {**LIMITS["ulimits"], "stack": [8388608, -1]}}, "stack is 8388608 bytes, 67108864 is what"),
            ({"shm_bytes": 67108864}, "/dev/shm has 67108864 bytes, 1073741824 were asked for"),
            ({"shm_bytes": None}, "/dev/shm has None bytes"),
            ({"read_only_root": False}, "the root file system is writable"),
            ({"read_only_root": None}, "the root file system is writable"),
            ({"no_new_privs": False}, "no_new_privs is not set"),
            ({"no_new_privs": None}, "no_new_privs is not set"),
            ({"interfaces": ["eth0", "lo"]}, "the network interfaces that are up are ['eth0', 'lo']"),
            ({"ulimits": {}}, "memlock is None, [-1, -1] was asked for"),
        ],
    )
    def test_what_was_not_given(self, change: dict[str, Any], words: str) -> None:
        assert limit_problems(LIMITS, container()) == []
        assert any(words in problem for problem in limit_problems({**LIMITS, **change}, container()))

    def test_on_gpus_small_limits_are_no_test_even_where_nobody_asked_for_more(self) -> None:
        small = {**LIMITS, "ulimits": {"memlock": [8388608, 8388608], "stack": [8388608, -1]}, "shm_bytes": 2**26}
        asked: dict[str, Any] = {"ulimits": [], "shm_size": "64m"}
        problems = limit_problems(small, container(**asked))
        assert [problem.split()[0] for problem in problems] == ["memlock", "stack", "/dev/shm"]
        assert limit_problems(small, container(backend="cpu", **asked)) == []

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (
                {"shm_bytes": 2**26},
                "look which runtime the engine hands containers to (`docker info --format '{{.DefaultRuntime}}'`): runc gives what is asked for",
            ),
            ({"ulimits": {}}, "give the container what it needs (smoke_test_ulimits), and its engine the right to give it"),
            ({"ulimits": {}, "shm_bytes": 2**26}, "give the container what it needs (smoke_test_ulimits), and its engine the right to give it"),
        ],
    )
    def test_the_remedy_is_that_of_the_first_problem(self, change: dict[str, Any], words: str) -> None:
        events = [replaced(said, "container_limits", {"event": "found", "name": "container_limits", "value": {**LIMITS, **change}}) for said in sound()]
        assert only(judge(ran(events))[1], "container_limits")["remedy"] == words

    def test_ranks_must_agree(self) -> None:
        events = sound()
        events[1] = replaced(events[1], "container_limits", {"event": "found", "name": "container_limits", "value": {**LIMITS, "ulimits": {"memlock": [0, 0]}}})
        check = only(judge(ran(events))[1], "container_limits")
        assert (check["status"], check["reason"]) == ("could_not_run", "the ranks have different limits")

    @pytest.mark.parametrize(
        ("text", "parsed"), [("memlock=-1", ("memlock", [-1, -1])), ("nofile=65536:1048576", ("nofile", [65536, 1048576])), ("stack=0", ("stack", [0, 0]))]
    )
    def test_ulimits(self, text: str, parsed: tuple[str, list[int]]) -> None:
        assert parse_ulimit(text) == parsed

    @pytest.mark.parametrize("text", ["memlock", "memlock=", "memlock=unlimited", "=1", "memlock=1:"])
    def test_what_is_no_ulimit(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not of the form"):
            parse_ulimit(text)

    @pytest.mark.parametrize(("text", "size"), [("1g", 2**30), ("64m", 2**26), ("65536", 65536), ("16GB", 2**34), ("512k", 2**19), ("7b", 7)])
    def test_sizes(self, text: str, size: int) -> None:
        assert parse_size(text) == size

    @pytest.mark.parametrize("text", ["", "g", "1.5g", "-1", "1x"])
    def test_what_is_no_size(self, text: str) -> None:
        with pytest.raises(ValueError, match="is not a number"):
            parse_size(text)


def test_the_lines_of_ranks_may_be_mixed() -> None:
    transcript = Transcript(RUN, WORLD, clock=lambda: 0.0)
    for line in all_lines(WORLD):
        transcript.take(line)
        transcript.take("NCCL INFO something")
    outcome = Outcome(container(ranks=WORLD), ChildResult(0, False, 20.0, [], []), transcript)
    assert judge(outcome)[0]["verdict"] == "accepted"
