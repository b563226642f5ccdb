# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role nvidia_driver says when modules are not built or not loaded: its tasks run for real on stand-ins of dkms and modprobe, a host an answer."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.unit import playbooks

MODPROBE = """#!/bin/sh
[ "$1 $2" != "--remove nouveau" ] || { echo "modprobe: FATAL: Module nouveau is in use." >&2; exit 1; }
[ "$RACKREADY_WRITES" = "" ] || echo "$RACKREADY_WRITES"
[ "$RACKREADY_SAYS" = "" ] || { echo "modprobe: $RACKREADY_SAYS" >&2; exit 1; }
"""
DMESG = """#!/bin/sh
[ "$RACKREADY_KERNEL" != none ] || { echo "dmesg: read kernel buffer failed: Operation not permitted" >&2; exit 1; }
echo "$RACKREADY_KERNEL"
"""
DKMS = """#!/bin/sh
[ "$3" = 6.12.48 ] || { echo "Error! Bad return status for module build on kernel: $3" >&2; exit 11; }
"""
NO_LOAD = "the driver's kernel modules do not load"
# By host: what modprobe writes, what it complains about, and what the run says then.
HOSTS = {
    "loads": ("insmod /lib/modules/nvidia.ko", "", ""),
    "loaded": ("", "", ""),
    "build-fails": ("", "", ""),
    "console": ("", "", ""),
    # C5: that loading fails decides, and not whether a key is enrolled.
    "rejected": (
        "",
        "ERROR: could not insert 'nvidia': Key was rejected by service",
        f"rejected: {NO_LOAD} (modprobe: ERROR: could not insert 'nvidia': Key was rejected by service), as Secure Boot does not know the key that signed "
        "them: run mokutil --import /var/lib/dkms/mok.pub on the host (on Ubuntu /var/lib/shim-signed/mok/MOK.der), reboot it, enroll the key at the "
        "console and run again. If mokutil --list-enrolled has it already, this kernel does not trust enrolled keys: boot the distribution's own one.",
    ),
    "old-kernel": ("", "ERROR: could not insert 'nvidia': Required key not available", "as Secure Boot does not know the key that signed them"),
    # C4, what people met elsewhere: the BIOS maps no memory above 4 GiB, which only the kernel's log says.
    "bar": (
        "",
        "ERROR: could not insert 'nvidia': No such device",
        "No such device), as the BIOS gave memory of 0000:4a:00.0, 0000:4b:00.0 no addresses (dmesg: a BAR is 0M): switch above-4G decoding and resizable BAR "
        "on in the BIOS, and run again.",
    ),
    "silent": ("", "ERROR: could not insert 'nvidia': No such device", "(a BAR of 0M: switch above-4G decoding and resizable BAR on in the BIOS)."),
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
# What dmesg prints, by host; none: it fails.
KERNEL = {
    "bar": "[ 28.1] NVRM: This PCI I/O region assigned to your NVIDIA device is invalid:\nNVRM: BAR1 is 0M @ 0x0 (PCI:0000:4b:00.0)\n"
    "[ 28.2] NVRM: BAR0 is 0M @ 0x0 (PCI:0000:4a:00.0)\n[ 29.1] NVRM: BAR0 is 0M @ 0x0 (PCI:0000:4a:00.0)\n"
    "[ 29.2] NVRM: The system BIOS may have misconfigured your GPU.",
    "silent": "none",
    "no-gpu": "[ 28.1] NVRM: The NVIDIA GPU 0000:4a:00.0 (PCI ID: 10de:2330) installed in this system is not supported by open nvidia.ko",
    # A GPU without addresses does not explain a key that was rejected.
    "rejected": "[ 28.1] NVRM: BAR1 is 0M @ 0x0 (PCI:0000:4b:00.0)",
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> playbooks.Run:
    directory = tmp_path_factory.mktemp("load")
    (directory / "bin").mkdir()
    for name, script in (("modprobe", MODPROBE), ("dkms", DKMS), ("dmesg", DMESG)):
        (directory / "bin" / name).write_text(script, encoding="utf-8")
        (directory / "bin" / name).chmod(0o755)
    desired: dict[str, Any] = {
        "build_command": ["dkms", "autoinstall", "-k", "{{ kernel | default('6.12.48') }}"],
        "modules": ["nvidia", "nvidia_uvm"],
        "unload": "{{ unload | default([]) }}",
    }
    hosts: dict[str, Any] = {name: {"writes": writes, "says": says, "kernel_says": KERNEL.get(name, "")} for name, (writes, says, _words) in HOSTS.items()}
    hosts["build-fails"]["kernel"] = "6.12.57"
    hosts["console"]["unload"] = ["nouveau"]
    play = {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"RACKREADY_WRITES": "{{ writes }}", "RACKREADY_SAYS": "{{ says }}", "RACKREADY_KERNEL": "{{ kernel_says }}"},
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable, "nvidia_driver_desired": desired},
        "tasks": [{"ansible.builtin.include_role": {"name": "rackready.gpu.nvidia_driver", "tasks_from": part}} for part in ("build", "load")],
    }
    return playbooks.run(directory, {"hosts": hosts}, [play], PATH=f"{directory}/bin:{os.environ['PATH']}")


@pytest.mark.parametrize("name", [name for name in HOSTS if HOSTS[name][1]])
def test_modules_that_do_not_load_end_in_a_sentence(run: playbooks.Run, name: str) -> None:
    assert f"{name}: {NO_LOAD} (modprobe: {HOSTS[name][1]}" in said(run)
    begin = said(run).index(f"{name}: {NO_LOAD}")
    assert HOSTS[name][2] in said(run)[begin : begin + 700]
    assert recap(run, name)["failed"] == 1


def test_c4_a_key_that_was_rejected_is_not_blamed_on_the_bios(run: playbooks.Run) -> None:
    begin = said(run).index(f"rejected: {NO_LOAD}")
    assert "BIOS" not in said(run)[begin : begin + 400]


def test_modules_that_load_are_a_change_and_those_that_are_loaded_are_none(run: playbooks.Run) -> None:
    assert [recap(run, name) for name in ("loads", "loaded")] == [{"changed": changed, "failed": 0} for changed in (2, 1)]  # the build is one


def test_modules_that_are_not_built_end_in_a_sentence(run: playbooks.Run) -> None:
    assert "build-fails: dkms autoinstall -k 6.12.57 failed (Error! Bad return status for module build on kernel: 6.12.57), so there is no driver" in said(run)
    assert recap(run, "build-fails") == {"changed": 0, "failed": 1}


def test_nouveau_that_a_console_uses_ends_in_a_sentence(run: playbooks.Run) -> None:
    assert "console: nouveau is in use; reboot, then run again (modprobe: FATAL: Module nouveau is in use.)." in said(run)
    assert recap(run, "console")["failed"] == 1


def said(run: playbooks.Run) -> str:
    return " ".join(run.output.split())


def recap(run: playbooks.Run, name: str) -> dict[str, int]:
    line = next(line for line in run.output.splitlines() if line.startswith(f"{name} ") and "unreachable=" in line)
    return {key: int(value) for key, _equals, value in (word.partition("=") for word in line.split()) if key in ("changed", "failed")}
