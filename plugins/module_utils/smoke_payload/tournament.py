# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts are paired with which, in rounds in which no host has two partners. The ranks and whoever judges them ask the same question here."""

from __future__ import annotations

from typing import Tuple

# Up to so many hosts each one meets every other. Of more each one meets four: the time of the rounds must not grow with the fleet.
FULL = 16

Pair = Tuple[int, int]


def rounds_of(hosts: int) -> list[list[Pair]]:
    """The rounds, each with pairs of host numbers, the lower one first. None for fewer than two hosts."""
    return _everybody(hosts) if hosts <= FULL else _neighbours(hosts)


def pairs_of(hosts: int) -> list[Pair]:
    """All pairs of all rounds, in order of numbers."""
    return sorted(pair for pairs in rounds_of(hosts) for pair in pairs)


def _everybody(hosts: int) -> list[list[Pair]]:
    """One seat stays, the others move on by one; with an odd number whoever meets the empty seat pauses."""
    seats = list(range(hosts + hosts % 2))
    rounds = []
    for _round in range(len(seats) - 1):
        facing = zip(seats[: len(seats) // 2], reversed(seats))
        rounds.append(sorted((min(pair), max(pair)) for pair in facing if max(pair) < hosts))
        seats = [seats[0], seats[-1], *seats[1:-1]]
    return [pairs for pairs in rounds if pairs]


def _neighbours(hosts: int) -> list[list[Pair]]:
    """A ring with the next host, and one with a host a third of the ring away, which stands in another rack: each pair in the first round with room for it."""
    rounds: list[list[Pair]] = []
    for step in (1, hosts // 3):
        for host in range(hosts):
            pair = (min(host, (host + step) % hosts), max(host, (host + step) % hosts))
            free = (pairs for pairs in rounds if not any(set(pair) & set(other) for other in pairs))
            chosen = next(free, None)
            if chosen is None:
                rounds.append([pair])
            else:
                chosen.append(pair)
    return [sorted(pairs) for pairs in rounds]
