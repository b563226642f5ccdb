# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lines that a rank writes, and how an error is put into words.

Each line is one JSON object, complete by itself and written in one piece::

    {"rackready_smoke": 1, "run": "<id>", "rank": 3, "seq": 7, "event": "stage", "name": "matmul_exact.bf16"}

Events: ``start``; ``stage`` (announced before it begins, so that a hang names its stage); ``found`` (facts, by ``name``); ``check`` (a result, with
``status`` pass, fail or could_not_run, ``reason``, ``value``, ``duration_s`` in seconds); ``measured`` (a figure, by ``name``: ``value`` has ``median``,
``samples``, ``unit``, ``kernel``, ``conditions``, ``seconds``; the host judges it); ``end`` (this rank has said everything).
"""

from __future__ import annotations

import json
import time
from typing import Any, Callable

MARK = "rackready_smoke"
PROTOCOL = 1
# A line stays below the size that a pipe takes in one piece (4096), so that lines of different ranks cannot mix.
LINE_MAX = 3800


class Reporter:
    """Writes this rank's lines."""

    def __init__(self, run: str, rank: int, write: Callable[[bytes], object]) -> None:
        self.run = run
        self.rank = rank
        self.seq = 0
        self.write = write

    def emit(self, event: str, **fields: Any) -> None:
        """One complete line. A line that would be too long loses its value, never its status."""
        head = {MARK: PROTOCOL, "run": self.run, "rank": self.rank, "seq": self.seq, "event": event}
        self.seq += 1
        line = json.dumps({**head, **fields}, separators=(",", ":"), default=str)
        if len(line) > LINE_MAX:
            short = {k: (v[:500] if isinstance(v, str) else v) for k, v in fields.items() if k != "value"}
            line = json.dumps({**head, **short, "cut": True}, separators=(",", ":"), default=str)
        # The newline in front ends a half line that other code left there.
        self.write(b"\n" + line.encode() + b"\n")

    def stage(self, name: str) -> None:
        self.emit("stage", name=name)

    def check(self, name: str, status: str, reason: str | None = None, value: Any = None, started: float | None = None) -> None:
        seconds = None if started is None else round(time.monotonic() - started, 3)
        self.emit("check", name=name, status=status, reason=reason[:1000] if reason else None, value=value, duration_s=seconds)


def status_of(error: BaseException) -> str:
    """What an error in a check's own work says: software that lacks the operation could not run it, everything else is a failure of the machine."""
    lacking = (
        "no kernel image is available",
        "not implemented for",
        "only supported",
        "is not supported",
        "not compiled with",
        "does not support",
        "no support for",
        "out of memory",
    )
    if isinstance(error, (ImportError, AttributeError, NotImplementedError, TypeError, AssertionError)):
        return "could_not_run"
    return "could_not_run" if any(words in str(error) for words in lacking) else "fail"


def words_of(error: BaseException) -> str:
    """The error's exact words on one line, with its type."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
