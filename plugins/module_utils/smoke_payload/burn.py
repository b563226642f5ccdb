# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same product for a long time under full load: every one compared with the first, bit for bit, and timed."""

from __future__ import annotations

import time
from typing import Any

from .budget import Deadline, NoTimeLeft
from .figures import MATMUL_SHAPES
from .place import Place
from .products import poisoned
from .repeats import random_multiplier
from .timing import MOST, begin, median, rounded

BURN = "burn"
# Seconds between two looks at what was found, and products that are begun before the first of them is waited for.
LOOK_SECONDS = 1.0
QUEUED = 16


def dtype_of(dtypes: list[str]) -> str:
    """The format that loads the matrix units: bf16, or on a chip without it fp16."""
    return next((dtype for dtype in ("bf16", "fp16") if dtype in dtypes), dtypes[0] if dtypes else "bf16")


def burn(place: Place, dtype: str, seconds: float, deadline: Deadline) -> Any:
    """Products of random numbers for so many seconds; (status, reason, value). ``wrong`` counts the 8 bytes each in which products differ from the first."""
    torch, shape = place.torch, MATMUL_SHAPES[place.backend][dtype]
    if deadline.left() < seconds:
        raise NoTimeLeft(f"it was asked for {seconds:g} s, {max(0.0, deadline.left()):.0f} s were left")
    multiply = random_multiplier(place, dtype, shape)
    first = multiply(poisoned(place, dtype, shape)).clone()
    out = poisoned(place, dtype, shape)
    # Compared as 64-bit words: a quarter of the work that it is element by element, and it is the products that are to keep the GPU busy.
    truth, words = first.view(torch.int64), out.view(torch.int64)
    value: dict[str, Any] = {"dtype": dtype, "shape": list(shape), "seconds": 0.0, "products": 0, "wrong": 0}
    value.update(nan=int(torch.isnan(first).sum()), inf=int(torch.isinf(first).sum()))
    wrong = torch.zeros((), dtype=torch.int64, device=place.device)
    rates: list[float] = []
    started = time.monotonic()
    while time.monotonic() - started < seconds and not value["wrong"]:
        took, made, look = 0.0, 0, time.monotonic()
        while time.monotonic() - look < LOOK_SECONDS:
            spans = []
            for _product in range(QUEUED):
                spans.append(begin(place, lambda: multiply(out)))
                wrong += (words != truth).sum()
            took += sum(span() for span in spans)
            made += QUEUED
        value["products"] += made
        value["wrong"] = int(wrong)
        rates.append(rounded(2e-12 * shape[0] * shape[1] * shape[2] * made / took))
    value["seconds"] = round(time.monotonic() - started, 1)
    value.update(unit="TFLOP/s", median=rounded(median(rates)), lowest=min(rates), samples=rates[:: -(-len(rates) // MOST)])
    if value["wrong"] or value["nan"] or value["inf"]:
        return "fail", "{wrong} words of {products} products of the same matrices differ from the first ({nan} NaN, {inf} Inf in it)".format(**value), value
    return "pass", None, value
