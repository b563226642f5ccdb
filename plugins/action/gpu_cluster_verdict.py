# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action part of gpu_cluster_verdict: judges the reports of all hosts of the play; no host is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackready.gpu.plugins.module_utils import verdict
from ansible_collections.rackready.gpu.plugins.plugin_utils import catalog_loader, variables
from ansible_collections.rackready.gpu.plugins.plugin_utils.cluster_verdict import Member, judge


class ActionModule(ActionBase):  # type: ignore[misc]
    """Each host judges the whole run for itself, as all see the same reports, and takes its own part."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        self.validate_argument_spec(argument_spec={})
        name = str(task_vars["inventory_hostname"])
        plan = variables.plain((task_vars.get("ansible_facts") or {}).get("gpu_cluster_plan") or {})
        if not plan:
            raise AnsibleActionFail(f"{name}: there is nothing to judge: run rackready.gpu.gpu_cluster_plan and gpu_cluster_test first.")
        here = {str(host) for host in task_vars["ansible_play_hosts"]}
        members = [_member(entry, plan["token"], here, task_vars["hostvars"]) for entry in plan["hosts"]]
        judged = judge(members, plan["backend"], catalog_loader.load().floors)[name]
        mine = next(member for member in members if member.name == name).report or {}
        cluster = {
            **judged,
            "hosts": [member.name for member in members],
            "node": plan["node"],
            "interface": plan["interface"],
            "address": plan["hosts"][plan["node"]]["address"],
            "backend": plan["backend"],
            "image": plan["image"],
            **{key: mine.get(key) for key in ("seconds", "torch", "pairs", "all_reduce", "container_started", "containers_removed")},
        }
        result.update(changed=False, cluster=cluster)
        if judged["verdict"] not in (verdict.ACCEPTED, verdict.SIMULATED):
            remedy = f" What to do: {judged['remedy']}." if judged["remedy"] else ""
            result.update(failed=True, msg=f"{name} in a test with {len(members) - 1} more: {judged['verdict']}: {judged['reason']}.{remedy}")
        return result


def _member(entry: Mapping[str, Any], token: str, here: set[str], hostvars: Mapping[str, Any]) -> Member:
    """A host of the run with its report; one of another run, out of a cache of facts, is none."""
    name = str(entry["name"])
    facts = (hostvars[name].get("ansible_facts") or {}) if name in here else {}
    plan, report = (variables.plain(facts.get(key) or {}) for key in ("gpu_cluster_plan", "gpu_cluster_report"))
    absent = "it fell out of the run before it reported" if name not in here else "there is no report of this run"
    return Member(name, plan.get("gpus") or [], entry["ranks"], plan.get("degraded") or "accept", report if report.get("token") == token else None, absent)
