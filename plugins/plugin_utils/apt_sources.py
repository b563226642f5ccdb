# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The apt sources that a host has already, read from its files (sources.list(5))."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ansible_collections.rackready.gpu.plugins.module_utils.repository import stanzas

_ONE_LINE = re.compile(r"^deb\s+(?:\[[^\]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>(?:\s+[^#\s]+)*)")


@dataclass(frozen=True)
class Source:
    """One repository of binary packages."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


def sources(files: Mapping[str, str]) -> list[Source]:
    """All enabled sources in ``/etc/apt``, in the order of their files."""
    found: list[Source] = []
    for path, text in sorted(files.items()):
        if path.startswith("/etc/apt/sources.list.d/") and path.endswith(".sources"):
            found += _deb822(text)
        elif path == "/etc/apt/sources.list" or (path.startswith("/etc/apt/sources.list.d/") and path.endswith(".list")):
            found += _one_line(text)
    return found


def of_distribution(files: Mapping[str, str], codename: str) -> list[Source]:
    """The sources with suites of a distribution (``trixie``, ``trixie-updates``) that can be asked over HTTP, with those suites only."""
    found = []
    for source in sources(files):
        suites = tuple(suite for suite in source.suites if suite == codename or suite.startswith((f"{codename}-", f"{codename}/")))
        if suites and source.components and source.uri.startswith(("http://", "https://")):
            found.append(Source(source.uri, suites, source.components))
    return found


def _deb822(text: str) -> Iterator[Source]:
    for fields in stanzas(text):
        lower = {name.lower(): value.split() for name, value in fields.items()}
        if "deb" not in lower.get("types", []) or lower.get("enabled", ["yes"])[0].lower() in ("no", "false"):
            continue
        for uri in lower.get("uris", []):
            yield Source(uri, tuple(lower.get("suites", [])), tuple(lower.get("components", [])))


def _one_line(text: str) -> Iterator[Source]:
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if match:
            yield Source(match["uri"], (match["suite"],), tuple(match["components"].split()))
