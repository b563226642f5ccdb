# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How long work takes on a device: warmed up, sampled, never longer than its deadline."""

from __future__ import annotations

import time
from typing import Any, Callable, NamedTuple

from .budget import Deadline, NoTimeLeft
from .place import Place

# Samples of a figure: the host gets all of them.
MOST = 32
LEAST = 3
# Calls in one sample at most, and the seconds that work is done before the first one: clocks rise, libraries choose their kernels.
CALLS_MAX = 2000
WARM_UP_SECONDS = 0.4


class Samples(NamedTuple):
    """``seconds``: of one call, one entry a sample; ``calls``: in all samples together; ``took``: seconds for all, warm-up included."""

    seconds: list[float]
    calls: int
    took: float


def begin(place: Place, work: Callable[[], object]) -> Callable[[], float]:
    """Start work; what is returned waits for its end and gives its seconds: by the device's own events on a GPU, by the clock on the CPU."""
    if place.backend != "cuda":
        started = time.perf_counter()
        work()
        took = time.perf_counter() - started
        return lambda: took
    first, last = (place.torch.cuda.Event(enable_timing=True) for _event in range(2))
    first.record()
    work()
    last.record()

    def seconds() -> float:
        last.synchronize()
        return float(first.elapsed_time(last)) / 1000

    return seconds


def seconds_of(place: Place, work: Callable[[], object]) -> float:
    """Seconds that work takes on the device."""
    return begin(place, work)()


def times(work: Callable[[], object], calls: int) -> Callable[[], None]:
    """The work, so many times in a row."""

    def repeated() -> None:
        for _call in range(calls):
            work()

    return repeated


def calls_for(each: float, seconds: float) -> int:
    """How many calls of so many seconds each make one sample, if all samples are to take ``seconds``."""
    return max(1, min(CALLS_MAX, int(seconds / MOST / max(each, 1e-9))))


def sample(place: Place, work: Callable[[], object], seconds: float, deadline: Deadline, between: Callable[[], object] = lambda: None) -> Samples:
    """Time work for about ``seconds``, after a warm-up, with ``between`` done untimed before each sample.

    NoTimeLeft where the deadline comes before there are enough samples.
    """
    started = time.monotonic()
    seconds_of(place, work)
    each = seconds_of(place, work)
    warm = deadline.sooner(min(WARM_UP_SECONDS, seconds / 2))
    while not warm.over():
        calls = calls_for(each, seconds)
        each = seconds_of(place, times(work, calls)) / calls
    calls = calls_for(each, seconds)
    until = deadline.sooner(seconds)
    found: list[float] = []
    while len(found) < MOST:
        if len(found) < LEAST and deadline.over():
            raise NoTimeLeft(f"{len(found)} of at least {LEAST} samples were taken, one call takes {each:.3g} s")
        if len(found) >= LEAST and until.over():
            break
        between()
        found.append(seconds_of(place, times(work, calls)) / calls)
    return Samples(found, calls * len(found), time.monotonic() - started)


def median(values: list[float]) -> float:
    """The middle one, or the mean of the two in the middle."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def rounded(rate: float) -> float:
    """To five digits, which is more than any figure repeats to."""
    return float(f"{rate:.5g}")


def figure(samples: Samples, amount: float, unit: str, kernel: str, conditions: str, **facts: Any) -> dict[str, Any]:
    """A measured figure: ``amount`` (of what the unit counts, in units of 1e9 or 1e12) a call, over the seconds of each sample."""
    rates = [rounded(amount / seconds) for seconds in samples.seconds]
    return {
        "median": rounded(median(rates)),
        "samples": rates,
        "unit": unit,
        "kernel": kernel,
        "conditions": conditions,
        "seconds": round(samples.took, 3),
        "calls": samples.calls,
        **facts,
    }
