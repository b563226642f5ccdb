# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One step of training in small: data-parallel with mixed precision, compiled, in fp8, and with Transformer Engine. Integers where that makes it exact."""

from __future__ import annotations

import importlib
import importlib.util
import math
import warnings
from typing import Any, Iterator

from .budget import NoTimeLeft
from .place import Place
from .products import compare, scaled_product

DDP_STEP = "training.ddp_step"
COMPILE = "training.compile"
FP8 = "training.fp8"
TRANSFORMER_ENGINE = "training.transformer_engine"
NAMES = (DDP_STEP, COMPILE, FP8, TRANSFORMER_ENGINE)
# Rows of a batch, inputs and outputs of the layer: small enough for exact sums in 16 bits, and fp8 wants multiples of 16.
BATCH, INPUTS, OUTPUTS = 16, 64, 32
# The gradient's scale and the step size are powers of two: exact.
SCALE, RATE = 16.0, 0.125
# Of fp8 (E4M3, 3 bits behind the point) a result may be off by so much of its largest value.
FP8_TOLERANCE = 0.0625


def integers(torch: Any, rows: int, columns: int, largest: int, seed: int) -> Any:
    """A matrix of integers up to ``largest`` in magnitude on the CPU, the same for a seed in every rank."""
    generator = torch.Generator().manual_seed(20261201 + seed)
    return torch.randint(-largest, largest + 1, (rows, columns), generator=generator, dtype=torch.int64)


def ddp_step(place: Place) -> Any:
    """One step with DistributedDataParallel, autocast and a gradient scaler; every rank's averaged gradient and new weights against the exact ones.

    The loss is the sum of ``outputs * wanted`` with integers, so that the gradient of the weights is ``wanted^T @ inputs``, averaged over the ranks.
    Sums stay below 2048 (fp16) and, on the CPU, 256 (bf16). A division by a number of ranks that is no power of two is rounded once.
    """
    torch, backend, rank, world = place.torch, place.backend, place.rank, place.world
    layer = torch.nn.Linear(INPUTS, OUTPUTS, bias=False)
    start = integers(torch, OUTPUTS, INPUTS, 1, 0)
    with torch.no_grad():
        layer.weight.copy_(start)
    layer = layer.to(place.device)
    model = torch.nn.parallel.DistributedDataParallel(layer, device_ids=[torch.cuda.current_device()] if backend == "cuda" else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    scaler = scaler_for(torch, backend)
    narrow = torch.float16 if backend == "cuda" else torch.bfloat16
    inputs = [integers(torch, BATCH, INPUTS, 2, 100 + r) for r in range(world)]
    wanted = [integers(torch, BATCH, OUTPUTS, 1, 200 + r) for r in range(world)]
    with torch.autocast(backend, dtype=narrow):
        outputs = model(inputs[rank].float().to(place.device))
    loss = (outputs.float() * wanted[rank].float().to(place.device)).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    gradient = layer.weight.grad.detach().clone()
    scaler.step(optimizer)
    scaler.update()
    total = sum(wanted[r].t() @ inputs[r] for r in range(world))
    found = compare(torch, (gradient.double() * world).round(), total)
    off = float((gradient.double().cpu() * world - total).abs().max())
    after = start.double() - RATE * total.double() / world
    weights_off = float((layer.weight.detach().double().cpu() - after).abs().max())
    same = same_everywhere(torch, layer.weight.detach())
    allowed = 0.0 if world & (world - 1) == 0 else 1e-3
    value = {
        "world": world,
        "elements": found["elements"],
        "wrong": found["wrong"],
        "gradient_off": off,
        "weights_off": weights_off,
        "same_on_all_ranks": same,
        "scale": float(scaler.get_scale()),
        "autocast": str(outputs.dtype),
        "loss": float(loss),
    }
    if str(outputs.dtype) != str(narrow):
        return "fail", "autocast left the layer's output in {autocast}".format(**value), value
    if found["wrong"] or off > allowed or weights_off > allowed or not same or value["scale"] != SCALE:
        reason = "{wrong} of {elements} averaged gradients are wrong; off by {gradient_off}, the weights by {weights_off}, same everywhere: {same_on_all_ranks}"
        return "fail", reason.format(**value), value
    return "pass", None, value


def scaler_for(torch: Any, backend: str) -> Any:
    """A gradient scaler of our scale. AttributeError where this torch has none for the CPU (before 2.3)."""
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(backend, init_scale=SCALE)
    if backend != "cuda":
        raise AttributeError("this torch has no gradient scaler for the CPU")
    return torch.cuda.amp.GradScaler(init_scale=SCALE)


def same_everywhere(torch: Any, tensor: Any) -> bool:
    """Whether every rank has the very same numbers."""
    highest, lowest = tensor.clone(), tensor.clone()
    torch.distributed.all_reduce(highest, op=torch.distributed.ReduceOp.MAX)
    torch.distributed.all_reduce(lowest, op=torch.distributed.ReduceOp.MIN)
    return bool(torch.equal(highest, lowest))


def compiled(place: Place) -> Any:
    """A function with a product, a sum and an activation, compiled, against the exact integers; with its gradient. could_not_run where nothing can compile."""
    torch, device = place.torch, place.device
    left, right = integers(torch, BATCH, INPUTS, 2, 1), integers(torch, INPUTS, OUTPUTS, 2, 2)

    def function(a: Any, b: Any) -> Any:
        return torch.relu(a @ b + 1) * 2

    try:
        made = torch.compile(function, fullgraph=True)
        a = left.float().to(device).requires_grad_()
        out = made(a, right.float().to(device))
        out.sum().backward()
    except Exception as error:
        return "could_not_run", f"the image cannot compile: {why_not_compiled(error)}", {}
    truth = torch.relu(left @ right + 1) * 2
    slope = ((truth > 0).long() * 2) @ right.t()
    found, gradient = compare(torch, out.detach(), truth), compare(torch, a.grad, slope)
    value = {"elements": found["elements"] + gradient["elements"], "wrong": found["wrong"] + gradient["wrong"], "compiler": "inductor"}
    if value["wrong"]:
        first = found["first_wrong"] or gradient["first_wrong"]
        return "fail", f"{value['wrong']} of {value['elements']} elements of the compiled function are wrong, the first: {first}", value
    return "pass", None, value


def causes(error: BaseException) -> Iterator[BaseException]:
    """An error and what it came from, the nearest first."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def why_not_compiled(error: Exception) -> str:
    """Why there is no compiled function, in words. The error itself is raised where it was the GPU's fault or where time was over.

    Everything else is software that lacks something: a compiler, Triton, headers, this Python.
    """
    words = [f"{type(cause).__name__}: {' '.join(str(cause).split())[:300]}" for cause in causes(error)]
    for cause, said in zip(causes(error), words):
        if isinstance(cause, NoTimeLeft) or "CUDA error" in said or "[CUDA]" in said:
            raise cause
    return "; from ".join(words[:4])


def fp8_step(place: Place) -> Any:
    """Forward and backward product of a layer in fp8 with scales: activations and weights in E4M3, gradients in E5M2; small integers, so exact."""
    torch = place.torch
    activations, weights = integers(torch, INPUTS, INPUTS, 2, 1), integers(torch, INPUTS, INPUTS, 1, 2)
    gradients = integers(torch, INPUTS, INPUTS, 1, 3)
    forward = compare(torch, _twice(place, activations, weights, torch.float8_e4m3fn), (activations @ weights) * 2)
    backward = compare(torch, _twice(place, gradients, weights.t(), torch.float8_e5m2), (gradients @ weights.t()) * 2)
    value = {"elements": forward["elements"] + backward["elements"], "wrong": forward["wrong"] + backward["wrong"], "formats": ["e4m3fn", "e5m2"]}
    if value["wrong"]:
        first = forward["first_wrong"] or backward["first_wrong"]
        return "fail", f"{value['wrong']} of {value['elements']} elements are wrong, the first: {first}", value
    return "pass", None, value


def _twice(place: Place, left: Any, right: Any, kind: Any) -> Any:
    """Twice the product of two matrices of integers, by scales of 1/2 and 4: ``left`` in the given fp8 format, ``right`` in E4M3."""
    torch, device = place.torch, place.device
    scales = (torch.tensor(0.5, device=device), torch.tensor(4.0, device=device))
    narrow = left.float().to(kind).to(device)
    columns = right.t().float().contiguous().to(torch.float8_e4m3fn).to(device).t()
    return scaled_product(torch, narrow, columns, scales)


def transformer_engine(place: Place) -> Any:
    """A linear layer of Transformer Engine in fp8, forward and backward, within the accuracy of fp8. could_not_run where the image has none."""
    torch, device = place.torch, place.device
    if importlib.util.find_spec("transformer_engine") is None:
        return "could_not_run", "the image has no Transformer Engine", {}
    engine = importlib.import_module("transformer_engine.pytorch")
    inputs, weights = integers(torch, INPUTS, INPUTS, 2, 1), integers(torch, INPUTS, INPUTS, 1, 2)
    layer = engine.Linear(INPUTS, INPUTS, bias=False, params_dtype=torch.bfloat16, device=device)
    with torch.no_grad():
        layer.weight.copy_(weights)
    given = inputs.bfloat16().to(device).requires_grad_()
    with warnings.catch_warnings(), engine.fp8_autocast(enabled=True):
        warnings.simplefilter("ignore")
        out = layer(given)
    out.sum().backward()
    truths = {"outputs": (out, inputs @ weights.t()), "gradients": (given.grad, torch.ones_like(inputs) @ weights)}
    value: dict[str, Any] = {"elements": 0, "version": str(getattr(importlib.import_module("transformer_engine"), "__version__", "unknown"))}
    for name, (got, truth) in truths.items():
        off = float((got.detach().double().cpu() - truth.double()).abs().max() / truth.abs().max())
        value["elements"] += truth.numel()
        value[f"{name}_off"] = off
        if math.isnan(off) or off > FP8_TOLERANCE:
            return "fail", f"the layer's {name} are off by {off:.3g} of their largest, {FP8_TOLERANCE} is what fp8 allows", value
    return "pass", None, value
