# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The apt sources of a host."""

from __future__ import annotations

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils.apt_sources import elsewhere, of_distribution, sources

DEB822 = """\
# the archive
Types: deb deb-src
URIs: https://deb.debian.org/debian http://mirror.example/debian
Suites: trixie trixie-updates sid
Components: main contrib
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: https://off.example/debian
Suites: trixie
Components: main
Enabled: no

Types: deb-src
URIs: https://source.example/debian
Suites: trixie
Components: main
"""
ONE_LINE = """\
# deb https://commented.example/debian trixie main
deb [arch=amd64 signed-by=/x.gpg] https://security.debian.org/debian-security trixie-security main # updates
deb-src https://source.example/debian trixie main
deb cdrom:[Debian]/ trixie main
deb https://vendor.example/apt /
"""
FILES = {
    "/etc/apt/sources.list": ONE_LINE,
    "/etc/apt/sources.list.d/debian.sources": DEB822,
    "/etc/apt/sources.list.d/old.list.disabled": "deb https://disabled.example/debian trixie main\n",
    "/etc/docker/daemon.json": "{}",
}


def test_both_forms_are_read() -> None:
    assert [(source.uri, source.types) for source in sources(FILES)] == [
        ("https://security.debian.org/debian-security", ("deb",)),
        ("https://source.example/debian", ("deb-src",)),
        ("cdrom:[Debian]/", ("deb",)),
        ("https://vendor.example/apt", ("deb",)),
        ("https://deb.debian.org/debian", ("deb", "deb-src")),
        ("http://mirror.example/debian", ("deb", "deb-src")),
        ("https://source.example/debian", ("deb-src",)),
    ]
    assert {source.path for source in sources(FILES)} == {"/etc/apt/sources.list", "/etc/apt/sources.list.d/debian.sources"}


def test_only_suites_of_the_distribution_over_http() -> None:
    assert [(source.uri, source.suites, source.components) for source in of_distribution(FILES, "trixie")] == [
        ("https://security.debian.org/debian-security", ("trixie-security",), ("main",)),
        ("https://deb.debian.org/debian", ("trixie", "trixie-updates"), ("main", "contrib")),
        ("http://mirror.example/debian", ("trixie", "trixie-updates"), ("main", "contrib")),
    ]
    assert of_distribution(FILES, "bookworm") == []


FLAT = "https://vendor.example/stable/deb/amd64/"
LIST, DEB822_FILE, OURS = (f"/etc/apt/sources.list.d/{name}" for name in ("vendor.list", "vendor.sources", "rackready-vendor.sources"))


@pytest.mark.parametrize(
    ("path", "text", "found"),
    [
        (LIST, f"deb [signed-by=/x.gpg] {FLAT} /", True),
        (LIST, "deb [arch=amd64 signed-by=/x.gpg] https://vendor.example/stable/deb/$(ARCH) /", True),
        (LIST, f"deb-src {FLAT} /", True),
        ("/etc/apt/sources.list", f"deb {FLAT} /", True),
        (DEB822_FILE, f"Types: deb\nURIs: https://other.example/ {FLAT}\nSuites: /\nSigned-By: /x.gpg\n", True),
        (DEB822_FILE, f"Types: deb\nURIs: {FLAT}\nSuites: /\nEnabled: no\n", False),
        (LIST, f"# deb {FLAT} /", False),
        (LIST, f"deb {FLAT} stable main", False),
        (LIST, "deb https://vendor.example/stable/deb/arm64/ /", False),
        (f"{LIST}.disabled", f"deb {FLAT} /", False),
        (OURS, f"Types: deb\nURIs: {FLAT}\nSuites: /\n", False),
    ],
)
def test_a_repository_that_another_file_names_too(path: str, text: str, found: bool) -> None:
    assert elsewhere({path: text}, FLAT, ["/"], "amd64", {OURS}) == ([path] if found else [])
