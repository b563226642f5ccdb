# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernels of Red Hat's family by their release: what the packages that go with one are called, and what to do when they are gone. Pure.

``5.14.0-570.12.1.el9_6.aarch64+64k`` is the release of kernel-64k-core 5.14.0-570.12.1.el9_6; the ordinary kernel has no ``+`` and no name of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.managers import VersionOrder

_RELEASE = re.compile(r"(?P<version>[^-+]+-[^-+]+)\.(?:x86_64|aarch64)(?:\+(?P<variant>[a-z0-9]+(?:-[a-z0-9]+)*))?")
# Of Red Hat (+rt, and .rt21. until 9.2), of Debian (-rt-amd64) and of Ubuntu (-realtime).
_REAL_TIME = re.compile(r"\+rt\b|\.rt[0-9]|-rt-|-realtime\b")


def real_time(release: str) -> bool:
    """Whether a kernel is a real-time one (PREEMPT_RT), of any distribution."""
    return _REAL_TIME.search(release) is not None


def _named(release: str, what: str) -> tuple[str, str] | None:
    """Name and version of a package that goes with a kernel; None where the release is not written as packages of this family write it."""
    match = _RELEASE.fullmatch(release)
    return (f"kernel-{match['variant']}-{what}" if match["variant"] else f"kernel-{what}", match["version"]) if match is not None else None


def devel(release: str) -> str:
    """The package with a kernel's headers, without its version."""
    named = _named(release, "devel")
    return named[0] if named is not None else "kernel-devel"


def matched(release: str) -> str | None:
    """What satisfies the dependency of dkms on headers that match a kernel, so that it does not take the newest kernel along; None where nothing is known."""
    named = _named(release, "devel-matched")
    return " = ".join(named) if named is not None and not real_time(release) else None


def moved_on(kernel: Mapping[str, Any], order: VersionOrder) -> str:
    """What is wrong, and what to do, where the packages that go with the running kernel are in no repository; a sentence without its end."""
    release = str(kernel["release"])
    named = _named(release, "devel")
    package = "-".join(named) if named is not None else f"the kernel-devel of {release}"
    newest = order.newest([release, *kernel["others"]])
    remedy = (
        f"reboot the host into {newest}, the newest kernel that is installed, and run again"
        if newest != release
        else "install the newest kernel, reboot the host and run again, or enable a repository that keeps the older ones"
    )
    return f"{package}, which the driver is built with for the running kernel {release}, is not in any enabled repository any more; {remedy}"
