# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast all ranks together are: the bus bandwidth of an all-reduce, as nccl-tests counts it, so that it can be held against a link's rate."""

from __future__ import annotations

import os
import time
from typing import Any

from .budget import Deadline, NoTimeLeft
from .exchange import everyones
from .place import Place
from .timing import Samples, calls_for, figure, median, rounded, seconds_of, times

# Bytes of the vector, up to what the free memory has room for.
BYTES = {"cuda": (2**20, 2**24, 2**26, 2**28, 2**30, 2**32), "cpu": (2**10, 2**16, 2**20)}
# Samples of a size; of the largest, whose median is the figure, so many more.
SAMPLES = 4
SAMPLES_LARGEST = 12
WARM_UP = 3
# Seconds of sampling for one size, by tier.
SECONDS = {"quick": 0.5, "accept": 1.0, "burn": 1.0}


def all_reduce_speed(place: Place, deadline: Deadline) -> dict[str, Any]:
    """GB/s on the bus, ``bytes / seconds * 2 * (world - 1) / world``, of the slowest rank in each sample; the same in all ranks."""
    if place.world < 2:
        raise NotImplementedError("one rank alone has no bus")
    sizes = fitting(place)
    factor = 2 * (place.world - 1) / place.world
    rates: dict[str, float] = {}
    made = Samples([], 0, 0.0)
    for size in sizes:
        made = _of_size(place, size, SAMPLES_LARGEST if size == sizes[-1] else SAMPLES, deadline)
        rates[str(size)] = rounded(size * factor / 1e9 / median(made.seconds))
    value = figure(made, sizes[-1] * factor / 1e9, "GB/s", "torch.distributed.all_reduce", f"{sizes[-1]} bytes of fp32, sum, bus bandwidth")
    # What NCCL chose by itself is in its own words (found nccl); a setting of the operator's is known here.
    return {**value, "sizes": rates, "world": place.world, "nvls": False if os.environ.get("NCCL_NVLS_ENABLE") == "0" else None}


def fitting(place: Place) -> list[int]:
    """The sizes that have room in every rank's memory twice."""
    if place.backend != "cuda":
        return list(BYTES[place.backend])
    free = everyones(place, min, place.torch.cuda.mem_get_info()[0])
    return [size for size in BYTES[place.backend] if 2 * size <= free] or [BYTES[place.backend][0]]


def _of_size(place: Place, size: int, count: int, deadline: Deadline) -> Samples:
    """So many samples of one size, with as many calls in each on every rank."""
    torch = place.torch
    vector = torch.randn(size // 4, dtype=torch.float32, device=place.device)

    def call() -> None:
        torch.distributed.all_reduce(vector)

    if everyones(place, max, deadline.over()):
        raise NoTimeLeft(f"the all-reduce of {size} bytes was not begun")
    seconds_of(place, times(call, WARM_UP))
    each = everyones(place, max, seconds_of(place, call))
    left = everyones(place, min, deadline.left())
    if each * count > left:
        raise NoTimeLeft(f"one all-reduce of {size} bytes takes {each:.3g} s, {count} are wanted and {left:.3g} s were left")
    calls = max(1, min(calls_for(each, SECONDS[place.tier]), int(left / count / each)))
    started = time.monotonic()
    taken = [seconds_of(place, times(call, calls)) / calls for _sample in range(count)]
    slowest = torch.tensor(taken, dtype=torch.float32, device=place.device)
    torch.distributed.all_reduce(slowest, op=torch.distributed.ReduceOp.MAX)
    return Samples([float(seconds) for seconds in slowest.cpu()], calls * count, time.monotonic() - started)
