# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a run of all ranks may be repeated, at most once: only for what a second try can answer, and never after a wrong result. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_container import FAULT_SIGNALS
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Outcome, crashed_rank, nccl_warnings
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_tiers import ALL_REDUCE_EXACT
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import DEGRADED, FAIL, Check, make_check

NVLS = "nvls"
NVLS_VARIABLE = "NCCL_NVLS_ENABLE"
NVLS_OFF = {NVLS_VARIABLE: "0"}
# Before any work on a GPU: a rank that ended in one of these shows nothing about a GPU.
BEFORE_WORK = ("", "import_torch", "meet")
_RENDEZVOUS = re.compile(r"address already in use|EADDRINUSE|RendezvousConnectionError|DistStoreError|DistNetworkError|the ranks could not meet", re.IGNORECASE)
_NVLS = re.compile(r"nvls|multicast", re.IGNORECASE)


class Retry(NamedTuple):
    """Why a run is repeated, and what is set for the second one."""

    reason: str
    env: dict[str, str]


def nvls_is_off(env: dict[str, str]) -> bool:
    """Whether the operator has turned reduction in the switches off already."""
    return env.get(NVLS_VARIABLE) == "0"


def retry_of(outcome: Outcome, env: dict[str, str]) -> Retry | None:
    """The retry that a run deserves, or None: one that ended well, took its time, or found something wrong is not repeated."""
    child = outcome.child
    if child.error or child.timed_out:
        return None
    failed = {name for log in outcome.transcript.ranks.values() for name, results in log.results.items() if any(result.status == FAIL for result in results)}
    trouble = _nvls_words(outcome)
    if trouble and not nvls_is_off(env) and failed <= {ALL_REDUCE_EXACT} and not _wrong(outcome):
        return Retry(f"NCCL could not start with reduction in the switches (NVLS): {trouble}", dict(NVLS_OFF))
    crash = crashed_rank(child.stderr)
    early = crash[0] if crash is not None and _stage(outcome, crash[0]) in BEFORE_WORK else None
    if failed or (crash is not None and early is None and -crash[1] in FAULT_SIGNALS):
        return None
    said = [*_reasons(outcome), *([*child.stdout, *child.stderr] if child.exit_code != 0 else [])]
    met = next((line for line in said if _RENDEZVOUS.search(line)), None)
    if met:
        return Retry(f"the ranks could not meet: {met[:300]}", {})
    return None if early is None else Retry(f"rank {early} ended at its start, before any work on a GPU", {})


def _stage(outcome: Outcome, rank: int) -> str:
    log = outcome.transcript.ranks.get(rank)
    return log.stage[0] if log and log.stage else ""


def _reasons(outcome: Outcome) -> list[str]:
    return [result.reason for log in outcome.transcript.ranks.values() for results in log.results.values() for result in results if result.reason]


def _wrong(outcome: Outcome) -> bool:
    """Whether an all-reduce gave numbers that are wrong, which is no trouble of starting it."""
    results = [result for log in outcome.transcript.ranks.values() for result in log.results.get(ALL_REDUCE_EXACT, [])]
    return any(result.status == FAIL and isinstance(result.value, dict) for result in results)


def _nvls_words(outcome: Outcome) -> str | None:
    """The line that names NVLS, where the all-reduce did not pass on every rank."""
    results = [result for log in outcome.transcript.ranks.values() for result in log.results.get(ALL_REDUCE_EXACT, [])]
    if results and all(result.status == "pass" for result in results):
        return None
    lines = [*_reasons(outcome), *_warnings(outcome), *outcome.child.stdout, *outcome.child.stderr]
    return next((line[:300] for line in lines if _NVLS.search(line)), None)


def _warnings(outcome: Outcome) -> list[str]:
    """NCCL's own words, which the payload has it write into a file."""
    return [line for log in outcome.transcript.ranks.values() for line in nccl_warnings(log)]


def nvls_check(retry: Retry) -> Check:
    """Of a host that only works without reduction in the switches: sound, and slower than its kind."""
    remedy = "look whether the container has the fabric's and the capabilities' devices (/dev/nvidia-caps), and read the fabric manager's log"
    return make_check(NVLS, DEGRADED, f"{retry.reason}; tested without it", remedy=remedy, value=retry.env, source="NCCL in the container")
