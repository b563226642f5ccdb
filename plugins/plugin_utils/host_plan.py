# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan of one host from Ansible's variables and the host's facts: what gpu_plan and ``rackready plan`` share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils import group_variables, planner, variables
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog
from ansible_collections.rackready.gpu.plugins.plugin_utils.request import RequestError, parse
from ansible_collections.rackready.gpu.plugins.plugin_utils.variable_files import wrong_locks

FACTS_SCHEMA = 1


class FactsError(Exception):
    """Facts that nothing can be planned from; the text says why and what to do, to stand behind the host's name."""


def plain_facts(facts: object) -> dict[str, Any]:
    """Facts of gpu_host_facts without Ansible's tags; raises FactsError."""
    if not isinstance(facts, Mapping):
        remedy = "run the whole playbook, or in one of your own rackready.gpu.gpu_host_facts before this task"
        raise FactsError(f"there are no facts of this host to plan from: {remedy}.")
    if facts.get("schema") != FACTS_SCHEMA:
        raise FactsError(f"its facts have schema {facts.get('schema')}, this planner reads {FACTS_SCHEMA}: gather them again with this version.")
    try:
        plain: dict[str, Any] = variables.plain(facts)
    except (ValueError, RecursionError) as error:
        raise FactsError(f"its facts cannot be used ({error}): gather them again with rackready.gpu.gpu_host_facts.") from error
    return plain


def plan(facts: Mapping[str, Any], task_vars: Mapping[str, Any], template: Callable[[Any], Any], task: Any, catalog: Catalog) -> dict[str, Any]:
    """The plan of the host that ``task_vars`` are of, as Ansible gives them to ``task``. Variables that cannot be used are its refusals."""
    host = str(task_vars["inventory_hostname"])
    mistakes = [
        *group_variables.check(host, task_vars["hostvars"], task_vars, task),
        *wrong_locks(map(str, task_vars.get("ansible_inventory_sources") or ())),
    ]
    try:
        request = parse(variables.collect(task_vars, template), catalog)
    except RequestError as error:
        mistakes += error.sentences
    if mistakes:
        return _refused(host, str(task_vars.get("gpu_stack_release") or ""), mistakes)
    return planner.make_plan(host, facts, request, catalog)


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
