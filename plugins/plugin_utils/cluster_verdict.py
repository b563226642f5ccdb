# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From the reports of all hosts to a verdict for each of them: whose sums were wrong, and which host or which way between two is slow. Pure.

The bandwidth of a pair is that of the slower of the two. So the best that a host reaches in any of its pairs is its own; the median over its pairs would lie
too low where half of its partners are slow, and name sound hosts with the slow ones. A pair that stays below what both its hosts reach elsewhere has a slow
way between them. With fewer than three hosts alike nobody can tell which of them it is, and then that is what is said.

Everything that was not told, by both ends where there are two, is ``could_not_run``. The verdict of the single-host test is another one and stays as it is.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackready.gpu.plugins.module_utils import verdict
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_cluster import MEETING, TRANSPORT, gpus_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import (
    ALL_REDUCE,
    BEHIND_FAIL,
    BEHIND_WARN,
    MEDIAN_OF,
    Finding,
    Floors,
    against_floor,
    floor_for,
    integer,
    lacking,
    number,
)
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_identity import GPU_IDENTITY
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import hosts as payload
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.tournament import Pair, pairs_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_tiers import ALL_REDUCE_EXACT
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, DEGRADED, FAIL, NOT_APPLICABLE, PASS, Check, Requirement, make_check

PAIRS = "hosts_pairs"
PAIR_FIGURE, ALL_FIGURE = "hosts.pair.busbw", "hosts.all_reduce.busbw"
PAIR_SPEED, ALL_SPEED = f"speed.{PAIR_FIGURE}", f"speed.{ALL_FIGURE}"
# Two ends of a pair measure the same thing; further apart they did not.
SAME_END = 0.01
SOURCE = "torch.distributed in the containers of both hosts"
SLOW_REMEDY = "look at this host's adapters (link speed, width of their PCIe slots, errors), cables and switch ports, and at hosts_transport; then test again"
WAY_REMEDY = "look at cables and switches between the two; each of them is faster with others"
CPU_EXCUSE = "it is computed on the CPU, for which there are no floors"


class Member(NamedTuple):
    """A host of the run. ``gpus``: those of the plan (slug of the ``model`` among their keys); ``report``: what gpu_cluster_test returned, None where it
    returned nothing, with the reason in ``absent``.
    """

    name: str
    gpus: Sequence[Mapping[str, Any]]
    ranks: int
    degraded: str
    report: Mapping[str, Any] | None
    absent: str = "there is no report of it"

    @property
    def kind(self) -> tuple[Any, ...]:
        """What two hosts have in common whose speed can be compared: model and number of their GPUs."""
        return tuple(sorted({str(gpu.get("model") or gpu.get("pci_id")) for gpu in self.gpus})), self.ranks

    @property
    def model(self) -> str | None:
        """The model of all its GPUs; None where there are several."""
        models = {gpu.get("model") for gpu in self.gpus}
        return str(models.pop()) if len(models) == 1 else None


class Table(NamedTuple):
    """What the pairs came to: GB/s and wrong elements by pair; ``missing``: pair to why it has none of both; ``slow``: pair to why it has no GB/s alone."""

    rates: dict[Pair, float]
    wrong: dict[Pair, int]
    missing: dict[Pair, str]
    untimed: dict[Pair, str]


class _Run(NamedTuple):
    """Everything that is known of a run. ``culprit``: the host that all pairs with wrong sums point at; ``ended``: hosts whose container ended too soon."""

    members: Sequence[Member]
    backend: str
    floors: Floors
    table: Table
    culprit: int | None
    ended: Sequence[str]


def judge(members: Sequence[Member], backend: str, floors: Floors) -> dict[str, dict[str, Any]]:
    """Host to its verdict (``verdict``, ``reason``, ``remedy``, ``checks``), and ``slow`` and ``wrong``: the hosts that all pairs point at."""
    table = table_of(members, backend)
    culprit = suspect(table.wrong)
    run = _Run(members, backend, floors, table, culprit, ended_first(members))
    checks = {member.name: _checks(node, run) for node, member in enumerate(members)}
    slow = [name for name, found in checks.items() if any(check["name"] == PAIR_SPEED and check["status"] == FAIL for check in found)]
    excuses = dict.fromkeys((PAIR_SPEED, ALL_SPEED), CPU_EXCUSE) if backend == "cpu" else {}
    judged = {}
    for member in members:
        required = _required(member, backend)
        found = verdict.evaluate(checks[member.name], required, backend, member.degraded, excuses)
        judged[member.name] = {**found, "slow": slow, "wrong": [] if culprit is None else [members[culprit].name]}
    return judged


def _required(member: Member, backend: str) -> list[Requirement]:
    names = (MEETING, "container_run", "container_limits", TRANSPORT, PAIRS, PAIR_SPEED, ALL_SPEED)
    gpus = [gpu.gpu for gpu in gpus_of(member.gpus, backend)]
    return [*map(Requirement, names), *(Requirement(name, gpu) for gpu in gpus for name in (GPU_IDENTITY, ALL_REDUCE_EXACT))]


def _checks(node: int, run: _Run) -> list[Check]:
    member = run.members[node]
    if member.report is None:
        remedy = "see what Ansible says of it, and test again"
        return [make_check(MEETING, COULD_NOT_RUN, f"{member.name}: {member.absent}", remedy=remedy, source="the run")]
    own = [_blamed(_waited(check, run), node, run) for check in member.report["checks"]]
    speeds = [_pair_speed(node, run), _all_speed(node, run)]
    if run.backend == "cpu":
        # Told and held against nothing: processors that simulated hosts share say nothing about a network.
        speeds = [make_check(check["name"], NOT_APPLICABLE, CPU_EXCUSE, value=check["value"], unit="GB/s", source=SOURCE) for check in speeds]
    return [*own, _pairs(node, run), *speeds]


def ended_first(members: Sequence[Member]) -> list[str]:
    """Hosts whose container was not ended at its limit and did not run to its end: what the others then waited for in vain."""
    checks = [(member.name, check) for member in members for check in (member.report or {}).get("checks", []) if check["name"] == "container_run"]
    return [name for name, check in checks if check["status"] != PASS and not _timed_out(check)]


def _timed_out(check: Check) -> bool:
    return isinstance(check["value"], Mapping) and bool(check["value"].get("timed_out"))


def _waited(check: Check, run: _Run) -> Check:
    """A container that was ended at its limit, with the hosts that it waited for."""
    if check["name"] != "container_run" or not run.ended or not _timed_out(check):
        return check
    waited: Check = check.copy()
    waited["reason"] = f"it waited in vain for {', '.join(run.ended)}, whose container had ended: {check['reason']}"
    waited["remedy"] = f"see container_run in the record of {', '.join(run.ended)}"
    return waited


# --- pairs ---------------------------------------------------------------------------------------------------------------------------------


def table_of(members: Sequence[Member], backend: str) -> Table:
    """Every pair of the tournament, with what both its ends told of it."""
    ends: list[dict[int, Any]] = [_told(member) for member in members]
    table = Table({}, {}, {}, {})
    for pair in pairs_of(len(members)):
        silent = [members[one].name for one, other in (pair, pair[::-1]) if _entry(ends[one].get(other), backend) is None]
        if silent:
            table.missing[pair] = f"{' and '.join(silent)} told nothing of it"
            continue
        here, there = ends[pair[0]][pair[1]], ends[pair[1]][pair[0]]
        table.wrong[pair] = max(here[3], there[3])
        rates = [number(entry[1]) for entry in (here, there)]
        if rates[0] is None or rates[1] is None:
            table.untimed[pair] = "there was no time to measure it"
        elif abs(rates[0] - rates[1]) > SAME_END * max(rates[0], rates[1]):
            table.untimed[pair] = f"its ends do not agree: {rates[0]:.4g} and {rates[1]:.4g} GB/s"
        else:
            table.rates[pair] = min(rates[0], rates[1])
    return table


def _told(member: Member) -> dict[int, Any]:
    """Number of the other host to what this one says of their pair."""
    value = (member.report or {}).get("pairs")
    pairs = value.get("pairs") if isinstance(value, Mapping) else None
    return {entry[0]: entry for entry in pairs if isinstance(entry, list) and len(entry) == 4} if isinstance(pairs, list) else {}


def _entry(entry: Any, backend: str) -> Any:
    """The entry where it shows the whole work of comparing, else None."""
    if entry is None:
        return None
    compared, wrong = integer(entry[2]), integer(entry[3])
    return entry if compared == payload.elements_of(backend) and wrong is not None and wrong >= 0 else None


def suspect(wrong: Mapping[Pair, int]) -> int | None:
    """The one host that is in every pair with a wrong sum and in no other; None where the pairs do not single one out, as one alone never does."""
    bad = [pair for pair, count in wrong.items() if count]
    if not bad:
        return None
    common = set(bad[0]).intersection(*map(set, bad[1:]))
    if len(common) != 1:
        return None
    host = common.pop()
    own = [count for pair, count in wrong.items() if host in pair]
    return host if all(own) else None


def _blamed(check: Check, node: int, run: _Run) -> Check:
    """A wrong sum over all hosts reaches every rank of each; where the pairs name the host that it comes from the others are not at fault."""
    if check["name"] != ALL_REDUCE_EXACT or check["status"] != FAIL or run.culprit is None or run.culprit == node:
        return check
    blamed: Check = check.copy()
    name = run.members[run.culprit].name
    blamed["status"] = COULD_NOT_RUN
    blamed["reason"] = f"{check['reason']}; all pairs with wrong sums have {name} in them"
    blamed["remedy"] = f"take {name} out (-l) and test the others again"
    return blamed


def _of(node: int, pairs: Mapping[Pair, Any]) -> dict[int, Any]:
    """Of a host's pairs, the other host's number to what is known of the pair."""
    return {pair[0] if node == pair[1] else pair[1]: value for pair, value in pairs.items() if node in pair}


def _pairs(node: int, run: _Run) -> Check:
    """Every pair of this host was made, told by both ends, and summed up right."""
    members, table, culprit = run.members, run.table, run.culprit
    member = members[node]
    wrong = {members[other].name: count for other, count in _of(node, table.wrong).items() if count}
    missing = {members[other].name: words for other, words in _of(node, table.missing).items()}
    value = {"wrong": wrong, "right": len(_of(node, table.wrong)) - len(wrong), "of": len(_of(node, dict.fromkeys(pairs_of(len(members)))))}
    if wrong:
        words = f"sums of {member.name} with {', '.join(f'{name} ({count} wrong elements)' for name, count in wrong.items())} are wrong"
        blamed = culprit is not None and culprit != node
        if culprit is not None:
            words += f"; all pairs with wrong sums have {members[culprit].name} in them"
        remedy = "look for Xid messages, link errors and NCCL warnings on both hosts; test each alone (playbooks/verify.yml), then in other pairs (-l)"
        return make_check(PAIRS, COULD_NOT_RUN if blamed else FAIL, words, remedy=remedy, value=value, source=SOURCE)
    if missing:
        name, words = next(iter(missing.items()))
        why = (member.report or {}).get("pairs_reason")
        reason = f"{len(missing)} of its {value['of']} pairs have no result, first that with {name}: {words}" + (f"; {member.name}: {why}" if why else "")
        return make_check(PAIRS, COULD_NOT_RUN, reason, remedy="see container_run and hosts_meeting of both hosts, and test again", value=value, source=SOURCE)
    return make_check(PAIRS, PASS, value=value, source=SOURCE)


# --- speed ---------------------------------------------------------------------------------------------------------------------------------


def best_of(node: int, members: Sequence[Member], rates: Mapping[Pair, float]) -> float | None:
    """The most that a host reaches with another one of its kind; None where it was measured with none."""
    mine = [rate for other, rate in _of(node, rates).items() if members[other].kind == members[node].kind]
    return max(mine) if mine else None


def _pair_speed(node: int, run: _Run) -> Check:
    """This host against the others of its kind, each of its ways against what both ends reach elsewhere, and its best against the floor."""
    members, table = run.members, run.table
    member = members[node]
    rates = _of(node, table.rates)
    alike = [other for other in range(len(members)) if members[other].kind == member.kind]
    bests = {other: best for other in alike if (best := best_of(other, members, table.rates)) is not None}
    value: dict[str, Any] = {"pairs": {members[other].name: rate for other, rate in sorted(rates.items())}}
    untimed = {**_of(node, table.missing), **_of(node, table.untimed)}
    if untimed:
        other, words = next(iter(untimed.items()))
        reason = f"{len(untimed)} of its pairs have no figure, first that with {members[other].name}: {words}"
        return make_check(PAIR_SPEED, COULD_NOT_RUN, reason, remedy="see hosts_pairs, and test again", value=value, unit="GB/s", source=SOURCE)
    # Without another one of its kind, the best of all: nobody is compared with it.
    mine = value["best"] = bests[node] if node in bests else max(rates.values())
    ranks = 2 * member.ranks
    told = {"unit": "GB/s", "kernel": "torch.distributed.all_reduce", "conditions": payload.conditions_of(run.backend)}
    floor = floor_for(run.floors, member.model, PAIR_FIGURE, ranks, told)
    findings = [_floor(mine, floor, len(alike)), _behind(node, bests), *(_way(node, other, run, bests) for other in alike)]
    if len(bests) >= MEDIAN_OF:
        value["median_of_hosts"] = statistics.median(bests.values())
    return _conclude(PAIR_SPEED, findings, value, floor)


def _floor(mine: float, floor: Mapping[str, Any] | None, alike: int) -> Finding | None:
    finding = against_floor(mine, "GB/s", floor)
    if finding is None or alike >= MEDIAN_OF:
        return finding
    return finding._replace(reason=f"{finding.reason}; with {alike} of its kind a pair cannot tell which host is slow: test three or more")


def _behind(node: int, bests: Mapping[int, float]) -> Finding | None:
    """The host against the median of those of its kind; of fewer than three there is none that could tell."""
    if len(bests) < MEDIAN_OF:
        return None
    median = statistics.median(bests.values())
    behind = round(1 - bests[node] / median, 6)
    words = f"{bests[node]:.4g} GB/s, the best of its pairs, is {behind * 100:.1f} % under the median of {len(bests)} hosts ({median:.4g})"
    if behind > BEHIND_FAIL:
        return Finding(FAIL, f"this host is slow: {words}", SLOW_REMEDY)
    return Finding(DEGRADED, words, SLOW_REMEDY) if behind >= BEHIND_WARN else None


def _way(node: int, other: int, run: _Run, bests: Mapping[int, float]) -> Finding | None:
    """A pair that is slower than both its hosts; None as well where the two are no pair."""
    rate = run.table.rates.get((min(node, other), max(node, other)))
    if rate is None:
        return None
    both = min(bests[node], bests[other])
    behind = round(1 - rate / both, 6)
    if behind <= BEHIND_FAIL:
        return None
    return Finding(DEGRADED, f"the way to {run.members[other].name} is slow: {rate:.4g} GB/s, both reach {both:.4g} elsewhere", WAY_REMEDY)


def _all_speed(node: int, run: _Run) -> Check:
    """All hosts together. It says nothing about one of them, so that only a floor judges it."""
    report = run.members[node].report or {}
    value = report.get("all_reduce")
    if value is None:
        return _conclude(ALL_SPEED, [Finding(COULD_NOT_RUN, str(report.get("all_reduce_reason") or "it was not told"))], None, None)
    gap = lacking(ALL_REDUCE, value)
    world = sum(other.ranks for other in run.members)
    if gap is None and value.get("world") != world:
        gap = f"{value.get('world')!r} ranks took part, there are {world}"
    if gap:
        return _conclude(ALL_SPEED, [Finding(COULD_NOT_RUN, f"the payload gave a figure, but {gap}")], value, None)
    models = {other.model for other in run.members}
    floor = floor_for(run.floors, models.pop(), ALL_FIGURE, world, value) if len(models) == 1 else None
    return _conclude(ALL_SPEED, [against_floor(float(value["median"]), "GB/s", floor)], value, floor)


def _conclude(name: str, findings: Sequence[Finding | None], value: Any, floor: Mapping[str, Any] | None) -> Check:
    """One check of everything that was found: the worst counts and is said first."""
    order = [FAIL, COULD_NOT_RUN, DEGRADED]
    said = sorted((finding for finding in findings if finding), key=lambda finding: order.index(finding.status))
    return make_check(
        name,
        said[0].status if said else PASS,
        "; ".join(finding.reason for finding in said) or None,
        remedy=said[0].remedy if said else None,
        value=value,
        floor=dict(floor) if floor else None,
        unit="GB/s",
        source=SOURCE,
    )
