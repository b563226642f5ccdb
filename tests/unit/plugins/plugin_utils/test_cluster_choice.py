# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts are tested together: each thing that speaks against it is one sentence, before anything is started."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils.cluster_choice import Choice, Host, choose

DIGEST = "sha256:" + "cd" * 32
NAMES = ["h100-01", "h100-02", "h100-03"]


def host(name: str, gpus: int = 8, backend: str = "cuda") -> Host:
    number = name[-1]
    desired = {
        "image": f"registry.example/pytorch@{DIGEST}",
        "backend": backend,
        "gpus": [{"pci_bus_id": f"0000:{index:02x}:00.0", "model": "h100-sxm5-80gb"} for index in range(gpus)],
        "stamp": {"image_digest": DIGEST, "mig": "off", "driver": "580.178.04"},
        "ulimits": ["memlock=-1"],
        "env": {"NCCL_NVLS_ENABLE": "0"},
        "not_applicable": {"imex": "no rack"},
        "expected": {"model": "h100-sxm5-80gb", "count": gpus},
        "degraded": "accept",
    }
    plan = {"refusals": [], "converged": True, "areas": {"smoke_test": {"converged": True, "desired": desired}}}
    network = {"interface": "eth0", "address": f"10.0.0.{number}", "infiniband": ["mlx5_0:1"], "devices": ["/dev/infiniband/uverbs0"], "problem": None}
    return Host(name, {"architecture": "x86_64"}, plan, {**network, "token": f"token-{number}"})


def fleet(**changed: Callable[[dict[str, Any]], Any]) -> list[Host]:
    """Three sound hosts; what is changed of the second one: ``plan``, ``test`` (its area), ``desired``, ``network`` or ``facts``."""
    hosts = [host(name) for name in NAMES]
    second = hosts[1]._replace(**{key: copy.deepcopy(getattr(hosts[1], key)) for key in ("facts", "plan", "network")})
    parts: dict[str, Any] = {"plan": second.plan, "network": second.network, "facts": second.facts}
    parts["test"] = parts["plan"]["areas"]["smoke_test"]
    parts["desired"] = parts["test"]["desired"]
    for part, change in changed.items():
        change(parts[part])
    return [hosts[0], second, hosts[2]]


def chosen(hosts: list[Host], forks: int = 50, batch: list[str] | None = None) -> Choice:
    return choose(hosts, forks, [one.name for one in hosts] if batch is None else batch, 29500)


def test_sound_hosts_get_their_parts_in_the_order_of_the_inventory() -> None:
    choice = chosen(fleet())
    assert (choice.general, choice.own) == ([], {})
    assert [choice.plans[name]["node"] for name in NAMES] == [0, 1, 2]
    assert choice.plans["h100-02"] == {
        "image": f"registry.example/pytorch@{DIGEST}",
        "backend": "cuda",
        "gpus": [{"pci_bus_id": f"0000:{index:02x}:00.0", "model": "h100-sxm5-80gb"} for index in range(8)],
        "hosts": [{"name": name, "address": f"10.0.0.{name[-1]}", "ranks": 8} for name in NAMES],
        "node": 1,
        "interface": "eth0",
        "infiniband": ["mlx5_0:1"],
        "devices": ["/dev/infiniband/uverbs0"],
        "port": 29500,
        "token": "token-1",
        "ulimits": ["memlock=-1"],
        "env": {"NCCL_NVLS_ENABLE": "0"},
        "not_applicable": {"imex": "no rack"},
        "driver": "580.178.04",
        "expected": {"model": "h100-sxm5-80gb", "count": 8},
        "degraded": "accept",
    }
    assert choice.sentences("h100-02") == []


def test_hosts_may_have_different_numbers_of_gpus_and_simulated_ones_get_two_processes_at_most() -> None:
    assert [entry["ranks"] for entry in chosen([host("h100-01", 8), host("h200-02", 1)]).plans["h100-01"]["hosts"]] == [8, 1]
    simulated = chosen([host("h100-01", 8, "cpu"), host("h200-02", 1, "cpu")])
    assert [entry["ranks"] for entry in simulated.plans["h100-01"]["hosts"]] == [2, 1]


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_hosts_are_refused(count: int) -> None:
    choice = chosen([host("h100-01")][:count])
    assert choice.general == [f"{count} host was chosen, and an exchange between hosts needs two or more: choose them with -l."]
    assert choice.plans == {}


@pytest.mark.parametrize(("forks", "refused"), [(1, True), (2, True), (3, False), (4, False)])
def test_fewer_forks_than_hosts_are_refused_with_the_option_that_mends_it(forks: int, refused: bool) -> None:
    choice = chosen(fleet(), forks=forks)
    said = [f"3 hosts have to run at once, and Ansible works on {forks} at a time: add -f 3."]
    assert choice.general == (said if refused else [])
    assert bool(choice.plans) != refused


def test_a_play_that_takes_them_in_batches_is_refused() -> None:
    choice = chosen(fleet(), batch=NAMES[:2])
    assert choice.general == ["3 hosts have to run at once, and this play takes 2 of them together: run it without serial."]
    assert choice.plans == {}


AGAINST: dict[str, tuple[dict[str, Callable[[dict[str, Any]], Any]], str]] = {
    "refusals of its plan": ({"plan": lambda plan: plan.update(refusals=["There is no GPU."])}, "h100-02: There is no GPU."),
    "differs": ({"plan": lambda plan: plan.update(converged=False)}, "h100-02 is not as planned: run site.yml -l h100-02 first."),
    "no stamp": (
        {"test": lambda test: test.update(converged=False)},
        "h100-02 has no stamp of a successful smoke test of what is planned: run playbooks/verify.yml -l h100-02 first.",
    ),
    "mig": (
        {"desired": lambda desired: desired["stamp"].update(mig={"0000:00:00.0": ["1g.10gb"]})},
        'h100-02 has GPUs that are divided by MIG, and their parts cannot talk to other hosts: leave it out, or set mig_layout: "off".',
    ),
    "no address": ({"network": lambda network: network.update(problem="it has no way to 10.0.0.1")}, "h100-02: it has no way to 10.0.0.1."),
    "another image": (
        {"desired": lambda desired: desired["stamp"].update(image_digest="sha256:ee")},
        f"h100-02 has the image sha256:ee, h100-01 has {DIGEST}: give both the same gpu_stack_release and pytorch_image_ref, or test them apart (-l).",
    ),
    "another backend": (
        {"desired": lambda desired: desired.update(backend="cpu")},
        "h100-02 has the backend cpu, h100-01 has cuda: set smoke_test_backend alike, or test them apart (-l).",
    ),
    "another architecture": (
        {"facts": lambda facts: facts.update(architecture="aarch64")},
        "h100-02 has the architecture aarch64, h100-01 has x86_64: their builds of torch and NCCL differ: leave it out, or test them apart (-l).",
    ),
    "the same address": (
        {"network": lambda network: network.update(address="10.0.0.1")},
        "h100-02 has the address 10.0.0.1, which h100-01 has too: set smoke_test_cluster_interface.",
    ),
}


@pytest.mark.parametrize("name", AGAINST)
def test_a_host_that_cannot_take_part_is_named_with_its_remedy_and_nothing_is_planned(name: str) -> None:
    change, sentence = AGAINST[name]
    choice = chosen(fleet(**change))
    assert choice.own == {"h100-02": [sentence]}
    assert (choice.general, choice.plans) == ([], {})
    assert choice.sentences("h100-02") == [sentence]
    assert choice.sentences("h100-01") == [f"nothing was started, because h100-02 cannot take part: {sentence}"]


@pytest.mark.parametrize("lost", ["facts", "plan", "network"])
def test_a_host_that_fell_out_of_the_run_is_named(lost: str) -> None:
    hosts = fleet()
    without: dict[str, Any] = {lost: None}
    hosts[1] = hosts[1]._replace(**without)
    assert chosen(hosts).sentences("h100-02") == ["h100-02 could not be reached or read in this run: mend it, or leave it out (-l 'all:!h100-02')."]


def test_all_that_speaks_against_a_host_is_said_at_once_and_of_several_hosts_their_number() -> None:
    hosts = fleet(test=lambda test: test.update(converged=False), network=lambda network: network.update(problem="no way"))
    hosts[2] = hosts[2]._replace(network=None)
    choice = chosen(hosts)
    assert len(choice.own["h100-02"]) == 2
    assert ", and 1 more: h100-02 has no stamp" in choice.sentences("h100-01")[0]


def test_what_is_wrong_with_the_run_is_said_to_every_host() -> None:
    choice = chosen(fleet(test=lambda test: test.update(converged=False)), forks=2)
    assert [len(choice.sentences(name)) for name in NAMES] == [1, 2, 1]
