# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A record with everything in it has its own shape, and all that was put into it still has its own: also after the masking of secrets."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_checks, smoke_gpus, smoke_tiers, smoke_window, stamp, verdict
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_checks import Asked
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import Bought
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import ChildResult, Outcome, Transcript
from ansible_collections.rackready.gpu.plugins.plugin_utils.record import FACTS, PLAN, SMOKE_TEST, HostLog, Run, TaskEvent, build_record

from tests.unit import smoke_fakes
from tests.unit.plans import Facts, Plan, plan_for

ROOT = Path(__file__).resolve().parents[4]
NOW = datetime(2026, 12, 1, 4, 5, 6, tzinfo=UTC)
RUN = Run("20261201T040506Z-0123abcd", False, {"rackready": "0.1.0", "ansible": "2.19.14"})
# What makes the masking do something.
ASKED: dict[str, Any] = {
    "docker_daemon_options": {"log-opts": {"splunk-token": "hunter2"}, "default-ulimits": {"memlock": {"Name": "memlock", "Hard": -1, "Soft": -1}}},
    "smoke_test_env": {"NCCL_DEBUG": "INFO"},
}


def fixture(name: str) -> Facts:
    facts: Facts = json.loads((ROOT / f"tests/fixtures/facts/{name}.json").read_text(encoding="utf-8"))
    return facts


def valid(schema: str, value: object) -> None:
    text = (ROOT / f"plugins/plugin_utils/schemas/{schema}.schema.json").read_text(encoding="utf-8")
    jsonschema.Draft202012Validator(json.loads(text)).validate(value)


def proved(facts: Facts, plan: Plan, backend: str) -> dict[str, Any]:
    """What the module returns for a host with these facts whose ranks all said what sound ranks say."""
    desired = plan["areas"]["smoke_test"]["desired"]
    gpus = smoke_gpus.expected_gpus(desired["gpus"], facts)
    expected, driver, excused = desired["expected"], desired["stamp"]["driver"], desired["not_applicable"]
    asked = Asked(gpus, gpus, "quick", backend, Bought(expected["model"], expected["count"]), driver, "off", excused, desired["floors"])
    container = smoke_fakes.container(ranks=len(gpus), backend=backend)
    transcript = Transcript(smoke_fakes.RUN, len(gpus), clock=lambda: 0.0)
    transcript.feed(smoke_fakes.all_lines(len(gpus), backend))
    checks = smoke_checks.host_checks(asked, facts)
    if all(check["status"] != "fail" for check in checks):
        seen = [check for check in checks if check["name"] not in smoke_checks.SEEN_TWICE]
        ran = smoke_checks.container_checks(asked, facts, Outcome(container, ChildResult(0, False, 20.0, [], []), transcript))
        window = smoke_window.judge(smoke_fakes.window(len(gpus)), gpus, backend == "cuda")
        checks = [*seen, *ran, *window, verdict.make_check("daemon_reload", "pass")]
    judged = verdict.evaluate(checks, smoke_tiers.requirements(gpus, gpus, "quick", backend), backend, not_applicable=excused)
    good = judged["verdict"] in (verdict.ACCEPTED, verdict.SIMULATED)
    made = stamp.make(desired["stamp"], judged["verdict"], [gpu.uuid for gpu in gpus if gpu.uuid], "2026-12-01T04:00:00Z") if good else None
    more = {"not_exercised": smoke_tiers.not_exercised(gpus, "quick", backend), "retries": [], "topology": None}
    return {**judged, **more, "stamp": made, "seconds": 30.0, "image": container.image, "container_started": True, "changed": good}


def record_of(facts: Facts, plans: list[Plan], returned: dict[str, Any] | None) -> dict[str, Any]:
    log = HostLog(facts["hostname"], "site.yml", NOW, NOW)
    log.add(TaskEvent("ok", FACTS, None, "Read the host", NOW, False, {"ansible_facts": {"gpu_host": facts}}))
    for plan in plans:
        log.add(TaskEvent("ok", PLAN, None, "Plan", NOW, False, {"ansible_facts": {"gpu_plan": plan}}))
    if returned:
        kind: Any = "ok" if returned["changed"] else "failed"
        log.add(TaskEvent(kind, SMOKE_TEST, "rackready.gpu.smoke_test", "Test", NOW, returned["changed"], returned))
    record = build_record(log, RUN)
    assert record is not None
    written: dict[str, Any] = json.loads(json.dumps(record, allow_nan=False))
    return written


def everything_is_valid(record: dict[str, Any]) -> None:
    valid("record", record)
    valid("facts", record["facts"])
    for name in ("plan", "plan_after"):
        if record[name]:
            valid("plan", record[name])
    for check in record["checks"]:
        valid("check", check)
    if record["stamp"]:
        valid("stamp", record["stamp"])
    assert "hunter2" not in json.dumps(record)


@pytest.mark.parametrize("name", ["h100-bare", "h100-converged"])
def test_a_planned_host(name: str) -> None:
    facts = fixture(name)
    plan = plan_for(facts, **ASKED)
    assert plan["refusals"] == []
    record = record_of(facts, [plan], None)
    everything_is_valid(record)
    assert (record["outcome"], record["checks"]) == ("planned", [])


@pytest.mark.parametrize(("backend", "expected"), [("cuda", "accepted"), ("cpu", "simulated")])
def test_a_tested_host(backend: str, expected: str) -> None:
    facts = fixture("h100-converged")
    plan = plan_for(facts, smoke_test_backend=backend, **ASKED)
    returned = proved(facts, plan, backend)
    record = record_of(facts, [plan_for(fixture("h100-bare"), **ASKED), plan], returned)
    everything_is_valid(record)
    assert record["verdict"] == expected, record["reason"]
    assert record["stamp"]["verdict"] == expected
    assert record["plan_after"]
    assert {check["name"] for check in record["checks"]} >= {*smoke_tiers.HOST, *smoke_tiers.CARD, "gpu_identity", "all_reduce_exact"}


def test_a_rejected_host() -> None:
    facts = fixture("h100-converged")
    facts["nvidia_smi"]["gpus"][3]["remapped_rows"] = {"pending": False, "failure": True}
    plan = plan_for(facts, **ASKED)
    record = record_of(facts, [plan], proved(facts, plan, "cuda"))
    everything_is_valid(record)
    assert (record["outcome"], record["stamp"]) == ("rejected", None)
    assert str(record["reason"]).startswith("gpu_health on GPU ")


def test_a_refused_host() -> None:
    facts = fixture("h100-bare")
    plan = plan_for(facts, gpu_expected={"model": "h100-sxm5-80gb", "count": 4}, **ASKED)
    record = record_of(facts, [plan], None)
    everything_is_valid(record)
    assert record["outcome"] == "refused"


def test_what_an_h200_said_of_itself_without_ansible_has_its_shape() -> None:
    told = json.loads((ROOT / "tests/hardware/2026-12-01-h200/rackready-verify-quick.json").read_text(encoding="utf-8"))
    valid("verify", told)
    for check in told["checks"]:
        valid("check", check)
    valid("stamp", told["stamp"])
    assert (told["exit_status"], told["verdict"]) == (0, "accepted")
    assert [check["name"] for check in told["checks"] if check["status"] == "degraded"] == []
