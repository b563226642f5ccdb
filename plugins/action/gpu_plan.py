# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action part of gpu_plan: everything happens on the controller, the host is not asked."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackready.gpu.plugins.plugin_utils import catalog_loader, group_variables, plan_text, planner, variables
from ansible_collections.rackready.gpu.plugins.plugin_utils.request import RequestError, parse
from ansible_collections.rackready.gpu.plugins.plugin_utils.variable_files import ambiguous_locks
from yaml import YAMLError

# Ansible imports this module before it forks a process for each host: read here, the catalog is read once a run and not once a host.
# What is wrong with it is said where it is used.
with suppress(OSError, YAMLError):
    catalog_loader.load()


class ActionModule(ActionBase):  # type: ignore[misc]
    """Collects variables and facts, calls the planner, returns the plan."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _validation, arguments = self.validate_argument_spec(
            argument_spec={"refuse": {"type": "bool", "default": True}, "require_converged": {"type": "bool", "default": False}}
        )
        host = str(task_vars["inventory_hostname"])
        facts = (task_vars.get("ansible_facts") or {}).get("gpu_host")
        if not isinstance(facts, Mapping):
            raise AnsibleActionFail(f"{host}: there are no facts of this host to plan from: run rackready.gpu.gpu_host_facts first.")
        if facts.get("schema") != 1:
            raise AnsibleActionFail(f"{host}: its facts have schema {facts.get('schema')}, this planner reads 1: gather them again with this version.")
        catalog = catalog_loader.load()
        try:
            facts = variables.plain(facts)
        except (ValueError, RecursionError) as error:
            raise AnsibleActionFail(f"{host}: its facts cannot be used ({error}): gather them again with rackready.gpu.gpu_host_facts.") from error
        mistakes = [
            *group_variables.check(host, task_vars["hostvars"], task_vars, self._task),
            *ambiguous_locks(map(str, task_vars.get("ansible_inventory_sources") or ())),
        ]
        try:
            request = parse(variables.collect(task_vars, self._templar.template), catalog)
        except RequestError as error:
            mistakes += error.sentences
        if mistakes:
            plan = _refused(host, str(task_vars.get("gpu_stack_release") or ""), mistakes)
            return _failed(result, plan, host)
        plan = planner.make_plan(host, facts, request, catalog)
        result["ansible_facts"] = {"gpu_plan": plan}
        result["text"] = plan_text.lines(plan, facts, catalog)
        result["diff"] = plan_text.diff(plan)
        result["changed"] = bool(self._task.check_mode and not plan["converged"])
        if plan["refusals"] and arguments["refuse"]:
            return _failed(result, plan, host)
        if arguments["require_converged"] and not plan["converged"]:
            result.update(failed=True, changed=False, msg=plan_text.not_converged(plan))
        return result


def _refused(host: str, release: str, sentences: list[str]) -> dict[str, Any]:
    """The plan of a host whose variables cannot be used: refusals and nothing else."""
    return {
        "schema": planner.SCHEMA,
        "release": release,
        "host": host,
        "converged": False,
        "reboot": False,
        "drain": False,
        "warnings": [],
        "refusals": sentences,
        "download_mib": None,
        "areas": {},
        "sources": {"repositories": [], "images": []},
    }


def _failed(result: dict[str, Any], plan: dict[str, Any], host: str) -> dict[str, Any]:
    """A failure that still carries the plan, so that the record can say what was refused."""
    result.update(failed=True, changed=False, msg="\n".join(f"{host}: {sentence}" for sentence in plan["refusals"]))
    result["ansible_facts"] = {"gpu_plan": plan}
    result.setdefault("text", [f"{host}: refused", *(f"  REFUSED  {sentence}" for sentence in plan["refusals"])])
    return result
