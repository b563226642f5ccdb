# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's edge: its lock, and sentences where it cannot be had."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils.testing import patch_module_args
from ansible_collections.rackready.gpu.plugins.module_utils.mig import LOCK, locked
from ansible_collections.rackready.gpu.plugins.module_utils.nvidia_smi import Query, absent
from ansible_collections.rackready.gpu.plugins.modules import gpu_mig

BOARD = {**absent(), "state": "ok", "gpus": [{"pci_bus_id": "0000:1a:00.0", "mig": {"current": "disabled", "pending": "disabled", "instances": []}}]}
DONE = {"changed": False, "actions": [], "instances": [], "diff": {"before": {}, "after": {}}}


@pytest.fixture
def applied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[bool]:
    """For each time that the layout was applied whether the lock was there."""
    seen: list[bool] = []

    def apply(*_arguments: Any) -> dict[str, Any]:
        seen.append((tmp_path / LOCK).exists())
        return DONE

    monkeypatch.setattr(gpu_mig, "STATE_DIR", tmp_path)
    monkeypatch.setattr(gpu_mig, "LOCK_LIMIT_S", 0)
    monkeypatch.setattr(gpu_mig, "apply", apply)
    return seen


def call(capsys: pytest.CaptureFixture[str], **more: Any) -> dict[str, Any]:
    with patch_module_args({"gpus": [], **more}), pytest.raises(SystemExit):
        gpu_mig.main()
    returned: dict[str, Any] = json.loads(capsys.readouterr().out)
    return returned


def test_m8_the_layout_is_applied_under_the_lock(capsys: pytest.CaptureFixture[str], applied: list[bool]) -> None:
    assert not call(capsys).get("failed")
    assert applied == [True]


def test_m8_a_layout_that_another_run_changes_is_not_applied(capsys: pytest.CaptureFixture[str], applied: list[bool], tmp_path: Path) -> None:
    with locked(tmp_path, 0):
        returned = call(capsys)
    assert returned["failed"] and returned["msg"].startswith("the MIG layout of this host is being changed by ")
    assert applied == []


def test_check_mode_takes_no_lock(capsys: pytest.CaptureFixture[str], applied: list[bool]) -> None:
    assert not call(capsys, _ansible_check_mode=True).get("failed")
    assert applied == [False]


def test_a_lock_that_cannot_be_written_is_told(
    capsys: pytest.CaptureFixture[str], applied: list[bool], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(gpu_mig, "STATE_DIR", tmp_path / "file")
    assert call(capsys)["msg"].startswith("the lock for changes of MIG cannot be taken (")
    assert applied == []


def test_g7_a_command_that_fails_fails_the_module_and_so_the_host(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The real module, with an nvidia-smi that reads as it should and refuses every change."""
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\necho 'Insufficient permissions' >&2\nexit 4\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(gpu_mig, "STATE_DIR", tmp_path)
    monkeypatch.setattr(Query, "facts", lambda _self: BOARD)
    returned = call(capsys, gpus=[{"pci_bus_id": "0000:1a:00.0", "mode": "enabled", "instances": [{"profile": "7g.80gb", "start": 0}]}])
    assert returned["failed"]
    assert "nvidia-smi -i 0000:1a:00.0 -mig 1 exited 4" in returned["msg"] and "Insufficient permissions" in returned["msg"]
