# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Packages that matter here, read from the package manager's own state, and whether that state can be worked with."""

from __future__ import annotations

import configparser
import fcntl
import os
import re
import struct
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Dict, Iterator, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Commands
from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_line, read_text

STATUS_LIMIT = 64 * 1024 * 1024
RPM_TIMEOUT_S = 10
_RELEVANT = re.compile(
    r"(?:lib)?nvidia.*|libnvsdm.*|(?:lib)?cuda.*|docker.*|containerd.*|runc|podman(?:-docker)?|dkms|nvlsm|infiniband-diags|datacenter-gpu-manager.*"
    r"|a?kmod-nvidia.*|linux-(?:modules|objects|signatures)-nvidia.*|firmware-nvidia.*|xorg-x11-(?:drv-)?nvidia.*|python3-dnf-plugin-versionlock"
)
_STATUS = re.compile(r"^Status: (\S+) (\S+) (\S+)$", re.MULTILINE)
_UNFINISHED = frozenset(["half-installed", "unpacked", "half-configured", "triggers-awaited", "triggers-pending"])
_ABSENT = frozenset(["not-installed", "config-files"])
_DPKG_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_LOCKS = {
    "apt": ("var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock"),
    "dnf": ("var/lib/rpm/.rpm.lock",),
}
# dnf's own lock on the package database holds the id of the process that has it.
_DNF_LOCK = "var/lib/dnf/rpmdb_lock.pid"
VERSIONLOCK = "etc/dnf/plugins/versionlock.list"
VERSIONLOCK_SWITCH = "etc/dnf/plugins/versionlock.conf"
_KERNEL_DEVEL = re.compile(r"kernel-(?:(?P<variant>[a-z0-9]+(?:-debug)?)-)?(?P<what>devel(?:-matched)?)")
# name, epoch where there is one, version, release, architecture
_RPM_FORMAT = "%{NAME}\\t%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}\\t%{ARCH}\\n"

Installed = Dict[str, Dict[str, Any]]


class Query:
    """The package state; rpm is started at once, dpkg's status file is only read. ``family`` are ID and ID_LIKE of the distribution."""

    def __init__(self, root: Path, commands: Commands, family: list[str], kernel_release: str, architecture: str) -> None:
        self._root = root
        self._kernel = kernel_release
        self._architecture = architecture
        self.manager = _manager(root, commands, family)
        rpm = commands.find("rpm") if self.manager == "dnf" else None
        self._rpm: Child | None = commands.start([rpm, "-qa", "--qf", _RPM_FORMAT], RPM_TIMEOUT_S) if rpm else None

    def facts(self) -> dict[str, Any]:
        """``packages`` of the facts."""
        installed: Installed = {}
        broken = False
        streams: dict[str, str] = {}
        excludes: list[str] = []
        if self.manager == "apt":
            status = read_text(self._root / "var/lib/dpkg/status", STATUS_LIMIT) or ""
            installed = parse_dpkg_status(status, self._kernel, self._architecture)
            broken = is_broken(status) or _has_pending_updates(self._root)
        elif self._rpm is not None:
            result = self._rpm.finish()
            excludes = parse_excludes(read_text(self._root / "etc/dnf/dnf.conf") or "")
            installed = parse_rpm_list(result.text, self._locks(), excludes, self._kernel)
            broken = result.complaint("rpm") is not None or bool(doubled(result.text))
            streams = enabled_streams(self._root)
        return {"manager": self.manager, "installed": installed, "busy": self._busy(), "broken": broken, "streams": streams, "excludes": excludes}

    def _locks(self) -> list[str]:
        """The lines of dnf's versionlock, which lock nothing while its plugin is absent or switched off."""
        switch = read_text(self._root / VERSIONLOCK_SWITCH)
        if switch is None or option(switch, "main", "enabled").lower() in ("0", "false", "no"):
            return []
        return (read_text(self._root / VERSIONLOCK) or "").splitlines()

    def _busy(self) -> str | None:
        for name in _LOCKS.get(self.manager or "", ()):
            pid = locked_by(self._root / name)
            if pid is not None:
                command = read_line(self._root / f"proc/{pid}/comm") if pid > 0 else None
                who = f"{command or 'process'} (pid {pid})" if pid > 0 else "a process outside this host's view"
                return f"{who} holds /{name}"
        holder = (read_line(self._root / _DNF_LOCK) or "") if self.manager == "dnf" else ""
        if holder.isdigit() and (self._root / f"proc/{holder}").is_dir():
            return f"{read_line(self._root / f'proc/{holder}/comm') or 'process'} (pid {holder}) holds /{_DNF_LOCK}"
        return None


def _manager(root: Path, commands: Commands, family: list[str]) -> str | None:
    if {"debian", "ubuntu"} & set(family):
        return "apt" if (root / "var/lib/dpkg/status").is_file() else None
    return "dnf" if commands.find("dnf") else None


def parse_dpkg_status(status: str, kernel_release: str, architecture: str) -> Installed:
    """Relevant packages in the text of /var/lib/dpkg/status. ``architecture`` is uname's; foreign packages are keyed ``name:architecture``."""
    wanted = {f"linux-headers-{kernel_release}"}
    native = {_DPKG_ARCHITECTURES.get(architecture, architecture), "all"}
    installed: Installed = {}
    for paragraph in status.split("\n\n"):
        head, _newline, rest = paragraph.lstrip("\n").partition("\n")
        name = head[len("Package: ") :].strip()
        if not head.startswith("Package: ") or not (_RELEVANT.fullmatch(name) or name in wanted):
            continue
        state = _STATUS.search(rest)
        version = re.search(r"^Version: (\S+)$", rest, re.MULTILINE)
        if state is None or version is None or state.group(3) in _ABSENT:
            continue
        package_architecture = re.search(r"^Architecture: (\S+)$", rest, re.MULTILINE)
        suffix = "" if package_architecture is None or package_architecture.group(1) in native else f":{package_architecture.group(1)}"
        installed[name + suffix] = {"version": version.group(1), "held": state.group(1) == "hold"}
    return dict(sorted(installed.items()))


def is_broken(status: str) -> bool:
    """Whether any package, relevant or not, is half installed or not configured, as ``dpkg --audit`` would say."""
    return any(flag != "ok" or state in _UNFINISHED for _want, flag, state in _STATUS.findall(status))


def _has_pending_updates(root: Path) -> bool:
    """dpkg keeps numbered files here until it has written its status file; left over, they mean that it was interrupted (apt refuses to work then)."""
    updates = root / "var/lib/dpkg/updates"
    try:
        return any(path.name.isdigit() for path in updates.iterdir())
    except OSError:
        return False


def _rpms(listing: str, kernel_release: str) -> Iterator[tuple[str, str, str]]:
    """Relevant packages in the output of ``rpm -qa`` (our format) as name, version and architecture."""
    for line in listing.splitlines():
        fields = line.split("\t")
        if len(fields) != 3:
            continue
        name, version, architecture = fields
        version = version[2:] if version.startswith("0:") else version
        devel = _KERNEL_DEVEL.fullmatch(name)
        if devel and f"{version}.{architecture}{'+' + devel['variant'] if devel['variant'] else ''}" == kernel_release:
            yield f"kernel-{devel['what']}-{kernel_release}", version, architecture
        elif _RELEVANT.fullmatch(name):
            yield name, version, architecture


def parse_rpm_list(listing: str, locks: Sequence[str], excludes: Sequence[str], kernel_release: str) -> Installed:
    """Relevant packages in the output of ``rpm -qa`` (our format), held where a line of dnf's versionlock or an exclude names them.

    Of several versions of a name the last counts. A line of versionlock that is a name without a version locks nothing.
    """
    patterns = [line.strip() for line in locks if line.strip() and line.strip()[0] not in "#!"]
    installed: Installed = {}
    for name, version, architecture in _rpms(listing, kernel_release):
        full = version if ":" in version else f"0:{version}"
        forms = (f"{name}-{version}.{architecture}", f"{name}-{full}.{architecture}", f"{name}-{version}", f"{name}-{full}")
        locked = any(fnmatchcase(form, pattern) and not fnmatchcase(name, pattern) for form in forms for pattern in patterns)
        excluded = any(fnmatchcase(form, pattern) for form in (name, *forms) for pattern in excludes)
        installed[name] = {"version": version, "held": locked or excluded}
    return dict(sorted(installed.items()))


def doubled(listing: str) -> list[str]:
    """Relevant packages that are there in two versions: a transaction that was cut off leaves the old one beside the new one."""
    seen: dict[tuple[str, str], set[str]] = {}
    for name, version, architecture in _rpms(listing, ""):
        seen.setdefault((name, architecture), set()).add(version)
    return sorted({name for (name, _architecture), versions in seen.items() if len(versions) > 1})


def enabled_streams(root: Path) -> dict[str, str]:
    """Module to its enabled stream, from dnf's own state."""
    streams = {}
    for path in sorted((root / "etc/dnf/modules.d").glob("*.module")):
        text, module = read_text(path) or "", path.stem
        stream = option(text, module, "stream")
        if stream and option(text, module, "state") == "enabled":
            streams[module] = stream
    return streams


def parse_excludes(text: str) -> list[str]:
    """Packages that dnf.conf keeps dnf from seeing in any repository, as names or patterns."""
    return [word for name in ("exclude", "excludepkgs") for word in re.split(r"[\s,]+", option(text, "main", name)) if word]


def option(text: str, section: str, name: str) -> str:
    """An option of a file that dnf reads; empty where there is none, or no such file could be read."""
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read_string(text)
    except configparser.Error:
        return ""
    return parser.get(section, name, fallback="").strip()


def locked_by(path: Path) -> int | None:
    """Process that holds a write lock on a file; 0 where it is outside our process namespace; None where nobody does or there is no file.

    Asks (F_GETLK) and takes no lock, so it cannot get into the way of a package manager that starts at this moment.
    """
    question = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with path.open("rb") as stream:
            answer = fcntl.fcntl(stream, fcntl.F_GETLK, question)
    except OSError:
        return None
    fields: tuple[int, ...] = struct.unpack("hhqqi", answer)
    return None if fields[0] == fcntl.F_UNLCK else max(fields[4], 0)
