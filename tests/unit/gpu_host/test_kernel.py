# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from gpu_host.sim import tree
from gpu_host.sim.kernel import Kernel, ModuleError


def test_pci_folders_are_there_without_a_driver(kernel: Kernel) -> None:
    tree.render(kernel.store.read(), kernel.root)
    folder = kernel.root / "sys/bus/pci/devices/0000:1a:00.0"
    files = {name: (folder / name).read_text().strip() for name in ("vendor", "device", "class", "subsystem_device", "numa_node", "current_link_speed")}
    assert files == {
        "vendor": "0x10de",
        "device": "0x2330",
        "class": "0x030200",
        "subsystem_device": "0x16c1",
        "numa_node": "0",
        "current_link_speed": "32.0 GT/s PCIe",
    }
    assert not (folder / "driver").is_symlink()
    assert list((kernel.root / "proc/driver").iterdir()) == []


def test_nothing_is_built_without_headers(kernel: Kernel) -> None:
    (kernel.root / "lib/modules" / kernel.release / "build").rmdir()
    assert "kernel headers for this kernel do not seem to be installed" in kernel.dkms_build("580.178.04", "open")
    with pytest.raises(ModuleError, match=f"Module nvidia not found in directory /lib/modules/{kernel.release}"):
        kernel.load("nvidia")


def test_loading_makes_what_the_real_module_makes(driver: Kernel) -> None:
    root = driver.root
    assert (root / "sys/module/nvidia/version").read_text() == "580.178.04\n"
    assert (root / "sys/module/nvidia/refcnt").read_text() == "1\n"
    assert (root / "proc/driver/nvidia/version").read_text().startswith("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.178.04  Release Build")
    assert (root / "sys/bus/pci/devices/0000:1a:00.0/driver").readlink().name == "nvidia"
    assert "Device Minor:\t 7\n" in (root / "proc/driver/nvidia/gpus/0000:cb:00.0/information").read_text()
    assert len(list((root / "proc/driver/nvidia-nvswitch/devices").iterdir())) == 4
    assert {"nvidia0", "nvidia7", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"} <= {path.name for path in (root / "dev").iterdir()}
    assert driver.store.read()["fabric"] == "in_progress"


def test_the_proprietary_flavour_is_told_by_its_version_text(kernel: Kernel) -> None:
    kernel.dkms_build("580.178.04", "proprietary")
    kernel.load("nvidia")
    assert "NVIDIA UNIX x86_64 Kernel Module  580.178.04" in (kernel.root / "proc/driver/nvidia/version").read_text()


def test_names_with_dashes_and_modules_of_the_outer_machine(kernel: Kernel) -> None:
    kernel.dkms_build("580.178.04", "open")
    assert kernel.load("nvidia-uvm") == ["nvidia", "nvidia_uvm"]
    assert kernel.load("nvidia_uvm") == []
    assert kernel.load("overlay") == []


def test_nouveau_keeps_the_driver_out(kernel: Kernel) -> None:
    kernel.dkms_build("580.178.04", "open")
    kernel.load("nouveau")
    with pytest.raises(ModuleError, match="could not insert 'nvidia': No such device"):
        kernel.load("nvidia")
    kernel.unload("nouveau")
    assert kernel.load("nvidia") == ["nvidia"]


def test_a_module_of_another_version_does_not_join_a_loaded_driver(kernel: Kernel) -> None:
    kernel.dkms_build("580.159.04", "open")
    kernel.load("nvidia")
    kernel.dkms_build("580.178.04", "open")
    with pytest.raises(ModuleError, match="could not insert 'nvidia_uvm'"):
        kernel.load("nvidia_uvm")


def test_unloading_in_order_takes_everything_away(driver: Kernel) -> None:
    with pytest.raises(ModuleError, match="Module nvidia is in use by: nvidia_uvm"):
        driver.unload("nvidia")
    with driver.store.change() as state:
        state["mig"]["0000:1a:00.0"] = {"current": True, "pending": True, "instances": []}
    driver.unload("nvidia_uvm")
    driver.unload("nvidia")
    state = driver.store.read()
    assert (state["modules"], state["mig"], state["fabric"]) == ({}, {}, "none")
    assert [path.name for path in (driver.root / "dev").rglob("*") if path.is_file()] == []


def test_an_open_node_keeps_the_module(driver: Kernel, open_node: Callable[..., None]) -> None:
    driver.unload("nvidia_uvm")
    open_node(4711, ["python3", "train.py"], "nvidia3")
    with pytest.raises(ModuleError, match=r"Module nvidia is in use$"):
        driver.unload("nvidia")


def test_dkms_remove_takes_only_its_own_driver(kernel: Kernel) -> None:
    kernel.dkms_build("580.178.04", "open")
    kernel.dkms_remove("580.159.04", "open")
    assert kernel.module_file("nvidia") is not None
    kernel.dkms_remove("580.178.04", "open")
    assert kernel.module_file("nvidia") is None


def test_modules_dep_names_the_driver_as_the_refresh_unit_looks_for_it(kernel: Kernel) -> None:
    kernel.dkms_build("580.178.04", "open")
    text = (kernel.root / "lib/modules" / kernel.release / "modules.dep").read_text()
    assert "updates/dkms/nvidia.ko:\n" in text
    assert "updates/dkms/nvidia-uvm.ko: updates/dkms/nvidia.ko\n" in text


def test_on_el_modules_lie_where_its_dkms_puts_them(kernel: Kernel) -> None:
    (kernel.root / "etc").mkdir()
    (kernel.root / "etc/redhat-release").write_text("Rocky Linux release 9.6 (stand-in)\n")
    kernel.dkms_build("580.178.04", "open")
    modules = kernel.root / "lib/modules" / kernel.release
    assert (modules / "extra/nvidia.ko").is_file()
    assert "extra/nvidia-uvm.ko: extra/nvidia.ko\n" in (modules / "modules.dep").read_text()
    assert kernel.load("nvidia_uvm") == ["nvidia", "nvidia_uvm"]
    kernel.dkms_remove("580.178.04", "open")
    assert kernel.module_file("nvidia") is None
    assert "nvidia" not in (modules / "modules.dep").read_text()


@pytest.mark.parametrize(
    ("line", "kept_out"), [("blacklist nouveau", True), ("install nouveau /bin/false", True), ("# blacklist nouveau", False), ("blacklist nouveaux", False)]
)
def test_blacklists(kernel: Kernel, line: str, kept_out: bool) -> None:
    directory = Path(kernel.root / "etc/modprobe.d")
    directory.mkdir(parents=True)
    (directory / "x.conf").write_text(line + "\n")
    assert kernel.blacklisted("nouveau") is kept_out
