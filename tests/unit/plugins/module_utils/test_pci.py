# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""PCI addresses and the scan of the bus."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.pci import normalize_bus_id, scan
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import BUS_IDS, Host


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("00000000:1A:00.0", "0000:1a:00.0"),
        ("0000:1a:00.0", "0000:1a:00.0"),
        ("1A:00.0", "0000:1a:00.0"),
        (" 00000009:01:00.0\n", "0009:01:00.0"),
        ("10000:e1:00.7", "10000:e1:00.7"),
    ],
)
def test_normalize(text: str, normal: str) -> None:
    assert normalize_bus_id(text) == normal
    assert normalize_bus_id(normal) == normal


@pytest.mark.parametrize("text", ["", "GPU is lost", "0000:1a:00", "0000:1a:00.8", "0000:1a:00.0x", "0000:1a:00.0\n0"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a PCI address"):
        normalize_bus_id(text)


@given(st.text())
def test_any_text_is_normal_or_refused(text: str) -> None:
    try:
        normal = normalize_bus_id(text)
    except ValueError:
        return
    assert normalize_bus_id(normal) == normal


def test_audio_functions_and_other_vendors_are_no_gpus(tmp_path: Path) -> None:
    found = scan(Host(audio_functions=True).tree(tmp_path).root)
    assert [gpu["pci_bus_id"] for gpu in found["gpus"]] == list(BUS_IDS)


def test_graphics_class_counts_and_bridges_that_are_no_switch_do_not(tmp_path: Path) -> None:
    tree = Host(gpus=0, nvswitches=0).tree(tmp_path)
    tree.device("0000:03:00.0", "10de:27b8", "0x030000")
    tree.device("0000:04:00.0", "10de:22ac", "0x068000")
    tree.device("0000:05:00.0", "1002:73bf", "0x030000")
    found = scan(tree.root)
    assert [(gpu["pci_id"], gpu["class"]) for gpu in found["gpus"]] == [("10de:27b8", "0300")]
    assert found["nvswitches"] == []


@pytest.mark.parametrize("pci_id", ["10de:1ac2", "10de:1ae8", "10de:1af0", "10de:1af1", "10de:1aff", "10de:22a0", "10de:22a3", "10de:22a7"])
def test_every_generation_of_switch(tmp_path: Path, pci_id: str) -> None:
    tree = Host(nvswitches=0).tree(tmp_path)
    tree.device("0000:05:00.0", pci_id, "0x068000")
    assert scan(tree.root)["nvswitches"] == [{"pci_bus_id": "0000:05:00.0", "pci_id": pci_id}]


@pytest.mark.parametrize(
    ("switches", "gpus", "vpd", "expected"),
    [
        (0, 8, b"\x82\x1eNVIDIA SW_MNG port\x90", True),
        (0, 8, b"\x82\x1eConnectX-7\x90", False),
        (0, 8, None, False),
        (4, 8, b"SW_MNG", False),  # not looked for: the bridges say what the board is
        (0, 0, b"SW_MNG", False),
    ],
)
def test_nvlink5_management_port(tmp_path: Path, switches: int, gpus: int, vpd: bytes | None, expected: bool) -> None:
    tree = Host(gpus=gpus, nvswitches=switches).tree(tmp_path)
    if vpd is not None:
        tree.write("/sys/bus/pci/devices/0000:18:00.0/vpd", "").write_bytes(vpd)
    assert scan(tree.root)["nvlink5_management"] is expected


def test_lost_gpu_has_no_link(tmp_path: Path) -> None:
    tree = Host(gpus=1).tree(tmp_path)
    for name, value in (
        ("current_link_speed", "Unknown"),
        ("current_link_width", "63"),
        ("max_link_speed", "Unknown"),
        ("max_link_width", "255"),
        ("numa_node", "-1"),
    ):
        tree.write(f"/sys/bus/pci/devices/{BUS_IDS[0]}/{name}", value + "\n")
    [gpu] = scan(tree.root)["gpus"]
    assert gpu["link"] == {"speed_gts": None, "width": None, "max_speed_gts": None, "max_width": None}
    assert gpu["numa_node"] is None


def test_no_bus_at_all(tmp_path: Path) -> None:
    assert scan(tmp_path) == {"gpus": [], "nvswitches": [], "nvlink5_management": False}
