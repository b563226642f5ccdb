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
from ansible_collections.rackready.gpu.plugins.module_utils.packages import (
    Query,
    doubled,
    is_broken,
    locked_by,
    option,
    parse_dpkg_status,
    parse_excludes,
    parse_rpm_list,
)
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


def held(locks: str = "", excludes: tuple[str, ...] = ()) -> list[str]:
    found = parse_rpm_list(RPMS, locks.splitlines(), excludes, "5.14.0-611.el9.x86_64")
    return [name for name, package in found.items() if package["held"]]


def test_rpm_list_and_versionlock() -> None:
    locks = "# a comment\nnvidia-driver-cuda-3:580.178.04-1.el9.*\n!vim*\n"
    assert parse_rpm_list(RPMS, locks.splitlines(), [], "5.14.0-611.el9.x86_64") == {
        "kernel-devel-5.14.0-611.el9.x86_64": {"version": "5.14.0-611.el9", "held": False},
        "nvidia-container-toolkit": {"version": "1.20.0-1", "held": False},
        "nvidia-driver-cuda": {"version": "3:580.178.04-1.el9", "held": True},
    }


@pytest.mark.parametrize(
    ("locks", "excludes", "names"),
    [
        ("nvidia-container-toolkit-0:1.20.0-1.*", (), ["nvidia-container-toolkit"]),
        ("nvidia-container-toolkit-1.20.0-1", (), ["nvidia-container-toolkit"]),
        # Locked to another version, or to a name, which is every version: neither keeps what is there.
        ("nvidia-driver-cuda-3:580.95.05-1.el9.*", (), []),
        ("nvidia-driver-cuda\nnvidia*", (), []),
        ("", ("nvidia-d*", "kernel*"), ["kernel-devel-5.14.0-611.el9.x86_64", "nvidia-driver-cuda"]),
    ],
)
def test_what_holds_a_package(locks: str, excludes: tuple[str, ...], names: list[str]) -> None:
    assert held(locks, excludes) == names


def test_headers_of_a_kernel_variant() -> None:
    listing = "kernel-64k-devel\t5.14.0-611.el9\taarch64\nkernel-devel\t5.14.0-611.el9\taarch64\n"
    assert list(parse_rpm_list(listing, [], [], "5.14.0-611.el9.aarch64+64k")) == ["kernel-devel-5.14.0-611.el9.aarch64+64k"]
    assert parse_rpm_list(listing, [], [], "5.14.0-611.el9.aarch64+rt") == {}


def test_an_epoch_of_zero_is_not_written() -> None:
    assert parse_rpm_list("dkms\t0:3.2.2-1.el9\tnoarch\n", [], [], "x") == {"dkms": {"version": "3.2.2-1.el9", "held": False}}


@given(st.text(), st.text())
def test_arbitrary_rpm_list(text: str, locks: str) -> None:
    assert all(set(package) == {"version", "held"} for package in parse_rpm_list(RPMS + text, locks.splitlines(), [locks], "x").values())
    assert isinstance(doubled(text), list)


def rocky(root: Path, rpms: str = RPMS) -> dict[str, object]:
    commands = Answers()
    commands["dnf"] = ""
    commands["rpm -qa --qf"] = rpms
    return Query(root, commands, ["rocky", "rhel", "centos", "fedora"], "x", "x86_64").facts()


def test_red_hat_family_is_asked_through_rpm(tmp_path: Path) -> None:
    facts = rocky(tmp_path)
    assert {**facts, "installed": sorted(facts["installed"])} == {  # type: ignore[call-overload]
        "manager": "dnf",
        "installed": ["nvidia-container-toolkit", "nvidia-driver-cuda"],
        "busy": None,
        "broken": False,
        "streams": {},
        "excludes": [],
    }


def test_a_package_in_two_versions_is_broken(tmp_path: Path) -> None:
    """As a transaction that was killed leaves it; kernels and their headers may be there many times."""
    twice = "nvidia-driver-cuda\t3:580.95.05-1.el9\tx86_64\n"
    assert doubled(RPMS) == []
    assert doubled(RPMS + twice) == ["nvidia-driver-cuda"]
    assert rocky(tmp_path, RPMS + twice)["broken"] is True
    assert doubled(RPMS + "nvidia-driver-cuda\t3:580.178.04-1.el9\ti686\n") == []


@pytest.mark.parametrize(
    ("switch", "locked"),
    [(None, False), ("[main]\nenabled = 0\n", False), ("[main]\nenabled = 1\n", True), ("[main]\n", True), ("not a file of options", True)],
)
def test_versionlock_locks_only_with_its_plugin(tmp_path: Path, switch: str | None, locked: bool) -> None:
    plugins = tmp_path / "etc/dnf/plugins"
    plugins.mkdir(parents=True)
    (plugins / "versionlock.list").write_text("nvidia-driver-cuda-3:580.178.04-1.el9.*\n")
    if switch is not None:
        (plugins / "versionlock.conf").write_text(switch)
    assert rocky(tmp_path)["installed"]["nvidia-driver-cuda"]["held"] is locked  # type: ignore[index]


def test_enabled_streams(tmp_path: Path) -> None:
    modules = tmp_path / "etc/dnf/modules.d"
    modules.mkdir(parents=True)
    (modules / "nvidia-driver.module").write_text("[nvidia-driver]\nname=nvidia-driver\nstream=580-open\nprofiles=\nstate=enabled\n")
    (modules / "nodejs.module").write_text("[nodejs]\nname=nodejs\nstream=\nprofiles=\nstate=disabled\n")
    (modules / "php.module").write_text("[other]\nstream=8.2\nstate=enabled\n")
    (modules / "torn.module").write_text("stream=580")
    assert rocky(tmp_path)["streams"] == {"nvidia-driver": "580-open"}


def test_excludes_of_dnf_conf() -> None:
    assert parse_excludes("[main]\nexcludepkgs=kernel*, nvidia*\n  docker-ce\nexclude = runc\n") == ["runc", "kernel*", "nvidia*", "docker-ce"]
    assert parse_excludes("[main]\nbest=True\n[x]\nexclude=a\n") == parse_excludes("rubbish") == []


@given(st.text(), st.text(alphabet="[]=main \n#;:%"))
def test_arbitrary_options(text: str, other: str) -> None:
    for wrapped in (text, other, f"[main]\nexclude={text}\n"):
        assert isinstance(option(wrapped, "main", "exclude"), str)


def test_dnf_at_work_is_seen_by_its_lock(tmp_path: Path) -> None:
    lock = tmp_path / "var/lib/dnf/rpmdb_lock.pid"
    lock.parent.mkdir(parents=True)
    lock.write_text("812")
    assert rocky(tmp_path)["busy"] is None  # left by a process that is gone
    (tmp_path / "proc/812").mkdir(parents=True)
    (tmp_path / "proc/812/comm").write_text("dnf\n")
    assert rocky(tmp_path)["busy"] == "dnf (pid 812) holds /var/lib/dnf/rpmdb_lock.pid"


def test_unknown_family_has_no_manager(tmp_path: Path) -> None:
    assert Query(tmp_path, Answers(), ["alpine"], "x", "x86_64").facts() == {
        "manager": None,
        "installed": {},
        "busy": None,
        "broken": False,
        "streams": {},
        "excludes": [],
    }


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
