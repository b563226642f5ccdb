# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the plan says of the command with which a host tests itself, of its request and of its timer."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import reading, verify_install, verify_tool
from ansible_collections.rackready.gpu.plugins.plugin_utils import plan_text
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import UNKNOWN
from ansible_collections.rackready.gpu.plugins.plugin_utils.record import FACTS, PLAN, VERIFY_TOOL, HostLog, Run, TaskEvent, build_record
from ansible_collections.rackready.gpu.plugins.plugin_utils.request import RequestError

from tests.unit.hosts import CONVERGED, Answers, facts_for
from tests.unit.plans import accept, apply_plan, plan_for, request_for

FILES = [verify_tool.REQUEST, f"{verify_tool.UNITS}/{verify_tool.SERVICE}", f"{verify_tool.UNITS}/{verify_tool.TIMER}", verify_tool.TOOL]
SECRET = "k3y-0f-the-s1te"
ON = {"load": "loaded", "active": "active", "enabled": "enabled"}
OFF = {"load": "loaded", "active": "inactive", "enabled": "disabled"}
SHOWN = "Id=rackready-verify.timer\nLoadState=loaded\nActiveState={active}\nUnitFileState={enabled}\nNeedDaemonReload=no\n"


def area(facts: dict[str, Any], **variables: Any) -> dict[str, Any]:
    found: dict[str, Any] = plan_for(facts, **variables)["areas"]["verify_tool"]
    return found


def applied(**variables: Any) -> dict[str, Any]:
    """Facts of a host to which this plan was applied."""
    bare = facts_for()
    return apply_plan(bare, plan_for(bare, **variables))


def test_on_a_bare_host_everything_is_written_and_the_timer_is_off() -> None:
    planned = area(facts_for())
    assert planned["actions"] == [f"write {path}" for path in FILES]
    assert planned["target"] == {"timer": "off", "files": dict.fromkeys(FILES, "as planned")}
    assert planned["actual"] == {"timer": "absent", "files": dict.fromkeys(FILES, "absent")}
    assert not planned["converged"]


@pytest.mark.parametrize("timer", ["off", "daily", "Mon..Fri 04:00"])
def test_after_it_was_applied_it_holds(timer: str) -> None:
    facts = applied(smoke_test_timer=timer)
    planned = area(facts, smoke_test_timer=timer)
    assert (planned["converged"], planned["actions"]) == (True, [])


@pytest.mark.parametrize("timer", ["off", "daily"])
def test_what_the_module_writes_is_what_the_plan_compares_with(tmp_path: Path, timer: str) -> None:
    """Module, facts and plan ask the same functions; here with real files between them."""
    facts = applied(smoke_test_timer=timer)
    on = timer != "off"
    commands = Answers()
    commands["systemctl show"] = SHOWN.format(active="active" if on else "inactive", enabled="enabled" if on else "disabled")
    commands["systemctl"] = ""
    request = plan_for(facts, smoke_test_timer=timer)["areas"]["smoke_test"]["desired"]
    verify_install.bring(request, timer, commands, dry=False, root=tmp_path)
    facts["digests"] = reading.digests(tmp_path)
    facts["files"].update({path: (tmp_path / path[1:]).read_text(encoding="utf-8") for path in FILES[1:3]})
    assert set(facts["digests"]) == {FILES[0], FILES[3]}
    assert area(facts, smoke_test_timer=timer)["converged"]


def test_an_accepted_host_stays_so_with_it() -> None:
    facts = applied()
    facts = accept(facts, plan_for(facts))
    assert plan_for(facts)["converged"]


@pytest.mark.parametrize(
    ("was", "wanted", "state", "words"),
    [("off", "daily", OFF, "on"), ("daily", "off", ON, "off"), ("daily", "daily", {**ON, "active": "inactive"}, "on"), ("off", "off", ON, "off")],
)
def test_a_timer_that_is_not_as_wanted_is_switched(was: str, wanted: str, state: dict[str, str], words: str) -> None:
    facts = applied(smoke_test_timer=was)
    facts["units"][verify_tool.TIMER] = state
    planned = area(facts, smoke_test_timer=wanted)
    assert planned["actions"][-1] == f"switch rackready-verify.timer {words}"
    assert not planned["converged"]


def test_a_timer_that_is_to_run_at_another_time_is_written_and_reloaded() -> None:
    planned = area(applied(smoke_test_timer="daily"), smoke_test_timer="weekly")
    assert planned["actions"] == [f"write {FILES[2]}"]
    assert not planned["converged"]
    assert plan_for(applied(smoke_test_timer="daily"), smoke_test_timer="weekly")["refusals"] == []


@pytest.mark.parametrize("path", [verify_tool.REQUEST, verify_tool.TOOL])
@pytest.mark.parametrize(
    ("change", "told"), [({"sha256": "0" * 64}, "different"), ({"sha256": None}, "different"), ({"mode": "0666"}, "mode 0666"), (None, "absent")]
)
def test_a_file_that_was_changed_or_opened_to_others_is_written_again(path: str, change: dict[str, Any] | None, told: str) -> None:
    facts = applied()
    if change is None:
        del facts["digests"][path]
    else:
        facts["digests"][path].update(change)
    planned = area(facts)
    assert planned["actual"]["files"][path] == told
    assert planned["actions"] == [f"write {path}"]


def test_another_request_is_another_file() -> None:
    planned = area(applied(), smoke_test_tier="accept")
    assert planned["actions"] == [f"write {verify_tool.REQUEST}"]


def test_facts_of_an_earlier_version_still_give_a_plan() -> None:
    """`rackready plan` takes records that were written before there was such a command."""
    facts = applied()
    del facts["digests"], facts["units"][verify_tool.TIMER]
    plan = plan_for(facts)
    assert plan["refusals"] == []
    assert plan["areas"]["verify_tool"]["actual"] == UNKNOWN
    assert not plan["areas"]["verify_tool"]["converged"]
    assert any("verify_tool" in line for line in plan_text.lines(plan, facts, load()))


VALID = [
    "off",
    "daily",
    "weekly",
    "monthly",
    "03:30",
    "23:59",
    "Sat 03:30",
    "Mon..Fri 04:00",
    "Mon,Wed..Fri 04:00",
    "Sat..Sun 00:00",
    "*-*-01 04:00",
    "Sun *-*-01,15 04:00",
    "*-*-31 00:00",
]
INVALID = [
    "",
    "on",
    "hourly",
    "sat 03:30",
    "Saturday 03:30",
    "Sat",
    "24:00",
    "3:30",
    "03:60",
    "Sat..Mon 03:30",  # systemd takes no range over the end of a week
    "Sun..Tue 04:00",
    "Mon..Wed..Fri 04:00",
    "Mon.. 04:00",
    "*-*-32 04:00",
    "*-*-1 04:00",
    "daily\nOnBootSec=1",
    "daily Persistent=no",
]


@pytest.mark.parametrize("timer", VALID)
def test_times_that_a_timer_can_have(timer: str) -> None:
    assert request_for(smoke_test_timer=timer).smoke_timer == timer


@pytest.mark.parametrize("timer", [*INVALID, False, True, 1410])
def test_other_times_are_refused_before_anything_with_what_there_is(timer: Any) -> None:
    """YAML takes an unquoted `off` for false and an unquoted 23:30 for 1410."""
    with pytest.raises(RequestError) as refused:
        request_for(smoke_test_timer=timer)
    assert "smoke_test_timer" in str(refused.value)
    assert 'daily, weekly, monthly, or days and a time in quotes such as "Sat 03:30"' in str(refused.value)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("timer", VALID[1:])
def test_systemd_understands_every_time_that_is_let_through(timer: str) -> None:
    ran = subprocess.run(["systemd-analyze", "calendar", timer], capture_output=True, text=True, check=False, timeout=30)
    assert ran.returncode == 0, ran.stderr


def test_no_secret_of_a_request_is_in_the_text_of_a_plan_or_in_a_record() -> None:
    facts = facts_for(**CONVERGED)
    plan = plan_for(facts, smoke_test_env={"WANDB": SECRET, "NCCL_DEBUG": "INFO"})
    assert SECRET not in json.dumps(plan["areas"]["verify_tool"])
    assert SECRET not in "\n".join(plan_text.lines(plan, facts, load()))
    request = plan["areas"]["smoke_test"]["desired"]
    assert request["env"]["WANDB"] == SECRET
    now = datetime(2026, 12, 1, 4, 5, 6, tzinfo=UTC)
    log = HostLog("h1", "site.yml", now, now)
    log.add(TaskEvent("ok", FACTS, None, "facts", now, False, {"ansible_facts": {"gpu_host": facts}}))
    log.add(TaskEvent("ok", PLAN, None, "plan", now, False, {"ansible_facts": {"gpu_plan": plan}}))
    done = {"actions": [f"write {verify_tool.REQUEST}"], "invocation": {"module_args": {"request": request, "timer": "off"}}}
    log.add(TaskEvent("ok", VERIFY_TOOL, "verify_tool", "install", now, True, done))
    log.add(TaskEvent("failed", VERIFY_TOOL, "verify_tool", "install", now, False, {**done, "msg": "systemctl show exited 1"}))
    record = json.dumps(build_record(log, Run("20261201T040506Z-0123abcd", False, {"rackready": "0.1.0", "ansible": "2.19.14"})))
    assert SECRET not in record
    assert f"write {verify_tool.REQUEST}" in record
