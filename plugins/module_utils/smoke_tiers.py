# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How thorough a test is: what each tier runs, requires and may take. Pure; the plan and the test itself ask the same questions here.

``quick``: exact products and all-reduce, and the figures that a GPU is bought for, within 2 minutes. ``accept``: every exact check, figure and training
step, within 6 minutes on one GPU and 10 on several. ``burn``: that, and then exactly checked products for as long as the operator chose.
"""

from __future__ import annotations

from typing import Mapping, NamedTuple, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_window
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import ALL_REDUCE, HOST_COPIES, PAIRS, PRODUCT_MATCH, speed
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, alike, dtypes_of, dtypes_to_run
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Requirement

TIERS = ("quick", "accept", "burn")
QUICK_S = 120
ACCEPT_ONE_S = 360
ACCEPT_S = 600
# Simulated hosts share the processors of one machine: loading torch alone takes them minutes.
CPU_S = 300
BURN_MINUTES = 60

HOST = ("gpu_count", "gpu_idle", "driver_library_match", "device_nodes", "imex", "container_limits", "container_run", "daemon_reload", smoke_window.SXID)
CARD = ("gpu_model", "gpu_memory", "compute_mode", "persistence", "mig_mode", "fabric", "gpu_health", *smoke_window.OF_EACH_GPU)
# Of what computes: only where it computes on the GPU does it matter what the image was built for, and which driver library it loads.
PART = ("gpu_identity",)
CUDA_PART = ("image_architecture", "image_cuda", "libcuda")

ALL_REDUCE_EXACT = "all_reduce_exact"
# The product of integers against the truth, and one of random numbers again and again, bit for bit.
PRODUCTS = ("matmul_exact", "matmul_repeat")
COLLECTIVES = (ALL_REDUCE_EXACT, "all_gather_exact", "reduce_scatter_exact", "all_to_all_exact")
PAIR_EXACT = "pair_exact"
DDP_STEP = "training.ddp_step"
# What an image may lack; a step that ran and is wrong counts all the same.
OPTIONAL_TRAININGS = ("training.compile", "training.fp8", "training.transformer_engine")
BURN = "burn"
GROUP_FIGURES = (ALL_REDUCE, PAIRS)
# Everything that needs a second GPU, or GPUs that can talk to each other.
BETWEEN = (ALL_REDUCE_EXACT, *COLLECTIVES[1:], PAIR_EXACT, DDP_STEP, *map(speed, GROUP_FIGURES))


def covers(tested: str | None, wanted: str) -> bool:
    """Whether a test in the tier ``tested`` showed all that one in ``wanted`` would. A tier that nobody knows shows nothing."""
    return tested in TIERS and TIERS.index(tested) >= TIERS.index(wanted)


def limit_s(tier: str, gpus: int, backend: str, burn_minutes: int = 0) -> int:
    """Seconds that the whole test may take, whatever the hardware does."""
    limit = QUICK_S if tier == "quick" else ACCEPT_ONE_S if gpus == 1 else ACCEPT_S
    if backend == "cpu":
        limit = max(limit, CPU_S)
    return limit + (burn_minutes * 60 if tier == "burn" else 0)


def fast_dtype(gpu: ExpectedGpu) -> str:
    """The number format that quick measures: bf16, or fp16 on chips before it."""
    return "bf16" if "bf16" in dtypes_of(gpu) else "fp16"


def figures_of(gpu: ExpectedGpu, tier: str, backend: str) -> list[str]:
    """Figures that each process measures for itself. The CPU has no way to the device that could be measured."""
    products = [fast_dtype(gpu)] if tier == "quick" else dtypes_of(gpu)
    copies = HOST_COPIES if backend == "cuda" else ()
    return [*(f"matmul.{dtype}" for dtype in products), "memory.copy", *copies]


class Work(NamedTuple):
    """What the payload is asked to do. ``collectives`` and ``pairs`` are exact checks between GPUs."""

    dtypes: list[str]
    figures: list[str]
    trainings: list[str]
    collectives: list[str]
    pairs: bool


def work(parts: Sequence[ExpectedGpu], tier: str, backend: str, excused: Mapping[str, str]) -> Work:
    """The work of a tier on these parts, without what the plan excused: on such hardware it could only fail or hang.

    Of figures nothing is left out for being excused alone, since a figure is worth having where nobody judges it.
    """
    several = len(parts) > 1
    thorough = tier != "quick"
    figures = list(dict.fromkeys(name for part in parts for name in figures_of(part, tier, backend)))
    figures += [name for name in GROUP_FIGURES if thorough and several and ALL_REDUCE_EXACT not in excused]
    trainings = [DDP_STEP, *(OPTIONAL_TRAININGS if backend == "cuda" else ())] if thorough else []
    collectives = COLLECTIVES if thorough else COLLECTIVES[:1]
    return Work(
        dtypes=[dtype for dtype in dtypes_to_run(parts) if f"matmul_exact.{dtype}" not in excused],
        figures=figures,
        trainings=[name for name in trainings if name not in excused],
        collectives=[name for name in collectives if name not in excused],
        pairs=thorough and several and PAIR_EXACT not in excused,
    )


def requirements(gpus: Sequence[ExpectedGpu], parts: Sequence[ExpectedGpu], tier: str, backend: str) -> list[Requirement]:
    """Everything that has to have a result: of the host, of each card, and of each part of one that gets a process of its own."""
    required = [Requirement(name) for name in HOST]
    for gpu in gpus:
        required += [Requirement(name, gpu.gpu) for name in CARD]
    for part in parts:
        required += [Requirement(name, part.gpu) for name in part_checks(part, tier, backend)]
    groups = alike(parts).values()
    # Where no card has a sibling the plan says so; where some have, those are compared.
    compared = [gpu for group in groups if len(group) > 1 or all(len(other) == 1 for other in groups) for gpu in group]
    required += [Requirement(PRODUCT_MATCH, gpu.gpu) for gpu in compared]
    if tier != "quick":
        required.append(Requirement(speed(ALL_REDUCE)))
    return required


def part_checks(part: ExpectedGpu, tier: str, backend: str) -> list[str]:
    """The checks of one process."""
    names = [*PART, *(CUDA_PART if backend == "cuda" else ()), ALL_REDUCE_EXACT]
    names += [f"{kind}.{dtype}" for dtype in dtypes_of(part) for kind in PRODUCTS]
    names += [speed(name) for name in figures_of(part, tier, backend)]
    if tier != "quick":
        names += [*COLLECTIVES[1:], PAIR_EXACT, DDP_STEP, speed(PAIRS)]
    return [*names, BURN] if tier == "burn" else names


def speeds(gpus: Sequence[ExpectedGpu], tier: str, backend: str) -> list[str]:
    """The checks of figures of this tier, for a plan that has to excuse them."""
    names = [speed(name) for gpu in gpus for name in figures_of(gpu, tier, backend)]
    return list(dict.fromkeys([*names, *(map(speed, GROUP_FIGURES) if tier != "quick" else ())]))


def not_exercised(parts: Sequence[ExpectedGpu], tier: str, backend: str) -> list[str]:
    """What a test of this kind never touches, for the record: that it was not tested must be read nowhere else."""
    said = ["exchange between hosts: one host was tested by itself"]
    if backend == "cpu":
        said.append("GPUs: everything was computed on the CPU")
    if any(part.instance for part in parts):
        said.append("exchange between GPUs and the speed of whole GPUs: GPUs are divided, and each part was tested by itself")
    elif len(parts) == 1:
        said.append("bandwidth and exchange between GPUs (all-reduce, copies between pairs): there is one GPU")
    elif tier == "quick":
        said.append("bandwidth between GPUs and copies between pairs: tier quick")
    if tier == "quick":
        said.append("other collectives than all-reduce, number formats' speed but one, training steps: tier quick")
    if tier != "burn":
        said.append("hours under load: only tier burn runs longer than some minutes")
    return said
