#!/usr/bin/env python3
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the smoke payload on the real GPUs of this machine, without a container engine and without a network.

    python3 tests/hardware/smoke_on_gpu.py [--python /path/to/python-with-torch] [--out FOLDER]

Needs a Python with torch, nvidia-smi, and nothing else; takes about a minute. Three things are shown, each with the payload's own lines:

1. every check of the payload on every GPU, with cuda and nccl, and the verdict that the rules give (container checks are excused by name);
2. that a product which quietly ran in TF32 does not pass for fp32, and that one flipped element is found;
3. that without a visible GPU nothing passes, and CUDA's own words are the reason.

Exits with 0 when all three are as they have to be. ``--out`` gets lines.jsonl and result.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections")]

from ansible_collections.rackready.gpu.plugins.module_utils import facts, smoke_checks, smoke_run, smoke_tiers, verdict  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.pci import normalize_bus_id  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_checks import Asked  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, expected_gpus  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import write_payload  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Outcome  # noqa: E402

EXCUSED = dict.fromkeys(("container_limits", "device_nodes", "fabric", "imex"), "run without a container, on a machine that need not be set up by us")
PAYLOAD = Path(tempfile.mkdtemp(prefix="rackready-")) / "payload"
RUN_ID = "hardware0000"
LIMIT_S = 240
# NVLink multicast needs rights that a borrowed machine need not give; nothing else is tuned.
QUIET = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}

BENT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import torch
from smoke_payload import products as p
from smoke_payload.place import Place
here = Place(torch, "cuda", "cuda:0")
real = torch.set_float32_matmul_precision
good = p.matmul_exact(here, "fp32")
torch.set_float32_matmul_precision = lambda precision: real("high")
tf32 = p.matmul_exact(here, "fp32")
torch.set_float32_matmul_precision = real
mm = torch.mm
def flipped(a, b, out=None):
    if out is None:
        return mm(a, b)
    mm(a, b, out=out)
    out[4095, 17] += 1
    return out
torch.mm = flipped
one = p.matmul_exact(here, "bf16")
print(json.dumps({"fp32": good, "fp32_in_tf32": tf32, "one_element_flipped": one}))
"""


def gpus_here() -> list[ExpectedGpu]:
    """The GPUs as nvidia-smi lists them."""
    query = ["nvidia-smi", "--query-gpu=pci.bus_id,uuid,name,compute_cap", "--format=csv,noheader"]
    rows = [line.split(", ") for line in subprocess.run(query, check=True, capture_output=True, text=True, timeout=60).stdout.splitlines() if line]
    return [ExpectedGpu(*row) for row in sorted((normalize_bus_id(row[0]), None, row[1], row[2], row[3]) for row in rows)]


def payload(python: str, gpus: list[ExpectedGpu], lines: list[str], env: dict[str, str]) -> Outcome:
    """Run the payload under torchrun as the container would."""
    work = smoke_tiers.work(gpus, "quick", "cuda", {})
    container = smoke_run.Container(
        image="none@sha256:none",
        run_id=RUN_ID,
        payload=str(PAYLOAD),
        backend="cuda",
        ranks=len(gpus),
        dtypes=work.dtypes,
        collective=bool(work.collectives),
        ulimits=[],
        shm_size="64m",
        env=env,
        limit_s=LIMIT_S,
        threads=max(1, (os.cpu_count() or 1) // len(gpus)),
        budget=LIMIT_S - 30,
        figures=work.figures,
    )
    words = smoke_run.build_command(container)
    given = (word.partition("=") for option, word in itertools.pairwise(words) if option == "--env")
    os.environ.update({name: value for name, _, value in given})
    transcript = smoke_run.Transcript(RUN_ID, len(gpus))

    def take(line: str) -> bool:
        ours = transcript.take(line)
        if ours:
            lines.append(line)
        print(line, flush=True)
        return ours

    command = ["env", f"--chdir={PAYLOAD}", python, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(len(gpus))]
    command += ["--master-addr", "127.0.0.1", "--master-port", "29500", "--module", smoke_run.PAYLOAD_MODULE]
    child = smoke_run.run_child(command, LIMIT_S, take)
    print("\n".join(child.stderr[-40:]), file=sys.stderr)
    return Outcome(container, child, transcript)


def judge(gpus: list[ExpectedGpu], outcome: Outcome) -> verdict.Verdict:
    """The verdict over what the payload alone can show."""
    found = facts.gather(30)
    checks = [check for check in smoke_checks.container_checks(asked_of(gpus), found, outcome) if check["name"] not in EXCUSED]
    shown = ("gpu_identity", "gpu_count", "container_run", smoke_tiers.ALL_REDUCE_EXACT)
    required = [r for r in smoke_tiers.requirements(gpus, gpus, "quick", "cuda") if r.name in shown or r.name.startswith("matmul_exact.")]
    return verdict.evaluate(checks, required, "cuda", not_applicable=EXCUSED)


def asked_of(gpus: list[ExpectedGpu]) -> Asked:
    """What a plan that knows nothing but the cards would ask."""
    return Asked(gpus, gpus, "quick", "cuda", None, None, "off", EXCUSED, {})


def host_side() -> list[dict[str, Any]]:
    """What the checks of the host say here; for reading, since a borrowed machine need not be one that we set up."""
    try:
        found = facts.gather(30)
        gpus = expected_gpus([{"pci_bus_id": gpu["pci_bus_id"]} for gpu in found["gpus"]], found)
        checks = smoke_checks.host_checks(asked_of(gpus), found)
    except (OSError, ValueError) as error:
        return [{"error": str(error)}]
    return [{"name": check["name"], "status": check["status"], "reason": check["reason"], "value": check["value"]} for check in checks]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", default=sys.executable, help="the Python that has torch")
    parser.add_argument("--out", type=Path, help="folder for lines.jsonl and result.json")
    options = parser.parse_args()
    gpus = gpus_here()
    write_payload(PAYLOAD)
    lines: list[str] = []
    print(f"== {len(gpus)} GPUs, host side first ==")
    host = host_side()
    print(json.dumps(host, indent=1))

    print("== 1. the payload ==")
    outcome = payload(options.python, gpus, lines, QUIET)
    judged = judge(gpus, outcome)
    print(json.dumps({key: judged[key] for key in ("verdict", "reason", "remedy")}, indent=1))

    print("== 2. wrong products are found ==")
    bent = subprocess.run([options.python, "-c", BENT, str(PAYLOAD)], capture_output=True, text=True, timeout=180, check=False)
    print(bent.stdout.strip() or bent.stderr[-2000:])
    found = json.loads(bent.stdout) if bent.returncode == 0 else {}
    statuses = {name: entry[0] for name, entry in found.items()}

    print("== 3. no visible GPU ==")
    blind = payload(options.python, gpus[:1], lines, {"CUDA_VISIBLE_DEVICES": ""})
    unseen = judge(gpus[:1], blind)
    print(json.dumps({key: unseen[key] for key in ("verdict", "reason")}, indent=1))

    expected = {
        "payload": judged["verdict"] == verdict.ACCEPTED,
        "bent": statuses == {"fp32": "pass", "fp32_in_tf32": "fail", "one_element_flipped": "fail"},
        "blind": unseen["verdict"] in (verdict.REJECTED, verdict.INCOMPLETE),
    }
    print(json.dumps({"as it has to be": expected, "seconds": round(outcome.child.seconds, 1)}))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "lines.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        everything = {"host": host, "verdict": judged, "bent": found, "blind": unseen, "expected": expected, "seconds": outcome.child.seconds}
        (options.out / "result.json").write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")
    return 0 if all(expected.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
