# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Hosts in pairs, with all GPUs of both: an all-reduce whose sum must be exact, and how fast it is. One slow or wrong host is in all slow or wrong pairs."""

from __future__ import annotations

import time
from typing import Any, Callable, Sequence

from .budget import Deadline
from .exchange import everyones, sum_of_terms, term
from .place import Place
from .products import compare
from .timing import calls_for, median, rounded, seconds_of, times
from .tournament import Pair, rounds_of

# Bytes of the vectors that are timed: the last one's speed is the pair's figure.
BYTES = {"cuda": (2**20, 2**26, 2**28), "cpu": (2**10, 2**16)}
# Elements of the vector whose sum is compared, and how often, with another input each time.
EXACT = {"cuda": 1048577, "cpu": 4097}
TURNS = 2
SAMPLES = 5
WARM_UP = 2
# Seconds of sampling for one size.
SECONDS = 0.5


def conditions_of(backend: str) -> str:
    """What a floor for the figure has to name."""
    return f"{BYTES[backend][-1]} bytes of fp32, sum, bus bandwidth of two hosts"


def elements_of(backend: str) -> int:
    """Compared elements of a pair that are the whole work of a rank."""
    return TURNS * EXACT[backend]


def host_pairs(place: Place, hosts: Sequence[int], deadline: Deadline) -> dict[str, Any] | None:
    """What a host's pairs came to, told by its first rank (None from the others).

    ``hosts``: how many ranks each has. ``pairs``: ``[number of the other host, GB/s or None where there was no time, compared elements, wrong ones]``;
    ``rounds`` of ``of``: how many were made before the time was over.
    """
    firsts = [sum(hosts[:number]) for number in range(len(hosts))]
    mine = max(number for number, first in enumerate(firsts) if first <= place.rank)
    ranks = [list(range(first, first + count)) for first, count in zip(firsts, hosts)]
    schedule = rounds_of(len(hosts))
    started, made, found = time.monotonic(), 0, []
    for pairs in schedule:
        # All stop before the same round, or none: who left alone would be waited for.
        if everyones(place, max, deadline.over()):
            break
        share = (deadline.until - deadline.clock()) / (len(schedule) - made)
        entry = _round(place, pairs, ranks, mine, deadline.sooner(max(0.0, share)))
        found += [entry] if entry else []
        made += 1
    if place.rank != firsts[mine]:
        return None
    return {
        "pairs": found,
        "host": mine,
        "rounds": made,
        "of": len(schedule),
        "unit": "GB/s",
        "kernel": "torch.distributed.all_reduce",
        "conditions": conditions_of(place.backend),
        "seconds": round(time.monotonic() - started, 3),
        "world": place.world,
    }


def _round(place: Place, pairs: Sequence[Pair], ranks: Sequence[list[int]], mine: int, deadline: Deadline) -> list[Any] | None:
    """All pairs of a round at once; what this host's pair came to, or None where it pauses."""
    dist = place.torch.distributed
    # Every rank makes every group, also those that it is not in, in one order.
    groups = [(pair, dist.new_group(ranks[pair[0]] + ranks[pair[1]])) for pair in pairs]
    entry = None
    for pair, group in groups:
        if mine in pair:
            members = ranks[pair[0]] + ranks[pair[1]]
            entry = [pair[0] if mine == pair[1] else pair[1], *_pair(place, group, members, deadline)]
    # Nobody goes on while others are still timed.
    everyones(place, max, 0)
    for pair, group in groups:
        if mine in pair:
            dist.destroy_process_group(group)
    return entry


def _pair(place: Place, group: Any, members: list[int], deadline: Deadline) -> tuple[float | None, int, int]:
    """(GB/s on the bus, or None where there was no time; compared elements; wrong ones) of one pair, the same in all its ranks."""
    torch = place.torch

    def agreed(which: Callable[..., float], number: float) -> float:
        sign = 1.0 if which is max else -1.0
        told = torch.tensor([sign * number], dtype=torch.float64, device=place.device)
        torch.distributed.all_reduce(told, op=torch.distributed.ReduceOp.MAX, group=group)
        return sign * float(told.item())

    wrong, size, position = 0, EXACT[place.backend], members.index(place.rank)
    for turn in range(TURNS):
        out = term(torch, size, position, turn).to(torch.float32).to(place.device)
        torch.distributed.all_reduce(out, group=group)
        wrong += compare(torch, out, sum_of_terms(torch, size, len(members), turn))["wrong"]
    # Whatever came back to this rank itself counts, also where a wrong sum would hide it.
    wrong = max(wrong, int(agreed(max, wrong)))
    rate: float | None = None
    for size in BYTES[place.backend]:
        # One call as far as known: what would not fit is not begun.
        if (size / rate if rate else 0.0) * (WARM_UP + 1 + SAMPLES) > agreed(min, deadline.left()):
            rate = None
            break
        rate = _rate(place, group, size, agreed, deadline)
        if rate is None:
            break
    factor = 2 * (len(members) - 1) / len(members) / 1e9
    return (None if rate is None else rounded(rate * factor)), elements_of(place.backend), wrong


def _rate(place: Place, group: Any, size: int, agreed: Callable[..., float], deadline: Deadline) -> float | None:
    """Bytes a second of the slowest rank, the median of some samples; None where there is no time for them.

    What is done depends only on what all agree on: who left alone would be waited for.
    """
    torch = place.torch
    vector = torch.zeros(size // 4, dtype=torch.float32, device=place.device)

    def call() -> None:
        torch.distributed.all_reduce(vector, group=group)

    seconds_of(place, times(call, WARM_UP))
    each = agreed(max, seconds_of(place, call))
    left = agreed(min, deadline.left())
    if each * SAMPLES > left:
        return None
    calls = max(1, min(calls_for(each, SECONDS), int(left / SAMPLES / each)))
    taken = [agreed(max, seconds_of(place, times(call, calls)) / calls) for _sample in range(SAMPLES)]
    return size / median(taken)
