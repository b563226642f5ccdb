# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The repositories of dnf that a host has."""

from __future__ import annotations

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils.yum_sources import elsewhere, of_host, sources
from hypothesis import given
from hypothesis import strategies as st

PATH = "/etc/yum.repos.d/site.repo"


def read(text: str) -> list[tuple[str, tuple[str, ...], bool]]:
    return [(source.section, source.urls, source.readable) for source in sources({PATH: text}, "9", "x86_64")]


@pytest.mark.parametrize(
    ("options", "urls", "readable"),
    [
        ("baseurl=https://m/$releasever/$basearch/os/", ("https://m/9/x86_64/os/",), True),
        ("baseurl=https://m/${releasever}/$arch\n  http://n/$releasever_major", ("https://m/9/x86_64", "http://n/9"), True),
        ("baseurl = http://m/a, http://m/b\nenabled = True", ("http://m/a", "http://m/b"), True),
        ("baseurl=https://m/$contentdir/os", ("https://m/$contentdir/os",), False),
        ("mirrorlist=https://m/list", (), False),
        ("metalink=https://m/link", (), False),
        ("baseurl=file:///srv/os", ("file:///srv/os",), False),
        ("baseurl=https://cdn/os\nsslclientcert=/etc/pki/entitlement/1.pem", ("https://cdn/os",), False),
        ("baseurl=https://m/%20os", ("https://m/%20os",), True),
    ],
)
def test_addresses(options: str, urls: tuple[str, ...], readable: bool) -> None:
    assert read(f"# ours\n[a]\nname=A\n{options}\n") == [("a", urls, readable)]


@pytest.mark.parametrize("enabled", ["enabled=0", "enabled=no", "enabled = False", "enabled=off"])
def test_disabled_repositories_do_not_count(enabled: str) -> None:
    assert read(f"[a]\nbaseurl=http://m/\n{enabled}\n[b]\nbaseurl=http://n/\n") == [("b", ("http://n/",), True)]


def test_files_that_dnf_does_not_read_do_not_count() -> None:
    for path in ("/etc/yum.repos.d/site.repo.rpmsave", "/etc/apt/sources.list.d/site.repo", "/etc/yum.repos.d/README"):
        assert sources({path: "[a]\nbaseurl=http://m/\n"}, "9", "x86_64") == []
    assert read("baseurl=http://m/\n[a\n") == []


def test_those_of_the_host_are_known_only_as_a_whole() -> None:
    ours = {"/etc/yum.repos.d/rackready-epel.repo": "[rackready-epel]\nbaseurl=http://e/\n"}
    plain = {PATH: "[a]\nbaseurl=http://m/\n"}
    found = of_host({**ours, **plain}, "9", "x86_64")
    assert found is not None
    assert [source.section for source in found] == ["a"]
    assert of_host(ours, "9", "x86_64") is None
    assert of_host({PATH: "[a]\nbaseurl=http://m/\n[b]\nmetalink=http://n/\n"}, "9", "x86_64") is None


def test_elsewhere() -> None:
    files = {PATH: "[a]\nbaseurl=https://m/$releasever/\n[b]\nbaseurl=https://m/9\n", "/etc/yum.repos.d/ours.repo": "[c]\nbaseurl=https://m/9\n"}
    assert elsewhere(files, "https://m/9/", "9", "x86_64", {"/etc/yum.repos.d/ours.repo"}) == [PATH]
    assert elsewhere(files, "https://m/10/", "9", "x86_64", set()) == []


@given(st.text(), st.text(alphabet="[]=baseurl http:/$\n,;#"))
def test_arbitrary_files(text: str, other: str) -> None:
    for wrapped in (text, other, f"[a]\nbaseurl={text}\n"):
        assert isinstance(sources({PATH: wrapped}, "9", "x86_64"), list)
