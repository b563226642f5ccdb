# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which MIG instances fit on a card together, and where.

An instance takes ``size`` neighbouring memory slices and may begin only at some of them, so whether a set fits depends on where each one is put;
creating the largest first is not enough. The sets are tiny (8 slices, 7 instances), so an exact search is instant.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Iterable, Mapping, NamedTuple


class Profile(NamedTuple):
    """One instance profile; ``starts`` are the memory slices it may begin at, ``maximum`` how many a card can hold."""

    name: str
    compute_slices: int
    size: int
    starts: tuple[int, ...]
    maximum: int


class Card(NamedTuple):
    """What a card can be cut into."""

    compute_slices: int
    memory_slices: int
    profiles: dict[str, Profile]


class Instance(NamedTuple):
    """A GPU instance: its profile and its first memory slice."""

    profile: str
    start: int


def card_from_table(table: Mapping[str, Any]) -> Card:
    """A card from its table in the catalog (``compute_slices``, ``memory_slices``, ``profiles``)."""
    profiles = {
        name: Profile(name, int(entry["compute_slices"]), int(entry["size"]), tuple(int(start) for start in entry["starts"]), int(entry["max"]))
        for name, entry in table["profiles"].items()
    }
    return Card(int(table["compute_slices"]), int(table["memory_slices"]), profiles)


def place(wanted: Iterable[str], card: Card, fixed: Iterable[Instance] = ()) -> tuple[Instance, ...] | None:
    """Find a place for every wanted profile, beside ``fixed`` instances that stay where they are.

    Returns the new instances sorted by start (the fixed ones are not repeated), or None when they do not fit together.
    Raises KeyError for a profile that the card does not have.
    """
    fixed = tuple(fixed)
    names = list(wanted)
    counts = Counter(names)
    counts.update(instance.profile for instance in fixed)
    compute = 0
    for name, count in counts.items():
        profile = card.profiles[name]
        if count > profile.maximum:
            return None
        compute += count * profile.compute_slices
    if compute > card.compute_slices:
        return None
    taken = 0
    for instance in fixed:
        mask = _mask(card.profiles[instance.profile].size, instance.start)
        if taken & mask:
            return None
        taken |= mask
    # Large and choosy profiles first: fewer branches. Equal profiles are placed in rising order, so no arrangement is tried twice.
    queue = sorted((card.profiles[name] for name in names), key=lambda p: (-p.size, len(p.starts), p.name))
    found = _search(queue, 0, taken, [], card.memory_slices)
    return None if found is None else tuple(sorted(found, key=lambda instance: (instance.start, instance.profile)))


def _mask(size: int, start: int) -> int:
    return ((1 << size) - 1) << start


def _search(queue: list[Profile], index: int, taken: int, placed: list[Instance], slices: int) -> list[Instance] | None:
    if index == len(queue):
        return list(placed)
    profile = queue[index]
    lowest = placed[-1].start + 1 if placed and placed[-1].profile == profile.name else 0
    for start in sorted(profile.starts):
        mask = _mask(profile.size, start)
        if start < lowest or start + profile.size > slices or taken & mask:
            continue
        placed.append(Instance(profile.name, start))
        found = _search(queue, index + 1, taken | mask, placed, slices)
        if found is not None:
            return found
        placed.pop()
    return None
