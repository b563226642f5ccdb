# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Matrix products of small integers, exact in every format, compared element by element with the truth from the CPU."""

from __future__ import annotations

from typing import Any, Callable, Iterator, NamedTuple

from .budget import Deadline, NoTimeLeft
from .place import Place


class Product(NamedTuple):
    """A matrix product whose every partial sum is exact: integers, at most ``a_max * b_max * terms`` in magnitude.

    ``exact_max`` is the largest integer up to which input, accumulator and output hold every integer. Only one of ``stride`` consecutive entries of a
    column of B is non-zero, which leaves room for wider entries in A under a small ``exact_max``; shifted by column, every entry of A counts.
    """

    a_max: int
    b_max: int
    stride: int
    exact_max: int


# fp32 has entries of 12 bits on purpose: TF32 keeps 11, so a product that quietly ran in TF32 is wrong. fp64 likewise against fp32.
# fp8 (E4M3, integers to 16) has a bf16 output; its bound also stays inside the 14 bits that Hopper's fp8 accumulator keeps.
PRODUCTS = {
    "fp64": Product(a_max=2**20, b_max=2**20, stride=1, exact_max=2**53),
    "fp32": Product(a_max=4095, b_max=4, stride=1, exact_max=2**24),
    "tf32": Product(a_max=2047, b_max=4, stride=1, exact_max=2**24),
    "fp16": Product(a_max=8, b_max=1, stride=4, exact_max=2048),
    "bf16": Product(a_max=4, b_max=1, stride=16, exact_max=256),
    "fp8": Product(a_max=4, b_max=1, stride=16, exact_max=256),
}
TORCH_TYPES = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
# Lowest compute capability with the format in its matrix units; a rank leaves out what its own chip does not have.
LOWEST_CAPABILITY = {"fp64": (0, 0), "fp32": (0, 0), "fp16": (5, 3), "tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}
# Rows, inner length, columns; the inner length must keep every product of PRODUCTS inside its exact_max (a unit test says so).
SHAPES = {"cuda": (4096, 1024, 4096), "cpu": (128, 128, 128)}
# How many products are compared at least, by backend and tier: in formats of the matrix units, and in those at which a chip may be slow.
REPEATS = {
    "cuda": {"quick": (64, 8), "accept": (1000, 64), "burn": (1000, 64)},
    "cpu": {"quick": (2, 2), "accept": (10, 10), "burn": (10, 10)},
}
SLOW = ("fp64", "fp32")
# Seconds that the repeats of a slow format may take beyond the least.
REPEAT_SECONDS = 2.0
# Up to this many multiplications the reference is computed in 64-bit integers as a whole, above it in fp64 on the CPU, with a part in integers.
INTEGER_WORK_MAX = 2**27


def least_repeats(dtype: str, backend: str, tier: str) -> int:
    """How many products of a format a pass has compared at least, the first included."""
    return REPEATS[backend][tier][dtype in SLOW]


def operands(torch: Any, product: Product, shape: tuple[int, int, int]) -> tuple[Any, Any]:
    """The two integer matrices (int64, CPU) of a product; the same on every rank, so that GPUs of a host can be compared."""
    rows, inner, columns = shape
    seed = torch.Generator().manual_seed(20261201 + product.a_max)
    a = torch.randint(-product.a_max, product.a_max + 1, (rows, inner), generator=seed, dtype=torch.int64)
    b = torch.randint(-product.b_max, product.b_max + 1, (inner, columns), generator=seed, dtype=torch.int64)
    kept = (torch.arange(inner).unsqueeze(1) + torch.arange(columns).unsqueeze(0)) % product.stride == 0
    return a, b * kept


def reference(torch: Any, a: Any, b: Any) -> Any:
    """The true product as int64, from the CPU alone. Large ones in fp64, where these integers are exact, with some rows checked in integers."""
    rows, inner = a.shape
    if rows * inner * b.shape[1] <= INTEGER_WORK_MAX:
        return torch.mm(a, b)
    truth = torch.mm(a.double(), b.double()).long()
    sample = slice(0, rows, max(1, rows // 16))
    if not torch.equal(truth[sample], torch.mm(a[sample].contiguous(), b)):
        raise ArithmeticError("the reference on the CPU disagrees with itself: fp64 and 64-bit integers give different products")
    return truth


def torch_dtype(torch: Any, dtype: str) -> Any:
    """The torch type of our name for it. AttributeError where this torch has none."""
    return getattr(torch, TORCH_TYPES[dtype])


def set_precision(torch: Any, dtype: str) -> None:
    """Let fp32 products run in fp32 or, for tf32, in TF32; partial sums of split products stay in fp32."""
    # 'highest' is true fp32; 'high' lets the matrix units take TF32.
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False


def multiplier(torch: Any, dtype: str, left: Any, right: Any, fast: bool = False) -> Callable[[Any], Any]:
    """A callable that computes the product of two matrices of a format on their device, into the given output or, in fp8, into a new one that it returns.

    ``fast``: whether an fp8 product may add up in the matrix unit's own accumulator alone, which on Hopper has 14 bits.
    """
    if dtype != "fp8":
        return lambda out: torch.mm(left, right, out=out)
    columns = right.t().contiguous().t()
    one = torch.ones((), dtype=torch.float32, device=left.device)
    return lambda _out: scaled_product(torch, left, columns, (one, one), fast)


def scaled_product(torch: Any, left: Any, right: Any, scales: tuple[Any, Any], fast: bool = False) -> Any:
    """The product of two fp8 matrices, times both scales, in bf16. ``right`` has to lie column by column, as cuBLASLt wants it."""
    common = {"scale_a": scales[0], "scale_b": scales[1], "out_dtype": torch.bfloat16}
    try:
        made = torch._scaled_mm(left, right, use_fast_accum=fast, **common)
    except TypeError:  # 2.1 has no such choice and adds up in full
        made = torch._scaled_mm(left, right, **common)
    return made[0] if isinstance(made, tuple) else made  # a pair until 2.4


def poisoned(place: Place, dtype: str, shape: tuple[int, int, int]) -> Any:
    """Memory for a product that holds NaN: work that did not happen cannot look right. None in fp8, whose product the allocator gives that same block."""
    torch = place.torch
    kind = torch.bfloat16 if dtype == "fp8" else torch_dtype(torch, dtype)
    memory = torch.full((shape[0], shape[2]), float("nan"), dtype=kind, device=place.device)
    return None if dtype == "fp8" else memory


def compare(torch: Any, out: Any, truth: Any) -> dict[str, Any]:
    """The whole output against the truth, on the CPU: elements, wrong ones (NaN counts as wrong), NaN, Inf, and the first wrong one."""
    got = out.cpu().double()
    differs = got != truth.double()
    found: dict[str, Any] = {
        "elements": got.numel(),
        "wrong": int(differs.sum()),
        "nan": int(torch.isnan(got).sum()),
        "inf": int(torch.isinf(got).sum()),
        "first_wrong": None,
    }
    if found["wrong"]:
        at = tuple(int(i) for i in differs.nonzero()[0])
        found["first_wrong"] = {"at": list(at), "got": repr(float(got[at])), "expected": int(truth[at])}
    return found


def matmul_exact(place: Place, dtype: str, deadline: Deadline | None = None) -> Any:
    """One exactly checked matrix product, repeated; (status, reason, value)."""
    torch, shape = place.torch, SHAPES[place.backend]
    set_precision(torch, dtype)
    a, b = operands(torch, PRODUCTS[dtype], shape)
    truth = reference(torch, a, b)
    kind = torch_dtype(torch, dtype)
    multiply = multiplier(torch, dtype, a.double().to(kind).to(place.device), b.double().to(kind).to(place.device))
    first = multiply(poisoned(place, dtype, shape))
    if first.device.type != place.backend:
        return "could_not_run", f"the product was computed on {first.device.type}, not on {place.backend}", {}
    value = {"shape": list(shape), **compare(torch, first, truth)}
    value["repeats"] = 1
    if value["wrong"]:
        return "fail", "{wrong} of {elements} elements are wrong ({nan} NaN, {inf} Inf), the first: {first_wrong}".format(**value), value
    for again in repeated(place, dtype, lambda: multiply(poisoned(place, dtype, shape)), deadline):
        value["repeats"] += 1
        if not torch.equal(again, first):
            value.update(compare(torch, again, truth))
            return "fail", "repetition {repeats} differs from the first, correct product in {wrong} elements: {first_wrong}".format(**value), value
    return "pass", None, value


def repeated(place: Place, dtype: str, multiply: Callable[[], Any], deadline: Deadline | None) -> Iterator[Any]:
    """The product again and again, as often as the tier wants it beyond the first. NoTimeLeft where that does not fit."""
    least = least_repeats(dtype, place.backend, place.tier)
    most = least if place.tier == "quick" else REPEATS[place.backend][place.tier][0]
    soon = deadline.sooner(REPEAT_SECONDS) if deadline else None
    for done in range(1, most):
        if done < least and deadline and deadline.over():
            raise NoTimeLeft(f"{done} of {least} products were made and right")
        if done >= least and soon and soon.over():
            return
        yield multiply()
