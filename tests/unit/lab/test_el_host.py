# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import configparser
import dataclasses
import io
import tarfile
from pathlib import Path

import pytest
from lab import distribution, dnf_repository, el_host, host_image
from lab.paths import Layout

KNOWN = distribution.load(Layout.of_this_file().code / "distributions.yml")
ROCKY = KNOWN["rocky-9"]
OS_RELEASE = host_image.os_release(ROCKY.os_release)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    """A checkout with keys and no simulated GPU host."""
    found = Layout(tmp_path)
    for folder, name in ((found.tls, "ca.crt"), (found.signing, "public.asc")):
        folder.mkdir(parents=True)
        (folder / name).write_text(name)
    return found


def members(layout: Layout, one: distribution.Distribution) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(host_image.overlay(layout, one))) as tar:
        return set(tar.getnames())


def test_hosts_with_dnf_ask_the_site_mirror_and_nothing_else_and_check_signatures() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(el_host.repo_file(ROCKY))
    served = dnf_repository.repositories(ROCKY)
    assert parser.sections() == ["baseos", "appstream"]
    for section in parser.sections():
        assert parser[section]["baseurl"] == f"https://services.rackready.lab/{served[section].path}/"
        assert parser[section]["gpgcheck"] == "1"
        assert parser[section]["gpgkey"] == "file:///etc/pki/rpm-gpg/RPM-GPG-KEY-Rocky-9"


def test_dnf_is_configured_as_el_s_is() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(el_host.DNF_CONF)
    assert dict(parser["main"]) == {
        "gpgcheck": "1",
        "installonly_limit": "3",
        "clean_requirements_on_remove": "True",
        "best": "True",
        "skip_if_unavailable": "False",
    }


def test_a_stand_in_starts_with_a_database_of_rpms_and_without_debian_s() -> None:
    files = el_host.base(ROCKY, OS_RELEASE)
    assert {"tmp/base/rocky-release-9.6-1.el9.noarch/package.spec", "tmp/base/rackready-lab-root-1-1.el9.noarch/package.spec"} <= set(files)
    assert files["tmp/base/rocky-release-9.6-1.el9.noarch/root/usr/lib/os-release"][1] == OS_RELEASE
    script = host_image.prepare(ROCKY)
    assert "rpm --install" in script
    assert "/var/lib/dpkg" in script
    assert script.index("/opt/gpu-host-sim/install") < script.index("/usr/bin/dpkg*"), "the tools are diverted with dpkg"


def test_the_distribution_s_own_root_is_left_as_it_is(layout: Layout) -> None:
    own = dataclasses.replace(ROCKY, os_release={})
    assert "rpm --install" not in host_image.prepare(own)
    assert {"etc/yum.repos.d/rocky.repo", "etc/pki/ca-trust/source/anchors/site.crt"} <= members(layout, own)
    assert not {"etc/dnf/dnf.conf", "etc/rpm/macros", "usr/lib/os-release"} & members(layout, own)


def test_hosts_with_apt_have_nothing_of_dnf_and_the_other_way_round(layout: Layout) -> None:
    debian = members(layout, KNOWN["debian-12"])
    assert "etc/apt/sources.list.d/debian.sources" in debian
    assert not any(name.startswith(("etc/pki", "etc/yum", "etc/dnf", "etc/rpm", "tmp/")) for name in debian)
    assert not any(name.startswith("etc/apt") for name in members(layout, ROCKY))


def test_the_same_input_gives_the_same_image(layout: Layout) -> None:
    assert host_image.inputs(layout, ROCKY, "sha256:1") == host_image.inputs(layout, ROCKY, "sha256:1")
    assert host_image.inputs(layout, ROCKY, "sha256:1") != host_image.inputs(layout, ROCKY, "sha256:2")
    assert host_image.inputs(layout, ROCKY, "sha256:1") != host_image.inputs(layout, dataclasses.replace(ROCKY, os_release={}), "sha256:1")
