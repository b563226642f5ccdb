# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repositories of dnf that a host has already, read from its files (dnf.conf(5), repo options)."""

from __future__ import annotations

import configparser
from collections.abc import Container, Mapping
from dataclasses import dataclass

OURS = "rackready-"
"""How the names of our own repositories begin."""
DIRECTORY = "/etc/yum.repos.d/"


@dataclass(frozen=True)
class Source:
    """One enabled repository. ``urls`` are its addresses with dnf's variables filled in; of one behind a list of mirrors there are none."""

    path: str
    section: str
    urls: tuple[str, ...]
    readable: bool
    """Whether its first address can be asked over HTTP by anybody: no variable is left in it and no certificate is wanted."""


def sources(files: Mapping[str, str], release: str, architecture: str) -> list[Source]:
    """All enabled repositories in the order of their files; ``release`` and ``architecture`` are dnf's $releasever and $basearch."""
    found: list[Source] = []
    for path, text in sorted(files.items()):
        if path.startswith(DIRECTORY) and path.endswith(".repo"):
            parser = configparser.ConfigParser(interpolation=None, strict=False)
            try:
                parser.read_string(text)
            except configparser.Error:
                continue  # dnf skips such a file and says so
            found += [_source(path, parser[section], release, architecture) for section in parser.sections() if _enabled(parser[section])]
    return found


def of_host(files: Mapping[str, str], release: str, architecture: str) -> list[Source] | None:
    """The host's own repositories; None where there is none, or where some cannot be asked, so that what is in none of the others may still be there."""
    found = [source for source in sources(files, release, architecture) if not source.section.startswith(OURS)]
    return found if found and all(source.readable for source in found) else None


def elsewhere(files: Mapping[str, str], url: str, release: str, architecture: str, ours: Container[str]) -> list[str]:
    """Files other than ours that name a repository too."""
    found = [
        source.path
        for source in sources(files, release, architecture)
        if source.path not in ours and url.rstrip("/") in [address.rstrip("/") for address in source.urls]
    ]
    return list(dict.fromkeys(found))


def _enabled(options: Mapping[str, str]) -> bool:
    return options.get("enabled", "1").strip().lower() in ("1", "true", "yes", "on")


def _source(path: str, options: configparser.SectionProxy, release: str, architecture: str) -> Source:
    values = {"releasever": release, "releasever_major": release, "basearch": architecture, "arch": architecture}
    text = options.get("baseurl", "")
    for name, value in sorted(values.items(), reverse=True):  # the longer name first: $releasever is the beginning of $releasever_major
        text = text.replace(f"${{{name}}}", value).replace(f"${name}", value)
    urls = tuple(text.replace(",", " ").split())
    readable = bool(urls) and urls[0].startswith(("http://", "https://")) and "$" not in urls[0] and not options.get("sslclientcert", "").strip()
    return Source(path, options.name, urls, readable)
