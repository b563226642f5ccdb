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
from ansible_collections.rackready.gpu.plugins.module_utils import verify_tool
from ansible_collections.rackready.gpu.plugins.plugin_utils import catalog_loader, host_plan, plan_text, record_files, record_masking
from ansible_collections.rackready.gpu.plugins.plugin_utils.variable_files import inventory_options
from yaml import YAMLError

# Ansible imports this module before it forks a process for each host: read here, the catalog is read once a run and not once a host.
# What is wrong with it is said where it is used.
with suppress(OSError, YAMLError):
    catalog_loader.load()
    verify_tool.tool()


class ActionModule(ActionBase):  # type: ignore[misc]
    """Collects variables and facts, calls the planner, returns the plan."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        _validation, arguments = self.validate_argument_spec(
            argument_spec={"refuse": {"type": "bool", "default": True}, "aside": {"type": "list", "elements": "str", "default": []}}
        )
        host = str(task_vars["inventory_hostname"])
        try:
            facts = host_plan.plain_facts((task_vars.get("ansible_facts") or {}).get("gpu_host"))
        except host_plan.FactsError as error:
            raise AnsibleActionFail(f"{host}: {error}") from error
        catalog = catalog_loader.load()
        plan = host_plan.plan(facts, task_vars, self._templar.template, self._task, catalog)
        # Other refusals are reason enough to change nothing, and one of them may be that this variable cannot be used.
        if not plan["refusals"]:
            configured = self._templar.template(task_vars.get("rackready_records_dir"))
            unrecorded = record_files.refusal(host, None if configured is None else str(configured), record_files.RUN)
            plan.update(refusals=[unrecorded] if unrecorded else [], converged=plan["converged"] and not unrecorded)
        result["ansible_facts"] = {"gpu_plan": plan}
        result["text"] = plan_text.lines(plan, facts, catalog)
        result["difference"] = plan_text.difference(plan, inventory_options(map(str, task_vars.get("ansible_inventory_sources") or ())), arguments["aside"])
        result["diff"] = plan_text.diff(plan)
        result["changed"] = bool(self._task.check_mode and not plan["converged"] and not plan["refusals"])
        if plan["refusals"] and arguments["refuse"]:
            result.update(failed=True, changed=False, msg="\n".join(f"{host}: {sentence}" for sentence in plan["refusals"]))
            # Ansible prints whatever a failed task returns, and nobody applies this plan any more: secrets stay out, and text and diff say nothing new.
            del result["text"], result["difference"], result["diff"]
            result["ansible_facts"] = record_masking.to_plain(result["ansible_facts"])
        return result
