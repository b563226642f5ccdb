# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files as facts, small ones as text: what cannot be read is absent, never an exception."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path
from typing import Any

TEXT_LIMIT = 64 * 1024

# What we manage, and what others also edit and our plan has to respect.
WATCHED = (
    "/etc/apt/sources.list",
    "/etc/apt/sources.list.d/*",
    "/etc/apt/preferences.d/*",
    "/etc/yum.repos.d/*",
    "/etc/pki/rpm-gpg/*rackready*",
    "/etc/dnf/plugins/versionlock.list",
    "/etc/modprobe.d/*.conf",
    "/etc/modules-load.d/*.conf",
    "/etc/sysctl.d/*rackready*",
    "/etc/security/limits.d/*.conf",
    "/etc/docker/daemon.json",
    "/usr/lib/systemd/system/docker.service.d/*.conf",
    "/etc/systemd/system/docker.service.d/*.conf",
    "/etc/systemd/system/nvidia-*.service.d/*.conf",
    "/etc/systemd/system/rackready-verify.*",
    "/usr/sbin/policy-rc.d",
)

# What we write and facts do not give as text: a program, and a request that may hold a site's secrets.
DIGESTED = ("/etc/rackready/verify.json", "/usr/local/sbin/rackready-verify")


def read_text(path: Path, limit: int = TEXT_LIMIT) -> str | None:
    """At most ``limit`` bytes of a file as text; None where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(limit).decode("utf-8", "replace")
    except OSError:
        return None


def read_line(path: Path) -> str | None:
    """First line without white space around it; None where there is no file or no line."""
    text = (read_text(path, 4096) or "").split("\n", 1)[0].strip()
    return text or None


def watched_files(root: Path) -> tuple[dict[str, str], dict[str, str]]:
    """``files`` and ``unread_files`` of the facts. A file that is given is given whole and exact: a plan may write it again."""
    texts: dict[str, str] = {}
    unread: dict[str, str] = {}
    for pattern in WATCHED:
        for path in sorted(root.glob(pattern[1:])):
            name = "/" + path.relative_to(root).as_posix()
            try:
                if not path.is_file():
                    unread[name] = "not a regular file" if path.exists() else "a link that leads nowhere"
                    continue
                with path.open("rb") as stream:
                    data = stream.read(TEXT_LIMIT + 1)
                if len(data) > TEXT_LIMIT:
                    unread[name] = f"longer than {TEXT_LIMIT // 1024} KiB"
                else:
                    texts[name] = data.decode("utf-8")
            except UnicodeDecodeError:
                unread[name] = "not UTF-8 text"
            except OSError as error:
                unread[name] = f"cannot be read: {error.strerror}"
    return texts, unread


def digests(root: Path) -> dict[str, dict[str, Any]]:
    """``digests`` of the facts: path to ``sha256`` (None where it cannot be read, or is no regular file) and ``mode`` of files that are there."""
    found: dict[str, dict[str, Any]] = {}
    for name in DIGESTED:
        path = root / name[1:]
        try:
            status = path.lstat()
        except OSError:
            continue
        try:
            digest = hashlib.sha256(path.read_bytes()).hexdigest() if stat.S_ISREG(status.st_mode) else None
        except OSError:
            digest = None
        found[name] = {"sha256": digest, "mode": f"{stat.S_IMODE(status.st_mode):04o}"}
    return found
