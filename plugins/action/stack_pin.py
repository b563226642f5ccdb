# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Action part of stack_pin: collects what all hosts ask for, has stack_sources ask for it, writes the lock."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase
from ansible_collections.rackready.gpu.plugins.plugin_utils import catalog_loader, group_variables, pin, request, variables
from ansible_collections.rackready.gpu.plugins.plugin_utils.variable_files import LOCK_FILE, repeated_key


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs once for a whole fleet, on the controller."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: Mapping[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        task_vars = task_vars or {}
        spec = {"path": {"type": "path"}, "ca_path": {"type": "path"}, "timeout": {"type": "int", "default": 20}}
        _validation, arguments = self.validate_argument_spec(argument_spec=spec)
        catalog = catalog_loader.load()
        needs = self._needs(task_vars, catalog)
        path = Path(arguments["path"]) if arguments["path"] else _place(task_vars)
        if needs.problems:
            raise AnsibleActionFail("\n".join(needs.problems))
        options = {**needs.questions(), "timeout": arguments["timeout"], "ca_path": arguments["ca_path"], "fail": True, "host": "controller"}
        answers = self._execute_module(module_name="rackready.gpu.stack_sources", module_args=options, task_vars=task_vars)
        if answers.get("failed"):
            result.update(failed=True, msg=answers.get("msg", "stack_sources failed"), problems=answers.get("problems", []))
            return result
        content, problems = pin.lock(needs, answers, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
        if problems:
            result.update(failed=True, msg="\n".join(problems), problems=problems)
            return result
        before = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        changed = not pin.same(_read(before), content)
        after = pin.render(content) if changed else before
        if changed and not self._task.check_mode:
            write(path, after)
        result.update(
            changed=changed,
            path=str(path),
            lock=content,
            diff={"before": before, "after": after, "before_header": str(path), "after_header": str(path)},
        )
        return result

    def _needs(self, task_vars: Mapping[str, Any], catalog: catalog_loader.Catalog) -> pin.Needs:
        """What every host of the play asks for; a host that was never seen counts for ``rackready_pin_for``."""
        needs = pin.Needs()
        for host in task_vars["ansible_play_hosts_all"]:
            hostvars = task_vars["hostvars"]
            host_vars = hostvars[host]
            contradictions = group_variables.check(host, hostvars, hostvars.raw_get(host), self._task)
            needs.problems += [f"{host}: {sentence}" for sentence in contradictions]
            try:
                # Not the lock, whatever it holds: it is written anew.
                asked = request.parse(variables.collect(host_vars, self._templar.template, without=("rackready_lock",)), catalog)
            except request.RequestError as error:
                needs.problems += [f"{host}: {sentence}" for sentence in error.sentences]
                continue
            facts = (host_vars.get("ansible_facts") or {}).get("gpu_host")
            cells = [f"{facts['distribution']['key']}/{facts['architecture']}"] if facts else list(asked.pin_for)
            for cell in cells:
                needs.add(host, asked, catalog, str(cell))
        return needs


def _place(task_vars: Mapping[str, Any]) -> Path:
    """``group_vars/all`` of the inventory; refuses where the new directory would hide an ``all.yml``, which Ansible then no longer reads."""
    directories = {str(task_vars["hostvars"][host].get("inventory_dir") or "") for host in task_vars["ansible_play_hosts_all"]}
    if len(directories) != 1 or "" in directories:
        raise AnsibleActionFail(
            f"The hosts come from {len(directories)} inventories ({', '.join(sorted(directories))}): give the path of the lock file (option path)."
        )
    group_vars = Path(directories.pop()) / "group_vars"
    hidden = next((path for ending in (".yml", ".yaml", ".json") if (path := group_vars / f"all{ending}").exists()), None)
    if hidden is not None and not (group_vars / "all").is_dir():
        raise AnsibleActionFail(f"{hidden} would no longer be read beside a directory all/: move it to {group_vars / 'all' / 'main.yml'}, then run again.")
    return group_vars / "all" / LOCK_FILE


def _read(text: str) -> Mapping[str, Any] | None:
    """The lock in a file's text; an unreadable one counts as none and is replaced."""
    try:
        content = None if repeated_key(text) else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, AttributeError, RecursionError):  # the last three: what looks like a date or number and is none, and depth
        return None
    lock = content.get("rackready_lock") if isinstance(content, dict) else None
    return lock if isinstance(lock, dict) else None


def write(path: Path, text: str) -> None:
    """Replace a file at once: whoever reads it sees the old or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
