# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""An action plugin that returns what the host's variable stand_in says: the tests' collection has it under the names of the real modules.

stand_in: {<module>: [<result of the first call>, ...]}; the last one is repeated. A key sleep (seconds) is waited for, not returned.
"""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):  # type: ignore[misc]  # ansible-core has no type information
    """Takes the option call (number of the call, from 0)."""

    _requires_connection = False

    def run(self, tmp: Any = None, task_vars: Any = None) -> dict[str, Any]:
        module = self._task.action.rsplit(".", 1)[-1]
        results = task_vars["stand_in"][module]
        call = int(self._task.args.get("call", 0))
        result = dict(results[min(call, len(results) - 1)])
        time.sleep(result.pop("sleep", 0))
        return result
