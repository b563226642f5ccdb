# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smoke test from beginning to end: look at the host, run the container if nothing speaks against it, judge, keep the stamp true."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Mapping, NamedTuple

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_checks, smoke_hold, smoke_retry, smoke_run, smoke_tiers, smoke_window, stamp, verdict
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_checks import Asked
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import ALL_REDUCE, Figure, below_its_floor
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_health import fabric_in_progress, gpu_health
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import Look, Machine, write_payload
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import Request
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container, Outcome
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, FAIL, Check, make_check

# How long registration with the fabric may still take after the services are up, and how often it is looked at.
FABRIC_WAIT_S = 60
FABRIC_PAUSE_S = 3
# Of the whole time, what is kept back for ending a container that does not end, and the least that makes starting one worth while.
RESERVE_S = 40
LEAST_S = 20
# Of the container's time, the part that the payload may spend on its work: the rest is for starting and ending.
WORK_PART = 0.75
LEAST_BUDGET_S = 10
# What the end of a test takes at worst beside holding a container, and a run for one figure.
END_S = 10
AGAIN_S = 60
LOCK = "smoke-test.lock"


def plan_sentence(request: Request) -> str:
    """What a run would do, for check mode."""
    return f"would test {len(request.gpus)} GPUs in {request.image} (backend {request.backend}, tier {request.tier}, at most {request.limit_s} s)"


def run_test(request: Request, machine: Machine) -> dict[str, Any]:
    """Everything that the module returns, its verdict included. Raises RequestError, and OSError where the stamp cannot be kept."""
    request.validate()
    started = machine.monotonic()
    machine.state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    with (machine.state_dir / LOCK).open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            reason = "another smoke test of this host is running"
            work = _Work([make_check("gpu_idle", COULD_NOT_RUN, reason, remedy="wait until it is over")])
            return _report(request, machine, started, stamp.read(machine.state_dir), work)
        before = stamp.read(machine.state_dir)
        work = _work(request, machine, started)
        return _report(request, machine, started, before, work)


class _Work:
    """What was found: checks, what they are about, and what came of the container if one was started."""

    def __init__(self, checks: list[Check], asked: Asked | None = None, removed: list[str] | None = None) -> None:
        self.checks = checks
        self.asked = asked
        self.removed = removed or []
        self.outcome: Outcome | None = None
        self.retries: list[dict[str, Any]] = []
        self.topology: str | None = None


def _work(request: Request, machine: Machine, started: float) -> _Work:
    # Before the GPUs are looked at: a container that an earlier test left behind would be found to use them.
    removed, error = smoke_run.remove_leftovers(machine.run)
    facts = machine.gather()
    asked = request.asked(facts)
    until = machine.monotonic() + FABRIC_WAIT_S
    while "fabric" not in request.not_applicable and fabric_in_progress(asked.gpus, facts) and machine.monotonic() < until:
        machine.sleep(FABRIC_PAUSE_S)
        facts = machine.gather()
        asked = request.asked(facts)
    work = _Work(smoke_checks.host_checks(asked, facts), asked, removed)
    stamped, present = request.stamp.get("gpus"), sorted(gpu.uuid for gpu in asked.gpus if gpu.uuid)
    if stamped and sorted(stamped) != present:
        reason = f"the plan names the GPUs {', '.join(sorted(stamped))}, the host has {', '.join(present) or 'none that tells its UUID'}"
        work.checks.append(make_check("gpu_count", FAIL, reason, remedy="plan again: cards were exchanged since", source="nvidia-smi"))
    if any(check["status"] in (FAIL, COULD_NOT_RUN) and check["name"] not in request.not_applicable for check in work.checks):
        work.checks.append(smoke_window.said_before(machine.kernel_log()))
        return work
    clock = _Clock(machine, started + request.limit_s)
    if error or clock.left() < LEAST_S:
        reason = error or f"of {request.limit_s} s only {max(0, clock.left())} s were left for the container"
        remedy = "start the container engine" if error else "give the test more time (timeout)"
        work.checks.append(make_check("container_run", COULD_NOT_RUN, reason, remedy=remedy, source="the container engine"))
        return work
    private = Path(tempfile.mkdtemp(prefix="smoke-", dir=str(machine.state_dir)))
    try:
        payload = private / "payload"
        write_payload(payload)
        # Now, not afterwards: of a test that takes this module or the whole host down, nothing else would tell.
        stamp.withdraw(machine.state_dir)
        _in_container(_Test(request, machine, clock, str(payload)), work, facts)
    finally:
        shutil.rmtree(str(private), ignore_errors=True)
    return work


class _Clock:
    """What is left of a test's time, without what its end may take."""

    def __init__(self, machine: Machine, until: float) -> None:
        self._machine = machine
        self._until = until

    def left(self) -> int:
        return int(self._until - RESERVE_S - self._machine.monotonic())

    def to_the_end(self) -> float:
        return self._until - END_S - self._machine.monotonic()


class _Test(NamedTuple):
    """What stays the same for every container of a test."""

    request: Request
    machine: Machine
    clock: _Clock
    payload: str


def _in_container(test: _Test, work: _Work, facts: Mapping[str, Any]) -> None:
    """Run the work, once more where that can answer anything, and judge it; then look at what only a whole run can show."""
    asked, machine, clock = test.request.asked(facts), test.machine, test.clock
    look = machine.watch(asked.parts)
    container = _container(test, asked)
    outcome = machine.run_container(container, look)
    retry = smoke_retry.retry_of(outcome, container.env)
    extra: list[Check] = []
    if retry and clock.left() >= LEAST_S:
        work.retries.append({"reason": retry.reason, "seconds": round(outcome.child.seconds, 1), "env": retry.env})
        container = _container(test, asked)
        container = container._replace(env={**container.env, **retry.env})
        outcome = machine.run_container(container, look)
        extra = [smoke_retry.nvls_check(retry)] if retry.env else []
    work.outcome = outcome
    without_nvls = _without_nvls(test, asked, outcome, look)
    results = [*smoke_checks.container_checks(asked, facts, outcome, without_nvls), *extra]
    again = list(smoke_checks.SEEN_TWICE)
    # Where its time is used up it cannot be accepted any more, and the driver may never answer: only the kernel's log may still tell why.
    window = look.finish(ask=not outcome.child.timed_out)
    if outcome.child.timed_out:
        results += [*smoke_window.xids(asked.gpus, window), smoke_window.sxids(window)]
    else:
        # Errors show under load: what counts is what the driver has to say after the work.
        again.append("gpu_health")
        results += [*gpu_health(asked.gpus, machine.gather()), *smoke_window.judge(window, asked.gpus, asked.backend == "cuda")]
        results.append(smoke_hold.survives(machine.run, container, facts, asked.excused, clock.to_the_end()))
    whole = not outcome.child.timed_out and clock.left() > LEAST_S
    if whole:
        work.topology = machine.topology()
    results += machine.advise(test.request, facts, window, whole)
    work.checks = [*(check for check in work.checks if check["name"] not in again), *results]


def _without_nvls(test: _Test, asked: Asked, outcome: Outcome, look: Look) -> Figure | None:
    """The all-reduce measured again without reduction in the switches, where it was low: so that the reason can be named."""
    container, left = outcome.container, test.clock.left()
    if ALL_REDUCE not in container.figures or smoke_retry.nvls_is_off(container.env) or outcome.child.timed_out or left < LEAST_S:
        return None
    if not below_its_floor(smoke_checks.all_reduce(outcome), asked.floors, asked.model, len(asked.parts)):
        return None
    limit = min(AGAIN_S, left)
    again = container._replace(run_id=test.machine.run_id(), env={**container.env, **smoke_retry.NVLS_OFF}, limit_s=limit, budget=_budget(limit))
    again = again._replace(dtypes=[], trainings=[], figures=[ALL_REDUCE], tier="quick", burn_seconds=0)
    return smoke_checks.all_reduce(test.machine.run_container(again, look))


def _budget(limit_s: int) -> int:
    return max(LEAST_BUDGET_S, int(limit_s * WORK_PART))


def _container(test: _Test, asked: Asked) -> Container:
    """The container of the whole work, with the time that is left now."""
    request, parts, limit_s = test.request, asked.parts, test.clock.left()
    work = smoke_tiers.work(parts, asked.tier, asked.backend, asked.excused)
    burn_seconds = request.burn_minutes * 60 if request.tier == "burn" else 0
    return Container(
        image=request.image,
        run_id=test.machine.run_id(),
        payload=test.payload,
        backend=request.backend,
        ranks=len(parts),
        dtypes=work.dtypes,
        collective=bool(work.collectives),
        ulimits=request.ulimits,
        shm_size=request.shm_size,
        env=request.env,
        limit_s=limit_s,
        threads=1 if request.backend == "cpu" else max(1, (os.cpu_count() or 1) // len(parts)),
        tier=request.tier,
        budget=_budget(limit_s - burn_seconds) + burn_seconds,
        figures=work.figures,
        trainings=work.trainings,
        visible=[part.instance or part.uuid or "" for part in parts] if any(part.instance for part in parts) else [],
        burn_seconds=burn_seconds,
    )


def _deeper(before: Any, after: Mapping[str, Any]) -> bool:
    """Whether the earlier stamp stands for the same as the new one would, by a deeper test: success of a shallower one takes nothing away from it."""
    if not isinstance(before, dict) or any(before.get(key) != after[key] for key in after if key not in ("tier", "time")):
        return False
    return before.get("tier") != after["tier"] and smoke_tiers.covers(before.get("tier"), after["tier"])


def _report(request: Request, machine: Machine, started: float, before: Any, work: _Work) -> dict[str, Any]:
    """Verdict, stamp, and everything else that is returned. ``before``: the stamp that was there when the test was asked for."""
    asked = work.asked or request.asked({"nvidia_smi": {"gpus": []}})
    required = smoke_tiers.requirements(asked.gpus, asked.parts, request.tier, request.backend)
    judged = verdict.evaluate(work.checks, required, request.backend, request.degraded, request.not_applicable)
    after = before
    uuids = [gpu.uuid for gpu in asked.gpus if gpu.uuid]
    # A result that reaches no record is none: with a stamp the next run would not test, and nobody could ever read what was measured.
    if judged["verdict"] in (verdict.ACCEPTED, verdict.SIMULATED) and machine.heard():
        after = stamp.make(request.stamp, judged["verdict"], uuids, machine.utc())
        if not request.planned and _deeper(before, after):
            after = before
        stamp.write(after, machine.state_dir)
    elif judged["verdict"] == verdict.REJECTED or work.outcome is not None:
        # The host does not do now what the stamp says it did: left there, the next run would take it for tested.
        stamp.withdraw(machine.state_dir)
        after = None
    torch = None
    if work.outcome:
        torch = next((log.found["torch"] for log in work.outcome.transcript.ranks.values() if "torch" in log.found), None)
    return {
        "verdict": judged["verdict"],
        "reason": judged["reason"],
        "remedy": judged["remedy"],
        "checks": judged["checks"],
        "seconds": round(machine.monotonic() - started, 1),
        "image": request.image,
        "backend": request.backend,
        "tier": request.tier,
        "torch": torch,
        "topology": work.topology,
        "not_exercised": smoke_tiers.not_exercised(asked.parts, request.tier, request.backend) if work.outcome else [],
        "retries": work.retries,
        "container_started": work.outcome is not None,
        "containers_removed": work.removed,
        "stamp": after,
        "changed": after != before,
        "diff": {"before": before or {}, "after": after or {}},
    }
