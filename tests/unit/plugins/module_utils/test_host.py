# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Machine, system and stamp."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import host
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import KERNEL, Host


@pytest.mark.parametrize(
    ("text", "key", "family"),
    [
        ('ID=debian\nVERSION_ID="12"\nVERSION_CODENAME=bookworm\n', "debian-12", ["debian"]),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', "ubuntu-24.04", ["ubuntu", "debian"]),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.6"\n', "rocky-9", ["rocky", "rhel", "centos", "fedora"]),
        ("ID=arch\n", "arch", ["arch"]),
        ("", "linux", ["linux"]),
    ],
)
def test_distribution(tmp_path: Path, text: str, key: str, family: list[str]) -> None:
    (tmp_path / "usr/lib").mkdir(parents=True)
    (tmp_path / "usr/lib/os-release").write_text(text)
    facts, found = host.distribution(tmp_path)
    assert (facts["key"], found) == (key, family)


def test_os_release_quotes() -> None:
    text = '# NAME=no\nA=plain\nB=\'single\'\nC="a \\"quoted\\" \\$word"\nD=\n rubbish\n'
    assert host.parse_os_release(text) == {"A": "plain", "B": "single", "C": 'a "quoted" $word', "D": ""}


@given(st.text())
def test_arbitrary_os_release(text: str) -> None:
    assert all(isinstance(value, str) for value in host.parse_os_release(text).values())


def test_secure_boot(tmp_path: Path) -> None:
    assert host.secure_boot(tmp_path) == "unsupported"
    variables = tmp_path / "sys/firmware/efi/efivars"
    variables.mkdir(parents=True)
    assert host.secure_boot(tmp_path) == "unknown"  # not mounted
    (variables / "BootOrder-1").write_bytes(b"")
    assert host.secure_boot(tmp_path) == "unsupported"
    secure = variables / "SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    for data, state in ((b"\x06\0\0\0\x01", "enabled"), (b"\x06\0\0\0\x00", "disabled"), (b"", "unknown")):
        secure.write_bytes(data)
        assert host.secure_boot(tmp_path) == state


def test_headers_that_were_removed_leave_a_dead_link(tmp_path: Path) -> None:
    tree = Host(headers=False).tree(tmp_path)
    tree.link(f"/lib/modules/{KERNEL}/build", "/usr/src/gone")
    assert host.kernel(tree.root, KERNEL)["headers"] is False


def test_a_kernel_that_was_removed_leaves_a_folder_that_does_not_count(tmp_path: Path) -> None:
    tree = Host(other_kernels={"6.12.57+deb13-amd64": False}).tree(tmp_path)
    tree.write("/lib/modules/6.12.41+deb13-amd64/updates/dkms/nvidia.ko", "")
    assert host.kernel(tree.root, KERNEL)["others"] == {"6.12.57+deb13-amd64": False}


@pytest.mark.parametrize(("online", "count"), [("0", 1), ("0-127", 128), ("0-63,128-191", 128), ("0,2,4-5", 4)])
def test_cpus(tmp_path: Path, online: str, count: int) -> None:
    Host().tree(tmp_path).write("/sys/devices/system/cpu/online", online + "\n")
    assert host.cpus(tmp_path) == count


def test_disk_of_directories_that_are_not_there_yet(tmp_path: Path) -> None:
    (tmp_path / "var").mkdir()
    found = host.disk(tmp_path, "/data/docker")
    assert list(found) == [*host.DISKS, "/data/docker"]
    assert len({(entry["free_mib"], entry["device"]) for entry in found.values()}) == 1


def test_a_file_system_that_is_full_read_only_or_counts_no_inodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = SimpleNamespace(f_bavail=2560, f_frsize=4096, f_favail=7, f_files=100, f_flag=os.ST_RDONLY | os.ST_NOSUID)
    monkeypatch.setattr(os, "statvfs", lambda _path: status)
    assert host.disk(tmp_path, None)["/var"] == {"device": tmp_path.stat().st_dev, "free_mib": 10, "free_inodes": 7, "read_only": True}
    status.f_files, status.f_flag = 0, os.ST_NOSUID
    found = host.disk(tmp_path, None)["/var"]
    assert (found["free_inodes"], found["read_only"]) == (None, False)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b'{"release": "2026.11-longterm"}', {"release": "2026.11-longterm"}),
        (b"[]", {"error": "/var/lib/rackready/stamp.json holds no JSON object"}),
    ],
)
def test_stamp(tmp_path: Path, data: bytes, expected: object) -> None:
    assert host.stamp(tmp_path) is None
    Host().tree(tmp_path).write("/var/lib/rackready/stamp.json", "").write_bytes(data)
    assert host.stamp(tmp_path) == expected


@given(data=st.binary())
def test_arbitrary_stamp_is_an_error_or_an_object(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    root = tmp_path_factory.mktemp("root")
    (root / "var/lib/rackready").mkdir(parents=True)
    (root / host.STAMP).write_bytes(data)
    assert isinstance(host.stamp(root), dict)


def test_unreadable_stamp(tmp_path: Path) -> None:
    (tmp_path / host.STAMP).mkdir(parents=True)
    assert host.stamp(tmp_path) == {"error": f"/{host.STAMP}: [Errno 21] Is a directory: '{tmp_path / host.STAMP}'"}
