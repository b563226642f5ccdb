# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The same product of random numbers again and again, bit for bit: a GPU that is wrong once in a thousand times differs from itself,
and one that is wrong in a steady way from the others of its model, whose products have the same hash.

Random numbers use every bit of the multipliers, which small integers do not. A library gives the same bits each time on GPUs of one model with one stream
(cuBLAS, "Results Reproducibility").
"""

from __future__ import annotations

import ctypes
import hashlib
from typing import Any, Callable

from .budget import Deadline
from .place import Place
from .products import multiplier, poisoned, repeated, set_precision, torch_dtype

# Rows, inner length, columns.
REPEAT_SHAPES = {"cuda": (4096, 4096, 4096), "cpu": (128, 128, 128)}
SEED = 20261201


def random_multiplier(place: Place, dtype: str, shape: tuple[int, int, int], fast: bool = False) -> Callable[[Any], Any]:
    """A multiplier of two matrices of normally distributed numbers (mean 0, variance 1), made on the device, the same on every device of a model."""
    torch = place.torch
    set_precision(torch, dtype)
    rows, inner, columns = shape
    generator = torch.Generator(device=place.device).manual_seed(SEED)
    wide = torch.float64 if dtype == "fp64" else torch.float32
    kind = torch_dtype(torch, dtype)
    left = torch.randn((rows, inner), generator=generator, dtype=wide, device=place.device).to(kind)
    right = torch.randn((inner, columns), generator=generator, dtype=wide, device=place.device).to(kind)
    return multiplier(torch, dtype, left, right, fast)


def sha256_of(tensor: Any) -> str:
    """The hash of a tensor's bytes. Without numpy, which not every image has."""
    here = tensor.cpu().contiguous()
    size = here.numel() * here.element_size()
    return hashlib.sha256((ctypes.c_char * size).from_address(here.data_ptr())).hexdigest() if size else hashlib.sha256().hexdigest()


def matmul_repeat(place: Place, dtype: str, deadline: Deadline | None = None) -> Any:
    """One product of random numbers, repeated; (status, reason, value). ``value["sha256"]`` is for the host to compare between GPUs of one model."""
    torch, shape = place.torch, REPEAT_SHAPES[place.backend]
    multiply = random_multiplier(place, dtype, shape)
    first = multiply(poisoned(place, dtype, shape))
    if first.device.type != place.backend:
        return "could_not_run", f"the product was computed on {first.device.type}, not on {place.backend}", {}
    value: dict[str, Any] = {
        "shape": list(shape),
        "elements": first.numel(),
        "not_finite": int((~torch.isfinite(first)).sum()),
        "different": 0,
        "repeats": 1,
        "sha256": sha256_of(first),
    }
    if value["not_finite"]:
        return "fail", "{not_finite} of {elements} elements of a product of small random numbers are NaN or Inf".format(**value), value
    for again in repeated(place, dtype, lambda: multiply(poisoned(place, dtype, shape)), deadline):
        value["repeats"] += 1
        if not torch.equal(again, first):
            value["different"] = int((again != first).sum())
            return "fail", "repetition {repeats} of the same product differs from the first in {different} of {elements} elements".format(**value), value
    return "pass", None, value
