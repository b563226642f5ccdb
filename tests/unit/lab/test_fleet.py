# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from lab import distribution, fleet
from lab.errors import LabError
from lab.paths import Layout

LAYOUT = Layout.of_this_file()
KNOWN = distribution.load(LAYOUT.code / "distributions.yml")


def entry(address: str = "172.30.86.20", distribution: str = "debian-13") -> str:
    return f"{{address: {address}, distribution: {distribution}, board: {{board: hgx-h100-8, gpus: 8}}}}"


@pytest.mark.parametrize("path", sorted(LAYOUT.fleets.glob("*.yml")), ids=lambda path: path.stem)
def test_every_fleet_in_the_tree_can_be_built(path: Path) -> None:
    hosts = fleet.load(LAYOUT.fleets, path.stem, KNOWN)
    assert hosts
    for host in hosts:
        assert (LAYOUT.gpu_host / "boards" / f"{host.board['board']}.json").is_file(), f"{path.stem}: {host.name} has a board that nobody described"


def test_the_inventory_of_the_lab_reaches_the_default_fleet() -> None:
    listed = subprocess.run(["ansible-inventory", "-i", "inventory/lab", "--list"], cwd=LAYOUT.checkout, capture_output=True, check=True)
    addresses = {name: variables["ansible_host"] for name, variables in json.loads(listed.stdout)["_meta"]["hostvars"].items()}
    for host in fleet.load(LAYOUT.fleets, fleet.DEFAULT, KNOWN):
        assert addresses[host.name] == host.address


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"hosts: {{a: {entry(address='10.0.0.1')}}}", "a has address 10.0.0.1, which is not in the lab's network"),
        (f"hosts: {{a: {entry(address='nowhere')}}}", "a has address nowhere, which is not in the lab's network"),
        (f"hosts: {{a: {entry(address='172.30.86.2')}}}", "a has address 172.30.86.2, which the services already has"),
        (f"hosts: {{a: {entry(address='172.30.86.1')}}}", "a has address 172.30.86.1, which the gateway already has"),
        (f"hosts: {{a: {entry()}, b: {entry()}}}", "b has address 172.30.86.20, which a already has"),
        (f"hosts: {{a: {entry(distribution='plan-9')}}}", "a has distribution plan-9, the lab knows debian-12, debian-13, rocky-9, ubuntu-24.04"),
        ("hosts: {a: {address: 172.30.86.20}}", "each of its hosts needs address, distribution and board"),
        ("nothing", "is not a fleet"),
        ("hosts: [", "is not a fleet"),
    ],
)
def test_a_fleet_that_cannot_be_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(LabError, match=words):
        fleet.parse(text, KNOWN, "fleet.yml")


def test_an_unknown_fleet_names_the_known_ones() -> None:
    with pytest.raises(LabError, match=r"there is no fleet moon .*h100"):
        fleet.load(LAYOUT.fleets, "moon", KNOWN)
