# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What was measured, and what it says: pure functions."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

LIMIT_EXECUTIONS = 3
# Runs on a small machine differ by as much; what grows with the square of the hosts grows by far more from 8 hosts to 40.
TOLERANCE = 1.2

KINDS = {"wall_s": "wall time", "cpu_s": "CPU time of the controller", "peak_mib": "memory of the controller"}


@dataclass(frozen=True)
class Cost:
    """What one playbook cost: module executions of the host that had most, and wall time (s), CPU time (s) and peak memory (MiB) of the run."""

    executions: float
    wall_s: float
    cpu_s: float
    peak_mib: float


def median(costs: Sequence[Cost]) -> Cost:
    """The median of every figure. Executions do not vary; if they did, the most would count."""
    middle = {field.name: statistics.median(getattr(cost, field.name) for cost in costs) for field in fields(Cost)}
    return Cost(**{**middle, "executions": max(cost.executions for cost in costs)})


def further_host(costs: Mapping[int, Cost], kind: str, few: int, many: int) -> float:
    """What each host beyond ``few`` costs in a run on ``many``: without what a run costs by itself."""
    return float((getattr(costs[many], kind) - getattr(costs[few], kind)) / (many - few))


def ratios(cost: Cost, plain: Cost) -> str:
    """Wall time, CPU time and memory as parts of the plain role's."""
    return "  ".join(f"{getattr(cost, kind) / getattr(plain, kind):.2f}" for kind in KINDS)


def growth(costs: Mapping[int, Cost], kind: str) -> float:
    """Cost a host at the largest number of hosts, as a multiple of that at the second largest; 1 or less is linear."""
    *_fewer, few, many = sorted(costs)
    return float(getattr(costs[many], kind) / many / (getattr(costs[few], kind) / few))


def sentences(costs: Mapping[int, Cost]) -> list[str]:
    """Whether each figure is linear in hosts, in words with the numbers that say so."""
    *_none, one, few, many = sorted(costs)
    units = {"wall_s": ("s", 2), "cpu_s": ("s", 2), "peak_mib": ("MiB", 1)}
    lines = []
    for kind, name in KINDS.items():
        unit, digits = units[kind]
        times = growth(costs, kind)
        at_many, at_few = (getattr(costs[number], kind) / number for number in (many, few))
        later, earlier = further_host(costs, kind, few, many), further_host(costs, kind, one, few)
        lines.append(
            f"{name} is {'linear' if times <= TOLERANCE else 'NOT linear'} in hosts: {at_many:.{digits}f} {unit} a host with {many} hosts, "
            f"{at_few:.{digits}f} with {few} (x {times:.2f}); each further host from {few} to {many} costs {later:.{digits}f} {unit}, "
            f"from {one} to {few} {earlier:.{digits}f}"
        )
    return lines


def problems(hosts: Sequence[str], counted: Mapping[str, Mapping[str, int]], records: Mapping[str, Mapping[str, Any]] | None) -> list[str]:
    """Why a run cannot count: a host is missing, was changed, or its record (None: the playbook leaves none) does not say that nothing was to do."""
    found = [f"{host} was not reached" for host in hosts if host not in counted]
    found += [f"{host}: {counted[host]['changed']} tasks changed something" for host in hosts if counted.get(host, {}).get("changed")]
    for host in hosts if records is not None else ():
        record = (records or {}).get(host)
        if record is None:
            found.append(f"{host} has no record")
        elif record["outcome"] != "simulated" or not str(record["reason"]).startswith("nothing to do") or record["changed"]:
            found.append(f"{host} was not found converged: {record['outcome']}, {record['reason']}")
    return found


def engine_packages(installed: Mapping[str, Any]) -> dict[str, str]:
    """The plain role's variables: it installs the engine that the host has, so that it has nothing to do either."""
    if "docker-ce" in installed:
        return {"engine_package": "docker-ce", "client_package": "docker-ce-cli"}
    return {"engine_package": "docker.io", "client_package": "docker-cli"}
