# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What NCCL chose, in its own words: the way between GPUs (peer-to-peer, shared memory, network), whether NVLink multicast is there, and its warnings."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, MutableMapping

FOLDER = Path("/tmp")
# What an operator sets to see more than we look for is left alone.
OURS = (None, "", "VERSION", "WARN")
WARNINGS_KEPT = 8
# As NCCL 2.18 to 2.28 print them at level INFO.
_MULTICAST = re.compile(r"NVLS multicast support is (not )?available")
_WAY = re.compile(r" via (P2P|SHM|NET|COLLNET)\b")
# "via NET/IB/0/GDRDMA", "via NET/Socket/0": how hosts reach each other, and whether the adapter reads the GPU's memory by itself.
_NETWORK = re.compile(r" via NET/(\w+)")
_DIRECT = re.compile(r" via NET/\S*GDR")
_WARNING = re.compile(r"NCCL WARN (.*)")


def listen(env: MutableMapping[str, str], pid: int) -> Path | None:
    """Have NCCL write what it does at its start into a file of this process, unless the operator has it say more (then None)."""
    if env.get("NCCL_DEBUG") not in OURS or "NCCL_DEBUG_FILE" in env or not os.access(FOLDER, os.W_OK):
        return None
    path = FOLDER / f"rackready-nccl.{pid}"
    env.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,P2P,SHM,NET,NVLS", NCCL_DEBUG_FILE=str(path))
    return path


def hear(path: Path) -> dict[str, Any]:
    """``multicast``: whether NCCL found NVLink multicast (None: it said nothing), ``ways``: kinds of connection with their numbers, ``networks``: of those to
    other hosts the kinds, ``direct``: those of them that go straight to a GPU's memory, ``warnings``: the first.
    """
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    said = _MULTICAST.findall(text)
    ways, networks = _WAY.findall(text), _NETWORK.findall(text)
    return {
        "multicast": not any(said) if said else None,
        "ways": {way: ways.count(way) for way in sorted(set(ways))},
        "networks": {network: networks.count(network) for network in sorted(set(networks))},
        "direct": len(_DIRECT.findall(text)),
        "warnings": [words[:200] for words in _WARNING.findall(text)[:WARNINGS_KEPT]],
    }
