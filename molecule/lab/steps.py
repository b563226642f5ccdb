# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Steps that are skipped when their inputs have not changed, and lines that say what is going on."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path


def digest_of(*parts: object) -> str:
    """A digest of JSON-able values, files and folders (by relative name, execute bit and contents; caches left out)."""
    sha = hashlib.sha256()
    for part in parts:
        if isinstance(part, Path):
            for path in _files(part):
                executable = bool(path.stat().st_mode & 0o100)
                sha.update(f"{path.relative_to(part)}\0{executable}\0".encode())
                sha.update(hashlib.sha256(path.read_bytes()).digest())
        else:
            sha.update(json.dumps(part, sort_keys=True).encode())
        sha.update(b"\xff")
    return sha.hexdigest()


def _files(path: Path) -> Iterable[Path]:
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.is_file() and "__pycache__" not in p.parts)


class Steps:
    """Runs steps in order. A step's stamp is written after it ended, so that a killed one is done again."""

    def __init__(self, stamps: Path, say: Callable[[str], None], clock: Callable[[], float] = time.monotonic) -> None:
        self._stamps = stamps
        self._say = say
        self._clock = clock

    def run(self, name: str, what: str, inputs: str, made: Callable[[], bool], make: Callable[[], None]) -> bool:
        """Make it unless the stamp of NAME holds INPUTS and what it made is still there. True if it was made now."""
        stamp = self._stamps / name
        if stamp.is_file() and stamp.read_text() == inputs and made():
            self._say(f"  kept   {'':>7}  {what}")
            return False
        stamp.unlink(missing_ok=True)
        started = self._clock()
        make()
        stamp.parent.mkdir(parents=True, exist_ok=True)
        stamp.write_text(inputs)
        self._say(f"  made   {self._clock() - started:6.1f}s  {what}")
        return True
