# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which hosts are tested together, and why they cannot be. Pure: everything is said before anything is started on any of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_cluster import ranks_of

LEAST = 2


class Host(NamedTuple):
    """A chosen host. ``facts``, ``plan``, ``network``: gpu_host, gpu_plan and gpu_cluster_network, None where this run has none of them."""

    name: str
    facts: Mapping[str, Any] | None
    plan: Mapping[str, Any] | None
    network: Mapping[str, Any] | None


class Choice(NamedTuple):
    """``general``: sentences about the run; ``own``: host to sentences about it; without any: ``plans``, host to the options of gpu_cluster_test."""

    general: list[str]
    own: dict[str, list[str]]
    plans: dict[str, dict[str, Any]]

    def sentences(self, host: str) -> list[str]:
        """Why this host is not tested: for one with nothing against itself who else it was. Empty where it is."""
        mine = [*self.general, *self.own.get(host, [])]
        if mine or not self.own:
            return mine
        other, words = next(iter(self.own.items()))
        more = f", and {len(self.own) - 1} more" if len(self.own) > 1 else ""
        return [f"nothing was started, because {other} cannot take part{more}: {words[0]}"]


def choose(hosts: Sequence[Host], forks: int, batch: Sequence[str], port: int) -> Choice:
    """Whether these hosts can be tested together, and how.

    ``forks``: on how many hosts Ansible works at once; ``batch``: the hosts of the play that run together.
    """
    names = [host.name for host in hosts]
    general = []
    if len(hosts) < LEAST:
        general.append(f"{len(hosts)} host was chosen, and an exchange between hosts needs two or more: choose them with -l.")
    if forks < len(hosts):
        general.append(f"{len(hosts)} hosts have to run at once, and Ansible works on {forks} at a time: add -f {len(hosts)}.")
    if set(batch) != set(names):
        general.append(f"{len(hosts)} hosts have to run at once, and this play takes {len(batch)} of them together: run it without serial.")
    own = {host.name: sentences for host in hosts if (sentences := _against(host))}
    if not own:
        own = _differing(hosts)
    if general or own:
        return Choice(general, own, {})
    return Choice([], {}, {host.name: _plan(node, hosts, port) for node, host in enumerate(hosts)})


def _against(host: Host) -> list[str]:
    """What speaks against a host by itself; the first cause alone where others follow from it."""
    name, plan = host.name, host.plan
    if host.facts is None or plan is None or host.network is None:
        return [f"{name} could not be reached or read in this run: mend it, or leave it out (-l 'all:!{name}')."]
    if plan["refusals"]:
        return [f"{name}: {sentence}" for sentence in plan["refusals"]]
    if not plan["converged"]:
        return [f"{name} is not as planned: run site.yml -l {name} first."]
    test = plan["areas"]["smoke_test"]
    sentences = []
    if not test["converged"]:
        sentences.append(f"{name} has no stamp of a successful smoke test of what is planned: run playbooks/verify.yml -l {name} first.")
    if test["desired"]["stamp"]["mig"] != "off":
        sentences.append(f'{name} has GPUs that are divided by MIG, and their parts cannot talk to other hosts: leave it out, or set mig_layout: "off".')
    if host.network["problem"]:
        sentences.append(f"{name}: {host.network['problem']}.")
    return sentences


def _differing(hosts: Sequence[Host]) -> dict[str, list[str]]:
    """Hosts that cannot work together with the first one, or that claim the address of another one."""
    found: dict[str, list[str]] = {}
    addresses: dict[str, str] = {}
    for host in hosts:
        sentences = []
        for what, remedy, of in _SAME:
            first, mine = of(hosts[0]), of(host)
            if mine != first:
                sentences.append(f"{host.name} has the {what} {mine}, {hosts[0].name} has {first}: {remedy}, or test them apart (-l).")
        address = str((host.network or {})["address"])
        if address in addresses:
            sentences.append(f"{host.name} has the address {address}, which {addresses[address]} has too: set smoke_test_cluster_interface.")
        addresses.setdefault(address, host.name)
        if sentences:
            found[host.name] = sentences
    return found


def _desired(host: Host) -> Mapping[str, Any]:
    desired: Mapping[str, Any] = (host.plan or {})["areas"]["smoke_test"]["desired"]
    return desired


# What has to be the same, as versions of torch and NCCL come with the image, and an image has another build for each architecture.
_SAME: tuple[tuple[str, str, Callable[[Host], str]], ...] = (
    ("image", "give both the same gpu_stack_release and pytorch_image_ref", lambda host: str(_desired(host)["stamp"]["image_digest"])),
    ("backend", "set smoke_test_backend alike", lambda host: str(_desired(host)["backend"])),
    ("architecture", "their builds of torch and NCCL differ: leave it out", lambda host: str((host.facts or {})["architecture"])),
)


def _plan(node: int, hosts: Sequence[Host], port: int) -> dict[str, Any]:
    """The options of gpu_cluster_test for one host, and ``degraded``, which only the verdict needs."""
    host = hosts[node]
    desired, network, first = _desired(host), host.network or {}, hosts[0].network or {}
    return {
        "image": desired["image"],
        "backend": desired["backend"],
        "gpus": desired["gpus"],
        "hosts": [
            {
                "name": other.name,
                "address": (other.network or {})["address"],
                "ranks": ranks_of(_desired(other)["backend"], len(_desired(other)["gpus"])),
            }
            for other in hosts
        ],
        "node": node,
        "interface": network["interface"],
        "infiniband": network["infiniband"],
        "devices": network["devices"],
        "port": port,
        "token": first["token"],
        "ulimits": desired["ulimits"],
        "env": desired["env"],
        "not_applicable": desired["not_applicable"],
        "driver": desired["stamp"]["driver"],
        "expected": desired["expected"],
        "degraded": desired["degraded"],
    }
