# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NCCL chose, in its own words: the way between GPUs (peer-to-peer, shared memory, network) and whether NVLink multicast is there."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, MutableMapping

FOLDER = Path("/tmp")
# As NCCL 2.18 to 2.28 print them at level INFO.
_MULTICAST = re.compile(r"NVLS multicast support is (not )?available")
_WAY = re.compile(r" via (P2P|SHM|NET|COLLNET)\b")


def listen(env: MutableMapping[str, str], pid: int) -> Path | None:
    """Have NCCL write what it does at its start into a file of this process, unless the operator has it write elsewhere (then None)."""
    if "NCCL_DEBUG" in env or not os.access(FOLDER, os.W_OK):
        return None
    path = FOLDER / f"rackready-nccl.{pid}"
    env.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,P2P,SHM,NET,NVLS", NCCL_DEBUG_FILE=str(path))
    return path


def hear(path: Path | None) -> dict[str, Any]:
    """``multicast``: whether NCCL found NVLink multicast (None: it said nothing), ``ways``: kinds of connection with their numbers."""
    found: dict[str, Any] = {"multicast": None, "ways": {}}
    if path is None:
        return found
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return found
    said = _MULTICAST.findall(text)
    if said:
        found["multicast"] = all(word == "" for word in said)
    for way in _WAY.findall(text):
        found["ways"][way] = found["ways"].get(way, 0) + 1
    return found
