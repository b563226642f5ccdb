# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files that are there whole or not at all: a reader, or whoever boots after a crash, sees the old one or the new one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write(path: Path, data: bytes, mode: int) -> None:
    """Put a file there in one step and on the disk, with its folder where there is none. OSError where that is not possible; then all is as it was."""
    directory = path.parent
    directory.mkdir(mode=0o755, parents=True, exist_ok=True)
    # In the folder itself: what is moved keeps the label that SELinux gave it where it was made.
    handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", dir=str(directory))
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink()
        raise
    make_last(directory)


def make_last(directory: Path) -> None:
    """Have the directory's entries on the disk: a test may take the whole host down, and what was removed must not come back with it."""
    descriptor = os.open(str(directory), os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
