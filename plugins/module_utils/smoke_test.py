# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smoke test from beginning to end: look at the host, run the container if nothing speaks against it, judge, keep the stamp true."""

from __future__ import annotations

import fcntl
import importlib.util
import os
import pkgutil
import select
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_checks, smoke_payload, smoke_run, stamp, verdict
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_checks import ExpectedGpu, Outcome

# The payload's entry point imports all of its other files, so that Ansible's archive has them; nothing runs here.
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import __main__ as _payload  # noqa: F401
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container, Run
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, FAIL, Check, make_check

# How long registration with the fabric may still take after the services are up, and how often it is looked at.
FABRIC_WAIT_S = 60
FABRIC_PAUSE_S = 3
# Of the whole time, what is kept back for ending a container that does not end, and the least that makes starting one worth while.
RESERVE_S = 40
LEAST_S = 20
LOCK = "smoke-test.lock"


class RequestError(ValueError):
    """The module was asked for something that cannot be; the sentence says what."""


class Request(NamedTuple):
    """What is to be tested. ``gpus``: as the plan lists them; ``stamp``: what to write on success; ``timeout``: seconds for everything."""

    image: str
    backend: str
    tier: str
    gpus: list[dict[str, Any]]
    ulimits: list[str]
    shm_size: str
    env: dict[str, str]
    not_applicable: dict[str, str]
    degraded: str
    stamp: dict[str, Any]
    timeout: int

    def validate(self) -> None:
        """RequestError where the request contradicts itself: a stamp must never name what was not tested."""
        digest = self.image.partition("@")[2]
        if not digest.startswith("sha256:"):
            raise RequestError(f"image {self.image!r} is not given by digest (name@sha256:...), so what was tested would not be known")
        for key, mine in (("image_digest", digest), ("tier", self.tier)):
            if self.stamp.get(key) != mine:
                raise RequestError(f"the stamp to be written says {key} {self.stamp.get(key)!r}, but {mine!r} is tested")
        if not self.gpus:
            raise RequestError("no GPUs are given, and a test of none shows nothing")
        try:
            bus_ids = [gpu.pci_bus_id for gpu in smoke_checks.expected_gpus(self.gpus, {"nvidia_smi": {"gpus": []}})]
            for ulimit in self.ulimits:
                smoke_checks.parse_ulimit(ulimit)
            smoke_checks.parse_size(self.shm_size)
        except ValueError as error:
            raise RequestError(str(error)) from error
        twice = sorted({bus_id for bus_id in bus_ids if bus_ids.count(bus_id) > 1})
        if twice:
            raise RequestError(f"GPU {twice[0]} is given twice")


class Machine(NamedTuple):
    """What the test needs of the host it runs on; tests give their own."""

    gather: Callable[[], Mapping[str, Any]]
    run: Run
    run_container: Callable[[Container], Outcome]
    sleep: Callable[[float], None]
    monotonic: Callable[[], float]
    utc: Callable[[], str]
    run_id: Callable[[], str]
    heard: Callable[[], bool]
    state_dir: Path


def real_machine(gather: Callable[[], Mapping[str, Any]]) -> Machine:
    """This host."""
    return Machine(
        gather=gather,
        run=smoke_run.run_bounded,
        run_container=run_container,
        sleep=time.sleep,
        monotonic=time.monotonic,
        utc=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        run_id=lambda: os.urandom(6).hex(),
        heard=lambda: is_heard(1),  # standard output, where the result goes
        state_dir=stamp.STATE_DIR,
    )


def is_heard(descriptor: int) -> bool:
    """Whether what is written there can still reach somebody: False for the pipe of a connection that was closed because its run was killed."""
    poll = select.poll()
    poll.register(descriptor, 0)  # errors and hang-ups are reported without being asked for
    return not poll.poll(0)


def run_container(container: Container) -> Outcome:
    """Run the container to its end or its limit."""
    transcript = smoke_run.Transcript(container.run_id, container.ranks)
    child = smoke_run.run_child(
        smoke_run.build_command(container),
        container.limit_s,
        each_line=transcript.take,
        kill=lambda: smoke_run.kill_container(smoke_run.run_bounded, container.name),
    )
    return Outcome(container, child, transcript)


def payload_source() -> dict[str, str]:
    """The payload's files, name -> text, from wherever this code was loaded: a checkout, or the archive that Ansible sends."""
    files = {"__init__.py": ""}
    for name in sorted(module.name for module in pkgutil.iter_modules(smoke_payload.__path__)):
        spec = importlib.util.find_spec(f"{smoke_payload.__name__}.{name}")
        source = spec.loader.get_source(spec.name) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
        if not source:
            raise RequestError(f"the text of the smoke payload's {name} cannot be read from where this module was loaded")
        files[f"{name}.py"] = str(source)
    if "__main__.py" not in files:
        raise RequestError("the smoke payload's entry point is not where this module was loaded from")
    return files


def write_payload(folder: Path) -> None:
    """Write the package ``smoke_payload`` into a new folder, readable for the container's root, which has no capability to read what belongs to others."""
    package = folder / smoke_run.PAYLOAD_MODULE
    for directory in (folder, package):
        directory.mkdir()
        directory.chmod(0o755)
    for name, text in payload_source().items():
        (package / name).write_text(text, encoding="utf-8")
        (package / name).chmod(0o444)


def plan_sentence(request: Request) -> str:
    """What a run would do, for check mode."""
    return f"would test {len(request.gpus)} GPUs in {request.image} (backend {request.backend}, tier {request.tier}, at most {request.timeout} s)"


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
            work = _Work([make_check("gpu_idle", COULD_NOT_RUN, reason, remedy="wait until it is over")], [])
            return _report(request, machine, started, stamp.read(machine.state_dir), work)
        before = stamp.read(machine.state_dir)
        work = _work(request, machine, started)
        return _report(request, machine, started, before, work)


class _Work:
    """What was found: checks, the GPUs they are about, and the container's outcome if one was started."""

    def __init__(self, checks: list[Check], gpus: list[ExpectedGpu], outcome: Outcome | None = None, removed: list[str] | None = None) -> None:
        self.checks = checks
        self.gpus = gpus
        self.outcome = outcome
        self.removed = removed or []


def _work(request: Request, machine: Machine, started: float) -> _Work:
    # Before the GPUs are looked at: a container that an earlier test left behind would be found to use them.
    removed, error = smoke_run.remove_leftovers(machine.run)
    facts = machine.gather()
    gpus = smoke_checks.expected_gpus(request.gpus, facts)
    until = machine.monotonic() + FABRIC_WAIT_S
    while "fabric" not in request.not_applicable and smoke_checks.fabric_in_progress(gpus, facts) and machine.monotonic() < until:
        machine.sleep(FABRIC_PAUSE_S)
        facts = machine.gather()
    checks = smoke_checks.host_checks(gpus, facts, request.backend, request.stamp.get("driver"), request.not_applicable)
    stamped, present = request.stamp.get("gpus"), sorted(gpu.uuid for gpu in gpus if gpu.uuid)
    if stamped and sorted(stamped) != present:
        reason = f"the plan names the GPUs {', '.join(sorted(stamped))}, the host has {', '.join(present) or 'none that tells its UUID'}"
        checks.append(make_check("gpu_count", FAIL, reason, remedy="plan again: cards were exchanged since", source="nvidia-smi"))
    left = int(request.timeout - RESERVE_S - (machine.monotonic() - started))
    if any(check["status"] in (FAIL, COULD_NOT_RUN) and check["name"] not in request.not_applicable for check in checks):
        return _Work(checks, gpus, removed=removed)
    if error or left < LEAST_S:
        reason = error or f"of {request.timeout} s only {max(0, left)} s were left for the container"
        remedy = "start the container engine" if error else "give the test more time (timeout)"
        return _Work([*checks, make_check("container_run", COULD_NOT_RUN, reason, remedy=remedy, source="the container engine")], gpus, removed=removed)
    private = Path(tempfile.mkdtemp(prefix="smoke-", dir=str(machine.state_dir)))
    try:
        payload = private / "payload"
        write_payload(payload)
        # Now, not afterwards: of a test that takes this module or the whole host down, nothing else would tell.
        stamp.withdraw(machine.state_dir)
        outcome = machine.run_container(_container(request, gpus, str(payload), machine.run_id(), left))
    finally:
        shutil.rmtree(str(private), ignore_errors=True)
    # Looked at again with what the container saw: these two count in both places.
    again = ["gpu_count", "device_nodes"]
    results = smoke_checks.container_checks(gpus, facts, outcome)
    if not outcome.child.timed_out:  # then its time is used up, and it cannot be accepted any more
        # Memory errors show under load: what counts is what the driver has to say after the work.
        again.append("gpu_health")
        results += smoke_checks.gpu_health(gpus, machine.gather())
    return _Work([*(check for check in checks if check["name"] not in again), *results], gpus, outcome, removed)


def _container(request: Request, gpus: list[ExpectedGpu], payload: str, run_id: str, limit_s: int) -> Container:
    ranks = len(gpus)
    return Container(
        image=request.image,
        run_id=run_id,
        payload=payload,
        backend=request.backend,
        ranks=ranks,
        # What the plan excused is not tried: on such hardware it could only fail or hang.
        dtypes=[dtype for dtype in smoke_checks.dtypes_to_run(gpus) if f"matmul_exact.{dtype}" not in request.not_applicable],
        collective=smoke_checks.ALL_REDUCE not in request.not_applicable,
        ulimits=request.ulimits,
        shm_size=request.shm_size,
        env=request.env,
        limit_s=limit_s,
        threads=1 if request.backend == "cpu" else max(1, (os.cpu_count() or 1) // ranks),
    )


def _report(request: Request, machine: Machine, started: float, before: Any, work: _Work) -> dict[str, Any]:
    """Verdict, stamp, and everything else that is returned. ``before``: the stamp that was there when the test was asked for."""
    gpus = work.gpus or smoke_checks.expected_gpus(request.gpus, {"nvidia_smi": {"gpus": []}})
    judged = verdict.evaluate(work.checks, smoke_checks.requirements(gpus, request.backend), request.backend, request.degraded, request.not_applicable)
    after = before
    uuids = [gpu.uuid for gpu in gpus if gpu.uuid]
    # A result that reaches no record is none: with a stamp the next run would not test, and nobody could ever read what was measured.
    if judged["verdict"] in (verdict.ACCEPTED, verdict.SIMULATED) and machine.heard():
        after = stamp.make(request.stamp, judged["verdict"], uuids, machine.utc())
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
        "container_started": work.outcome is not None,
        "containers_removed": work.removed,
        "stamp": after,
        "changed": after != before,
        "diff": {"before": before or {}, "after": after or {}},
    }
