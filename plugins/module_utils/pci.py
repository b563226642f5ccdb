# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVIDIA devices on the PCI bus, from sysfs: needs no driver, starts nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_line

NVIDIA = "10de"
MELLANOX = "15b3"
GPU_CLASSES = ("0300", "0302")  # VGA and 3D controller; audio (0403), USB (0c03) and bridges are other functions of the same card
INFINIBAND_CLASS = "0207"
# Bridges of NVSwitch 1 to 3. Ids from the table in NVIDIA's open kernel modules (nvswitch.c); 22a8 to 22af are plain and non-transparent bridges of the same
# board. 1ac2 (NVSwitch 1) is not in that table.
NVSWITCH_IDS = frozenset([0x1AC2, 0x1AE8, *range(0x1AF0, 0x1B00), *range(0x22A0, 0x22A8)])

_BUS_ID = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])", re.IGNORECASE)
_LINK_WIDTHS = (1, 2, 4, 8, 12, 16, 32)  # a lost device reads as all ones, which is no width


def normalize_bus_id(text: str) -> str:
    """sysfs form of a PCI address: ``00000000:1A:00.0`` and ``1a:00.0`` become ``0000:1a:00.0``.

    Raises ValueError for anything that is not a PCI address.
    """
    match = _BUS_ID.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a PCI address: {text!r}")
    domain, bus, device, function = match.groups()
    return f"{int(domain or '0', 16):04x}:{int(bus, 16):02x}:{int(device, 16):02x}.{function}"


def scan(root: Path) -> dict[str, Any]:
    """``gpus``, ``nvswitches`` and ``nvlink5_management`` of the facts, each list sorted by bus id."""
    gpus: list[dict[str, Any]] = []
    nvswitches: list[dict[str, str]] = []
    infiniband: list[Path] = []
    bus = root / "sys/bus/pci/devices"
    for device in sorted(bus.iterdir(), key=lambda path: path.name) if bus.is_dir() else []:
        vendor = _hex(device / "vendor")
        device_class = _hex(device / "class")[:4]
        if vendor == NVIDIA and device_class in GPU_CLASSES:
            gpus.append(_gpu(device, device_class))
        elif vendor == NVIDIA and int(_hex(device / "device") or "0", 16) in NVSWITCH_IDS:
            nvswitches.append({"pci_bus_id": normalize_bus_id(device.name), "pci_id": f"{NVIDIA}:{_hex(device / 'device')}"})
        elif vendor == MELLANOX and device_class == INFINIBAND_CLASS:
            infiniband.append(device)
    # Reading vital product data takes tens of milliseconds a port, so only where the answer can matter.
    nvlink5 = bool(gpus) and not nvswitches and any(_manages_nvlink5(device) for device in infiniband)
    return {"gpus": gpus, "nvswitches": nvswitches, "nvlink5_management": nvlink5}


def _gpu(device: Path, device_class: str) -> dict[str, Any]:
    subsystem = _hex(device / "subsystem_vendor"), _hex(device / "subsystem_device")
    node = read_line(device / "numa_node")
    driver = device / "driver"
    return {
        "pci_bus_id": normalize_bus_id(device.name),
        "pci_id": f"{NVIDIA}:{_hex(device / 'device')}",
        "subsystem_id": ":".join(subsystem) if all(subsystem) else None,
        "class": device_class,
        "driver": driver.resolve().name if driver.is_symlink() else None,
        "numa_node": int(node) if node is not None and node.isdigit() else None,  # -1: the firmware does not say
        "link": link(device),
    }


def link(device: Path) -> dict[str, Any]:
    """The PCIe link of a device (a directory of sysfs): GT/s and lanes now and at most; None where it does not tell."""
    return {
        "speed_gts": _speed(device / "current_link_speed"),
        "width": _width(device / "current_link_width"),
        "max_speed_gts": _speed(device / "max_link_speed"),
        "max_width": _width(device / "max_link_width"),
    }


def port_above(device: Path) -> Path:
    """The port that a device hangs on, whose link is the device's seen from the other end. Where there is none, nothing in it tells of a link."""
    return device.resolve().parent


def _hex(path: Path) -> str:
    """``0x10de`` as ``10de``; empty where there is no such number."""
    text = (read_line(path) or "").lower()
    return text[2:] if re.fullmatch(r"0x[0-9a-f]{4,6}", text) else ""


def _speed(path: Path) -> float | None:
    match = re.match(r"([0-9]{1,3}(?:\.[0-9]+)?) GT/s", read_line(path) or "")
    return float(match.group(1)) if match else None


def _width(path: Path) -> int | None:
    text = read_line(path) or ""
    return int(text) if text.isdigit() and int(text) in _LINK_WIDTHS else None


def _manages_nvlink5(device: Path) -> bool:
    try:
        with (device / "vpd").open("rb") as vpd:
            return b"SW_MNG" in vpd.read(32 * 1024)
    except OSError:
        return False
