# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""stack_sources' work: repositories and images together, all problems at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.sources import look
from ansible_collections.rackready.gpu.plugins.module_utils.web import Web

from tests.unit.sites import Site, make_certificates, modules_yaml, primary_xml, put_image, put_repository, put_rpm_repository, served

KEYS = Path(__file__).parents[3] / "fixtures" / "keys"
FINGERPRINT = "AD0C892BAF2835ECA0241FF33AD60AF0057889CC"


@pytest.fixture
def site() -> Iterator[Site]:
    with served(Site()) as running:
        put_repository(running, "/cuda/", {"driver": ["580.95.05-1", "580.178.04-1"]})
        put_repository(running, "/debian/dists/trixie/", {"docker.io": ["26.1.5-1"]}, directory="main/binary-amd64/")
        put_repository(running, "/security/dists/trixie-security/", {"headers": ["6.12-1"]}, directory="main/binary-amd64/")
        running.paths["/cuda/key.pub"] = (KEYS / "ed25519.asc").read_bytes()
        yield running


def cuda(site: Site, **more: Any) -> dict[str, Any]:
    return {"name": "nvidia-cuda", "url": f"{site.address}/cuda/", "suites": ["/"], "packages": {"driver": "580.178.04-1"}, **more}


def debian(site: Site, packages: dict[str, None], **more: Any) -> list[dict[str, Any]]:
    common = {"name": "debian-13", "components": ["main"], "packages": packages, **more}
    return [
        {**common, "url": f"{site.address}/debian", "suites": ["trixie"]},
        {**common, "url": f"{site.address}/security", "suites": ["trixie-security"]},
    ]


def ask(repositories: list[dict[str, Any]], images: list[dict[str, Any]] | None = None, web: Web | None = None) -> dict[str, Any]:
    web = web or Web(5)
    found = look("h100-01", repositories, images or [], web.fetch, web.ask)
    for problem in found["problems"]:
        assert problem.startswith("h100-01: "), problem
        assert problem.endswith("."), problem
        assert "\n" not in problem
    return {**found, "problems": [problem.removeprefix("h100-01: ") for problem in found["problems"]]}


def test_all_is_there(site: Site) -> None:
    put = put_image(site, "nvidia/pytorch", "26.07-py3")
    image = {"ref": f"{site.host}/nvidia/pytorch:26.07-py3", "digest": put["index"], "insecure": True}
    found = ask([cuda(site), *debian(site, {"docker.io": None, "headers": None})], [image])
    assert found["problems"] == []
    assert found["repositories"][0]["packages"] == {"driver": ["580.95.05-1", "580.178.04-1"]}
    assert found["images"] == [{"ref": image["ref"], **put}]


def test_a_package_may_be_in_any_repository_of_its_source_but_must_be_in_one(site: Site) -> None:
    found = ask(debian(site, {"headers": None, "linux-headers-6.1": None}, hint="boot the newest kernel"))
    assert found["problems"] == [f"{site.address}/debian and {site.address}/security has no package linux-headers-6.1: boot the newest kernel."]


def test_a_version_that_left_names_the_newest(site: Site) -> None:
    problems = ask([cuda(site, packages={"driver": "580.65.06-1", "gone": "1"})])["problems"]
    assert problems[0].startswith(f"{site.address}/cuda/ has no driver 580.65.06-1 (its newest is 580.178.04-1): ")
    assert problems[1].startswith(f"{site.address}/cuda/ has no package gone: ")


def test_optional_packages_are_told_and_not_missed(site: Site) -> None:
    found = ask([cuda(site, packages={}, optional=["driver", "nvlsm"])])
    assert found["problems"] == []
    assert list(found["repositories"][0]["packages"]) == ["driver"]


def test_a_repository_that_cannot_be_read_is_one_problem_and_not_one_for_each_package(site: Site) -> None:
    found = ask([{**cuda(site), "url": f"{site.address}/nothing/"}, cuda(site, name="other", packages={"gone": None})])
    assert len(found["problems"]) == 2
    assert "/nothing/InRelease cannot be read" in found["problems"][0]


def test_the_key_is_fetched_and_compared(site: Site) -> None:
    found = ask([cuda(site, key_url=f"{site.address}/cuda/key.pub", fingerprint=FINGERPRINT.lower())])
    assert found["problems"] == []
    assert found["repositories"][0]["key"] == (KEYS / "ed25519.asc").read_text(encoding="ascii")
    assert re.fullmatch("[0-9a-f]{64}", found["repositories"][0]["key_sha256"])


def test_a_key_that_changed_is_not_taken(site: Site) -> None:
    site.paths["/cuda/key.pub"] = (KEYS / "rsa2048.asc").read_bytes()
    found = ask([cuda(site, key_url=f"{site.address}/cuda/key.pub", fingerprint=FINGERPRINT)])
    assert f"has the fingerprint BAC08DCD1C4351CDF20CECB0ED418A44AE84A649 instead of {FINGERPRINT}" in found["problems"][0]
    assert found["repositories"][0]["key"] is None


def test_a_key_that_is_none_or_absent_is_a_problem(site: Site) -> None:
    site.paths["/cuda/page"] = b"<html>"
    problems = ask([cuda(site, key_url=f"{site.address}/cuda/page"), cuda(site, key_url=f"{site.address}/cuda/absent")])["problems"]
    assert "is not the key of nvidia-cuda (the file is no OpenPGP data)" in problems[0]
    assert "the key of nvidia-cuda, cannot be read (HTTP status 404)" in problems[1]


def rocky(site: Site, **more: Any) -> dict[str, Any]:
    """A question for an RPM repository whose driver has module streams."""
    versions = {"580-open": "3:580.178.04-1.el9", "595-open": "3:595.91.07-1.el9"}
    modules = modules_yaml({stream: {"driver": [found]} for stream, found in versions.items()})
    put_rpm_repository(site, "/rpm/", primary_xml({"driver": list(versions.values())}), modules=modules)
    packages = {"driver": "3:580.178.04-1.el9"}
    question = {"name": "nvidia-cuda", "type": "rpm", "url": f"{site.address}/rpm/", "architecture": "x86_64", "packages": packages}
    return {**question, "streams": ["nvidia-driver:580-open"], **more}


def test_an_rpm_repository_is_asked_for_the_versions_of_a_stream(site: Site) -> None:
    found = ask([rocky(site, key_url=f"{site.address}/cuda/key.pub", fingerprint=FINGERPRINT)])
    assert found["problems"] == []
    (entry,) = found["repositories"]
    assert (entry["packages"], entry["key"] is None) == ({"driver": ["3:580.178.04-1.el9"]}, False)
    assert set(entry) == {"name", "url", "packages", "key", "key_sha256"}


def test_a_stream_that_is_not_there_is_named_with_those_that_are(site: Site) -> None:
    (problem,) = ask([rocky(site, streams=["nvidia-driver:580.178.04"])])["problems"]
    words = "has no package driver and no module stream nvidia-driver:580.178.04 (it has nvidia-driver:580-open, nvidia-driver:595-open): it left the"
    assert words in problem
    (problem,) = ask([rocky(site, streams=["other:1"])])["problems"]
    assert "and no module stream other:1 (it has none of it)" in problem


def test_a_version_that_is_in_another_stream_left_the_asked_one(site: Site) -> None:
    (problem,) = ask([rocky(site, packages={"driver": "3:595.91.07-1.el9"})])["problems"]
    assert "has no driver 3:595.91.07-1.el9 (its newest is 3:580.178.04-1.el9)" in problem


def test_a_version_that_is_written_in_another_way_is_the_same(site: Site) -> None:
    assert ask([rocky(site, packages={"driver": "3:580_178.04-1.el9"})])["problems"] == []


def test_an_rpm_repository_that_does_not_answer_is_one_problem(site: Site) -> None:
    (problem,) = ask([rocky(site, url=f"{site.address}/nothing/")])["problems"]
    assert "/nothing/repodata/repomd.xml cannot be read" in problem


def test_images_that_are_none_and_images_that_are_gone(site: Site) -> None:
    problems = ask([], [{"ref": "nonsense"}, {"ref": f"{site.host}/a/b:c", "insecure": True}])["problems"]
    assert problems[0].endswith(": correct pytorch_image_ref.")
    assert "answered 404" in problems[1]


def test_what_a_server_answers_stays_inside_one_sentence(site: Site) -> None:
    site.paths["/v2/a/b/manifests/c"] = (503, {}, b"<html>\n  <body>\n\tout of order\n</body>")
    problem = ask([], [{"ref": f"{site.host}/a/b:c", "insecure": True}])["problems"][0]
    assert "answered 503 (<html> <body> out of order </body>), try again" in problem


def test_an_address_that_does_not_answer_names_the_proxy(site: Site) -> None:
    problems = ask([{**cuda(site), "url": "http://127.0.0.1:9/", "key_url": "http://127.0.0.1:9/key"}], [{"ref": "127.0.0.1:9/a/b:c"}])["problems"]
    assert len(problems) == 3
    assert all("https_proxy is set for the task), or set rackready_mirror" in problem for problem in problems)


def test_a_site_with_its_own_authority_is_trusted_only_when_told(tmp_path: Path) -> None:
    authority, server = make_certificates(tmp_path)
    with served(Site(), server) as site:
        put_repository(site, "/cuda/", {"driver": ["580.178.04-1"]})
        put = put_image(site, "nvidia/pytorch", "26.07-py3")
        image = {"ref": f"{site.host}/nvidia/pytorch:26.07-py3"}
        assert ask([cuda(site)], [image], Web(5, str(authority)))["images"] == [{**image, **put}]
        problems = ask([cuda(site)], [image])["problems"]
        assert len(problems) == 2
        assert all("certificate verify failed" in problem for problem in problems)


def test_the_environment_can_name_the_authority(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, server = make_certificates(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority))
    with served(Site(), server) as site:
        put_repository(site, "/cuda/", {"driver": ["580.178.04-1"]})
        assert ask([cuda(site)])["problems"] == []
