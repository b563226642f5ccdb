# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area verify_tool: the command with which a host tests itself, the request that it reads, and the timer, off unless it is asked for."""

from __future__ import annotations

import hashlib

from ansible_collections.rackready.gpu.plugins.module_utils import verify_tool
from ansible_collections.rackready.gpu.plugins.module_utils.verify_tool import OFF, TIMER, Wanted
from ansible_collections.rackready.gpu.plugins.plugin_utils.areas import smoke_test
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import UNKNOWN, AreaPlan, Context, FileSpec, Reason, unit_words

AS_PLANNED = "as planned"
# The states of a timer that are called something; any other is called what it is.
CALLED = {"disabled, inactive": "off", "enabled, active": "on", "not-found": "absent"}


def plan(context: Context) -> AreaPlan:
    """The request is what the area smoke_test is planned to ask, so without one there is nothing to install."""
    request = smoke_test.plan(context).desired
    timer = context.request.smoke_timer
    if not request:
        return AreaPlan()
    units = [FileSpec(file.path, file.data.decode("utf-8"), file.mode) for file in verify_tool.units(timer)]
    wanted = verify_tool.files(request, timer)
    unit_state = {spec.path: context.file_state(spec) for spec in units}
    state = {file.path: unit_state.get(file.path) or _state(context, file) for file in wanted}
    words, now = OFF if timer == OFF else "on", unit_words(context.unit(TIMER))
    now = CALLED.get(now, now)
    actions = [f"write {file.path}" for file in wanted if state[file.path] != AS_PLANNED]
    if now != words and not (timer == OFF and now == CALLED["not-found"]):
        actions.append(f"switch {TIMER} {words}")
    return AreaPlan(
        desired={"timer": timer, "files": [spec.as_dict() for spec in units]},
        target={"timer": words, "files": dict.fromkeys(state, AS_PLANNED)},
        # Facts that an earlier version gathered do not say it.
        actual={"timer": now, "files": state} if "digests" in context.facts else UNKNOWN,
        reasons=[Reason("a host can be tested as planned without a controller: before and after jobs, by monitoring, by a timer", "design")],
        actions=actions,
        files=units,
        # A unit that systemd has not loaded is read when it is started, without a reload.
        reloads=now not in (OFF, CALLED["not-found"]) and "different" in unit_state.values(),
    )


def _state(context: Context, file: Wanted) -> str:
    """As of files whose text facts have; of one with the right content and another mode that mode."""
    found = context.facts.get("digests", {}).get(file.path)
    if found is None:
        return "absent"
    if found["sha256"] != hashlib.sha256(file.data).hexdigest():
        return "different"
    return AS_PLANNED if found["mode"] == file.mode else f"mode {found['mode']}"
