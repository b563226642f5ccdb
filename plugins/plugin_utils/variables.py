# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Our variables out of Ansible's: collected by prefix, templated, and without Ansible's tags."""

from __future__ import annotations

import datetime
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ansible.errors import AnsibleError
from ansible_collections.rackready.gpu.plugins.plugin_utils import request
from ansible_collections.rackready.gpu.plugins.plugin_utils.variable_files import VAULT_REMEDY

LEVELS = 50
"""How deep a value may be nested. No real one comes near; whoever walks through it later has a limit of its own."""


def collect(task_vars: Mapping[str, Any], template: Callable[[Any], Any], without: Collection[str] = ()) -> dict[str, Any]:
    """The variables of a host that are ours, templated; raises RequestError with a sentence for each that cannot be. Other people's are not even read."""
    found: dict[str, Any] = {}
    mistakes = []
    for name in (name for name in map(str, task_vars) if request.is_ours(name) and name not in without):
        try:
            found[name] = plain(template(task_vars[name]))
        except ValueError as error:
            mistakes.append(f"{name} cannot be used ({_words(error)}): correct it.")
        except (AnsibleError, RecursionError) as error:
            words = _words(error)
            remedy = "correct it; where it refers to another variable, define that, and where {{ }} is meant as it is written, mark the text with !unsafe"
            mistakes.append(f"{name} cannot be used ({words}): {VAULT_REMEDY if 'vault secrets' in words else remedy}.")
    if mistakes:
        raise request.RequestError(mistakes)
    return found


def _words(error: BaseException) -> str:
    """What an error says, without the excerpts that follow its first line."""
    return str(error).strip().partition("\n")[0].rstrip(".:") or type(error).__name__


def plain(value: Any, levels: int = LEVELS) -> Any:
    """The same value in types that JSON has: schemas and YAML writers do not know Ansible's tagged ones, and YAML has dates.

    Raises ValueError for what JSON cannot hold.
    """
    if levels < 0:
        raise ValueError(f"it is nested more than {LEVELS} levels deep")
    if isinstance(value, Mapping):
        return {str(plain(key, 0)): plain(entry, levels - 1) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, levels - 1) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{value} is no number")
    for kind in (str, bool, int, float):
        if isinstance(value, kind):
            return kind(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if value is None:
        return None
    raise ValueError("it holds something that is neither text nor a number, list or mapping")
