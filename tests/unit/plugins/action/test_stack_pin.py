# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""pin.yml, run by ansible-playbook against a repository and a registry with an authority of their own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible_collections.rackready.gpu.plugins.action import stack_pin

from tests.unit import plans
from tests.unit.playbooks import ROOT, Run, run
from tests.unit.sites import Site, make_certificates, modules_yaml, primary_xml, put_image, put_repository, put_rpm_repository, served

KEY = ROOT / "tests" / "fixtures" / "keys" / "ed25519.asc"


@dataclass
class Fleet:
    """A site with everything that the release needs, and an inventory that uses it as its mirror."""

    site: Site
    directory: Path
    variables: dict[str, Any]
    image: dict[str, Any]

    @property
    def lock(self) -> Path:
        return self.directory / "inventory" / "group_vars" / "all" / "rackready_images.yml"

    def pin(self, *arguments: str, **variables: Any) -> Run:
        # The hosts do not exist: only the controller may be asked.
        hosts = {"h100-01": {"ansible_host": "192.0.2.1"}, "h100-02": {"ansible_host": "192.0.2.2"}}
        return run(self.directory, {"vars": {**self.variables, **variables}, "hosts": hosts}, ROOT / "playbooks" / "pin.yml", *arguments)


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    authority, server = make_certificates(tmp_path)
    with served(Site(), server) as site:
        put_repository(site, "/cuda/debian13/x86_64/", {name: ["580.95.05-1", "580.178.04-1", "595.91.07-1"] for name in plans.DRIVER_PACKAGES})
        put_repository(site, "/libnvidia-container/stable/deb/amd64/", {name: ["1.19.1-1", "1.20.0-1"] for name in plans.TOOLKIT_PACKAGES})
        site.paths["/cuda/debian13/x86_64/8793F200.pub"] = KEY.read_bytes()
        site.paths["/libnvidia-container/gpgkey"] = KEY.read_bytes()
        image = put_image(site, "nvidia/pytorch", "26.07-py3")
        mirror = {
            "packages": {"nvidia-cuda": f"{site.address}/cuda", "nvidia-container-toolkit": f"{site.address}/libnvidia-container"},
            "images": {"nvcr.io": site.host},
        }
        yield Fleet(site, tmp_path, {"rackready_mirror": mirror, "rackready_ca_path": str(authority)}, image)


def test_variables_that_cannot_be_used_are_told_with_their_host(fleet: Fleet) -> None:
    done = fleet.pin(pytorch_image_ref="{{ nobody.defined.this }}")
    assert done.returncode != 0
    words = " ".join(done.output.split())
    for host in ("h100-01", "h100-02"):
        assert f"{host}: pytorch_image_ref cannot be used ('nobody' is undefined): correct it" in words
    assert not fleet.lock.exists()


def test_the_lock_is_written_and_then_left_alone(fleet: Fleet) -> None:
    first = fleet.pin()
    assert first.returncode == 0, first.output
    assert "changed=1" in first.output
    lock = yaml.safe_load(fleet.lock.read_text(encoding="utf-8"))["rackready_lock"]
    assert lock["images"] == {plans.IMAGE: fleet.image}
    cuda = lock["repositories"]["nvidia-cuda/debian-13/x86_64"]
    assert cuda["packages"]["nvidia-driver-cuda"] == cuda["packages"]["nvidia-fabricmanager"] == ["580.178.04-1"]
    assert cuda["key"] == KEY.read_text(encoding="ascii")
    assert cuda["url"] == f"{fleet.site.address}/cuda/debian13/x86_64/"
    assert [path.name for path in fleet.lock.parent.iterdir()] == [fleet.lock.name], "no temporary file stays"

    text = fleet.lock.read_text(encoding="utf-8")
    again = fleet.pin()
    assert again.returncode == 0, again.output
    assert "changed=0" in again.output
    assert fleet.lock.read_text(encoding="utf-8") == text

    put_image(fleet.site, "nvidia/pytorch", "26.07-py3", architectures=("amd64",))
    moved = fleet.pin("--check", "--diff")
    assert "changed=1" in moved.output
    assert fleet.image["index"] in moved.output
    assert fleet.lock.read_text(encoding="utf-8") == text, "check mode writes nothing"


def put_rocky(site: Site) -> dict[str, str]:
    """RPM repositories for Rocky Linux 9 on x86_64, each at a path of its own; gives their addresses for rackready_mirror."""
    drivers = {f"{number}-open": [f"3:{version}-1.el9"] for number, version in (("580", "580.178.04"), ("595", "595.91.07"))}
    names = ("nvidia-driver-cuda", "kmod-nvidia-open-dkms")
    packages = {name: [version for versions in drivers.values() for version in versions] for name in names}
    modules = modules_yaml({stream: dict.fromkeys(names, versions) for stream, versions in drivers.items()})
    put_rpm_repository(site, "/rpm/cuda/rhel9/x86_64/", primary_xml({**packages, "nvidia-fabricmanager": ["580.178.04-1"]}), modules=modules)
    put_rpm_repository(site, "/rpm/libnvidia-container/stable/rpm/x86_64/", primary_xml({name: ["1.20.0-1"] for name in plans.TOOLKIT_PACKAGES}))
    docker = primary_xml({name: ["3:29.2.1-1.el9"] for name in plans.DOCKER_PACKAGES})
    put_rpm_repository(site, "/rpm/docker/rhel/9/x86_64/stable/", docker, ending=".xz")
    put_rpm_repository(site, "/rpm/epel/9/Everything/x86_64/", primary_xml({"dkms": ["3.2.2-1.el9"]}))
    for path in ("cuda/rhel9/x86_64/D42D0685.pub", "libnvidia-container/gpgkey", "docker/rhel/gpg", "epel/RPM-GPG-KEY-EPEL-9"):
        site.paths[f"/rpm/{path}"] = KEY.read_bytes()
    names_of = {"nvidia-cuda": "cuda", "nvidia-container-toolkit": "libnvidia-container", "docker-ce": "docker", "epel": "epel"}
    return {name: f"{site.address}/rpm/{path}" for name, path in names_of.items()}


def test_hosts_with_dnf_are_locked_by_stream(fleet: Fleet) -> None:
    mirror = {**fleet.variables["rackready_mirror"], "packages": put_rocky(fleet.site)}
    done = fleet.pin(rackready_mirror=mirror, rackready_pin_for=["rocky-9/x86_64"])
    assert done.returncode == 0, done.output
    lock = yaml.safe_load(fleet.lock.read_text(encoding="utf-8"))["rackready_lock"]
    cuda = lock["repositories"]["nvidia-cuda/rocky-9/x86_64"]
    assert cuda["packages"] == {
        "kmod-nvidia-open-dkms": ["3:580.178.04-1.el9"],
        "nvidia-driver-cuda": ["3:580.178.04-1.el9"],
        "nvidia-fabricmanager": ["580.178.04-1"],
    }
    assert cuda["key"] == KEY.read_text(encoding="ascii")
    assert lock["repositories"]["epel/rocky-9/x86_64"]["packages"] == {"dkms": ["3.2.2-1.el9"]}
    del fleet.site.paths["/rpm/epel/9/Everything/x86_64/repodata/repomd.xml"]
    again = fleet.pin(rackready_mirror=mirror, rackready_pin_for=["rocky-9/x86_64"])
    assert again.returncode != 0
    assert "/rpm/epel/9/Everything/x86_64/repodata/repomd.xml cannot be read (HTTP status 404)" in " ".join(again.output.split())


def test_everything_that_is_missing_is_told_and_nothing_is_written(fleet: Fleet) -> None:
    put_repository(fleet.site, "/cuda/debian13/x86_64/", {name: ["580.95.05-1"] for name in plans.DRIVER_PACKAGES})
    done = fleet.pin()
    assert done.returncode != 0
    assert "has no nvidia-driver-cuda that is 580.178.04 or newer of branch 580 (its newest is 580.95.05-1)" in done.output
    del fleet.site.paths["/libnvidia-container/gpgkey"]
    del fleet.site.paths["/v2/nvidia/pytorch/manifests/26.07-py3"]
    done = fleet.pin()
    assert "/libnvidia-container/gpgkey, the key of nvidia-container-toolkit" in done.output
    assert "manifests/26.07-py3 answered 404" in done.output
    assert not fleet.lock.exists()


@pytest.mark.parametrize("damaged", ["", "rackready_lock: {schema: 0}\n", "rackready_lock: [1]\n", "rackready_lock: '{{ nobody.defined }}'\n", "a: 1\n"])
def test_a_damaged_lock_is_replaced(fleet: Fleet, damaged: str) -> None:
    fleet.lock.parent.mkdir(parents=True)
    fleet.lock.write_text(damaged, encoding="utf-8")
    done = fleet.pin()
    assert done.returncode == 0, done.output
    assert yaml.safe_load(fleet.lock.read_text(encoding="utf-8"))["rackready_lock"]["schema"] == 1


@pytest.mark.parametrize(
    "text", ["rackready_lock: {written_at: 2026-13-45}\n", "a: !!int x\n", "a: !!timestamp x\n", "[" * 3000], ids=["date", "number", "time", "depth"]
)
def test_a_file_at_another_place_that_is_no_lock_counts_as_none(text: str) -> None:
    assert stack_pin._read(text) is None


def test_wrong_variables_and_a_file_that_would_be_hidden_are_refused(fleet: Fleet) -> None:
    wrong = fleet.pin(gpu_stack_release="1999.01-none")
    assert "h100-02: gpu_stack_release is" in wrong.output
    (fleet.directory / "inventory" / "group_vars").mkdir()
    (fleet.directory / "inventory" / "group_vars" / "all.yml").write_text("a: 1\n", encoding="utf-8")
    hidden = fleet.pin()
    assert hidden.returncode != 0
    assert "all.yml would no longer be read beside a directory all/: move it to" in hidden.output
    assert not fleet.lock.exists()


def test_groups_that_contradict_each_other_are_told_with_their_host(fleet: Fleet) -> None:
    groups = {name: {"hosts": {"h100-01": None}, "vars": {"gpu_stack_release": value}} for name, value in (("a", "2026.11-longterm"), ("b", "2026.11-newest"))}
    inventory = {"vars": fleet.variables, "hosts": {"h100-01": {"ansible_host": "192.0.2.1"}}, "children": groups}
    done = run(fleet.directory, inventory, ROOT / "playbooks" / "pin.yml")
    assert done.returncode != 0
    assert 'h100-01: gpu_stack_release is "2026.11-newest" in the group b and "2026.11-longterm" in the group a' in " ".join(done.output.split())
    assert not fleet.lock.exists()


def test_a_lock_with_a_key_twice_is_written_again_although_it_means_the_same(fleet: Fleet) -> None:
    fleet.pin()
    text = fleet.lock.read_text(encoding="utf-8")
    fleet.lock.write_text(text + text.removeprefix("---\n"), encoding="utf-8")
    done = fleet.pin()
    assert "changed=1" in done.output, done.output
    assert fleet.lock.read_text(encoding="utf-8").count("rackready_lock:") == 1
