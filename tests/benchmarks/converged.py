#!/usr/bin/env python3
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a converged host costs: module executions and seconds of site.yml, beside a plain role that only installs Docker.

Both run against the lab, in turn and in the same run, so that the ratio holds on any machine. Prints, asserts nothing on time.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = 5


def run(playbook: str) -> tuple[float, float]:
    """Seconds and module executions a host of one run."""
    with tempfile.TemporaryDirectory() as folder:
        counts = Path(folder) / "counts.json"
        environment = {
            **os.environ,
            "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests/benchmarks/callback_plugins"),
            "ANSIBLE_CALLBACKS_ENABLED": "executions,rackready.gpu.record",
            "BENCH_EXECUTIONS": str(counts),
        }
        command = ["ansible-playbook", "-i", "inventory/lab", playbook, "-l", "h100_nodes", "-e", json.dumps({"rackready_records_dir": folder})]
        began = time.perf_counter()
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - began
        if ran.returncode != 0 or "changed=0" not in ran.stdout:
            sys.exit(f"{playbook} failed or changed something, so nothing was measured:\n{ran.stdout}{ran.stderr}")
        executions = json.loads(counts.read_text())
    return seconds, statistics.mean(executions.values())


def main() -> None:
    playbooks = {"site.yml, converged": "site.yml", "plain role, Docker only": "tests/benchmarks/plain_docker.yml"}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in playbooks}
    for _ in range(ROUNDS):
        for name, playbook in playbooks.items():
            measured[name].append(run(playbook))
    medians = {name: statistics.median(seconds for seconds, _ in rounds) for name, rounds in measured.items()}
    ours, plain = medians.values()
    table = Table(title=f"A converged host of the lab, median of {ROUNDS} runs in turn")
    for column in ("playbook", "module executions a host", "seconds", "ratio to the plain role"):
        table.add_column(column, justify="left" if column == "playbook" else "right")
    for name, rounds in measured.items():
        table.add_row(name, f"{rounds[-1][1]:.0f}", f"{medians[name]:.2f}", f"{medians[name] / plain:.2f}")
    Console().print(table)
    print(f"ratio_seconds {ours / plain:.3f}")


if __name__ == "__main__":
    main()
