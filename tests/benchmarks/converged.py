#!/usr/bin/env python3
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What converged hosts cost: module executions, time and memory of site.yml on 1, 8 and 40 of them, beside a plain role that only installs Docker.

The many are light hosts (light_hosts.py), copies of a converged host of the lab. Both playbooks run on the same hosts in turn and in the same run, so that the
ratios hold on any machine, with the forks of ansible.cfg and connections made anew each time. Every run must find every host converged, or nothing is said.
Fails when that is not so, or on more than three module executions a host; never because of a time.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any

from lab.engine import Engine
from lab.errors import LabError
from lab.paths import Layout
from rich.console import Console
from rich.table import Table

from tests.benchmarks import figures
from tests.benchmarks.figures import Cost
from tests.benchmarks.light_hosts import LightHosts

ROOT = Path(__file__).resolve().parents[2]
ROUNDS = {1: 3, 8: 2, 40: 1}  # number of hosts: runs of each playbook
OURS, PLAIN = "site.yml, converged", "plain role, Docker only"
PLAYBOOKS = {OURS: "site.yml", PLAIN: "tests/benchmarks/plain_docker.yml"}
LIMIT_S = 1800  # ends a run that hangs; 40 hosts may share few processors with whatever else runs
NOTE = (
    "Wall time has the work of all hosts in it, which share this machine with the controller; CPU time and memory are those of ansible-playbook with its forks "
    "and, for CPU time, its ssh clients. On light hosts systemd, engine and driver tools answer from a recording, for both playbooks."
)


class NotMeasuredError(Exception):
    """A run whose figures mean nothing, and why."""


class Bench:
    """Runs playbooks on hosts that are converged, and measures them."""

    def __init__(self, light: LightHosts, variables: dict[str, Any]) -> None:
        self._light = light
        self.variables = variables

    def run(self, name: str, hosts: list[str]) -> tuple[Cost, dict[str, Any]]:
        """What one run on these hosts cost, and its records (none of the plain role)."""
        with tempfile.TemporaryDirectory(prefix="bench-") as folder:
            place = Path(folder)
            counts, records = place / "counts.json", place / "records"
            environment = {
                **{key: value for key, value in os.environ.items() if not key.startswith("ANSIBLE_")},
                "ANSIBLE_CALLBACK_PLUGINS": str(ROOT / "tests/benchmarks/callback_plugins"),
                "ANSIBLE_CALLBACKS_ENABLED": "executions,rackready.gpu.record",
                "ANSIBLE_SSH_CONTROL_PATH_DIR": str(place / "ssh"),
                "BENCH_EXECUTIONS": str(counts),
            }
            command = ["ansible-playbook", "-i", "inventory/lab", "-i", str(self._light.inventory), PLAYBOOKS[name], "-l", ",".join(hosts)]
            command += ["-e", json.dumps({**self.variables, "rackready_records_dir": str(records)})]
            with (place / "output").open("w+") as output:
                began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
                process = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
                memory = PeakMemory(process.pid)
                try:
                    status = process.wait(LIMIT_S)
                except subprocess.TimeoutExpired:
                    raise NotMeasuredError(f"{PLAYBOOKS[name]} on {len(hosts)} hosts did not end within {LIMIT_S} s") from None
                finally:
                    process.terminate()
                    process.wait()
                    peak = memory.stop()
                seconds, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
                close_connections(place / "ssh")
                output.seek(0)
                said = output.read()
            counted = json.loads(counts.read_text()) if counts.is_file() else {}
            found = {host: json.loads(path.read_text()) for host in hosts if (path := records / host / "latest.json").is_file()}
        wrong = figures.problems(hosts, counted, found if name == OURS else None)
        if status != 0 or wrong:
            tail = "\n".join(said.splitlines()[-60:])
            raise NotMeasuredError(f"{PLAYBOOKS[name]} on {len(hosts)} hosts ended with status {status}: {'; '.join(wrong[:5])}\n{tail}")
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Cost(max(counted[host]["executions"] for host in hosts), seconds, cpu, peak), found


class PeakMemory:
    """The most memory (MiB) that ansible-playbook and its forks had together. What forks share counts once: proportional set sizes, added up."""

    def __init__(self, process: int) -> None:
        self._process, self._peak, self._ended = process, 0.0, threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def stop(self) -> float:
        self._ended.set()
        self._thread.join()
        return self._peak

    def _watch(self) -> None:
        pause = 0.1
        while not self._ended.wait(pause):
            began = time.thread_time()
            self._peak = max(self._peak, sum(map(proportional_mib, [self._process, *forks(self._process)])))
            # Looking costs time of the machine that is measured: a tenth of one processor at most.
            pause = max(0.1, 10 * (time.thread_time() - began))


def forks(process: int) -> list[int]:
    """The workers of an ansible-playbook: its children of the same program."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _bracket, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == process and head.partition("(")[2].startswith("ansible-playboo"):
            found.append(int(path.parent.name))
    return found


def proportional_mib(process: int) -> float:
    """Proportional set size of a process; 0 when it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def close_connections(folder: Path) -> None:
    """End the masters that would live on for their five minutes: the next run makes its own connections, as an operator's first one does."""
    for control in folder.glob("*") if folder.is_dir() else ():
        subprocess.run(["ssh", "-F", "none", "-o", f"ControlPath={control}", "-O", "exit", "host"], capture_output=True, check=False)


def bench(original: str, console: Console) -> int:
    """The whole benchmark, with light hosts made from a converged host of the lab; the exit status."""
    light = LightHosts(Layout.of_this_file(), Engine(), original, max(ROUNDS))
    light.remove()
    try:
        light.prepare()
        runner = Bench(light, {})
        console.print(f"Recording what {original} answers", style="dim")
        _cost, records = runner.run(OURS, [original])
        runner.variables = figures.engine_packages(records[original]["facts"]["packages"]["installed"])
        runner.run(PLAIN, [original])
        began = time.perf_counter()
        light.start()
        console.print(f"Made {len(light.hosts)} light hosts in {time.perf_counter() - began:.0f} s", style="dim")
        measured: dict[str, dict[int, Cost]] = {name: {} for name in PLAYBOOKS}
        for number, rounds in ROUNDS.items():
            hosts = [host.name for host in light.hosts[:number]]
            costs = [{name: runner.run(name, hosts)[0] for name in PLAYBOOKS} for _ in range(rounds)]
            for name, found in measured.items():
                found[number] = figures.median([each[name] for each in costs])
            console.print(f"Measured {number} hosts, {rounds} times", style="dim")
    finally:
        light.remove()
    report(measured, console)
    most = max(cost.executions for cost in measured[OURS].values())
    if most > figures.LIMIT_EXECUTIONS:
        console.print(
            f"bench: a converged host costs {most} module executions, and at most {figures.LIMIT_EXECUTIONS} are allowed: see what runs beside gpu_host_facts"
        )
        return 1
    return 0


def report(measured: dict[str, dict[int, Cost]], console: Console) -> None:
    """Figures with their units, ratios to the plain role, and whether they are linear in hosts."""
    table = Table("hosts", "playbook", title="Runs on converged hosts, and each divided by its hosts")
    for column in (
        "module executions a host",
        "wall time, s / a host",
        "controller CPU, s / a host",
        "peak memory, MiB / a host",
        "to the plain role: wall, CPU, memory",
    ):
        table.add_column(column, justify="right")
    for number in ROUNDS:
        for name in PLAYBOOKS:
            cost, plain = measured[name][number], measured[PLAIN][number]
            table.add_row(
                *[str(number), name, f"{cost.executions:.0f}"],
                *[f"{cost.wall_s:.1f} / {cost.wall_s / number:.2f}", f"{cost.cpu_s:.1f} / {cost.cpu_s / number:.2f}"],
                *[f"{cost.peak_mib:.0f} / {cost.peak_mib / number:.0f}", figures.ratios(cost, plain)],
            )
    console.print(table)
    for line in figures.sentences(measured[OURS]):
        console.print(f"site.yml: {line}", soft_wrap=True)
    console.print(NOTE, soft_wrap=True)


def terminate(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    signal.signal(signal.SIGTERM, terminate)
    try:
        return bench("h100-01", Console(highlight=False, width=max(Console().width, 150)))
    except (LabError, NotMeasuredError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
