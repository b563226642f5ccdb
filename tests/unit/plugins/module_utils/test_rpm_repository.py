# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RPM repositories over real HTTP."""

from __future__ import annotations

import gzip
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import rpm_repository, zstd
from ansible_collections.rackready.gpu.plugins.module_utils.repository import RepositoryError
from ansible_collections.rackready.gpu.plugins.module_utils.web import Web
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.sites import Site, modules_yaml, package_xml, primary_xml, put_rpm_repository, served

DRIVERS = {
    "nvidia-driver-cuda": ["3:595.91.07-1.el9", "3:580.178.04-1.el9", "3:580.95.05-1.el9"],
    "nvidia-fabricmanager": ["595.91.07-1", "580.178.04-1"],
    "other": ["1-1"],
}
STREAMS = {"580-open": {"nvidia-driver-cuda": ["3:580.95.05-1.el9", "3:580.178.04-1.el9"]}, "595-open": {"nvidia-driver-cuda": ["3:595.91.07-1.el9"]}}


@pytest.fixture
def site() -> Iterator[Site]:
    with served(Site()) as running:
        yield running


def read(site: Site, wanted: tuple[str, ...] = ("nvidia-driver-cuda", "absent"), streams: tuple[str, ...] = ()) -> Any:
    return rpm_repository.read(Web(5).fetch, f"{site.address}/cuda", architecture="x86_64", wanted=wanted, streams=streams)


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
@pytest.mark.parametrize("checksum", ["sha256", "sha512"])
def test_versions_are_read_and_sorted(site: Site, ending: str, checksum: str) -> None:
    put_rpm_repository(site, "/cuda/", primary_xml(DRIVERS), ending=ending, checksum=checksum)
    assert read(site) == ({"nvidia-driver-cuda": ["3:580.95.05-1.el9", "3:580.178.04-1.el9", "3:595.91.07-1.el9"]}, [])


def test_of_a_modular_package_only_the_asked_streams_count(site: Site) -> None:
    put_rpm_repository(site, "/cuda/", primary_xml(DRIVERS), modules=modules_yaml(STREAMS))
    wanted = ("nvidia-driver-cuda", "nvidia-fabricmanager")
    found = read(site, wanted, ("nvidia-driver:580-open",))
    assert found.packages == {"nvidia-driver-cuda": ["3:580.95.05-1.el9", "3:580.178.04-1.el9"], "nvidia-fabricmanager": ["580.178.04-1", "595.91.07-1"]}
    assert found.streams == ["nvidia-driver:580-open", "nvidia-driver:595-open"]
    assert read(site, wanted, ("nvidia-driver:580-open", "nvidia-driver:595-open")).packages["nvidia-driver-cuda"][-1] == "3:595.91.07-1.el9"
    # A full version is no stream (A4): nothing of the module can be had then.
    assert list(read(site, wanted, ("nvidia-driver:580.178.04",)).packages) == ["nvidia-fabricmanager"]
    assert len(read(site, wanted).packages["nvidia-driver-cuda"]) == 3


def test_other_architectures_and_source_packages_are_left_out() -> None:
    text = primary_xml({}, *(package_xml("a", f"{number}-1", name) for number, name in enumerate(("aarch64", "noarch", "src", "x86_64")))).encode()
    assert rpm_repository.package_versions(text, ["a"], "x86_64") == {"a": ["1-1", "3-1"]}
    assert rpm_repository.package_versions(text, ["a"], "aarch64") == {"a": ["0-1", "1-1"]}


def test_what_no_package_is_called_may_be_provided(site: Site) -> None:
    provides = {"kernel-devel-uname-r": "5.14.0-611.el9.x86_64"}
    put_rpm_repository(site, "/cuda/", primary_xml({}, package_xml("kernel-devel", "5.14.0-611.el9", provides=provides)))
    found = read(site, ("kernel-devel-uname-r", "kernel-devel")).packages
    assert found == {"kernel-devel": ["5.14.0-611.el9"], "kernel-devel-uname-r": ["5.14.0-611.el9.x86_64"]}


def test_a_missing_repository_names_url_status_and_remedy(site: Site) -> None:
    with pytest.raises(RepositoryError, match=r"/cuda/repodata/repomd.xml cannot be read \(HTTP status 404\): check that this machine reaches 127\.0\.0\.1"):
        read(site)


@pytest.mark.parametrize("page", [b"Please log in", b"<html><body>Please log in</body></html>"])
def test_a_login_page_is_no_repository(site: Site, page: bytes) -> None:
    site.paths["/cuda/repodata/repomd.xml"] = page
    with pytest.raises(RepositoryError, match="no proxy answers for it"):
        read(site)


def test_a_checksum_that_proves_nothing_does_not_count(site: Site) -> None:
    put_rpm_repository(site, "/cuda/", primary_xml(DRIVERS), checksum="sha1")
    with pytest.raises(RepositoryError, match="lists no packages"):
        read(site)


@pytest.mark.parametrize("kind", ["primary.xml", "modules.yaml"])
def test_a_list_that_is_not_the_listed_one_is_refused(site: Site, kind: str) -> None:
    put_rpm_repository(site, "/cuda/", primary_xml(DRIVERS), modules=modules_yaml(STREAMS))
    site.paths[f"/cuda/repodata/{kind}.gz"] = gzip.compress(b"something else")
    with pytest.raises(RepositoryError, match=rf"{kind}.gz is not the file that repomd.xml lists"):
        read(site, streams=("nvidia-driver:580-open",))
    del site.paths[f"/cuda/repodata/{kind}.gz"]
    with pytest.raises(RepositoryError, match=rf"{kind}.gz cannot be read \(HTTP status 404\)"):
        read(site, streams=("nvidia-driver:580-open",))


def test_a_list_that_is_none_is_refused(site: Site) -> None:
    put_rpm_repository(site, "/cuda/", "<metadata><package>")
    with pytest.raises(RepositoryError, match=r"The list of packages of .*/cuda/ cannot be read"):
        read(site)
    put_rpm_repository(site, "/cuda/", primary_xml(DRIVERS), ending="")
    for ending in (".gz", ".xz", ".zst"):
        index = site.paths["/cuda/repodata/repomd.xml"]
        assert isinstance(index, bytes)
        packed = Site()
        packed.paths = {f"/cuda/repodata/primary.xml{ending}": site.paths["/cuda/repodata/primary.xml"]}
        packed.paths["/cuda/repodata/repomd.xml"] = index.replace(b"primary.xml", f"primary.xml{ending}".encode())
        with served(packed), pytest.raises(RepositoryError, match="cannot be unpacked"):
            read(packed)


MODULES = """\
---
document: modulemd
version: 2
data:
  name: "nvidia-driver"
  stream: '580-open'
  description: >-
    A driver.

    Its artifacts:
  artifacts:
    rpms:
    - kmod-nvidia-open-dkms-3:580.178.04-1.el9.noarch

    - "libnvidia-ml-3:580.178.04-1.el9.x86_64"
    - rubbish
  xmd: {}
...
---
document: modulemd-translations
version: 1
data:
  name: nvidia-driver
  stream: "595-open"
"""


def test_modules_yaml_is_read_where_it_matters() -> None:
    assert rpm_repository.parse_modules(MODULES) == {
        "nvidia-driver:580-open": {("kmod-nvidia-open-dkms", "3:580.178.04-1.el9"), ("libnvidia-ml", "3:580.178.04-1.el9")}
    }


@given(st.text(alphabet="-:'\" \nabdelmnoprtu"), st.integers(0, len(MODULES)))
def test_arbitrary_modules_yaml(text: str, cut: int) -> None:
    for wrapped in (text, MODULES[:cut] + text + MODULES[cut:]):
        assert isinstance(rpm_repository.parse_modules(wrapped), dict)


# --- zstd, with the library that rpm and apt bring


def packed(data: bytes) -> bytes:
    try:
        return subprocess.run(["zstd", "--quiet", "--stdout", "-"], input=data, check=True, capture_output=True).stdout
    except FileNotFoundError:
        pytest.skip("zstd is not here to pack with")


@pytest.mark.parametrize("data", [b"", b"x", b"abc" * 1_000_000], ids=["nothing", "little", "much"])
def test_zstd_is_unpacked(data: bytes) -> None:
    assert zstd.decompress(packed(data)) == data
    assert zstd.decompress(packed(data) * 2) == data * 2


def test_zstd_that_is_torn_or_none_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = packed(b"abc" * 1000)
    for broken, words in ((whole[:-5], "ends too early"), (b"junk" + whole, "Unknown frame"), (b"", "ends too early")):
        with pytest.raises(zstd.ZstdError, match=words):
            zstd.decompress(broken)
    monkeypatch.setattr(zstd, "LIMIT", 100)
    with pytest.raises(zstd.ZstdError, match="unpacks to more"):
        zstd.decompress(whole)


def test_without_the_library_zstd_is_said_plainly() -> None:
    with pytest.raises(zstd.ZstdError, match=r"it is packed with zstd, and libnothing\.so is not there to unpack it"):
        zstd.decompress(b"", "libnothing.so")
