# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image registries over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.registry import Image, Registry, RegistryError, parse_reference
from ansible_collections.rackready.gpu.plugins.module_utils.web import Web

from tests.unit.sites import Site, ask_for_token, digest_of, put_image, served

NAME = "nvidia/pytorch"


@pytest.fixture
def site() -> Iterator[Site]:
    with served(Site()) as running:
        yield running


def resolve(site: Site, tag: str = "26.07-py3", expected: str | None = None) -> Image:
    return Registry(Web(5).ask, insecure=True).resolve(parse_reference(f"{site.host}/{NAME}:{tag}"), expected)


@pytest.mark.parametrize("docker", [False, True])
def test_an_index_gives_digest_platforms_and_sizes(site: Site, docker: bool) -> None:
    put = put_image(site, NAME, "26.07-py3", docker=docker)
    assert resolve(site) == Image(put["index"], put["platforms"])
    path, headers = site.requests[0]
    assert path == f"/v2/{NAME}/manifests/26.07-py3"
    assert "application/vnd.oci.image.index.v1+json" in headers["accept"]
    assert "application/vnd.docker.distribution.manifest.list.v2+json" in headers["accept"]


def test_a_single_manifest_says_its_platform_in_its_configuration(site: Site) -> None:
    put = put_image(site, NAME, "cpu", architectures=("amd64",), single=True)
    assert resolve(site, "cpu") == Image(put["platforms"]["linux/amd64"]["digest"], put["platforms"])


def test_a_locked_digest_is_asked_for_by_itself(site: Site) -> None:
    put = put_image(site, NAME, "old")
    put_image(site, NAME, "26.07-py3", architectures=("amd64",))
    assert resolve(site, expected=put["index"]).digest == put["index"]


def test_an_anonymous_token_is_fetched_once_and_used(site: Site) -> None:
    put = put_image(site, NAME, "26.07-py3")
    ask_for_token(site, NAME)
    assert resolve(site).digest == put["index"]
    tokens = [path for path, _headers in site.requests if path.startswith("/token")]
    assert len(tokens) == 1
    assert "service=tests" in tokens[0]
    assert "scope=repository%3Anvidia%2Fpytorch%3Apull" in tokens[0]


def test_a_digest_that_left_the_registry(site: Site) -> None:
    put_image(site, NAME, "26.07-py3")
    with pytest.raises(RegistryError, match=r"answered 404 \(no such page\), this registry does not have the image that is locked, .*playbooks/pin\.yml"):
        resolve(site, expected="sha256:" + "5" * 64)


def test_a_tag_that_is_not_there_is_no_matter_of_the_lock(site: Site) -> None:
    with pytest.raises(RegistryError, match=r"answered 404 \(no such page\), there is no such image: check its name and tag \(pytorch_image_ref\)") as raised:
        resolve(site)
    assert "pin.yml" not in str(raised.value)


@pytest.mark.parametrize("status", [401, 403])
def test_a_login_that_is_wanted_for_a_locked_image_is_not_a_missing_image(site: Site, status: int) -> None:
    put = put_image(site, NAME, "26.07-py3")
    site.paths[f"/v2/{NAME}/manifests/{put['index']}"] = (status, {"WWW-Authenticate": f'Bearer realm="{site.address}/token",service="tests"'}, b"")
    site.paths["/token"] = b'{"token": "any"}'
    with pytest.raises(RegistryError, match=f"answered {status}, the registry (wants a login|forbids it).*anonymous pulls") as raised:
        resolve(site, expected=put["index"])
    assert "pin.yml" not in str(raised.value)


def test_a_body_that_is_not_its_digest_is_refused(site: Site) -> None:
    put = put_image(site, NAME, "26.07-py3")
    other = b'{"manifests": []}'
    site.paths[f"/v2/{NAME}/manifests/{put['index']}"] = other
    with pytest.raises(RegistryError, match=f"has the digest {digest_of(other)} instead of {put['index']}"):
        resolve(site, expected=put["index"])


def test_a_platform_manifest_that_was_changed_is_refused(site: Site) -> None:
    put = put_image(site, NAME, "26.07-py3")
    digest = put["platforms"]["linux/amd64"]["digest"]
    site.paths[f"/v2/{NAME}/manifests/{digest}"] = b"{}"
    with pytest.raises(RegistryError, match=f"instead of {digest}"):
        resolve(site)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ((403, {}, b"denied"), r"answered 403 \(denied\), the registry forbids it"),
        ((429, {}, b""), "answered 429, the registry limits anonymous pulls"),
        ((503, {}, b"busy"), r"answered 503 \(busy\), try again"),
        ((401, {"WWW-Authenticate": 'Basic realm="x"'}, b""), "wants a login"),
        ((200, {}, b"<html>"), "did not answer with JSON"),
        ((200, {}, b"[]"), "did not answer with a JSON object"),
        ((200, {}, b'{"mediaType": "application/vnd.oci.artifact"}'), "which is no image"),
        ((200, {}, b'{"manifests": []}'), "has no Linux image"),
    ],
)
def test_other_answers_are_sentences(site: Site, reply: tuple[int, dict[str, str], bytes], words: str) -> None:
    site.paths[f"/v2/{NAME}/manifests/26.07-py3"] = reply
    with pytest.raises(RegistryError, match=words):
        resolve(site)


def test_a_token_that_does_not_help(site: Site) -> None:
    put_image(site, NAME, "26.07-py3")
    ask_for_token(site, NAME)
    site.paths["/token"] = b'{"token": "wrong"}'
    with pytest.raises(RegistryError, match="answered 401, the registry wants a login"):
        resolve(site)
    site.paths["/token"] = b"{}"
    with pytest.raises(RegistryError, match="gave no token"):
        resolve(site)


def test_nobody_listens() -> None:
    with pytest.raises(RegistryError, match=r"cannot be read \(.*Connection refused\): check that this machine reaches 127\.0\.0\.1:9"):
        Registry(Web(2).ask, insecure=True).resolve(parse_reference("127.0.0.1:9/a/b:c"))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("nvcr.io/nvidia/pytorch:26.07-py3", ("nvcr.io", "nvidia/pytorch", "26.07-py3", None)),
        ("pytorch/pytorch:2.13.0", ("docker.io", "pytorch/pytorch", "2.13.0", None)),
        ("debian:13", ("docker.io", "library/debian", "13", None)),
        ("localhost:5000/a@sha256:" + "a" * 64, ("localhost:5000", "a", None, "sha256:" + "a" * 64)),
        ("r.example:5000/a/b:t@sha256:" + "a" * 64, ("r.example:5000", "a/b", "t", "sha256:" + "a" * 64)),
    ],
)
def test_references(text: str, parts: tuple[str | None, ...]) -> None:
    assert tuple(parse_reference(text)) == parts


@pytest.mark.parametrize("text", ["nvcr.io/nvidia/pytorch", "", "a/b@sha256:123", "localhost:5000/"])
def test_references_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="not a full image reference"):
        parse_reference(text)
