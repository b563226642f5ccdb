# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""MIG geometry: which instances a GPU can hold, and where.

Profiles, memory and engines of the H200 table are as recorded (tests/fixtures/h200/smi-more.txt); those of the H100
and A100 are from public logs of the same command. A GPU instance takes ``memory_slices`` slots of 8 from one of ``starts`` on.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

COMPUTE_SLICES = 7

Engines = tuple[int, int, int, int, int]
"""Copy, decoder, encoder, jpeg, ofa."""


@dataclass(frozen=True)
class Profile:
    """A GPU instance profile. ``memory_gib`` is as printed."""

    profile_id: int
    name: str
    compute_slices: int
    memory_slices: int
    starts: tuple[int, ...]
    maximum: int
    memory_gib: str
    memory_mib: int
    multiprocessors: int
    engines: Engines


# Id, compute slices, memory slices, starts, how many: the geometry of seven slices, the same on all these cards.
_SHAPES = (
    (19, 1, 1, (0, 1, 2, 3, 4, 5, 6), 7),
    (20, 1, 1, (0, 1, 2, 3, 4, 5, 6), 1),
    (15, 1, 2, (0, 2, 4, 6), 4),
    (14, 2, 2, (0, 2, 4), 3),
    (9, 3, 4, (0, 4), 2),
    (5, 4, 4, (0,), 1),
    (0, 7, 8, (0,), 1),
)
_HOPPER: tuple[tuple[int, Engines], ...] = (
    (16, (1, 1, 0, 1, 0)),
    (16, (1, 1, 0, 1, 1)),
    (26, (1, 1, 0, 1, 0)),
    (32, (2, 2, 0, 2, 0)),
    (60, (3, 3, 0, 3, 0)),
    (64, (4, 4, 0, 4, 0)),
    (132, (8, 7, 0, 7, 1)),
)
_AMPERE: tuple[tuple[int, Engines], ...] = (
    (14, (1, 0, 0, 0, 0)),
    (14, (1, 1, 0, 1, 1)),
    (14, (1, 1, 0, 0, 0)),
    (28, (2, 1, 0, 0, 0)),
    (42, (3, 2, 0, 0, 0)),
    (56, (4, 2, 0, 0, 0)),
    (98, (7, 5, 0, 1, 1)),
)


def _table(
    names: tuple[str, ...], memory_gib: tuple[str, ...], memory_mib: tuple[int, ...], silicon: tuple[tuple[int, Engines], ...] = _HOPPER
) -> tuple[Profile, ...]:
    return tuple(
        Profile(number, name, compute, memory, starts, maximum, gib, mib, sms, engines)
        for (number, compute, memory, starts, maximum), (sms, engines), name, gib, mib in zip(_SHAPES, silicon, names, memory_gib, memory_mib, strict=True)
    )


TABLES: dict[str, tuple[Profile, ...]] = {
    "A100-80GB": _table(
        ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
        ("9.50", "9.50", "19.50", "19.50", "39.25", "39.25", "79.00"),
        (9728, 9728, 19968, 19968, 40192, 40192, 80896),
        _AMPERE,
    ),
    "H100-80GB": _table(
        ("1g.10gb", "1g.10gb+me", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"),
        ("9.75", "9.75", "19.62", "19.62", "39.50", "39.50", "79.25"),
        (9984, 9984, 20096, 20096, 40448, 40448, 81152),
    ),
    "H200-141GB": _table(
        ("1g.18gb", "1g.18gb+me", "1g.35gb", "2g.35gb", "3g.71gb", "4g.71gb", "7g.141gb"),
        ("16.00", "16.00", "32.50", "32.50", "69.75", "69.75", "140.00"),
        (16384, 16384, 33280, 33280, 71424, 71424, 143360),
    ),
}

# The order in which the driver tries the places of a profile when none is asked for, so that the order of creation decides
# what fits: 1g,1g,2g,3g leaves no room for the 3g and 3g,1g,2g,1g does (MIG User Guide, "Creating GPU Instances").
_PREFERENCE = {1: (6, 4, 5, 0, 1, 2, 3), 2: (4, 0, 2, 6), 4: (4, 0), 8: (0,)}

# A place is a node of a binary tree over the 8 slices; the driver numbers instances by node, 0 being the whole GPU.
_NODE_BASE = {8: 0, 4: 1, 2: 3, 1: 7}


class MigError(Exception):
    """What NVML answers: ``Insufficient Resources``, ``Invalid Argument``, ``Not Found``, ``In use by another client``."""


def profiles(board_gpu: dict[str, Any]) -> tuple[Profile, ...]:
    """The profiles of a GPU, empty when it has no MIG."""
    table = board_gpu.get("mig_table")
    return TABLES[table] if table else ()


def find_profile(table: tuple[Profile, ...], asked: str) -> Profile:
    """A profile by id (``19``) or name (``1g.10gb``, ``MIG 1g.10gb``).

    :raises MigError: there is none.
    """
    name = asked.removeprefix("MIG ").strip()
    for profile in table:
        if name in (str(profile.profile_id), profile.name):
            return profile
    raise MigError("Invalid Argument")


def by_id(table: tuple[Profile, ...], profile_id: int) -> Profile:
    """A profile by its id."""
    return find_profile(table, str(profile_id))


def instance_id(profile: Profile, start: int) -> int:
    """Id that the driver gives an instance at this place."""
    return _NODE_BASE[profile.memory_slices] + start // profile.memory_slices


def _taken(table: tuple[Profile, ...], instances: list[dict[str, Any]]) -> set[int]:
    slices: set[int] = set()
    for each in instances:
        profile = by_id(table, each["profile"])
        slices |= set(range(each["start"], each["start"] + profile.memory_slices))
    return slices


def _fits(table: tuple[Profile, ...], instances: list[dict[str, Any]], profile: Profile, start: int) -> bool:
    compute = sum(by_id(table, each["profile"]).compute_slices for each in instances)
    same = sum(1 for each in instances if each["profile"] == profile.profile_id)
    wanted = set(range(start, start + profile.memory_slices))
    return compute + profile.compute_slices <= COMPUTE_SLICES and same < profile.maximum and not wanted & _taken(table, instances)


def create_instance(table: tuple[Profile, ...], instances: list[dict[str, Any]], profile: Profile, start: int | None) -> dict[str, Any]:
    """Add an instance at ``start``, or at the place that the driver prefers, and return it.

    :raises MigError: no such place (``Invalid Argument``) or no room (``Insufficient Resources``).
    """
    if start is not None and start not in profile.starts:
        raise MigError("Invalid Argument")
    order = [place for place in _PREFERENCE[profile.memory_slices] if place in profile.starts] if start is None else [start]
    for place in order:
        if _fits(table, instances, profile, place):
            made: dict[str, Any] = {"gi": instance_id(profile, place), "profile": profile.profile_id, "start": place, "cis": []}
            instances.append(made)
            instances.sort(key=lambda each: int(each["gi"]))
            return made
    raise MigError("Insufficient Resources")


def free_count(table: tuple[Profile, ...], instances: list[dict[str, Any]], profile: Profile) -> int:
    """How many more instances of a profile fit now."""
    trial = [dict(each) for each in instances]
    count = 0
    for place in profile.starts:
        if _fits(table, trial, profile, place):
            trial.append({"gi": -1, "profile": profile.profile_id, "start": place, "cis": []})
            count += 1
    return count


# Compute instance profiles: id -> compute slices.
CI_PROFILES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7}


def create_compute_instance(profile: Profile, instance: dict[str, Any], asked: str | None) -> dict[str, Any]:
    """Add a compute instance over ``asked`` (id or name) of a GPU instance, by default over all of it.

    :raises MigError: unknown profile or no compute slices left.
    """
    if asked is None:
        ci_profile = next(number for number, slices in CI_PROFILES.items() if slices == profile.compute_slices)
    else:
        named = {ci_name(profile, number): number for number, slices in CI_PROFILES.items() if slices <= profile.compute_slices}
        named |= {str(number): number for number in named.values()}
        try:
            ci_profile = named[asked.rstrip("*")]
        except KeyError:
            raise MigError("Invalid Argument") from None
    used = {place for each in instance["cis"] for place in range(each["start"], each["start"] + CI_PROFILES[each["profile"]])}
    size = CI_PROFILES[ci_profile]
    for start in range(profile.compute_slices - size + 1):
        if not used & set(range(start, start + size)):
            taken_ids = {each["ci"] for each in instance["cis"]}
            made = {"ci": next(number for number in range(8) if number not in taken_ids), "profile": ci_profile, "start": start}
            instance["cis"].append(made)
            instance["cis"].sort(key=lambda each: int(each["ci"]))
            return made
    raise MigError("Insufficient Resources")


def ci_name(profile: Profile, ci_profile: int) -> str:
    """Name of a compute instance: ``3g.40gb`` over the whole GPU instance, else ``1c.3g.40gb``."""
    slices = CI_PROFILES[ci_profile]
    return profile.name if slices == profile.compute_slices else f"{slices}c.{profile.name}"


def device_uuid(gpu_uuid: str, gi: int, ci: int) -> str:
    """UUID of a MIG device. Real ones are version-5 UUIDs too; what NVIDIA hashes is not known."""
    return "MIG-" + str(uuid.uuid5(uuid.UUID(gpu_uuid.removeprefix("GPU-")), f"{gi}/{ci}"))


def devices(table: tuple[Profile, ...], gpu: dict[str, Any], instances: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """MIG devices (one per compute instance) in nvidia-smi's order: ``{index, gi, ci, name, uuid, profile}``."""
    found: list[dict[str, Any]] = []
    for each in instances:
        profile = by_id(table, each["profile"])
        for ci in each["cis"]:
            found.append(
                {
                    "index": len(found),
                    "gi": each["gi"],
                    "ci": ci["ci"],
                    "name": ci_name(profile, ci["profile"]),
                    "uuid": device_uuid(gpu["uuid"], each["gi"], ci["ci"]),
                    "profile": profile,
                }
            )
    return found


def capability_minor(gpu_minor: int, gi: int, ci: int | None = None) -> int:
    """Minor number of the capability node of an instance: as in /proc/driver/nvidia-caps/mig-minors (1 config, 2 monitor)."""
    return 3 + gpu_minor * 135 + gi * 9 + (0 if ci is None else 1 + ci)
