# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the host asks the payload for."""

from __future__ import annotations

import json
from typing import NamedTuple

from .products import PRODUCTS, SHAPES

SETTINGS = "RACKREADY_SMOKE"


class Options(NamedTuple):
    """What the host asks for, as JSON in the environment variable ``RACKREADY_SMOKE``: torchrun takes options of ours for abbreviations of its own.

    ``run``: id of this run, repeated in every line. ``dtypes``: keys of PRODUCTS. ``collective``: whether the ranks
    can talk to each other (instances of a divided GPU cannot). ``limit``: seconds after which this process ends itself.
    """

    backend: str
    run: str
    dtypes: list[str]
    collective: bool
    limit: int


def parse(text: str) -> Options:
    """The options from their JSON text. ValueError, KeyError or TypeError where they are not as they have to be."""
    given = json.loads(text)
    options = Options(backend=given["backend"], run=given["run"], dtypes=list(given["dtypes"]), collective=bool(given["collective"]), limit=int(given["limit"]))
    unknown = [d for d in options.dtypes if d not in PRODUCTS]
    if options.backend not in SHAPES or unknown:
        raise ValueError(f"backend {options.backend!r} or number formats {unknown} unknown")
    return options
