# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Watched files."""

from __future__ import annotations

from pathlib import Path

from ansible_collections.rackready.gpu.plugins.module_utils.reading import TEXT_LIMIT, read_line, read_text, watched_files

from tests.unit.hosts import Host


def test_files_are_given_whole_or_named_as_unread(tmp_path: Path) -> None:
    tree = Host().tree(tmp_path)
    exact = "a: ü\r\nno newline at the end"
    tree.write("/etc/docker/daemon.json", "").write_bytes(exact.encode())
    tree.write("/etc/modprobe.d/limit.conf", "x" * TEXT_LIMIT)
    tree.write("/etc/modprobe.d/long.conf", "x" * (TEXT_LIMIT + 1))
    tree.write("/etc/apt/sources.list.d/latin.list", "").write_bytes(b"# gr\xfc\xdfe\n")
    tree.write("/etc/systemd/system/nvidia-persistenced.service.d/x.conf", "[Service]\n")
    tree.write("/etc/systemd/system/other.service.d/x.conf", "[Service]\n")
    tree.write("/etc/sysctl.d/99-rackready.conf", "")
    tree.write("/etc/sysctl.d/99-other.conf", "")
    (tree.root / "etc/apt/preferences.d/folder").mkdir(parents=True)
    tree.link("/etc/modules-load.d/modules.conf", "../modules")
    files, unread = watched_files(tree.root)
    assert files["/etc/docker/daemon.json"] == exact
    assert set(files) == {
        "/etc/apt/sources.list.d/debian.sources",
        "/etc/docker/daemon.json",
        "/etc/modprobe.d/limit.conf",
        "/etc/sysctl.d/99-rackready.conf",
        "/etc/systemd/system/nvidia-persistenced.service.d/x.conf",
    }
    assert unread == {
        "/etc/apt/preferences.d/folder": "not a regular file",
        "/etc/apt/sources.list.d/latin.list": "not UTF-8 text",
        "/etc/modprobe.d/long.conf": "longer than 64 KiB",
        "/etc/modules-load.d/modules.conf": "a link that leads nowhere",
    }


def test_what_cannot_be_read_is_absent(tmp_path: Path) -> None:
    assert read_text(tmp_path / "absent") is None
    assert read_text(tmp_path) is None
    (tmp_path / "empty").write_text(" \nsecond\n")
    assert read_line(tmp_path / "empty") is None
    (tmp_path / "bytes").write_bytes(b"\xff first \nsecond")
    assert read_line(tmp_path / "bytes") == "� first"
    assert read_text(tmp_path / "bytes", 1) == "�"
