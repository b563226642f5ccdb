# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action part of gpu_cluster_plan: looks at what is known of all hosts of the play; no host is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.rackready.gpu.plugins.plugin_utils import variables
from ansible_collections.rackready.gpu.plugins.plugin_utils.cluster_choice import Host, choose


class ActionModule(ActionBase):  # type: ignore[misc]
    """Each host makes the same choice for itself, as all see the same facts."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _validation, arguments = self.validate_argument_spec(argument_spec={"port": {"type": "int", "default": 29500}})
        name = str(task_vars["inventory_hostname"])
        # Facts of a host that fell out of this run would be old ones, from a cache.
        here = {str(host) for host in task_vars["ansible_play_hosts"]}
        hosts = [_host(str(host), task_vars["hostvars"][host] if host in here else {}) for host in task_vars["ansible_play_hosts_all"]]
        # The batch has lost those that failed; what it was is what it has and what fell out.
        batch = [host.name for host in hosts if host.name in {*map(str, task_vars["ansible_play_batch"])} or host.name not in here]
        choice = choose(hosts, int(task_vars.get("ansible_forks") or 1), batch, arguments["port"])
        sentences = choice.sentences(name)
        if sentences:
            reason = " ".join(sentences)
            result.update(failed=True, msg="\n".join(sentences), cluster={"verdict": "refused", "reason": reason, "remedy": None, "checks": []})
            return result
        plan = choice.plans[name]
        result.update(changed=False, ansible_facts={"gpu_cluster_plan": plan})
        return result


def _host(name: str, host_vars: Mapping[str, Any]) -> Host:
    facts = host_vars.get("ansible_facts") or {}
    found = [facts.get(key) for key in ("gpu_host", "gpu_plan", "gpu_cluster_network")]
    return Host(name, *(variables.plain(value) if isinstance(value, Mapping) else None for value in found))
