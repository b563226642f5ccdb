# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a pass of the payload shows its work: the numbers that the whole of a check must have, by name. Pure.

A word costs nothing. What counts is that so many elements were compared in so many repetitions, and that none of them was wrong.
"""

from __future__ import annotations

from typing import Any, Callable, Mapping

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import exchange, pairs
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import SHAPES, least_repeats
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.repeats import REPEAT_SHAPES
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.training import INPUTS, OUTPUTS
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container

EXACT, REPEAT, TRAINING = "matmul_exact.", "matmul_repeat.", "training."
ABSENT = "absent"


def lacking(name: str, value: Any, container: Container) -> str | None:
    """What is missing from the numbers of a pass, or None. A check of which nobody knows what its work is cannot pass."""
    if not isinstance(value, dict):
        return "gave no numbers"
    kind = next((prefix for prefix in (EXACT, REPEAT) if name.startswith(prefix)), name)
    wanted = _WANTED.get(kind, _training if name.startswith(TRAINING) else None)
    if wanted is None:
        return "nobody knows what its work is"
    return wanted(name, value, container)


def _equal(value: Mapping[str, Any], wanted: Mapping[str, Any]) -> str | None:
    """The first number that is not what the whole work has; true is not 1."""
    for key, amount in wanted.items():
        if value.get(key, ABSENT) != amount or type(value[key]) is not type(amount):
            return f"{key} is {value.get(key)!r}, {amount} is the whole test"
    return None


def _least(value: Mapping[str, Any], key: str, least: float) -> str | None:
    told = value.get(key)
    if isinstance(told, bool) or not isinstance(told, (int, float)) or not told >= least:
        return f"{key} is {told!r}, {least} is the least"
    return None


def _exact(name: str, value: Mapping[str, Any], container: Container) -> str | None:
    rows, _inner, columns = SHAPES[container.backend]
    wanted = {"shape": list(SHAPES[container.backend]), "elements": rows * columns, "wrong": 0, "nan": 0, "inf": 0}
    return _equal(value, wanted) or _least(value, "repeats", least_repeats(name[len(EXACT) :], container.backend, container.tier))


def _repeat(name: str, value: Mapping[str, Any], container: Container) -> str | None:
    rows, _inner, columns = REPEAT_SHAPES[container.backend]
    wanted = {"shape": list(REPEAT_SHAPES[container.backend]), "elements": rows * columns, "not_finite": 0, "different": 0}
    return _equal(value, wanted) or _least(value, "repeats", least_repeats(name[len(REPEAT) :], container.backend, container.tier))


def _collective(name: str, value: Mapping[str, Any], container: Container) -> str | None:
    amount = exchange.amount_of(name, container.backend, container.tier, container.world)
    return _equal(value, {**amount, "wrong": 0, "nan": 0, "inf": 0})


def _pairs(name: str, value: Mapping[str, Any], container: Container) -> str | None:
    del name
    return _equal(value, {**pairs.amount_of(container.backend, container.ranks), "wrong": 0})


def _burn(name: str, value: Mapping[str, Any], container: Container) -> str | None:
    del name
    return _equal(value, {"wrong": 0, "nan": 0, "inf": 0}) or _least(value, "seconds", container.burn_seconds) or _least(value, "products", 1)


def _ddp(name: str, value: Mapping[str, Any], container: Container) -> str | None:
    del name
    return _equal(value, {"world": container.ranks, "elements": INPUTS * OUTPUTS, "wrong": 0, "same_on_all_ranks": True})


def _training(name: str, value: Mapping[str, Any], container: Container) -> str | None:
    """Steps that only some images can do: that they compared something, and nothing of it was wrong."""
    del name, container
    return _least(value, "elements", 1) or (_equal(value, {"wrong": 0}) if "wrong" in value else None)


_WANTED: Mapping[str, Callable[[str, Mapping[str, Any], Container], str | None]] = {
    EXACT: _exact,
    REPEAT: _repeat,
    **dict.fromkeys(exchange.COLLECTIVES, _collective),
    pairs.PAIR_EXACT: _pairs,
    "burn": _burn,
    "training.ddp_step": _ddp,
}
