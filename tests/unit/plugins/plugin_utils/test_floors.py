# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Every floor of the catalog: that it is plausible, that a figure on each side of it is judged as it says, and that the records of a real GPU bear it out."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import ALL_REDUCE, HOST_COPIES, Figure, judge_all_reduce, judge_gpus, unit_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.busbw import BYTES
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.figures import HOST_BYTES, MATMUL_SHAPES, MEMORY_BYTES, MEMORY_COPY
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Check, Requirement, evaluate
from ansible_collections.rackready.gpu.plugins.plugin_utils import catalog_loader

ROOT = Path(__file__).resolve().parents[4]
CATALOG = catalog_loader.load()
FLOORS = [(slug, figure, floor) for slug, figures in CATALOG.floors.items() for figure, floors in figures.items() for floor in floors]
NAMES = [f"{slug} {figure} {floor['gpus']}" for slug, figure, floor in FLOORS]
CONFIRMED = [(slug, figure, floor) for slug, figure, floor in FLOORS if floor["verified"]]
H200 = ROOT / "tests" / "hardware" / "2026-12-01-h200"
# GB/s that 16 lanes carry each way, by the generation of PCIe that GPUs of an architecture have.
LINK_GBS = {"ampere": 31.5, "hopper": 63.0, "blackwell": 63.0}
# A confirmed floor is so much of the lowest figure in the records of its source (floors.yml).
MARGIN = 0.9
every_floor = pytest.mark.parametrize(("slug", "name", "floor"), FLOORS, ids=NAMES)


def conditions_of(name: str) -> str:
    """The conditions under which the payload measures a figure on a whole GPU."""
    kind, _dot, what = name.partition(".")
    if kind == "matmul":
        shape = " x ".join(map(str, MATMUL_SHAPES["cuda"][what]))
        return f"{shape}, random data" + (", full accumulation" if what == "fp8" else "")
    if name == MEMORY_COPY:
        return f"{MEMORY_BYTES['cuda']} bytes within the memory, read and written"
    return f"{HOST_BYTES} bytes, pinned memory, one GPU at a time" if name in HOST_COPIES else f"{BYTES['cuda'][-1]} bytes of fp32, sum, bus bandwidth"


@every_floor
def test_a_floor_is_what_the_payload_measures_as_it_measures_it(slug: str, name: str, floor: dict[str, Any]) -> None:
    """A floor that nothing is ever held against looks like one that is."""
    kernels = {"matmul": "torch.mm", "copy": "Tensor.copy_", "memory": "Tensor.copy_", "all_reduce": "torch.distributed.all_reduce"}
    kernel = "torch._scaled_mm" if name == "matmul.fp8" else kernels[name.partition(".")[0]]
    assert slug in CATALOG.gpus
    assert (floor["unit"], floor["kernel"], floor["conditions"]) == (unit_of(name), kernel, conditions_of(name))
    assert (floor["gpus"] > 1) == (name == ALL_REDUCE)
    twins = [other for other in CATALOG.floors[slug][name] if (other["gpus"], other["conditions"]) == (floor["gpus"], floor["conditions"])]
    assert len(twins) == 1, "only one of two floors for the same thing can be used"


@every_floor
def test_a_floor_can_be_failed_and_can_be_reached(slug: str, name: str, floor: dict[str, Any]) -> None:
    """Between a quarter and 0.95 of the peak. Bus bandwidth has no peak to compare with, as switches reduce."""
    if name == ALL_REDUCE:
        return
    gpu = CATALOG.gpus[slug]
    kind, _dot, what = name.partition(".")
    peak = gpu["peak_dense_tflops"][what] if kind == "matmul" else gpu["memory_gbs"] if name == MEMORY_COPY else LINK_GBS[gpu["architecture"]]
    assert 0.25 < floor["floor"] / peak < 0.95


def test_the_floor_of_more_gpus_is_not_lower() -> None:
    for slug in CATALOG.floors:
        by_count = [floor["floor"] for floor in sorted(CATALOG.floors[slug].get(ALL_REDUCE, []), key=lambda floor: floor["gpus"])]
        assert by_count == sorted(by_count)


def judged(slug: str, name: str, floor: dict[str, Any], median: float) -> Check:
    """A figure of so much, under the conditions of a floor, held against the catalog."""
    value = {"median": median, "samples": [median], "world": floor["gpus"], **{key: floor[key] for key in ("unit", "kernel", "conditions")}}
    if name == ALL_REDUCE:
        return judge_all_reduce(Figure(None, value), CATALOG.floors, slug, floor["gpus"])
    [check] = judge_gpus(name, [Figure(ExpectedGpu("0000:1a:00.0", model=slug), value)], CATALOG.floors)
    return check


@every_floor
def test_a_figure_on_either_side_of_a_floor_is_judged_as_the_floor_says(slug: str, name: str, floor: dict[str, Any]) -> None:
    """A confirmed one decides; one that is not confirmed makes the figure degraded on both sides, and the record says so."""
    value = floor["floor"]
    said = [judged(slug, name, floor, median) for median in (value * 0.999, value, value * 1.001)]
    assert [check["status"] for check in said] == (["fail", "pass", "pass"] if floor["verified"] else ["degraded"] * 3)
    assert all(check["floor"] == floor for check in said)
    if not floor["verified"]:
        assert all("was never confirmed on hardware" in str(check["reason"]) for check in said)


# --- confirmed ones, and the runs that confirm them


def recorded(folder: Path, name: str, conditions: str) -> Iterator[float]:
    """Every figure that the records of a folder hold under these conditions, in their runs one by one."""
    for path in folder.glob("record-*.json"):
        for check in json.loads(path.read_text(encoding="utf-8"))["checks"]:
            if check["name"] == f"speed.{name}" and (check["value"] or {}).get("conditions") == conditions:
                yield check["value"]["median"]
    for line in (folder / "accept.jsonl").read_text(encoding="utf-8").splitlines():
        event = json.loads(line)
        if (event["event"], event.get("name")) == ("measured", name) and event["value"]["conditions"] == conditions:
            yield event["value"]["median"]
    again = json.loads((folder / "figures.json").read_text(encoding="utf-8"))["spread of quick"]
    yield from again.get(f"{name} of rank 0", {"medians": []})["medians"]
    size = conditions.partition(",")[0].replace(" x ", "x").partition(" ")[0]
    yield from json.loads((folder / "sweep.json").read_text(encoding="utf-8"))[name]["variants"][size]


@pytest.mark.parametrize(("slug", "name", "floor"), CONFIRMED, ids=[name for _slug, name, _floor in CONFIRMED])
def test_a_confirmed_floor_is_nine_tenths_of_the_lowest_figure_in_the_records_of_its_source(slug: str, name: str, floor: dict[str, Any]) -> None:
    [source] = floor["source"]
    folder = ROOT / CATALOG.sources[source]["ref"]
    runs = list(recorded(folder, name, floor["conditions"]))
    assert len(runs) >= 2, "one run shows nothing of how far runs differ"
    assert floor["floor"] == math.floor(MARGIN * min(runs))
    assert floor["date"] == folder.name[:10]
    assert floor["gpus"] == 1


def test_of_the_h200_every_figure_of_one_gpu_is_confirmed_and_of_no_other_model_any() -> None:
    measured = {*(f"matmul.{dtype}" for dtype in MATMUL_SHAPES["cuda"]), MEMORY_COPY, *HOST_COPIES}
    assert {(slug, name) for slug, name, _floor in CONFIRMED} == {("h200-sxm-141gb", name) for name in measured}


@pytest.mark.parametrize(("tier", "figures"), [("quick", 4), ("accept", 9)])
def test_a_recorded_h200_is_accepted_today_with_every_figure_passed(tier: str, figures: int) -> None:
    """Its records are older than these floors, and call every figure degraded."""
    record = json.loads((H200 / f"record-container-{tier}.json").read_text(encoding="utf-8"))
    then = {check["name"]: check for check in record["checks"] if check["name"].startswith("speed.") and check["value"]}
    assert (len(then), {check["status"] for check in then.values()}) == (figures, {"degraded"})
    gpu = next(iter(then.values()))["gpu"]
    card = ExpectedGpu(gpu["pci_bus_id"], uuid=gpu["uuid"], model="h200-sxm-141gb")
    now = {}
    for name, check in then.items():
        [now[name]] = judge_gpus(name.removeprefix("speed."), [Figure(card, check["value"])], CATALOG.floors)
    assert {check["status"] for check in now.values()} == {"pass"}
    excused = {check["name"]: check["reason"] for check in record["checks"] if check["status"] == "not_applicable"}
    required = [Requirement(check["name"], check["gpu"]) for check in record["checks"] if check["required"]]
    verdict = evaluate([now.get(check["name"], check) for check in record["checks"]], required, "cuda", "reject", excused)
    assert verdict["verdict"] == "accepted"
    assert "degraded" not in verdict["reason"]


def test_a_recorded_h200_that_were_an_eighth_slower_is_rejected() -> None:
    record = json.loads((H200 / "record-container-accept.json").read_text(encoding="utf-8"))
    seen = [check for check in record["checks"] if check["name"].startswith("speed.") and check["value"]]
    for check in seen:
        median = check["value"]["median"] * 7 / 8
        slow = Figure(ExpectedGpu("0000:00:06.0", model="h200-sxm-141gb"), {**check["value"], "median": median, "samples": [median]})
        [now] = judge_gpus(check["name"].removeprefix("speed."), [slow], CATALOG.floors)
        assert now["status"] == "fail", check["name"]
    assert len(seen) == 9
