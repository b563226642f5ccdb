# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel's log while a test runs, read without ever waiting: from /dev/kmsg, and where that cannot be opened from the journal.

Lines are counted as they come and not kept, so that a flood of one message neither fills the memory nor hides another; what the kernel overwrote before it
could be read is told.
"""

from __future__ import annotations

import errno
import os
import re
import time
from pathlib import Path

from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_window import Events

KMSG = "dev/kmsg"
# Longer than any record, whose text is at most some kilobytes; a read with too little room fails.
RECORD_MAX = 32768
# How long one look may read on while more and more arrives, and how long the journal may take to answer.
LOOK_S = 2.0
JOURNAL_S = 10.0
_CURSOR = re.compile(r"^-- cursor: (\S+)$", re.MULTILINE)


class _Records:
    """An open /dev/kmsg, which gives one record a read and never ends."""

    def __init__(self, path: Path, from_now: bool) -> None:
        self._descriptor = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""
        if from_now:
            os.lseek(self._descriptor, 0, os.SEEK_END)

    def read(self, events: Events, seconds: float) -> str | None:
        """Take all records that are there; why some are missing, or None."""
        problem = None
        until = time.monotonic() + seconds
        while True:
            try:
                data = os.read(self._descriptor, RECORD_MAX)
            except BlockingIOError:
                return problem
            except OSError as error:
                if error.errno != errno.EPIPE:
                    return f"/dev/kmsg: {error.strerror}"
                problem = "the kernel wrote so much that lines were overwritten before they could be read"
                continue
            if not data:
                return problem
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                # Lines that begin with a space tell of the device that a record is about.
                if not line.startswith(b" "):
                    events.take(line.partition(b";")[2].decode("utf-8", "replace"))
            if time.monotonic() > until:
                return f"the kernel wrote faster than it could be read for {seconds:g} s"

    def close(self) -> None:
        os.close(self._descriptor)


class KernelLog:
    """What the driver said before (``earlier``) and since (``new``) this object was made. ``problem``: why that is not all, or None."""

    def __init__(self, commands: Commands, root: Path = Path("/")) -> None:
        self.earlier, self.new = Events(), Events()
        self.problem: str | None = None
        self._commands = commands
        self._records: _Records | None = None
        self._journal: list[str] | None = None
        try:
            # First of all, so that nothing falls between the two.
            self._records = _Records(root / KMSG, from_now=True)
            old = _Records(root / KMSG, from_now=False)
        except OSError as error:
            if self._records is not None:
                self._records.close()
                self._records = None
            self._begin_journal(error.strerror or str(error))
            return
        try:
            old.read(self.earlier, LOOK_S)
        finally:
            old.close()

    def _begin_journal(self, why: str) -> None:
        journalctl = self._commands.find("journalctl")
        if journalctl is None:
            self.problem = f"/dev/kmsg: {why}, and there is no journal"
            return
        # With the cursor of the last line; what comes after it is new.
        lines = [journalctl, "--dmesg", "--no-pager", "--output=cat"]
        old = self._commands.start([*lines, "--show-cursor"], JOURNAL_S).finish()
        cursor = _CURSOR.search(old.text)
        if old.rc != 0 or cursor is None:
            self.problem = f"/dev/kmsg: {why}; {old.complaint('journalctl') or 'the journal has no line of the kernel'}"
            return
        self._journal = [*lines, f"--after-cursor={cursor.group(1)}"]
        for line in old.text.splitlines():
            self.earlier.take(line)

    def look(self, seconds: float = LOOK_S) -> None:
        """Take what has come since; costs nothing where nothing has."""
        if self._records is not None:
            self.problem = self._records.read(self.new, seconds) or self.problem

    def close(self) -> None:
        """Take the last lines; the journal is asked only now."""
        self.look()
        if self._records is not None:
            self._records.close()
            self._records = None
        elif self._journal is not None:
            asked = self._commands.start(self._journal, JOURNAL_S).finish()
            self.problem = asked.complaint("journalctl")
            for line in asked.text.splitlines():
                self.new.take(line)
