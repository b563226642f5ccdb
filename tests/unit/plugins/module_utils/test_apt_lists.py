# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules that Ubuntu signed itself, in apt's lists."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.apt_lists import LISTS, parse, signed_modules

KERNEL = "5.15.0-56-generic"
# The first paragraph is what NVIDIA's guide shows of apt-cache, less a few lines that say nothing here.
PACKAGES = f"""\
Package: linux-modules-nvidia-515-server-{KERNEL}
Architecture: amd64
Version: 5.15.0-56.62+1
Section: restricted/kernel
Source: linux-restricted-modules
Origin: Ubuntu
Depends: debconf (>= 0.5) | debconf-2.0, linux-image-{KERNEL} | linux-image-unsigned-{KERNEL}, linux-signatures-nvidia-{KERNEL}  (= 5.15.0-56.62+1), \
linux-objects-nvidia-515-server-{KERNEL} (= 5.15.0-56.62+1), nvidia-kernel-common-515-server (<= 515.86.01-1), nvidia-kernel-common-515-server (>= 515.86.01)
Filename: pool/restricted/l/linux-restricted-modules/linux-modules-nvidia-515-server-{KERNEL}_5.15.0-56.62+1_amd64.deb

Package: linux-modules-nvidia-525-server-open-{KERNEL}
Architecture: amd64
Version: 5.15.0-56.62+2
Depends: linux-image-{KERNEL}, nvidia-kernel-common-525-server (>= 525.60.13)

Package: linux-modules-nvidia-525-server-open-5.15.0-58-generic
Architecture: amd64
Version: 5.15.0-58.64
Depends: linux-image-5.15.0-58-generic, nvidia-kernel-common-525-server (>= 525.78.01)

Package: linux-modules-nvidia-525-server-open-generic
Architecture: amd64
Version: 5.15.0.58.64
Depends: linux-modules-nvidia-525-server-open-5.15.0-58-generic

Package: nvidia-utils-525-server
Architecture: amd64
Version: 525.60.13-0ubuntu0.22.04.1
Depends: libc6 (>= 2.34)

Package: nvidia-utils-525
Architecture: amd64
Version: 525.60.11-0ubuntu0.22.04.1
"""
UPDATES = PACKAGES.replace("525.60.13-0ubuntu0.22.04.1", "525.78.01-0ubuntu0.22.04.1")
OF_THIS_KERNEL = [
    (f"linux-modules-nvidia-515-server-{KERNEL}", "5.15.0-56.62+1", "515.86.01"),
    (f"linux-modules-nvidia-525-server-open-{KERNEL}", "5.15.0-56.62+2", "525.60.13"),
    ("nvidia-utils-525-server", "525.60.13-0ubuntu0.22.04.1", "525.60.13"),
]


def put(root: Path, name: str, data: bytes) -> None:
    path = root / LISTS / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def test_modules_of_the_running_kernel_say_which_driver_they_are_of() -> None:
    assert parse(PACKAGES.encode(), KERNEL) == OF_THIS_KERNEL


def test_a_dot_in_the_kernel_is_a_dot() -> None:
    assert [name for name, _version, _driver in parse(PACKAGES.encode(), "5x15x0-56-generic")] == ["nvidia-utils-525-server"]


@pytest.mark.parametrize("text", ["", "Package: nvidia-utils-525-server\n", "Package: nvidia-utils-525-server\nVersion: one:two\n", "\xff\n"])
def test_a_list_without_versions_gives_nothing(text: str) -> None:
    assert parse(text.encode("latin-1"), KERNEL) == []


def test_the_versions_of_all_lists_count_and_other_components_and_architectures_do_not(tmp_path: Path) -> None:
    put(tmp_path, "archive.ubuntu.com_ubuntu_dists_jammy_restricted_binary-amd64_Packages", PACKAGES.encode())
    put(tmp_path, "archive.ubuntu.com_ubuntu_dists_jammy-updates_restricted_binary-amd64_Packages.gz", gzip.compress(UPDATES.encode()))
    put(tmp_path, "security.ubuntu.com_ubuntu_dists_jammy-security_restricted_binary-amd64_Packages.xz", lzma.compress(b""))
    put(tmp_path, "archive.ubuntu.com_ubuntu_dists_jammy_main_binary-amd64_Packages", PACKAGES.replace("525.60", "525.99").encode())
    put(tmp_path, "ports.ubuntu.com_dists_jammy_restricted_binary-arm64_Packages", PACKAGES.replace("525.60", "525.99").encode())
    found = signed_modules(tmp_path, KERNEL, "x86_64")
    assert found["lists"] == 3
    assert list(found["packages"]) == [name for name, _version, _driver in OF_THIS_KERNEL]
    assert found["packages"]["nvidia-utils-525-server"] == {"525.60.13-0ubuntu0.22.04.1": "525.60.13", "525.78.01-0ubuntu0.22.04.1": "525.78.01"}


def test_a_list_that_cannot_be_read_is_not_counted(tmp_path: Path) -> None:
    assert signed_modules(tmp_path, KERNEL, "x86_64") == {"lists": 0, "packages": {}}
    put(tmp_path, "a_restricted_binary-amd64_Packages.lz4", b"\x04\x22\x4d\x18")
    put(tmp_path, "b_restricted_binary-amd64_Packages.gz", b"no gzip")
    put(tmp_path, "c_restricted_binary-amd64_Packages.xz", b"no xz")
    assert signed_modules(tmp_path, KERNEL, "x86_64") == {"lists": 0, "packages": {}}
