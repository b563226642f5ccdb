# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

from typing import Any

import pytest
from gpu_host.sim import board


def test_the_board_has_what_an_hgx_h100_has(h100: dict[str, Any]) -> None:
    assert [gpu["pci_bus_id"] for gpu in h100["gpus"]][:2] == ["0000:1a:00.0", "0000:1b:00.0"]
    assert (h100["gpu"]["pci_id"], h100["gpu"]["class"], len(h100["gpus"])) == ("10de:2330", "0x030200", 8)
    assert [(switch["pci_id"], switch["class"]) for switch in h100["nvswitches"]] == [("10de:22a3", "0x068000")] * 4


def test_the_board_has_what_an_hgx_a100_has() -> None:
    a100 = board.load({"board": "hgx-a100-8"})
    assert (a100["gpu"]["pci_id"], a100["gpu"]["architecture"], a100["gpu"]["compute_capability"], len(a100["gpus"])) == ("10de:20b2", "Ampere", "8.0", 8)
    assert [(switch["pci_id"], switch["class"]) for switch in a100["nvswitches"]] == [("10de:1af1", "0x068000")] * 6


@pytest.mark.parametrize("name", ["hgx-a100-8", "h200-1"])
def test_every_board_describes_its_gpus_by_the_same_fields(h100: dict[str, Any], name: str) -> None:
    other = board.load({"board": name})
    assert set(other["gpu"]) == set(h100["gpu"])
    assert {frozenset(gpu) for gpu in other["gpus"]} == {frozenset(gpu) for gpu in h100["gpus"]}


def test_a_machine_without_a_gpu_has_no_switches_either() -> None:
    none = board.load({"board": "h200-1", "gpus": 0})
    assert (none["gpus"], none["nvswitches"]) == ([], [])


def test_the_board_has_devices_that_only_look_like_gpus(h100: dict[str, Any]) -> None:
    others = h100["others"]
    assert any(other["pci_id"].startswith("10de:") and not other["class"].startswith("0x03") for other in others)
    assert any(other["class"].startswith("0x03") and not other["pci_id"].startswith("10de:") for other in others)
    assert any("NVIDIA" in other.get("vpd", "") and not other["pci_id"].startswith("10de:") for other in others)


def test_fewer_gpus_than_the_board_has() -> None:
    assert len(board.load({"board": "hgx-h100-8", "gpus": 4})["gpus"]) == 4


def test_a_seed_makes_uuids_of_its_own_and_the_same_each_time() -> None:
    first, again, other = (board.load({"board": "hgx-h100-8", "uuid_seed": seed}) for seed in ("a", "a", "b"))
    uuids = [[gpu["uuid"] for gpu in each["gpus"]] for each in (first, again, other)]
    assert uuids[0] == uuids[1]
    assert not set(uuids[0]) & set(uuids[2])


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"board": "hgx-h1000"}, "'hgx-h1000'"),
        ({"board": "hgx-h100-8", "gpus": 9}, "9 GPUs"),
        ({"board": "hgx-h100-8", "gpu": 8}, "unknown keys gpu"),
        ({}, "none of"),
    ],
)
def test_a_board_file_that_cannot_be_used(config: dict[str, Any], words: str) -> None:
    with pytest.raises(board.BoardError, match=words):
        board.load(config)


@pytest.mark.parametrize("text", ["0000:1a:00.0", "00000000:1A:00.0", "1a:00.0"])
def test_bus_ids_in_every_form(text: str) -> None:
    assert board.sysfs_bus_id(text) == "0000:1a:00.0"
    assert board.smi_bus_id("0000:1a:00.0") == "00000000:1A:00.0"
