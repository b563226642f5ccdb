# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The apt sources of a host."""

from __future__ import annotations

from ansible_collections.rackready.gpu.plugins.plugin_utils.apt_sources import Source, of_distribution, sources

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
    found = sources(FILES)
    assert [source.uri for source in found] == [
        "https://security.debian.org/debian-security",
        "cdrom:[Debian]/",
        "https://vendor.example/apt",
        "https://deb.debian.org/debian",
        "http://mirror.example/debian",
    ]


def test_only_suites_of_the_distribution_over_http() -> None:
    assert of_distribution(FILES, "trixie") == [
        Source("https://security.debian.org/debian-security", ("trixie-security",), ("main",)),
        Source("https://deb.debian.org/debian", ("trixie", "trixie-updates"), ("main", "contrib")),
        Source("http://mirror.example/debian", ("trixie", "trixie-updates"), ("main", "contrib")),
    ]
    assert of_distribution(FILES, "bookworm") == []
