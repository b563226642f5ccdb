# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two values for one host: groups of the inventory that contradict each other about one of our variables.

Ansible takes one of them and says nothing. Between groups that have nothing to do with each other, which one it takes hangs on how deep they lie
and then on their names: moving a group below another parent, or renaming it, would give a host another driver. So that is refused, at any depth.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible import constants
from ansible.errors import AnsibleError
from ansible.template import Templar
from ansible.vars.plugins import get_vars_from_inventory_sources, get_vars_from_path
from ansible_collections.rackready.gpu.plugins.plugin_utils import request, variables

_SHOWN_LENGTH = 120


@dataclass(frozen=True)
class Group:
    """A group of a host: where it stands, and which of our variables it sets."""

    name: str
    depth: int
    priority: int
    ancestors: frozenset[str]
    values: Mapping[str, Any]


def contradictions(host: str, groups: Sequence[Group], effective: Mapping[str, Any]) -> list[str]:
    """A sentence for each variable about which groups contradict each other. ``effective`` has what the host gets, without what a host variable,
    an extra variable or the play decides."""
    names = dict.fromkeys(name for group in groups for name in group.values)
    found = (_contradiction(host, name, [group for group in groups if name in group.values], effective[name]) for name in names if name in effective)
    return [sentence for sentence in found if sentence is not None]


def _contradiction(host: str, name: str, setters: Sequence[Group], effective: Any) -> str | None:
    winners = [group for group in setters if group.values[name] == effective]
    if not winners:  # something that stands above groups has decided
        return None
    above = {ancestor for group in setters for ancestor in group.ancestors}
    closest = [group for group in setters if group.name not in above]
    others = [group for group in closest if group.values[name] != effective]
    if not others:
        return None
    winner = max((group for group in winners if group in closest), key=lambda group: group.priority, default=None)
    if winner is None:
        return _overridden(name, winners[0], others[0])
    # An explicit priority is a decision, where Ansible follows it (it looks at depth first).
    if all(winner.priority > other.priority for other in others):
        return None
    values = " and ".join(f"{_value(name, group)} in the group {group.name}" for group in (winner, *others))
    same_depth = all(other.depth == winner.depth for other in others)
    priority = (
        "give the group that shall win the higher ansible_group_priority in the inventory file"
        if same_depth
        else f"give {winner.name} the higher ansible_group_priority in the inventory file if its value is the right one"
    )
    return (
        f"{name} is {values}, and none of these groups is part of another, so nobody has decided which counts (Ansible would silently take that of "
        f"{winner.name}): set it in host_vars/{host}.yml, take the host out of one of the groups, or {priority}."
    )


def _overridden(name: str, winner: Group, closest: Group) -> str:
    """A parent that wins: files in group_vars/ stand above what an inventory file says of a group, also where the file is about a parent."""
    return (
        f"{name} is {_value(name, closest)} in the group {closest.name} and {_value(name, winner)} in the group {winner.name} above it, and Ansible would "
        f"silently take the latter, because a file in group_vars/ counts more than the inventory file: set it in group_vars/{closest.name}.yml instead."
    )


def _value(name: str, group: Group) -> str:
    text = json.dumps(group.values[name], default=str)
    return text if name not in request.SECRET and len(text) <= _SHOWN_LENGTH else "one value"


def check(host: str, hostvars: Any, effective: Mapping[str, Any], task: Any) -> list[str]:
    """The contradictions among the groups of a host, out of the inventory that is loaded already. ``effective`` has the host's variables as they are
    written. Raises AnsibleError where the inventory cannot be seen."""
    try:
        # Ansible has no other way to say which group a value comes from.
        inventory, loader, extra = hostvars._inventory, hostvars._loader, hostvars._variable_manager.extra_vars
        sources, member = inventory._sources, inventory.get_host(host)
        paths = _beside_the_play(task, loader)
        above = {*extra, *task.get_play().get_vars(), *task.get_vars()}
    except AttributeError as error:
        raise AnsibleError(
            f"{host}: this ansible-core does not let plugins see the groups of the inventory ({error}), so groups that contradict each other would not "
            "be noticed: use a version of ansible-core that requirements.lock or requirements-newest.lock names."
        ) from error

    def set_by(entity: Any) -> dict[str, Any]:
        """Our variables of a group or host: from the inventory itself, from files beside it, from files beside the play."""
        found: dict[str, Any] = {**entity.get_vars(), **get_vars_from_inventory_sources(loader, sources, [entity], "task")}
        for path in paths:
            found.update(get_vars_from_path(loader, path, [entity], "task"))
        return {name: found[name] for name in request.known_names() if name in found}

    written = {group: values for group in member.get_groups() if (values := set_by(group))}
    doubtful = {
        name
        for name in request.known_names()
        if name in effective and name not in above and any(name in values and _differs(values[name], effective[name]) for values in written.values())
    }
    doubtful = doubtful and doubtful - set(set_by(member))
    if not doubtful:
        return []
    template = Templar(loader=loader, variables=effective).template
    groups = [
        Group(
            str(group.name),
            int(group.depth),
            int(group.priority),
            frozenset(str(ancestor.name) for ancestor in group.get_ancestors()),
            {name: _templated(value, template) for name, value in values.items() if name in doubtful},
        )
        for group, values in written.items()
    ]
    return contradictions(host, groups, {name: _templated(effective[name], template) for name in doubtful})


def _beside_the_play(task: Any, loader: Any) -> list[str]:
    """The directories in which Ansible looks for group_vars/, other than those of the inventory."""
    paths: list[str] = task.get_search_path()
    if constants.PLAYBOOK_VARS_ROOT == "top":
        return [loader.get_basedir()]
    return paths if constants.PLAYBOOK_VARS_ROOT == "all" else paths[:1]


def _differs(raw: Any, other: Any) -> bool:
    """Whether two values differ as they are written. Ansible decrypts to compare; what it has no password for differs."""
    try:
        return bool(raw != other)
    except AnsibleError:
        return raw is not other


def _templated(raw: Any, template: Callable[[Any], Any]) -> Any:
    """The value, to compare it; where it cannot be had (whoever uses it says why), the text as it is written."""
    try:
        return variables.plain(template(raw))
    except (AnsibleError, ValueError, RecursionError):
        try:
            return str(raw)
        except AnsibleError:  # in a vault, and its password was not given
            return repr(raw)
