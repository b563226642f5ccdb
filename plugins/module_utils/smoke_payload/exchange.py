# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ranks tell each other: collectives of integers, compared as a whole with what each rank computes alone on the CPU."""

from __future__ import annotations

from typing import Any, Callable, NamedTuple

from .budget import Deadline, NoTimeLeft
from .place import Place
from .products import compare

ALL_REDUCE = "all_reduce_exact"
# Elements of the vectors that are all-reduced: one, odd (no even split over ranks), and on GPUs one large enough to leave the low-latency path.
VECTORS = {"cuda": (1, 1023, 1048577, 8388608), "cpu": (1, 1023, 65537)}
# Elements that each rank gives to, or gets from, each other one in the other collectives.
PARTS = {"cuda": (1, 1023, 65537, 1048576), "cpu": (1, 1023, 8191)}
# Types by their names in torch; gloo of torch 2.1 has no bf16.
KINDS = {"cuda": ("float32", "bfloat16", "int64"), "cpu": ("float32", "int64")}
REDUCE_ROUNDS = 5
# The first two rounds are compared on the CPU, the others with them on the device; one round can miss a fault that comes and goes.
THOROUGH_ROUNDS = {"cuda": 100, "cpu": 10}
# Up to so many ranks a sum of their terms (15 at most) is exact in bf16, which holds every integer to 256.
BF16_RANKS = 17


def kinds_of(backend: str, world: int) -> list[str]:
    """The types in which so many ranks exchange."""
    return [kind for kind in KINDS[backend] if kind != "bfloat16" or world <= BF16_RANKS]


def rounds_of(backend: str, tier: str) -> int:
    """How often each vector is exchanged."""
    return REDUCE_ROUNDS if tier == "quick" else THOROUGH_ROUNDS[backend]


def term(torch: Any, size: int, rank: int, turn: int) -> Any:
    """What ``rank`` adds: integers from -15 to 15, different in each place, rank and round."""
    return (torch.arange(size, dtype=torch.int64) * 7 + rank * 13 + turn * 5) % 31 - 15


def letter(torch: Any, size: int, rank: int, other: int, turn: int) -> Any:
    """What ``rank`` sends to ``other``: integers from -128 to 127, different for each ordered pair of up to 16 ranks."""
    return (torch.arange(size, dtype=torch.int64) * 11 + (rank * 16 + other) * 3 + turn * 7) % 256 - 128


def sum_of_terms(torch: Any, size: int, world: int, turn: int) -> Any:
    """What the terms of all ranks add up to."""
    total = torch.zeros(size, dtype=torch.int64)
    for rank in range(world):
        total += term(torch, size, rank, turn)
    return total


class Collective(NamedTuple):
    """``gives`` and ``gets``: (torch, size, rank, world, turn) -> what a rank puts in and must have afterwards. ``run``: (dist, out, mine, world)."""

    sizes: dict[str, tuple[int, ...]]
    gives: Callable[[Any, int, int, int, int], Any]
    gets: Callable[[Any, int, int, int, int], Any]
    run: Callable[[Any, Any, Any, int], object]

    def outputs(self, backend: str, name: str, world: int) -> int:
        """Elements that a rank has after one round of every size."""
        each = world if name in ("all_gather_exact", "all_to_all_exact") else 1
        return each * sum(self.sizes[backend])


def _all_reduce(dist: Any, out: Any, mine: Any, _world: int) -> None:
    out.copy_(mine)
    dist.all_reduce(out)


def _all_gather(dist: Any, out: Any, mine: Any, world: int) -> None:
    # The list form: gloo of torch 2.1 has no other.
    dist.all_gather(list(out.chunk(world)), mine)


COLLECTIVES = {
    ALL_REDUCE: Collective(
        VECTORS,
        lambda torch, size, rank, world, turn: term(torch, size, rank, turn),
        lambda torch, size, rank, world, turn: sum_of_terms(torch, size, world, turn),
        _all_reduce,
    ),
    "all_gather_exact": Collective(
        PARTS,
        lambda torch, size, rank, world, turn: term(torch, size, rank, turn),
        lambda torch, size, rank, world, turn: torch.cat([term(torch, size, other, turn) for other in range(world)]),
        _all_gather,
    ),
    "reduce_scatter_exact": Collective(
        PARTS,
        lambda torch, size, rank, world, turn: term(torch, size * world, rank, turn),
        lambda torch, size, rank, world, turn: sum_of_terms(torch, size * world, world, turn)[rank * size : (rank + 1) * size],
        lambda dist, out, mine, world: dist.reduce_scatter_tensor(out, mine),
    ),
    "all_to_all_exact": Collective(
        PARTS,
        lambda torch, size, mine, world, turn: torch.cat([letter(torch, size, mine, other, turn) for other in range(world)]),
        lambda torch, size, mine, world, turn: torch.cat([letter(torch, size, other, mine, turn) for other in range(world)]),
        lambda dist, out, mine, world: dist.all_to_all_single(out, mine),
    ),
}


def amount_of(name: str, backend: str, tier: str, world: int) -> dict[str, int]:
    """The numbers of a pass that are the whole work: ``world``, ``rounds`` and compared ``elements`` of a rank."""
    collective = COLLECTIVES[name]
    each = len(kinds_of(backend, world)) * rounds_of(backend, tier)
    return {"world": world, "rounds": each * len(collective.sizes[backend]), "elements": each * collective.outputs(backend, name, world)}


def collective_exact(place: Place, name: str, deadline: Deadline | None = None) -> Any:
    """One collective over all ranks, each rank comparing all that it got with what it computes alone; (status, reason, value).

    The number of rounds is fixed: a rank that left early would leave the others waiting. Only between sizes do they stop, all of them or none.
    """
    torch, rank, world = place.torch, place.rank, place.world
    value: dict[str, Any] = {"world": world, "rounds": 0, "elements": 0, "wrong": 0, "nan": 0, "inf": 0, "first_wrong": None}
    collective = COLLECTIVES[name]
    for size in collective.sizes[place.backend]:
        gives = [collective.gives(torch, size, rank, world, turn) for turn in range(2)]
        truths = [collective.gets(torch, size, rank, world, turn) for turn in range(2)]
        for kind in kinds_of(place.backend, world):
            if deadline and everyones(place, max, deadline.over()):
                raise NoTimeLeft("{rounds} rounds were made, {wrong} elements wrong".format(**value))
            mine = [given.to(getattr(torch, kind)).to(place.device) for given in gives]
            _rounds(place, collective, mine, truths, value)
    if value["wrong"]:
        return "fail", "{wrong} of {elements} exchanged elements are wrong ({nan} NaN, {inf} Inf), the first: {first_wrong}".format(**value), value
    return "pass", None, value


def _rounds(place: Place, collective: Collective, gives: list[Any], truths: list[Any], value: dict[str, Any]) -> None:
    """The rounds of one size and type. Two different inputs take turns, so that a result of the round before is no right answer."""
    torch = place.torch
    right: dict[int, Any] = {}
    for number in range(rounds_of(place.backend, place.tier)):
        turn = number % 2
        out = torch.full((truths[turn].numel(),), 77, dtype=gives[turn].dtype, device=place.device)
        collective.run(torch.distributed, out, gives[turn].clone(), place.world)
        value["rounds"] += 1
        value["elements"] += out.numel()
        if turn in right and torch.equal(out, right[turn]):
            continue
        found = compare(torch, out, truths[turn])
        for key in ("wrong", "nan", "inf"):
            value[key] += found[key]
        value["first_wrong"] = value["first_wrong"] or found["first_wrong"]
        if not found["wrong"]:
            right[turn] = out


def everyones(place: Place, which: Callable[..., Any], mine: float) -> float:
    """The largest (``max``) or smallest (``min``) of all ranks' numbers, the same on each of them: how they decide together."""
    torch = place.torch
    sign = 1.0 if which is max else -1.0
    number = torch.tensor([sign * float(mine)], dtype=torch.float32, device=place.device)
    torch.distributed.all_reduce(number, op=torch.distributed.ReduceOp.MAX)
    return sign * float(number.item())
