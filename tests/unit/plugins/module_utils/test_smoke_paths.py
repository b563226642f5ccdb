# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Advice: ACS and IOMMU between GPUs, the module for GPUDirect, and how fast data is read."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands, Result
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_paths import acs_redirects, data_path, pcie_path, peer_memory

from tests.unit.hosts import Answers
from tests.unit.pcie import config, two_gpus_below
from tests.unit.smoke_fakes import gpus


@pytest.mark.parametrize(
    ("space", "redirects"),
    [
        (config(0b1111101), True),
        (config(0b0000100), True),
        (config(0b0001000), True),
        (config(0b1110001), False),
        (config(0), False),
        (config(0b100, before=()), True),
        (config(0b100, before=(1, 2, 3)), True),
        (config(None), None),
        (config(0b100, size=256), None),
        (config(0b100, size=0x144), None),
        (b"", None),
        (b"\xff" * 4096, None),
        (b"\x00" * 4096, None),
    ],
)
def test_acs(space: bytes, redirects: bool | None) -> None:
    assert acs_redirects(space) is redirects


def test_a_chain_that_goes_round_ends() -> None:
    space = bytearray(4096)
    struct.pack_into("<I", space, 0x100, 0x100 << 20 | 0x10001)
    assert acs_redirects(bytes(space)) is None


@pytest.mark.parametrize(
    ("control", "command_line", "status", "words"),
    [
        (0, "quiet", "pass", "None"),
        (None, "quiet", "pass", "None"),
        (0b100, "quiet", "degraded", "ACS redirects between devices at 0000:02:00.0, 0000:03:00.0"),
        (0, "intel_iommu=on", "degraded", "the IOMMU translates"),
        (0, "amd_iommu=on quiet", "degraded", "the IOMMU translates"),
        (0, "intel_iommu=on iommu=pt", "pass", "None"),
        (0, "my_intel_iommu=only", "pass", "None"),
        (0b100, "intel_iommu=on", "degraded", "ACS redirects between devices at 0000:02:00.0, 0000:03:00.0; the IOMMU translates"),
    ],
)
def test_the_way_between_gpus(tmp_path: Path, control: int | None, command_line: str, status: str, words: str) -> None:
    check = pcie_path(gpus(2), command_line, two_gpus_below(tmp_path, control))
    assert (check["status"], check["required"], words in str(check["reason"])) == (status, False, True), check["reason"]
    if status != "pass":
        assert "iommu=pt" in str(check["remedy"])


class TestPeerMemory:
    def card(self, root: Path, *modules: str) -> Path:
        (root / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
        for name in modules:
            (root / "sys/module" / name).mkdir(parents=True)
            (root / "sys/module" / name / "version").write_text("580.178.04\n")
        return root

    def test_without_a_network_card_there_is_nothing_to_say(self, tmp_path: Path) -> None:
        assert peer_memory([], tmp_path) is None

    @pytest.mark.parametrize(("modules", "status"), [((), "degraded"), (("nvidia_peermem",), "pass"), (("nv_peer_mem",), "pass")])
    def test_the_module_is_named(self, tmp_path: Path, modules: tuple[str, ...], status: str) -> None:
        check = peer_memory([], self.card(tmp_path, *modules))
        assert check is not None and (check["status"], check["required"], check["value"]["loaded"]) == (status, False, list(modules))

    @pytest.mark.parametrize(
        "line", ["nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client", "nvidia_peermem: Unknown symbol ib_x"]
    )
    def test_one_that_was_built_for_another_network_driver(self, tmp_path: Path, line: str) -> None:
        check = peer_memory(["nvidia_peermem: loaded", line], self.card(tmp_path, "nvidia_peermem"))
        assert check is not None and check["status"] == "degraded"
        assert line in str(check["reason"])


class TestData:
    def test_a_real_file_is_read(self, tmp_path: Path) -> None:
        with (tmp_path / "big").open("wb") as big:
            big.truncate(70 * 2**20)
        check = data_path(str(tmp_path), Commands())
        assert (check["status"], check["required"], check["unit"]) == ("pass", False, "MB/s")
        assert check["value"]["bytes"] == 70 * 2**20
        assert check["value"]["mb_s"] > 1

    def test_nothing_worth_reading(self, tmp_path: Path) -> None:
        (tmp_path / "small").write_text("x")
        check = data_path(str(tmp_path), Commands())
        assert (check["status"], check["reason"]) == ("could_not_run", f"there is no file of more than 64 MiB below {tmp_path}")

    def test_a_file_system_that_never_answers_holds_nobody_up(self) -> None:
        answers = Answers()
        answers["find"] = Result(None, b"", b"", 5.0, "did not end within 5 s and was given up")
        answers["dd"] = ""
        assert data_path("/data", answers)["reason"] == "find did not end within 5 s and was given up"
        answers["find"] = "/data/big\0"
        answers["dd"] = Result(None, b"", b"", 8.0, "did not end within 8 s and was given up")
        assert data_path("/data", answers)["reason"] == "/data/big: dd did not end within 8 s and was given up"

    def test_where_the_cache_cannot_be_passed_by(self) -> None:
        answers = Answers()
        answers["find"] = "/data/big\0"
        answers["dd if=/data/big of=/dev/null bs=4M count=512 iflag=direct"] = Result(1, b"", b"dd: failed to open '/data/big': Invalid argument", 0.1)
        answers["dd if=/data/big of=/dev/null bs=4M count=512"] = Result(0, b"", b"512+0 records in\n2147483648 bytes (2.1 GB) copied, 2 s", 2.0)
        check = data_path("/data", answers)
        assert (check["status"], check["value"]["direct"], check["value"]["mb_s"]) == ("pass", False, 1073.7)

    def test_a_file_that_cannot_be_read(self) -> None:
        answers = Answers()
        answers["find"] = "/data/big\0"
        answers["dd"] = Result(1, b"", b"dd: error reading '/data/big': Input/output error", 0.1)
        check = data_path("/data", answers)
        assert (check["status"], "Input/output error" in str(check["reason"])) == ("could_not_run", True)

    def test_without_the_tools(self) -> None:
        assert data_path("/data", Answers())["reason"] == "find or dd is not installed"
