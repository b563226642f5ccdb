# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a payload says, for tests that have no torch: the lines of sound ranks, to be bent by the test, and children that print them."""

from __future__ import annotations

import json
import sys
from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import unit_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, dtypes_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import exchange, pairs
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import SHAPES, least_repeats
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.repeats import REPEAT_SHAPES
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.training import INPUTS, OUTPUTS
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_tiers import figures_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_window import Events, Reading, Slot, Snapshot, Window

from tests.unit.hosts import BUS_IDS, DRIVER

RUN = "0123456789ab"
IMAGE = "registry.example:5000/pytorch@sha256:" + "cd" * 32
MODEL = "h100-sxm5-80gb"
KERNEL, CONDITIONS = "torch.mm", "8192 x 8192 x 8192, random data"
LIBCUDA = f"/usr/lib/x86_64-linux-gnu/libcuda.so.{DRIVER}"
NODES = {f"/dev/nvidia{index}": [195, index] for index in range(8)}
LIMITS: dict[str, Any] = {
    "ulimits": {"memlock": [-1, -1], "nofile": [1048576, 1048576], "stack": [67108864, 67108864]},
    "shm_bytes": 2**30,
    "read_only_root": True,
    "no_new_privs": True,
    "cap_eff": "0000000000000000",
    "interfaces": ["lo"],
}

# As torchrun of 2.13.0 printed it when rank 1 of 3 died of a signal (the Python traceback left out).
TORCHRUN_CRASH = """\
W1201 05:08:39.319000 17925 torch/distributed/elastic/multiprocessing/api.py:1028] Sending process 17971 closing signal SIGTERM
E1201 05:08:39.324000 17925 torch/distributed/elastic/multiprocessing/api.py:1002] failed (exitcode: -11) local_rank: 1 (pid: 17972) of binary: python3
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
=======================================================
crash.py FAILED
-------------------------------------------------------
Failures:
[1]:
  time      : 2026-12-01_05:08:39
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : -15 (pid: 17971)  (SIGTERM)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 17971
-------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-12-01_05:08:39
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : -11 (pid: 17972)  (SIGSEGV)
  error_file: <N/A>
  traceback : Signal 11 (SIGSEGV) received by PID 17972
=======================================================
"""

Event = dict[str, Any]


def uuid_of(index: int) -> str:
    """The UUID that tests/unit/hosts.py gives the GPU of this index."""
    return f"GPU-01000100-0000-0000-0000-{index:012d}"


def gpus(count: int = 8, capability: str | None = "9.0", model: str | None = MODEL) -> list[ExpectedGpu]:
    return [ExpectedGpu(BUS_IDS[index], "10de:2330", uuid_of(index), "NVIDIA H100 80GB HBM3", capability, model, 80) for index in range(count)]


def figure(name: str, median: float = 100.0, **more: Any) -> dict[str, Any]:
    """The value of a `measured` event; ``more`` replaces or adds."""
    samples = [median * 0.99, median, median * 1.01]
    return {"median": median, "samples": samples, "unit": unit_of(name), "kernel": KERNEL, "conditions": CONDITIONS, "seconds": 1.0, **more}


def floor(value: float, verified: bool = True, gpus: int = 1, **more: Any) -> dict[str, Any]:
    """A floor as the plan gives it, for the figures of ``figure``."""
    known = {"unit": "TFLOP/s", "floor": value, "kernel": KERNEL, "gpus": gpus, "conditions": CONDITIONS, "source": ["lab"], "date": "2026-12"}
    return {**known, "verified": verified, **more}


def container(ranks: int = 2, backend: str = "cuda", **changes: Any) -> Container:
    made = Container(
        image=IMAGE,
        run_id=RUN,
        payload="/var/lib/rackready/smoke-x/payload",
        backend=backend,
        ranks=ranks,
        dtypes=["fp64", "bf16"],
        collective=True,
        ulimits=["memlock=-1", "stack=67108864"],
        shm_size="1g",
        env={},
        limit_s=100,
        threads=4,
    )
    return made._replace(**changes)


def matmul_value(backend: str = "cuda", dtype: str = "bf16", tier: str = "quick") -> dict[str, Any]:
    rows, _, columns = SHAPES[backend]
    numbers = {"shape": list(SHAPES[backend]), "elements": rows * columns, "wrong": 0, "nan": 0, "inf": 0, "first_wrong": None}
    return {**numbers, "repeats": least_repeats(dtype, backend, tier)}


def repeat_value(backend: str = "cuda", dtype: str = "bf16", tier: str = "quick") -> dict[str, Any]:
    rows, _, columns = REPEAT_SHAPES[backend]
    numbers = {"shape": list(REPEAT_SHAPES[backend]), "elements": rows * columns, "not_finite": 0, "different": 0}
    return {**numbers, "repeats": least_repeats(dtype, backend, tier), "sha256": f"{dtype}-sound"}


def reduce_value(world: int, backend: str = "cuda", name: str = exchange.ALL_REDUCE, tier: str = "quick") -> dict[str, Any]:
    return {**exchange.amount_of(name, backend, tier, world), "wrong": 0, "nan": 0, "inf": 0, "first_wrong": None}


FORMATS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8")


def rank_events(rank: int, world: int, backend: str = "cuda", dtypes: tuple[str, ...] = FORMATS, *, tier: str = "quick", burn_seconds: int = 0) -> list[Event]:
    """Everything that one sound rank says, in order."""
    nodes = {**{f"/dev/nvidia{index}": [195, index] for index in range(world)}, "/dev/nvidiactl": [195, 255], "/dev/nvidia-uvm": [511, 0]}
    identity: Event = {"index": rank, "device_count": world}
    if backend == "cuda":
        named = {"uuid": uuid_of(rank), "pci_bus_id": BUS_IDS[rank], "name": "NVIDIA H100 80GB HBM3"}
        identity.update(**named, compute_capability="9.0", memory_mib=81082, libcuda=LIBCUDA)
    events: list[Event] = [
        {"event": "start", "world": world, "pid": 10 + rank},
        {"event": "found", "name": "container_limits", "value": LIMITS},
        {"event": "found", "name": "device_nodes", "value": nodes},
        {"event": "stage", "name": "import_torch"},
        {"event": "found", "name": "torch", "value": {"torch": "2.11.0", "cuda": "13.0", "nccl": "2.28.9", "arch_list": ["sm_90"]}},
        {"event": "stage", "name": "gpu_identity"},
        {"event": "found", "name": "gpu_identity", "value": identity},
        {"event": "stage", "name": "meet"},
    ]
    for dtype in dtypes:
        events += checked(f"matmul_exact.{dtype}", matmul_value(backend, dtype, tier))
    for dtype in dtypes:
        events += checked(f"matmul_repeat.{dtype}", repeat_value(backend, dtype, tier))
    events.append({"event": "found", "name": "product_hash", "value": {dtype: f"{dtype}-sound" for dtype in dtypes_of(gpus(1)[0])}})
    events.append({"event": "stage", "name": "wait_for_ranks"})
    for name in [exchange.ALL_REDUCE] if tier == "quick" else list(exchange.COLLECTIVES):
        events += checked(name, reduce_value(world, backend, name, tier))
    if tier != "quick" and world > 1:
        events += checked(pairs.PAIR_EXACT, {**pairs.amount_of(backend, world), "wrong": 0})
    for name in figures_of(gpus(1)[0], tier, backend):
        events += [{"event": "stage", "name": name}, {"event": "measured", "name": name, "value": figure(name)}]
    if tier != "quick":
        events += _between(rank, world)
        events += checked("training.ddp_step", {"world": world, "elements": INPUTS * OUTPUTS, "wrong": 0, "same_on_all_ranks": True})
        events += checked("training.fp8", {"elements": 8192, "wrong": 0})
        events += [{"event": "stage", "name": "training.compile"}, result("training.compile", "could_not_run", "the image cannot compile: no compiler", {})]
    if burn_seconds:
        events += checked("burn", {"seconds": burn_seconds + 0.5, "products": 9000, "wrong": 0, "nan": 0, "inf": 0})
    return [*events, {"event": "stage", "name": "leave"}, {"event": "end"}]


def _between(rank: int, world: int) -> list[Event]:
    """The figures of all ranks together, of which the pairs are rank 0's to tell."""
    if world < 2:
        return []
    events: list[Event] = [{"event": "stage", "name": "all_reduce.busbw"}]
    events.append({"event": "measured", "name": "all_reduce.busbw", "value": figure("all_reduce.busbw", 450.0, world=world, nvls=None)})
    events.append({"event": "stage", "name": "pair.copy"})
    if rank == 0:
        table = [[src, dst, 390.0] for src in range(world) for dst in range(world) if src != dst]
        events.append({"event": "measured", "name": "pair.copy", "value": figure("pair.copy", 390.0, pairs=table)})
    return events


def checked(name: str, value: dict[str, Any]) -> list[Event]:
    """A check that passes, announced as it is."""
    return [{"event": "stage", "name": name}, result(name, "pass", None, value)]


def result(name: str, status: str, reason: str | None = None, value: Any = None) -> Event:
    return {"event": "check", "name": name, "status": status, "reason": reason, "value": value, "duration_s": 0.5}


def lines(rank: int, events: list[Event], run: str = RUN) -> list[str]:
    """The events as the payload writes them."""
    return [json.dumps({"rackready_smoke": 1, "run": run, "rank": rank, "seq": seq, **event}, separators=(",", ":")) for seq, event in enumerate(events)]


def all_lines(world: int, backend: str = "cuda") -> list[str]:
    """The lines of sound ranks, taking turns as those of real ones do."""
    of_ranks = [lines(rank, rank_events(rank, world, backend)) for rank in range(world)]
    return [line for turn in zip(*of_ranks, strict=True) for line in turn]


def child(script: str) -> list[str]:
    """A command that runs a Python script as the container's client would run."""
    return [sys.executable, "-u", "-c", script]


# --- what is looked at while the GPUs work ----------------------------------------------------------------------------------------------


def counters() -> dict[str, Any]:
    """What nvidia-smi counts of a sound H100, as smoke_window gets it."""
    return {
        "ecc": {"volatile_uncorrectable": 0, "volatile_correctable": 0, "aggregate_uncorrectable": 3, "aggregate_correctable": 9},
        "rows": {
            "correctable": 1,
            "uncorrectable": 0,
            "pending": False,
            "failure": False,
            "retirement_pending": None,
            "channel_repair_pending": False,
            "tpc_repair_pending": False,
            "unrepairable_memory": False,
        },
        "replays": 4,
        "link": {"generation": 5, "max_generation": 5, "width": 16, "max_width": 16},
        "throttle": {
            "mask": 0x4,
            "microseconds": {"sw_power_cap": 100, "sync_boost": 0, "sw_thermal_slowdown": 0, "hw_thermal_slowdown": 0, "hw_power_brake_slowdown": 0},
        },
    }


def links() -> dict[int, dict[str, int]]:
    return {link: {"Replay Errors": 0, "Recovery Errors": 0, "CRC Errors": 2} for link in range(18)}


def snapshot(count: int = 2) -> Snapshot:
    return Snapshot({BUS_IDS[index]: counters() for index in range(count)}, None, {uuid_of(index): links() for index in range(count)})


def window(count: int = 2, **changes: Any) -> Window:
    """A window in which nothing happened."""
    readings = {BUS_IDS[index]: [Reading("copy.host_to_device", 0x4, 5, 16), Reading("matmul.bf16", 0x0, 5, 16)] for index in range(count)}
    made = Window(snapshot(count), snapshot(count), 60.0, readings, {BUS_IDS[index]: Slot(5, 16) for index in range(count)}, Events(), Events())
    return made._replace(**changes)
