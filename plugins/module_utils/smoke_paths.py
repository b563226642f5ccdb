# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What lies in the way of data: between GPUs (ACS, IOMMU), from the network (GPUDirect) and from the file systems that the site names.

All of it is advice: none of these checks is required, and each names what explains a hang, a wrong copy or a slow job when another check has found one.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands
from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_line
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, DEGRADED, PASS, Check, make_check

DEVICES = "sys/bus/pci/devices"
# PCI Express: extended capabilities begin at 256; ACS has the id 13, its control register lies 6 bytes in. Redirecting requests (bit 2) or completions (bit 3)
# sends what one GPU writes to another up to the root complex.
EXTENDED, ACS, ACS_CONTROL, REDIRECT = 0x100, 0x0D, 6, 0b1100
CONFIG_BYTES = 4096
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")
# Of a file system: how much is read at most, in how long, and the smallest file worth reading.
READ_MIB = 2048
READ_S = 8.0
FIND_S = 5.0
LEAST_MIB = 64


def acs_redirects(config: bytes) -> bool | None:
    """Whether a port's configuration space says that it redirects traffic between devices below it; None where it has no ACS or too little was read."""
    at, seen = EXTENDED, 0
    while EXTENDED <= at <= len(config) - 8 and seen < 96:
        (header,) = struct.unpack_from("<I", config, at)
        if header & 0xFFFF == ACS:
            (control,) = struct.unpack_from("<H", config, at + ACS_CONTROL)
            return bool(control & REDIRECT)
        at, seen = header >> 20, seen + 1
    return None


def ports_above(device: Path) -> list[Path]:
    """The ports between a device and its root complex, the nearest first."""
    return [folder for folder in device.resolve().parents if re.fullmatch(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", folder.name)]


def pcie_path(gpus: Sequence[ExpectedGpu], command_line: str, root: Path = Path("/")) -> Check:
    """Whether traffic between GPUs over PCIe is sent up to the processor: known to make copies hang or come out wrong (nccl#2079, nccl#257)."""
    redirecting = []
    for gpu in gpus:
        for port in ports_above(root / DEVICES / gpu.pci_bus_id):
            if port.name not in redirecting and acs_redirects(_config(port)):
                redirecting.append(port.name)
    translating = re.search(r"\b(intel_iommu=on|amd_iommu=on|iommu=force)\b", command_line) is not None and not re.search(r"\biommu=pt\b", command_line)
    value = {"acs_redirect": redirecting, "iommu_translates": translating}
    problems = [f"ACS redirects between devices at {', '.join(redirecting[:8])}"] if redirecting else []
    if translating:
        problems.append("the IOMMU translates (kernel command line)")
    remedy = "on bare metal turn ACS off for these ports (BIOS, or setpci), and add iommu=pt to the kernel command line; in a virtual machine ask the host"
    status = DEGRADED if problems else PASS
    reason = f"traffic between GPUs over PCIe goes through the processor: {'; '.join(problems)}" if problems else None
    source = "PCI configuration space, /proc/cmdline"
    return make_check("pcie_path", status, reason, remedy=remedy if problems else None, value=value, source=source, required=False)


def _config(port: Path) -> bytes:
    try:
        with (port / "config").open("rb") as stream:
            return stream.read(CONFIG_BYTES)
    except OSError:
        return b""


def peer_memory(log_lines: Sequence[str], root: Path = Path("/")) -> Check | None:
    """The module by which a network card reads GPU memory, where there is such a card. ``log_lines``: what the kernel said of that module."""
    cards = sorted(path.name for path in (root / "sys/class/infiniband").glob("*"))
    if not cards:
        return None
    loaded = [name for name in PEER_MODULES if (root / "sys/module" / name).is_dir()]
    value = {"cards": cards, "loaded": loaded, "version": read_line(root / "sys/module" / loaded[0] / "version") if loaded else None}
    source = "/sys/class/infiniband, /sys/module, the kernel's log"
    mismatch = [line for line in log_lines if "disagrees about version of symbol" in line or "Unknown symbol" in line]
    if mismatch:
        reason = f"the module for GPUDirect does not fit the network driver: {mismatch[0]}"
        remedy = "reinstall the GPU driver after the network driver (MLNX_OFED, DOCA), so that nvidia_peermem is built against it"
        return make_check("peer_memory", DEGRADED, reason, remedy=remedy, value=value, source=source, required=False)
    if not loaded:
        reason = f"there are RDMA cards ({', '.join(cards[:4])}) and no module by which they read GPU memory is loaded"
        return make_check("peer_memory", DEGRADED, reason, remedy="run `modprobe nvidia_peermem`", value=value, source=source, required=False)
    return make_check("peer_memory", PASS, value=value, source=source, required=False)


def data_path(path: str, commands: Commands, seconds: float = READ_S) -> Check:
    """How fast a large file below a path is read, past the page cache where the file system can: by children, since a dead server never answers."""
    name, source = "data_path", f"reading of a file below {path}"

    def check(status: str, reason: str | None, value: dict[str, Any]) -> Check:
        return make_check(name, status, reason, value={"path": path, **value}, unit="MB/s", source=source, required=False)

    find, copy = commands.find("find"), commands.find("dd")
    if find is None or copy is None:
        return check(COULD_NOT_RUN, "find or dd is not installed", {})
    found = commands.start([find, path, "-xdev", "-type", "f", "-size", f"+{LEAST_MIB}M", "-readable", "-print0", "-quit"], FIND_S).finish()
    file = found.text.partition("\0")[0]
    if not file:
        return check(COULD_NOT_RUN, found.complaint("find") or f"there is no file of more than {LEAST_MIB} MiB below {path}", {})
    for direct in (True, False):
        arguments = [copy, f"if={file}", "of=/dev/null", "bs=4M", f"count={READ_MIB // 4}", *(["iflag=direct"] if direct else [])]
        read = commands.start(arguments, seconds).finish()
        copied = re.search(r"^([0-9]+) bytes", read.stderr.decode("utf-8", "replace"), re.MULTILINE)
        if read.rc == 0 and copied and int(copied.group(1)) > 0:
            rate = int(copied.group(1)) / max(read.seconds, 0.001) / 1e6
            return check(PASS, None, {"mb_s": round(rate, 1), "bytes": int(copied.group(1)), "seconds": read.seconds, "direct": direct})
        if read.problem:
            return check(COULD_NOT_RUN, f"{file}: {read.complaint('dd')}", {"direct": direct})
    return check(COULD_NOT_RUN, f"{file}: {read.complaint('dd') or 'nothing was read'}", {"direct": False})
