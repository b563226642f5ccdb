# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a rank has to do, in order: every check and every figure as a stage with its work and the time that it needs at least."""

from __future__ import annotations

import os
from functools import partial
from typing import Any, Callable, NamedTuple

from . import burn, busbw, exchange, figures, hosts, pairs, products, repeats, training
from .budget import Deadline, interrupted
from .options import Options
from .place import Place
from .surroundings import cpus_near

# How a stage is begun: each rank by itself, all ranks at once, or one rank after the other.
BY_ITSELF, AT_ONCE, IN_TURN = "by itself", "at once", "in turn"
# Seconds that a stage needs at least, by what it does.
ALONE, TOGETHER, COMPILING = 0.5, 1.0, 10.0
# How the names of the checks begin whose products have a hash.
REPEAT = "matmul_repeat."


class Stage(NamedTuple):
    """A check or a figure: what it is called, how it is begun, seconds that it needs at least, and its work, which is given a ``deadline``.

    The work of a check gives (status, reason, value), that of a figure its value, or None where another rank reports it.
    """

    name: str
    begun: str
    least: float
    work: Callable[..., Any]
    measures: bool = False


def stages_of(place: Place, dtypes: list[str], options: Options) -> list[Stage]:
    """All stages. What the ranks do at once or in turn they do in the same order, whatever chip each of them has."""
    return [*_products(place, dtypes), *_exchanges(place, options), *_figures(place, dtypes, options), *_trainings(place, dtypes, options)]


def _products(place: Place, dtypes: list[str]) -> list[Stage]:
    exact = [Stage(f"matmul_exact.{dtype}", BY_ITSELF, ALONE, partial(products.matmul_exact, place, dtype)) for dtype in dtypes]
    return exact + [Stage(f"{REPEAT}{dtype}", BY_ITSELF, ALONE, partial(repeats.matmul_repeat, place, dtype)) for dtype in dtypes]


def _exchanges(place: Place, options: Options) -> list[Stage]:
    if not options.collective:
        return []
    names = [exchange.ALL_REDUCE] if options.tier == "quick" else list(exchange.COLLECTIVES)
    stages = [Stage(name, AT_ONCE, TOGETHER, partial(exchange.collective_exact, place, name)) for name in names]
    if options.tier != "quick" and place.world > 1:
        stages.append(Stage(pairs.PAIR_EXACT, AT_ONCE, TOGETHER, partial(pairs.pair_exact, place)))
    return stages


def _figures(place: Place, dtypes: list[str], options: Options) -> list[Stage]:
    known = {
        figures.MEMORY_COPY: Stage(figures.MEMORY_COPY, BY_ITSELF, ALONE, partial(figures.memory_copy, place), True),
        figures.ALL_REDUCE_SPEED: Stage(figures.ALL_REDUCE_SPEED, AT_ONCE, TOGETHER, partial(busbw.all_reduce_speed, place), True),
        figures.PAIR_SPEED: Stage(figures.PAIR_SPEED, AT_ONCE, TOGETHER, partial(pairs.pair_speed, place), True),
        figures.HOST_PAIRS: Stage(figures.HOST_PAIRS, AT_ONCE, TOGETHER, partial(hosts.host_pairs, place, options.hosts), True),
    }
    for dtype in figures.MATMUL_SHAPES[place.backend]:
        name = f"matmul.{dtype}"
        known[name] = Stage(name, BY_ITSELF, ALONE, partial(figures.matmul, place, dtype), True)
    for name in figures.HOST_COPIES:
        known[name] = Stage(name, IN_TURN, ALONE * place.world, partial(_near, place, figures.host_copy, name), True)
    return [known[name] for name in options.figures]


def _near(place: Place, work: Callable[..., dict[str, Any]], name: str, deadline: Deadline) -> dict[str, Any]:
    """Work on the CPUs next to the GPU, so that the memory that it takes is there too."""
    before, near = os.sched_getaffinity(0), cpus_near(place.bus_id)
    if near:
        os.sched_setaffinity(0, near)
    try:
        return {**work(place, name, deadline), "cpus": len(near) or None}
    finally:
        os.sched_setaffinity(0, before)


def _step(work: Callable[[Place], Any], place: Place, deadline: Deadline) -> Any:
    """A step of training that a rank makes by itself, ended when its time is over."""
    with interrupted(deadline):
        return work(place)


def _joint_step(work: Callable[[Place], Any], place: Place, deadline: Deadline) -> Any:
    """A step of all ranks. It is one piece of work, which no rank may end alone."""
    del deadline
    return work(place)


def _trainings(place: Place, dtypes: list[str], options: Options) -> list[Stage]:
    known = {
        training.DDP_STEP: Stage(training.DDP_STEP, AT_ONCE, TOGETHER, partial(_joint_step, training.ddp_step, place)),
        training.COMPILE: Stage(training.COMPILE, BY_ITSELF, COMPILING, partial(_step, training.compiled, place)),
        training.FP8: Stage(training.FP8, BY_ITSELF, ALONE, partial(_step, training.fp8_step, place)),
        training.TRANSFORMER_ENGINE: Stage(training.TRANSFORMER_ENGINE, BY_ITSELF, TOGETHER, partial(_step, training.transformer_engine, place)),
    }
    stages = [known[name] for name in options.trainings]
    if options.burn_seconds:
        work = partial(burn.burn, place, burn.dtype_of(dtypes), options.burn_seconds)
        stages.append(Stage(burn.BURN, AT_ONCE if options.collective else BY_ITSELF, options.burn_seconds, work))
    return stages
