# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""What hardware the simulated host has, as data.

``/etc/gpu-host-sim/board.json`` of a host names a board of ``boards/`` and says what differs::

    {"board": "hgx-h100-8", "gpus": 8, "uuid_seed": "h100-02", "nouveau": false}
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

HOME = Path(__file__).resolve().parent.parent

Board = dict[str, Any]


class BoardError(Exception):
    """The board file cannot be used; the text is a sentence."""


def load(config: dict[str, Any], boards: Path = HOME / "boards") -> Board:
    """Resolve a host's board configuration to a whole board.

    :param config: ``board`` (file name of ``boards/`` without suffix), ``gpus`` (use only the first so many), ``uuid_seed``
        (text that makes UUIDs and serial numbers of this host its own), ``nouveau`` (the module is loaded at boot).
    :raises BoardError: unknown board or key, or more GPUs than the board has.
    """
    unknown = sorted(set(config) - {"board", "gpus", "uuid_seed", "nouveau"})
    if unknown:
        raise BoardError(f"board.json has unknown keys {', '.join(unknown)}")
    path = boards / f"{config.get('board', '')}.json"
    if not path.is_file():
        known = ", ".join(sorted(each.stem for each in boards.glob("*.json")))
        raise BoardError(f"board.json asks for board {config.get('board')!r}, which is none of {known}")
    board: Board = json.loads(path.read_text(encoding="utf-8"))
    count = config.get("gpus", len(board["gpus"]))
    if not 0 <= count <= len(board["gpus"]):
        raise BoardError(f"board.json asks for {count} GPUs, and {board['name']} has {len(board['gpus'])}")
    board["gpus"] = board["gpus"][:count]
    seed = config.get("uuid_seed")
    for gpu in board["gpus"]:
        if seed is not None:
            gpu["uuid"] = "GPU-" + str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{seed}/{gpu['pci_bus_id']}"))
            gpu["serial"] = str(1650000000000 + uuid.UUID(gpu["uuid"][4:]).int % 10**9)
        gpu.setdefault("pdi", "0x" + uuid.uuid5(uuid.NAMESPACE_OID, gpu["uuid"]).hex[:16])
    board["nouveau"] = bool(config.get("nouveau", False))
    return board


def smi_bus_id(pci_bus_id: str) -> str:
    """The bus id as nvidia-smi prints it: ``0000:1a:00.0`` -> ``00000000:1A:00.0``."""
    domain, bus, slot = pci_bus_id.split(":")
    return f"{domain:0>8}:{bus.upper()}:{slot.upper()}"


def sysfs_bus_id(text: str) -> str:
    """The bus id as sysfs has it, from either form; other text comes back in lower case."""
    parts = text.lower().split(":")
    if len(parts) == 3:
        return ":".join([parts[0][-4:].rjust(4, "0"), *parts[1:]])
    return "0000:" + text.lower() if len(parts) == 2 else text.lower()
