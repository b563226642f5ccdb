# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The container that the work ran in: how it was started and ended, and whether it had what it needs. Pure: an outcome in, checks out."""

from __future__ import annotations

import re
import signal
from types import MappingProxyType
from typing import Any, Mapping, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.report import MARK
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container, Outcome, Result, crashed_rank
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, FAIL, PASS, Check, make_check

LOST_RESULT = "its result is not in the output"
SILENT_REMEDY = "see how container_run ended, and test again; what its ranks say must come through whole, which the image's Python and torch decide"
# A stage that ran this long (s) without a result when time was over is a hang of that stage; below, the time was simply too short.
STALL_S = 60
FAULT_SIGNALS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
# What the entry point of NVIDIA's own image advises for PyTorch; on GPUs less than that is no test of the machine.
FLOORS = {"memlock": -1, "stack": 67108864}
FLOORS_SOURCE = "entry point of NVIDIA's PyTorch image"
# Docker's default /dev/shm, with which NCCL is known to fail (nccl#290, nccl#342).
SHM_TOO_SMALL = 64 * 2**20
# How torchrun begins to report that a rank has ended badly.
_TORCHRUN_REPORT = re.compile(r"torch/distributed/elastic/\S+\] .*(closing signal|failed \(exitcode)|elastic\S*\.ChildFailedError")
UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def container_run(outcome: Outcome, owners: Mapping[int, ExpectedGpu]) -> Check:
    """The container itself: started, every rank said everything, ended by itself with status 0 within its limit, and is gone."""
    child, container, logs = outcome.child, outcome.container, outcome.transcript.ranks
    ended = [rank for rank, log in logs.items() if log.ended]
    value = {
        "exit_code": child.exit_code,
        "timed_out": child.timed_out,
        "ranks": len(logs),
        "ranks_ended": len(ended),
        "stages": {str(rank): log.stage[0] for rank, log in logs.items() if log.stage},
        "output": [line[:500] for line in [*child.stdout, *child.stderr][-20:]] if child.exit_code != 0 or len(ended) < len(logs) else [],
    }

    def check(reason: str | None, remedy: str | None = None) -> Check:
        status = COULD_NOT_RUN if reason else PASS
        duration = round(child.seconds, 1)
        return make_check(
            "container_run", status, reason, remedy=remedy, value=value, floor=container.limit_s, unit="s", source="the container engine", duration_s=duration
        )

    if child.error:
        return check(child.error, "install and start the container engine with playbooks/provision.yml")
    if child.timed_out:
        stages = [(rank, *log.stage) for rank, log in logs.items() if log.stage]
        stuck = "; ".join(
            f"{_rank_words(rank, owners)} in {name} since {max(0.0, child.seconds - since):.0f} s" + (f", {child.stuck[rank]}" if rank in child.stuck else "")
            for rank, name, since in stages
        )
        left = f"; {child.left_behind}" if child.left_behind else ""
        return check(
            f"not done within {container.limit_s} s: {stuck or 'no rank reported anything'}{left}",
            "see which rank and stage hung; on a sound host allow more time (timeout), on a suspect one look at `dmesg` for Xid messages",
        )
    if child.exit_code in (125, 126, 127) and not any(log.started for log in logs.values()):
        return check(f"the engine could not start it: {_how_it_ended(outcome)}", _engine_remedy([*child.stdout, *child.stderr]))
    if child.exit_code != 0:
        return check(_how_it_ended(outcome, owners), _crash_remedy(crashed_rank(child.stderr)))
    if len(ended) < len(logs):
        missing = ", ".join(str(rank) for rank in logs if rank not in ended)
        return check(f"it ended with status 0, but of rank {missing} the end is missing", "read the output under `value`; the image's torchrun may be broken")
    return check(None)


def _crash_remedy(crash: tuple[int, int] | None) -> str:
    if crash and crash[1] == -signal.SIGKILL:
        return "look in `dmesg` whether the kernel killed it for want of memory (oom-kill); end what else uses the memory, then test again"
    return "read the output under `value`"


def _engine_remedy(lines: Sequence[str]) -> str:
    text = "\n".join(lines).lower()
    if "cdi" in text:
        return "regenerate the device specification: systemctl restart nvidia-cdi-refresh.service; Docker needs features.cdi in daemon.json"
    if "no such image" in text or "unable to find image" in text:
        return "pull the image with playbooks/provision.yml"
    if "torchrun" in text:
        return "the image has no torchrun: choose one with PyTorch (pytorch_image_ref)"
    if "operation not permitted" in text or "rlimit" in text:
        return "the engine may not give these limits: set smoke_test_ulimits to what it can"
    return "read the engine's words; `journalctl -u docker` has more"


def container_limits(outcome: Outcome) -> Check:
    """The limits that the container really had, against what was asked for and, on GPUs, what PyTorch's images need."""
    found = [log.found["container_limits"] for log in outcome.transcript.ranks.values() if isinstance(log.found.get("container_limits"), dict)]
    asked = {"ulimits": outcome.container.ulimits, "shm_size": outcome.container.shm_size}
    source = "getrlimit, statvfs and /proc/self/status in the container"
    if not found:
        return make_check(
            "container_limits", COULD_NOT_RUN, f"no rank told its limits: {_how_it_ended(outcome)}", remedy=SILENT_REMEDY, floor=asked, source=source
        )
    problems = limit_problems(found[0], outcome.container)
    if any(other.get("ulimits") != found[0].get("ulimits") for other in found):
        problems.append("the ranks have different limits")
    remedy = _limits_remedy(problems) if problems else None
    status = COULD_NOT_RUN if problems else PASS
    return make_check("container_limits", status, "; ".join(problems) or None, remedy=remedy, value=found[0], floor=asked, source=source)


def _limits_remedy(problems: Sequence[str]) -> str:
    """The engine was told the size of /dev/shm and makes it, so another size comes from what it hands the container to."""
    if problems[0].startswith("/dev/shm"):
        return "look which runtime the engine hands containers to (`docker info --format '{{.DefaultRuntime}}'`): runc gives what is asked for"
    return "give the container what it needs (smoke_test_ulimits), and its engine the right to give it"


def limit_problems(found: Mapping[str, Any], container: Container) -> list[str]:
    """What is wrong with the limits that a rank found; -1 is unlimited."""
    ulimits = found.get("ulimits") or {}
    problems = []
    for text in container.ulimits:
        name, wanted = parse_ulimit(text)
        if ulimits.get(name) != wanted:
            problems.append(f"{name} is {ulimits.get(name)}, {wanted} was asked for")
    if container.backend == "cuda":
        for name, floor in FLOORS.items():
            soft = (ulimits.get(name) or [0])[0]
            if soft != -1 and (floor == -1 or soft < floor):
                problems.append(f"{name} is {soft} bytes, {'unlimited' if floor == -1 else floor} is what {FLOORS_SOURCE} asks for")
    shm = found.get("shm_bytes")
    wanted_shm = parse_size(container.shm_size)
    if not isinstance(shm, int) or shm < wanted_shm:
        problems.append(f"/dev/shm has {shm} bytes, {wanted_shm} were asked for")
    elif container.backend == "cuda" and shm <= SHM_TOO_SMALL:
        problems.append(f"/dev/shm has {shm} bytes, with which NCCL fails (nccl#290)")
    if found.get("read_only_root") is not True:
        problems.append("the root file system is writable")
    if found.get("no_new_privs") is not True:
        problems.append("no_new_privs is not set")
    interfaces = found.get("interfaces")
    if container.cluster is None and interfaces != ["lo"]:
        problems.append(f"the network interfaces that are up are {interfaces}, only lo was asked for")
    if container.cluster and container.cluster.interface not in (interfaces or []):
        problems.append(f"the network interfaces that are up are {interfaces}, and {container.cluster.interface} is not among them")
    return problems


def parse_ulimit(text: str) -> tuple[str, list[int]]:
    """Docker's ``name=soft[:hard]`` as (name, [soft, hard]). ValueError where it is none."""
    match = re.fullmatch(r"([a-z]+)=(-?\d+)(?::(-?\d+))?", text.strip())
    if match is None:
        raise ValueError(f"ulimit {text!r} is not of the form name=soft[:hard]")
    soft = int(match.group(2))
    return match.group(1), [soft, int(match.group(3)) if match.group(3) else soft]


def parse_size(text: str) -> int:
    """Docker's size (``1g``, ``64m``, ``65536``) in bytes. ValueError where it is none."""
    match = re.fullmatch(r"(\d+)\s*([bkmgt]?)b?", text.strip().lower())
    if match is None:
        raise ValueError(f"size {text!r} is not a number with b, k, m, g or t")
    return int(match.group(1)) * UNITS[match.group(2)]


def without_result(rank: int, name: str, outcome: Outcome) -> Result:
    """Why a rank has no result of a check: hung in it, crashed in it, or never came to it."""
    log, child = outcome.transcript.ranks[rank], outcome.child
    stage, since = log.stage or ("", 0.0)
    if child.error:
        return Result(COULD_NOT_RUN, f"the container was not started: {child.error}", None, None)
    if not log.started:
        return Result(COULD_NOT_RUN, f"rank {rank} never reported: {_how_it_ended(outcome)}", None, None)
    if stage == name:
        return _ended_inside(rank, since, outcome)
    if log.ended:
        broken = next((line for line in child.stdout if f'{{"{MARK}"' in line), None)
        return Result(COULD_NOT_RUN, f"{LOST_RESULT} of rank {rank}" + (f"; a line of the output breaks off: {broken[:300]}" if broken else ""), None, None)
    return Result(COULD_NOT_RUN, f"rank {rank} was {f'in {stage}' if stage else 'at its start'} when the run ended: {_how_it_ended(outcome)}", None, None)


def _ended_inside(rank: int, since: float, outcome: Outcome) -> Result:
    """The run ended while the rank was in the stage of this check, which is the GPU's own work: a failure of the machine if it hung or crashed there."""
    child = outcome.child
    if child.timed_out:
        ran = max(0.0, child.seconds - since)
        if ran >= STALL_S:
            return Result(FAIL, f"rank {rank} hung in it for {ran:.0f} s, until {_how_it_ended(outcome)}", None, ran)
        return Result(COULD_NOT_RUN, f"rank {rank} had been in it for {ran:.0f} s when {_how_it_ended(outcome)}", None, ran)
    crash = crashed_rank(child.stderr)
    if crash is None or crash[0] != rank:
        return Result(COULD_NOT_RUN, f"rank {rank} was in it when the run ended: {_how_it_ended(outcome)}", None, None)
    if -crash[1] in FAULT_SIGNALS:
        return Result(FAIL, f"rank {rank} crashed in it with {signal.Signals(-crash[1]).name}", None, None)
    return Result(COULD_NOT_RUN, f"rank {rank} ended in it with {_end_words(crash[1])}", None, None)


def _end_words(code: int) -> str:
    """A process's exit code in words; a negative one is a signal."""
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def _rank_words(rank: int, owners: Mapping[int, ExpectedGpu]) -> str:
    """A rank with the GPU that it had, where that is known."""
    return f"rank {rank} (GPU {owners[rank].pci_bus_id})" if rank in owners else f"rank {rank}"


def _how_it_ended(outcome: Outcome, owners: Mapping[int, ExpectedGpu] = MappingProxyType({})) -> str:
    """How the container's run ended, in words, with the last that it said."""
    child, container = outcome.child, outcome.container
    if child.error:
        return child.error
    if child.timed_out:
        return f"the limit of {container.limit_s} s was over"
    crash = crashed_rank(child.stderr)
    words = f"exit status {child.exit_code}"
    if crash:
        words += f", first {_rank_words(crash[0], owners)} with {_end_words(crash[1])}"
    last = _telling([*child.stdout, *child.stderr])
    return f"{words}; last words: {last}" if last else words


def _telling(lines: Sequence[str]) -> str | None:
    """The line of a failed run that tells most: an error's, else the last one. torchrun's own report of it says who ended, which is read apart, and not why."""
    report = next((at for at, line in enumerate(lines) if _TORCHRUN_REPORT.search(line)), len(lines))
    lines = lines[:report]
    for line in reversed(lines):
        if re.search(r"error|denied|fatal|cannot|no such|not found|unresolvable", line, re.IGNORECASE) and not line.startswith(("=", "-")):
            return line[:500]
    return lines[-1][:500] if lines else None
