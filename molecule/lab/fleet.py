# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""A fleet: which hosts the lab has. Data, from molecule/fleets/NAME.yml."""

from __future__ import annotations

import ipaddress
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from .errors import LabError
from .names import SERVICES_ADDRESS, SUBNET

DEFAULT = "h100"


@dataclass(frozen=True)
class Host:
    name: str  # container name, hostname and inventory name
    address: str
    distribution: str
    board: dict[str, Any]  # becomes /etc/gpu-host-sim/board.json
    os_release: dict[str, str] = field(default_factory=dict)  # if given, becomes /etc/os-release: the host says that it is another distribution


def parse(text: str, distributions: Collection[str], source: str) -> list[Host]:
    """The hosts of a fleet file; a LabError that names the host when an entry cannot be."""
    try:
        entries: dict[str, dict[str, Any]] = yaml.safe_load(text)["hosts"]
        hosts = [
            Host(name, str(entry["address"]), str(entry["distribution"]), dict(entry["board"]), dict(entry.get("os_release", {})))
            for name, entry in entries.items()
        ]
    except (KeyError, TypeError, AttributeError, yaml.YAMLError) as error:
        raise LabError(f"{source} is not a fleet ({type(error).__name__}: {error}); each of its hosts needs address, distribution and board") from error
    network = ipaddress.ip_network(SUBNET)
    taken = {SERVICES_ADDRESS: "the services", str(next(network.hosts())): "the gateway"}
    for host in hosts:
        if host.distribution not in distributions:
            raise LabError(f"{source}: {host.name} has distribution {host.distribution}, the lab knows {', '.join(sorted(distributions))}")
        try:
            inside = ipaddress.ip_address(host.address) in network
        except ValueError:
            inside = False
        if not inside:
            raise LabError(f"{source}: {host.name} has address {host.address}, which is not in the lab's network {SUBNET}")
        if host.address in taken:
            raise LabError(f"{source}: {host.name} has address {host.address}, which {taken[host.address]} already has")
        taken[host.address] = host.name
    return hosts


def load(folder: Path, name: str, distributions: Collection[str]) -> list[Host]:
    path = folder / f"{name}.yml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yml")))
        raise LabError(f"there is no fleet {name} in {folder}; there are: {known}")
    return parse(path.read_text(), distributions, str(path))
