# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the engine tells, and what it does when it does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Result
from ansible_collections.rackready.gpu.plugins.module_utils.container import EngineError, facts, full_repository, parse_containers, parse_images, parse_info
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import CONVERGED, Answers, Host

DIGEST = "sha256:" + "1" * 64
ID = "sha256:" + "2" * 64


def inspected(**host_config: Any) -> str:
    environment = host_config.pop("Env", None)
    container = {"Id": "c" * 64, "Name": "/job", "Config": {"Image": "img", "Env": environment}, "HostConfig": {"Runtime": "runc", **host_config}}
    return json.dumps([container])


@pytest.mark.parametrize(
    ("host_config", "devices"),
    [
        ({}, []),
        ({"Devices": None, "DeviceRequests": None}, []),
        ({"Devices": [{"PathOnHost": "/dev/nvidia0", "PathInContainer": "/dev/nvidia7", "CgroupPermissions": "rwm"}]}, ["/dev/nvidia0"]),
        (
            {"DeviceRequests": [{"Driver": "cdi", "Count": 0, "DeviceIDs": ["nvidia.com/gpu=0", "nvidia.com/gpu=1:0"]}]},
            ["nvidia.com/gpu=0", "nvidia.com/gpu=1:0"],
        ),
        ({"DeviceRequests": [{"Driver": "", "Count": -1, "DeviceIDs": None, "Capabilities": [["gpu"]]}]}, ["--gpus=all"]),
        ({"DeviceRequests": [{"Driver": "nvidia", "Count": 2, "DeviceIDs": None}]}, ["--gpus=2"]),
        ({"DeviceRequests": [{"Driver": "", "Count": 0, "DeviceIDs": ["0", "GPU-1"]}]}, ["--gpus=device=0,GPU-1"]),
        ({"Runtime": "nvidia", "Env": ["A=1", "NVIDIA_VISIBLE_DEVICES=all"]}, ["NVIDIA_VISIBLE_DEVICES=all"]),
        ({"Runtime": "nvidia", "Env": ["NVIDIA_VISIBLE_DEVICES=void"]}, []),
        ({"Runtime": "runc", "Env": ["NVIDIA_VISIBLE_DEVICES=all"]}, []),
    ],
)
def test_devices_of_a_container(host_config: dict[str, Any], devices: list[str]) -> None:
    assert parse_containers(inspected(**host_config)) == [{"id": "c" * 12, "name": "job", "image": "img", "devices": devices}]


@pytest.mark.parametrize(
    ("printed", "full"),
    [
        ("debian", "docker.io/library/debian"),
        ("pytorch/pytorch", "docker.io/pytorch/pytorch"),
        ("nvcr.io/nvidia/pytorch", "nvcr.io/nvidia/pytorch"),
        ("services.rackready.lab:5000/rackready-lab/pytorch", "services.rackready.lab:5000/rackready-lab/pytorch"),
        ("localhost/x", "localhost/x"),
        ("registry:5000/x", "registry:5000/x"),
    ],
)
def test_full_repository(printed: str, full: str) -> None:
    assert full_repository(printed) == full


def test_images() -> None:
    listing = f"nvcr.io/nvidia/pytorch\t{DIGEST}\t{ID}\n<none>\t{DIGEST}\t{ID}\nbuilt/here\t<none>\t{ID}\ndebian\t{DIGEST}\t{ID}\n"
    assert parse_images(listing) == {f"docker.io/library/debian@{DIGEST}": ID, f"nvcr.io/nvidia/pytorch@{DIGEST}": ID}


def test_info() -> None:
    text = json.dumps({"DockerRootDir": "/data/docker", "Driver": "overlayfs", "CgroupDriver": "systemd", "ServerVersion": "29.0.1-rc.1"})
    assert parse_info(text) == {
        "root_dir": "/data/docker",
        "storage_driver": "overlayfs",
        "cgroup_driver": "systemd",
        "running_version": "29.0.1",
        "cdi_enabled": None,
    }
    with pytest.raises(EngineError, match="Cannot connect"):
        parse_info(json.dumps({"ServerErrors": ["Cannot connect to the Docker daemon at unix:///var/run/docker.sock."]}))


@pytest.mark.parametrize(("directories", "enabled"), [(["/etc/cdi", "/var/run/cdi"], True), ([], False), (None, None), ("x", None)])
def test_an_engine_that_lists_no_directories_has_cdi_off(directories: Any, enabled: bool | None) -> None:
    assert parse_info(json.dumps({"CDISpecDirs": directories}))["cdi_enabled"] is enabled


@given(st.text() | st.recursive(st.none() | st.text() | st.integers(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)).map(json.dumps))
def test_arbitrary_answers(text: str) -> None:
    for parse in (parse_info, parse_containers):
        try:
            parse(text)
        except EngineError:
            continue
    assert all("@sha256:" in reference for reference in parse_images(text))


STRUCTURE = st.recursive(
    st.none() | st.text(max_size=3) | st.integers(-2, 2),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["Id", "Name", "Config", "HostConfig", "Image", "Env", "Devices", "DeviceRequests", "Driver", "Count", "DeviceIDs"]), inner
        )
    ),
    max_leaves=25,
)


@given(st.lists(STRUCTURE, min_size=1, max_size=2), STRUCTURE, STRUCTURE)
def test_arbitrary_structure(containers: list[Any], devices: Any, requests: Any) -> None:
    for document in (containers, json.loads(inspected(Devices=devices, DeviceRequests=requests))):
        try:
            parse_containers(json.dumps(document))
        except EngineError as error:
            assert "JSON of another form" in str(error)


def ask(tmp_path: Path, commands: Answers, unit_active: bool = True) -> dict[str, Any]:
    return facts(tmp_path, commands, unit_active, [])


def engine(tmp_path: Path) -> Answers:
    return Host(**CONVERGED).tree(tmp_path).commands


def test_engine_that_does_not_answer_in_time(tmp_path: Path) -> None:
    commands = engine(tmp_path)
    commands["docker info"] = Result(None, b"", b"", 10, "did not end within 10 s and was given up")
    docker = ask(tmp_path, commands)
    assert (docker["running"], docker["version"]) == (True, "26.1.5")
    assert docker["api_error"] == "docker info did not end within 10 s and was given up"


def test_container_that_ends_meanwhile(tmp_path: Path) -> None:
    commands = engine(tmp_path)
    commands["docker ps"] = "c" * 64 + "\n" + "d" * 64 + "\n"
    commands["docker inspect"] = Result(1, inspected().encode(), f"Error: No such container: {'d' * 64}\n".encode(), 0.1)
    docker = ask(tmp_path, commands)
    assert [container["name"] for container in docker["containers"]] == ["job"]
    assert docker["api_error"] is None


def test_engine_without_its_client(tmp_path: Path) -> None:
    commands = Answers()
    commands["dockerd --version"] = "Docker version 26.1.5+dfsg1, build 411e817\n"
    docker = ask(tmp_path, commands)
    assert docker["api_error"] == "the engine runs, but its command line client is not installed"


def test_emulation_by_podman_is_no_engine(tmp_path: Path) -> None:
    commands = Answers()
    commands["docker"] = ""
    docker = ask(tmp_path, commands, unit_active=False)
    assert (docker["installed"], docker["running"], docker["version"]) == (False, False, None)


def test_engine_that_systemd_did_not_start(tmp_path: Path) -> None:
    tree = Host(**CONVERGED).tree(tmp_path)
    assert ask(tmp_path, tree.commands, unit_active=False)["running"] is False
    tree.write("/var/run/docker.pid", "812")
    tree.write("/proc/812/comm", "bash\n")  # the pid of a dead engine, used again
    assert ask(tmp_path, tree.commands, unit_active=False)["running"] is False
    tree.write("/proc/812/comm", "dockerd\n")
    assert ask(tmp_path, tree.commands, unit_active=False)["root_dir"] == "/var/lib/docker"


def test_snap(tmp_path: Path) -> None:
    (tmp_path / "snap/docker/current").mkdir(parents=True)
    commands = Answers()
    commands["dockerd --version"] = "Docker version 28.4.0, build 249d679\n"
    docker = ask(tmp_path, commands, unit_active=False)
    assert (docker["snap"], docker["installed"], docker["version"]) == (True, True, "28.4.0")
