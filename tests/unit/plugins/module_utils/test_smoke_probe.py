# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The probe that runs in the held container, against a library of its own in place of libcuda."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_probe


class Cuda:
    """A double of libcuda: two devices; ``broken`` fails."""

    def __init__(self, broken: str = "", count: int = 2) -> None:
        self.broken = broken
        self.count = count
        self.called: list[str] = []

    def __getattr__(self, name: str) -> object:
        def call(*arguments: object) -> int:
            self.called.append(name)
            if name == "cuDeviceGetCount":
                arguments[0]._obj.value = self.count  # type: ignore[attr-defined]
            return 999 if name == self.broken else 0

        return call


def test_a_context_on_each_device(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    cuda = Cuda()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: cuda)
    assert smoke_probe.main(["call", "cuda"]) == 0
    assert cuda.called.count("cuDevicePrimaryCtxRetain") == 2
    assert capsys.readouterr().out == "used 2 GPUs\n"


@pytest.mark.parametrize("name", ["cuInit", "cuDeviceGetCount", "cuDeviceGet", "cuDevicePrimaryCtxRetain"])
def test_each_call_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda library: Cuda(name))
    assert smoke_probe.main(["call", "cuda"]) == 1
    assert capsys.readouterr().out == f"{name} failed with CUDA error 999\n"


def test_no_device_is_no_success(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Cuda(count=0))
    assert smoke_probe.main(["call", "cuda"]) == 1


def test_no_library(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(OSError, match="nowhere"):
        smoke_probe.make_contexts("libnowhere.so")


def test_nodes_are_opened_where_nothing_computes_on_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev").mkdir()
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / "dev" / name).write_text("")
    assert smoke_probe.open_nodes(tmp_path) == 2
    (tmp_path / "dev/nvidia2").mkdir()
    with pytest.raises(OSError, match="nvidia2"):
        smoke_probe.open_nodes(tmp_path)
    monkeypatch.setattr(smoke_probe, "open_nodes", lambda: 3)
    assert smoke_probe.main(["call", "cpu"]) == 0


def test_holding_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    assert smoke_probe.main(["hold", "90"]) == 0
    assert slept == [90.0]
