"""Before anything was installed: the whole plan is shown, and every bad input is one sentence, a record, and no change."""

from __future__ import annotations

import copy
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from lab.play import ROOT, Played, lab, play
from testinfra.host import Host

HOST = "h100-01"
LOCK = ROOT / "inventory/lab/group_vars/all/rackready_images.yml"
SERVICES = "172.30.86.2"


def fingerprint(host: Host) -> str:
    """Everything that a run could have changed: installed packages, and content and mode of the files under /etc and /var/lib/rackready."""
    packages: str = host.check_output("dpkg-query -W")
    files: str = host.check_output("find /etc /var/lib/rackready -type f -printf '%p %m ' -exec sha256sum {} + 2>/dev/null | sort; true")
    return packages + files


@pytest.fixture(autouse=True)
def nothing_changes(host: Host) -> Iterator[None]:
    before = fingerprint(host)
    yield
    assert fingerprint(host) == before


def refused(played: Played, *words: str) -> dict[str, Any]:
    """The run failed, and its record says refused, with one sentence that holds the words."""
    assert played.status != 0, played.output
    record = played.record(HOST)
    assert record["outcome"] == "refused", record["reason"]
    assert record["changed"] == []
    for word in words:
        assert word in record["reason"], record["reason"]
        assert word in " ".join(played.output.split()), played.output
    assert HOST in played.output
    return record


def test_check_mode_shows_the_whole_plan_and_exits_0() -> None:
    played = play("site.yml", "--check", "--diff")
    assert played.status == 0, played.output
    for words in ("nvidia-driver-cuda=580.178.04-1", "nvidia-fabricmanager=580.178.04-1", "daemon.json", "nvidia-container-toolkit=", "pull ", "smoke test"):
        assert words in played.output, words
    record = played.record(HOST)
    assert record["outcome"] == "planned"
    assert not record["plan"]["converged"]
    # Without a driver nobody knows this, and the plan says so instead of guessing.
    assert record["plan"]["areas"]["mig"]["actual"] == "unknown"


def test_plan_yml_shows_the_plan_and_exits_0() -> None:
    played = play("playbooks/plan.yml")
    assert played.status == 0, played.output
    assert "8 x H100 SXM5 80GB, 4 NVSwitches" in played.output
    assert played.record(HOST)["outcome"] == "planned"


@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["run", "check"])
class TestBadInput:
    def test_fewer_gpus_than_bought(self, arguments: tuple[str, ...]) -> None:
        played = play("site.yml", *arguments, variables={"gpu_expected": {"model": "h100-sxm5-80gb", "count": 9}})
        refused(played, "8 of 9 H100 SXM5 80GB are on the PCI bus", "gpu_expected.count")

    def test_another_model_than_bought(self, arguments: tuple[str, ...]) -> None:
        played = play("site.yml", *arguments, variables={"gpu_expected": {"model": "h200-sxm-141gb", "count": 8}})
        refused(played, "gpu_expected says 8 x H200 SXM 141GB", "H100 SXM5 80GB at 0000:1a:00.0")

    def test_a_misspelt_variable(self, arguments: tuple[str, ...]) -> None:
        refused(play("site.yml", *arguments, variables={"nvidia_driver_brnch": "580"}), "nvidia_driver_brnch", "nvidia_driver_branch")

    def test_a_value_that_does_not_exist(self, arguments: tuple[str, ...]) -> None:
        refused(play("site.yml", *arguments, variables={"smoke_test_backend": "gpu"}), "smoke_test_backend", "cuda", "cpu")

    def test_an_unknown_release(self, arguments: tuple[str, ...]) -> None:
        refused(play("site.yml", *arguments, variables={"gpu_stack_release": "2099.01-never"}), "2099.01-never", "2026.11-longterm")

    def test_an_image_that_is_not_locked(self, arguments: tuple[str, ...]) -> None:
        refused(play("site.yml", *arguments, variables={"pytorch_image_ref": f"{SERVICES}:5000/rackready-lab/pytorch:other"}), "not in the lock", "pin.yml")

    def test_a_digest_that_is_not_the_locked_one(self, arguments: tuple[str, ...]) -> None:
        reference = f"{SERVICES}:5000/rackready-lab/pytorch:2.13.0-cpu@sha256:{'0' * 64}"
        refused(play("site.yml", *arguments, variables={"pytorch_image_ref": reference}), "0" * 64, "the lock has")

    def test_a_digest_that_the_registry_does_not_have(self, arguments: tuple[str, ...]) -> None:
        lock = yaml.safe_load(LOCK.read_text())["rackready_lock"]
        for image in lock["images"].values():
            image["index"] = "sha256:" + "f" * 64
        refused(play("site.yml", *arguments, variables={"rackready_lock": lock}), "f" * 64, f"{SERVICES}:5000")

    def test_a_package_version_that_the_repository_does_not_have(self, arguments: tuple[str, ...]) -> None:
        lock = yaml.safe_load(LOCK.read_text())["rackready_lock"]
        gone = copy.deepcopy(lock)
        for repository in gone["repositories"].values():
            for name, versions in repository["packages"].items():
                repository["packages"][name] = [version.replace("580.178.04", "580.199.99") for version in versions]
        refused(play("site.yml", *arguments, variables={"rackready_lock": gone}), "580.199.99", "nvidia-driver-cuda")


class TestUnreachableSources:
    @pytest.fixture(autouse=True)
    def services_down(self) -> Iterator[None]:
        subprocess.run(["docker", "stop", "--time", "1", "rackready-lab-services"], check=True, capture_output=True)
        yield
        lab("up")

    def test_repository_and_registry_are_both_named(self) -> None:
        refused(play("site.yml"), f"https://{SERVICES}/cuda", f"{SERVICES}:5000")


class TestOtherHosts:
    def test_a_host_without_an_nvidia_gpu(self, host: Host) -> None:
        # The device folders lie in a file system of the simulation: moved away and back.
        host.check_output("mkdir -p /run/hidden && mv /sys/bus/pci/devices/* /run/hidden/")
        try:
            refused(play("site.yml"), "There is no NVIDIA GPU on the PCI bus")
        finally:
            host.check_output("mv /run/hidden/* /sys/bus/pci/devices/")

    def test_an_unsupported_distribution(self, host: Host) -> None:
        host.check_output("cp -a /etc/os-release /run/os-release && cp --remove-destination /usr/lib/os-release /etc/os-release")
        try:
            host.check_output('sed -i \'s/^VERSION_ID=.*/VERSION_ID="11"/; s/^PRETTY_NAME=.*/PRETTY_NAME="Debian GNU\\/Linux 11 (bullseye)"/\' /etc/os-release')
            refused(play("site.yml"), "Debian GNU/Linux 11 (bullseye)", "not a supported distribution")
        finally:
            host.check_output("rm /etc/os-release && mv /run/os-release /etc/os-release")
