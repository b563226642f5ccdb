# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Time: a rank may spend so many seconds in all, and what would not fit says so instead of being left out."""

from __future__ import annotations

import contextlib
import signal
import time
from typing import Callable, Iterator

# How the reason of all begins that did not fit.
NO_TIME_LEFT = "no time left"


class NoTimeLeft(Exception):
    """What was asked for does not fit into the time that is left; the sentence says how far it came."""


class Deadline:
    """A point in time (of ``clock``, in seconds) that work looks at between its steps."""

    def __init__(self, until: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.until = until
        self.clock = clock

    def left(self) -> float:
        """Seconds that are left; negative when it is over."""
        return self.until - self.clock()

    def over(self) -> bool:
        return self.left() <= 0

    def sooner(self, seconds: float) -> Deadline:
        """The same deadline, or the one in so many seconds if that comes first."""
        return Deadline(min(self.until, self.clock() + seconds), self.clock)


class Budget:
    """The time of a whole run, out of which each stage gets what the later ones do not need at least.

    So a slow stage may take long without one behind it being lost, and the sum never passes the whole.
    """

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.end = clock() + seconds
        self.clock = clock

    def left(self) -> float:
        return self.end - self.clock()

    def stage(self, least: float, later: float) -> Deadline:
        """The deadline of the next stage. ``least``: seconds that it needs at least; ``later``: the sum of those of the stages behind it.

        Raises NoTimeLeft where even the least does not fit.
        """
        left = self.left()
        if left < least:
            raise NoTimeLeft(f"it needs {least:g} s at least, {max(0.0, left):.1f} s were left")
        return self.begun(least, later)

    def begun(self, least: float, later: float) -> Deadline:
        """The deadline of a stage that is begun: it has its least in any case."""
        return Deadline(max(self.clock() + least, self.end - later), self.clock)


@contextlib.contextmanager
def interrupted(deadline: Deadline) -> Iterator[None]:
    """Ends Python work, and programs that it waits for, with NoTimeLeft when the deadline comes: for what has no steps between which to look at it."""

    def over(_number: int, _frame: object) -> None:
        raise NoTimeLeft(f"{took:.0f} s were not enough")

    took = max(0.1, deadline.left())
    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, took)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
