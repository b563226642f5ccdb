# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Debian package versions, ordered as dpkg orders them (deb-version(7)), without python-apt or packaging."""

from __future__ import annotations

from functools import cmp_to_key
from typing import Iterable, NamedTuple


class DebVersion(NamedTuple):
    """The three parts of a version: ``[epoch:]upstream[-revision]``."""

    epoch: int
    upstream: str
    revision: str


def split(version: str) -> DebVersion:
    """Take a version apart; raises ValueError when the epoch is not a number or the upstream part is missing."""
    text = version.strip()
    epoch, colon, rest = text.partition(":")
    if not colon:
        epoch, rest = "0", text
    if not epoch.isdigit():
        raise ValueError(f"version {version!r}: the epoch {epoch!r} is not a number")
    upstream, _dash, revision = rest.rpartition("-")
    if not upstream:
        upstream, revision = rest, ""
    if not upstream:
        raise ValueError(f"version {version!r} has no upstream part")
    return DebVersion(int(epoch), upstream, revision)


def upstream(version: str) -> str:
    """The upstream part alone: ``580.178.04`` of ``580.178.04-1``."""
    return split(version).upstream


def _weight(character: str) -> int:
    """Order of one non-digit: ``~`` before the end of the text, the end before letters, letters before everything else."""
    if character == "~":
        return -1
    if character.isalpha():
        return ord(character)
    return ord(character) + 256


def _chunks(text: str) -> list[tuple[list[int], int]]:
    """Alternating (weights of non-digits, number) pairs; each list of weights ends with 0, the weight of "no more"."""
    chunks: list[tuple[list[int], int]] = []
    position = 0
    while position < len(text):
        start = position
        while position < len(text) and not text[position].isdigit():
            position += 1
        weights = [_weight(c) for c in text[start:position]] + [0]
        start = position
        while position < len(text) and text[position].isdigit():
            position += 1
        chunks.append((weights, int(text[start:position] or "0")))
    return chunks


def _compare_part(left: str, right: str) -> int:
    ours, theirs = _chunks(left), _chunks(right)
    # A part that ended goes on as "no more, 0": that is what makes 1.0 equal to 1.0 and 1.0~rc1 older than it.
    length = max(len(ours), len(theirs))
    filler: tuple[list[int], int] = ([0], 0)
    padded_ours = ours + [filler] * (length - len(ours))
    padded_theirs = theirs + [filler] * (length - len(theirs))
    return (padded_ours > padded_theirs) - (padded_ours < padded_theirs)


def compare(left: str, right: str) -> int:
    """-1, 0 or 1 as ``left`` is older than, equal to or newer than ``right``."""
    ours, theirs = split(left), split(right)
    if ours.epoch != theirs.epoch:
        return -1 if ours.epoch < theirs.epoch else 1
    return _compare_part(ours.upstream, theirs.upstream) or _compare_part(ours.revision, theirs.revision)


sort_key = cmp_to_key(compare)


def newest(versions: Iterable[str]) -> str:
    """The newest of some versions; raises ValueError when there is none."""
    return max(versions, key=sort_key)
