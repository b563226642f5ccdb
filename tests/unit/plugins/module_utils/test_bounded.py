# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Limits that hold: hanging commands, grandchildren that keep their output open, children that cannot be killed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import bounded
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Commands, Result

FREEZER = Path("/sys/fs/cgroup/freezer")


def test_output_status_and_complaint() -> None:
    result = Child(["/bin/sh", "-c", "echo out; echo it broke >&2; exit 3"], 5).finish()
    assert (result.rc, result.text, result.stderr, result.problem) == (3, "out\n", b"it broke\n", None)
    assert result.complaint("tool") == "tool exited 3: it broke out"
    assert Result(0, b"", b"noise", 0.1).complaint("tool") is None
    assert Result(4, b"", b"", 0.1).complaint("tool") == "tool exited 4: it said nothing"


def test_more_output_than_a_pipe_holds() -> None:
    result = Child(["/bin/sh", "-c", "head -c 3000000 /dev/zero"], 10).finish()
    assert (result.rc, len(result.stdout)) == (0, 3_000_000)


def test_reading_apart(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"a\0b" * 10)
    assert bounded.read_apart(tmp_path / "file", 5, 5) == b"a\0ba\0"
    assert bounded.read_apart(tmp_path / "absent", 5, 5) == b""
    os.mkfifo(tmp_path / "never")
    started = time.monotonic()
    assert bounded.read_apart(tmp_path / "never", 5, 0.2) is None
    assert time.monotonic() - started < 2
    assert bounded.read_apart(tmp_path / "file", 5, 5, find=lambda name: None) is None


def test_endless_output_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "OUTPUT_LIMIT", 1024 * 1024)
    result = Child(["/bin/sh", "-c", "exec cat /dev/zero"], 10).finish()
    assert result.rc is None
    assert result.problem == "wrote more than 1 MiB and was given up"
    assert len(result.stdout) == 1024 * 1024


def test_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    started = time.monotonic()
    result = Child(["/bin/sh", "-c", f"trap '' TERM; sleep 60 & echo $! > {pid_file}; echo begun; wait"], 0.5).finish()
    assert time.monotonic() - started < 2
    assert (result.rc, result.text) == (None, "begun\n")
    assert result.problem == "did not end within 0.5 s and was given up"
    grandchild = Path("/proc", pid_file.read_text().strip(), "stat")
    deadline = time.monotonic() + 2  # it is a zombie until its new parent has collected it
    while grandchild.exists() and grandchild.read_text().rpartition(")")[2].split()[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not grandchild.exists() or grandchild.read_text().rpartition(")")[2].split()[0] == "Z"


def test_grandchild_that_keeps_the_output_open_blocks_nobody() -> None:
    started = time.monotonic()
    child = Child(["/bin/sh", "-c", "sleep 3 & echo done"], 10)
    result = child.finish()
    assert time.monotonic() - started < 2
    assert (result.rc, result.text) == (0, "done\n")


class Unkillable:
    """Looks like a process that SIGKILL does not end."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> None:
        return None


def test_child_that_does_not_die_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "killpg", lambda group, signal: signals.append((group, signal)))
    started = time.monotonic()
    words = Child._kill(Unkillable(4711))  # type: ignore[arg-type]
    assert time.monotonic() - started < 1
    assert signals == [(4711, 9)]
    assert words == " (process 4711 cannot be killed: it waits in the kernel)"


@pytest.mark.skipif(not os.access(FREEZER / "tasks", os.W_OK), reason="needs the cgroup v1 freezer, in which SIGKILL waits, as in a wedged driver")
def test_really_unkillable_child_is_left_alone() -> None:
    group = FREEZER / f"rackready-test-{os.getpid()}"
    group.mkdir()
    try:
        started = time.monotonic()
        child = Child(["/bin/sleep", "60"], 0.5)
        (group / "tasks").write_text(str(child.pid))
        (group / "freezer.state").write_text("FROZEN")
        result = child.finish()
        assert time.monotonic() - started < 2
        assert result.problem == f"did not end within 0.5 s and was given up (process {child.pid} cannot be killed: it waits in the kernel)"
    finally:
        (group / "freezer.state").write_text("THAWED")
        while (group / "tasks").read_text():
            time.sleep(0.01)
        group.rmdir()


def test_command_that_cannot_be_started_says_so() -> None:
    result = Commands().start(["/nowhere/tool"], 1).finish()
    complaint = result.complaint("tool")
    assert complaint is not None
    assert complaint.startswith("tool could not be started: ")
    assert "No such file" in complaint


def test_find_looks_beyond_the_path_of_a_login(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text("#!/bin/sh\n")
    monkeypatch.setattr(bounded, "SEARCH_PATH", str(tmp_path))
    monkeypatch.setenv("PATH", "relative:/nowhere")
    assert Commands().find("nvidia-smi") is None  # not executable
    tool.chmod(0o755)
    assert Commands().find("nvidia-smi") == str(tool)
    assert Commands().find("other") is None


def test_commands_speak_english(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    assert Commands().start(["/bin/sh", "-c", "echo $LC_ALL $EXTRA"], 5, {"EXTRA": "more"}).finish().text == "C more\n"
