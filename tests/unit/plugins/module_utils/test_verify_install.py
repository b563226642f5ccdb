# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command, its request and its timer are brought to a host: only what differs, each file whole, systemd told only what it has to know."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import verify_tool, whole_file
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Commands, Result
from ansible_collections.rackready.gpu.plugins.module_utils.verify_install import HIDDEN, VerifyToolError, bring
from ansible_collections.rackready.gpu.plugins.module_utils.verify_tool import REQUEST, SERVICE, TIMER, TOOL, UNITS

from tests.unit.hosts import Answer
from tests.unit.playbooks import ROOT

ASKED: dict[str, Any] = {"tier": "quick", "env": {"WANDB": "k3y", "NCCL_DEBUG": "INFO"}}
FILES = [REQUEST, f"{UNITS}/{SERVICE}", f"{UNITS}/{TIMER}", TOOL]
MODES = {REQUEST: 0o600, FILES[1]: 0o644, FILES[2]: 0o644, TOOL: 0o755}


class Systemd(Commands):
    """systemd and the units that it has loaded. Answers are as systemd 252 gave them."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.asked: list[str] = []
        self.enabled = self.active = False
        self.loaded: dict[str, str] = {}
        self.broken: dict[str, Result] = {}
        self.deaf: set[str] = set()
        self.state: dict[str, str] = {}

    def find(self, name: str) -> str | None:
        return "/usr/bin/systemctl"

    @property
    def changes(self) -> list[str]:
        return [line for line in self.asked if not line.startswith("show")]

    def start(self, argv: list[str], timeout: float, env: dict[str, str] | None = None) -> Child:
        verb = argv[1]
        self.asked.append(" ".join(argv[1:]))
        assert timeout <= 60
        if verb in self.broken:
            return Answer(self.broken[verb])
        if verb not in self.deaf:
            self._do(verb)
        return Answer(Result(0, self._show(argv[4:]).encode() if verb == "show" else b"", b"", 0.01))

    def _do(self, verb: str) -> None:
        if verb in ("enable", "disable"):
            self.enabled = verb == "enable"
        if verb in ("start", "restart"):
            assert verb == "restart" or not self.active
            self.active = True
            self._load(TIMER)
        if verb == "stop":
            self.active = False
        if verb == "daemon-reload":
            self.loaded = {}

    def _text(self, name: str) -> str | None:
        path = self.root / UNITS[1:] / name
        return path.read_text(encoding="utf-8") if path.exists() else None

    def _load(self, name: str) -> None:
        text = self._text(name)
        if text is not None:
            self.loaded.setdefault(name, text)

    def _show(self, names: list[str]) -> str:
        blocks = []
        for name in names:
            # What is enabled is loaded too: timers.target wants it.
            if (self.active or self.enabled) and name == TIMER:
                self._load(name)
            there = name in self.loaded or self._text(name) is not None
            stale = name in self.loaded and self.loaded[name] != self._text(name)
            found = {
                "Id": name,
                "LoadState": "loaded" if there else "not-found",
                "ActiveState": "active" if self.active and name == TIMER else "inactive",
                "UnitFileState": ("enabled" if self.enabled else "disabled") if there else "",
                "NeedDaemonReload": "yes" if stale else "no",
                **(self.state if name == TIMER else {}),
            }
            blocks.append("".join(f"{key}={value}\n" for key, value in found.items()))
        return "\n".join(blocks)


@pytest.fixture
def systemd(tmp_path: Path) -> Systemd:
    return Systemd(tmp_path)


def put(systemd: Systemd, timer: str = "off", *, dry: bool = False, request: dict[str, Any] | None = None) -> dict[str, Any]:
    systemd.asked.clear()
    return bring(request or ASKED, timer, systemd, dry, systemd.root)


def tree(root: Path) -> dict[str, tuple[str, int, int]]:
    """Everything below, with type and mode, inode and time of change: what nobody touched stays the same."""
    return {str(path.relative_to(root)): (stat.filemode(path.lstat().st_mode), path.lstat().st_ino, path.lstat().st_mtime_ns) for path in root.rglob("*")}


class TestFiles:
    def test_a_bare_host_gets_all_of_them_whole_and_with_their_modes(self, systemd: Systemd, tmp_path: Path) -> None:
        done = put(systemd)
        assert (done["changed"], done["actions"]) == (True, [f"write {path}" for path in FILES])
        assert {path: stat.S_IMODE((tmp_path / path[1:]).stat().st_mode) for path in FILES} == MODES
        assert json.loads((tmp_path / REQUEST[1:]).read_text(encoding="utf-8")) == ASKED
        assert (tmp_path / TOOL[1:]).read_bytes() == verify_tool.tool()
        assert sorted(path for path, (kind, *_rest) in tree(tmp_path).items() if kind.startswith("-")) == sorted(path[1:] for path in FILES)

    @pytest.mark.parametrize("umask", [0o077, 0o000])
    def test_modes_do_not_depend_on_what_a_login_has_set(self, systemd: Systemd, tmp_path: Path, umask: int) -> None:
        before = os.umask(umask)
        try:
            put(systemd)
        finally:
            os.umask(before)
        assert {path: stat.S_IMODE((tmp_path / path[1:]).stat().st_mode) for path in FILES} == MODES

    @pytest.mark.parametrize("timer", ["off", "daily"])
    def test_a_second_time_changes_and_touches_nothing(self, systemd: Systemd, tmp_path: Path, timer: str) -> None:
        put(systemd, timer)
        before = tree(tmp_path)
        done = put(systemd, timer)
        assert done == {"changed": False, "actions": [], "diff": {"before": {}, "after": {}}}
        assert (tree(tmp_path), systemd.changes) == (before, [])

    def test_only_what_differs_is_written(self, systemd: Systemd, tmp_path: Path) -> None:
        put(systemd)
        before = tree(tmp_path)
        done = put(systemd, request={**ASKED, "tier": "accept"})
        after = tree(tmp_path)
        assert done["actions"] == [f"write {REQUEST}"]
        assert {path for path in after if after[path] != before.get(path)} == {"etc/rackready", REQUEST[1:]}

    @pytest.mark.parametrize("path", FILES)
    @pytest.mark.parametrize("what", ["mode", "text", "link", "gone"])
    def test_whatever_was_done_to_a_file_is_mended(self, systemd: Systemd, tmp_path: Path, path: str, what: str) -> None:
        put(systemd)
        file = tmp_path / path[1:]
        whole = file.read_bytes()
        if what == "mode":
            file.chmod(0o666)
        elif what == "text":
            file.write_bytes(whole[:-9])
        else:
            file.unlink()
        if what == "link":
            elsewhere = tmp_path / "elsewhere"
            elsewhere.write_bytes(whole)
            elsewhere.chmod(MODES[path])
            file.symlink_to(elsewhere)
        done = put(systemd)
        assert f"write {path}" in done["actions"]
        assert (file.read_bytes(), stat.S_IMODE(file.lstat().st_mode), file.is_symlink()) == (whole, MODES[path], False)
        assert put(systemd)["changed"] is False

    def test_check_mode_writes_nothing_and_tells_the_same(self, systemd: Systemd, tmp_path: Path) -> None:
        told = put(systemd, "daily", dry=True)
        assert (tree(tmp_path), systemd.changes) == ({}, [])
        done = put(systemd, "daily")
        assert (told["changed"], told["actions"]) == (True, done["actions"])
        assert told["diff"]["after"] == done["diff"]["after"]

    @pytest.mark.parametrize(("before", "after"), [("daily", "off"), ("daily", "weekly"), ("off", "daily"), ("off", "weekly"), ("weekly", "off")])
    def test_check_mode_of_a_change_tells_the_same_too(self, systemd: Systemd, tmp_path: Path, before: str, after: str) -> None:
        put(systemd, before)
        there = tree(tmp_path)
        told = put(systemd, after, dry=True)
        assert (tree(tmp_path), systemd.changes) == (there, [])
        assert told == put(systemd, after)

    def test_what_stands_in_the_way_is_an_error_and_not_removed(self, systemd: Systemd, tmp_path: Path) -> None:
        (tmp_path / TOOL[1:] / "mine").mkdir(parents=True)
        with pytest.raises(OSError):
            put(systemd)
        assert (tmp_path / TOOL[1:] / "mine").is_dir()
        assert not [path for path in (tmp_path / TOOL[1:]).parent.iterdir() if path.name != "rackready-verify"]


class TestDiff:
    def test_values_of_the_environment_are_hidden_before_and_after(self, systemd: Systemd) -> None:
        put(systemd)
        done = put(systemd, request={**ASKED, "env": {"WANDB": "other-k3y"}})
        assert "k3y" not in json.dumps(done)
        assert done["diff"]["before"][REQUEST]["request"]["env"] == {"WANDB": HIDDEN, "NCCL_DEBUG": HIDDEN}
        assert done["diff"]["after"][REQUEST]["request"] == {"tier": "quick", "env": {"WANDB": HIDDEN}}
        # That a hidden value differs is seen all the same.
        assert done["diff"]["before"][REQUEST]["sha256"] != done["diff"]["after"][REQUEST]["sha256"]

    @pytest.mark.parametrize("text", ['{"env": "k3y"}', '{"env": ["k3y"]}', '["k3y"]', '"k3y"', "k3y", '{"env": {"A": "k3y"}, "tier": '])
    def test_a_request_that_is_none_shows_nothing_of_itself(self, systemd: Systemd, tmp_path: Path, text: str) -> None:
        (tmp_path / "etc/rackready").mkdir(parents=True)
        (tmp_path / REQUEST[1:]).write_text(text, encoding="utf-8")
        assert "k3y" not in json.dumps(put(systemd))

    def test_units_are_shown_line_by_line_and_the_command_by_its_digest(self, systemd: Systemd) -> None:
        after = put(systemd, "Sat 03:30")["diff"]["after"]
        assert "OnCalendar=Sat 03:30" in after[FILES[2]]["lines"]
        assert set(after[TOOL]) == {"mode", "sha256"}
        assert len(json.dumps(after)) < 10_000

    def test_a_changed_mode_is_shown(self, systemd: Systemd, tmp_path: Path) -> None:
        put(systemd)
        (tmp_path / REQUEST[1:]).chmod(0o644)
        diff = put(systemd)["diff"]
        assert [diff[side][REQUEST]["mode"] for side in ("before", "after")] == ["0644", "0600"]


class TestTimer:
    def test_off_on_a_bare_host_asks_systemd_for_nothing(self, systemd: Systemd) -> None:
        put(systemd)
        assert systemd.changes == []

    def test_on_it_is_enabled_and_started_without_a_reload(self, systemd: Systemd) -> None:
        done = put(systemd, "daily")
        assert systemd.changes == [f"enable --no-reload {TIMER}", f"start {TIMER}"]
        assert done["actions"][-2:] == [f"systemctl {line}" for line in systemd.changes]
        assert (systemd.enabled, systemd.active) == (True, True)

    def test_another_time_reloads_since_systemd_has_the_old_one(self, systemd: Systemd) -> None:
        put(systemd, "daily")
        put(systemd, "weekly")
        assert systemd.changes == ["daemon-reload", f"restart {TIMER}"]
        assert "OnCalendar=weekly" in systemd.loaded[TIMER]

    def test_off_again_it_is_stopped_and_disabled(self, systemd: Systemd) -> None:
        put(systemd, "daily")
        done = put(systemd, "off")
        assert f"stop {TIMER}" in systemd.changes and f"disable --no-reload {TIMER}" in systemd.changes
        assert (systemd.enabled, systemd.active) == (False, False)
        assert (done["diff"]["before"][TIMER], done["diff"]["after"][TIMER]) == ("enabled, active", "disabled, inactive")

    @pytest.mark.parametrize(
        ("enabled", "active", "timer", "changes"),
        [
            (True, False, "daily", [f"start {TIMER}"]),
            (False, True, "daily", [f"enable --no-reload {TIMER}"]),
            (True, False, "off", [f"disable --no-reload {TIMER}"]),
            (False, True, "off", [f"stop {TIMER}"]),
        ],
    )
    def test_what_somebody_switched_by_hand_is_switched_back(self, systemd: Systemd, enabled: bool, active: bool, timer: str, changes: list[str]) -> None:
        put(systemd, timer)
        systemd.enabled, systemd.active = enabled, active
        assert put(systemd, timer)["actions"] == [f"systemctl {line}" for line in changes]
        assert systemd.changes == changes

    def test_another_command_or_request_does_not_touch_systemd(self, systemd: Systemd, tmp_path: Path) -> None:
        put(systemd, "daily")
        (tmp_path / TOOL[1:]).write_bytes(b"an earlier version")
        put(systemd, "daily", request={**ASKED, "tier": "accept"})
        assert systemd.changes == []

    def test_another_service_is_reloaded_only_where_it_is_loaded(self, systemd: Systemd, tmp_path: Path) -> None:
        put(systemd)
        (tmp_path / FILES[1][1:]).write_text("[Service]\n", encoding="utf-8")
        put(systemd)
        assert systemd.changes == []
        systemd.loaded[SERVICE] = "[Service]\n"
        put(systemd)
        assert systemd.changes == ["daemon-reload"]

    def test_a_reload_that_was_interrupted_is_made_up_for(self, systemd: Systemd) -> None:
        """Files were written and the module was killed before it told systemd: nothing differs any more but what is loaded."""
        put(systemd, "daily")
        systemd.loaded[TIMER] = "[Timer]\nOnCalendar=weekly\n"
        done = put(systemd, "daily")
        assert (done["changed"], systemd.changes) == (True, ["daemon-reload"])


class TestErrors:
    def test_a_systemd_that_does_not_answer(self, systemd: Systemd) -> None:
        systemd.broken["show"] = Result(1, b"", b"Failed to connect to bus: No such file or directory\n", 0.1)
        with pytest.raises(
            VerifyToolError, match=r"^systemctl show exited 1: Failed to connect to bus: .*: look at `systemctl status` on the host and run again$"
        ):
            put(systemd)

    def test_one_that_takes_for_ever(self, systemd: Systemd) -> None:
        systemd.broken["enable"] = Result(None, b"", b"", 30.0, "did not end within 30 s and was given up")
        with pytest.raises(VerifyToolError, match="systemctl enable did not end within 30 s"):
            put(systemd, "daily")

    def test_no_systemctl_at_all(self, systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(systemd, "find", lambda name: None)
        with pytest.raises(VerifyToolError, match="this host has no systemctl"):
            put(systemd)

    def test_a_timer_that_does_not_come_up(self, systemd: Systemd) -> None:
        systemd.deaf = {"start"}
        with pytest.raises(VerifyToolError, match=f"{TIMER} is enabled, inactive afterwards and should be enabled, active"):
            put(systemd, "daily")

    def test_a_masked_timer_is_told(self, systemd: Systemd) -> None:
        systemd.state = {"LoadState": "masked", "UnitFileState": "masked"}
        with pytest.raises(VerifyToolError, match=f"{TIMER} is masked afterwards"):
            put(systemd, "daily")


WRITES = """
import os, signal, sys
from pathlib import Path
from ansible_collections.rackready.gpu.plugins.module_utils import whole_file
def dies(*_arguments):
    os.kill(os.getpid(), signal.SIGKILL)
if sys.argv[2] == "fsync":
    os.fsync = dies
else:
    Path.replace = dies
whole_file.write(Path(sys.argv[1]), b"new" * 100_000, 0o600)
"""


class TestWholeFiles:
    @pytest.mark.parametrize("where", ["fsync", "replace"])
    def test_killed_in_the_middle_the_old_file_is_there_whole(self, tmp_path: Path, where: str) -> None:
        path = tmp_path / "verify.json"
        path.write_bytes(b"old")
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "collections")}
        ran = subprocess.run([sys.executable, "-c", WRITES, str(path), where], env=environment, check=False, timeout=30)
        assert ran.returncode == -signal.SIGKILL
        assert path.read_bytes() == b"old"
        whole_file.write(path, b"new", 0o600)
        assert path.read_bytes() == b"new"

    def test_a_disk_that_is_full_leaves_the_old_file_and_nothing_beside_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = tmp_path / "verify.json"
        path.write_bytes(b"old")

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            whole_file.write(path, b"new", 0o600)
        assert [(entry.name, entry.read_bytes()) for entry in tmp_path.iterdir()] == [("verify.json", b"old")]

    def test_it_is_never_there_with_a_wider_mode_than_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        modes: list[int] = []
        replace = Path.replace

        def seen(source: Path, target: Path) -> Path:
            modes.append(stat.S_IMODE(source.stat().st_mode))
            return replace(source, target)

        monkeypatch.setattr(Path, "replace", seen)
        whole_file.write(tmp_path / "a", b"", 0o600)
        whole_file.write(tmp_path / "b", b"", 0o644)
        assert modes == [0o600, 0o644]
