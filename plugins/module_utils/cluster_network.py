# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where this host is in the network of a cluster: the interface and address at which the other hosts reach it, and its adapters for RDMA. Reads only."""

from __future__ import annotations

import fcntl
import socket
import struct
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple

from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_text

VARIABLE = "smoke_test_cluster_interface"
# linux/sockios.h: the first IPv4 address of an interface.
SIOCGIFADDR = 0x8915
ANY_PORT = 9


class Network(NamedTuple):
    """What the kernel is asked; tests give their own. ``addresses``: interface to IPv4 address. ``source``: from which address a host is reached."""

    addresses: Callable[[], Mapping[str, str]]
    source: Callable[[str], str]
    root: Path = Path("/")


def real_network() -> Network:
    return Network(interface_addresses, source_address)


def interface_addresses() -> dict[str, str]:
    """The first IPv4 address of each interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _number, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(asked.fileno(), SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has none
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def source_address(host: str) -> str:
    """The own address that the route to a host begins at; nothing is sent. OSError where its name does not resolve or there is no route."""
    family, kind, protocol, _name, address = socket.getaddrinfo(host, ANY_PORT, socket.AF_INET, socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as asked:
        asked.connect(address)
        return str(asked.getsockname()[0])


def look(interface: str | None, toward: str, network: Network) -> dict[str, Any]:
    """The module's findings: ``interface``, ``address``, ``mtu``, ``speed_mbit``, ``infiniband`` (active ports), ``devices`` (paths), ``problem`` or None.

    ``interface``: the one that the site names, else that of the route to ``toward``, the first host as Ansible reaches it.
    """
    addresses = dict(network.addresses())
    problem = None
    if interface is not None:
        address = addresses.get(interface)
        if address is None:
            named = ", ".join(sorted(name for name in addresses if name != "lo")) or "none"
            problem = f"its interface {interface} is not there or has no IPv4 address; interfaces with one: {named}: set {VARIABLE} to one of them"
    else:
        address = None
        try:
            address = network.source(toward)
        except OSError as error:
            problem = f"it has no way to {toward}, the first host as Ansible reaches it ({error.strerror or error}): set {VARIABLE}"
        interface = next((name for name, own in addresses.items() if own == address), None)
        if address is not None and (interface is None or address.startswith("127.")):
            problem = f"its way to {toward}, the first host as Ansible reaches it, begins at {address}, where no other host reaches it: set {VARIABLE}"
    folder = network.root / "sys/class/net" / (interface or "none")
    return {
        "interface": interface,
        "address": address,
        "mtu": _number(folder / "mtu"),
        "speed_mbit": _number(folder / "speed"),
        "infiniband": active_ports(network.root),
        "devices": rdma_devices(network.root),
        "problem": problem,
    }


def _number(path: Path) -> int | None:
    text = (read_text(path, 64) or "").strip()
    return int(text) if text.isdigit() else None


def active_ports(root: Path = Path("/")) -> list[str]:
    """``mlx5_0:1`` of each port of an adapter for RDMA that says that it is active, InfiniBand and RoCE alike."""
    ports = sorted(root.glob("sys/class/infiniband/*/ports/*"))
    return [f"{port.parent.parent.name}:{port.name}" for port in ports if "ACTIVE" in (read_text(port / "state", 64) or "")]


def rdma_devices(root: Path = Path("/")) -> list[str]:
    """Device nodes that a container needs for RDMA; those for managing a subnet (umad, issm) stay out."""
    names = sorted(path.name for path in root.glob("dev/infiniband/*"))
    return [f"/dev/infiniband/{name}" for name in names if name.startswith("uverbs") or name == "rdma_cm"]
