# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the container is: its limits, its device nodes, its network interfaces, and the driver library that was really loaded."""

from __future__ import annotations

import os
import resource
import stat
from pathlib import Path
from typing import Any

# The bit of an interface's flags that says that it is up (linux/if.h).
IFF_UP = 1


def find_limits(root: Path = Path("/")) -> dict[str, Any]:
    """What this container allows: rlimits as ``[soft, hard]`` (-1: unlimited), /dev/shm in bytes, read-only root, no_new_privs, capabilities, interfaces up."""
    rlimits = {}
    for name in ("memlock", "nofile", "stack", "nproc", "core"):
        rlimits[name] = [-1 if n == resource.RLIM_INFINITY else n for n in resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper()))]
    found: dict[str, Any] = {"ulimits": rlimits, "shm_bytes": None, "read_only_root": None, "no_new_privs": None, "cap_eff": None, "interfaces": None}
    try:
        shm = os.statvfs(root / "dev/shm")
        found["shm_bytes"] = shm.f_frsize * shm.f_blocks
        found["read_only_root"] = bool(os.statvfs(root).f_flag & os.ST_RDONLY)
    except OSError as error:
        found["error"] = str(error)
    try:
        status = dict(line.split(":", 1) for line in (root / "proc/self/status").read_text(encoding="utf-8").splitlines() if ":" in line)
        found["no_new_privs"] = status.get("NoNewPrivs", "").strip() == "1"
        found["cap_eff"] = status.get("CapEff", "").strip() or None
        found["interfaces"] = sorted(p.name for p in (root / "sys/class/net").iterdir() if is_up(p))
    except OSError as error:
        found["error"] = str(error)
    return found


def is_up(interface: Path) -> bool:
    """Whether a network interface (a directory of /sys/class/net) is up; one that does not tell counts.

    Kernel modules put tunl0, sit0, gre0 and their like into every network namespace, down and leading nowhere. ``operstate`` would not do: lo has none.
    """
    try:
        return bool(int((interface / "flags").read_text(encoding="utf-8"), 16) & IFF_UP)
    except (OSError, ValueError):
        return True


def find_device_nodes(root: Path = Path("/")) -> dict[str, list[int]]:
    """Character devices ``/dev/nvidia*`` visible here, path -> [major, minor]."""
    nodes = {}
    for path in sorted((root / "dev").glob("nvidia*")):
        entry = path.stat()
        if stat.S_ISCHR(entry.st_mode):
            nodes[f"/dev/{path.name}"] = [os.major(entry.st_rdev), os.minor(entry.st_rdev)]
    return nodes


def count_gpu_nodes(nodes: dict[str, list[int]]) -> int:
    """How many of the nodes are GPUs: ``/dev/nvidia<number>``."""
    return sum(1 for path in nodes if path[len("/dev/nvidia") :].isdigit())


def find_libcuda(maps: Path = Path("/proc/self/maps")) -> str | None:
    """The libcuda that this process really loaded: a forward-compatibility library shows here, not in the driver's version."""
    try:
        for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
            if "/libcuda.so" in line:
                return line[line.index("/") :].strip()
    except OSError:
        return None
    return None


def cpus_near(pci_bus_id: str | None, root: Path = Path("/")) -> set[int]:
    """The CPUs next to a PCI device that this process may use; empty where the kernel does not tell or there are none."""
    if not pci_bus_id:
        return set()
    near: set[int] = set()
    try:
        for part in (root / "sys/bus/pci/devices" / pci_bus_id / "local_cpulist").read_text(encoding="utf-8").strip().split(","):
            first, _dash, last = part.partition("-")
            near.update(range(int(first), int(last or first) + 1))
    except (OSError, ValueError):
        return set()
    return near & os.sched_getaffinity(0)
