# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every ordered pair of ranks: what one sends, the other compares byte by byte, and how fast it comes.

The path between two GPUs may be wrong while every collective takes another one (IOMMU, ACS, a bad link), so that each pair is tried.
"""

from __future__ import annotations

import time
from typing import Any

from .budget import Deadline, NoTimeLeft
from .exchange import everyones
from .place import Place
from .timing import MOST, median, rounded, seconds_of, times

PAIR_EXACT = "pair_exact"
# Bytes of a message: one, odd ones, and on GPUs one large enough for the path of large copies.
MESSAGES = {"cuda": (1, 4097, 1048579, 67108864), "cpu": (1, 4097, 65539)}
TURNS = 2
# Bytes of the message that is timed, and how often in a row.
TIMED_BYTES = {"cuda": 2**28, "cpu": 2**20}
TIMED = 5


def amount_of(backend: str, world: int) -> dict[str, int]:
    """The numbers of a pass that are the whole work of a rank as receiver: ``world``, ``senders``, compared ``bytes``."""
    return {"world": world, "senders": world - 1, "bytes": TURNS * (world - 1) * sum(MESSAGES[backend])}


def message(torch: Any, ground: Any, sender: int, receiver: int, turn: int) -> Any:
    """The bytes that go from one rank to another: the ground with one byte mixed in, another for each ordered pair of up to 16 ranks."""
    mixed = (sender * 16 + receiver + turn * 85) % 256
    return torch.bitwise_xor(ground, torch.tensor(mixed, dtype=torch.uint8))


def ground_of(torch: Any, size: int) -> Any:
    """Random bytes on the CPU, the same in every rank."""
    return torch.randint(0, 256, (size,), generator=torch.Generator().manual_seed(20261201 + size), dtype=torch.uint8)


def pass_on(dist: Any, out: Any, to: int | None, into: Any, source: int | None) -> None:
    """Send to one rank, receive from another, both at once; either may be missing."""
    operations = [dist.P2POp(dist.isend, out, to)] if to is not None else []
    operations += [dist.P2POp(dist.irecv, into, source)] if source is not None else []
    for request in dist.batch_isend_irecv(operations):
        request.wait()


def pair_exact(place: Place, deadline: Deadline | None = None) -> Any:
    """Everything that the other ranks send here, byte by byte against what they must have sent; (status, reason, value). The rank is the receiver."""
    torch, rank, world = place.torch, place.rank, place.world
    if world < 2:
        return "could_not_run", "one rank alone has no pair", {}
    value: dict[str, Any] = {"world": world, "senders": world - 1, "bytes": 0, "wrong": 0, "wrong_from": {}, "first_wrong": None}
    for size in MESSAGES[place.backend]:
        ground = ground_of(torch, size)
        for turn in range(TURNS):
            if deadline and everyones(place, max, deadline.over()):
                raise NoTimeLeft("{bytes} bytes were compared, {wrong} wrong".format(**value))
            for step in range(1, world):
                receiver, sender = (rank + step) % world, (rank - step) % world
                into = torch.full((size,), turn, dtype=torch.uint8, device=place.device)
                pass_on(torch.distributed, message(torch, ground, rank, receiver, turn).to(place.device), receiver, into, sender)
                _count(into.cpu(), message(torch, ground, sender, rank, turn), sender, value)
    if value["wrong"]:
        return "fail", "{wrong} of {bytes} bytes are wrong, by sender: {wrong_from}; the first: {first_wrong}".format(**value), value
    return "pass", None, value


def _count(got: Any, truth: Any, sender: int, value: dict[str, Any]) -> None:
    """Add one message to the numbers."""
    differs = got != truth
    wrong = int(differs.sum())
    value["bytes"] += got.numel()
    if wrong:
        at = int(differs.nonzero()[0])
        value["wrong"] += wrong
        value["wrong_from"][str(sender)] = value["wrong_from"].get(str(sender), 0) + wrong
        value["first_wrong"] = value["first_wrong"] or {"from": sender, "at": at, "got": int(got[at]), "expected": int(truth[at])}


def pair_speed(place: Place, deadline: Deadline) -> dict[str, Any] | None:
    """GB/s of every ordered pair, one pair at a time, as its receiver times it; given by rank 0 only (else None)."""
    torch, world = place.torch, place.world
    if world < 2:
        raise NotImplementedError("one rank alone has no pair")
    started = time.monotonic()
    data = torch.zeros(TIMED_BYTES[place.backend], dtype=torch.uint8, device=place.device)
    found = torch.zeros(world * world, dtype=torch.float32, device=place.device)
    pairs = [(sender, (sender + step) % world) for step in range(1, world) for sender in range(world)]
    for number, (sender, receiver) in enumerate(pairs):
        if everyones(place, max, deadline.over()):
            raise NoTimeLeft(f"{number} of {len(pairs)} ordered pairs were measured")
        if place.rank == sender:
            _pair_seconds(place, data, receiver, None)
        elif place.rank == receiver:
            found[sender * world + receiver] = data.numel() / _pair_seconds(place, data, None, sender) / 1e9
    torch.distributed.all_reduce(found)
    if place.rank:
        return None
    # To four digits: the pairs of 16 ranks fit into a line.
    rates = [[sender, receiver, float(f"{float(found[sender * world + receiver]):.4g}")] for sender, receiver in sorted(pairs)]
    return {
        "median": rounded(median([rate[2] for rate in rates])),
        "samples": sorted(rate[2] for rate in rates)[:MOST],
        "unit": "GB/s",
        "kernel": "torch.distributed.batch_isend_irecv",
        "conditions": f"{data.numel()} bytes, one ordered pair at a time",
        "seconds": round(time.monotonic() - started, 3),
        "world": world,
        "pairs": rates,
    }


def _pair_seconds(place: Place, data: Any, to: int | None, source: int | None) -> float:
    """Seconds of one message of several in a row. The one before them is not timed: with it the two have met."""

    def once() -> None:
        pass_on(place.torch.distributed, data, to, data, source)

    once()
    return seconds_of(place, times(once, TIMED)) / TIMED
