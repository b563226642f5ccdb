"""Run site.yml and end it on the way, as a lost terminal, an out-of-memory killer or a power cut at the controller would."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lab.play import LIMIT_S, ROOT, Played, command_of, lab, play

HOST = "h100-01"
# With a MIG layout, so that every role has something to do.
REQUEST: dict[str, Any] = {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}]}
HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Task:
    """A task that ended on the host: the roles that it belongs to (the outermost first), and what it did in that run."""

    roles: tuple[str, ...]
    name: str
    status: str = field(compare=False)
    changed: bool = field(compare=False)

    @property
    def key(self) -> list[str]:
        """What the callback knows it by."""
        return [*self.roles, self.name]

    def __str__(self) -> str:
        return " / ".join(self.key)


@dataclass(frozen=True)
class Ran(Played):
    """A run that may have been ended on the way, and the tasks that ended before that."""

    tasks: tuple[Task, ...]

    @property
    def killed(self) -> bool:
        return self.status == -signal.SIGKILL


def run(after: Task | str | None = None, before: Sequence[Task] = (), sign: signal.Signals = signal.SIGKILL, during: Callable[[], bool] | None = None) -> Ran:
    """Run site.yml on the host.

    :param after: end it after this task, or ``change``: after the first one that changed something and is not in ``before``.
    :param sign: with this signal to its process group.
    :param during: end it, and everything that it started on this side, as soon as this is true.
    """
    command, environment, records = command_of("site.yml", variables=REQUEST, limit=HOST)
    journal, output = records / "journal", records / "output"
    journal.touch()
    environment |= {
        "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback_plugins"),
        "ANSIBLE_CALLBACKS_ENABLED": "rackready.gpu.record,killed",
        "KILLED_JOURNAL": str(journal),
        "KILLED_BEFORE": json.dumps([task.key for task in before]),
        "KILLED_SIGNAL": sign.name,
        **({} if after is None else {"KILLED_AFTER": json.dumps(after.key) if isinstance(after, Task) else after}),
    }
    with output.open("w") as stream:
        child = subprocess.Popen(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True)
        deadline = time.monotonic() + LIMIT_S
        while child.poll() is None and time.monotonic() < deadline:
            if during is not None and during():
                break
            time.sleep(0.05)
        if child.poll() is None:
            kill_tree(child.pid)
        status = child.wait()
    entries = [json.loads(line) for line in journal.read_text().splitlines()]
    tasks = tuple(Task(tuple(entry["roles"]), entry["task"], entry["status"], entry["changed"]) for entry in entries)
    return Ran(status, output.read_text(), records, tasks)


def kill_tree(root: int) -> None:
    """SIGKILL to a process and all that came from it: Ansible's workers have process groups of their own."""
    os.kill(root, signal.SIGSTOP)  # or it would start more while this looks
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(path.parent.name), path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[pid] = int(rest[1])
    tree = [root]
    for pid in tree:
        tree += [child for child, parent in parents.items() if parent == pid]
    for pid in tree:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def on_host(*command: str, script: Path | None = None) -> str:
    """What a command says on the host; ``script`` is its standard input."""
    ssh = ["ssh", "-F", str(ROOT / ".lab/ssh/config"), HOST, *command]
    return subprocess.run(ssh, input=script.read_text() if script else "", capture_output=True, text=True, check=True).stdout


def state() -> dict[str, Any]:
    """Everything that runs can have left on the host."""
    found: dict[str, Any] = json.loads(on_host("python3", "-", script=HERE / "state.py"))
    return found


def make_bare() -> None:
    """A bare host with something that is not ours, as the default scenario prepares it."""
    lab("reset", HOST)
    prepared = play("molecule/default/prepare.yml", limit=HOST)
    assert prepared.status == 0, prepared.output
