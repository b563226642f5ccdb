# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The stamp on a host: what was tested successfully last (schemas/stamp.schema.json). It stands for a test, so it is written by nothing else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Mapping

from ansible_collections.rackready.gpu.plugins.module_utils import whole_file

STATE_DIR = Path("/var/lib/rackready")
NAME = "stamp.json"
SCHEMA = 1


def make(planned: Mapping[str, Any], verdict: str, uuids: list[str], time: str) -> dict[str, Any]:
    """The stamp of a successful test: what the plan says was to be tested, with the UUIDs that it could not know yet, verdict and UTC time."""
    return {"schema": SCHEMA, **planned, "gpus": planned.get("gpus") or sorted(uuids), "verdict": verdict, "time": time}


def read(directory: Path = STATE_DIR) -> Any:
    """The stamp that is there; None where there is none, ``{"error": ...}`` where it cannot be read."""
    try:
        return json.loads((directory / NAME).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        return {"error": str(error)}


def write(stamp: Mapping[str, Any], directory: Path = STATE_DIR) -> None:
    """Put the stamp there in one step, readable by everybody: a reader sees the old one or the new one. OSError where that is not possible."""
    text = json.dumps(stamp, indent=2, sort_keys=True) + "\n"
    whole_file.write(directory / NAME, text.encode("utf-8"), 0o644)


def withdraw(directory: Path = STATE_DIR) -> bool:
    """Remove the stamp, because it does not stand for the host any more or a test is about to begin; whether there was one. OSError where it stays."""
    try:
        (directory / NAME).unlink()
    except FileNotFoundError:
        return False
    whole_file.make_last(directory)
    return True
