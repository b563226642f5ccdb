# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt repositories over real HTTP."""

from __future__ import annotations

import gzip
import hashlib
import time
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import repository
from ansible_collections.rackready.gpu.plugins.module_utils.web import Web

from tests.unit.sites import Site, put_repository, served

DRIVERS = {"nvidia-driver-cuda": ["595.91.07-1", "580.178.04-1", "580.95.05-1"], "other": ["1"]}


@pytest.fixture
def site() -> Iterator[Site]:
    with served(Site()) as running:
        yield running


def read(
    site: Site,
    path: str = "/cuda/",
    suites: tuple[str, ...] = ("/",),
    components: tuple[str, ...] = (),
    wanted: tuple[str, ...] = ("nvidia-driver-cuda", "absent"),
) -> Any:
    return repository.read(Web(5).fetch, f"{site.address}{path}", suites=suites, components=components, architecture="amd64", wanted=wanted)


@pytest.mark.parametrize("endings", [("",), (".gz",), (".xz",), ("", ".gz", ".xz")])
@pytest.mark.parametrize("signed", [True, False])
def test_a_flat_repository(site: Site, endings: tuple[str, ...], signed: bool) -> None:
    put_repository(site, "/cuda/", DRIVERS, endings=endings, signed=signed)
    assert read(site) == {"nvidia-driver-cuda": ["580.95.05-1", "580.178.04-1", "595.91.07-1"]}


def test_suites_and_components_are_joined(site: Site) -> None:
    put_repository(site, "/debian/dists/trixie/", {"docker.io": ["26.1.5-1"]}, directory="main/binary-amd64/")
    put_repository(site, "/debian/dists/trixie-updates/", {"docker.io": ["26.1.5-2"]}, directory="main/binary-amd64/")
    found = read(site, "/debian", ("trixie", "trixie-updates"), ("main",), ("docker.io",))
    assert found == {"docker.io": ["26.1.5-1", "26.1.5-2"]}


def test_other_architectures_are_left_out() -> None:
    text = "Package: a\nVersion: 1\nArchitecture: arm64\n\nPackage: a\nVersion: 2\nArchitecture: all\n"
    assert repository.package_versions(text, ["a"], "amd64") == {"a": ["2"]}


def test_a_missing_component_is_a_sentence(site: Site) -> None:
    put_repository(site, "/debian/dists/trixie/", {}, directory="main/binary-amd64/")
    with pytest.raises(repository.RepositoryError, match="has no contrib/binary-amd64/Packages"):
        read(site, "/debian", ("trixie",), ("contrib",))


def test_a_missing_repository_names_url_status_and_remedy(site: Site) -> None:
    with pytest.raises(repository.RepositoryError, match=r"/cuda/InRelease cannot be read \(HTTP status 404\): check that this machine reaches 127\.0\.0\.1"):
        read(site)


def test_a_login_page_is_no_release_file(site: Site) -> None:
    site.paths["/cuda/InRelease"] = b"<html>Please log in</html>"
    with pytest.raises(repository.RepositoryError, match="no proxy answers for it"):
        read(site)


def test_an_index_that_is_not_the_listed_one_is_refused(site: Site) -> None:
    put_repository(site, "/cuda/", DRIVERS)
    site.paths["/cuda/Packages.xz"] = b"something else"
    with pytest.raises(repository.RepositoryError, match="is not the file that Release lists"):
        read(site)


def test_an_index_that_cannot_be_unpacked_is_refused(site: Site) -> None:
    put_repository(site, "/cuda/", DRIVERS, endings=(".gz",))
    broken = gzip.compress(b"x" * 100)[:-12]
    site.paths["/cuda/Packages.gz"] = broken
    site.paths["/cuda/InRelease"] = f"SHA256:\n {hashlib.sha256(broken).hexdigest()} {len(broken)} Packages.gz\n".encode()
    with pytest.raises(repository.RepositoryError, match="cannot be unpacked"):
        read(site)


def test_the_next_compression_is_tried(site: Site) -> None:
    put_repository(site, "/cuda/", DRIVERS)
    del site.paths["/cuda/Packages.xz"]
    assert list(read(site)) == ["nvidia-driver-cuda"]


def test_no_compression_at_all_names_every_url(site: Site) -> None:
    put_repository(site, "/cuda/", DRIVERS, endings=(".gz", ".xz"))
    del site.paths["/cuda/Packages.xz"], site.paths["/cuda/Packages.gz"]
    with pytest.raises(repository.RepositoryError, match=r"Packages\.xz cannot be read \(HTTP status 404\); .*Packages\.gz cannot be read"):
        read(site)


def test_nobody_listens() -> None:
    with pytest.raises(repository.RepositoryError, match="Connection refused"):
        repository.read(Web(2).fetch, "http://127.0.0.1:9/", suites=["/"], components=[], architecture="amd64", wanted=["a"])


def test_signed_text_undoes_dash_escapes() -> None:
    text = "-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n- --dash\nplain\n-----BEGIN PGP SIGNATURE-----\nx\n-----END PGP SIGNATURE-----\n"
    assert repository.signed_text(text) == "--dash\nplain\n"


def test_stanzas_keep_folded_lines_and_skip_comments() -> None:
    text = "# a comment\nA: 1\nB:\n two\n three\n\n\nC: 3\n"
    assert list(repository.stanzas(text)) == [{"A": "1", "B": "\ntwo\nthree"}, {"C": "3"}]


def test_a_slow_answer_is_given_up(site: Site) -> None:
    def slow(_headers: dict[str, str]) -> Any:
        time.sleep(1.5)
        return 200, {}, b"late"

    site.paths["/cuda/InRelease"] = slow
    site.paths["/cuda/Release"] = slow
    with pytest.raises(repository.RepositoryError, match="timed out"):
        repository.read(Web(0.2).fetch, f"{site.address}/cuda/", suites=["/"], components=[], architecture="amd64", wanted=["a"])
