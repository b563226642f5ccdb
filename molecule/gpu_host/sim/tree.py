# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Pictures of the state as files: /sys/bus/pci/devices, /sys/module, /proc/driver and the device nodes.

Each function takes the state and writes below ``root``; writing twice gives the same files.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path
from typing import Any

from . import mig
from .state import State, link_of, mig_of, present_gpus

# Real numbers (major 195) cannot be opened where there is no driver, and a node that cannot be opened can have no holder:
# the nodes are the null device, as the CDI specification says too.
NODE_MAJOR, NODE_MINOR = 1, 3

MODULE_DEPENDENCIES = {
    "nvidia": (),
    "nvidia_uvm": ("nvidia",),
    "nvidia_modeset": ("nvidia",),
    "nvidia_drm": ("nvidia", "nvidia_modeset"),
    "nvidia_peermem": ("nvidia",),
}


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _empty(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for each in directory.iterdir():
        if each.is_dir() and not each.is_symlink():
            shutil.rmtree(each)
        else:
            each.unlink()


def pci_devices(state: State, root: Path) -> None:
    """Fill /sys/bus/pci/devices."""
    directory = root / "sys/bus/pci/devices"
    _empty(directory)
    common = state["board"]["gpu"]
    loaded = "nvidia" in state["modules"]
    for gpu in present_gpus(state):
        _pci_device(directory, {**common, **link_of(state, gpu["pci_bus_id"]), **gpu}, "nvidia" if loaded else None)
    for switch in state["board"]["nvswitches"]:
        _pci_device(directory, switch, "nvidia-nvswitch" if loaded else None)
    for other in state["board"]["others"]:
        _pci_device(directory, other, other.get("driver"))


def _pci_device(directory: Path, device: dict[str, Any], driver: str | None) -> None:
    folder = directory / device["pci_bus_id"]
    vendor, product = device["pci_id"].split(":")
    sub_vendor, sub_device = device["subsystem_id"].split(":")
    files = {
        "vendor": f"0x{vendor}",
        "device": f"0x{product}",
        "subsystem_vendor": f"0x{sub_vendor}",
        "subsystem_device": f"0x{sub_device}",
        "class": device["class"],
        "revision": "0xa1",
        "numa_node": str(device["numa_node"]),
        "enable": "1" if driver else "0",
        "current_link_speed": device.get("link_speed", "16.0 GT/s PCIe"),
        "current_link_width": str(device.get("link_width", 16)),
        "max_link_speed": device.get("max_link_speed", device.get("link_speed", "16.0 GT/s PCIe")),
        "max_link_width": str(device.get("max_link_width", device.get("link_width", 16))),
        "uevent": f"DRIVER={driver}\n" * bool(driver) + f"PCI_ID={device['pci_id'].upper()}\nPCI_SLOT_NAME={device['pci_bus_id']}",
    }
    for name, text in files.items():
        _write(folder / name, text + "\n")
    if "vpd" in device:
        _write(folder / "vpd", device["vpd"])
    if driver:
        # The target need not exist: tools read the name of the link's target only, and the real one lies outside the tmpfs.
        (folder / "driver").symlink_to(f"../../../../bus/pci/drivers/{driver}")


def sys_module(state: State, root: Path) -> None:
    """Write the NVIDIA modules and nouveau below /sys/module; other folders there are left alone."""
    directory = root / "sys/module"
    for each in directory.glob("n*"):
        if each.name == "nouveau" or each.name.startswith("nvidia"):
            shutil.rmtree(each)
    for name, module in state["modules"].items():
        folder = directory / name
        users = sum(1 for other in state["modules"] if name in MODULE_DEPENDENCIES.get(other, ()))
        _write(folder / "refcnt", f"{users}\n")
        _write(folder / "initstate", "live\n")
        _write(folder / "taint", "POE\n" if module.get("flavour") == "proprietary" else "OE\n")
        if module.get("version"):
            _write(folder / "version", module["version"] + "\n")
        (folder / "parameters").mkdir(exist_ok=True)


def _version_text(module: dict[str, Any]) -> str:
    kernel = "NVIDIA UNIX Open Kernel Module for x86_64" if module["flavour"] == "open" else "NVIDIA UNIX x86_64 Kernel Module"
    builder = "  Release Build  (rackready-lab@gpu-host-sim)" if module["flavour"] == "open" else ""
    return f"NVRM version: {kernel}  {module['version']}{builder}  Tue Dec  1 00:00:00 UTC 2026\nGCC version:  gcc version 14.2.0 (Debian 14.2.0-19)\n"


def _information(gpu: dict[str, Any], module: dict[str, Any]) -> str:
    fields = {
        "Model": gpu["product_name"],
        "IRQ": str(64 + gpu["minor"]),
        "GPU UUID": gpu["uuid"],
        "Video BIOS": gpu["vbios"].lower(),
        "Bus Type": "PCIe",
        "DMA Size": "52 bits",
        "DMA Mask": "0xfffffffffffff",
        "Bus Location": gpu["pci_bus_id"],
        "Device Minor": str(gpu["minor"]),
        "GPU Firmware": module["version"],
        "GPU Excluded": "No",
    }
    return "".join(f"{name + ':':<13}\t {text}\n" for name, text in fields.items())


def proc_driver(state: State, root: Path) -> None:
    """Fill /proc/driver/nvidia, nvidia-caps and nvidia-nvswitch; empty when the driver is not loaded."""
    directory = root / "proc/driver"
    _empty(directory)
    module = state["modules"].get("nvidia")
    if module is None:
        return
    _write(directory / "nvidia/version", _version_text(module))
    _write(directory / "nvidia/params", "ModifyDeviceFiles: 1\nDeviceFileMode: 438\n")
    minors = ["config 1", "monitor 2"]
    for name, minor in (("config", 1), ("monitor", 2)):
        _write(directory / f"nvidia/capabilities/mig/{name}", f"DeviceFileMinor: {minor}\nDeviceFileMode: 256\nDeviceFileModify: 1\n")
    for gpu in present_gpus(state):
        _write(directory / "nvidia/gpus" / gpu["pci_bus_id"] / "information", _information({**state["board"]["gpu"], **gpu}, module))
        for path, minor in _capabilities(state, gpu):
            minors.append(f"{path} {minor}")
            place = path.replace("/gi", "/mig/gi", 1)
            _write(directory / "nvidia/capabilities" / place, f"DeviceFileMinor: {minor}\nDeviceFileMode: 292\nDeviceFileModify: 1\n")
    _write(directory / "nvidia-caps/mig-minors", "".join(line + "\n" for line in minors))
    for number, switch in enumerate(state["board"]["nvswitches"]):
        _write(directory / "nvidia-nvswitch/devices" / switch["pci_bus_id"], f"Device Minor: {number}\nPCI Bus Id: {switch['pci_bus_id']}\n")


def _capabilities(state: State, gpu: dict[str, Any]) -> list[tuple[str, int]]:
    """Capability files of the instances of a GPU: (path such as ``gpu0/gi7/ci0/access``, minor)."""
    minor = gpu["minor"]
    found = []
    for instance in mig_of(state, gpu["pci_bus_id"])["instances"]:
        found.append((f"gpu{minor}/gi{instance['gi']}/access", mig.capability_minor(minor, instance["gi"])))
        for ci in instance["cis"]:
            found.append((f"gpu{minor}/gi{instance['gi']}/ci{ci['ci']}/access", mig.capability_minor(minor, instance["gi"], ci["ci"])))
    return found


def node_names(state: State) -> list[str]:
    """Device nodes below /dev that the loaded modules have."""
    modules = state["modules"]
    names: list[str] = []
    if "nvidia" in modules:
        # A GPU that fell off the bus keeps its node, as a real one does.
        names += ["nvidiactl", *(f"nvidia{gpu['minor']}" for gpu in state["board"]["gpus"])]
        names += ["nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"]
        for gpu in present_gpus(state):
            names += [f"nvidia-caps/nvidia-cap{minor}" for _path, minor in _capabilities(state, gpu)]
        switches = len(state["board"]["nvswitches"])
        names += [f"nvidia-nvswitch{number}" for number in range(switches)] + ["nvidia-nvswitchctl"] * bool(switches)
    if "nvidia_uvm" in modules:
        names += ["nvidia-uvm", "nvidia-uvm-tools"]
    if "nvidia_modeset" in modules:
        names += ["nvidia-modeset"]
    return names


def device_nodes(state: State, root: Path) -> None:
    """Make the device nodes that should be there and remove the others."""
    directory = root / "dev"
    wanted = set(node_names(state))
    present = {str(path.relative_to(directory)) for path in [*directory.glob("nvidia*"), *directory.glob("nvidia-caps/*")] if not path.is_dir()}
    for name in present - wanted:
        (directory / name).unlink()
    for name in sorted(wanted - present):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(NODE_MAJOR, NODE_MINOR))
        path.chmod(0o666)


def kernel_log(root: Path) -> None:
    """Make /dev/kmsg a file with the kernel's first words, where the engine gave the container none; readers see its lines as records."""
    path = root / "dev/kmsg"
    if not path.exists():
        _write(path, "6,0,0,-;Linux: this is the simulated GPU host of the rackready lab\n")


def say(root: Path, text: str) -> None:
    """Add a line of the driver to the kernel's log, as an error."""
    with (root / "dev/kmsg").open("a", encoding="utf-8") as log:
        log.write(f"3,1,{time.monotonic_ns() // 1000},-;{text}\n")


def holders(root: Path = Path("/")) -> list[dict[str, Any]]:
    """Processes that have an NVIDIA device node open, found by path: ``{pid, command: [..], nodes: [names]}``."""
    found = []
    for process in sorted((root / "proc").glob("[0-9]*"), key=lambda path: int(path.name)):
        try:
            links = [str(link.readlink()) for link in (process / "fd").iterdir()]
            nodes = sorted({link.removeprefix("/dev/") for link in links if link.startswith("/dev/nvidia")})
            if nodes:
                command = (process / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
                found.append({"pid": int(process.name), "command": command, "nodes": nodes})
        except OSError:
            continue  # The process ended while it was looked at, or is not ours to see.
    return found


SERVICES = ("nvidia-persistenced", "nv-fabricmanager")


def is_service(holder: dict[str, Any]) -> bool:
    """Whether a holder is one of NVIDIA's own daemons, which do not count as clients of a GPU."""
    return any(word.rsplit("/", 1)[-1] in SERVICES for word in holder["command"][:2])


def render(state: State, root: Path = Path("/")) -> None:
    """Bring all pictures up to date."""
    pci_devices(state, root)
    sys_module(state, root)
    proc_driver(state, root)
    device_nodes(state, root)
