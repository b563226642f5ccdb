# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a tier requires, runs and may take; requirements come from nowhere else, so nothing that counts may be missing here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_tiers
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import speed
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, parts_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_tiers import GROUP_FIGURES, Work, limit_s, not_exercised, requirements, work

from tests.unit.hosts import BUS_IDS, CONVERGED, facts_for
from tests.unit.smoke_fakes import gpus, uuid_of

H200 = Path(__file__).parents[4] / "tests/hardware/2026-12-01-h200"
HOST = {"gpu_count", "gpu_idle", "driver_library_match", "device_nodes", "imex", "container_limits", "container_run", "daemon_reload", "window.sxid"}
CARD = {"gpu_model", "gpu_memory", "compute_mode", "persistence", "mig_mode", "fabric", "gpu_health", "pcie_link"}
CARD |= {f"window.{name}" for name in ("ecc", "row_remap", "nvlink", "replay", "throttle", "xid")}
FORMATS = ("fp64", "fp32", "fp16", "tf32", "bf16", "fp8")
QUICK = {"gpu_identity", "image_architecture", "image_cuda", "libcuda", "all_reduce_exact", "product_match"}
QUICK |= {f"{kind}.{dtype}" for dtype in FORMATS for kind in ("matmul_exact", "matmul_repeat")}
QUICK |= {"speed.matmul.bf16", "speed.memory.copy", "speed.copy.host_to_device", "speed.copy.device_to_host"}
ACCEPT = QUICK | {"all_gather_exact", "reduce_scatter_exact", "all_to_all_exact", "pair_exact", "training.ddp_step", "speed.pair.copy"}
ACCEPT |= {f"speed.matmul.{dtype}" for dtype in FORMATS}


def wanted(cards: list[ExpectedGpu], tier: str, backend: str = "cuda", parts: list[ExpectedGpu] | None = None) -> dict[str | None, set[str]]:
    """Names of requirements by bus id, or by the UUID of an instance; None: of the host."""
    found: dict[str | None, set[str]] = {}
    for name, gpu in requirements(cards, cards if parts is None else parts, tier, backend):
        key = None if gpu is None else gpu["uuid"] if str(gpu["uuid"]).startswith("MIG-") else gpu["pci_bus_id"]
        assert name not in found.setdefault(key, set()), "required twice"
        found[key].add(name)
    return found


@pytest.mark.parametrize(
    ("tier", "host", "gpu"), [("quick", set(), QUICK), ("accept", {"speed.all_reduce.busbw"}, ACCEPT), ("burn", {"speed.all_reduce.busbw"}, ACCEPT | {"burn"})]
)
def test_everything_that_counts_on_gpus(tier: str, host: set[str], gpu: set[str]) -> None:
    found = wanted(gpus(2), tier)
    assert found == {None: HOST | host, BUS_IDS[0]: CARD | gpu, BUS_IDS[1]: CARD | gpu}


def test_a_tier_shows_what_itself_and_shallower_ones_would() -> None:
    tiers = ("quick", "accept", "burn")
    shown = {tested: [wanted for wanted in tiers if smoke_tiers.covers(tested, wanted)] for tested in (*tiers, "odd", None)}
    assert shown == {"quick": ["quick"], "accept": ["quick", "accept"], "burn": list(tiers), "odd": [], None: []}


def test_on_the_cpu_no_image_and_no_way_to_the_device_is_looked_at() -> None:
    left_out = {"image_architecture", "image_cuda", "libcuda", "speed.copy.host_to_device", "speed.copy.device_to_host"}
    assert wanted(gpus(1), "quick", "cpu") == {None: HOST, BUS_IDS[0]: (CARD | QUICK) - left_out}


def test_an_old_chip_needs_what_it_has() -> None:
    found = wanted(gpus(1, "7.5"), "quick")[BUS_IDS[0]]
    assert {name for name in found if name.startswith(("matmul_exact.", "speed.matmul."))} == {
        "matmul_exact.fp64",
        "matmul_exact.fp32",
        "matmul_exact.fp16",
        "speed.matmul.fp16",
    }


def test_a_card_without_a_sibling_is_compared_where_no_other_has_one_either() -> None:
    one, two, three = gpus(3)
    other = three._replace(pci_id="10de:2335")
    found = wanted([one, two, other], "quick")
    assert ["product_match" in found[bus_id] for bus_id in BUS_IDS[:3]] == [True, True, False]
    found = wanted([one, other], "quick")
    assert ["product_match" in found[bus_id] for bus_id in (BUS_IDS[0], BUS_IDS[2])] == [True, True]


def test_each_part_of_a_divided_gpu_needs_results_of_its_own_and_the_card_its() -> None:
    facts = facts_for(**{**CONVERGED, "gpus": 2})
    facts["nvidia_smi"]["gpus"][1]["mig"] = {
        "current": "enabled",
        "pending": "enabled",
        "instances": [{"profile": "1g.10gb", "gi": gi, "ci": 0, "placement_start": 0, "uuid": uuid} for gi, uuid in ((9, "MIG-b"), (7, "MIG-a"), (11, None))],
    }
    parts = parts_of(gpus(2), facts)
    assert [part.gpu["uuid"] for part in parts] == [uuid_of(0), "MIG-a", "MIG-b"]
    found = wanted(gpus(2), "quick", parts=parts)
    assert set(found) == {None, *BUS_IDS[:2], "MIG-a", "MIG-b"}
    assert found[BUS_IDS[1]] == CARD
    assert found["MIG-a"] == found["MIG-b"] == QUICK - {"product_match"}
    assert found[BUS_IDS[0]] == CARD | QUICK


@pytest.mark.parametrize(
    ("arguments", "seconds"),
    [
        (("quick", 1, "cuda"), 120),
        (("quick", 8, "cuda"), 120),
        (("accept", 1, "cuda"), 360),
        (("accept", 2, "cuda"), 600),
        (("accept", 8, "cuda"), 600),
        (("burn", 8, "cuda", 60), 4200),
        (("burn", 1, "cuda", 1), 420),
        (("accept", 8, "cuda", 60), 600),
        (("quick", 8, "cpu"), 300),
        (("accept", 8, "cpu"), 600),
    ],
)
def test_time(arguments: tuple[str, int, str], seconds: int) -> None:
    assert limit_s(*arguments) == seconds


def test_a_burn_of_an_hour_where_nobody_says_how_long() -> None:
    assert smoke_tiers.BURN_MINUTES == 60


def test_the_checks_of_figures_that_a_plan_may_have_to_excuse() -> None:
    quick = ["speed.matmul.bf16", "speed.memory.copy", "speed.copy.host_to_device", "speed.copy.device_to_host"]
    assert smoke_tiers.speeds(gpus(2), "quick", "cuda") == quick
    assert smoke_tiers.speeds(gpus(2), "quick", "cpu") == quick[:2]
    for tier in ("accept", "burn"):
        every = [*(f"speed.matmul.{dtype}" for dtype in FORMATS), *quick[1:], "speed.all_reduce.busbw", "speed.pair.copy"]
        assert sorted(smoke_tiers.speeds(gpus(2), tier, "cuda")) == sorted(every)


def test_what_needs_a_second_gpu_or_gpus_that_talk() -> None:
    checks = {"all_reduce_exact", "all_gather_exact", "reduce_scatter_exact", "all_to_all_exact", "pair_exact", "training.ddp_step"}
    assert set(smoke_tiers.BETWEEN) == checks | {"speed.all_reduce.busbw", "speed.pair.copy"}


class TestWork:
    def test_quick(self) -> None:
        assert work(gpus(2), "quick", "cuda", {}) == Work(
            dtypes=list(FORMATS),
            figures=["matmul.bf16", "memory.copy", "copy.host_to_device", "copy.device_to_host"],
            trainings=[],
            collectives=["all_reduce_exact"],
            pairs=False,
        )

    def test_accept(self) -> None:
        found = work(gpus(2), "accept", "cuda", {})
        assert set(found.figures) == {
            *(f"matmul.{dtype}" for dtype in FORMATS),
            "memory.copy",
            "copy.host_to_device",
            "copy.device_to_host",
            "all_reduce.busbw",
            "pair.copy",
        }
        assert found.trainings == ["training.ddp_step", "training.compile", "training.fp8", "training.transformer_engine"]
        assert found.collectives == ["all_reduce_exact", "all_gather_exact", "reduce_scatter_exact", "all_to_all_exact"]
        assert found.pairs
        assert work(gpus(2), "burn", "cuda", {}) == found

    def test_one_gpu_has_no_other(self) -> None:
        found = work(gpus(1), "accept", "cuda", {})
        assert not found.pairs and not {"all_reduce.busbw", "pair.copy"} & set(found.figures)
        assert found.collectives[0] == "all_reduce_exact"

    def test_a_figure_that_nobody_judges_is_measured_all_the_same(self) -> None:
        assert work(gpus(2), "quick", "cpu", {"speed.matmul.bf16": "on the CPU"}).figures == ["matmul.bf16", "memory.copy"]
        assert work(gpus(2), "accept", "cpu", {}).trainings == ["training.ddp_step"]

    def test_what_the_plan_excused_is_not_tried(self) -> None:
        excused = dict.fromkeys([*smoke_tiers.BETWEEN, "matmul_exact.fp8"], "divided")
        found = work(gpus(2), "accept", "cuda", excused)
        assert (found.collectives, found.pairs, "fp8" in found.dtypes, "training.ddp_step" in found.trainings) == ([], False, False, False)
        assert not {"all_reduce.busbw", "pair.copy"} & set(found.figures)

    def test_what_is_required_is_asked_for(self) -> None:
        for tier in smoke_tiers.TIERS:
            for count in (1, 2):
                for backend in ("cuda", "cpu"):
                    asked = work(gpus(count), tier, backend, {})
                    names = {entry.name for entry in requirements(gpus(count), gpus(count), tier, backend)}
                    figures = {f"speed.{name}" for name in asked.figures}
                    alone = {"speed.all_reduce.busbw", "speed.pair.copy"} if count == 1 else set()
                    assert {name for name in names if name.startswith("speed.")} == figures | (alone & names)
                    assert {name for name in names if name.startswith("matmul_exact.")} == {f"matmul_exact.{dtype}" for dtype in asked.dtypes}
                    assert {name for name in names if name in smoke_tiers.COLLECTIVES} == set(asked.collectives)
                    assert {name for name in names if name.startswith("training.")} <= set(asked.trainings)


@pytest.mark.parametrize(
    ("count", "tier", "backend", "words"),
    [
        (1, "accept", "cuda", "bandwidth and exchange between GPUs"),
        (1, "quick", "cuda", "there is one GPU"),
        (2, "quick", "cuda", "bandwidth between GPUs and copies between pairs: tier quick"),
        (2, "quick", "cuda", "training steps: tier quick"),
        (2, "accept", "cuda", "exchange between hosts"),
        (2, "burn", "cuda", "exchange between hosts"),
        (2, "accept", "cuda", "hours under load"),
        (2, "accept", "cpu", "everything was computed on the CPU"),
    ],
)
def test_what_was_never_touched_is_said(count: int, tier: str, backend: str, words: str) -> None:
    assert any(words in sentence for sentence in not_exercised(gpus(count), tier, backend))


def test_and_what_was_is_not() -> None:
    assert not_exercised(gpus(8), "burn", "cuda") == ["exchange between hosts: one host was tested by itself"]
    parts = [gpu._replace(instance="MIG-1") for gpu in gpus(2)]
    assert "GPUs are divided, and each part was tested by itself" in "".join(not_exercised(parts, "accept", "cuda"))


@pytest.mark.parametrize("tier", ["quick", "accept"])
def test_the_record_of_a_real_h200_says_what_one_gpu_cannot_show(tier: str) -> None:
    record = json.loads((H200 / f"record-container-{tier}.json").read_text(encoding="utf-8"))
    assert len(record["facts"]["gpus"]) == 1
    said = record["smoke_test"]["not_exercised"]
    assert said == not_exercised(gpus(1), tier, "cuda")
    assert "bandwidth and exchange between GPUs (all-reduce, copies between pairs): there is one GPU" in said
    # And none of that is called passed.
    between = {check["name"]: check["status"] for check in record["checks"] if check["name"] in ("pair_exact", *map(speed, GROUP_FIGURES))}
    assert set(between.values()) <= {"not_applicable"}
