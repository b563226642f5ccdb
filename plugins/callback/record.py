# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

DOCUMENTATION = r"""
name: record
type: aggregate
short_description: Write one JSON record a host and run
version_added: 0.1.0
author:
  - rackready contributors (@rackready)
requirements:
  - Enable it in the configuration (C(callbacks_enabled = rackready.gpu.record)).
description:
  - Writes what a run found, planned, changed and proved on a host, and how it ended, as one JSON file a host and run.
    It is the only writer of records, and prints one line a host at the end of the run, nothing else.
  - A host has a record when one of M(rackready.gpu.gpu_host_facts), M(rackready.gpu.gpu_plan), M(rackready.gpu.gpu_smoke_test),
    M(rackready.gpu.gpu_cluster_test) or a role of this collection ran for it, also when it was refused, failed, could not be reached, was only
    planned, or when the run was interrupted (SIGINT, SIGTERM, SIGHUP, an error of Ansible's own). After SIGKILL there is none.
    Hosts of which only facts were read have none either.
  - Where Ansible stops because it cannot read the variables of the hosts (a lock file that is no YAML, say), the hosts of the play are recorded as
    refused, and one sentence at the end says which file and line it is and what to do.
  - The files are C(<records directory>/<host>/<UTC time of the run's start>.json) and C(latest.json) beside it, with the same content. Both
    appear whole or not at all; a leftover C(.*.tmp) is what a killed run had not finished, and can be deleted.
    Their shape is C(plugins/plugin_utils/schemas/record.schema.json).
  - The records directory is the host's variable C(rackready_records_dir), else C(records). A relative one lies in the project, which is the nearest
    directory above the playbook that holds a C(galaxy.yml); the current directory when there is none or when the playbook is of an installed collection.
  - A records directory inside an inventory directory is refused, since Ansible would read the records as inventory. While this callback is enabled,
    M(rackready.gpu.gpu_plan) refuses a host whose record it cannot write a trial of, before anything is changed there. What is seen only at the end (a disk
    that filled up meanwhile) is a warning that names the hosts, and the run ends with status 2, or 4 where a host was unreachable, however the hosts ended;
    other callbacks behind this one are then not told that the run has ended.
  - A run of a playbook of this collection in which C(--tags), C(--skip-tags) or C(--start-at-task) left no task to run says so and ends with status 2.
  - Results hidden by C(no_log) stay hidden. Masked are the user part of URLs, what follows names that end in password, secret, token or key, all values
    of C(smoke_test_env), all texts in Docker's C(daemon.json), and C(Environment=) of systemd drop-ins. Names stay.
  - The files are readable by their owner alone (mode 0600).
notes:
  - The outcome is decided in C(plugins/plugin_utils/record.py). A failure that was ignored or rescued is none.
"""

import atexit
import os
import shlex
import signal
import sys
import uuid
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from ansible import context
from ansible.errors import AnsibleError
from ansible.plugins.callback import CallbackBase
from ansible.release import __version__ as ansible_version
from ansible.template import Templar
from ansible_collections.rackready.gpu.plugins.plugin_utils.record import (
    PIN,
    HostLog,
    Kind,
    Run,
    TaskEvent,
    build_record,
    is_ours,
    needs_result,
)
from ansible_collections.rackready.gpu.plugins.plugin_utils.record_files import (
    RUN,
    playbook_name,
    problem_with,
    project_directory,
    records_directory,
    write_record,
)
from ansible_collections.rackready.gpu.plugins.plugin_utils.variable_files import inventory_options, unreadable

REASON_WIDTH = 100
# Ansible's exit statuses.
FAILED = 2  # one name a line: ansible-doc reads the constants of a plugin and warns about tuples, which is an error of ansible-test's
UNREACHABLE = 4
COLLECTION_ROOT = Path(__file__).resolve().parents[2]
# Ctrl-C, a scheduler's or init's stop, a lost terminal.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def inventory_of_run() -> str:
    """The inventories of this run as options, each followed by a space."""
    return inventory_options(str(source) for source in context.CLIARGS.get("inventory") or ())


def selection() -> str:
    """The options of this run that choose among the tasks, as they were typed; empty where all are to run."""
    given = context.CLIARGS
    options = [("--tags", [tag for tag in given.get("tags") or () if tag != "all"]), ("--skip-tags", given.get("skip_tags") or ())]
    words = [f"{option} {shlex.quote(','.join(tags))}" for option, tags in options if tags]
    start = given.get("start_at_task")
    return " ".join([*words, *([f"--start-at-task {shlex.quote(start)}"] if start else [])])


def collection_version(root: Path) -> str:
    """The version of the collection at root: galaxy.yml in a checkout or wheel, MANIFEST.json where Galaxy installed it; else 'unknown'."""
    for name in ("galaxy.yml", "MANIFEST.json"):
        try:
            found = yaml.safe_load((root / name).read_text(encoding="utf-8"))
        except (OSError, yaml.YAMLError):
            continue
        return str(found.get("collection_info", found).get("version", "unknown"))
    return "unknown"


def named_in(play: Any) -> Iterable[tuple[str, str | None]]:
    """(module, role) of all that a play names, in blocks too; what an included file has is not known before it is included."""
    waiting = [*play.pre_tasks, *play.tasks, *play.post_tasks]
    while waiting:
        entry = waiting.pop()
        if hasattr(entry, "block"):
            waiting += [*entry.block, *entry.rescue, *entry.always]
        else:
            action = str(entry.resolved_action or entry.action)
            yield action, str(entry.args.get("name")) if action.endswith("_role") else None
    for role in play.roles:
        yield "", str(role.get_name())


def from_collection(play: Any) -> bool:
    """Whether a play is written in a playbook of this collection, where the tasks may be in files that are included."""
    return Path(str(play.get_path()).rpartition(":")[0]).resolve().is_relative_to(COLLECTION_ROOT / "playbooks")


def in_rescued_block(task: Any) -> bool:
    """Whether a failure of this task is handled by a rescue section: some block above has one, and the task is not in its rescue or always part."""
    child, parent = task, getattr(task, "_parent", None)
    while parent is not None:
        if getattr(parent, "rescue", None) and any(child._uuid == part._uuid for part in parent.block):
            return True
        child, parent = parent, getattr(parent, "_parent", None)
    return False


class CallbackModule(CallbackBase):  # type: ignore[misc]  # ansible-core has no type information
    """Collects results a host; the records are built by plugin_utils/record.py."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "aggregate"
    CALLBACK_NAME = "rackready.gpu.record"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self, display: Any = None, options: Any = None) -> None:
        super().__init__(display=display, options=options)
        self._pid = os.getpid()
        self._run: Run | None = None
        self._stamp = ""
        self._current = Path.cwd()
        self._project = self._current
        self._playbook_name = ""
        self._play: Any = None
        self._play_number = 0
        # Why the current play stopped for all its hosts, when one host's failure did that.
        self._stop: str | None = None
        self._ended = False
        self._logs: dict[str, HostLog] = {}
        self._last_play: dict[str, int] = {}
        self._directories: dict[str, Path] = {}
        self._problems: dict[Path, str | None] = {}
        self._written: dict[str, Path] = {}
        # Hosts with events that no record on disk tells of.
        self._pending: set[str] = set()
        self._previous: dict[int, Any] = {}
        # Whether there was a play of ours in a run that asks for some of the tasks only.
        self._selected_of_ours = False

    # --- Ansible's events ---

    def v2_playbook_on_start(self, playbook: Any) -> None:
        name = getattr(playbook, "_file_name", None)
        path = Path(name) if name else None
        self._project = project_directory(path, self._current)
        self._playbook_name = playbook_name(path, self._project)
        RUN.project = self._project
        RUN.inventories = tuple(Path(str(source)) for source in context.CLIARGS.get("inventory") or ())
        if self._run is not None:
            return
        started = datetime.now(UTC)
        self._stamp = started.strftime("%Y%m%dT%H%M%SZ")
        versions = {"rackready": collection_version(COLLECTION_ROOT), "ansible": ansible_version}
        self._run = Run(f"{self._stamp}-{uuid.uuid4().hex[:8]}", bool(context.CLIARGS.get("check")), versions)
        self._catch_endings()

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._play = play
        self._play_number += 1
        self._stop = None
        self._ended = False
        # Asked of few runs, as the play's tasks are looked through.
        if selection() and not self._selected_of_ours:
            named = list(named_in(play))
            self._selected_of_ours = from_collection(play) or any(action == PIN or is_ours(action, role) for action, role in named)

    def v2_runner_on_start(self, host: Any, task: Any) -> None:
        name = host.get_name()
        self._log(name).start(self._task_name(task), datetime.now(UTC))
        self._last_play[name] = self._play_number
        self._pending.add(name)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._add("ok", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._add("skipped", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._add("ignored" if ignore_errors else "rescued" if in_rescued_block(result.task) else "failed", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._add("ignored" if result.task.ignore_unreachable else "unreachable", result)

    def v2_playbook_on_no_hosts_remaining(self) -> None:
        self._stop = self._stop or "the play was stopped because too many hosts failed (max_fail_percentage)"

    def v2_playbook_on_stats(self, stats: Any) -> None:
        self._ended = True
        lines, warnings = self._write_records(None)
        for warning in warnings:
            self._display.warning(warning)
        if lines:
            self._display.display("\n" + "\n".join(lines))
        silent = self._selected_of_ours and not self._logs
        if silent:
            self._display.error(
                f"Nothing ran, as no task fits {selection()}. The playbooks have no tags, and each of their tasks rests on those before it: run the whole "
                "playbook, which leaves alone what already holds, and choose hosts with -l."
            )
        if warnings or silent:
            # Ansible asks no callback how a run has ended, and an exception would only be a warning.
            raise SystemExit(UNREACHABLE if stats.dark else FAILED)

    # --- Collecting ---

    def _log(self, host: str) -> HostLog:
        log = self._logs.get(host)
        if log is None:
            now = datetime.now(UTC)
            log = self._logs[host] = HostLog(host, self._playbook_name, now, now, inventory_of_run())
        log.playbook = self._playbook_name
        return log

    @staticmethod
    def _task_name(task: Any) -> str:
        return str(task.name or task.action)

    def _add(self, kind: Kind, result: Any) -> None:
        task, host = result.task, result.host
        name = host.get_name()
        role = task._role.get_name() if task._role else None
        action = str(task.resolved_action or task.action)
        changed = kind != "skipped" and bool(result.is_changed())
        # A result is copied into native types when it is first asked for: only where something is taken from it.
        content = result.result if needs_result(kind, action, changed) else {}
        log = self._log(name)
        log.add(TaskEvent(kind, action, role, result.task_name.rpartition(f"{role} : ")[2] if role else result.task_name, datetime.now(UTC), changed, content))
        self._last_play[name] = self._play_number
        self._pending.add(name)
        if kind in ("failed", "unreachable") and (task.any_errors_fatal or task.run_once):
            self._stop = f"the play was stopped for all hosts because {name} {'failed' if kind == 'failed' else 'was unreachable'} at '{log_task(log, task)}'"
        if is_ours(action, role) and name not in self._directories:
            self._find_directory(host, task)

    def _find_directory(self, host: Any, task: Any) -> None:
        """The host's records directory, from its variables as they are now; warns at once where nothing can be written."""
        self._use_directory(host.get_name(), self._play.get_variable_manager().get_vars(play=self._play, host=host, task=task))

    def _use_directory(self, name: str, variables: dict[str, Any]) -> None:
        configured = variables.get("rackready_records_dir")
        if configured is not None:
            configured = Templar(loader=self._play.get_loader(), variables=variables).template(configured)
        directory = records_directory(str(configured) if configured else None, self._project)
        self._directories[name] = directory
        if directory not in self._problems:
            problem = problem_with(directory, RUN.inventories)
            self._problems[directory] = problem
            if problem:
                self._display.warning(
                    f"Records of this run will not be written to {directory}: {problem}. Set rackready_records_dir to a directory that can be."
                )

    # --- Writing ---

    def _write_records(self, interruption: str | None) -> tuple[list[str], list[str]]:
        """Writes the records of all hosts with news: (a line a host, aligned; warnings about what could not be written)."""
        rows: list[tuple[str, str, str, str]] = []
        failed: dict[str, list[str]] = {}
        for host in sorted(self._pending):
            try:
                row, problem = self._row(host, interruption)
            except Exception as error:  # one host's odd data must not cost the others their records
                row, problem = None, f"its data could not be recorded ({error!r})"
            if row:
                rows.append(row)
            if problem:
                failed.setdefault(problem, []).append(host)
            self._pending.discard(host)
        widths = [max(len(row[column]) for row in rows) for column in range(3)] if rows else []
        lines = ["  ".join((*(cell.ljust(width) for cell, width in zip(row[:3], widths, strict=True)), row[3])) for row in rows]
        return lines, [f"No record was written of {', '.join(hosts)}: {problem}" for problem, hosts in failed.items()]

    def _row(self, host: str, interruption: str | None) -> tuple[tuple[str, str, str, str] | None, str | None]:
        """Writes one host's record: (host, outcome, reason, place of the record) or None for no record, and what went wrong."""
        record = build_record(self._logs[host], self._run, self._interruption_of(host, interruption)) if self._run else None
        if record is None:
            return None, None
        place, problem = self._write(host, record)
        reason = " ".join((record["reason"] or "-").split())
        return (host, record["outcome"], reason if len(reason) <= REASON_WIDTH else reason[: REASON_WIDTH - 1] + "…", place), problem

    def _write(self, host: str, record: dict[str, Any]) -> tuple[str, str | None]:
        """(path as shown to people, None) or ('not written', what is wrong)."""
        directory = self._directories.get(host)
        if directory is None:
            directory = records_directory(None, self._project)
        problem = self._problems.get(directory)
        if problem:
            return "not written", f"{directory} cannot be used: {problem}. Set rackready_records_dir to a directory that can be written."
        try:
            path = self._written[host] = write_record(directory, self._stamp, record, self._written.get(host))
        except OSError as error:
            return "not written", f"{directory}: {error.strerror or error}. Set rackready_records_dir to a directory that can be written."
        try:
            return str(path.relative_to(self._current)), None
        except ValueError:
            return str(path), None

    def _interruption_of(self, host: str, interruption: str | None) -> str | None:
        if self._ended:
            interruption = None
        in_this_play = self._last_play[host] == self._play_number
        if interruption is None:
            return self._stop if in_this_play else None
        # A verdict of an earlier play or batch stands; whatever else was cut off is not known to have ended.
        return interruption if in_this_play or self._logs[host].verdict is None else None

    # --- Endings without v2_playbook_on_stats ---

    def _catch_endings(self) -> None:
        """Ctrl-C ends ansible-playbook by an exception and SIGTERM at once, both without an event, and a second Ctrl-C skips atexit:
        so the records are written when the signal comes, before Ansible's own handler. atexit is for Ansible's own errors."""
        atexit.register(self._at_exit)
        for number in SIGNALS:
            previous = signal.getsignal(number)
            if previous in (signal.SIG_IGN, None):
                continue
            try:
                signal.signal(number, self._on_signal)
            except ValueError:  # not the main thread: whoever embeds Ansible there keeps his signals
                return
            self._previous[number] = previous

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() == self._pid:  # a worker between fork and its own handlers has this one too
            # An impatient second signal must not tear the writing.
            signal.signal(number, signal.SIG_IGN)
            self._tell(self._write_records_quietly(f"the run was stopped by {signal.Signals(number).name}"))
        previous = self._previous[number]
        if callable(previous):
            signal.signal(number, previous)
            previous(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def _at_exit(self) -> None:
        if os.getpid() == self._pid:
            told = self._refuse_unread_quietly()
            self._tell([*self._write_records_quietly("ansible-playbook stopped with an error of its own before this host's play ended"), *told])

    def _refuse_unread_quietly(self) -> list[str]:
        try:
            return self._refuse_unread()
        except Exception as error:  # the other records have to be written, whatever is wrong here
            return [f"[WARNING]: rackready.gpu.record could not tell why ansible-playbook stopped: {error!r}"]

    def _refuse_unread(self) -> list[str]:
        """After a play that no task could begin in, because Ansible cannot read the variables: hosts to record, and a line for each reason.

        Ansible tells callbacks nothing of it, so it is asked once more. pin.yml is told why too; its hosts have no records.
        """
        if self._ended or self._play is None:
            return []
        named = list(named_in(self._play))
        pins = any(action == PIN for action, _role in named)
        ours = not pins and (from_collection(self._play) or any(is_ours(action, role) for action, role in named))
        if not ours and not pins:
            return []
        variables = self._play.get_variable_manager().get_vars(play=self._play)
        hosts: dict[str, list[str]] = {}
        for name in variables["ansible_play_hosts_all"]:
            if name in self._logs:
                continue
            try:
                variables["hostvars"].raw_get(name)
            except AnsibleError as error:
                sentence = unreadable(error, inventory_of_run())
                hosts.setdefault(sentence, []).append(name)
                if ours:
                    log = self._log(name)
                    log.ours, log.unread = True, sentence
                    self._last_play[name] = self._play_number
                    self._pending.add(name)
                    self._use_directory(name, variables)
        return [f"{', '.join(names)}: {sentence}" for sentence, names in hosts.items()]

    def _write_records_quietly(self, interruption: str) -> list[str]:
        try:
            lines, warnings = self._write_records(interruption)
        except Exception as error:  # the signal or the exit has to go on, whatever is wrong here
            return [f"[WARNING]: rackready.gpu.record could not write the records of this run: {error!r}"]
        return [*lines, *(f"[WARNING]: {warning}" for warning in warnings)]

    @staticmethod
    def _tell(lines: Iterable[str]) -> None:
        # Not through Display: the signal may have come in the middle of a print, and a buffered stream cannot be entered twice.
        text = "".join(f"{line}\n" for line in lines)
        if text:
            try:
                os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, ("\n" + text).encode("utf-8", "replace"))
            except OSError:
                return


def log_task(log: HostLog, task: Any) -> str:
    """The name of the task that ended a host's run, else the task's own."""
    return log.failure.task if log.failure else str(task.name or task.action)
