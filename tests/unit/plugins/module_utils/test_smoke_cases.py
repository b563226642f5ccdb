# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a smoke test must catch, or must not be fooled by, by the id of the case: what people met on their hosts, with verdict, GPU and cause."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_run
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import Look
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_paths import pcie_path, peer_memory
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import Request
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import ChildResult, Container, Outcome, Transcript
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_test import FABRIC_WAIT_S, run_test
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_window import Reading, Slot
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Check

from tests.unit.hosts import BUS_IDS, CONVERGED, DRIVER, facts_for
from tests.unit.pcie import two_gpus_below
from tests.unit.smoke_fakes import (
    LIMITS,
    TORCHRUN_CRASH,
    Event,
    child,
    container,
    figure,
    gpus,
    lines,
    rank_events,
    reduce_value,
    result,
    snapshot,
    uuid_of,
    window,
)
from tests.unit.smoke_hosts import EXCUSES, STAMP, WORLD, Host, Ran, named, replaced, request, request_of, sound

HERE = Path(__file__).parents[2]
NVLS = "NCCL WARN transport/nvls.cc:245 Failed to bind NVLink SHARP (NVLS) Multicast memory of size 2097152 : CUDA error 401"
# As the engines say it.
STALE = 'docker: Error response from daemon: CDI device injection failed: failed to inject devices: failed to stat CDI host device "/dev/nvidia7": no such file'
UNKNOWN_RUNTIME = "docker: Error response from daemon: unknown or invalid runtime name: nvidia"


@dataclass
class Case:
    """One host that is bent in a way, and what must come of it. ``gpu``: by index, None for checks of no GPU; ``cause`` and ``remedy``: words of the check."""

    bend: Callable[[Host], Request]
    verdict: str
    check: str
    status: str
    gpu: int | None = None
    cause: str = ""
    remedy: str = ""
    containers: int = 1


def machine(**changes: Any) -> dict[str, Any]:
    return facts_for(**{**CONVERGED, "gpus": WORLD, **changes})


def until(events: list[Event], stage: str) -> list[Event]:
    """What a rank said that hangs, or died, in this stage."""
    at = next(index for index, event in enumerate(events) if event == {"event": "stage", "name": stage})
    return events[: at + 1]


def hangs(host: Host, stage: str, tier: str = "quick", **more: Any) -> None:
    events = [until(said, stage) for said in sound(tier)]
    stuck = {0: "process 4711 (state D, in nvidia_poll)"}
    host.runs = [Ran(events, {"exit_code": -9, "timed_out": True, "seconds": 80.0, "stuck": stuck, **more})]


def says(host: Host, name: str, new: Event, rank: int = 0, tier: str = "quick") -> None:
    """One rank says something else about a check, a figure or a finding."""
    events = sound(tier)
    events[rank] = replaced(events[rank], name, new)
    host.runs = [Ran(events)]


def found(name: str, value: Any) -> Event:
    return {"event": "found", "name": name, "value": value}


def identity(rank: int = 0, **changes: Any) -> Event:
    said = next(event for event in rank_events(rank, WORLD) if event["event"] == "found" and event["name"] == "gpu_identity")
    return found("gpu_identity", {**said["value"], **changes})


def limits(**changes: Any) -> Event:
    return found("container_limits", {**LIMITS, **changes})


def path_of(host: Host, control: int, command_line: str = "quiet") -> Check:
    return pcie_path(gpus(WORLD), command_line, two_gpus_below(host.state_dir.parent, control))


def rdma(host: Host, loaded: str | None, *log: str) -> Check:
    root = host.state_dir.parent / "root"
    (root / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    if loaded:
        (root / "sys/module" / loaded).mkdir(parents=True)
    check = peer_memory(log, root)
    assert check is not None
    return check


# --- how a host is bent, by case -------------------------------------------------------------------------------------------------------------


def h1(host: Host) -> Request:
    hangs(host, "all_reduce_exact")
    host.advice = [path_of(host, 0b100)]
    return request()


def h2(host: Host) -> Request:
    hangs(host, "all_reduce_exact")
    host.advice = [path_of(host, 0, "quiet intel_iommu=on")]
    return request()


def h4(host: Host) -> Request:
    host.advice = [rdma(host, None)]
    return request()


def h5(host: Host) -> Request:
    host.advice = [rdma(host, None, "nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client")]
    return request()


def unknown_cards(third: float) -> list[list[Event]]:
    """Of a chip that is not known only what every chip can do is asked for; ``third``: how fast the third of four is."""
    speeds = (100.0, 100.0, third, 100.0)
    measured = [{"event": "measured", "name": "matmul.fp16", "value": figure("matmul.fp16", speed)} for speed in speeds]
    return [replaced(rank_events(rank, 4), "matmul.bf16", measured[rank]) for rank in range(4)]


def h7(host: Host) -> Request:
    """Four cards that the catalog does not know, one of which is slower than the others."""
    count = 4
    host.facts = [facts_for(**{**CONVERGED, "gpus": count})]
    host.window = window(count)
    host.runs = [Ran(unknown_cards(91.0))]
    cards = [{"pci_bus_id": bus_id, "pci_id": "10de:2330"} for bus_id in BUS_IDS[:count]]
    return request(gpus=cards, stamp={**STAMP, "gpus": None}, bought=None, floors={}, not_applicable={**EXCUSES, "fabric": "not planned"})


def h7_alike(host: Host) -> Request:
    asked = h7(host)
    host.runs = [Ran(unknown_cards(100.0))]
    return asked


def v1(host: Host) -> Request:
    host.facts = [machine(fabric_manager=None)]
    return request()


def v1_context(host: Host) -> Request:
    says(host, "gpu_identity", result("gpu_identity", "fail", "CUDA error: system not yet initialized (error 802)"), rank=1)
    return request()


def v2(host: Host) -> Request:
    host.facts = [machine(fabric_state="In Progress")]
    return request()


def v4(host: Host) -> Request:
    """Before Hopper the fabric manager stands for the fabric, and its version must be the driver's."""
    host.facts = [machine(fabric_manager="580.65.06", fabric_state="N/A")]
    cards = [{**card, "compute_capability": "8.0"} for card in request().gpus]
    return request(gpus=cards)


def v5(host: Host) -> Request:
    host.engine["call"] = [(0, "used 2 GPUs", ""), (1, "cuInit failed with CUDA error 999", "")]
    return request()


def v6(host: Host) -> Request:
    says(host, "container_limits", limits(shm_bytes=64 * 2**20))
    return request()


def v7(host: Host) -> Request:
    says(host, "container_limits", limits(ulimits={**LIMITS["ulimits"], "memlock": [65536, 65536]}))
    return request()


def v8(host: Host) -> Request:
    host.facts = [machine(library="580.65.06")]
    return request()


def v9(host: Host) -> Request:
    says(host, "torch", found("torch", {"torch": "2.5.1", "cuda": "13.0", "nccl": "2.28.9", "arch_list": ["sm_70", "sm_80"]}), rank=1)
    return request()


def v10(host: Host) -> Request:
    says(host, "matmul_exact.fp8", result("matmul_exact.fp8", "fail", "CUDA error: no kernel image is available for execution on the device"), rank=1)
    return request()


def v10_extension(host: Host) -> Request:
    """torch has code for the chip, and a library beside it in the image has none. It is no part of what every image must do."""
    reason = "RuntimeError: /TransformerEngine/transformer_engine/common/util/cast.cu: CUDA error: no kernel image is available for execution on the device"
    says(host, "training.compile", result("training.transformer_engine", "could_not_run", reason), rank=1, tier="accept")
    return request_of("accept")


def v11(host: Host) -> Request:
    says(host, "gpu_identity", identity(1, libcuda="/usr/local/cuda-13.0/compat/lib.real/libcuda.so.575.51.03"), rank=1)
    return request()


def v11_refused(host: Host) -> Request:
    reason = "RuntimeError: Unexpected error from cudaGetDeviceCount(). Error 804: forward compatibility was attempted on non supported HW"
    says(host, "gpu_identity", result("gpu_identity", "fail", reason), rank=0)
    return request()


def v12(host: Host) -> Request:
    facts = machine()
    facts["device_nodes"] = [node for node in facts["device_nodes"] if node["path"] != "/dev/nvidia-uvm"]
    host.facts = [facts]
    return request()


def v12_inside(host: Host) -> Request:
    nodes = {f"/dev/nvidia{index}": [195, index] for index in range(WORLD)}
    host.runs = [Ran([replaced(said, "device_nodes", found("device_nodes", {**nodes, "/dev/nvidiactl": [195, 255]})) for said in sound()])]
    return request()


def v13(host: Host) -> Request:
    reason = "4096 of 268435456 bytes from rank 0 are wrong"
    says(host, "pair_exact", result("pair_exact", "fail", reason, {"world": 2, "wrong": 4096}), rank=1, tier="accept")
    return request_of("accept")


def v13_hang(host: Host) -> Request:
    hangs(host, "pair_exact", "accept", seconds=300.0)
    return request_of("accept")


def v14(host: Host) -> Request:
    says(host, "all_reduce_exact", result("all_reduce_exact", "fail", "2 of 9 elements are wrong", {**reduce_value(2), "wrong": 2}), rank=1)
    return request()


def v15(host: Host) -> Request:
    hangs(host, "meet")
    return request()


def v16(host: Host) -> Request:
    refused = [replaced(said, "all_reduce_exact", result("all_reduce_exact", "fail", "DistBackendError: NCCL error: unhandled cuda error")) for said in sound()]
    for said in refused:
        said.insert(-2, found("nccl", {"multicast": True, "ways": {}, "warnings": [NVLS]}))
    host.runs = [Ran(refused), Ran()]
    return request()


def nccl_refuses(host: Host, status: str, reason: str, *warnings: str) -> Request:
    """No rank can start its collectives; NCCL's warnings come in a finding of their own."""
    refused = [replaced(said, "all_reduce_exact", result("all_reduce_exact", status, f"DistBackendError: {reason}")) for said in sound()]
    for said in refused:
        said.insert(-2, found("nccl", {"multicast": None, "ways": {}, "warnings": list(warnings)}))
    host.runs = [Ran(refused)]
    return request()


def v17(host: Host) -> Request:
    """As the payload reports it: its own words say that something is not supported, so it could not run."""
    return nccl_refuses(host, "could_not_run", "Last error: Cuda failure 217 'peer access is not supported between these two devices'")


def v17_warned(host: Host) -> Request:
    """PyTorch's error alone says nothing."""
    return nccl_refuses(host, "fail", "NCCL error: unhandled cuda error", "transport/shm.cc:590 Cuda failure 217 'peer access is not supported'")


def v17_shared_memory(host: Host) -> Request:
    return nccl_refuses(host, "fail", "NCCL error: unhandled system error", "Error while attaching to shared memory segment /dev/shm/nccl-x (size 0)")


def v17_crash(host: Host) -> Request:
    """NCCL asks the driver for memory next to each NUMA node, and dies in that."""
    events = [until(said, "all_reduce_exact") for said in sound()]
    host.runs = [Ran(events, {"exit_code": 1, "stderr": TORCHRUN_CRASH.splitlines()})]
    return request()


def v18(host: Host) -> Request:
    host.advice = [rdma(host, "nv_peer_mem")]
    return request()


def v21(host: Host) -> Request:
    facts = machine()
    facts["nvidia_smi"]["gpus"][1]["mig"]["pending"] = "enabled"
    host.facts = [facts]
    return request()


def v23(host: Host) -> Request:
    host.facts = [machine(smi_state="hung")]
    host.log.take("NVRM: Xid (PCI:0000:1b:00): 119, pid=1234, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU1 GSP!")
    return request(stamp={**STAMP, "gpus": None})


def v24(host: Host) -> Request:
    hangs(host, "matmul_exact.bf16", left_behind="process 4242 does not die; it waits in os_acquire_rwlock_write; it was left behind")
    return request()


def v25(host: Host) -> Request:
    """The second of two cards is gone, and everything behind it has another index."""
    facts = machine()
    facts["nvidia_smi"]["gpus"] = facts["nvidia_smi"]["gpus"][:1]
    host.facts = [facts]
    return request(stamp={**STAMP, "gpus": None})


def v25_inside(host: Host) -> Request:
    host.runs = [Ran([replaced(said, "gpu_identity", identity(rank, device_count=1)) for rank, said in enumerate(sound())])]
    return request()


def v25_on_the_bus(host: Host) -> Request:
    host.facts = [machine(gpus=1)]
    return request(stamp={**STAMP, "gpus": None})


def v26(host: Host) -> Request:
    """Everything ends well, and nothing was done."""
    host.runs = [Ran([[{"event": "start", "world": 2, "pid": 10}, {"event": "end"}] for _rank in range(WORLD)])]
    return request()


def v26_silent(host: Host) -> Request:
    host.runs = [Ran([[], []], {"stdout": ["All tests passed: OK"]})]
    return request()


def v26_little(host: Host) -> Request:
    """A pass without the amount of work that makes it one."""
    says(host, "matmul_exact.bf16", result("matmul_exact.bf16", "pass", None, {"wrong": 0}), rank=1)
    return request()


def v27(host: Host) -> Request:
    host.runs = [Ran([[], []], {"exit_code": 125, "stderr": [STALE]})]
    return request()


def v28(host: Host) -> Request:
    host.runs = [Ran([[], []], {"exit_code": 125, "stderr": [UNKNOWN_RUNTIME]})]
    return request()


def v29(host: Host) -> Request:
    reason = "InductorError: RuntimeError: Failed to find C compiler. Please specify via CC environment variable or set triton.knobs.build.impl."
    says(host, "training.compile", result("training.compile", "could_not_run", reason), tier="accept")
    return request_of("accept")


def v30(host: Host) -> Request:
    reason = "ImportError: transformer_engine_torch.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationE"
    says(host, "training.compile", result("training.transformer_engine", "could_not_run", reason), tier="accept")
    return request_of("accept")


def v30_wrong(host: Host) -> Request:
    says(host, "training.compile", result("training.transformer_engine", "fail", "3 of 512 outputs are off"), rank=1, tier="accept")
    return request_of("accept")


def v31(host: Host) -> Request:
    """A virtual machine does not say how its link runs."""
    host.window = window(WORLD, readings={bus_id: [Reading("copy.host_to_device", 0x4)] for bus_id in BUS_IDS[:WORLD]})
    return request()


def v32(host: Host) -> Request:
    end = copy.deepcopy(snapshot(WORLD))
    for counters in end.gpus.values():
        counters["throttle"]["microseconds"]["sw_power_cap"] += 50_000_000
    readings = {bus_id: [Reading("copy.host_to_device", 0x4, 5, 16), Reading("matmul.bf16", 0x4, 5, 16)] for bus_id in BUS_IDS[:WORLD]}
    host.window = window(WORLD, after=end, readings=readings)
    return request(degraded="reject")


def v32_idle(host: Host) -> Request:
    """Between two tests the link rests at generation 1: what counts is how it ran while it copied."""
    readings = {bus_id: [Reading(None, 0x1, 1, 16), Reading("copy.host_to_device", 0x0, 5, 16)] for bus_id in BUS_IDS[:WORLD]}
    host.window = window(WORLD, readings=readings)
    return request(degraded="reject")


def v33(host: Host) -> Request:
    host.window.new.take("NVRM: Xid (PCI:0000:1b:00): 31, pid=9, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS")
    return request()


def v33_hidden(host: Host) -> Request:
    """A flood of an application's Xids, and one of the machine's in the middle of it."""
    for turn in range(20_000):
        host.window.new.take("NVRM: Xid (PCI:0000:1b:00): 31, pid=9, name=python3, Ch 00000008, MMU Fault: ENGINE GRAPHICS")
        if turn == 9_000:
            host.window.new.take("NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.")
    return request()


def v34(host: Host) -> Request:
    """All slots are wired with eight lanes, as the ports above say."""
    readings = {bus_id: [Reading("copy.host_to_device", 0x0, 5, 8)] for bus_id in BUS_IDS[:WORLD]}
    host.window = window(WORLD, readings=readings, slots={bus_id: Slot(5, 8) for bus_id in BUS_IDS[:WORLD]})
    return request(degraded="reject")


def v34_narrow(host: Host) -> Request:
    readings = {BUS_IDS[0]: [Reading("copy.host_to_device", 0x0, 5, 16)], BUS_IDS[1]: [Reading("copy.host_to_device", 0x0, 5, 8)]}
    host.window = window(WORLD, readings=readings)
    return request()


CASES: dict[str, Case] = {
    "H1": Case(h1, "rejected", "all_reduce_exact", "fail", 0, "hung in it for", "pcie_path"),
    "H1 why": Case(h1, "rejected", "pcie_path", "degraded", None, "ACS redirects between devices at 0000:02:00.0", "turn ACS off"),
    "H2": Case(h2, "rejected", "pcie_path", "degraded", None, "the IOMMU translates", "iommu=pt"),
    "H4": Case(h4, "accepted", "peer_memory", "degraded", None, "no module by which they read GPU memory is loaded", "modprobe nvidia_peermem"),
    "H5": Case(h5, "accepted", "peer_memory", "degraded", None, "does not fit the network driver", "reinstall the GPU driver after the network driver"),
    "H7": Case(h7, "rejected", "speed.matmul.fp16", "fail", 2, "9.0 % under the median of this host's 4 GPUs"),
    "H7 alike": Case(h7_alike, "accepted", "speed.matmul.fp16", "degraded", 0, "no floor known for this model"),
    "V1": Case(v1, "rejected", "fabric", "fail", 0, "State N/A, Status N/A", "nvidia-fabricmanager", containers=0),
    "V1 context": Case(v1_context, "rejected", "gpu_identity", "fail", 1, "error 802", "error 802 is the fabric's"),
    "V2": Case(v2, "rejected", "fabric", "fail", 0, "State In Progress", "ask whoever runs the machine below", containers=0),
    "V3": Case(v2, "rejected", "fabric", "fail", 1, "State In Progress", "/var/log/fabricmanager.log", containers=0),
    "V4": Case(v4, "rejected", "fabric", "fail", 0, f"at version 580.65.06, the driver is {DRIVER}", "exactly the driver's version", containers=0),
    "V5": Case(v5, "rejected", "daemon_reload", "fail", None, "CUDA error 999"),
    "V6": Case(v6, "incomplete", "container_limits", "could_not_run", None, "/dev/shm has 67108864 bytes, 1073741824 were asked for", "docker info"),
    "V7": Case(v7, "incomplete", "container_limits", "could_not_run", None, "memlock is", "smoke_test_ulimits"),
    "V8": Case(v8, "rejected", "driver_library_match", "fail", None, "library 580.65.06", "reboot the host", containers=0),
    "V9": Case(v9, "incomplete", "image_architecture", "could_not_run", 1, "which has no code for compute capability 9.0", "pytorch_image_ref"),
    "V10": Case(v10, "incomplete", "matmul_exact.fp8", "could_not_run", 1, "no kernel image is available", "pytorch_image_ref"),
    "V10 extension": Case(v10_extension, "accepted", "training.transformer_engine", "could_not_run", 1, "transformer_engine/common", "pytorch_image_ref"),
    "V11": Case(v11, "incomplete", "libcuda", "could_not_run", 1, "/compat/lib.real/libcuda.so.575.51.03, which is not of the driver", "LD_LIBRARY_PATH"),
    "V11 refused": Case(v11_refused, "incomplete", "gpu_identity", "could_not_run", 0, "Error 804", "forward-compatibility libcuda"),
    "V12": Case(v12, "incomplete", "device_nodes", "could_not_run", None, "the host lacks /dev/nvidia-uvm", "nvidia-modprobe -u", containers=0),
    "V12 inside": Case(v12_inside, "incomplete", "device_nodes", "could_not_run", None, "the container lacks /dev/nvidia-uvm", "nvidia-cdi-refresh"),
    "V13": Case(v13, "rejected", "pair_exact", "fail", 1, "bytes from rank 0 are wrong", "pcie_path"),
    "V13 hang": Case(v13_hang, "rejected", "pair_exact", "fail", 1, "hung in it for"),
    "V14": Case(v14, "rejected", "all_reduce_exact", "fail", 1, "2 of 9 elements are wrong", "NVLink errors"),
    "V15": Case(v15, "incomplete", "container_run", "could_not_run", None, "rank 0 (GPU 0000:1a:00.0) in meet since 80 s"),
    "V16": Case(v16, "accepted", "nvls", "degraded", None, NVLS, "/dev/nvidia-caps", containers=2),
    "V17": Case(v17, "incomplete", "all_reduce_exact", "could_not_run", 0, "failure 217", "NCCL_CUMEM_HOST_ENABLE: 0"),
    "V17 warned": Case(v17_warned, "incomplete", "all_reduce_exact", "could_not_run", 1, "unhandled cuda error", "NCCL_P2P_DISABLE: 1"),
    "V17 shared memory": Case(v17_shared_memory, "incomplete", "all_reduce_exact", "could_not_run", 1, "unhandled system error", "NCCL_CUMEM_HOST_ENABLE: 0"),
    "V17 crash": Case(v17_crash, "rejected", "all_reduce_exact", "fail", 1, "crashed in it with SIGSEGV", "NCCL_CUMEM_HOST_ENABLE: 0"),
    "V18": Case(v18, "accepted", "peer_memory", "pass"),
    "V21": Case(v21, "incomplete", "mig_mode", "could_not_run", 1, "disabled and waits for a reset to be enabled", "every holder", containers=0),
    "V23": Case(v23, "incomplete", "kernel_log", "degraded", None, "Xid (PCI:0000:1b:00): 119", "Xid catalog", containers=0),
    "V24": Case(v24, "rejected", "container_run", "could_not_run", None, "state D, in nvidia_poll"),
    "V24 left": Case(v24, "rejected", "container_run", "could_not_run", None, "process 4242 does not die; it waits in os_acquire_rwlock_write"),
    "V25": Case(v25, "rejected", "gpu_count", "fail", None, f"nvidia-smi lacks {BUS_IDS[1]}", "Xid 79", containers=0),
    "V25 inside": Case(v25_inside, "rejected", "gpu_count", "fail", None, "rank 0 saw 1 in the container"),
    "V25 on the bus": Case(v25_on_the_bus, "rejected", "gpu_count", "fail", None, f"the PCI bus lacks {BUS_IDS[1]}", containers=0),
    "V26": Case(v26, "incomplete", "matmul_exact.bf16", "could_not_run", 0, "its result is not in the output"),
    "V26 silent": Case(v26_silent, "incomplete", "container_run", "could_not_run", None, "of rank 0, 1 the end is missing"),
    "V26 little": Case(v26_little, "incomplete", "matmul_exact.bf16", "could_not_run", 1, "the payload said pass, but"),
    "V27": Case(v27, "incomplete", "container_run", "could_not_run", None, "CDI device injection failed", "systemctl restart nvidia-cdi-refresh.service"),
    "V28": Case(v28, "incomplete", "container_run", "could_not_run", None, "unknown or invalid runtime name: nvidia"),
    "V29": Case(v29, "accepted", "training.compile", "could_not_run", 0, "Failed to find C compiler", "nothing, unless the image shall be able to do it"),
    "V30": Case(v30, "accepted", "training.transformer_engine", "could_not_run", 0, "undefined symbol"),
    "V30 wrong": Case(v30_wrong, "rejected", "training.transformer_engine", "fail", 1, "3 of 512 outputs are off"),
    "V31": Case(v31, "incomplete", "pcie_link", "could_not_run", 0, "its PCIe link was not read while it copied"),
    "V32": Case(v32, "accepted", "window.throttle", "pass", 0),
    "V32 idle": Case(v32_idle, "accepted", "pcie_link", "pass", 0),
    "V33": Case(v33, "accepted", "window.xid", "degraded", 1, "Xid 31 during the test, which an application causes as a rule"),
    "V33 hidden": Case(v33_hidden, "rejected", "window.xid", "fail", 1, "Xid 79 during the test"),
    "V34": Case(v34, "accepted", "pcie_link", "pass", 0),
    "V34 narrow": Case(v34_narrow, "rejected", "pcie_link", "fail", 1, "8 lanes, card and slot can do 16"),
}

# Cases that are tested elsewhere, or by a test of their own below: the file and the test, and why a bent host cannot show them.
ELSEWHERE: dict[str, tuple[str, str, str]] = {
    "H3": ("plugins/module_utils/test_smoke_cases.py", "test_h3_nothing_needs_mpi", "about what is started, not about a host"),
    "H6": (
        "plugins/plugin_utils/test_cases_of_drivers.py",
        "test_h6_i4_on_a_host_without_a_gpu_nothing_is_installed_started_or_changed",
        "such a host never comes to a test",
    ),
    "I2": ("plugins/module_utils/test_pci.py", "test_audio_functions_and_other_vendors_are_no_gpus", "about reading sysfs, from which all else follows"),
    "V19": ("plugins/plugin_utils/test_cases.py", "test_the_case_is_planned", "that NCCL does not apply to parts of GPUs is the plan's to say (P20)"),
    "V20": ("plugins/module_utils/test_smoke_whole.py", "test_each_part_has_a_process_and_a_result_of_its_own", "one process for each of three parts"),
    "V22": ("plugins/module_utils/test_smoke_cases.py", "test_v22_a_collective_that_never_returns", "needs a real process that hangs"),
    "V35": (
        "plugins/module_utils/test_facts.py",
        "test_wedged_nvidia_smi_costs_its_limit_and_nothing_else",
        "about collecting facts",
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=list(CASES))
def test_the_case(tmp_path: Path, case: Case) -> None:
    host = Host(tmp_path, [machine()])
    began = host.now
    returned = run_test(case.bend(host), host.machine())
    assert returned["verdict"] == case.verdict, returned["reason"]
    wanted = None if case.gpu is None else BUS_IDS[case.gpu]
    checks = [check for check in named(returned, case.check) if (check["gpu"] or {}).get("pci_bus_id") == wanted]
    assert [check["status"] for check in checks] == [case.status]
    assert case.cause in (checks[0]["reason"] or "")
    assert case.remedy in (checks[0]["remedy"] or "")
    assert len(host.containers) == case.containers
    assert host.now - began <= FABRIC_WAIT_S + 5, "a wait is bounded"
    if case.verdict != "accepted":
        assert host.stamp is None
        assert returned["remedy"], returned["reason"]


def test_h3_nothing_needs_mpi() -> None:
    command = " ".join(smoke_run.build_command(container()))
    sources = Path(smoke_run.__file__).parent.glob("smoke_payload/*.py")
    assert "--entrypoint torchrun" in command
    assert not [path.name for path in sources if "mpi" in path.read_text(encoding="utf-8").lower().replace("compil", "")]


def test_v15_one_interface_for_nccl() -> None:
    command = smoke_run.build_command(container())
    assert "NCCL_SOCKET_IFNAME=lo" in command
    assert command[command.index("--network") + 1] == "none"


def test_v18_more_than_one_host_is_said_to_be_untested(tmp_path: Path) -> None:
    returned = run_test(request_of("accept"), Host(tmp_path, [machine()]).machine())
    assert any(sentence.startswith("exchange between hosts") for sentence in returned["not_exercised"])


def test_v18_the_module_that_is_loaded_is_named_with_the_cards(tmp_path: Path) -> None:
    host = Host(tmp_path, [machine()])
    [check] = named(run_test(v18(host), host.machine()), "peer_memory")
    assert (check["value"]["cards"], check["value"]["loaded"]) == (["mlx5_0"], ["nv_peer_mem"])


def test_v31_the_topology_is_kept_with_the_result(tmp_path: Path) -> None:
    host = Host(tmp_path, [machine()])
    assert run_test(v31(host), host.machine())["topology"] == "GPU0 X"


def test_v22_a_collective_that_never_returns(tmp_path: Path) -> None:
    """The ranks do not come back from their all-reduce and answer no signal: the parent ends them, and names rank, stage and GPU."""

    class Hanging(Host):
        def run_container(self, container: Container, look: Look) -> Outcome:
            container = container._replace(limit_s=2)
            self.containers.append(container)
            said = [line for rank in range(WORLD) for line in lines(rank, until(sound()[rank], "all_reduce_exact"))]
            script = f"import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint({chr(10).join(said)!r}, flush=True)\ntime.sleep(600)"
            transcript = Transcript(container.run_id, container.ranks)
            ended: ChildResult = smoke_run.run_child(child(script), container.limit_s, transcript.take, keep=20)
            return Outcome(container, ended, transcript)

    host = Hanging(tmp_path, [machine()])
    began = time.monotonic()
    returned = run_test(request(), host.machine())
    assert time.monotonic() - began < 30
    assert returned["verdict"] == "incomplete"
    [check] = named(returned, "container_run")
    assert check["reason"].startswith(f"not done within 2 s: rank 0 (GPU {BUS_IDS[0]}) in all_reduce_exact since")
    assert [check["gpu"]["uuid"] for check in named(returned, "all_reduce_exact")] == [uuid_of(0), uuid_of(1)]


def test_no_case_is_left_out() -> None:
    ids = {name.partition(" ")[0] for name in CASES} | set(ELSEWHERE)
    assert ids == {*(f"H{number}" for number in range(1, 8)), "I2", *(f"V{number}" for number in range(1, 36))}


@pytest.mark.parametrize("case", ELSEWHERE.values(), ids=list(ELSEWHERE))
def test_what_is_tested_elsewhere_is_there(case: tuple[str, str, str]) -> None:
    file, name, _why = case
    assert f"def {name}(" in (HERE / file).read_text(encoding="utf-8")
