# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The NVIDIA device nodes of the host and the processes that have them open.

Nodes are known by their path. The device number decides only where it cannot mislead: major 1 is that of /dev/null and its siblings, which every process has
open.

Nothing here may hang with what it looks at. Of all that is read of a process only its command line lies in that process's own memory, whose lock a thread that
waits in a wedged driver may hold for ever; so a child reads that one.
"""

from __future__ import annotations

import os
import re
import stat
import time
from pathlib import Path
from typing import Any, Callable, Mapping, Optional, Sequence, Tuple

from ansible_collections.rackready.gpu.plugins.module_utils.bounded import read_apart
from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_line, read_text

Number = Tuple[int, int]

MEMORY_DEVICES = 1
COMMAND_LIMIT = 200
# Seconds for one command line, and for all those together that do not answer.
COMMAND_LINE_S = 1.0
SILENT_S = 3.0
# NVIDIA's own daemons, as the kernel shortens their names to 15 characters.
SERVICES = ("nvidia-persistenced", "nv-fabricmanager", "nvidia-imex", "nv-hostengine", "dcgm", "dcgm-exporter", "nvlsm")
_SERVICE_NAMES = frozenset(name[:15] for name in SERVICES)

_NODE = re.compile(r"(?:/.*)?/dev/(nvidia[^/]*(?:/[^/]+)?)")
_CONTAINER = re.compile(r"(?:^|[/-])([0-9a-f]{64})(?=\.scope(?:/|$)|/|$)")
_UNIT = re.compile(r".*\.(?:service|scope)")


def char_device(path: Path) -> Number | None:
    """Major and minor number of a character device; None for anything else."""
    try:
        status = path.lstat()
    except OSError:
        return None
    return (os.major(status.st_rdev), os.minor(status.st_rdev)) if stat.S_ISCHR(status.st_mode) else None


def device_nodes(root: Path, number_of: Callable[[Path], Number | None] = char_device) -> list[dict[str, Any]]:
    """``device_nodes`` of the facts: /dev/nvidia* and what is in directories of that name."""
    nodes = []
    for path in sorted([*root.glob("dev/nvidia*"), *root.glob("dev/nvidia*/*")]):
        number = number_of(path)
        if number is not None:
            nodes.append({"path": "/" + path.relative_to(root).as_posix(), "major": number[0], "minor": number[1]})
    return nodes


ReadApart = Callable[[Path, int, float], Optional[bytes]]


class _CommandLines:
    """Reads command lines until so many have not answered that asking on would take too long."""

    def __init__(self, read: ReadApart) -> None:
        self._read = read
        self._left = SILENT_S

    def of(self, process: Path) -> list[str] | None:
        """The arguments of a process, [] of one that has none; None: it did not answer, or was not asked any more."""
        if self._left <= 0:
            return None
        started = time.monotonic()
        data = self._read(process / "cmdline", 4096, min(COMMAND_LINE_S, self._left))
        if data is None:
            self._left -= max(time.monotonic() - started, 0.1)
            return None
        return data.decode("utf-8", "replace").split("\0") if data else []


def holders(root: Path, nodes: list[dict[str, Any]], ours: frozenset[int] = frozenset(), read: ReadApart = read_apart) -> list[dict[str, Any]]:
    """``holders`` of the facts: each process that has one of ``nodes`` open, sorted by pid and device.

    ``ours`` are process ids, and ids of process groups, to leave out. Processes come and go while this looks; one that has gone holds nothing.
    ``read`` reads a file in at most so many seconds.
    """
    command_lines = _CommandLines(read)
    by_number = {(node["major"], node["minor"]): node["path"] for node in nodes if node["major"] != MEMORY_DEVICES}
    paths = frozenset(node["path"] for node in nodes)
    host_containers = _containers(read_text(root / "proc/1/cgroup") or "")
    found: list[dict[str, Any]] = []
    for process in _processes(root):
        pid = int(process.name)
        devices = _open_devices(process, paths, by_number)
        if devices and not ({pid, _group_of(process)} & ours):
            holder = {"pid": pid, **_describe(process, command_lines.of(process), host_containers)}
            found.extend({"device": device, **holder} for device in sorted(devices))
    return sorted(found, key=lambda holder: (holder["pid"], holder["device"]))


def _processes(root: Path) -> list[Path]:
    try:
        return [path for path in (root / "proc").iterdir() if path.name.isdigit()]
    except OSError:
        return []


def _open_devices(process: Path, paths: frozenset[str], by_number: dict[Number, str]) -> frozenset[str]:
    folder = str(process / "fd")
    devices = set()
    try:
        with os.scandir(folder) as descriptors:
            links = [descriptor.path for descriptor in descriptors]
    except OSError:
        return frozenset()
    for link in links:
        try:
            target = os.readlink(link)
        except OSError:
            continue
        if "/dev/" not in target:
            continue
        node = _NODE.fullmatch(target[: -len(" (deleted)")] if target.endswith(" (deleted)") else target)
        if node:  # also seen from a container or a chroot, whose nodes have the same names
            devices.add("/dev/" + node.group(1))
        elif by_number and target.startswith("/dev/") and target not in paths:
            # Under another name. Only files in /dev are asked: one on a dead network file system would hold us up for ever.
            device = _number_behind(link)
            if device in by_number:
                devices.add(by_number[device])
    return frozenset(devices)


def _number_behind(link: str) -> Number:
    try:
        status = os.stat(link)  # noqa: PTH116 - thousands of them: a Path each costs more than the call
    except OSError:
        return (0, 0)
    return (os.major(status.st_rdev), os.minor(status.st_rdev))


def _group_of(process: Path) -> int:
    """Process group, from the fields after the command name, which may itself hold spaces and brackets."""
    fields = (read_text(process / "stat", 4096) or "").rpartition(")")[2].split()
    return int(fields[2]) if len(fields) > 2 and fields[2].isdigit() else 0


def _describe(process: Path, arguments: list[str] | None, host_containers: frozenset[str]) -> dict[str, Any]:
    name = read_line(process / "comm") or "?"
    cgroup = read_text(process / "cgroup") or ""
    container = container_of(cgroup, host_containers)
    return {
        "command": f"{name} (its command line cannot be read)" if arguments is None else " ".join(arguments).strip()[:COMMAND_LIMIT] or f"[{name}]",
        "unit": None if container else unit_of(cgroup),
        "container": container,
        "role": "service" if _SERVICE_NAMES & {name[:15], Path((arguments or [""])[0]).name[:15]} else "workload",
    }


def _containers(cgroup: str) -> frozenset[str]:
    return frozenset(match.group(1) for line in cgroup.splitlines() for match in _CONTAINER.finditer(line.rpartition(":")[2]))


def container_of(cgroup: str, host_containers: frozenset[str] = frozenset()) -> str | None:
    """First 12 digits of the container id in a text of /proc/<pid>/cgroup (version 1 or 2: docker-<id>.scope, /docker/<id>), else None.

    ``host_containers`` are ids to pass over: those that process 1 is in, where the host itself is a container.
    """
    for line in cgroup.splitlines():
        identifiers = [match.group(1) for match in _CONTAINER.finditer(line.rpartition(":")[2])]
        inner = [identifier for identifier in identifiers if identifier not in host_containers]
        if inner:
            return inner[-1][:12]
    return None


def container_words(identifier: str, containers: Sequence[Mapping[str, Any]]) -> str:
    """A container for people: ``container train (abc123def456)``; only its id where it is none of the engine's (``docker.containers`` of the facts)."""
    short = identifier[:12]
    name = next((container["name"] for container in containers if container["id"] == short), None)
    return f"container {name} ({short})" if name else f"container {short}"


def unit_of(cgroup: str) -> str | None:
    """Innermost systemd service or scope in a text of /proc/<pid>/cgroup, else None."""
    lines = [line.split(":", 2) for line in cgroup.splitlines() if line.count(":") >= 2]
    paths = [path for _number, controllers, path in lines if controllers in ("name=systemd", "")]
    for path in paths:
        for part in reversed(path.split("/")):
            if _UNIT.fullmatch(part) and not _CONTAINER.search(part):
                return part
    return None
