# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What one run did to one host, and the record that says so.

Pure: the callback hands over events, this module keeps what matters (HostLog) and builds the record (build_record).
The shape of a record is schemas/record.schema.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from ansible_collections.rackready.gpu.plugins.plugin_utils.record_masking import to_plain
from ansible_collections.rackready.gpu.plugins.plugin_utils.variable_files import VAULT_REMEDY

SCHEMA = 1
COLLECTION = "rackready.gpu"
FACTS = f"{COLLECTION}.gpu_host_facts"
PLAN = f"{COLLECTION}.gpu_plan"
SMOKE_TEST = f"{COLLECTION}.gpu_smoke_test"
CLUSTER_NETWORK = f"{COLLECTION}.gpu_cluster_network"
CLUSTER_PLAN = f"{COLLECTION}.gpu_cluster_plan"
CLUSTER_TEST = f"{COLLECTION}.gpu_cluster_test"
CLUSTER_VERDICT = f"{COLLECTION}.gpu_cluster_verdict"
VERIFY_TOOL = f"{COLLECTION}.gpu_verify_tool"
SOURCES = f"{COLLECTION}.stack_sources"
PIN = f"{COLLECTION}.stack_pin"

# stack_sources is missing on purpose: pin.yml asks with it on the controller, which is no GPU host and gets no record.
HOST_MODULES = frozenset({FACTS, PLAN, SMOKE_TEST, VERIFY_TOOL, CLUSTER_PLAN, CLUSTER_TEST, CLUSTER_VERDICT})
# They report, they change nothing on a host: what they call changed is the plan's difference.
READ_ONLY = frozenset({FACTS, PLAN, SOURCES, CLUSTER_NETWORK, CLUSTER_PLAN, CLUSTER_VERDICT})

PASSED = ("accepted", "simulated")
VERDICTS = (*PASSED, "rejected", "incomplete")
HIDDEN = "the output is hidden by no_log"
MESSAGE_LIMIT = 2000
WHAT_LIMIT = 200

Kind = Literal["ok", "skipped", "failed", "ignored", "rescued", "unreachable"]

# What a module returns beside its own findings.
_NOT_FINDINGS = frozenset(
    {
        "verdict",
        "checks",
        "reason",
        "remedy",
        "stamp",
        "msg",
        "changed",
        "failed",
        "invocation",
        "ansible_facts",
        "diff",
        "warnings",
        "deprecations",
        "exception",
    }
)


class Conclusion(NamedTuple):
    """How a run ended for a host: outcome (see the schema), why in one sentence, what to do now."""

    outcome: str
    reason: str | None
    remedy: str | None


class Failure(NamedTuple):
    """The task that ended a host's run: resolved action name, role without the collection, task name, message."""

    action: str
    role: str | None
    task: str
    message: str
    remedy: str | None


@dataclass(frozen=True)
class Run:
    """What all hosts of one run share. versions: {rackready, ansible}."""

    run_id: str
    check_mode: bool
    versions: Mapping[str, str]


@dataclass(frozen=True)
class TaskEvent:
    """The end of one task on one host.

    action is the resolved name of the module; role the role's full name. result is in native types and may be empty where
    needs_result says that nothing is taken from it.
    """

    kind: Kind
    action: str
    role: str | None
    task: str
    at: datetime
    changed: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)


def is_ours(action: str, role: str | None) -> bool:
    """Whether a task makes its host one that this project keeps a record of."""
    return action in HOST_MODULES or (role or "").startswith(f"{COLLECTION}.")


def needs_result(kind: Kind, action: str, changed: bool) -> bool:
    """Whether a HostLog takes anything from this task's result; the others need not be copied."""
    return changed or kind in ("failed", "unreachable") or action in HOST_MODULES or action == SOURCES


@dataclass
class HostLog:
    """What happened on one host in one run, in the order of events."""

    host: str
    playbook: str
    started_at: datetime
    finished_at: datetime
    inventory: str = ""
    """The run's own inventory options, each followed by a space, so that a remedy can be pasted: ``-i inventory/site ``."""
    ours: bool = False
    unread: str | None = None
    """Why Ansible could not even read the host's variables: a sentence, with what to do."""
    plan: dict[str, Any] | None = None
    plan_after: dict[str, Any] | None = None
    changed_since_plan: bool = False
    facts: dict[str, Any] | None = None
    smoke_test: dict[str, Any] | None = None
    cluster: dict[str, Any] | None = None
    changed: list[dict[str, Any]] = field(default_factory=list)
    failure: Failure | None = None
    unreachable: str | None = None
    running: str | None = None
    tasks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("ok", "changed", "failed", "skipped", "ignored", "rescued"), 0))

    @property
    def last_plan(self) -> dict[str, Any]:
        """The newest plan, {} before there is one."""
        return self.plan_after or self.plan or {}

    @property
    def verdict(self) -> str | None:
        """The verdict of this run's smoke test; None when none ran or it gave none. An unknown word is no acceptance: incomplete."""
        verdict = (self.smoke_test or {}).get("verdict")
        return verdict if verdict is None or verdict in VERDICTS else "incomplete"

    def start(self, task: str, at: datetime) -> None:
        """A task begins on the host."""
        self.running = task
        self.finished_at = at

    def add(self, event: TaskEvent) -> None:
        """A task has ended on the host."""
        self.finished_at = event.at
        self.running = None
        self.ours = self.ours or is_ours(event.action, event.role)
        self._count(event)
        for result in _results(event.result):
            self._take(event.action, result)
        if event.changed and event.action not in READ_ONLY:
            self.changed.append({"role": _short_role(event.role), "task": event.task, "actions": actions_of(event.result)})
            # A smoke test writes its stamp and nothing else, which is no reason to plan again.
            self.changed_since_plan = self.changed_since_plan or event.action != SMOKE_TEST
        if event.kind == "failed" and self.failure is None:
            remedy = event.result.get("remedy")
            self.failure = Failure(event.action, _short_role(event.role), event.task, message_of(event.result), str(remedy) if remedy else None)
        if event.kind == "unreachable":
            self.unreachable = message_of(event.result)

    def _count(self, event: TaskEvent) -> None:
        # Ignored and rescued failures are no failures: the play went on as it was written.
        counted = {"unreachable": "failed"}.get(event.kind, event.kind)
        self.tasks[counted] += 1
        if event.changed:
            self.tasks["changed"] += 1

    def _take(self, action: str, result: Mapping[str, Any]) -> None:
        facts = result.get("ansible_facts")
        facts = facts if isinstance(facts, Mapping) else {}
        if action == FACTS and isinstance(facts.get("gpu_host"), Mapping):
            self.facts = dict(facts["gpu_host"])
        elif action == PLAN:
            plan = facts.get("gpu_plan", result.get("gpu_plan"))
            if isinstance(plan, Mapping):
                self._take_plan(dict(plan))
        elif action == SMOKE_TEST and "verdict" in result:
            self.smoke_test = dict(result)
        elif action in (CLUSTER_PLAN, CLUSTER_VERDICT) and isinstance(result.get("cluster"), Mapping):
            self.cluster = dict(result["cluster"])

    def _take_plan(self, plan: dict[str, Any]) -> None:
        if self.plan is None:
            self.plan = plan
        else:
            self.plan_after = plan
        self.changed_since_plan = False


def _results(result: Mapping[str, Any]) -> Iterable[Mapping[str, Any]]:
    items = result.get("results")
    if isinstance(items, list):
        return [item for item in items if isinstance(item, Mapping)]
    return [result]


def _short_role(role: str | None) -> str | None:
    prefix = f"{COLLECTION}."
    return role[len(prefix) :] if role and role.startswith(prefix) else role


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


def message_of(result: Mapping[str, Any]) -> str:
    """A failed result's own words, at most MESSAGE_LIMIT characters: the first failed item's of a loop, with the end of stderr or stdout."""
    if "censored" in result:
        return HIDDEN
    failed = [item for item in _results(result) if item.get("failed") or item.get("unreachable") or item.get("failed_when_result")]
    if "results" in result and failed:
        label = failed[0].get("_ansible_item_label", failed[0].get("item"))
        text = message_of(failed[0])
        return text if label is None or text == HIDDEN else f"{text} (item {_cut(str(label), WHAT_LIMIT)})"
    message = str(result.get("msg") or result.get("reason") or "").strip().removeprefix("Task failed: ")
    for stream in ("stderr", "module_stderr", "stdout", "module_stdout"):
        lines = [line.strip() for line in str(result.get(stream) or "").splitlines() if line.strip()]
        if lines:
            tail = " / ".join(lines[-3:])
            message = message if tail in message else f"{message.rstrip('.')}: {tail}".lstrip(": ")
            break
    return _cut(message or "the task gave no message", MESSAGE_LIMIT)


def actions_of(result: Mapping[str, Any]) -> list[str]:
    """What a changed task did, short: the module's own `actions`, else the names, paths and states that it was called with."""
    found: list[str] = []
    for item in _results(result):
        if "censored" in item:
            found.append(HIDDEN)
        elif "results" in result and not item.get("changed"):
            continue
        elif isinstance(item.get("actions"), list):
            found.extend(_cut(str(action), WHAT_LIMIT) for action in item["actions"])
        else:
            invocation = item.get("invocation")
            arguments = invocation.get("module_args") if isinstance(invocation, Mapping) else None
            given = arguments if isinstance(arguments, Mapping) else item
            words = [f"{name}={_listed(given[name])}" for name in ("name", "path", "dest", "state", "cmd") if given.get(name)]
            if words:
                found.append(_cut(" ".join(words), WHAT_LIMIT))
    return found


def _listed(value: object) -> str:
    return ",".join(str(part) for part in value) if isinstance(value, list) else str(value)


def build_record(log: HostLog, run: Run, interruption: str | None = None) -> dict[str, Any] | None:
    """The record of one host, ready for json.dumps; see schemas/record.schema.json.

    interruption: a sentence when the run stopped before this host's play ended. None is returned for a host that is none of ours, and
    for one where only facts were read: there is nothing to say about it.
    """
    conclusion = conclude(log, run, interruption) if log.ours else None
    if conclusion is None:
        return None
    smoke_test = log.smoke_test or {}
    # A test that went wrong takes the stamp away, so what it says is newer than the facts, also where it is nothing.
    stamp = smoke_test["stamp"] if "stamp" in smoke_test else _stamp(log)
    record = {
        "schema": SCHEMA,
        "run_id": run.run_id,
        "host": log.host,
        "started_at": utc(log.started_at),
        "finished_at": utc(log.finished_at),
        **conclusion._asdict(),
        "release": log.last_plan.get("release"),
        "playbook": log.playbook,
        "check_mode": run.check_mode,
        "facts": log.facts,
        "plan": log.plan,
        "plan_after": log.plan_after,
        "changed": log.changed,
        "checks": smoke_test.get("checks") or [],
        "verdict": log.verdict,
        "smoke_test": {name: value for name, value in smoke_test.items() if name not in _NOT_FINDINGS and not name.startswith("_")} or None,
        "cluster": log.cluster,
        "stamp": stamp or None,
        "failed_task": log.failure._asdict() if log.failure else None,
        "versions": dict(run.versions),
        "tasks": log.tasks,
    }
    plain: dict[str, Any] = to_plain(record)
    return plain


def utc(moment: datetime) -> str:
    """A moment as the record writes it: 2026-12-01T04:05:06Z."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# --- How a run ended. The first rule that has something to say decides; a rule further up is never hidden by one further down. ---


def conclude(log: HostLog, run: Run, interruption: str | None) -> Conclusion | None:
    """Outcome, reason and remedy of a host; None where only facts were read."""
    rules: tuple[Callable[[HostLog, Run, str | None], Conclusion | None], ...] = (
        _test_against,
        _unusable,
        _lost,
        _refused,
        _together_against,
        _failed,
        _interrupted,
        _not_as_planned,
        _together_for,
        _test_for,
        _nothing_to_do,
        _applied,
        _planned,
    )
    return next((conclusion for rule in rules if (conclusion := rule(log, run, interruption))), None)


def _again(log: HostLog, playbook: str | None = None) -> str:
    return f"ansible-playbook {log.inventory}{playbook or log.playbook} -l {log.host}"


def _test_against(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    if log.verdict is None or log.verdict in PASSED:
        return None
    found = log.smoke_test or {}
    return Conclusion(log.verdict, found.get("reason") or message_of(found), found.get("remedy") or f"Correct it and run again: {_again(log)}")


# What Ansible says of a host that it reaches and cannot use.
_NO_DIRECTORY = (
    re.compile(r"Failed to create temporary directory\..*?echo (?P<path>[^` ]+).*?(?:stderr output: (?P<why>.+))?$", re.DOTALL),
    re.compile(r"mkdir: cannot create directory \W?(?P<path>/.+?)\W?: (?P<why>No space left on device)"),
)
_NO_VAULT = re.compile(r"no vault secrets (?:were )?found")
_NO_PYTHON = re.compile(r"The module interpreter '(?P<path>[^']+)' was not found")


def _unusable(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    outcome, remedy = (
        ("failed", f"Then: {_again(log)}") if log.changed else ("refused", f"Nothing was changed. Do what each sentence says, then: {_again(log)}")
    )
    directory = next((found for form in _NO_DIRECTORY if (found := form.search(log.unreachable or ""))), None)
    if directory:
        why = f" ({' '.join(directory['why'].split())})" if directory["why"] else ""
        reason = (
            f"Ansible cannot make its directory {directory['path']} on the host{why}, so it can run nothing there: make room on that file system "
            f"(df -h; df -i) or make the directory writable for the user of the connection, or set ansible_remote_tmp to another one."
        )
        return Conclusion(outcome, reason, remedy)
    python = _NO_PYTHON.search(log.failure.message) if log.failure else None
    if python:
        path = python["path"]
        reason = (
            f"There is no Python at {path} on the host, so Ansible can run nothing there: install python3 (3.8 or newer) or set ansible_python_interpreter."
        )
        return Conclusion(outcome, reason, remedy)
    # What the plan says of a variable in a vault names it.
    if log.failure and not log.last_plan.get("refusals") and _NO_VAULT.search(log.failure.message):
        words = log.failure.message.rstrip(".")
        return Conclusion(outcome, f"A variable of this host is in a vault that cannot be opened ({words}): {VAULT_REMEDY}.", remedy)
    return None


def _lost(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    if log.unreachable is None:
        return None
    ping = f"ansible {log.inventory}{log.host} -m ansible.builtin.ping"
    remedy = f"Check that the host is up and that its address and key are right ({ping}), then run again: {_again(log)}"
    return Conclusion("unreachable", log.unreachable, remedy)


def _refused(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    refusals = [log.unread] if log.unread else [str(sentence) for sentence in log.last_plan.get("refusals") or []]
    if refusals:
        more = "more " if log.changed else ""
        return Conclusion("refused", " ".join(refusals), f"Nothing {more}was changed. Do what each sentence says, then: {_again(log)}")
    if log.failure and log.failure.action == SOURCES and not log.changed:
        return Conclusion("refused", log.failure.message, log.failure.remedy or f"Nothing was changed. Make the sources reachable, then: {_again(log)}")
    return None


def _failed(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    if log.failure is None:
        return None
    where = f"{log.failure.role}: {log.failure.task}" if log.failure.role else log.failure.task
    remedy = log.failure.remedy or f"Correct what the message names and run again (what already holds is left alone): {_again(log)}"
    return Conclusion("failed", f"{where}: {log.failure.message}", remedy)


def _interrupted(log: HostLog, _run: Run, interruption: str | None) -> Conclusion | None:
    if interruption is None:
        return None
    running = f" while '{log.running}' ran: what that task has done is unknown" if log.running else ""
    return Conclusion(
        "interrupted",
        f"{interruption}{running}",
        f"What ran on the host may still run there: wait a minute, then run again; it plans from what is there: {_again(log)}",
    )


def _differing(plan: Mapping[str, Any]) -> list[str]:
    areas = plan.get("areas")
    areas = areas if isinstance(areas, Mapping) else {}
    return [str(name) for name, area in areas.items() if name != "smoke_test" and isinstance(area, Mapping) and not area.get("converged")]


def _not_as_planned(log: HostLog, run: Run, _interruption: str | None) -> Conclusion | None:
    if run.check_mode or not log.last_plan or not (log.changed or log.verdict):
        return None
    if log.changed_since_plan:
        if log.verdict:
            return None
        reason = "changes were made and no plan was taken afterwards, so nothing says that they hold"
        return Conclusion("incomplete", reason, f"Run the whole journey: {_again(log, 'site.yml')}")
    # What a host tests itself with later says nothing about this test; playbooks/verify.yml does not write it.
    if not log.last_plan.get("converged") and not (log.verdict and _differing(log.last_plan) == ["verify_tool"]):
        reason = f"at the end these areas differ from the plan: {', '.join(_differing(log.last_plan)) or 'not named'}"
        return Conclusion("failed", reason, f"See what differs: {_again(log, 'playbooks/plan.yml')}")
    return None


def _test_for(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    if log.verdict is None:
        return None
    found = log.smoke_test or {}
    degraded = {str(check["name"]) for check in found.get("checks") or [] if isinstance(check, Mapping) and check.get("status") == "degraded"}
    return Conclusion(log.verdict, found.get("reason") or (f"degraded: {', '.join(sorted(degraded))}" if degraded else None), None)


def _together_against(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    found = log.cluster or {}
    if not found or found.get("verdict") in PASSED:
        return None
    # An unknown word is no acceptance.
    outcome = found["verdict"] if found.get("verdict") in (*VERDICTS, "refused") else "incomplete"
    hosts = ",".join(str(name) for name in found.get("hosts") or [])
    again = f"ansible-playbook {log.inventory}{log.playbook}" + (f" -l {hosts}" if hosts else "")
    first = "Nothing was started. Do what each sentence says" if outcome == "refused" else "Correct it"
    remedy = found.get("remedy") or f"{first}, then: {again}"
    return Conclusion(outcome, str(found.get("reason")), str(remedy))


def _together_for(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    found = log.cluster or {}
    if found.get("verdict") not in PASSED:
        return None
    others = [str(name) for name in found.get("hosts") or [] if name != log.host]
    return Conclusion(found["verdict"], f"together with {', '.join(others)}: {found.get('reason')}", None)


def _stamp(log: HostLog) -> Mapping[str, Any]:
    stamp = (log.facts or {}).get("stamp")
    return stamp if isinstance(stamp, Mapping) else {}


def _nothing_to_do(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    plan, stamp = log.last_plan, _stamp(log)
    smoke_test = (plan.get("areas") or {}).get("smoke_test") or {}
    if plan.get("converged") and smoke_test.get("converged") and stamp.get("verdict") in PASSED:
        last = f"its last smoke test (stamp of {stamp.get('time', 'unknown time')}) matches the plan"
        return Conclusion(stamp["verdict"], f"nothing to do: the host is as planned, and {last}", None)
    return None


def _applied(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    if not log.last_plan.get("converged"):
        return None
    return Conclusion("converged", "installed as planned, not proved: no smoke test of this state", f"Prove it: {_again(log, 'playbooks/verify.yml')}")


def _planned(log: HostLog, _run: Run, _interruption: str | None) -> Conclusion | None:
    if not log.last_plan:
        return None
    return Conclusion("planned", f"to do: {', '.join(_differing(log.last_plan)) or 'not named'}", f"Apply it: {_again(log, 'site.yml')}")
