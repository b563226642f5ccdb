# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a rank works: on which device, as which of how many, and how thoroughly."""

from __future__ import annotations

from typing import Any, NamedTuple


class Place(NamedTuple):
    """``torch``: the module of that name, which only the image has. ``device``: ``cuda:0`` or ``cpu``. ``bus_id``: of the rank's GPU, where it is known."""

    torch: Any
    backend: str
    device: str
    tier: str = "quick"
    rank: int = 0
    world: int = 1
    bus_id: str | None = None
