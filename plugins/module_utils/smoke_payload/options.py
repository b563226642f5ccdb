# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host asks the payload for."""

from __future__ import annotations

import json
from typing import NamedTuple, Sequence

from .figures import NAMES as FIGURES
from .products import PRODUCTS, SHAPES
from .training import NAMES as TRAININGS

SETTINGS = "RACKREADY_SMOKE"
TIERS = ("quick", "accept", "burn")


class Options(NamedTuple):
    """What the host asks for, as JSON in the environment variable ``RACKREADY_SMOKE``: torchrun takes options of ours for abbreviations of its own.

    ``run``: id of this run, repeated in every line. ``dtypes``: keys of PRODUCTS. ``collective``: whether the ranks
    can talk to each other (instances of a divided GPU cannot). ``limit``: seconds after which this process ends itself.
    ``budget``: seconds that the work may take in all. ``figures`` and ``trainings``: names of those two modules.
    ``visible``: UUID of the GPU or instance that each rank alone gets to see; empty: whole GPUs by local rank.
    ``hosts``: how many ranks each host has, in the order of ranks; empty: there is one host.
    """

    backend: str
    run: str
    dtypes: list[str]
    collective: bool
    limit: int
    tier: str = "quick"
    budget: float = 0.0
    figures: Sequence[str] = ()
    trainings: Sequence[str] = ()
    visible: Sequence[str] = ()
    burn_seconds: int = 0
    hosts: Sequence[int] = ()


def parse(text: str) -> Options:
    """The options from their JSON text. ValueError, KeyError or TypeError where they are not as they have to be; keys that are not known are ignored."""
    given = json.loads(text)
    limit = int(given["limit"])
    options = Options(
        backend=given["backend"],
        run=given["run"],
        dtypes=list(given["dtypes"]),
        collective=bool(given["collective"]),
        limit=limit,
        tier=given.get("tier", "quick"),
        budget=float(given.get("budget") or limit),
        figures=tuple(given.get("figures", ())),
        trainings=tuple(given.get("trainings", ())),
        visible=tuple(given.get("visible", ())),
        burn_seconds=int(given.get("burn_seconds", 0)),
        hosts=tuple(int(ranks) for ranks in given.get("hosts", ())),
    )
    for what, known, names in (
        ("backend", SHAPES, [options.backend]),
        ("tier", TIERS, [options.tier]),
        ("number formats", PRODUCTS, options.dtypes),
        ("figures", FIGURES, options.figures),
        ("trainings", TRAININGS, options.trainings),
    ):
        unknown = [name for name in names if name not in known]
        if unknown:
            raise ValueError(f"{what} {unknown} unknown")
    return options
