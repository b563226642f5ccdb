# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What kind of machine and system a host is, from a few small files."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_line, read_text

STAMP = "var/lib/rackready/stamp.json"
# Whatever is written on a host lies in one of these or below, and each of them can be a file system of its own.
DISKS = (
    "/",
    "/boot",
    "/etc",
    "/etc/apt/preferences.d",
    "/etc/apt/sources.list.d",
    "/etc/dnf/plugins",
    "/etc/docker",
    "/etc/modprobe.d",
    "/etc/modules-load.d",
    "/etc/pki/rpm-gpg",
    "/etc/rackready",
    "/etc/security/limits.d",
    "/etc/systemd/system",
    "/etc/yum.repos.d",
    "/tmp",
    "/usr",
    "/usr/lib/modules",
    "/usr/lib/systemd/system",
    "/usr/local/sbin",
    "/var",
    "/var/cache/apt",
    "/var/cache/dnf",
    "/var/lib",
    "/var/lib/containerd",
    "/var/lib/dkms",
    "/var/lib/docker",
)
# Their releases with a dot are releases of their own, not minor updates of one.
_WHOLE_VERSION = ("ubuntu",)


def distribution(root: Path) -> tuple[dict[str, Any], list[str]]:
    """``distribution`` of the facts, and ID and ID_LIKE as a list."""
    text = read_text(root / "etc/os-release") or read_text(root / "usr/lib/os-release") or ""
    values = parse_os_release(text)
    identifier = values.get("ID", "linux")
    version = values.get("VERSION_ID") or None
    major = version if version is None or identifier in _WHOLE_VERSION else version.split(".")[0]
    facts = {
        "id": identifier,
        "version": version,
        "codename": values.get("VERSION_CODENAME") or None,
        "name": values.get("PRETTY_NAME") or identifier,
        "key": f"{identifier}-{major}" if major else identifier,
    }
    return facts, [identifier, *values.get("ID_LIKE", "").split()]


def parse_os_release(text: str) -> dict[str, str]:
    """Assignments of an os-release file; quotes are removed, ``\\`` escapes resolved."""
    values = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith("#"):
            quoted = re.fullmatch(r"""(["'])(.*)\1""", value)
            values[name] = re.sub(r"\\(.)", r"\1", quoted.group(2)) if quoted else value
    return values


def kernel(root: Path, release: str) -> dict[str, Any]:
    """``kernel`` of the facts for the running ``release``."""
    return {
        "release": release,
        "headers": (root / "lib/modules" / release / "build").is_dir(),  # false for a link whose headers were removed
        "command_line": read_line(root / "proc/cmdline") or "",
        "secure_boot": secure_boot(root),
        # What only a package of the kernel brings: a folder that its removal left behind, with modules that were built for it, has none.
        "others": {
            path.parent.name: (path.parent / "build").is_dir()
            for path in sorted((root / "lib/modules").glob("*/modules.builtin"))
            if path.parent.name != release
        },
    }


def secure_boot(root: Path) -> str:
    """enabled, disabled, unsupported (no EFI, or firmware without it) or unknown (EFI whose variables cannot be read)."""
    if not (root / "sys/firmware/efi").is_dir():
        return "unsupported"
    variables = root / "sys/firmware/efi/efivars"
    try:
        files = list(variables.glob("SecureBoot-*"))
        if not files:
            return "unsupported" if any(variables.iterdir()) else "unknown"
        data = files[0].read_bytes()
    except OSError:
        return "unknown"
    # Four bytes of attributes, one of value.
    return {b"\x01": "enabled", b"\x00": "disabled"}.get(data[4:], "unknown")


def selinux(root: Path) -> dict[str, Any]:
    """``selinux`` of the facts: what SELinux does, and whether its policy lets containers use devices (None where the policy does not say)."""
    enforce = read_line(root / "sys/fs/selinux/enforce")
    devices = read_line(root / "sys/fs/selinux/booleans/container_use_devices")
    return {
        "mode": "disabled" if enforce is None else "enforcing" if enforce == "1" else "permissive",
        "container_use_devices": None if devices is None else devices.startswith("1"),
    }


def memory_mib(root: Path) -> int:
    """MemTotal in MiB; 0 where the kernel does not say."""
    match = re.search(r"^MemTotal:\s+([0-9]{1,15}) kB", read_text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(match.group(1)) // 1024 if match else 0


def cpus(root: Path) -> int:
    """Number of logical CPUs that are online, from a list such as ``0-63,128-191``."""
    online = read_line(root / "sys/devices/system/cpu/online") or ""
    if not re.fullmatch(r"[0-9]{1,6}(-[0-9]{1,6})?(,[0-9]{1,6}(-[0-9]{1,6})?)*", online):
        return os.cpu_count() or 1
    ranges = (part.partition("-") for part in online.split(","))
    return sum(int(last or first) - int(first) + 1 for first, _dash, last in ranges)


def disk(root: Path, more: str | None) -> dict[str, dict[str, Any]]:
    """``disk`` of the facts for the usual directories and ``more`` (the engine's data directory)."""
    found = {}
    for name in (*DISKS, *([more] if more else [])):
        path = root / name.lstrip("/")
        while not path.exists() and path != root:
            path = path.parent
        status = os.statvfs(str(path))
        found[name] = {
            "device": path.stat().st_dev,
            "free_mib": status.f_bavail * status.f_frsize // (1024 * 1024),
            # Some file systems make inodes as they need them, and count none.
            "free_inodes": status.f_favail if status.f_files else None,
            "read_only": bool(status.f_flag & os.ST_RDONLY),
        }
    return found


def stamp(root: Path) -> dict[str, Any] | None:
    """The stamp of the last accepted smoke test; None where there is none, ``{"error": why}`` where it cannot be read."""
    try:
        value = json.loads((root / STAMP).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        return {"error": f"/{STAMP}: {error}"}
    return value if isinstance(value, dict) else {"error": f"/{STAMP} holds no JSON object"}
