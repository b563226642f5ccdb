# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import dataclasses
import io
import tarfile
from pathlib import Path

import pytest
import yaml
from gpu_host import packages
from lab import distribution, dnf_repository, rpm_packages
from lab.errors import LabError
from lab.host_image import apt_sources, tar_of
from lab.paths import Layout
from lab.repository import put_in_place, repositories

LAYOUT = Layout.of_this_file()
KNOWN = distribution.load(LAYOUT.code / "distributions.yml")
PLANNED = yaml.safe_load((LAYOUT.checkout / "plugins/plugin_utils/catalog/distributions.yml").read_text())["distributions"]
CATALOG = yaml.safe_load((LAYOUT.checkout / "plugins/plugin_utils/catalog/repositories.yml").read_text())["repositories"]


APT = [key for key, one in KNOWN.items() if one.package_manager == "apt"]
DNF = [key for key, one in KNOWN.items() if one.package_manager == "dnf"]


@pytest.mark.parametrize("key", APT)
@pytest.mark.parametrize("name", ["nvidia-cuda", "nvidia-container-toolkit", "docker-ce"])
def test_repositories_and_keys_lie_where_the_catalog_expects_them(key: str, name: str) -> None:
    """The bases are those that inventory/lab gives as mirrors."""
    if name == "docker-ce" and KNOWN[key].docker_from is None:
        assert name not in repositories(KNOWN[key])
        return
    base = {"nvidia-cuda": "cuda", "nvidia-container-toolkit": "libnvidia-container", "docker-ce": "docker"}[name]
    origins = CATALOG[name]["origins"]
    origin = origins.get(f"{key}/x86_64") or origins["apt/x86_64"]
    found = repositories(KNOWN[key])
    served = found.get(name) or found[f"{name}-ubuntu"]
    assert served.path == f"{base}/{origin['path']}"
    assert served.keys == (f"{base}/{origin['key']}",)
    assert served.suite == (None if origin["suites"] == ["/"] else (*origin["suites"], *origin["components"]))


@pytest.mark.parametrize("key", DNF)
@pytest.mark.parametrize(
    ("name", "base"), [("nvidia-cuda", "cuda"), ("nvidia-container-toolkit", "libnvidia-container"), ("docker-ce", "docker"), ("epel", "epel")]
)
def test_dnf_repositories_keys_and_signatures_are_as_the_catalog_expects_them(key: str, name: str, base: str) -> None:
    origins = CATALOG[name]["origins"]
    origin = origins.get(f"{PLANNED[key].get('like', key)}/x86_64") or origins["dnf/x86_64"]
    served = next(repository for named, repository in dnf_repository.repositories(KNOWN[key]).items() if named.startswith(name))
    assert (served.path, served.key) == (f"{base}/{origin['path']}", f"{base}/{origin['key']}")
    assert served.packages_signed == (CATALOG[name]["rpm_signature"] == "packages")


def test_every_stand_in_package_has_a_repository() -> None:
    served = {name for key in APT for name in repositories(KNOWN[key])}
    assert {package.repository for package in packages.debian_packages("6.12.0-1-amd64")} <= served
    served = {name for key in DNF for name in dnf_repository.repositories(KNOWN[key])}
    assert {package.repository for package in packages.enterprise_linux_packages("6.12.0-1-amd64")} <= served
    assert {package.repository for package in (*rpm_packages.DOCKER, *rpm_packages.ROCKY)} <= served


def test_only_the_toolkit_s_packages_go_without_a_signature() -> None:
    unsigned = [name for key in DNF for name, repository in dnf_repository.repositories(KNOWN[key]).items() if not repository.packages_signed]
    assert unsigned == ["nvidia-container-toolkit-el"]


def test_what_a_mirror_has_really_is_not_stood_in_for(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    mirror = layout.mirror / "rocky-9"
    mirror.mkdir(parents=True)
    (mirror / "container-selinux-2.240.0-1.el9_6.noarch.rpm").touch()
    rocky = dataclasses.replace(KNOWN["rocky-9"], docker_from=None)
    sources = dnf_repository.write_sources(layout, rocky)
    assert [path.name for path in (sources / "baseos").glob("*.rpm")] == ["container-selinux-2.240.0-1.el9_6.noarch.rpm"]
    specs = {path.parent.name for path in sources.glob("*/*/package.spec")}
    assert not any(name.startswith(("container-selinux", "iptables")) for name in specs)
    assert any(name.startswith("kernel-devel-") for name in specs)
    assert (sources / "nvidia-cuda-el9/modules.yaml").is_file()


@pytest.mark.parametrize("key", KNOWN)
def test_a_distribution_has_a_root_and_so_has_the_one_whose_engine_it_takes(key: str) -> None:
    for needed in KNOWN[key].needs:
        assert KNOWN[needed].suite and KNOWN[needed].packages and KNOWN[needed].mirror


@pytest.mark.parametrize("key", KNOWN)
def test_a_distribution_is_one_that_the_product_plans_for(key: str) -> None:
    known = PLANNED[key]
    assert (known.get("codename"), known["package_manager"]) == (KNOWN[key].codename, KNOWN[key].package_manager)


def test_hosts_ask_the_site_mirror_and_nothing_else() -> None:
    assert apt_sources(KNOWN["debian-13"]) == (
        "Types: deb\nURIs: https://services.rackready.lab/debian\nSuites: trixie\nComponents: main\nSigned-By: /usr/share/keyrings/site-mirror.asc\n"
    )


def test_put_in_place_replaces_the_whole_folder(tmp_path: Path) -> None:
    new, target = tmp_path / "new", tmp_path / "served" / "repo"
    target.mkdir(parents=True)
    (target / "old").touch()
    new.mkdir()
    (new / "fresh").touch()
    put_in_place(new, target)
    assert [path.name for path in target.iterdir()] == ["fresh"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["served"]


def test_tar_of_is_root_s_and_has_the_modes() -> None:
    with tarfile.open(fileobj=io.BytesIO(tar_of({"etc/key": (0o600, b"secret")}))) as tar:
        (member,) = tar.getmembers()
        assert (member.name, member.mode, member.uid, member.gid) == ("etc/key", 0o600, 0, 0)


def test_a_table_of_distributions_that_lacks_something_says_what(tmp_path: Path) -> None:
    path = tmp_path / "distributions.yml"
    path.write_text("debian-99: {root: debian-99, suite: forky}")
    with pytest.raises(LabError, match="vendor"):
        distribution.load(path)
