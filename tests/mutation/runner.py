# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Collects the unit tests once, learns which of them run which function, and tries each error in a process of its own with the tests that matter."""

from __future__ import annotations

import gc
import importlib
import json
import os
import select
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.mutation.mutants import Mutant, mutants_of

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "ansible_collections.rackready.gpu.plugins.module_utils"
TESTS = "tests/unit/plugins/module_utils"
# The modules, and the tests that are to see an error in any of them.
MODULES = (
    "verdict",
    "kernel_log",
    "smoke_alone",
    "smoke_checks",
    "smoke_cluster",
    "smoke_container",
    "smoke_evidence",
    "smoke_figures",
    "smoke_gpus",
    "smoke_health",
    "smoke_host",
    "smoke_identity",
    "smoke_request",
    "smoke_retry",
    "smoke_tiers",
    "smoke_watch",
    "smoke_window",
)
FILES = tuple(f"{TESTS}/test_{name}.py" for name in (*MODULES, "smoke_test", "smoke_cases", "smoke_whole"))
EQUIVALENT = Path(__file__).with_name("equivalent.txt")
# Tests with processes that hang, with an archive, and with many examples, which say nothing that the others do not.
SLOW = "not v22 and not archive and not TestAlways"
# A test that takes longer is left to the ordinary run. An error with which the tests take so many seconds more than twice their time hangs them, which they
# have seen.
SLOW_S = 3.0
HANGS_S = 60.0
SURVIVED, SEEN = 0, 1


@dataclass
class Learned:
    """Which tests run which function, and how long each takes."""

    seconds: dict[str, float] = field(default_factory=dict)
    runs: dict[str, set[str]] = field(default_factory=dict)
    seen_by: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many errors in a function, and in a module, a test has seen so far."""

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Those first that saw other errors there or in its module, then those that run anything of the module, then the quick ones.

        What a module assigns may matter to all of them.
        """
        name = f"{mutant.module}.{mutant.function}"
        known = self.runs.get(name, set()) if name in self.runs or not mutant.function.isupper() else set(self.seconds)
        near = {test for other, tests in self.runs.items() if other.startswith(f"{mutant.module}.") for test in tests}

        def order(test: str) -> tuple[int, int, bool, float]:
            return -self.seen_by[name, test], -self.seen_by[mutant.module, test], test not in near, self.seconds[test]

        return sorted((test for test in known if self.seconds[test] <= SLOW_S), key=order)


class Plugin:
    """Takes the place of pytest's own loop over the tests."""

    def __init__(self, names: Sequence[str], sample: int, show: bool) -> None:
        self.names = names
        self.sample = sample
        self.show = show
        self.status = 1

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            print("the tests cannot be collected")
            return True
        items = {item.nodeid: item for item in session.items}
        learned = _learn(items)
        if learned is None:
            return True
        self.status = _try_all(self.names, self.sample, self.show, items, learned)
        return True


def run(names: Sequence[str], sample: int = 1, show: bool = False) -> int:
    """Status 0: every error was seen by a test, but those that are named as making no difference."""
    os.chdir(ROOT)
    # The same examples each time: else an error would be seen in one run and survive another.
    settings.register_profile("mutation", derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck), max_examples=25)
    plugin = Plugin(names, sample, show)
    with tempfile.TemporaryDirectory(prefix="rackready-mutation-") as folder:
        options = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--no-header", "--no-summary", "-W", "ignore", f"--basetemp={folder}/tests", "-k", SLOW]
        pytest.main([*options, *FILES], plugins=[plugin, _Profile()])
    return plugin.status


class _Profile:
    @pytest.hookimpl(trylast=True)
    def pytest_collection(self) -> None:
        settings.load_profile("mutation")


def _forked(work: Callable[[int], int], limit_s: float) -> tuple[int | None, bytes]:
    """Exit status (None: it was ended at its limit) and what was written of work in a process of its own, whose output nobody sees."""
    gc.freeze()
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        status = 70
        try:
            os.setpgid(0, 0)
            os.close(reading)
            nowhere = os.open(os.devnull, os.O_RDWR)
            for stream in (1, 2):
                os.dup2(nowhere, stream)
            status = work(writing)
        finally:
            os._exit(status)
    os.close(writing)
    until, said = time.monotonic() + limit_s, b""
    while time.monotonic() < until:
        ready, _, _ = select.select([reading], [], [], 0.2)
        data = os.read(reading, 65536) if ready else b""
        said += data
        if ready and not data:
            break
    else:
        os.killpg(child, signal.SIGKILL)
    os.close(reading)
    _, ended = os.waitpid(child, 0)
    return (os.WEXITSTATUS(ended) if os.WIFEXITED(ended) else None), said


def _passes(item: pytest.Item) -> bool:
    from _pytest.runner import runtestprotocol  # noqa: PLC0415 - there is no public way to run one test

    return not any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))


def _learn(items: dict[str, pytest.Item]) -> Learned | None:
    """Every test once, with a look at each function that it calls. None where one fails already."""

    def work(writing: int) -> int:
        learned: dict[str, Any] = {"seconds": {}, "runs": {}, "failed": []}
        own = {str(Path(importlib.import_module(f"{PACKAGE}.{name}").__file__ or "")): name for name in MODULES}
        called: set[str] = set()

        def look(frame: FrameType, event: str, _argument: object) -> None:
            code = frame.f_code
            if event == "call" and code.co_filename in own:
                called.add(f"{own[code.co_filename]}.{code.co_qualname.partition('.<locals>')[0]}")

        for test, item in items.items():
            called.clear()
            began = time.monotonic()
            sys.setprofile(look)
            passes = _passes(item)
            sys.setprofile(None)
            learned["seconds"][test] = time.monotonic() - began
            if not passes:
                learned["failed"].append(test)
            for name in called:
                learned["runs"].setdefault(name, []).append(test)
        with os.fdopen(writing, "w", encoding="utf-8") as stream:
            json.dump(learned, stream)
        return 0

    status, said = _forked(work, 600)
    if status != 0:
        print("the tests did not end without any error made")
        return None
    learned = json.loads(said)
    if learned["failed"]:
        print("these fail without any error made:", *learned["failed"], sep="\n  ")
        return None
    return Learned(learned["seconds"], {name: set(tests) for name, tests in learned["runs"].items()})


def _try(mutant: Mutant, items: dict[str, pytest.Item], learned: Learned) -> bool:
    """Whether no test sees it."""

    tests = learned.tests_of(mutant)

    def work(writing: int) -> int:
        try:
            mutant.put_into(importlib.import_module(f"{PACKAGE}.{mutant.module}"))
        except Exception:
            return SEEN
        for test in tests:
            if not _passes(items[test]):
                os.write(writing, test.encode())
                return SEEN
        return SURVIVED

    status, said = _forked(work, HANGS_S + 2 * sum(learned.seconds[test] for test in tests))
    if said:
        learned.seen_by[f"{mutant.module}.{mutant.function}", said.decode()] += 1
        learned.seen_by[mutant.module, said.decode()] += 1
    return status == SURVIVED


def _try_all(names: Sequence[str], sample: int, show: bool, items: dict[str, pytest.Item], learned: Learned) -> int:
    equivalent = _equivalent()
    began, survivors, stale, tried = time.monotonic(), 0, 0, 0
    where = EQUIVALENT.relative_to(ROOT)
    for name in names:
        source = Path(importlib.import_module(f"{PACKAGE}.{name}").__file__ or "").read_text(encoding="utf-8")
        mutants = mutants_of(name, source)
        every = {str(mutant) for mutant in mutants}
        for words in equivalent:
            if words.startswith(f"{name}.") and words not in every:
                stale += 1
                print(f"{where}: this error is not made any more: {words}", flush=True)
        for mutant in mutants[::sample]:
            tried += 1
            survived = _try(mutant, items, learned)
            if show:
                print("survived" if survived else "seen    ", mutant, flush=True)
            if survived and str(mutant) not in equivalent:
                survivors += 1
                print(f"plugins/module_utils/{name}.py:{mutant.line}: no test sees {mutant}", flush=True)
            elif not survived and str(mutant) in equivalent:
                stale += 1
                print(f"{where}: a test sees {mutant}", flush=True)
    print(f"{tried} errors made in {', '.join(names)}, {survivors} survived, {time.monotonic() - began:.0f} s")
    return 1 if survivors or stale else 0


def _equivalent() -> dict[str, str]:
    """Errors that make no difference to any verdict, and why."""
    found = {}
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            words, _, why = line.partition("  # ")
            found[words.strip()] = why
    return found
