# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RPM package versions, ordered as rpm orders them (rpmvercmp, rpm-version(7)), without rpm."""

from __future__ import annotations

import re
from functools import cmp_to_key
from typing import Iterable, NamedTuple

_SEPARATORS = re.compile(r"^[^A-Za-z0-9~^]+")
_SEGMENT = re.compile(r"[0-9]+|[A-Za-z]+")


class RpmVersion(NamedTuple):
    """The three parts of a version: ``[epoch:]version[-release]``."""

    epoch: int
    version: str
    release: str


def split(version: str) -> RpmVersion:
    """Take a version apart; raises ValueError when the epoch is not a number or the version itself is missing."""
    text = version.strip()
    epoch, colon, rest = text.partition(":")
    if not colon:
        epoch, rest = "0", text
    if not re.fullmatch("[0-9]+", epoch):
        raise ValueError(f"version {version!r}: the epoch {epoch!r} is not a number")
    # At the last dash, as libsolv does: what uname says of a kernel is a version there, too, and may have more of them.
    upstream_, dash, release = rest.rpartition("-")
    if not dash:
        upstream_, release = rest, ""
    if not upstream_:
        raise ValueError(f"version {version!r} has no upstream part")
    return RpmVersion(int(epoch), upstream_, release)


def join(epoch: str | None, version: str, release: str | None) -> str:
    """A version as it is written everywhere here: no epoch where it is 0, no release where there is none."""
    return f"{'' if epoch in (None, '', '0', '(none)') else f'{epoch}:'}{version}{f'-{release}' if release else ''}"


def upstream(version: str) -> str:
    """The version alone, without epoch and release: ``580.178.04`` of ``3:580.178.04-1.el9``."""
    return split(version).version


def _compare_part(left: str, right: str) -> int:
    """rpmvercmp: digits as numbers, letters as text, ``~`` before the end of the text and ``^`` after it; everything else only separates."""
    while True:
        left, right = _SEPARATORS.sub("", left, count=1), _SEPARATORS.sub("", right, count=1)
        if "~" in (left[:1], right[:1]):
            if left[:1] != right[:1]:
                return -1 if left[:1] == "~" else 1
            left, right = left[1:], right[1:]
            continue
        if "^" in (left[:1], right[:1]):
            if left[:1] != right[:1]:
                # Newer than the same text that ends there, older than one that goes on in any other way.
                return _sign(not right) if left[:1] == "^" else -_sign(not left)
            left, right = left[1:], right[1:]
            continue
        if not (left and right):
            return bool(left) - bool(right)
        ours, theirs = _segment(left), _segment(right)
        left, right = left[len(ours) :], right[len(theirs) :]
        if ours.isdigit() != theirs.isdigit():
            return _sign(ours.isdigit())  # a number is newer than letters
        ours_key, theirs_key = _weight(ours), _weight(theirs)
        if ours_key != theirs_key:
            return _sign(ours_key > theirs_key)


def _segment(text: str) -> str:
    """The digits or the letters that a text begins with; there are some where no separator and no mark is."""
    match = _SEGMENT.match(text)
    return match.group() if match else ""


def _weight(segment: str) -> tuple[int, str]:
    """Numbers by length, then digit by digit: one may have more digits than int() takes."""
    digits = segment.lstrip("0")
    return (len(digits), digits) if segment.isdigit() else (0, segment)


def _sign(newer: bool) -> int:
    return 1 if newer else -1


def compare(left: str, right: str) -> int:
    """-1, 0 or 1 as ``left`` is older than, equal to or newer than ``right``."""
    ours, theirs = split(left), split(right)
    if ours.epoch != theirs.epoch:
        return _sign(ours.epoch > theirs.epoch)
    return _compare_part(ours.version, theirs.version) or _compare_part(ours.release, theirs.release)


sort_key = cmp_to_key(compare)


def newest(versions: Iterable[str]) -> str:
    """The newest of some versions; raises ValueError when there is none."""
    return max(versions, key=sort_key)
