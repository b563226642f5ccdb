# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Bring the command rackready-verify, its request and its timer to a host, changing only what differs."""

from __future__ import annotations

import hashlib
import json
import stat
from pathlib import Path
from typing import Any, Mapping

from ansible_collections.rackready.gpu.plugins.module_utils import units, verify_tool, whole_file
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands
from ansible_collections.rackready.gpu.plugins.module_utils.verify_tool import OFF, REQUEST, SERVICE, TIMER, TOOL, UNITS, Wanted

SYSTEMCTL_LIMIT_S = 30
HIDDEN = "********"


class VerifyToolError(ValueError):
    """systemd did not do what it was asked for; the message is a sentence."""


def bring(request: Mapping[str, Any], timer: str, commands: Commands, dry: bool, root: Path = Path("/")) -> dict[str, Any]:
    """Write what differs and switch the timer; ``dry`` only tells. What the module returns: ``changed``, ``actions`` and ``diff``.

    Raises OSError, and VerifyToolError when the timer is not as wanted afterwards.
    """
    wanted = verify_tool.files(request, timer)
    differing = [file for file in wanted if not _as_wanted(file, root)]
    before_and_after = {file.path: (_shown(file, root), _told(file.path, file.data, file.mode)) for file in differing}
    diff: dict[str, dict[str, Any]] = {
        "before": {path: told for path, (told, _after) in before_and_after.items() if told is not None},
        "after": {path: told for path, (_before, told) in before_and_after.items()},
    }
    actions = [f"write {file.path}" for file in differing]
    if not dry:
        for file in differing:
            whole_file.write(root / file.path[1:], file.data, int(file.mode, 8))
    systemd = _Systemd(commands, dry)
    before = systemd.state(TIMER)
    actions += _switch(systemd, before, timer != OFF, any(file.path == f"{UNITS}/{TIMER}" for file in differing))
    after = _target(timer)
    there = after if dry else systemd.state(TIMER)
    if there != after:
        raise VerifyToolError(f"{TIMER} is {there} afterwards and should be {after}: look at `systemctl status {TIMER}` on the host")
    if before != after:
        diff["before"][TIMER], diff["after"][TIMER] = before, after
    return {"changed": bool(actions), "actions": actions, "diff": diff}


def _target(timer: str) -> str:
    return "disabled, inactive" if timer == OFF else "enabled, active"


class _Systemd:
    """systemctl, told to reload only where a unit that it has loaded was changed: a reload can take the GPUs of running containers."""

    def __init__(self, commands: Commands, dry: bool) -> None:
        self._commands = commands
        self.dry = dry
        self.done: list[str] = []

    def properties(self, *names: str) -> units.Properties:
        return units.parse_show(self._run("show", "--property", "Id,LoadState,ActiveState,UnitFileState,NeedDaemonReload", *names))

    def state(self, name: str) -> str:
        """``enabled, active``, or why there is no such state."""
        found = units.unit_state(self.properties(name).get(name, {}))
        return f"{found['enabled']}, {found['active']}" if found["load"] == "loaded" else found["load"]

    def stale(self, *names: str) -> bool:
        """Whether systemd has loaded one of these from a file that is another one now."""
        return any(found.get("NeedDaemonReload") == "yes" for found in self.properties(*names).values())

    def change(self, *arguments: str) -> None:
        self.done.append(f"systemctl {' '.join(arguments)}")
        if not self.dry:
            self._run(*arguments)

    def _run(self, *arguments: str) -> str:
        tool = self._commands.find("systemctl")
        if tool is None:
            raise VerifyToolError("this host has no systemctl, so there is nothing that could run a timer")
        result = self._commands.start([tool, *arguments], SYSTEMCTL_LIMIT_S).finish()
        complaint = result.complaint(f"systemctl {arguments[0]}")
        if complaint is not None:
            raise VerifyToolError(f"{complaint}: look at `systemctl status` on the host and run again")
        return result.text


def _switch(systemd: _Systemd, state: str, on: bool, rewritten: bool) -> list[str]:
    """Have the timer on or off, and as its file says."""
    enabled, _comma, active = state.partition(", ")
    running = active in ("active", "activating", "reloading")
    if not on and running:
        systemd.change("stop", TIMER)
    # Where nothing is written yet systemd cannot know: what runs or is enabled is loaded, and a new file will differ from it.
    if systemd.stale(TIMER, SERVICE) or (systemd.dry and rewritten and (running or enabled == "enabled")):
        systemd.change("daemon-reload")
    if on != (enabled == "enabled") and (on or enabled in ("enabled", "enabled-runtime")):
        systemd.change("enable" if on else "disable", "--no-reload", TIMER)
    if on and (not running or rewritten):
        systemd.change("restart" if running else "start", TIMER)
    return systemd.done


def _as_wanted(file: Wanted, root: Path) -> bool:
    path = root / file.path[1:]
    try:
        return path.is_file() and not path.is_symlink() and path.read_bytes() == file.data and _mode(path) == file.mode
    except OSError:
        return False


def _mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


def _shown(file: Wanted, root: Path) -> Any:
    """What is there, as it may be shown; None where nothing is."""
    path = root / file.path[1:]
    try:
        return _told(file.path, path.read_bytes(), _mode(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"cannot be read: {error.strerror}"


def _told(path: str, data: bytes, mode: str) -> dict[str, Any]:
    """A file for a diff: the request without what may be secret, of the command only which one it is."""
    identity = {"mode": mode, "sha256": hashlib.sha256(data).hexdigest()}
    if path == TOOL:
        return identity
    text = data.decode("utf-8", "replace")
    if path != REQUEST:
        return {**identity, "lines": text.splitlines()}
    try:
        request = json.loads(text)
    except (ValueError, RecursionError):
        return {**identity, "request": "is no JSON"}
    if not isinstance(request, dict):
        return {**identity, "request": "is no request"}
    return {**identity, "request": {**request, "env": _names(request.get("env"))}}


def _names(env: Any) -> Any:
    return dict.fromkeys(env, HIDDEN) if isinstance(env, dict) else HIDDEN
