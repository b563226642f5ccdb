# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the ranks tell each other: sums of integers over all of them, compared with what each rank computes alone."""

from __future__ import annotations

from typing import Any

from .products import compare

# Elements of the vectors that are all-reduced: one, odd (no even split over ranks), and on GPUs one large enough to leave the low-latency path.
VECTORS = {"cuda": (1, 1023, 1048577, 8388608), "cpu": (1, 1023, 65537)}
REDUCE_ROUNDS = 5


def reduce_term(torch: Any, size: int, rank: int, turn: int) -> Any:
    """What ``rank`` adds: integers from -15 to 15, different in each place, rank and round."""
    return (torch.arange(size, dtype=torch.int64) * 7 + rank * 13 + turn * 5) % 31 - 15


def all_reduce_exact(torch: Any, backend: str, device: str, rank: int, world: int) -> tuple[str, str | None, dict[str, Any]]:
    """Sums of integers over all ranks, each rank comparing its whole result with the sum that it computes alone; (status, reason, value)."""
    dist = torch.distributed
    value: dict[str, Any] = {"world": world, "rounds": 0, "elements": 0, "wrong": 0, "nan": 0, "inf": 0, "first_wrong": None}
    for size in VECTORS[backend]:
        # Two different inputs that take turns, so that a sum of the round before is no right answer. Of the others' terms only the sum is kept.
        terms = [reduce_term(torch, size, rank, turn) for turn in range(2)]
        truths = [torch.zeros(size, dtype=torch.int64) for _turn in range(2)]
        for turn in range(2):
            for other in range(world):
                truths[turn] += reduce_term(torch, size, other, turn)
        for kind in (torch.float32, torch.int64):
            for number in range(REDUCE_ROUNDS):
                # A copy, whatever the type and device: the sum replaces its input.
                mine = terms[number % 2].clone().to(kind).to(device)
                dist.all_reduce(mine)
                found = compare(torch, mine, truths[number % 2])
                value["rounds"] += 1
                value["elements"] += found["elements"]
                for key in ("wrong", "nan", "inf"):
                    value[key] += found[key]
                value["first_wrong"] = value["first_wrong"] or found["first_wrong"]
    if value["wrong"]:
        return "fail", "{wrong} of {elements} summed elements are wrong ({nan} NaN, {inf} Inf), the first: {first_wrong}".format(**value), value
    return "pass", None, value
