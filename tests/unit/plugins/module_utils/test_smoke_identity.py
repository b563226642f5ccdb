# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image, driver library and GPU of each process; and parts of divided GPUs, each with a process of its own."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_identity import IMAGE_REMEDY, gpu_identity, image_architecture, image_cuda, libcuda, owners_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import ChildResult, Outcome, RankLog, Transcript

from tests.unit.hosts import BUS_IDS, DRIVER
from tests.unit.smoke_fakes import LIBCUDA, RUN, container, gpus, lines, rank_events, result, uuid_of

CARD = gpus(1)[0]


def log(**found: Any) -> RankLog:
    made = RankLog()
    made.found = found
    return made


@pytest.mark.parametrize(
    ("image", "driver", "status", "words"),
    [
        ("13.0", "13.0", "pass", "None"),
        ("12.6", "13.0", "pass", "None"),
        ("13.2", "13.0", "pass", "None"),
        ("13.0", "12.9", "could_not_run", "torch in the image is built with CUDA 13.0, the driver serves CUDA 12.9"),
        (None, "13.0", "could_not_run", "torch in the image does not tell its CUDA"),
        (12.6, "13.0", "could_not_run", "torch in the image does not tell its CUDA"),
        ("13.0", None, "could_not_run", "nvidia-smi does not tell which CUDA the driver serves"),
    ],
)
def test_the_images_cuda_and_the_drivers(image: Any, driver: str | None, status: str, words: str) -> None:
    check = image_cuda(CARD, log(torch={"cuda": image}), driver)
    assert (check["status"], str(check["reason"]), check["gpu"]) == (status, words, CARD.gpu)
    remedy = None if status == "pass" or driver is None else "use a newer driver branch" if image == "13.0" else IMAGE_REMEDY
    assert str(check["remedy"]).startswith(str(remedy))
    assert image_cuda(CARD, log(torch="x"), driver)["status"] == "could_not_run"
    assert image_cuda(CARD, log(), driver)["status"] == "could_not_run"


@pytest.mark.parametrize(
    ("path", "driver", "status"),
    [
        (LIBCUDA, DRIVER, "pass"),
        ("/usr/local/cuda/compat/libcuda.so.590.44.01", DRIVER, "could_not_run"),
        (f"/usr/local/cuda-13.0/compat/lib/libcuda.so.{DRIVER}", DRIVER, "could_not_run"),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.570.1", DRIVER, "could_not_run"),
        ("/usr/lib/x86_64-linux-gnu/libcuda.so.1", DRIVER, "degraded"),
        (LIBCUDA, None, "degraded"),
        (None, DRIVER, "could_not_run"),
        ("", DRIVER, "could_not_run"),
        (7, DRIVER, "could_not_run"),
    ],
)
def test_which_libcuda_was_loaded(path: Any, driver: str | None, status: str) -> None:
    check = libcuda(CARD, log(gpu_identity={"libcuda": path}), driver)
    assert (check["status"], check["gpu"]) == (status, CARD.gpu), check["reason"]
    if status == "could_not_run" and path and isinstance(path, str):
        assert path in str(check["reason"]) and "LD_LIBRARY_PATH" in str(check["remedy"])


def ran(events: list[list[dict[str, Any]]], **changes: Any) -> Outcome:
    transcript = Transcript(RUN, len(events), clock=lambda: 0.0)
    for rank, said in enumerate(events):
        transcript.feed(lines(rank, said))
    return Outcome(container(ranks=len(events), **changes), ChildResult(0, False, 20.0, [], []), transcript)


def identity(outcome: Outcome, rank: int = 0) -> dict[str, Any]:
    check = gpu_identity(rank, gpus(2)[rank], outcome.transcript.ranks[rank], outcome)
    return dict(check)


@pytest.mark.parametrize(
    ("words", "status", "remedy"),
    [
        ("RuntimeError: Error 802: system not yet initialized", "fail", "nvidia-fabricmanager"),
        ("RuntimeError: CUDA error: an illegal memory access", "fail", "dmesg"),
        ("Error 803: system has unsupported display driver / cuda driver combination", "could_not_run", "reboot"),
        ("Error 804: forward compatibility was attempted on non supported HW", "could_not_run", "cuda/compat"),
        ("CUDA error: all CUDA-capable devices are busy or unavailable", "could_not_run", "compute mode is exclusive"),
        ("No CUDA GPUs are available: no CUDA-capable device is detected", "could_not_run", "nvidia-cdi-refresh"),
        ("CUDA driver version is insufficient for CUDA runtime version", "could_not_run", "newer driver branch"),
        ("The NVIDIA driver on your system is too old (found version 11040)", "could_not_run", "newer driver branch"),
        ("Found no NVIDIA driver on your system.", "could_not_run", "nvidia-ctk cdi list"),
        ("no kernel image is available for execution on the device", "could_not_run", "pytorch_image_ref"),
    ],
)
def test_surroundings_are_told_from_a_gpu_by_cudas_own_words(words: str, status: str, remedy: str) -> None:
    events = [event for event in rank_events(0, 1) if event.get("name") != "gpu_identity"]
    found = identity(ran([[*events[:4], result("gpu_identity", "fail", words)]]))
    assert (found["status"], found["reason"]) == (status, words)
    assert remedy in str(found["remedy"])


def test_of_two_words_about_its_gpu_the_failure_counts_also_beside_an_identity() -> None:
    odd = [result("gpu_identity", "could_not_run", "not attempted"), result("gpu_identity", "fail", "CUDA error: an illegal memory access")]
    for said in (odd, odd[::-1]):
        events = rank_events(0, 1)
        found = identity(ran([[*events[:-1], *said, events[-1]]]))
        assert (found["status"], found["reason"]) == ("fail", "CUDA error: an illegal memory access")


@pytest.mark.parametrize(("status", "reason"), [("fail", None), ("could_not_run", None), ("pass", None), ("odd", "words"), ("not_applicable", "words")])
def test_a_word_about_its_gpu_that_is_none_of_the_two_could_not_run(status: str, reason: str | None) -> None:
    events = [event for event in rank_events(0, 1) if event.get("name") != "gpu_identity"]
    found = identity(ran([[*events[:-1], result("gpu_identity", status, reason), events[-1]]]))
    assert (found["status"], found["reason"]) == ("fail" if status == "fail" else "could_not_run", reason)


class TestWhatIsSaidOfAGpu:
    def of(self, *changes: dict[str, Any]) -> list[dict[str, Any]]:
        """The identity of each of two ranks, of which these tell something else."""
        events = [rank_events(rank, 2) for rank in range(2)]
        for said, change in zip(events, changes, strict=False):
            for event in said:
                if event.get("name") == "gpu_identity" and event["event"] == "found":
                    event["value"] = {**event["value"], **change}
        return [identity(ran(events), rank) for rank in range(2)]

    def test_names_it_whatever_it_is(self) -> None:
        refused = [event for event in rank_events(1, 2) if event.get("name") != "gpu_identity"]
        outcome = ran([rank_events(0, 2), [*refused[:-1], result("gpu_identity", "fail", "boom"), refused[-1]]])
        for checks in (self.of(), self.of({"uuid": "GPU-x"}), self.of({"uuid": None, "pci_bus_id": None}), [identity(outcome, 0), identity(outcome, 1)]):
            assert [check["gpu"] for check in checks] == [gpu.gpu for gpu in gpus(2)]

    def test_two_that_tell_no_uuid_are_not_the_same(self) -> None:
        assert [check["status"] for check in self.of({"uuid": None}, {"uuid": None})] == ["pass", "pass"]

    def test_the_same_uuid_twice_is_one_gpu(self) -> None:
        first, second = self.of({}, {"uuid": uuid_of(0)})
        assert (first["status"], first["reason"]) == ("fail", "rank 1 had the same GPU")
        assert second["reason"] == f"uuid is {uuid_of(0)}, the plan says {uuid_of(1)}; rank 0 had the same GPU"

    def test_one_of_the_two_is_enough_and_none_is_not(self) -> None:
        assert [check["status"] for check in self.of({"uuid": None}, {"pci_bus_id": None})] == ["pass", "pass"]
        nobody = self.of({"uuid": None, "pci_bus_id": None})[0]
        assert (nobody["status"], nobody["reason"]) == ("could_not_run", "CUDA told neither bus id nor UUID")

    @pytest.mark.parametrize("change", [{"compute_capability": None}, {"compute_capability": ""}])
    def test_what_is_not_told_is_no_difference(self, change: dict[str, Any]) -> None:
        assert self.of(change)[0]["status"] == "pass"

    @pytest.mark.parametrize(("bus_id", "status"), [(BUS_IDS[0], "pass"), (None, "could_not_run")])
    def test_a_uuid_that_the_plan_does_not_know_is_neither_wrong_nor_right(self, bus_id: str | None, status: str) -> None:
        told = {"uuid": uuid_of(0), "pci_bus_id": bus_id, "compute_capability": "9.0"}
        outcome = ran([[{"event": "start"}, {"event": "found", "name": "gpu_identity", "value": told}, {"event": "end"}]])
        unknown = CARD._replace(uuid=None, compute_capability=None)
        assert gpu_identity(0, unknown, outcome.transcript.ranks[0], outcome)["status"] == status


class TestArchitecture:
    def of(self, torch: Any, chip: Any = "9.0", *more: dict[str, Any]) -> dict[str, Any]:
        events = [event for event in rank_events(0, 1) if event.get("name") not in ("torch", "gpu_identity")]
        told = [{"event": "found", "name": "torch", "value": torch}, {"event": "found", "name": "gpu_identity", "value": {"compute_capability": chip}}]
        outcome = ran([[events[0], *told, *more, *events[1:]]])
        return dict(image_architecture(0, CARD, outcome.transcript.ranks[0], outcome))

    @pytest.mark.parametrize("torch", [None, "x", {}, {"arch_list": None}, {"arch_list": "sm_90"}, {"arch_list": []}])
    def test_an_image_that_tells_none(self, torch: Any) -> None:
        check = self.of(torch)
        assert (check["status"], check["reason"]) == ("could_not_run", "torch in the image does not tell which GPUs it was built for")
        assert (check["remedy"], check["gpu"]) == (IMAGE_REMEDY, CARD.gpu)

    @pytest.mark.parametrize("chip", [None, 9.0, "", "9"])
    def test_a_chip_that_nobody_told(self, chip: Any) -> None:
        check = self.of({"arch_list": ["sm_90"]}, chip)
        words = "the GPU's compute capability was not told: "
        assert (check["status"], check["reason"]) == ("could_not_run", f"{words}its result is not in the output of rank 0")
        check = self.of({"arch_list": ["sm_90"]}, chip, result("gpu_identity", "fail", "Error 802"))
        assert check["reason"] == f"{words}Error 802"

    @pytest.mark.parametrize(("architectures", "status"), [(["sm_90"], "pass"), (["sm_80"], "could_not_run"), (["sm_100"], "could_not_run")])
    def test_code_for_the_chip(self, architectures: list[str], status: str) -> None:
        assert self.of({"arch_list": architectures})["status"] == status


def test_a_rank_beyond_the_gpus_has_none() -> None:
    silent = [{"event": "start"}]
    assert owners_of(gpus(2), ran([silent, silent, silent])) == {0: gpus(2)[0], 1: gpus(2)[1]}
    assert owners_of([], ran([silent])) == {}


PARTS = [CARD._replace(instance="MIG-a"), CARD._replace(instance="MIG-b")]


class TestParts:
    """Two instances of one GPU: CUDA may give both the UUID of the whole, so what each rank was given tells them apart."""

    def said(self, rank: int, visible: str, **changes: Any) -> list[dict[str, Any]]:
        value = {"visible": visible, "uuid": uuid_of(0), "pci_bus_id": BUS_IDS[0], "compute_capability": "9.0", "device_count": 1, **changes}
        return [{"event": "start"}, {"event": "found", "name": "gpu_identity", "value": value}, {"event": "end"}]

    def test_each_rank_has_its_own(self) -> None:
        outcome = ran([self.said(0, "MIG-b"), self.said(1, "MIG-a")], visible=["MIG-a", "MIG-b"])
        owners = owners_of(PARTS, outcome)
        assert [owners[rank].instance for rank in (0, 1)] == ["MIG-b", "MIG-a"]
        for rank, part in owners.items():
            check = gpu_identity(rank, part, outcome.transcript.ranks[rank], outcome)
            assert (check["status"], check["gpu"]) == ("pass", {"uuid": part.instance, "pci_bus_id": BUS_IDS[0]})

    def test_what_it_was_given_is_enough_where_cuda_tells_nothing_else(self) -> None:
        outcome = ran([self.said(0, "MIG-b", uuid=None, pci_bus_id=None), [{"event": "start"}]], visible=["MIG-b", "MIG-a"])
        assert {rank: part.instance for rank, part in owners_of(PARTS, outcome).items()} == {0: "MIG-b"}

    def test_two_on_one_part(self) -> None:
        outcome = ran([self.said(0, "MIG-a"), self.said(1, "MIG-a")], visible=["MIG-a", "MIG-b"])
        check = gpu_identity(0, PARTS[0], outcome.transcript.ranks[0], outcome)
        assert (check["status"], check["reason"]) == ("fail", "rank 1 had the same GPU")

    def test_a_part_of_another_card(self) -> None:
        outcome = ran([self.said(0, "MIG-a", pci_bus_id=BUS_IDS[1])], visible=["MIG-a"])
        check = gpu_identity(0, PARTS[0], outcome.transcript.ranks[0], outcome)
        assert check["reason"] == f"pci_bus_id is {BUS_IDS[1]}, the plan says {BUS_IDS[0]}"

    def test_a_rank_that_says_not_which_speaks_for_none_of_them_by_its_card(self) -> None:
        outcome = ran([self.said(0, "MIG-x"), self.said(1, "MIG-a")], visible=["MIG-a", "MIG-b"])
        assert {rank: part.instance for rank, part in owners_of(PARTS, outcome).items()} == {1: "MIG-a"}
