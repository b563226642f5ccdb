"""What a converged host of the lab looks like: read from the host itself, not from what the run said."""

from __future__ import annotations

import json

import pytest
import yaml
from lab.play import play
from testinfra.host import Host

DRIVER = "580.178.04"
GPUS = 8


@pytest.mark.parametrize("name", ["nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-fabricmanager"])
def test_driver_and_fabric_manager_are_the_same_version_to_the_last_digit_and_held(host: Host, name: str) -> None:
    assert host.package(name).version == f"{DRIVER}-1"
    assert name in host.check_output("apt-mark showhold").split()


def test_toolkit_packages_are_in_lockstep_and_held(host: Host) -> None:
    names = ["nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"]
    assert len({host.package(name).version for name in names}) == 1
    assert set(names) <= set(host.check_output("apt-mark showhold").split())


def test_a_newer_branch_in_the_repository_does_not_win(host: Host) -> None:
    policy = host.check_output("apt-cache policy nvidia-driver-cuda")
    assert "595." in policy, "the lab must offer a newer branch, or this test shows nothing"
    assert f"Candidate: {DRIVER}-1" in policy


def test_the_loaded_kernel_modules_are_the_planned_ones(host: Host) -> None:
    assert DRIVER in host.file("/proc/driver/nvidia/version").content_string
    assert "Open Kernel Module" in host.file("/proc/driver/nvidia/version").content_string
    assert host.file("/sys/module/nvidia_uvm").is_directory
    assert "blacklist nouveau" in host.file("/etc/modprobe.d/rackready-nouveau.conf").content_string


@pytest.mark.parametrize("name", ["docker", "nvidia-persistenced", "nvidia-fabricmanager"])
def test_services_run_now_and_after_a_reboot(host: Host, name: str) -> None:
    assert host.service(name).is_running
    assert host.service(name).is_enabled


def test_no_unit_has_failed(host: Host) -> None:
    assert host.check_output("systemctl --failed --plain --no-legend") == ""


def test_every_gpu_has_joined_the_fabric(host: Host) -> None:
    lines = host.check_output("nvidia-smi --query-gpu=fabric.state,fabric.status --format=csv,noheader").splitlines()
    assert lines == ["Completed, Success"] * GPUS


def test_daemon_json_is_merged_and_what_was_there_is_kept_beside_it(host: Host) -> None:
    theirs = {"log-driver": "local", "log-opts": {"max-size": "10m"}}
    assert json.loads(host.file("/etc/docker/daemon.json").content_string) == {**theirs, "features": {"cdi": True}}
    backups = host.check_output("cat /etc/docker/daemon.json.*~")
    assert json.loads(backups) == theirs


def test_docker_is_really_there_and_read_its_configuration_before_its_first_start(host: Host) -> None:
    info = json.loads(host.check_output("docker info --format '{{json .}}'"))
    assert int(info["ServerVersion"].split(".")[0]) >= 25
    assert info["CDISpecDirs"], "the running engine has not switched CDI on"
    assert info["LoggingDriver"] == "local"
    starts = host.check_output("journalctl --unit docker.service --output cat --grep 'Started docker.service|Started Docker'")
    assert len(starts.splitlines()) == 1, "started before it was configured, and again"


def test_the_cdi_specification_lists_every_gpu_with_the_numbers_of_its_node(host: Host) -> None:
    spec = yaml.safe_load(host.file("/var/run/cdi/nvidia.yaml").content_string)
    assert spec["kind"] == "nvidia.com/gpu"
    names = {device["name"] for device in spec["devices"]}
    assert {"all", *(str(index) for index in range(GPUS))} <= names
    assert sum(name.startswith("GPU-") for name in names) == GPUS
    for device in spec["devices"]:
        for node in device["containerEdits"]["deviceNodes"]:
            numbers = host.check_output(f"stat -c '%Hr:%Lr' {node['path']}")
            assert numbers == f"{node.get('major', 0)}:{node.get('minor', 0)}", node["path"]


def test_limits_of_gpu_jobs_are_set(host: Host) -> None:
    text = host.file("/etc/security/limits.d/90-rackready.conf").content_string
    assert "memlock" in text and "unlimited" in text


def test_the_image_is_there_by_digest(host: Host) -> None:
    digests = host.check_output("docker image ls --digests --format '{{.Repository}}@{{.Digest}}'").splitlines()
    stamp = json.loads(host.file("/var/lib/rackready/stamp.json").content_string)
    assert any(line.endswith(f"/pytorch@{stamp['image_digest']}") for line in digests)


def test_the_stamp_says_what_was_tested(host: Host) -> None:
    stamp = json.loads(host.file("/var/lib/rackready/stamp.json").content_string)
    assert stamp["verdict"] == "simulated"
    assert stamp["release"] == "2026.11-longterm"
    assert stamp["driver"] == DRIVER
    assert len(set(stamp["gpus"])) == GPUS
    assert stamp["mig"] == "off"


def test_nothing_of_the_test_is_left_running(host: Host) -> None:
    assert host.check_output("docker ps --all --quiet") == ""


def test_a_converged_host_costs_one_detect_and_one_plan() -> None:
    played = play("site.yml")
    assert played.status == 0, played.output
    tasks = [line for line in played.output.splitlines() if line.startswith(("ok:", "changed:", "included:", "failed:", "fatal:"))]
    assert len(tasks) == 2, tasks
    record = played.record("h100-01")
    assert record["outcome"] == "simulated"
    assert "matches the plan" in record["reason"]


def test_verify_tests_again_when_asked() -> None:
    played = play("playbooks/verify.yml")
    assert played.status == 0, played.output
    record = played.record("h100-01")
    assert record["verdict"] == "simulated"
    matmul = [check for check in record["checks"] if check["name"].startswith("matmul_exact.")]
    assert {check["gpu"]["pci_bus_id"] for check in matmul} == {gpu["pci_bus_id"] for gpu in record["facts"]["gpus"]}
    assert all(check["status"] == "pass" for check in matmul)
