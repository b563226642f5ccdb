# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""At which address other hosts reach this one: a named interface, the one of the route, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import cluster_network
from ansible_collections.rackready.gpu.plugins.module_utils.cluster_network import Network, look

ADDRESSES = {"lo": "127.0.0.1", "eth0": "192.0.2.7", "ib0": "10.0.0.7"}


def network(tmp_path: Path, source: Any = "192.0.2.7") -> Network:
    def from_where(host: str) -> str:
        if isinstance(source, OSError):
            raise source
        return str(source)

    return Network(lambda: ADDRESSES, from_where, tmp_path)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def test_the_interface_of_the_route_to_the_first_host(tmp_path: Path) -> None:
    write(tmp_path / "sys/class/net/eth0/mtu", "9000\n")
    write(tmp_path / "sys/class/net/eth0/speed", "100000\n")
    found = look(None, "192.0.2.1", network(tmp_path))
    assert (found["interface"], found["address"], found["mtu"], found["speed_mbit"], found["problem"]) == ("eth0", "192.0.2.7", 9000, 100000, None)


def test_a_named_interface_wins_over_the_route(tmp_path: Path) -> None:
    found = look("ib0", "192.0.2.1", network(tmp_path, OSError(101, "Network is unreachable")))
    assert (found["interface"], found["address"], found["problem"], found["speed_mbit"]) == ("ib0", "10.0.0.7", None, None)


def test_an_interface_that_is_not_there_is_answered_with_those_that_are(tmp_path: Path) -> None:
    found = look("ib1", "192.0.2.1", network(tmp_path))
    assert found["address"] is None
    assert found["problem"] == (
        "its interface ib1 is not there or has no IPv4 address; interfaces with one: eth0, ib0: set smoke_test_cluster_interface to one of them"
    )


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (OSError(101, "Network is unreachable"), "it has no way to h100-01, the first host as Ansible reaches it (Network is unreachable)"),
        ("127.0.0.1", "begins at 127.0.0.1, where no other host reaches it"),
        ("127.0.1.1", "begins at 127.0.1.1, where no other host reaches it"),
        ("198.51.100.9", "begins at 198.51.100.9, where no other host reaches it"),
    ],
)
def test_a_way_that_leads_nowhere_is_a_problem_with_a_remedy(tmp_path: Path, source: Any, words: str) -> None:
    problem = look(None, "h100-01", network(tmp_path, source))["problem"]
    assert words in problem
    assert problem.endswith("set smoke_test_cluster_interface")


def test_speed_is_unknown_where_the_kernel_says_minus_one(tmp_path: Path) -> None:
    write(tmp_path / "sys/class/net/eth0/speed", "-1\n")
    assert look(None, "h100-01", network(tmp_path))["speed_mbit"] is None


def test_adapters_for_rdma_by_active_port_and_by_the_nodes_that_a_container_needs(tmp_path: Path) -> None:
    write(tmp_path / "sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n")
    write(tmp_path / "sys/class/infiniband/mlx5_1/ports/1/state", "1: DOWN\n")
    write(tmp_path / "sys/class/infiniband/mlx5_2/ports/2/state", "4: ACTIVE\n")
    for name in ("uverbs0", "uverbs2", "rdma_cm", "umad0", "issm0"):
        write(tmp_path / "dev/infiniband" / name, "")
    found = look("ib0", "h100-01", network(tmp_path))
    assert found["infiniband"] == ["mlx5_0:1", "mlx5_2:2"]
    assert found["devices"] == ["/dev/infiniband/rdma_cm", "/dev/infiniband/uverbs0", "/dev/infiniband/uverbs2"]
    nothing = look("ib0", "h100-01", network(tmp_path / "none"))
    assert (nothing["infiniband"], nothing["devices"]) == ([], [])


def test_this_machine_s_own_kernel_answers() -> None:
    assert cluster_network.interface_addresses()["lo"] == "127.0.0.1"
    assert cluster_network.source_address("127.0.0.1") == "127.0.0.1"
    with pytest.raises(OSError):
        cluster_network.source_address("no-such-host.invalid")
