# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What makes a host able to test itself: the command, the plan's request, and a timer with its service. The plan and the host ask the same functions."""

from __future__ import annotations

import functools
import json
from typing import Any, Mapping, NamedTuple

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_alone, tool_archive

TOOL = "/usr/local/sbin/rackready-verify"
REQUEST = str(smoke_alone.REQUEST)
UNITS = "/etc/systemd/system"
SERVICE = "rackready-verify.service"
TIMER = "rackready-verify.timer"
OFF = "off"

# It reads all processes and the kernel's log, asks the engine, systemd and the driver, and writes its state and nothing else. What is left out on purpose:
# PrivateDevices= and ProtectClock= would keep it from the GPUs' device nodes, ProtectKernelLogs= from Xid lines, ProtectProc= and fewer capabilities from
# who holds a GPU, ProtectKernelModules= nvidia-modprobe from its module, and with NoNewPrivileges= SELinux may leave a service in init's domain.
# PrivateTmp= hides nothing from the engine, which gets the payload from the state directory.
SERVICE_TEXT = f"""\
# Managed by rackready (role verify_tool).
[Unit]
Description=Smoke test of the GPUs, if nobody uses them (rackready)
After=docker.service nvidia-persistenced.service nvidia-fabricmanager.service

[Service]
Type=oneshot
ExecStart={TOOL} --tier quick
# Not tested, because the GPUs are in use.
SuccessExitStatus={smoke_alone.NOT_TESTED}
# The test ends by itself long before; asked to end, it ends its container.
TimeoutStartSec=15min
KillMode=mixed
StateDirectory=rackready
ProtectSystem=strict
ProtectHome=read-only
ProtectControlGroups=yes
ProtectKernelTunables=yes
ProtectHostname=yes
PrivateTmp=yes
RestrictSUIDSGID=yes
RestrictRealtime=yes
RestrictNamespaces=yes
LockPersonality=yes
"""
TIMER_TEXT = """\
# Managed by rackready (role verify_tool): smoke_test_timer switches it.
[Unit]
Description=Smoke test of idle GPUs (rackready)

[Timer]
OnCalendar={when}
Persistent=true
RandomizedDelaySec=1h

[Install]
WantedBy=timers.target
"""


class Wanted(NamedTuple):
    """A file that is to be there: absolute path, content, mode as in ``0600``."""

    path: str
    data: bytes
    mode: str


@functools.lru_cache(maxsize=1)
def tool() -> bytes:
    """The command. OSError where our sources cannot be read."""
    return tool_archive.build("smoke_alone")


def request_file(request: Mapping[str, Any]) -> Wanted:
    """The plan's request. Only root may read it: a site's environment may hold secrets."""
    text = json.dumps(request, indent=2, sort_keys=True) + "\n"
    return Wanted(REQUEST, text.encode("utf-8"), "0600")


def units(timer: str) -> list[Wanted]:
    """Service and timer. ``timer``: when, in systemd's words; where it is off, when it would be."""
    texts = {SERVICE: SERVICE_TEXT, TIMER: TIMER_TEXT.format(when="daily" if timer == OFF else timer)}
    return [Wanted(f"{UNITS}/{name}", text.encode("utf-8"), "0644") for name, text in texts.items()]


def files(request: Mapping[str, Any], timer: str) -> list[Wanted]:
    """All files, the command last: with it there, everything else is."""
    return [request_file(request), *units(timer), Wanted(TOOL, tool(), "0755")]
