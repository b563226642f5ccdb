# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Groups that contradict each other about a host. How the inventory is asked is tested with the actions (test_gpu_plan, test_stack_pin)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from ansible.errors import AnsibleError
from ansible_collections.rackready.gpu.plugins.plugin_utils import group_variables
from ansible_collections.rackready.gpu.plugins.plugin_utils.group_variables import Group, contradictions

A, B = "2026.11-longterm", "2026.11-newest"


def group(name: str, value: Any, *above: str, depth: int = 1, priority: int = 1, variable: str = "gpu_stack_release") -> Group:
    return Group(name, depth, priority, frozenset({"all", *above}), {variable: value})


def sentences(*groups: Group, gets: Any = B, variable: str = "gpu_stack_release") -> list[str]:
    return contradictions("h100-01", groups, {variable: gets})


def test_two_unrelated_groups_are_a_refusal_that_names_variable_groups_values_and_remedies() -> None:
    assert sentences(group("canary", A), group("h100_nodes", B)) == [
        'gpu_stack_release is "2026.11-newest" in the group h100_nodes and "2026.11-longterm" in the group canary, and none of these groups is part of '
        "another, so nobody has decided which counts (Ansible would silently take that of h100_nodes): set it in host_vars/h100-01.yml, take the host out of "
        "one of the groups, or give the group that shall win the higher ansible_group_priority in the inventory file."
    ]


@pytest.mark.parametrize(
    ("groups", "gets"),
    [
        ((group("canary", A), group("h100_nodes", A)), A),
        ((group("site", A), group("h100_nodes", B, "site", depth=2)), B),
        ((group("all", A, depth=0), group("h100_nodes", B)), B),
        ((group("canary", A, priority=10), group("h100_nodes", B)), A),
        ((group("site", A), group("canary", B, "site", depth=2), group("h100_nodes", B, depth=1)), B),
        ((group("canary", A), group("h100_nodes", B)), "2026.11-legacy"),
    ],
    ids=["the same value", "a child and its parent", "a group and all", "an explicit priority", "two that agree against a parent", "something above groups"],
)
def test_no_contradiction(groups: tuple[Group, ...], gets: str) -> None:
    assert sentences(*groups, gets=gets) == []


def test_unrelated_groups_at_different_depths_contradict_each_other_too() -> None:
    [sentence] = sentences(group("canary", A), group("h100_nodes", B, "site", depth=2))
    assert "give h100_nodes the higher ansible_group_priority in the inventory file if its value is the right one" in sentence


def test_a_priority_that_ansible_does_not_follow_decides_nothing() -> None:
    assert len(sentences(group("canary", A, priority=10), group("h100_nodes", B, "site", depth=2))) == 1
    assert sentences(group("canary", A), group("h100_nodes", B, "site", depth=2, priority=10)) == []


def test_three_groups_are_all_named() -> None:
    [sentence] = sentences(group("canary", A), group("rack_7", "2026.11-legacy"), group("h100_nodes", B))
    assert '"2026.11-newest" in the group h100_nodes and "2026.11-longterm" in the group canary and "2026.11-legacy" in the group rack_7' in sentence


def test_a_parent_that_wins_by_its_file_is_named_with_where_to_write_it() -> None:
    assert sentences(group("all", B, depth=0), group("h100_nodes", A)) == [
        'gpu_stack_release is "2026.11-longterm" in the group h100_nodes and "2026.11-newest" in the group all above it, and Ansible would silently take the '
        "latter, because a file in group_vars/ counts more than the inventory file: set it in group_vars/h100_nodes.yml instead."
    ]


def test_each_variable_is_a_sentence() -> None:
    first = Group("a100_nodes", 1, 1, frozenset({"all"}), {"gpu_expected": {"model": "a100-sxm4-80gb", "count": 8}, "mig_layout": "off"})
    second = Group("h100_nodes", 1, 1, frozenset({"all"}), {"gpu_expected": {"model": "h100-sxm5-80gb", "count": 8}, "mig_layout": []})
    found = contradictions("h100-01", [first, second], dict(second.values))
    assert [sentence.split()[0] for sentence in found] == ["gpu_expected", "mig_layout"]
    assert '{"model": "a100-sxm4-80gb", "count": 8} in the group a100_nodes' in found[0]


@pytest.mark.parametrize("variable", ["docker_daemon_options", "gpu_tenants", "rackready_mirror", "smoke_test_env"])
def test_what_sites_put_secrets_into_is_not_repeated(variable: str) -> None:
    groups = [group(name, {"key": f"hunter{number}"}, variable=variable) for number, name in enumerate(("canary", "h100_nodes"))]
    [sentence] = sentences(*groups, gets={"key": "hunter1"}, variable=variable)
    assert sentence.startswith(f"{variable} is one value in the group h100_nodes and one value in the group canary, and")


def test_where_the_inventory_cannot_be_seen_it_is_an_error_and_not_no_contradiction() -> None:
    with pytest.raises(AnsibleError, match="h100-01: this ansible-core does not let plugins see the groups of the inventory"):
        group_variables.check("h100-01", SimpleNamespace(), {}, SimpleNamespace())
