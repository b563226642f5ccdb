#!/usr/bin/env python3
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How close the payload's shapes come to the best of many, on the real GPU of this machine, all in one run.

    python3 tests/hardware/sweep_on_gpu.py [--seconds 0.8] [--limit 300] [--out FILE]

Needs a Python with torch and a GPU. Prints one line a shape, then the ratio chosen/best of each figure: 0.95 is what the payload promises for an H200.
The chosen shape is measured first and last, as a GPU that gets warm gets slower, and its median counts.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections")]

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import figures, products, timing  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.budget import Deadline, NoTimeLeft  # noqa: E402
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.place import Place  # noqa: E402

Shape = tuple[int, int, int]
SQUARES = (2048, 4096, 6144, 8192, 10240, 12288, 16384)
# Long and flat ones, some of which others found to be the best of an H100.
FLAT: tuple[Shape, ...] = ((16384, 8192, 4096), (4096, 16384, 4096), (8192, 4096, 8192), (8192, 16384, 8192), (6144, 2816, 17920), (8192, 1536, 16384))
SLOW_SQUARES = (2048, 4096, 6144, 8192)
SHAPES: dict[str, tuple[Shape, ...]] = {
    "fp64": (*((n, n, n) for n in SLOW_SQUARES), (8192, 4096, 4096), (4096, 8192, 4096)),
    "fp32": (*((n, n, n) for n in SLOW_SQUARES), (8192, 4096, 4096), (4096, 8192, 4096)),
    **{dtype: (*((n, n, n) for n in SQUARES), *FLAT) for dtype in ("tf32", "fp16", "bf16", "fp8")},
}
MEMORY = tuple(2**bits for bits in range(26, 34))
HOST = tuple(2**bits for bits in range(22, 31))


class Sweep:
    """One GPU, and the time until which it may be used."""

    def __init__(self, torch: Any, seconds: float, limit: float) -> None:
        self.place = Place(torch, "cuda", "cuda:0")
        self.seconds = seconds
        self.deadline = Deadline(time.monotonic() + limit)
        self.found: dict[str, Any] = {}

    def take(self, figure: str, what: str, measured: Any) -> float | None:
        """Measure one variant; None, with the words, where it cannot be."""
        try:
            rate = float(measured()["median"])
        except NoTimeLeft as error:
            print(f"{figure:20} {what:24} no time left: {error}", flush=True)
            return None
        except Exception as error:
            print(f"{figure:20} {what:24} {type(error).__name__}: {str(error)[:120]}", flush=True)
            return None
        finally:
            self.place.torch.cuda.empty_cache()
        print(f"{figure:20} {what:24} {rate:9.2f}", flush=True)
        self.found.setdefault(figure, {"variants": {}})["variants"].setdefault(what, []).append(rate)
        return rate

    def conclude(self, figure: str, chosen: str) -> None:
        """The ratio of what the payload takes to the best."""
        entry = self.found.get(figure, {"variants": {}})
        rates = {what: timing.median(taken) for what, taken in entry["variants"].items()}
        if chosen not in rates:
            return
        best = max(rates, key=lambda what: rates[what])
        entry.update(chosen=chosen, rate=rates[chosen], best=best, best_rate=rates[best], ratio=round(rates[chosen] / rates[best], 4))
        print(f"{figure:20} chosen {chosen}: {rates[chosen]:.2f}, best {best}: {rates[best]:.2f}, ratio {entry['ratio']}\n", flush=True)

    def matmul(self, dtype: str) -> None:
        """The products of one format in every shape."""
        chosen = figures.MATMUL_SHAPES["cuda"][dtype]
        figure = f"matmul.{dtype}"
        for shape in (chosen, *(s for s in SHAPES[dtype] if s != chosen), chosen):
            what = "x".join(map(str, shape))
            self.take(figure, what, lambda s=shape: figures.matmul(self.place, dtype, self.deadline, shape=s, seconds=self.seconds))
        if dtype == "fp8":
            name = "x".join(map(str, chosen)) + " fast"
            self.take("matmul.fp8 (fast)", name, lambda: figures.matmul(self.place, dtype, self.deadline, shape=chosen, fast=True, seconds=self.seconds))
        self.take(f"{figure} (ones)", "x".join(map(str, chosen)), lambda: self.of_ones(dtype, chosen))
        self.conclude(figure, "x".join(map(str, chosen)))

    def of_ones(self, dtype: str, shape: Shape) -> dict[str, Any]:
        """The same product of ones: how much faster data is that toggles nothing, which is why a figure is taken on random data."""
        torch, kind = self.place.torch, products.torch_dtype(self.place.torch, dtype)
        products.set_precision(torch, dtype)
        left, right = (torch.ones(size, device="cuda:0").to(kind) for size in (shape[:2], shape[1:]))
        multiply = products.multiplier(torch, dtype, left, right)
        out = products.poisoned(self.place, dtype, shape)
        samples = timing.sample(self.place, lambda: multiply(out), self.seconds, self.deadline)
        return timing.figure(samples, 2e-12 * shape[0] * shape[1] * shape[2], "TFLOP/s", "", "ones")

    def copies(self) -> None:
        """Copies of every size within the memory and to the host and back."""
        for size in MEMORY:
            self.take(figures.MEMORY_COPY, str(size), lambda s=size: figures.memory_copy(self.place, self.deadline, size=s))
        self.conclude(figures.MEMORY_COPY, str(figures.MEMORY_BYTES["cuda"]))
        for name in figures.HOST_COPIES:
            for size in HOST:
                self.take(name, str(size), lambda n=name, s=size: figures.host_copy(self.place, n, self.deadline, size=s))
            self.conclude(name, str(figures.HOST_BYTES))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.8, help="of sampling for each product")
    parser.add_argument("--limit", type=float, default=300, help="seconds for everything")
    parser.add_argument("--out", type=Path, help="file for the figures as JSON")
    options = parser.parse_args()
    import torch  # noqa: PLC0415  only this machine needs it

    sweep = Sweep(torch, options.seconds, options.limit)
    print(f"{torch.cuda.get_device_name(0)}, torch {torch.__version__}\n")
    sweep.copies()
    for dtype in ("bf16", "fp8", "fp16", "tf32", "fp64", "fp32"):
        sweep.matmul(dtype)
    ratios = {figure: entry["ratio"] for figure, entry in sweep.found.items() if "ratio" in entry}
    print(json.dumps(ratios))
    if options.out:
        options.out.write_text(json.dumps(sweep.found, indent=1) + "\n", encoding="utf-8")
    return 0 if ratios and min(ratios.values()) >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
