# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What measured figures and products say: against the floors of the model, against the other GPUs of the host, and against each other. Pure.

A floor stands for one model, number of GPUs, kernel and conditions, and is not used for anything else. One that was never confirmed on hardware, or none at
all, makes a figure ``degraded``: it was measured, and nobody can say that it is enough. The relative check is always on, since a floor cannot see the one
card that is slower than its siblings; alone it would pass a host whose cards are all slow.
"""

from __future__ import annotations

import math
import statistics
from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, alike, dtypes_of
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, DEGRADED, FAIL, NOT_APPLICABLE, PASS, Check, make_check

# Floors as the plan gives them: model, figure, and entries that each name the number of GPUs, kernel and conditions that they stand for.
Floors = Mapping[str, Mapping[str, Sequence[Mapping[str, Any]]]]

ALL_REDUCE = "all_reduce.busbw"
PAIRS = "pair.copy"
HOST_COPIES = ("copy.host_to_device", "copy.device_to_host")
PRODUCT_MATCH = "product_match"
# Healthy GPUs of one host differ by some percent. Below the host's median by so much: worth a look, and too slow.
BEHIND_WARN = 0.05
BEHIND_FAIL = 0.08
# Fewer of one model have no median that could tell which of them is the odd one.
MEDIAN_OF = 3
# Both directions of a link are alike; one that reaches less than this part of the other is said.
LOPSIDED = 0.8
# Two figures of one group of GPUs that are closer than this are the same.
SAME = 0.05
_WORST_FIRST = [FAIL, COULD_NOT_RUN, DEGRADED]
SLOW_REMEDY = "read window.throttle, window.xid and pcie_link of this GPU; test again when it is cool and alone; if it stays slow, have it replaced"
FLOOR_REMEDY = "confirm the figure on sound hardware and enter it into the catalog (floors.yml) with source and date"


class Figure(NamedTuple):
    """One measurement: whose it is (None: of all GPUs together), what the payload said, or why there is nothing, and whether that is the machine's fault."""

    gpu: ExpectedGpu | None
    value: Any
    missing: str | None = None
    failed: bool = False


class Finding(NamedTuple):
    """One thing that is to be said about a figure."""

    status: str
    reason: str
    remedy: str | None = None


def unit_of(name: str) -> str:
    return "TFLOP/s" if name.startswith("matmul.") else "GB/s"


def speed(name: str) -> str:
    """The check that judges a figure."""
    return f"speed.{name}"


def number(value: Any) -> float | None:
    """A finite number above zero, else None: what is not one was not measured."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if math.isfinite(value) and value > 0 else None


def integer(value: Any) -> int | None:
    """An integer, else None: in what JSON gave, True and False are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def lacking(name: str, value: Any) -> str | None:
    """What a figure lacks to be one, or None."""
    if not isinstance(value, dict):
        return "it gave no numbers"
    median, samples = number(value.get("median")), value.get("samples")
    if median is None:
        return f"its median is {value.get('median')!r}"
    if value.get("unit") != unit_of(name):
        return f"its unit is {value.get('unit')!r}, not {unit_of(name)}"
    if not isinstance(samples, list) or not samples or any(number(sample) is None for sample in samples):
        return "its samples are not numbers above zero"
    if not min(samples) <= median <= max(samples):
        return f"its median {median:g} lies outside its samples"
    missing = [key for key in ("kernel", "conditions") if not isinstance(value.get(key), str) or not value[key]]
    return f"it does not name its {' and '.join(missing)}" if missing else None


def floor_for(floors: Floors, model: str | None, name: str, gpus: int, value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The floor that stands for exactly this: model, figure, number of GPUs, kernel and conditions."""
    same = {"gpus": gpus, "unit": value["unit"], "kernel": value["kernel"], "conditions": value["conditions"]}
    return next((floor for floor in floors.get(str(model), {}).get(name, []) if all(floor[key] == same[key] for key in same)), None)


def against_floor(median: float, unit: str, floor: Mapping[str, Any] | None) -> Finding | None:
    """A verified floor that is reached has nothing to say."""
    if floor is None:
        return Finding(DEGRADED, "no floor known for this model, number of GPUs, kernel and conditions", FLOOR_REMEDY)
    below = median < floor["floor"]
    words = f"{median:.4g} {unit} is below the floor of {floor['floor']:g}" if below else f"the floor of {floor['floor']:g} {unit}, which it reaches,"
    if not floor["verified"]:
        return Finding(DEGRADED, f"{words}{', which' if below else ''} was never confirmed on hardware", FLOOR_REMEDY)
    return Finding(FAIL, words, SLOW_REMEDY) if below else None


def against_host(mine: float, others: Sequence[float], unit: str) -> Finding | None:
    """``others``: the figures of all GPUs of the model in this host, the own one among them."""
    if len(others) < MEDIAN_OF:
        return None
    median = statistics.median(others)
    behind = round(1 - mine / median, 6)
    words = f"{mine:.4g} {unit} is {behind * 100:.1f} % under the median of this host's {len(others)} GPUs ({median:.4g})"
    if behind > BEHIND_FAIL:
        return Finding(FAIL, words, SLOW_REMEDY)
    return Finding(DEGRADED, words, SLOW_REMEDY) if behind >= BEHIND_WARN else None


def lopsided(name: str, mine: float, back: float | None) -> Finding | None:
    """``back``: the other direction of the same GPU's link."""
    if back is None or mine >= LOPSIDED * back:
        return None
    return Finding(DEGRADED, f"{mine:.4g} GB/s is {mine / back * 100:.0f} % of the other direction ({back:.4g})", "compare pcie_link and the GPU's NUMA node")


def conclude(name: str, figure: Figure, findings: Sequence[Finding | None], floor: Any = None, more: Mapping[str, Any] | None = None) -> Check:
    """One check of everything that was found about a figure; the worst thing counts and is said first."""
    said = sorted((finding for finding in findings if finding), key=lambda finding: _WORST_FIRST.index(finding.status))
    sources = ", ".join(floor["source"]) + " " + floor["date"] if floor else "measured in the container"
    return make_check(
        speed(name),
        said[0].status if said else PASS,
        "; ".join(finding.reason for finding in said) or None,
        remedy=said[0].remedy if said else None,
        value={**(figure.value if isinstance(figure.value, dict) else {}), **(more or {})} or None,
        floor=dict(floor) if floor else None,
        unit=unit_of(name),
        source=sources,
        gpu=figure.gpu.gpu if figure.gpu else None,
    )


def missing_figure(name: str, figure: Figure) -> Check | None:
    """``could_not_run`` where there is no figure, or one without the numbers that show that it was measured."""
    if figure.missing is None:
        gap = lacking(name, figure.value)
        if gap is None:
            return None
        return conclude(name, figure, [Finding(COULD_NOT_RUN, f"the payload gave a figure, but {gap}")])
    return conclude(name, figure, [Finding(FAIL if figure.failed else COULD_NOT_RUN, figure.missing)])


def only_told(name: str, figure: Figure, why: str) -> Check:
    """A figure that is held against nothing; only what was wrong when it was measured counts."""
    if figure.failed:
        return conclude(name, figure, [Finding(FAIL, str(figure.missing))])
    check = conclude(name, figure, [])
    check["status"], check["reason"] = NOT_APPLICABLE, why
    return check


def judge_gpus(name: str, figures: Sequence[Figure], floors: Floors, backs: Mapping[str, Any] | None = None) -> list[Check]:
    """A figure that each GPU has for itself. ``backs``: bus id to what the same GPU reached in the other direction, for copies to and from the host."""
    own = [(figure.gpu, figure) for figure in figures if figure.gpu]
    medians = {gpu: float(figure.value["median"]) for gpu, figure in own if missing_figure(name, figure) is None}
    groups = list(alike(list(medians)).values())
    checks = []
    for gpu, figure in own:
        missing = missing_figure(name, figure)
        if missing:
            checks.append(missing)
            continue
        mine = medians[gpu]
        siblings = [medians[other] for group in groups if gpu in group for other in group]
        floor = floor_for(floors, gpu.model, name, 1, figure.value)
        back = number((backs or {}).get(gpu.pci_bus_id))
        found = [against_floor(mine, unit_of(name), floor), against_host(mine, siblings, unit_of(name)), lopsided(name, mine, back)]
        of_host = {"host_median": statistics.median(siblings)} if len(siblings) >= MEDIAN_OF else {}
        checks.append(conclude(name, figure, found, floor, of_host))
    return checks


def below_its_floor(figure: Figure, floors: Floors, model: str | None, world: int) -> bool:
    """Whether the all-reduce of a host is low by its floor, confirmed or not: worth the question whether reduction in the switches (NVLS) is why."""
    if missing_figure(ALL_REDUCE, figure):
        return False
    floor = floor_for(floors, model, ALL_REDUCE, world, figure.value)
    return floor is not None and float(figure.value["median"]) < floor["floor"]


def judge_all_reduce(figure: Figure, floors: Floors, model: str | None, world: int, without_nvls: Figure | None = None) -> Check:
    """The bus bandwidth of all GPUs together. ``without_nvls``: the same figure measured again without reduction in the switches, if that was done."""
    missing = missing_figure(ALL_REDUCE, figure)
    if missing:
        return missing
    if figure.value.get("world") != world:
        return conclude(ALL_REDUCE, figure, [Finding(COULD_NOT_RUN, f"{figure.value.get('world')!r} ranks took part, {world} GPUs are expected")])
    floor = floor_for(floors, model, ALL_REDUCE, world, figure.value)
    found = [against_floor(float(figure.value["median"]), unit_of(ALL_REDUCE), floor)]
    more: dict[str, Any] = {}
    if without_nvls is not None:
        again = None if missing_figure(ALL_REDUCE, without_nvls) else number(without_nvls.value["median"])
        more["without_nvls"] = again
        found.append(Finding(DEGRADED, why_slow(float(figure.value["median"]), again)))
    return conclude(ALL_REDUCE, figure, found, floor, more)


def why_slow(reached: float, without: float | None) -> str:
    """What a second measurement without NVLS says about a low all-reduce."""
    if without is None:
        return "measured again without NVLS it gave no figure, so the reason is not known"
    if reached > without * (1 + SAME):
        return f"without NVLS it is {without:.4g} GB/s: reduction in the switches works, and the links are slow"
    if reached < without * (1 - SAME):
        return f"without NVLS it is {without:.4g} GB/s: reduction in the switches is what slows it"
    return f"without NVLS it is {without:.4g} GB/s, the same: reduction in the switches is not in use (multicast is missing)"


def judge_pairs(figure: Figure, gpus: Sequence[ExpectedGpu], floors: Floors, uniform: bool) -> list[Check]:
    """Copies between every ordered pair, one check for each GPU with its slowest way out. ``uniform``: every pair has the same way, as through switches."""
    if len(gpus) < 2:
        return []
    gap = figure.missing or (None if isinstance(figure.value, dict) else "the payload gave a figure, but it gave no numbers")
    pairs, problem = ({}, gap) if gap else pair_table(figure.value.get("pairs"), len(gpus))
    if problem:
        return [conclude(PAIRS, Figure(gpu, figure.value), [Finding(FAIL if figure.failed else COULD_NOT_RUN, problem)]) for gpu in gpus]
    checks = []
    for rank, gpu in enumerate(gpus):
        target, slowest = min(((dst, speed) for (src, dst), speed in pairs.items() if src == rank), key=lambda entry: entry[1])
        value = {"slowest": slowest, "to": gpus[target].pci_bus_id, "kernel": figure.value.get("kernel"), "conditions": figure.value.get("conditions")}
        floor = floor_for(floors, gpu.model, PAIRS, 2, {**value, "unit": unit_of(PAIRS)})
        found = [against_floor(slowest, unit_of(PAIRS), floor)]
        if uniform:
            relative = against_host(slowest, list(pairs.values()), unit_of(PAIRS))
            found.append(relative and relative._replace(reason=f"to {gpus[target].pci_bus_id} {relative.reason.replace('GPUs', 'pairs')}"))
        checks.append(conclude(PAIRS, Figure(gpu, value), found, floor))
    return checks


def pair_table(pairs: Any, world: int) -> tuple[dict[tuple[int, int], float], str | None]:
    """(GB/s by (source, target), what is wrong with it or None)."""
    found: dict[tuple[int, int], float] = {}
    for entry in pairs if isinstance(pairs, list) else []:
        if isinstance(entry, list) and len(entry) == 3 and all(integer(rank) is not None for rank in entry[:2]) and number(entry[2]):
            found[entry[0], entry[1]] = float(entry[2])
    wanted = {(src, dst) for src in range(world) for dst in range(world) if src != dst}
    if set(found) != wanted:
        return {}, f"the payload gave {len(set(found) & wanted)} of {len(wanted)} pairs"
    return found, None


# --- the same product on every GPU of a model ----------------------------------------------------------------------------------------


def product_match(gpus: Sequence[ExpectedGpu], hashes: Mapping[str, Any]) -> list[Check]:
    """The seeded product of each number format, by its hash (bus id -> format -> hash): alike on all GPUs of a model, or the odd one is named."""
    checks = []
    for group in alike(gpus).values():
        if len(group) < 2:
            continue
        said = {gpu.pci_bus_id: hashes.get(gpu.pci_bus_id) for gpu in group}
        checks += [_match(gpu, group, said) for gpu in group]
    return checks


def _match(gpu: ExpectedGpu, group: Sequence[ExpectedGpu], said: Mapping[str, Any]) -> Check:
    source = "SHA-256 of the output in the container"
    dtypes = dtypes_of(gpu)
    seen = {dtype: [digest for digest in (_digest(said[other.pci_bus_id], dtype) for other in group) if digest] for dtype in dtypes}
    mine = {dtype: _digest(said[gpu.pci_bus_id], dtype) for dtype in dtypes}
    silent = [dtype for dtype in dtypes if not mine[dtype]]
    alone = [dtype for dtype in dtypes if len(seen[dtype]) < 2]
    if silent or alone:
        who, which = ("the payload gave no hash of its product", silent) if silent else ("no other GPU of its model gave a hash of its product", alone)
        return make_check(PRODUCT_MATCH, COULD_NOT_RUN, f"{who} in {', '.join(which)}", value=mine, source=source, gpu=gpu.gpu)
    odd = []
    for dtype in dtypes:
        of_mine, total = seen[dtype].count(str(mine[dtype])), len(seen[dtype])
        if of_mine * 2 > total:
            continue
        majority = any(seen[dtype].count(digest) * 2 > total for digest in seen[dtype])
        odd.append(f"{dtype} is that of {of_mine - 1} of {total - 1} other GPUs of its model" + ("" if majority else ", and none has a majority"))
    if odd:
        remedy = "take the GPU out of use and test it alone: a card whose product differs from its siblings' computes wrongly without saying so"
        return make_check(PRODUCT_MATCH, FAIL, f"its product in {'; '.join(odd)}", remedy=remedy, value=mine, source=source, gpu=gpu.gpu)
    return make_check(PRODUCT_MATCH, PASS, value={"compared": len(group)}, source=source, gpu=gpu.gpu)


def _digest(said: Any, dtype: str) -> str | None:
    digest = said.get(dtype) if isinstance(said, dict) else None
    return digest if isinstance(digest, str) else None
