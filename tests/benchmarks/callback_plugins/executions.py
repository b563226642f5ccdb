# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counts module executions: what a task costs on a host, as opposed to what the controller does by itself."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = r"""
name: executions
type: aggregate
short_description: Counts module executions and changes for each host
description:
  - Writes a JSON object of host to its module executions and changed tasks to the file that the environment variable E(BENCH_EXECUTIONS) names.
"""

# These run on the controller only.
LOCAL = {"debug", "include_role", "include_tasks", "import_role", "set_fact", "meta", "assert", "fail", "validate_argument_spec", "gpu_plan"}


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """One execution for each result that a host returned, and one for each item of a loop."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "executions"

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def _count(self, result: Any) -> None:
        if result._task.action.rpartition(".")[2] not in LOCAL:
            self.counts[result._host.get_name()] += max(1, len(result._result.get("results", [])))

    def v2_runner_on_ok(self, result: Any) -> None:
        self._count(result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._count(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        hosts = {host: {"executions": self.counts[host], "changed": stats.summarize(host)["changed"]} for host in stats.processed}
        Path(os.environ["BENCH_EXECUTIONS"]).write_text(json.dumps(hosts))
