# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""From events to a record, without Ansible."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils.record import (
    CLUSTER_PLAN,
    CLUSTER_VERDICT,
    FACTS,
    MESSAGE_LIMIT,
    PLAN,
    SMOKE_TEST,
    SOURCES,
    HostLog,
    Kind,
    Run,
    TaskEvent,
    actions_of,
    build_record,
    message_of,
    needs_result,
    utc,
)
from hypothesis import given
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parents[4]
SCHEMA = json.loads((ROOT / "plugins/plugin_utils/schemas/record.schema.json").read_text(encoding="utf-8"))
NOW = datetime(2026, 12, 1, 4, 5, 6, tzinfo=UTC)
RUN = Run("20261201T040506Z-0123abcd", False, {"rackready": "0.1.0", "ansible": "2.19.14"})
CHECK_RUN = Run("20261201T040506Z-0123abcd", True, {"rackready": "0.1.0", "ansible": "2.19.14"})
ROLE = "rackready.gpu.docker"
STAMP = {"verdict": "accepted", "time": "2026-11-30T00:00:00Z"}


def event(kind: Kind, action: str = "ansible.builtin.command", role: str | None = ROLE, changed: bool = False, **result: Any) -> TaskEvent:
    return TaskEvent(kind, action, role, "Do it", NOW, changed, result)


def facts(stamp: dict[str, Any] | None = None) -> TaskEvent:
    return event("ok", FACTS, None, ansible_facts={"gpu_host": {"stamp": stamp}})


def plan(converged: bool, proved: bool = False, kind: Kind = "ok", refusals: tuple[str, ...] = ()) -> TaskEvent:
    areas = {"docker": {"converged": converged}, "smoke_test": {"converged": proved}}
    content = {"release": "r1", "converged": converged, "areas": areas, "refusals": list(refusals)}
    return event(kind, PLAN, None, ansible_facts={"gpu_plan": content}, msg="refused")


def smoke(verdict: str, kind: Kind = "ok", **result: Any) -> TaskEvent:
    return event(kind, SMOKE_TEST, None, changed=kind == "ok", verdict=verdict, reason=f"it is {verdict}", remedy=None, checks=[], **result)


def together(verdict: str, kind: Kind = "ok", action: str = CLUSTER_VERDICT) -> TaskEvent:
    hosts = {} if verdict == "refused" else {"hosts": ["h0", "h1", "h2"]}
    return event(kind, action, None, cluster={"verdict": verdict, "reason": f"it is {verdict}", "remedy": None, "checks": [], **hosts})


CHANGE = event("ok", changed=True)
FAIL = event("failed", msg="broken")


def outcome(*events: TaskEvent, run: Run = RUN, interruption: str | None = None) -> str | None:
    log = HostLog("h1", "site.yml", NOW, NOW)
    for one in events:
        log.add(one)
    record = build_record(log, run, interruption)
    if record is None:
        return None
    jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(json.dumps(record)))
    # Whoever has to act is told how.
    assert (record["remedy"] is not None) or record["outcome"] in ("accepted", "simulated")
    return str(record["outcome"])


@pytest.mark.parametrize(
    ("expected", "events"),
    [
        ("accepted", [facts(), plan(False), CHANGE, facts(), plan(True), smoke("accepted")]),
        ("simulated", [facts(), plan(True), smoke("simulated")]),
        ("rejected", [plan(True), smoke("rejected", "failed")]),
        ("incomplete", [plan(True), smoke("incomplete", "failed")]),
        # A verdict that is not known is no acceptance.
        ("incomplete", [plan(True), smoke("splendid")]),
        # The verdict against a host is not hidden by what comes later, nor by a rescue.
        ("rejected", [plan(True), smoke("rejected", "rescued"), FAIL]),
        ("rejected", [plan(True), smoke("rejected", "ignored"), event("unreachable", msg="gone")]),
        # The verdict for it is worth nothing when something fails afterwards.
        ("failed", [plan(True), smoke("accepted"), FAIL]),
        ("unreachable", [plan(True), smoke("accepted"), event("unreachable", msg="gone")]),
        ("failed", [plan(False), CHANGE, smoke("accepted"), facts(), plan(False)]),
        ("refused", [facts(), plan(False, kind="failed", refusals=("no",))]),
        ("refused", [facts(), plan(False, refusals=("no",))]),
        ("failed", [facts(), event("failed", PLAN, None, msg="a bug")]),
        ("refused", [facts(), plan(False), event("failed", SOURCES, None, msg="404")]),
        ("failed", [facts(), plan(False), CHANGE, event("failed", SOURCES, None, msg="404")]),
        ("failed", [plan(False), FAIL]),
        ("planned", [plan(False), event("ignored", msg="x"), event("rescued", msg="x")]),
        ("incomplete", [plan(False), CHANGE]),
        ("failed", [plan(False), CHANGE, plan(False)]),
        ("converged", [plan(False), CHANGE, plan(True)]),
        ("converged", [plan(True)]),
        ("accepted", [facts(STAMP), plan(True, proved=True)]),
        # A stamp of another state proves nothing, and the plan says whether it is of this one.
        ("converged", [facts(STAMP), plan(True, proved=False)]),
        ("converged", [facts({"error": "unreadable"}), plan(True, proved=True)]),
        ("planned", [facts(STAMP), plan(False, proved=True)]),
        (None, [facts()]),
        (None, [event("ok", SOURCES, None)]),
        (None, [event("failed", role="foreign.collection.role", msg="x")]),
        # Together with other hosts: the plan's stamp is not what the run was about.
        ("simulated", [facts(STAMP), plan(True, proved=True), together("simulated")]),
        ("rejected", [facts(STAMP), plan(True, proved=True), together("rejected", "failed")]),
        ("incomplete", [facts(STAMP), plan(True, proved=True), together("incomplete", "failed")]),
        ("refused", [facts(STAMP), plan(True, proved=True), together("refused", "failed", CLUSTER_PLAN)]),
        ("rejected", [plan(True, proved=True), smoke("accepted"), together("rejected", "rescued"), FAIL]),
        ("rejected", [plan(True, proved=True), smoke("rejected", "rescued"), together("accepted")]),
        ("failed", [plan(True, proved=True), together("accepted"), FAIL]),
        ("failed", [plan(True, proved=True), event("failed", CLUSTER_PLAN, None, msg="a bug")]),
        ("failed", [FAIL]),
        ("unreachable", [event("unreachable", FACTS, None, msg="no route")]),
    ],
)
def test_outcome(expected: str | None, events: list[TaskEvent]) -> None:
    assert outcome(*events) == expected


def test_interruption_counts_unless_the_host_had_already_ended() -> None:
    assert outcome(plan(False), CHANGE, interruption="stopped") == "interrupted"
    assert outcome(plan(False), smoke("accepted"), interruption="stopped") == "interrupted"
    assert outcome(plan(False), FAIL, interruption="stopped") == "failed"
    assert outcome(plan(True), smoke("rejected", "failed"), interruption="stopped") == "rejected"


def test_a_test_together_is_told_apart_from_the_one_of_the_host_alone() -> None:
    log = HostLog("h1", "playbooks/verify_cluster.yml", NOW, NOW, "-i inventory/site ")
    for one in (facts(STAMP), plan(True, proved=True), together("accepted")):
        log.add(one)
    record = build_record(log, RUN)
    assert record is not None
    assert record["reason"] == "together with h0, h2: it is accepted"
    assert (record["verdict"], record["checks"], record["smoke_test"], record["stamp"]) == (None, [], None, STAMP)
    assert record["cluster"]["hosts"] == ["h0", "h1", "h2"]


@pytest.mark.parametrize(
    ("verdict", "action", "remedy"),
    [
        ("incomplete", CLUSTER_VERDICT, "Correct it, then: ansible-playbook -i inventory/site playbooks/verify_cluster.yml -l h0,h1,h2"),
        ("refused", CLUSTER_PLAN, "Nothing was started. Do what each sentence says, then: ansible-playbook -i inventory/site playbooks/verify_cluster.yml"),
    ],
)
def test_what_to_call_again_has_all_hosts_of_a_test_together(verdict: str, action: str, remedy: str) -> None:
    log = HostLog("h1", "playbooks/verify_cluster.yml", NOW, NOW, "-i inventory/site ")
    log.add(together(verdict, "failed", action))
    record = build_record(log, RUN)
    assert record is not None
    assert record["remedy"] == remedy


def test_check_mode_only_plans() -> None:
    assert outcome(plan(False), CHANGE, run=CHECK_RUN) == "planned"
    assert outcome(facts(STAMP), plan(True, proved=True), run=CHECK_RUN) == "accepted"


LONG = (
    "Task failed: Failed to create temporary directory. In some cases, you may have been able to authenticate and did not have permissions on the target "
    'directory. Consider changing the remote tmp path in ansible.cfg to a path rooted in "/tmp", for more error information use -vvv. Failed command was: '
    '( umask 77 && mkdir -p "` echo /root/.ansible/tmp `"&& mkdir "` echo /root/.ansible/tmp/ansible-tmp-1 `" && echo ansible-tmp-1="` echo /x `" ), '
    "exited with result 1"
)
NO_PYTHON: dict[str, Any] = {
    "msg": "The module interpreter '/usr/bin/python3' was not found.",
    "module_stderr": "/bin/sh: 1: /usr/bin/python3: not found\n",
    "rc": 127,
}


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (
            event("unreachable", FACTS, None, msg=LONG),
            "Ansible cannot make its directory /root/.ansible/tmp on the host, so it can run nothing there: make room",
        ),
        (event("unreachable", FACTS, None, msg=f"{LONG}, stderr output: mkdir: Read-only file system\n"), "/root/.ansible/tmp on the host (mkdir: Read-only"),
        (
            event("unreachable", FACTS, None, msg="mkdir: cannot create directory '/root/.ansible/tmp/ansible-tmp-1': No space left on device\n"),
            "Ansible cannot make its directory /root/.ansible/tmp/ansible-tmp-1 on the host (No space left on device), so it can run nothing there",
        ),
        (event("failed", FACTS, None, **NO_PYTHON), "There is no Python at /usr/bin/python3 on the host, so Ansible can run nothing there: install python3"),
        (
            event("failed", FACTS, None, msg="Task failed: Error processing keyword 'become_pass': Attempting to decrypt but no vault secrets found."),
            "A variable of this host is in a vault that cannot be opened (Error processing keyword 'become_pass': Attempting to decrypt but no vault "
            "secrets found): give the password of the vault (--ask-vault-pass or --vault-id).",
        ),
    ],
)
def test_a_host_that_ansible_reaches_and_cannot_use_is_refused_in_one_sentence(last: TaskEvent, words: str) -> None:
    log = HostLog("h1", "site.yml", NOW, NOW)
    log.add(last)
    record = build_record(log, RUN)
    assert record is not None
    assert (record["outcome"], record["remedy"]) == ("refused", "Nothing was changed. Do what each sentence says, then: ansible-playbook site.yml -l h1")
    assert words in record["reason"]
    assert len(record["reason"]) < 350
    log.add(CHANGE)
    assert (build_record(log, RUN) or {})["outcome"] == "failed", "what was changed before is not nothing"


def test_the_first_failure_is_the_reason() -> None:
    log = HostLog("h1", "site.yml", NOW, NOW)
    for one in (event("rescued", msg="harmless"), event("failed", msg="the cause"), event("failed", msg="in an always section")):
        log.add(one)
    record = build_record(log, RUN)
    assert record is not None
    assert record["reason"] == "docker: Do it: the cause"


def test_the_stamp_is_what_is_on_the_host_now() -> None:
    withdrawn = [facts(STAMP), plan(True), smoke("rejected", "failed", stamp=None)]
    untouched = [facts(STAMP), plan(True)]
    written = [facts(), plan(True), smoke("accepted", stamp=STAMP)]
    for events, expected in ((withdrawn, None), (untouched, STAMP), (written, STAMP)):
        log = HostLog("h1", "site.yml", NOW, NOW)
        for one in events:
            log.add(one)
        record = build_record(log, RUN)
        assert record is not None
        assert record["stamp"] == expected


def test_loop_items_are_looked_into() -> None:
    log = HostLog("h1", "site.yml", NOW, NOW)
    log.add(event("ok", SMOKE_TEST, None, results=[{"verdict": "accepted", "checks": []}, {"verdict": "rejected", "checks": [], "reason": "no"}]))
    assert log.verdict == "rejected"


def test_message_of() -> None:
    assert message_of({"msg": "no", "stderr": "a\nb\n\nc\nd\n"}) == "no: b / c / d"
    assert message_of({"msg": "no: d", "stderr": "d"}) == "no: d"
    assert message_of({"stdout": "only this"}) == "only this"
    assert message_of({"reason": "the included file is missing"}) == "the included file is missing"
    assert message_of({}) == "the task gave no message"
    assert message_of({"censored": "x", "msg": "secret"}) == "the output is hidden by no_log"
    assert message_of({"msg": "One or more items failed", "results": [{"item": "a"}, {"item": "b", "failed": True, "msg": "no b"}]}) == "no b (item b)"
    hidden = {"results": [{"censored": "x", "failed": True, "item": "secret"}]}
    assert message_of(hidden) == "the output is hidden by no_log"
    assert len(message_of({"msg": "x" * 10000})) == MESSAGE_LIMIT


def test_actions_of() -> None:
    assert actions_of({"actions": ["install a=1"]}) == ["install a=1"]
    assert actions_of({"invocation": {"module_args": {"name": ["a", "b"], "state": "present", "password": "p"}}, "path": "/x"}) == ["name=a,b state=present"]
    assert actions_of({"dest": "/etc/x"}) == ["dest=/etc/x"]
    assert actions_of({"censored": "x", "dest": "/secret"}) == ["the output is hidden by no_log"]
    assert actions_of({"results": [{"changed": True, "path": "/a"}, {"changed": False, "path": "/b"}]}) == ["path=/a"]
    assert actions_of({}) == []


def test_only_wanted_results_are_asked_for() -> None:
    assert needs_result("ok", FACTS, False)
    assert needs_result("failed", "ansible.builtin.command", False)
    assert needs_result("ok", "ansible.builtin.command", True)
    assert not needs_result("ok", "ansible.builtin.command", False)


@given(st.lists(st.sampled_from([facts(), facts(STAMP), plan(False), plan(True), CHANGE, FAIL, smoke("accepted"), smoke("rejected", "failed")]), max_size=8))
def test_never_accepted_after_a_failure_or_without_proof(events: list[TaskEvent]) -> None:
    found = outcome(*events)
    failed = any(one.kind == "failed" for one in events)
    if found in ("accepted", "simulated"):
        assert not failed
        assert any(one.action == SMOKE_TEST for one in events)
    if failed:
        assert found in ("failed", "rejected")


def test_times_are_utc() -> None:
    assert utc(datetime(2026, 12, 1, 6, 5, 6, tzinfo=timezone(timedelta(hours=2)))) == "2026-12-01T04:05:06Z"


def test_time_grows_with_the_number_of_hosts_only() -> None:
    many = {f"file{number}": "x" * 200 for number in range(500)}

    def seconds(hosts: int) -> float:
        start = time.perf_counter()
        for number in range(hosts):
            log = HostLog(f"h{number}", "site.yml", NOW, NOW)
            log.add(event("ok", FACTS, None, ansible_facts={"gpu_host": {"files": many}}))
            for _ in range(40):
                log.add(CHANGE)
            log.add(plan(True))
            assert build_record(log, RUN) is not None
        return time.perf_counter() - start

    seconds(5)
    # A square would give 100; the rest is room for a busy machine.
    assert seconds(100) < 40 * max(seconds(10), 0.001)
