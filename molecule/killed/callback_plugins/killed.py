# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Writes down every task that ended on a host, and ends the whole run after one of them. For one host at a time."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: killed
type: aggregate
short_description: Ends a run between two tasks
description:
  - Appends a line of JSON for each task that ended to the file that the environment variable E(KILLED_JOURNAL) names.
  - Ends the run after the task that E(KILLED_AFTER) names, a JSON list of its roles and its name, or, where that is V(change), after the first one
    that changed something and is not in the JSON list E(KILLED_BEFORE) of such lists.
  - Sends the signal that E(KILLED_SIGNAL) names (default V(SIGKILL)) to the process group of ansible-playbook.
"""


def roles_of(task: Any) -> list[str]:
    """The roles that a task belongs to, the outermost first: those of package_set are included by others."""
    names: list[str] = []
    while task is not None:
        role = getattr(task, "_role", None)
        if role is not None and role.get_name() not in names:
            names.insert(0, role.get_name())
        task = getattr(task, "_parent", None)
    return [name.rpartition(".")[2] for name in names]


def name_of(task: Any) -> str:
    """The name of a task as it stands in its file; Ansible puts the role before it."""
    return str(task.get_name()).rpartition(" : ")[2]


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """One line a task, written before the run is ended."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "killed"

    def __init__(self) -> None:
        super().__init__()
        self._due = False

    def _ended(self, result: Any, status: str) -> None:
        changed = status == "ok" and bool(result.is_changed())
        roles, name = roles_of(result.task), name_of(result.task)
        entry = {"roles": roles, "task": name, "status": status, "changed": changed}
        with Path(os.environ["KILLED_JOURNAL"]).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(entry) + "\n")
        after = os.environ.get("KILLED_AFTER")
        new = changed and [*roles, name] not in json.loads(os.environ["KILLED_BEFORE"])
        self._due = self._due or (new if after == "change" else after is not None and [*roles, name] == json.loads(after))

    def _end(self) -> None:
        if self._due:
            os.killpg(os.getpgrp(), signal.Signals[os.environ.get("KILLED_SIGNAL", "SIGKILL")])

    # What comes after a task: by then the other callbacks know of its result too.

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        self._end()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._end()

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._end()

    # What ended.

    def v2_runner_on_ok(self, result: Any) -> None:
        self._ended(result, "ok")

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._ended(result, "skipped")

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._ended(result, "failed")

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._ended(result, "unreachable")
