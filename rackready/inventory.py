# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The variables of hosts, from Ansible itself: as its inventory and its variable manager give them to gpu_plan in playbooks/plan.yml. No host is asked."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.cli.inventory import InventoryCLI
from ansible.errors import AnsibleError
from ansible.playbook import Playbook
from ansible.template import Templar
from ansible.vars.hostvars import HostVars
from ansible_collections.rackready.gpu.plugins.plugin_utils import host_plan
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog
from ansible_collections.rackready.gpu.plugins.plugin_utils.variable_files import unreadable

PLAYBOOK = Path(host_plan.__file__).resolve().parents[2] / "playbooks" / "plan.yml"
ACTION = "rackready.gpu.gpu_plan"


class InventoryError(Exception):
    """The inventory or its variables cannot be used; one sentence."""


class Inventory:
    """An inventory as ansible-playbook reads it."""

    def __init__(self, sources: Sequence[str], options: Sequence[str] = ()) -> None:
        """``options`` are those of ansible-playbook about variables and vaults. Raises InventoryError."""
        for source in sources:
            if "," not in source and not Path(source).exists():
                raise InventoryError(f"there is no inventory {source}")
        self._named = ", ".join(sources)
        self._options = "".join(f"-i {shlex.quote(source)} " for source in sources)
        try:
            # ansible-inventory's own reading of options, configuration and vaults; whatever it would print is not asked for.
            command = InventoryCLI(["ansible-inventory", "--list", *(f"--inventory={source}" for source in sources), *options])
            command.parse()
            self._loader, self._inventory, self._manager = command._play_prereqs()
            HostVars(inventory=self._inventory, variable_manager=self._manager, loader=self._loader)
            playbook = Playbook.load(str(PLAYBOOK), variable_manager=self._manager, loader=self._loader)
            self._play = playbook.get_plays()[0]
            self._loader.set_basedir(str(PLAYBOOK.parent))
            self._task = next(task for block in self._play.tasks for task in block.block if task.action == ACTION)
        except AnsibleError as error:
            raise InventoryError(_sentence(error)) from error

    def hosts(self, patterns: Sequence[str]) -> list[str]:
        """The hosts that these patterns name (as for ``-l``), all without one; raises InventoryError for a pattern that names none."""
        everything = [str(host.name) for host in self._inventory.list_hosts("all")]
        if not everything:
            raise InventoryError(f"no host is in the inventory {self._named}")
        for pattern in patterns:
            if not pattern.startswith(("!", "&")) and not self._inventory.list_hosts(pattern):
                raise InventoryError(f"{pattern} is no host and no group of the inventory {self._named}")
        return [str(host.name) for host in self._inventory.list_hosts(list(patterns) or "all")]

    def plan(self, host: str, facts: Mapping[str, Any], catalog: Catalog) -> dict[str, Any]:
        """The plan of a host with these facts; raises InventoryError where its variables cannot be read."""
        try:
            variables = self._manager.get_vars(play=self._play, host=self._inventory.get_host(host), task=self._task)
            variables["ansible_facts"] = {**variables.get("ansible_facts", {}), "gpu_host": facts}
            return host_plan.plan(facts, variables, Templar(loader=self._loader, variables=variables).template, self._task, catalog)
        except AnsibleError as error:
            raise InventoryError(unreadable(error, self._options)) from error


def _sentence(error: AnsibleError) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".:")
