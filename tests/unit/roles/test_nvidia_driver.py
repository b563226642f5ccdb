# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_driver says when the kernel refuses a module: its tasks run for real on a modprobe that answers as kmod's does, a host an answer."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.unit import playbooks

MODPROBE = """#!/bin/sh
[ "$RACKREADY_WRITES" = "" ] || echo "$RACKREADY_WRITES"
[ "$RACKREADY_SAYS" = "" ] || { echo "modprobe: $RACKREADY_SAYS" >&2; exit 1; }
"""
NO_LOAD = "the driver's kernel modules do not load"
# By host: what modprobe writes, what it complains about, and what the run says then.
HOSTS = {
    "loads": ("insmod /lib/modules/nvidia.ko", "", ""),
    "loaded": ("", "", ""),
    "rejected": (
        "",
        "ERROR: could not insert 'nvidia': Key was rejected by service",
        f"rejected: {NO_LOAD} (modprobe: ERROR: could not insert 'nvidia': Key was rejected by service), as Secure Boot does not know the key that signed "
        "them: run mokutil --import /var/lib/dkms/mok.pub on the host (on Ubuntu /var/lib/shim-signed/mok/MOK.der), reboot it, enroll the key at the "
        "console and run again.",
    ),
    "old-kernel": ("", "ERROR: could not insert 'nvidia': Required key not available", "as Secure Boot does not know the key that signed them"),
    "no-gpu": (
        "",
        "ERROR: could not insert 'nvidia': No such device",
        "No such device), as they find no GPU that they can use: look at dmesg for NVRM lines",
    ),
    "not-built": (
        "",
        "WARNING: Module nvidia not found in directory /lib/modules/6.12.57",
        "/lib/modules/6.12.57), as they were not built for this kernel: look at dkms status and at make.log below /var/lib/dkms",
    ),
    "other": ("", "ERROR: could not insert 'nvidia': Input/output error", "Input/output error): look at dmesg for NVRM lines and run again."),
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> playbooks.Run:
    directory = tmp_path_factory.mktemp("load")
    modprobe = directory / "bin/modprobe"
    modprobe.parent.mkdir()
    modprobe.write_text(MODPROBE, encoding="utf-8")
    modprobe.chmod(0o755)
    desired: dict[str, Any] = {"modules": ["nvidia", "nvidia_uvm"], "unload": []}
    hosts = {name: {"writes": writes, "says": says} for name, (writes, says, _words) in HOSTS.items()}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"RACKREADY_WRITES": "{{ writes }}", "RACKREADY_SAYS": "{{ says }}"},
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "nvidia_driver_desired": desired},
        "tasks": [{"ansible.builtin.include_role": {"name": "rackready.gpu.nvidia_driver", "tasks_from": "load"}}],
    }
    return playbooks.run(directory, {"hosts": hosts}, [play], PATH=f"{modprobe.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("name", [name for name in HOSTS if HOSTS[name][1]])
def test_modules_that_do_not_load_end_in_a_sentence(run: playbooks.Run, name: str) -> None:
    assert f"{name}: {NO_LOAD} (modprobe: {HOSTS[name][1]}" in said(run)
    assert HOSTS[name][2] in said(run)
    assert recap(run, name)["failed"] == 1


def test_modules_that_load_are_a_change_and_those_that_are_loaded_are_none(run: playbooks.Run) -> None:
    assert [recap(run, name) for name in ("loads", "loaded")] == [{"changed": changed, "failed": 0} for changed in (1, 0)]


def said(run: playbooks.Run) -> str:
    return " ".join(run.output.split())


def recap(run: playbooks.Run, name: str) -> dict[str, int]:
    line = next(line for line in run.output.splitlines() if line.startswith(f"{name} ") and "unreachable=" in line)
    return {key: int(value) for key, _equals, value in (word.partition("=") for word in line.split()) if key in ("changed", "failed")}
