# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""File systems that cannot take what a plan would write: full, without inodes, or read-only. An installation that stops half-way is worse than none. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Table
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import refusal


def refusals(disk: Mapping[str, Mapping[str, Any]], installing: Sequence[str], writing: Collection[str], room: Table, manager: str) -> list[str]:
    """What speaks against a change. ``disk`` is of the facts, ``installing`` are the areas that install packages, ``writing`` the directories that anything
    else is written to, ``room`` is of the catalog."""
    archives = room["archives"][manager]
    tables = [room["always"]["mib"], *(room["room"][name] for name in installing if name in room["room"])]
    needs = [{path if path != "archives" else archives: mib for path, mib in table.items()} for table in tables]
    sized = {path for table in needs for path in table}
    more = {*writing, *(room["installing"] if installing else [])}
    return [*_read_only(disk, sized | more), *_too_small(disk, installing, room, needs, sized)]


def _read_only(disk: Mapping[str, Mapping[str, Any]], written: set[str]) -> Iterator[str]:
    for paths in _file_systems(disk, written):
        if not disk[paths[0]]["read_only"]:
            continue
        # What lies below another one of them goes without saying.
        tops = [path for path in paths if not any(path != other and f"{path}/".startswith(f"{other.rstrip('/')}/") for other in paths)]
        yield refusal(
            f"The file system of {', '.join(tops)} is read-only",
            "nothing can be written to it",
            f"look in dmesg for an error that made the kernel do that, or at findmnt --target {tops[0]} for a mount of its own, and make it writable, "
            "then run again",
        )


def _too_small(
    disk: Mapping[str, Mapping[str, Any]], installing: Sequence[str], room: Table, tables: Sequence[Mapping[str, int]], sized: set[str]
) -> Iterator[str]:
    for paths in _file_systems(disk, sized):
        facts, name = disk[paths[0]], " with ".join([paths[0], ", ".join(paths[1:])] if paths[1:] else paths)
        if facts["read_only"]:
            continue
        needed = sum(table.get(path, 0) for table in tables for path in paths)
        if facts["free_mib"] < needed:
            what = f"installing {', '.join(installing)}" if installing else "this run"
            yield refusal(f"{name} has {facts['free_mib']} MiB free and {what} needs {needed} MiB there", "it could stop half-way", "make room, then run again")
        inodes = facts["free_inodes"]
        if inodes is not None and inodes < room["always"]["inodes"] and installing:
            yield refusal(
                f"{name} has {inodes} inodes free and installing needs {room['always']['inodes']}",
                "no more files could be made although there is room",
                "remove what made so many small files (df -i; find -xdev), then run again",
            )


def _file_systems(disk: Mapping[str, Mapping[str, Any]], wanted: set[str]) -> list[list[str]]:
    """The wanted paths by the file system that they lie on, each in the order of the facts; what is mounted read-only a second time stands for itself."""
    found: dict[Any, list[str]] = {}
    for path, facts in disk.items():
        if path in wanted:
            found.setdefault((facts["device"], facts["read_only"]), []).append(path)
    return list(found.values())
