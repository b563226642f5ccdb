# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules and the driver's libraries."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Result
from ansible_collections.rackready.gpu.plugins.module_utils.kernel_modules import Query, flavour_of_license, library_version

from tests.unit.hosts import CONVERGED, Answers, Host

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs-builder@U22-I3-AE18-09-6)  Tue Nov  4\nGCC version: gcc\n"
PROPRIETARY = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.261.03  Fri May 30 15:38:34 UTC 2026\nGCC version:\n"


@pytest.mark.parametrize(
    ("banner", "version", "flavour"),
    [(OPEN, "580.159.04", "open"), (PROPRIETARY, "535.261.03", "proprietary"), ("something new\n", "580.178.04", "proprietary")],
)
def test_loaded_module_by_its_banner(tmp_path: Path, banner: str, version: str, flavour: str) -> None:
    tree = Host(**CONVERGED).tree(tmp_path)
    tree.write("/proc/driver/nvidia/version", banner)
    nvidia = Query(tree.root, tree.commands).facts()["nvidia"]
    assert (nvidia["loaded"], nvidia["version"], nvidia["flavour"]) == (True, version, flavour)


def test_newer_module_on_disk_than_in_the_kernel(tmp_path: Path) -> None:
    tree = Host(**CONVERGED).tree(tmp_path)
    tree.commands["modinfo -F version nvidia"] = "580.181.01\n"
    tree.commands["modinfo -F license nvidia"] = "NVIDIA\n"
    nvidia = Query(tree.root, tree.commands).facts()["nvidia"]
    assert (nvidia["version"], nvidia["available"], nvidia["flavour"], nvidia["available_flavour"]) == ("580.178.04", "580.181.01", "open", "proprietary")


def test_no_module_for_this_kernel(tmp_path: Path) -> None:
    commands = Answers()
    missing = Result(1, b"", b"modinfo: ERROR: Module nvidia not found.\n", 0.01)
    commands["modinfo -F version nvidia"] = missing
    commands["modinfo -F license nvidia"] = missing
    nvidia = Query(tmp_path, commands).facts()["nvidia"]
    assert nvidia == {"loaded": False, "version": None, "flavour": None, "available": None, "available_flavour": None}


def test_unknown_license_is_no_flavour() -> None:
    assert [flavour_of_license(text) for text in ("Dual MIT/GPL", "NVIDIA", "GPL", "")] == ["open", "proprietary", None, None]


def test_library_in_a_directory_that_only_the_linker_cache_names(tmp_path: Path) -> None:
    (tmp_path / "opt/nv").mkdir(parents=True)
    (tmp_path / "opt/nv/libcuda.so.570.211.01").write_text("")
    (tmp_path / "opt/nv/libcuda.so.1").symlink_to("libcuda.so.570.211.01")
    assert library_version(tmp_path) is None
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/ld.so.cache").write_bytes(b"glibc-ld.so.cache1.1\0libcuda.so.1\0/opt/nv/libcuda.so.1\0libnvidia-ml.so.1\0/gone/libnvidia-ml.so.1\0")
    assert library_version(tmp_path) == "570.211.01"


def test_library_without_a_version_in_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "usr/lib/x86_64-linux-gnu"
    folder.mkdir(parents=True)
    (folder / "libnvidia-ml.so.1").write_text("")
    assert library_version(tmp_path) is None
