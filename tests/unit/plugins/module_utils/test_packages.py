# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package state."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.packages import Query, is_broken, locked_by, parse_dpkg_status, parse_rpm_list
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import KERNEL, Answers, Host

STATUS = f"""\
Package: nvidia-driver-cuda
Status: hold ok installed
Priority: optional
Architecture: amd64
Version: 580.178.04-1
Description: NVIDIA driver
 Version: 1 is not the version
 .
 Status: purge ok not-installed

Package: libnvidia-ml1
Status: install ok installed
Architecture: i386
Version: 1:580.178.04-1

Package: linux-headers-{KERNEL}
Status: install ok installed
Architecture: amd64
Version: 6.12.48-1

Package: linux-headers-6.12.30+deb13-amd64
Status: install ok installed
Architecture: amd64
Version: 6.12.30-1

Package: cuda-keyring
Status: deinstall ok config-files
Architecture: all
Version: 1.1-1

Package: vim
Status: install ok installed
Architecture: amd64
Version: 2:9.1
"""


def test_dpkg_status() -> None:
    assert parse_dpkg_status(STATUS, KERNEL, "x86_64") == {
        "libnvidia-ml1:i386": {"version": "1:580.178.04-1", "held": False},
        f"linux-headers-{KERNEL}": {"version": "6.12.48-1", "held": False},
        "nvidia-driver-cuda": {"version": "580.178.04-1", "held": True},
    }
    assert not is_broken(STATUS)


@pytest.mark.parametrize("state", ["install ok half-configured", "install ok unpacked", "install reinstreq half-installed", "install ok triggers-pending"])
def test_interrupted_package_is_broken(state: str) -> None:
    assert is_broken(STATUS.replace("install ok installed\nArchitecture: amd64\nVersion: 2:9.1", f"{state}\nArchitecture: amd64\nVersion: 2:9.1"))


@given(st.text())
def test_arbitrary_status(text: str) -> None:
    for wrapped in (text, f"{STATUS}\n{text}", f"Package: nvidia-x\n{text}"):
        installed = parse_dpkg_status(wrapped, KERNEL, "x86_64")
        assert all(set(package) == {"version", "held"} for package in installed.values())
        assert is_broken(wrapped) in (True, False)


def test_left_over_updates_are_broken(tmp_path: Path) -> None:
    tree = Host().tree(tmp_path)

    def broken() -> object:
        return Query(tree.root, tree.commands, ["debian"], KERNEL, "x86_64").facts()["broken"]

    tree.write("/var/lib/dpkg/updates/tmp.i", "")
    assert broken() is False
    tree.write("/var/lib/dpkg/updates/0001", "")
    assert broken() is True


RPMS = (
    "nvidia-driver-cuda\t3:580.178.04-1.el9\tx86_64\nnvidia-container-toolkit\t1.20.0-1\tx86_64\nkernel-devel\t5.14.0-570.el9\tx86_64\n"
    "kernel-devel\t5.14.0-611.el9\tx86_64\nvim\t9.1-1\tx86_64\nrubbish\n"
)


def test_rpm_list_and_versionlock() -> None:
    locks = "# a comment\nnvidia-driver-cuda-3:580.178.04-1.el9.*\n!vim*\n"
    assert parse_rpm_list(RPMS, locks, "5.14.0-611.el9.x86_64") == {
        "kernel-devel-5.14.0-611.el9.x86_64": {"version": "5.14.0-611.el9", "held": False},
        "nvidia-container-toolkit": {"version": "1.20.0-1", "held": False},
        "nvidia-driver-cuda": {"version": "3:580.178.04-1.el9", "held": True},
    }
    assert parse_rpm_list(RPMS, "nvidia-container-toolkit-0:1.20.0-1.*", "x")["nvidia-container-toolkit"]["held"] is True


@given(st.text(), st.text())
def test_arbitrary_rpm_list(text: str, locks: str) -> None:
    assert all(set(package) == {"version", "held"} for package in parse_rpm_list(RPMS + text, locks, "x").values())


def test_red_hat_family_is_asked_through_rpm(tmp_path: Path) -> None:
    commands = Answers()
    commands["dnf"] = ""
    commands["rpm -qa --qf"] = RPMS
    facts = Query(tmp_path, commands, ["rocky", "rhel", "centos", "fedora"], "x", "x86_64").facts()
    assert (facts["manager"], facts["broken"], facts["busy"]) == ("dnf", False, None)
    assert list(facts["installed"]) == ["nvidia-container-toolkit", "nvidia-driver-cuda"]


def test_unknown_family_has_no_manager(tmp_path: Path) -> None:
    assert Query(tmp_path, Answers(), ["alpine"], "x", "x86_64").facts() == {"manager": None, "installed": {}, "busy": None, "broken": False}


def test_lock_of_another_process_is_seen_and_not_taken(tmp_path: Path) -> None:
    tree = Host().tree(tmp_path)
    lock = tree.write("/var/lib/dpkg/lock-frontend", "")
    assert locked_by(lock) is None
    code = "import fcntl, sys; f = open(sys.argv[1], 'w'); fcntl.lockf(f, fcntl.LOCK_EX); print('locked', flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", code, str(lock)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        assert locked_by(lock) == holder.pid
        tree.write(f"/proc/{holder.pid}/comm", "apt-get\n")
        busy = Query(tree.root, tree.commands, ["debian"], KERNEL, "x86_64").facts()["busy"]
        assert busy == f"apt-get (pid {holder.pid}) holds /var/lib/dpkg/lock-frontend"
        holder.communicate("")
    assert locked_by(lock) is None
    with lock.open("w") as mine:  # asking took no lock
        fcntl.lockf(mine, fcntl.LOCK_EX | fcntl.LOCK_NB)
    assert locked_by(tmp_path / "absent") is None
