# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import ipaddress
import json
import subprocess
from pathlib import Path

import pytest
import yaml
from lab.names import SUBNET
from lab.paths import Layout

from tests.benchmarks.light_hosts import CODE, PROGRAMS, inventory, named


def test_light_hosts_have_addresses_of_the_lab_s_network_that_no_fleet_has() -> None:
    addresses = {host.address for host in named(40)}
    assert len(addresses) == 40
    assert all(ipaddress.ip_address(address) in ipaddress.ip_network(SUBNET) for address in addresses)
    for fleet in Layout.of_this_file().fleets.glob("*.yml"):
        assert not addresses & {host["address"] for host in yaml.safe_load(fleet.read_text())["hosts"].values()}


def test_every_light_host_is_reached_with_host_key_checking_and_the_benchmark_s_own_keys(tmp_path: Path) -> None:
    found = json.loads(inventory("h100-01", "172.30.86.11", named(2), tmp_path / "state", tmp_path))
    hosts = found["all"]["children"]["lab_hosts"]["children"]["h100_nodes"]["hosts"]
    assert list(hosts) == ["h100-01", "light-01", "light-02"]
    for name in ("light-01", "light-02"):
        assert "StrictHostKeyChecking=yes" in hosts[name]["ansible_ssh_common_args"]
        assert f'UserKnownHostsFile="{tmp_path}/known_hosts"' in hosts[name]["ansible_ssh_common_args"]
    # The converged host keeps the lab's keys, and only there the modules' questions are recorded.
    assert "ansible_ssh_common_args" not in hosts["h100-01"]
    assert [name for name, host in hosts.items() if "ansible_python_interpreter" in host] == ["h100-01"]


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The scripts of light hosts with their folders moved into the test's."""
    for name in ("record", "answer"):
        text = (CODE / name).read_text()
        for folder in ("/tmp/light-host", "/opt/light-host"):
            text = text.replace(folder, str(tmp_path))
        for program in PROGRAMS:
            path = tmp_path / name / program
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("PATH=/usr/local/sbin:", f"PATH={tmp_path}/real:/usr/local/sbin:"))
            path.chmod(0o755)
    (tmp_path / "recorded").mkdir()
    (tmp_path / "real").mkdir()
    real = tmp_path / "real/systemctl"
    real.write_text('#!/bin/sh\nprintf "%s|" "$@"\nprintf "a\\n\\n"\necho words >&2\nexit 3\n')
    real.chmod(0o755)
    return tmp_path


def ask(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(program), *arguments], capture_output=True, text=True, check=False)


def test_a_light_host_answers_word_for_word_what_the_real_program_answered(here: Path) -> None:
    question = ("show", "docker service", "")
    recorded = ask(here / "record/systemctl", *question)
    answer = ask(here / "answer/systemctl", *question)
    assert (recorded.returncode, recorded.stdout, recorded.stderr) == (3, "show|docker service||a\n\n", "words\n")
    assert (answer.returncode, answer.stdout, answer.stderr) == (3, recorded.stdout, recorded.stderr)


@pytest.mark.parametrize("question", [("show", "docker", "service"), ("show docker service",), ()])
def test_a_light_host_has_no_answer_to_what_was_not_asked_before(here: Path, question: tuple[str, ...]) -> None:
    ask(here / "record/systemctl", "show", "docker service")
    answer = ask(here / "answer/systemctl", *question)
    assert answer.returncode == 70
    assert answer.stdout == ""
    assert "no answer was recorded" in answer.stderr
