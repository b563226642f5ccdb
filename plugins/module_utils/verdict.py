# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From check results to a verdict. Pure: no I/O, no clock, no host.

The rules (design: 'Check', 'Verdict'), in the order in which they are applied:

1. What is not one of the five statuses is ``could_not_run``.
2. Only the plan makes a check not applicable, beforehand. A result that calls itself ``not_applicable`` without that is ``could_not_run``.
   What the plan excused may be missing or may not have run; a failure that was seen nevertheless still counts.
3. A required check without a result is ``could_not_run``.
4. Any required ``fail`` (``degraded`` too, where the policy rejects it): ``rejected``. Else any required ``could_not_run``, or nothing at all that
   ran: ``incomplete``. Else ``accepted``, which is called ``simulated`` where the backend is ``cpu``.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence, TypedDict

PASS = "pass"
DEGRADED = "degraded"
FAIL = "fail"
COULD_NOT_RUN = "could_not_run"
NOT_APPLICABLE = "not_applicable"
STATUSES = (PASS, DEGRADED, FAIL, COULD_NOT_RUN, NOT_APPLICABLE)

ACCEPTED = "accepted"
SIMULATED = "simulated"
REJECTED = "rejected"
INCOMPLETE = "incomplete"
NO_RESULT = "there is no result of it"
# What 'accepted' is called, by backend: arithmetic on a CPU says nothing about a GPU, and the word must not claim it.
ACCEPTED_AS = {"cuda": ACCEPTED, "cpu": SIMULATED}


class Gpu(TypedDict):
    """The GPU that a check is about. ``uuid`` is None where no driver could name it; ``pci_bus_id`` has sysfs form, ``0000:1a:00.0``."""

    uuid: str | None
    pci_bus_id: str


class Check(TypedDict):
    """One check result, as the check contract has it (schemas/check.schema.json). ``duration_s`` is in seconds."""

    name: str
    status: str
    required: bool
    reason: str | None
    remedy: str | None
    value: Any
    floor: Any
    unit: str | None
    source: str | None
    gpu: Gpu | None
    duration_s: float | None


class Requirement(NamedTuple):
    """A check that has to have a result: its name, and for a check of one GPU that GPU."""

    name: str
    gpu: Gpu | None = None


class Verdict(TypedDict):
    """The verdict, one sentence why, what to do now (None when there is nothing to do), and every check that counted or was reported."""

    verdict: str
    reason: str
    remedy: str | None
    checks: list[Check]


def make_check(
    name: str,
    status: str,
    reason: str | None = None,
    *,
    remedy: str | None = None,
    value: Any = None,
    floor: Any = None,
    unit: str | None = None,
    source: str | None = None,
    gpu: Gpu | None = None,
    duration_s: float | None = None,
    required: bool = True,
) -> Check:
    """A check with every key present."""
    return Check(
        name=name,
        status=status,
        required=required,
        reason=reason,
        remedy=remedy,
        value=value,
        floor=floor,
        unit=unit,
        source=source,
        gpu=gpu,
        duration_s=duration_s,
    )


def label(name: str, gpu: Gpu | None) -> str:
    """How a check is called in a sentence: ``matmul_exact.bf16 on GPU 0000:1a:00.0 (GPU-...)``."""
    if gpu is None:
        return name
    return "{} on GPU {} ({})".format(name, gpu["pci_bus_id"], gpu["uuid"] or "UUID unknown")


def _key(name: str, gpu: Gpu | None) -> tuple[str, str | None, str | None]:
    """Parts of one GPU have its bus id in common, and each needs a result of its own; a whole GPU may tell its UUID or not."""
    if gpu is None:
        return name, None, None
    return name, gpu["pci_bus_id"], gpu["uuid"] if (gpu["uuid"] or "").startswith("MIG-") else None


def _settle(check: Check, wanted: bool, excuses: Mapping[str, str]) -> Check:
    """Rules 1 and 2 for one result; sets ``required``."""
    settled: Check = check.copy()
    status = check["status"]
    excused = check["name"] in excuses
    if status not in STATUSES:
        status, settled["reason"] = COULD_NOT_RUN, f"the test reported the unknown status {status!r}"
    elif status == NOT_APPLICABLE and not excused:
        status = COULD_NOT_RUN
        settled["reason"] = "the test called itself not applicable, which only the plan may say beforehand ({})".format(check["reason"] or "no reason given")
    elif status in (COULD_NOT_RUN, NOT_APPLICABLE) and excused:
        status, settled["reason"], settled["remedy"] = NOT_APPLICABLE, excuses[check["name"]], None
    settled["status"] = status
    settled["required"] = (wanted or check["required"]) and (not excused or status == FAIL)
    return settled


def _settle_all(results: Sequence[Check], required: Sequence[Requirement], excuses: Mapping[str, str]) -> list[Check]:
    """Rules 1 to 3: every result settled, then one check for each requirement that has none."""
    wanted = {_key(r.name, r.gpu) for r in required}
    checks = [_settle(c, _key(c["name"], c["gpu"]) in wanted, excuses) for c in results]
    seen = {_key(c["name"], c["gpu"]) for c in checks}
    for requirement in required:
        key = _key(requirement.name, requirement.gpu)
        if key in seen:
            continue
        seen.add(key)
        missing = make_check(requirement.name, COULD_NOT_RUN, NO_RESULT, gpu=requirement.gpu)
        checks.append(_settle(missing, True, excuses))
    return checks


def _sentence(checks: Sequence[Check], what: str) -> str:
    """``<first check> <what>: <its reason>``, with the number of further ones."""
    first = checks[0]
    more = "" if len(checks) == 1 else f"; {len(checks) - 1} more: {_names(checks[1:])}"
    return "{} {}: {}{}".format(label(first["name"], first["gpu"]), what, first["reason"] or "no reason given", more)


def _names(checks: Sequence[Check]) -> str:
    """The different names among the checks with their numbers, at most six, in order."""
    counts: dict[str, int] = {}
    for check in checks:
        counts[check["name"]] = counts.get(check["name"], 0) + 1
    names = [name if count == 1 else f"{name} x{count}" for name, count in counts.items()]
    return ", ".join(names[:6] + (["..."] if len(names) > 6 else []))


def evaluate(
    results: Sequence[Check],
    required: Sequence[Requirement],
    backend: str,
    degraded: str = "accept",
    not_applicable: Mapping[str, str] | None = None,
) -> Verdict:
    """The verdict over check results.

    :param results: check results in the order of cause (the first one that counts names the reason).
    :param required: what has to have a result.
    :param backend: ``cuda`` or ``cpu``.
    :param degraded: ``accept`` or ``reject``: what a required check that is degraded counts as.
    :param not_applicable: check name -> reason, as the plan said beforehand.
    :raises ValueError: unknown backend or policy, as a misspelt one must never soften a verdict.
    """
    if backend not in ACCEPTED_AS:
        raise ValueError("backend {!r} is not one of {}".format(backend, ", ".join(ACCEPTED_AS)))
    if degraded not in ("accept", "reject"):
        raise ValueError(f"policy for degraded checks {degraded!r} is not one of accept, reject")
    checks = _settle_all(results, required, dict(not_applicable or {}))
    counted = [c for c in checks if c["required"]]
    failed = [c for c in counted if c["status"] == FAIL]
    weak = [c for c in counted if c["status"] == DEGRADED]
    unrun = [c for c in counted if c["status"] == COULD_NOT_RUN]
    if failed:
        return Verdict(verdict=REJECTED, reason=_sentence(failed, "failed"), remedy=failed[0]["remedy"], checks=checks)
    if weak and degraded == "reject":
        return Verdict(verdict=REJECTED, reason=_sentence(weak, "is degraded, which smoke_test_degraded rejects"), remedy=weak[0]["remedy"], checks=checks)
    if unrun:
        return Verdict(verdict=INCOMPLETE, reason=_sentence(unrun, "could not run"), remedy=unrun[0]["remedy"], checks=checks)
    if not counted:
        return Verdict(
            verdict=INCOMPLETE,
            reason="no required check ran, so nothing has been shown",
            remedy="look at smoke_test.not_applicable of the plan: it excuses every check",
            checks=checks,
        )
    reason = "{0} of {0} required checks ran, none failed".format(len(counted))
    if weak:
        reason += f"; {len(weak)} degraded: {_names(weak)}"
    if backend == "cpu":
        reason += "; computed on the CPU, which says nothing about a GPU"
    return Verdict(verdict=ACCEPTED_AS[backend], reason=reason, remedy=None, checks=checks)
