# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Trees of PCI devices with ports that have a configuration space, for tests of what lies between GPUs."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.unit.smoke_fakes import gpus


def config(control: int | None, before: tuple[int, ...] = (0x1,), size: int = 4096) -> bytes:
    """A port's configuration space: extended capabilities in a chain, the last of them ACS with this control register."""
    space = bytearray(4096)
    at = 0x100
    for capability in before:
        struct.pack_into("<I", space, at, (at + 0x40) << 20 | 0x10000 | capability)
        at += 0x40
    if control is not None:
        struct.pack_into("<I", space, at, 0x10000 | 0x0D)
        struct.pack_into("<H", space, at + 6, control)
    return bytes(space[:size])


def two_gpus_below(root: Path, control: int | None) -> Path:
    """Two GPUs below one port each, below one root port."""
    bus = root / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    top = root / "sys/devices/pci0000:00/0000:00:01.0"
    for index, gpu in enumerate(gpus(2)):
        port = top / f"0000:0{index + 2}:00.0"
        (port / gpu.pci_bus_id).mkdir(parents=True)
        if control is not None:
            (port / "config").write_bytes(config(control))
        (bus / gpu.pci_bus_id).symlink_to(port / gpu.pci_bus_id)
    (top / "config").write_bytes(config(0))
    return root
