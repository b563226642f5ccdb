# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The part of a test of several hosts that one of them has: look at it, meet the others, run the container, and report. Nothing is judged across hosts here."""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_checks, smoke_run
from ansible_collections.rackready.gpu.plugins.module_utils.cluster_meeting import ANSWER_S, COME_S, Met, Party, Peer
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_checks import Asked
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_container import container_limits, container_run, parse_size, parse_ulimit, without_result
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import ALL_REDUCE
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, expected_gpus
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import Bought
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_identity import gpu_identity, owners_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import Machine, write_payload
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.figures import HOST_PAIRS
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import RequestError
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Cluster, Container, Outcome, Result, nccl_warnings
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_test import LOCK
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_tiers import ALL_REDUCE_EXACT
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, DEGRADED, FAIL, PASS, Check, make_check

MEETING, TRANSPORT = "hosts_meeting", "hosts_transport"
# Seconds that the container may take; of it the part for the payload's work, and what ending a container that does not end takes at worst.
RUN_S = 300
WORK_PART = 0.7
RESERVE_S = 40
# Processes of a host that only computes on its CPUs: loading torch alone takes each of them minutes of those.
CPU_RANKS = 2
WAITED_REMEDY = "look which other host's container ended or hung first (container_run in each record), mend that one and test again"
MEETING_REMEDY = (
    "open all TCP ports between the addresses of the hosts, as NCCL and gloo take any of them; "
    "mend a host that cannot take part, or leave it out (-l); then test again"
)


class Request(NamedTuple):
    """What this host is to do. ``peers``: all hosts; ``ranks``: of each; ``node``: which of them this is; ``devices``: paths of adapters for RDMA;
    ``infiniband``: their active ports; the others as the plan of the single-host test has them.
    """

    image: str
    backend: str
    gpus: list[dict[str, Any]]
    peers: Sequence[Peer]
    ranks: Sequence[int]
    node: int
    interface: str
    port: int
    token: str
    ulimits: list[str]
    shm_size: str
    env: dict[str, str]
    not_applicable: dict[str, str]
    driver: str | None = None
    bought: Bought | None = None
    infiniband: Sequence[str] = ()
    devices: Sequence[str] = ()

    @property
    def limit_s(self) -> int:
        """Seconds that all of it may take, whatever hardware and network do."""
        return int(COME_S + 2 * ANSWER_S) + RUN_S + RESERVE_S

    def validate(self) -> None:
        """RequestError where the request contradicts itself."""
        if not self.image.partition("@")[2].startswith("sha256:"):
            raise RequestError(f"image {self.image!r} is not given by digest (name@sha256:...), so what was tested would not be known")
        if len(self.peers) < 2 or len(self.ranks) != len(self.peers) or not 0 <= self.node < len(self.peers):
            raise RequestError(f"node {self.node} of {len(self.peers)} hosts with {len(self.ranks)} numbers of ranks cannot be")
        if self.ranks[self.node] != ranks_of(self.backend, len(self.gpus)):
            raise RequestError(f"{self.ranks[self.node]} ranks are asked for on a host with {len(self.gpus)} GPUs")
        try:
            for ulimit in self.ulimits:
                parse_ulimit(ulimit)
            parse_size(self.shm_size)
        except ValueError as error:
            raise RequestError(str(error)) from error

    def asked(self, facts: Mapping[str, Any]) -> Asked:
        """What the checks of the host before the work need to know."""
        gpus = expected_gpus(self.gpus, facts)
        return Asked(gpus, gpus, "quick", self.backend, self.bought, self.driver, "off", self.not_applicable, {})


def ranks_of(backend: str, gpus: int) -> int:
    """How many processes a host gets: one for each GPU."""
    return gpus if backend == "cuda" else min(gpus, CPU_RANKS)


def plan_sentence(request: Request) -> str:
    """What a run would do, for check mode."""
    names = ", ".join(peer.name for peer in request.peers)
    return f"would test {sum(request.ranks)} processes on {names} together in {request.image} (backend {request.backend}, at most {request.limit_s} s)"


def run_test(request: Request, machine: Machine, meet: Callable[[Party], Met]) -> dict[str, Any]:
    """This host's report. Raises RequestError.

    The others are met also by a host that cannot take part, so that they hear why and start nothing.
    """
    request.validate()
    started = machine.monotonic()
    machine.state_dir.mkdir(mode=0o755, parents=True, exist_ok=True)
    # The lock and the label of the single-host test: neither runs beside the other, and each removes what the other left behind.
    with (machine.state_dir / LOCK).open("w", encoding="utf-8") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            busy = make_check("gpu_idle", COULD_NOT_RUN, "another smoke test of this host is running", remedy="wait until it is over")
            report = _report(request, [busy, _met(request, meet, [busy])], [])
        else:
            report = _work(request, machine, meet)
    return {**report, "seconds": round(machine.monotonic() - started, 1)}


def _work(request: Request, machine: Machine, meet: Callable[[Party], Met]) -> dict[str, Any]:
    removed, error = smoke_run.remove_leftovers(machine.run)
    facts = machine.gather()
    asked = request.asked(facts)
    checks = [check for check in smoke_checks.host_checks(asked, facts) if check["status"] in (FAIL, COULD_NOT_RUN)]
    checks = [check for check in checks if check["name"] not in request.not_applicable]
    if error:
        checks.append(make_check("container_run", COULD_NOT_RUN, error, remedy="start the container engine", source="the container engine"))
    met = _met(request, meet, checks)
    checks.append(met)
    if met["status"] != PASS:
        return _report(request, checks, removed)
    private = Path(tempfile.mkdtemp(prefix="smoke-", dir=str(machine.state_dir)))
    try:
        payload = private / "payload"
        write_payload(payload)
        outcome = machine.run_container(_container(request, asked, machine.run_id(), str(payload)), _Unwatched())
    finally:
        shutil.rmtree(str(private), ignore_errors=True)
    return _report(request, [*checks, *_container_checks(request, asked, outcome)], removed, outcome)


class _Unwatched:
    """In place of a look at the GPUs' counters, which the single-host test judges."""

    def tick(self, stages: Mapping[int, str | None]) -> None:
        del stages

    def finish(self, ask: bool) -> Any:
        del ask


def _met(request: Request, meet: Callable[[Party], Met], checks: Sequence[Check]) -> Check:
    problem = "; ".join("{}: {}".format(check["name"], check["reason"]) for check in checks) or None
    met = meet(Party(request.peers, request.node, request.port, request.token, problem))
    value = {"interface": request.interface, "address": request.peers[request.node].address, "port": request.port, "own": met.own}
    status, remedy = (COULD_NOT_RUN, MEETING_REMEDY) if met.problem or problem else (PASS, None)
    return make_check(MEETING, status, met.problem or problem, remedy=remedy, value=value, source="TCP between the hosts")


def _container(request: Request, asked: Asked, run_id: str, payload: str) -> Container:
    ranks = request.ranks[request.node]
    me = request.peers[request.node]
    cluster = Cluster(request.ranks, request.node, me.address, request.interface, request.peers[0].address, request.port, request.devices)
    return Container(
        image=request.image,
        run_id=run_id,
        payload=payload,
        backend=request.backend,
        ranks=ranks,
        dtypes=[],
        collective=True,
        ulimits=request.ulimits,
        shm_size=request.shm_size,
        env=request.env,
        limit_s=RUN_S,
        threads=1 if request.backend == "cpu" else max(1, (os.cpu_count() or 1) // ranks),
        budget=int(RUN_S * WORK_PART),
        figures=[HOST_PAIRS, ALL_REDUCE],
        cluster=cluster,
    )


# --- from the container's run to a report ----------------------------------------------------------------------------------------------------


def _container_checks(request: Request, asked: Asked, outcome: Outcome) -> list[Check]:
    """What this host's container says about this host: how it ran, which GPUs it had, and whether each one's sums over all hosts were right."""
    owners = owners_of(asked.parts, outcome)
    checks = [container_run(outcome, owners), container_limits(outcome)]
    for rank, log in outcome.transcript.ranks.items():
        part = owners.get(rank)
        if part is None:
            continue
        checks.append(gpu_identity(rank, part, log, outcome))
        for result in log.results.get(ALL_REDUCE_EXACT) or [without_result(rank, ALL_REDUCE_EXACT, outcome)]:
            check = smoke_checks.from_payload(ALL_REDUCE_EXACT, result, part, outcome.container, nccl_warnings(log))
            if check["status"] == FAIL:
                check["reason"] = "rank {} on {}: {}".format(rank, request.peers[request.node].name, check["reason"])
                if not _shows_its_fault(result):
                    check["status"], check["remedy"] = COULD_NOT_RUN, WAITED_REMEDY
            checks.append(check)
    return [*checks, transport(request, outcome)]


def _shows_its_fault(result: Result) -> bool:
    """Whether a failed exchange is one of numbers that were wrong, of this GPU or of this process. Who only waited in vain, or whose partner hung up, is not at
    fault: that may be any of the other hosts.
    """
    if isinstance(result.value, dict) and result.value.get("wrong"):
        return True
    return any(words in (result.reason or "") for words in ("CUDA error", "crashed in it"))


def transport(request: Request, outcome: Outcome) -> Check:
    """How NCCL went to the other hosts, in its own words. Sockets where an adapter for RDMA is active are slower by far, and nothing else would say so."""
    source = "NCCL's log in the container"
    if request.backend == "cpu":
        return make_check(TRANSPORT, PASS, f"gloo over {request.interface}", value={"networks": {"gloo": 1}}, source="the backend")
    networks: dict[str, int] = {}
    direct = 0
    for log in outcome.transcript.ranks.values():
        said = log.found.get("nccl")
        for name, count in ((said.get("networks") or {}) if isinstance(said, dict) else {}).items():
            networks[name] = networks.get(name, 0) + count
        direct += int((said.get("direct") or 0) if isinstance(said, dict) else 0)
    value = {"networks": networks, "gpu_direct": direct, "infiniband": list(request.infiniband), "devices": list(request.devices)}
    if not networks:
        reason = "NCCL did not tell how it reached other hosts"
        remedy = "leave NCCL_DEBUG and NCCL_DEBUG_FILE out of smoke_test_env" if "NCCL_DEBUG" in request.env else "see container_run"
        return make_check(TRANSPORT, DEGRADED, reason, remedy=remedy, value=value, source=source)
    if "Socket" in networks and request.infiniband:
        reason = f"NCCL used sockets over {request.interface}, although {', '.join(request.infiniband)} are active"
        remedy = "look for NCCL's warnings with smoke_test_env NCCL_DEBUG=INFO, for /dev/infiniband on the host, and at NCCL_IB_HCA and NCCL_IB_DISABLE"
        return make_check(TRANSPORT, DEGRADED, reason, remedy=remedy, value=value, source=source)
    return make_check(TRANSPORT, PASS, value=value, source=source)


def _told(outcome: Outcome, name: str) -> tuple[Any, str | None]:
    """What this host's ranks measured (the first one's that told it), or why there is nothing."""
    for log in outcome.transcript.ranks.values():
        if log.measured.get(name):
            return log.measured[name][0], None
    for rank, log in outcome.transcript.ranks.items():
        if log.results.get(name):
            return None, log.results[name][0].reason or f"rank {rank} gave no reason"
    return None, without_result(outcome.container.first, name, outcome).reason


def _report(request: Request, checks: Sequence[Check], removed: Sequence[str], outcome: Outcome | None = None) -> dict[str, Any]:
    """What the controller judges. ``pairs`` and ``all_reduce`` are as the payload gave them, or None, with the reason beside them."""
    pairs: tuple[Any, str | None] = (None, "nothing was started")
    reduced, torch = pairs, None
    if outcome:
        pairs = _told(outcome, HOST_PAIRS)
        figure = smoke_checks.all_reduce(outcome)
        reduced = (None if figure.missing else figure.value, figure.missing)
        torch = next((log.found["torch"] for log in outcome.transcript.ranks.values() if "torch" in log.found), None)
    return {
        "token": request.token,
        "node": request.node,
        "checks": list(checks),
        "pairs": pairs[0],
        "pairs_reason": pairs[1],
        "all_reduce": reduced[0],
        "all_reduce_reason": reduced[1],
        "torch": torch,
        "container_started": outcome is not None,
        "containers_removed": list(removed),
    }


def gpus_of(gpus: Sequence[Mapping[str, Any]], backend: str) -> list[ExpectedGpu]:
    """The GPUs of a host that get a process, in the order of ranks."""
    return expected_gpus(gpus, {"nvidia_smi": {"gpus": []}})[: ranks_of(backend, len(gpus))]
