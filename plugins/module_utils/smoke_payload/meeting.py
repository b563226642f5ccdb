# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the ranks agree before they do something together: one that cannot take part must not look like a hang of the others."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

from .budget import NO_TIME_LEFT
from .report import words_of

READY = "ready"
# Seconds that the others are waited for at least, also where the own time is over.
PATIENCE = 10.0


class Meeting:
    """The ranks of a run, who tell each other in a store where they are. Who once waited in vain meets nobody any more: the others would be waiting for it."""

    def __init__(self, store: Any, rank: int, world: int) -> None:
        self.store = store
        self.rank = rank
        self.world = world
        self.broken: str | None = None

    def tell(self, what: str, word: str) -> None:
        """Say this rank's word about something, once."""
        self.store.set(f"rackready/{what}/{self.rank}", word)

    def hear(self, what: str, rank: int, until: float) -> str:
        """The word of a rank about something. TimeoutError where it does not come until then (on the monotonic clock)."""
        if self.broken:
            raise TimeoutError(self.broken)
        key = f"rackready/{what}/{rank}"
        try:
            self.store.wait([key], timedelta(seconds=max(0.1, until - time.monotonic())))
        except Exception as error:
            self.broken = f"rank {rank} did not come to {what}: {words_of(error)}"
            raise TimeoutError(self.broken) from error
        return str(self.store.get(key).decode())

    def gather(self, what: str, word: str, patience: float) -> dict[int, str]:
        """Everybody's word about something, by rank. TimeoutError where somebody does not come within ``patience`` seconds."""
        until = time.monotonic() + max(PATIENCE, patience)
        if not self.broken:
            self.tell(what, word)
        try:
            return {rank: self.hear(what, rank, until) for rank in range(self.world)}
        except TimeoutError as error:
            # Whoever comes later must not begin.
            self.tell(what, str(error))
            raise

    def refusal(self, what: str, word: str, patience: float) -> str | None:
        """None where all ranks are ready for something, else why it is not begun."""
        for rank, said in self.gather(what, word, patience).items():
            if said.startswith(NO_TIME_LEFT) and rank != self.rank:
                return f"{NO_TIME_LEFT} in rank {rank}{said[len(NO_TIME_LEFT) :]}"
            if said != READY:
                return said if rank == self.rank else f"rank {rank} cannot take part: {said}"
        return None
