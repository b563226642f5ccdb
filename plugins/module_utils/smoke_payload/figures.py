# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How fast one GPU is: its matrix units in each format, its memory, and the way between it and the host."""

from __future__ import annotations

from typing import Any

from .budget import Deadline
from .place import Place
from .products import poisoned
from .repeats import random_multiplier
from .timing import figure, sample

# Rows, inner length, columns; on an H200 each gives at least 0.95 of the best of many shapes (tests/hardware/sweep_on_gpu.py).
MATMUL_SHAPES = {
    "cuda": {
        "fp64": (6144, 6144, 6144),
        "fp32": (8192, 8192, 8192),
        "tf32": (8192, 8192, 8192),
        "fp16": (8192, 8192, 8192),
        "bf16": (8192, 8192, 8192),
        "fp8": (8192, 8192, 8192),
    },
    "cpu": dict.fromkeys(("fp64", "fp32", "tf32", "fp16", "bf16", "fp8"), (128, 128, 128)),
}
# Bytes of one buffer.
MEMORY_BYTES = {"cuda": 2**31, "cpu": 2**22}
HOST_BYTES = 2**28
# Seconds of sampling for one figure, by tier. A product is timed longer: under load the clocks settle. A figure of a CPU only shows that it can be taken.
SECONDS = {"cuda": {"quick": 0.5, "accept": 2.0, "burn": 2.0}, "cpu": dict.fromkeys(("quick", "accept", "burn"), 0.1)}
MATMUL_SECONDS = {"cuda": {"quick": 1.5, "accept": 10.0, "burn": 10.0}, "cpu": SECONDS["cpu"]}
# What is written between two samples, so that none finds its data in the cache; more than any chip's.
FLUSH_BYTES = {"cuda": 2**28, "cpu": 2**22}

MATMULS = tuple(f"matmul.{dtype}" for dtype in MATMUL_SHAPES["cuda"])
MEMORY_COPY = "memory.copy"
HOST_COPIES = ("copy.host_to_device", "copy.device_to_host")
ALL_REDUCE_SPEED = "all_reduce.busbw"
PAIR_SPEED = "pair.copy"
HOST_PAIRS = "hosts.pair.busbw"
NAMES = (*MATMULS, MEMORY_COPY, *HOST_COPIES, ALL_REDUCE_SPEED, PAIR_SPEED, HOST_PAIRS)


class WrongResult(Exception):
    """Work was timed whose result is wrong: its speed means nothing, and the device is at fault."""


def matmul(
    place: Place, dtype: str, deadline: Deadline, *, shape: tuple[int, int, int] | None = None, fast: bool = False, seconds: float | None = None
) -> dict[str, Any]:
    """TFLOP/s of one product, ``2 * rows * inner * columns`` operations each. WrongResult where the last one is not the first one, bit for bit.

    Shape, kind of adding up (``fast``, see multiplier) and seconds of sampling are given by those who look for better ones.
    """
    shape = shape or MATMUL_SHAPES[place.backend][dtype]
    rows, inner, columns = shape
    multiply = random_multiplier(place, dtype, shape, fast)
    first = multiply(poisoned(place, dtype, shape)).clone()
    out = poisoned(place, dtype, shape)
    flush = place.torch.empty(FLUSH_BYTES[place.backend], dtype=place.torch.uint8, device=place.device)
    samples = sample(place, lambda: multiply(out), seconds or MATMUL_SECONDS[place.backend][place.tier], deadline, flush.zero_)
    last = multiply(out)
    different = int((last != first).sum())
    if different:
        raise WrongResult(f"{different} of {last.numel()} elements of the product that was timed differ from the same product before")
    kernel = "torch._scaled_mm" if dtype == "fp8" else "torch.mm"
    summed = ("", ", fast accumulation" if fast else ", full accumulation")[dtype == "fp8"]
    return figure(samples, 2e-12 * rows * inner * columns, "TFLOP/s", kernel, f"{rows} x {inner} x {columns}, random data{summed}")


def memory_copy(place: Place, deadline: Deadline, *, size: int | None = None) -> dict[str, Any]:
    """GB/s of a copy within the device's memory, reading and writing both counted."""
    words = (size or room_for(place, MEMORY_BYTES[place.backend])) // 4
    source = place.torch.empty(words, dtype=place.torch.int32, device=place.device).random_()
    target = place.torch.zeros_like(source)
    samples = sample(place, lambda: target.copy_(source), SECONDS[place.backend][place.tier], deadline)
    wrong = int((source != target).sum())
    if wrong:
        raise WrongResult(f"{wrong} of {words} copied words are wrong")
    return figure(samples, 8e-9 * words, "GB/s", "Tensor.copy_", f"{4 * words} bytes within the memory, read and written", bytes=4 * words)


def room_for(place: Place, size: int) -> int:
    """So many bytes, or fewer where a small instance has no room for two such buffers."""
    if place.backend != "cuda":
        return size
    free, _total = place.torch.cuda.mem_get_info()
    while size > free // 4 and size > 2**20:
        size //= 2
    return size


def host_copy(place: Place, name: str, deadline: Deadline, *, size: int = HOST_BYTES) -> dict[str, Any]:
    """GB/s between the host's pinned memory and a GPU, one way. On the CPU there is no such way."""
    if place.backend != "cuda":
        raise NotImplementedError("the CPU is the host itself: there is nothing to copy to")
    torch = place.torch
    there = torch.arange(size // 4, dtype=torch.int32, device=place.device)
    here = torch.empty(size // 4, dtype=torch.int32, pin_memory=True).copy_(there)
    truth = here.clone()
    source, target = (here, there) if name == HOST_COPIES[0] else (there, here)
    target.zero_()
    samples = sample(place, lambda: target.copy_(source, non_blocking=True), SECONDS[place.backend][place.tier], deadline)
    wrong = int((target.cpu() != truth).sum())
    if wrong:
        raise WrongResult(f"{wrong} of {truth.numel()} copied words are wrong")
    return figure(samples, 1e-9 * size, "GB/s", "Tensor.copy_", f"{size} bytes, pinned memory, one GPU at a time", bytes=size)
