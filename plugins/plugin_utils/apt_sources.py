# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The apt sources that a host has already, read from its files (sources.list(5))."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.rackready.gpu.plugins.module_utils.repository import stanzas

_ONE_LINE = re.compile(r"^(?P<type>deb|deb-src)\s+(?:\[[^\]]*\]\s+)?(?P<uri>\S+)\s+(?P<suite>\S+)(?P<components>(?:\s+[^#\s]+)*)")


@dataclass(frozen=True)
class Source:
    """One repository in one file; ``types`` says whether it is for binary packages (``deb``), source packages (``deb-src``) or both."""

    path: str
    types: tuple[str, ...]
    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...]


def sources(files: Mapping[str, str]) -> list[Source]:
    """All enabled sources in ``/etc/apt``, in the order of their files."""
    found: list[Source] = []
    for path, text in sorted(files.items()):
        if path.startswith("/etc/apt/sources.list.d/") and path.endswith(".sources"):
            found += _deb822(path, text)
        elif path == "/etc/apt/sources.list" or (path.startswith("/etc/apt/sources.list.d/") and path.endswith(".list")):
            found += _one_line(path, text)
    return found


def of_distribution(files: Mapping[str, str], codename: str) -> list[Source]:
    """The sources of binary packages with suites of a distribution (``trixie``, ``trixie-updates``) that can be asked over HTTP, with those suites only."""
    found = []
    for source in sources(files):
        suites = tuple(suite for suite in source.suites if suite == codename or suite.startswith((f"{codename}-", f"{codename}/")))
        if "deb" in source.types and suites and source.components and source.uri.startswith(("http://", "https://")):
            found.append(replace(source, suites=suites))
    return found


def elsewhere(files: Mapping[str, str], url: str, suites: Sequence[str], architecture: str, ours: Container[str]) -> list[str]:
    """Files other than ours that name a repository too. apt refuses to work at all when two sources of one repository differ in Signed-By."""

    def plain(address: str) -> str:
        return address.replace("$(ARCH)", architecture).rstrip("/")

    found = [source.path for source in sources(files) if source.path not in ours and plain(source.uri) == plain(url) and set(source.suites) & set(suites)]
    return list(dict.fromkeys(found))


def _deb822(path: str, text: str) -> Iterator[Source]:
    for fields in stanzas(text):
        lower = {name.lower(): value.split() for name, value in fields.items()}
        if " ".join(lower.get("enabled", [])).lower() in ("no", "false"):
            continue
        for uri in lower.get("uris", []):
            yield Source(path, tuple(lower.get("types", [])), uri, tuple(lower.get("suites", [])), tuple(lower.get("components", [])))


def _one_line(path: str, text: str) -> Iterator[Source]:
    for line in text.splitlines():
        match = _ONE_LINE.match(line.strip())
        if match:
            yield Source(path, (match["type"],), match["uri"], (match["suite"],), tuple(match["components"].split()))
