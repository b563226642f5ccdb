# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log read without waiting: real files and pipes in place of /dev/kmsg, and a journal that answers what it is told."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import kernel_log
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Result
from ansible_collections.rackready.gpu.plugins.module_utils.kernel_log import KernelLog
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_window import Events

from tests.unit.hosts import Answers

OLD = "3,100,5000000,-;NVRM: Xid (PCI:0000:1b:00): 63, old\n SUBSYSTEM=pci\n DEVICE=+pci:0000:1b:00.0\n"
NEW = "3,101,6000000,-;NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n"
JOURNAL = "journalctl --dmesg --no-pager --output=cat"


def kmsg(tmp_path: Path, text: str = OLD) -> Path:
    """A root whose /dev/kmsg is a file: it is read like the real one, but ends instead of having nothing more."""
    path = tmp_path / "dev/kmsg"
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    return path


def codes(events: Events) -> dict[int, int]:
    return {event.code: count for event, count in events.counts.items()}


def open_files() -> int:
    """How many files this process holds open."""
    return len(list(Path("/proc/self/fd").iterdir()))


def write(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


class TestRecords:
    def test_what_was_there_and_what_comes(self, tmp_path: Path) -> None:
        path = kmsg(tmp_path)
        log = KernelLog(Answers(), tmp_path)
        assert (codes(log.earlier), codes(log.new), log.problem) == ({63: 1}, {}, None)
        log.look()
        write(path, NEW)
        log.look()
        assert codes(log.new) == {79: 1}
        write(path, NEW.replace("79", "48"))
        log.close()
        assert (codes(log.new), codes(log.earlier), log.problem) == ({79: 1, 48: 1}, {63: 1}, None)
        assert log.new.texts[next(iter(log.new.counts))].startswith("NVRM: Xid")

    def test_a_record_that_arrives_in_two_pieces(self, tmp_path: Path) -> None:
        path = kmsg(tmp_path)
        log = KernelLog(Answers(), tmp_path)
        write(path, NEW[:40])
        log.look()
        assert codes(log.new) == {}
        write(path, NEW[40:])
        log.close()
        assert codes(log.new) == {79: 1}

    def test_a_flood_takes_no_longer_than_it_may_and_says_so(self, tmp_path: Path) -> None:
        kmsg(tmp_path, NEW.replace("79", "31") * 30000)
        started = time.monotonic()
        log = KernelLog(Answers(), tmp_path)
        log.look(0.0)
        assert time.monotonic() - started < kernel_log.LOOK_S + 2
        assert set(codes(log.earlier)) == {31}

    def test_more_than_can_be_read_is_no_silence(self, tmp_path: Path) -> None:
        path = kmsg(tmp_path)
        log = KernelLog(Answers(), tmp_path)
        write(path, NEW * 2000)
        log.look(0.0)
        assert log.problem == "the kernel wrote faster than it could be read for 0 s"
        log.close()
        assert codes(log.new) == {79: 2000}
        assert log.problem is not None

    def test_lines_that_were_overwritten_are_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """As the real one does when its buffer went round: EPIPE once, then the oldest record that is left."""
        kmsg(tmp_path)
        log = KernelLog(Answers(), tmp_path)
        answers: list[bytes | OSError] = [BrokenPipeError(32, "Broken pipe"), NEW.encode(), BlockingIOError(11, "again")]

        def read(descriptor: int, size: int) -> bytes:
            answer = answers.pop(0)
            if isinstance(answer, OSError):
                raise answer
            return answer

        monkeypatch.setattr(os, "read", read)
        log.look()
        assert codes(log.new) == {79: 1}
        assert log.problem == "the kernel wrote so much that lines were overwritten before they could be read"

    def test_another_error_is_told(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kmsg(tmp_path)
        log = KernelLog(Answers(), tmp_path)

        def read(descriptor: int, size: int) -> bytes:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(os, "read", read)
        log.look()
        assert log.problem == "/dev/kmsg: Input/output error"

    def test_it_begins_at_the_very_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The kernel refuses every other place than 0 from the end of /dev/kmsg."""
        places: list[tuple[int, int]] = []
        monkeypatch.setattr(os, "lseek", lambda descriptor, at, how: places.append((at, how)))
        kmsg(tmp_path)
        KernelLog(Answers(), tmp_path)
        assert places == [(0, os.SEEK_END)]

    def test_nothing_stays_open_and_closing_twice_is_no_problem(self, tmp_path: Path) -> None:
        kmsg(tmp_path)
        before = open_files()
        log = KernelLog(Answers(), tmp_path)
        log.close()
        assert open_files() == before
        log.close()
        assert log.problem is None

    def test_what_was_there_is_read_for_two_seconds_at_most(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        kmsg(tmp_path)
        asked: list[float] = []
        monkeypatch.setattr(kernel_log._Records, "read", lambda self, events, seconds: asked.append(seconds))
        log = KernelLog(Answers(), tmp_path)
        log.look(0.2)
        log.close()
        assert asked == [2.0, 0.2, 2.0]


class TestJournal:
    def test_it_is_asked_for_ten_seconds_at_most(self, tmp_path: Path) -> None:
        limits: list[float] = []

        class Timed(Answers):
            def start(self, argv: list[str], timeout: float, env: dict[str, str] | None = None) -> Child:
                limits.append(timeout)
                return super().start(argv, timeout, env)

        answers = Timed()
        answers[JOURNAL] = "-- cursor: s=1\n"
        KernelLog(answers, tmp_path).close()
        assert limits == [10.0, 10.0]

    def test_where_kmsg_cannot_be_opened(self, tmp_path: Path) -> None:
        first = "NVRM: Xid (PCI:0000:1b:00): 63, old\n-- cursor: s=1;i=2\n"
        answers = Answers()
        answers[f"{JOURNAL} --show-cursor"] = first
        answers[f"{JOURNAL} --after-cursor=s=1;i=2"] = "NVRM: Xid (PCI:0000:1b:00): 79, x\n"
        log = KernelLog(answers, tmp_path)
        assert (codes(log.earlier), log.problem) == ({63: 1}, None)
        log.look()
        log.close()
        assert (codes(log.new), log.problem) == ({79: 1}, None)

    def test_where_kmsg_can_be_opened_once_only(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """What is new would be read from one of them, and what was before from the other."""
        path = kmsg(tmp_path)
        answers = Answers()
        answers[f"{JOURNAL} --show-cursor"] = "-- cursor: s=1\n"
        answers[f"{JOURNAL} --after-cursor=s=1"] = "NVRM: Xid (PCI:0000:1b:00): 48, x\n"
        before, opened, opening = open_files(), [], os.open

        def once(name: str, flags: int) -> int:
            opened.append(name)
            if len(opened) > 1:
                raise OSError("no more")
            return opening(name, flags)

        monkeypatch.setattr(os, "open", once)
        log = KernelLog(answers, tmp_path)
        monkeypatch.undo()
        write(path, NEW)
        log.look()
        log.close()
        assert (codes(log.new), log.problem, open_files()) == ({48: 1}, None, before)

    def test_an_error_without_words_of_the_system_has_its_own(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def never(*arguments: object) -> int:
            raise OSError("not today")

        monkeypatch.setattr(os, "open", never)
        log = KernelLog(Answers(), tmp_path)
        monkeypatch.undo()
        assert log.problem == "/dev/kmsg: not today, and there is no journal"

    def test_without_either_it_says_why(self, tmp_path: Path) -> None:
        log = KernelLog(Answers(), tmp_path)
        log.close()
        assert log.problem == "/dev/kmsg: No such file or directory, and there is no journal"

    @pytest.mark.parametrize(("text", "code", "words"), [("", 0, "the journal has no line of the kernel"), ("x", 1, "journalctl exited 1: x")])
    def test_a_journal_that_does_not_answer(self, tmp_path: Path, text: str, code: int, words: str) -> None:
        answers = Answers()
        answers[f"{JOURNAL} --show-cursor"] = Result(code, b"", text.encode(), 0.1)
        log = KernelLog(answers, tmp_path)
        log.close()
        assert log.problem == f"/dev/kmsg: No such file or directory; {words}"

    def test_one_that_breaks_off_is_not_taken_for_all_that_was_said(self, tmp_path: Path) -> None:
        answers = Answers()
        answers[f"{JOURNAL} --show-cursor"] = Result(1, b"NVRM: Xid (PCI:0000:1b:00): 63, old\n-- cursor: s=1\n", b"boom", 0.1)
        log = KernelLog(answers, tmp_path)
        log.close()
        assert codes(log.earlier) == {}
        assert str(log.problem).startswith("/dev/kmsg: No such file or directory; journalctl exited 1: boom")

    def test_one_that_fails_at_the_end_is_no_silence(self, tmp_path: Path) -> None:
        answers = Answers()
        answers[f"{JOURNAL} --show-cursor"] = "-- cursor: s=1\n"
        answers[f"{JOURNAL} --after-cursor=s=1"] = Result(1, b"", b"boom", 0.1)
        log = KernelLog(answers, tmp_path)
        log.close()
        assert log.problem == "journalctl exited 1: boom"
