# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Golden files: outputs as they were once looked at. What differs from its file fails.

A difference that is meant is written by

    RACKREADY_GOLDEN=write pytest tests/unit -k golden

which skips each test whose file it wrote; the difference of the files is then reviewed as any other.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

COMMAND = "RACKREADY_GOLDEN=write pytest tests/unit -k golden"
WRITE = os.environ.get("RACKREADY_GOLDEN") == "write"


def compare(path: Path, text: str) -> None:
    """The text is the file's; where golden files are being written and it is not, the file is written."""
    found = path.read_text(encoding="utf-8") if path.is_file() else None
    if WRITE and text != found:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        pytest.skip(f"{path.name} was written: look at its difference")
    assert text == found, f"{path} differs; if that is meant: {COMMAND}"


def nothing_else_in(directory: Path, names: Iterable[str]) -> None:
    """No golden file is left over from something that is gone."""
    left = sorted({path.name for path in directory.iterdir()} - set(names))
    if WRITE and left:
        for name in left:
            directory.joinpath(name).unlink()
        pytest.skip(f"{', '.join(left)} were removed")
    assert left == []
