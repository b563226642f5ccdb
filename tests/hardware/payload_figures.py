#!/usr/bin/env python3
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the payload measures on the real GPUs of this machine, how long that takes, and how well it repeats. Without a container engine.

    python3 tests/hardware/payload_figures.py --out FOLDER [--limit 540] [--repeats 5]

Needs a Python with torch and nvidia-smi. One run as in tier quick, one as in tier accept, the sweep of shapes (one GPU), then quick again and again,
last each GPU by itself under its UUID with ten seconds of burn, and accept with far too little time.
FOLDER gets figures.json (seconds from command to end, statuses, figures, the spread of each), accept.jsonl and quick.jsonl (the payload's lines) and
sweep.json, apart.jsonl. Exits with 0 when no check failed, every run ended by itself and every product had the same hash each time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections")]

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import write_payload  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import figures, training  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.options import SETTINGS  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import PRODUCTS  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import PAYLOAD_MODULE, run_child  # noqa: E402

QUICK = ("matmul.bf16", figures.MEMORY_COPY, *figures.HOST_COPIES)
BETWEEN = (figures.ALL_REDUCE_SPEED, figures.PAIR_SPEED)
BUDGET_S = {"quick": 80, "accept": 300}
# NVLink multicast needs rights that a borrowed machine need not give; nothing else is tuned.
QUIET = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


class Run:
    """One run of the payload under torchrun, as the container would make it."""

    def __init__(self, tier: str, gpus: int, folder: Path, **changes: Any) -> None:
        names = QUICK if tier == "quick" else [name for name in figures.NAMES if gpus > 1 or name not in BETWEEN]
        settings = {
            "backend": "cuda",
            "run": "figures",
            "dtypes": list(PRODUCTS),
            "collective": True,
            "limit": BUDGET_S[tier] + 60,
            "tier": tier,
            "budget": BUDGET_S[tier],
            "figures": names,
            "trainings": [] if tier == "quick" else training.NAMES,
            **changes,
        }
        env = {"NCCL_SOCKET_IFNAME": "lo", "GLOO_SOCKET_IFNAME": "lo", "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1", **QUIET}
        os.environ.update({**env, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // gpus)), SETTINGS: json.dumps(settings)})
        self.events: list[dict[str, Any]] = []
        self.started = time.monotonic()
        command = ["env", f"--chdir={folder}", sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(gpus)]
        command += ["--master-addr", "127.0.0.1", "--master-port", "29500", "--module", PAYLOAD_MODULE]
        child = run_child(command, BUDGET_S[tier] + 30, self.take)
        self.seconds, self.exit_code, self.words = round(child.seconds, 1), child.exit_code, child.stderr[-30:]
        self.ended = sum(event["event"] == "end" for event in self.events) == gpus and self.exit_code == 0

    def take(self, line: str) -> bool:
        """Keep one of the payload's lines, with the seconds at which it came."""
        if not line.startswith('{"rackready_smoke"'):
            return False
        event = json.loads(line)
        self.events.append({**event, "at": round(time.monotonic() - self.started, 2)})
        return True

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [event for event in self.events if event["event"] == kind]

    def summary(self) -> dict[str, Any]:
        """What a reader wants to see of a run."""
        return {
            "seconds": self.seconds,
            "exit_code": self.exit_code,
            "ended": self.ended,
            "checks": [[e["rank"], e["name"], e["status"], e["duration_s"], e["reason"]] for e in self.of("check")],
            "figures": {f"{e['name']} of rank {e['rank']}": [e["value"]["median"], e["value"]["seconds"]] for e in self.of("measured")},
            "stages": [[e["at"], e["rank"], e["name"]] for e in self.of("stage")],
            "stderr": [] if self.ended else self.words,
        }


def spread(runs: list[Run]) -> dict[str, Any]:
    """Of each figure the medians of all runs, and (largest - smallest) / median."""
    taken: dict[str, list[float]] = {}
    for run in runs:
        for event in run.of("measured"):
            taken.setdefault(f"{event['name']} of rank {event['rank']}", []).append(event["value"]["median"])
    middle = {name: sorted(rates)[len(rates) // 2] for name, rates in taken.items()}
    return {name: {"medians": rates, "spread": round((max(rates) - min(rates)) / middle[name], 4)} for name, rates in taken.items()}


def hashes(runs: list[Run]) -> dict[str, int]:
    """How many different hashes each format's product had, over all runs and GPUs; 1 is as it has to be."""
    seen: dict[str, set[str]] = {}
    for run in runs:
        for event in run.of("found"):
            if event["name"] == "product_hash":
                for dtype, said in event["value"].items():
                    seen.setdefault(dtype, set()).add(said)
    return {dtype: len(said) for dtype, said in seen.items()}


def keep(path: Path, run: Run) -> None:
    path.write_text("".join(json.dumps(event) + "\n" for event in run.events), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--limit", type=float, default=540, help="seconds for everything")
    parser.add_argument("--repeats", type=int, default=5, help="runs of tier quick whose figures are compared")
    options = parser.parse_args()
    end = time.monotonic() + options.limit
    options.out.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="rackready-")) / "payload"
    write_payload(folder)
    query = ["nvidia-smi", "--query-gpu=name,driver_version,uuid", "--format=csv,noheader"]
    listed = subprocess.run(query, check=True, capture_output=True, text=True, timeout=60)
    cards = [line.split(", ") for line in listed.stdout.splitlines()]
    machine = [", ".join(card[:2]) for card in cards]
    print(machine, flush=True)
    result: dict[str, Any] = {"machine": machine}

    def tell(what: str, value: dict[str, Any]) -> None:
        result[what] = value
        (options.out / "figures.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        print(f"== {what}\n{json.dumps(value)}", flush=True)

    first = Run("quick", len(machine), folder)
    keep(options.out / "quick.jsonl", first)
    tell("quick", first.summary())
    accept = Run("accept", len(machine), folder)
    keep(options.out / "accept.jsonl", accept)
    tell("accept", accept.summary())
    # The repeats first get their share of the time, as their length is known by now; the sweep takes what is left.
    limit = max(30.0, end - time.monotonic() - (options.repeats + 3) * (first.seconds + 2) - 10)
    swept = [sys.executable, str(ROOT / "tests/hardware/sweep_on_gpu.py"), "--limit", str(limit), "--out", str(options.out / "sweep.json")]
    sweep = subprocess.run(swept, check=False)
    runs = [first]
    while len(runs) < options.repeats and time.monotonic() + first.seconds + 5 < end:
        runs.append(Run("quick", len(machine), folder))
        tell(f"quick again {len(runs)}", {key: value for key, value in runs[-1].summary().items() if key in ("seconds", "ended", "figures")})
    apart = Run("quick", len(cards), folder, visible=[card[2] for card in cards], collective=False, burn_seconds=10)
    keep(options.out / "apart.jsonl", apart)
    tell("each by itself, with burn", {**apart.summary(), "burn": [e["value"] for e in apart.of("check") if e["name"] == "burn"]})
    hurried = Run("accept", len(cards), folder, budget=12)
    tell("accept in 12 s", hurried.summary())
    tell("spread of quick", spread(runs))
    tell("different hashes", hashes([*runs, accept, apart]))
    everything = (*runs, accept, apart, hurried)
    failed = [event for run in everything for event in run.of("check") if event["status"] == "fail"]
    good = not failed and all(run.ended for run in everything) and set(hashes([*runs, accept, apart]).values()) == {1}
    tell(
        "in short",
        {"good": good, "failed": [event["name"] for event in failed], "sweep_exit": sweep.returncode, "runs": len(runs), "left_s": end - time.monotonic()},
    )
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
