# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our variables out of Ansible's: collected by prefix, templated, and without Ansible's tags."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils import request


def collect(task_vars: Mapping[str, Any], template: Callable[[Any], Any]) -> dict[str, Any]:
    """The variables of a host that are ours, templated."""
    return {name: plain(template(value)) for name, value in request.ours(task_vars).items()}


def plain(value: Any) -> Any:
    """The same value in plain Python types: schemas and YAML writers do not know Ansible's tagged ones."""
    if isinstance(value, Mapping):
        return {str(plain(key)): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return value if type(value) is kind else kind(value)
    return value
