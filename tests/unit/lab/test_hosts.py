# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
from lab import hosts, requirements, ssh
from lab.cli import parser
from lab.down import down
from lab.engine import Engine, EngineKind
from lab.errors import LabError
from lab.faults import inject
from lab.fleet import Host
from lab.hosts import start_command, start_options, state
from lab.names import CHECKOUT_LABEL
from lab.network import ensure
from lab.paths import Layout
from lab.status import simulated
from lab.up import reset, take_over, up

HOST = Host("h100-01", "172.30.86.11", "debian-13", {"board": "hgx-h100-8"})


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("drop", [True, False])
def test_a_host_can_never_touch_the_machine_s_kernel_or_devices(version: int, drop: bool) -> None:
    options = start_options(EngineKind(version, drop))
    assert "--privileged" not in options
    assert {"--cap-drop=SYS_MODULE", "--cap-drop=SYS_TIME"} <= set(options)
    assert ("--cap-drop=SYS_RESOURCE" in options) == drop


def test_systemd_gets_the_cgroups_that_the_engine_has() -> None:
    old, new = EngineKind(1, False), EngineKind(2, True)
    assert "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw" in start_options(old)
    assert start_command(old) == ["/lib/systemd/systemd", "systemd.unified_cgroup_hierarchy=0"]
    assert "--cgroupns=private" in start_options(new)
    assert "/sys/fs/cgroup:" not in " ".join(start_options(new))


class Recorded(Engine):
    """An engine that answers with what docker printed."""

    def __init__(self, stdout: str = "", stderr: str = "", status: int = 0) -> None:
        self.answer = (stdout, stderr, status)

    def attempt(self, *args: str, stdin: object = None, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        stdout, stderr, status = self.answer
        return subprocess.CompletedProcess(args, status, stdout, stderr)


def test_containers_that_only_come_from_a_lab_image_are_not_the_lab_s() -> None:
    engine = Recorded("h100-01\thost\nsomebody\timage\nrackready-lab-services\tservices\n")
    assert engine.containers() == ["h100-01", "rackready-lab-services"]
    assert engine.containers("host") == ["h100-01"]


def test_a_missing_object_is_no_error_and_a_dead_engine_is() -> None:
    assert Recorded(stderr="Error: No such container: h100-01", status=1).inspect("container", "h100-01") is None
    with pytest.raises(LabError, match="Cannot connect to the Docker daemon"):
        Recorded(stderr="Cannot connect to the Docker daemon", status=1).inspect("container", "h100-01")


def test_somebody_else_s_container_of_that_name_is_left_alone() -> None:
    with pytest.raises(LabError, match="a container h100-01 that the lab did not make"):
        state(Recorded('[{"Config": {"Labels": null}, "State": {"Status": "running"}}]'), HOST)


def test_somebody_else_s_network_of_that_name_is_left_alone() -> None:
    with pytest.raises(LabError, match="a Docker network rackready-lab that the lab did not make"):
        ensure(Recorded('[{"Labels": {}, "IPAM": {"Config": [{"Subnet": "10.1.0.0/24"}]}}]'))


@pytest.mark.parametrize(
    ("status", "stderr", "expected"),
    [
        (0, "", False),
        (125, "unable to apply caps: operation not permitted", True),  # Docker 20.10
        (125, 'invalid CapAdd: capability not supported by your kernel or not available in the current environment: "CAP_SYS_RESOURCE"', False),  # 26.1
    ],
)
def test_sys_resource_is_tried_not_guessed(status: int, stderr: str, expected: bool) -> None:
    class Tried(Recorded):
        def run(self, *args: str, stdin: object = None, timeout: float = 600) -> str:
            return "2\n"

    assert Tried(stderr=stderr, status=status).kind("image") == EngineKind(2, expected)


def test_known_hosts_has_name_address_and_key_without_comment() -> None:
    assert ssh.known_hosts_lines([(HOST, "ssh-ed25519 AAAA h100-01\n")]) == "h100-01,172.30.86.11 ssh-ed25519 AAAA\n"


def test_what_is_missing_is_named_with_its_package(tmp_path: Path) -> None:
    problems = requirements.missing(which=lambda command: None if command == "mmdebstrap" else f"/usr/bin/{command}", keyrings=tmp_path)
    assert problems == [
        "the command mmdebstrap was not found: install mmdebstrap",
        f"no Debian archive key in {tmp_path}: install debian-archive-keyring",
    ]
    (tmp_path / "debian-archive-keyring.pgp").touch()
    assert requirements.missing(which=lambda command: command, keyrings=tmp_path) == []


def test_status_says_what_the_simulator_says_in_one_line() -> None:
    answer = '{"board": "hgx-h100-8", "gpus": ["0000:1a:00.0"], "modules": {"nvidia": {}}, "faults": {"smi-hang": {}}}'
    assert simulated(answer) == "1 GPUs on hgx-h100-8; modules: nvidia; faults: smi-hang"
    assert simulated("no such file") == "no simulated GPUs"


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["up"], {"command": "up", "fleet": "h100"}),
        (["down", "--keep-images"], {"command": "down", "keep_images": True}),
        (["break", "h100-01", "smi-hang"], {"command": "break", "host": "h100-01", "fault": "smi-hang"}),
        (["heal", "h100-01"], {"command": "heal", "host": "h100-01", "fault": None}),
    ],
)
def test_command_line(argv: list[str], expected: dict[str, object]) -> None:
    assert vars(parser().parse_args(argv)) == expected


class Labs(Recorded):
    """An engine with containers (name to role and checkout), which keeps the commands that change something."""

    def __init__(self, containers: dict[str, tuple[str, str | None]]) -> None:
        super().__init__()
        self.found = containers
        self.done: list[tuple[str, ...]] = []

    def attempt(self, *args: str, stdin: object = None, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        answer = ""
        if args[:2] == ("container", "ls"):
            answer = "".join(f"{name}\t{role}\n" for name, (role, _checkout) in self.found.items())
        elif args[:2] == ("container", "inspect"):
            checkout = self.found[args[2]][1]
            answer = json.dumps([{"Config": {"Labels": {CHECKOUT_LABEL: checkout} if checkout else {}}}])
        elif args[1] == "ls":
            answer = f"{args[0]}-1\n"
        else:
            self.done.append(args)
        return subprocess.CompletedProcess(args, 0, answer, "")

    @property
    def removed(self) -> list[str]:
        return [args[-1] for args in self.done if args[0] == "rm" or args[1] == "rm"]


def checkout(path: Path) -> Layout:
    path.mkdir()
    (path / "dev").touch()
    (path / ".lab").mkdir()
    return Layout(path)


def test_the_lab_of_another_checkout_is_left_alone_and_named(tmp_path: Path) -> None:
    mine, theirs = checkout(tmp_path / "mine"), checkout(tmp_path / "theirs")
    engine = Labs({"h100-01": ("host", str(theirs.checkout)), "rackready-lab-services": ("services", str(theirs.checkout))})
    words = f"the lab of the checkout {theirs.checkout} is there (h100-01, rackready-lab-services), and a machine can have one only: take it down first"
    with pytest.raises(LabError, match=re.escape(f"{words} ({theirs.checkout}/dev lab down)")):
        take_over(mine, engine, print)
    assert engine.done == []


def test_one_s_own_lab_stays_and_that_of_a_deleted_checkout_makes_room(tmp_path: Path) -> None:
    mine = checkout(tmp_path / "mine")
    engine = Labs({"h100-01": ("host", str(mine.checkout)), "h100-02": ("host", str(tmp_path / "deleted"))})
    said: list[str] = []
    take_over(mine, engine, said.append)
    assert engine.removed == ["h100-02"]
    assert said == [f"  removed          h100-02: it belonged to the lab of {tmp_path}/deleted, which is gone"]


@pytest.mark.parametrize("command", ["up", "reset"])
def test_no_command_that_makes_hosts_forgets_to_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    mine, theirs = checkout(tmp_path / "mine"), checkout(tmp_path / "theirs")
    monkeypatch.setattr(requirements, "check", lambda: None)
    engine = Labs({"h100-01": ("host", str(theirs.checkout))})
    with pytest.raises(LabError, match="take it down first"):
        {"up": up, "reset": reset}[command](mine, engine, "h100" if command == "up" else "h100-01", print)
    assert engine.done == []


def test_down_removes_what_is_its_own_and_what_nobody_else_uses(tmp_path: Path) -> None:
    mine, theirs = checkout(tmp_path / "mine"), checkout(tmp_path / "theirs")
    found: dict[str, tuple[str, str | None]] = {"h100-01": ("host", str(mine.checkout)), "trial": ("tool", None)}
    alone = Labs(found)
    down(mine, alone, False, print)
    assert alone.removed == ["h100-01", "trial", "network-1", "image-1"]
    assert not mine.state.exists()
    mine.state.mkdir()
    beside = Labs({**found, "h200-01": ("host", str(theirs.checkout))})
    said: list[str] = []
    down(mine, beside, False, said.append)
    assert beside.removed == ["h100-01"]
    assert said == [f"  removed 1 containers with their volumes; network and images stay, as the lab of {theirs.checkout} uses them"]
    assert theirs.state.exists()
    assert not mine.state.exists()


@pytest.mark.parametrize(("found", "words"), [({}, "the lab is not up; run ./dev lab up"), ({"h1": ("host", "/x"), "s": ("services", "/x")}, "it has h1$")])
def test_a_host_that_the_lab_does_not_have_is_told_with_those_that_it_has(found: dict[str, tuple[str, str | None]], words: str) -> None:
    engine = Labs(found)
    with pytest.raises(LabError, match=words):
        inject(engine, "break", "h99", "gpu-gone", print)
    assert engine.done == []


def test_a_host_is_waited_for_until_it_takes_a_login_and_no_longer_than_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = [True, False, False]
    monkeypatch.setattr(hosts, "UP_WITHIN", 1)
    monkeypatch.setattr(hosts, "answers", lambda _layout, _host: said.pop())
    hosts.wait_for_login(Layout(tmp_path), HOST)
    assert said == []
    monkeypatch.setattr(hosts, "answers", lambda _layout, _host: False)
    with pytest.raises(LabError, match="h100-01 takes no login over SSH within 1 s"):
        hosts.wait_for_login(Layout(tmp_path), HOST)
