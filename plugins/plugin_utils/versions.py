# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Dotted versions (drivers, toolkit, engine) compared as numbers, never as text."""

from __future__ import annotations

import re

_LEADING = re.compile(r"\d+(?:\.\d+)*")


def numbers(version: str) -> tuple[int, ...]:
    """The leading dotted numbers: ``(26, 1, 5)`` of ``26.1.5+dfsg1``. Raises ValueError when there is none."""
    match = _LEADING.match(version.strip())
    if match is None:
        raise ValueError(f"{version!r} does not begin with a number")
    found = [int(part) for part in match.group().split(".")]
    while len(found) > 1 and found[-1] == 0:  # 26.1 and 26.1.0 are one version
        found.pop()
    return tuple(found)


def at_least(version: str, floor: str) -> bool:
    """Whether a version is the floor or newer."""
    return numbers(version) >= numbers(floor)


def branch(version: str) -> str:
    """The branch of a driver version: ``580`` of ``580.178.04``."""
    return version.partition(".")[0]
