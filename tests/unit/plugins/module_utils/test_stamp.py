# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stamp appears whole or not at all."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import stamp


def test_written_whole_readable_by_all_and_read_back(tmp_path: Path) -> None:
    made = stamp.make({"release": "r", "gpus": None}, "accepted", ["GPU-b", "GPU-a"], "2026-12-01T04:00:00Z")
    assert made == {"schema": 1, "release": "r", "gpus": ["GPU-a", "GPU-b"], "verdict": "accepted", "time": "2026-12-01T04:00:00Z"}
    stamp.write(made, tmp_path / "new")
    assert stamp.read(tmp_path / "new") == made
    assert stat.S_IMODE((tmp_path / "new" / stamp.NAME).stat().st_mode) == 0o644


def test_a_failed_write_leaves_the_old_one_and_no_litter(tmp_path: Path) -> None:
    stamp.write({"old": 1}, tmp_path)
    with pytest.raises(TypeError):
        stamp.write({"new": object()}, tmp_path)
    assert stamp.read(tmp_path) == {"old": 1}
    assert [path.name for path in tmp_path.iterdir()] == [stamp.NAME]


def test_absent_and_unreadable_are_told_apart(tmp_path: Path) -> None:
    assert stamp.read(tmp_path) is None
    (tmp_path / stamp.NAME).write_text(json.dumps({"half": 1})[:-3], encoding="utf-8")
    assert "error" in stamp.read(tmp_path)
    (tmp_path / stamp.NAME).write_text("[" * 100000, encoding="utf-8")
    assert "error" in stamp.read(tmp_path)


def test_withdrawn_once(tmp_path: Path) -> None:
    stamp.write({"old": 1}, tmp_path)
    assert (stamp.withdraw(tmp_path), stamp.withdraw(tmp_path), stamp.read(tmp_path)) == (True, False, None)


def test_what_was_written_or_removed_is_on_the_disk_before_the_call_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[tuple[str, bool]] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append((Path(f"/proc/self/fd/{descriptor}").readlink().name, (tmp_path / stamp.NAME).exists()))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    stamp.write({"new": 1}, tmp_path)
    stamp.withdraw(tmp_path)
    assert synced[1:] == [(tmp_path.name, True), (tmp_path.name, False)]


def test_uuids_of_the_plan_are_kept() -> None:
    assert stamp.make({"gpus": ["GPU-p"]}, "accepted", ["GPU-x"], "t")["gpus"] == ["GPU-p"]
