# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A container that is held while systemd reloads: each step that can go wrong, and that nobody else's container is put at risk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_hold
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_hold import survives

from tests.unit.hosts import CONVERGED, facts_for
from tests.unit.smoke_fakes import IMAGE, RUN, container

Answer = tuple[int | None, str, str]
GOOD: Answer = (0, "used 2 GPUs", "")


class Engine:
    """A double of engine and systemd: answers in the order of steps, remembers what it was asked and in how long."""

    def __init__(self, **answers: list[Answer]) -> None:
        self.answers = answers
        self.asked: list[list[str]] = []
        self.limits: list[float] = []

    def __call__(self, command: Sequence[str], limit_s: float) -> Answer:
        self.asked.append(list(command))
        self.limits.append(limit_s)
        what = "reload" if "daemon-reload" in command else command[1]
        left = self.answers.get(what, [])
        return left.pop(0) if left else (0, "" if what == "ps" else "used 2 GPUs", "")

    @property
    def steps(self) -> list[str]:
        return ["reload" if "daemon-reload" in command else command[1] for command in self.asked]


def held(engine: Engine, facts: dict[str, Any] | None = None, excused: dict[str, str] | None = None, left: float = 100.0) -> Any:
    return survives(engine, container(ranks=2), facts or facts_for(**CONVERGED), excused or {}, left)


def test_a_container_that_keeps_its_gpus() -> None:
    engine = Engine()
    check = held(engine)
    assert (check["status"], check["value"]) == ("pass", "used 2 GPUs")
    assert engine.steps == ["run", "exec", "reload", "exec", "kill", "rm", "ps"]
    assert engine.asked[2] == ["systemctl", "daemon-reload"]
    assert engine.asked[1] == ["docker", "exec", f"rackready-smoke-{RUN}-held", "python3", "/rackready/smoke_probe.py", "call", "cuda"]


def test_it_is_the_container_of_the_test_and_ends_by_itself() -> None:
    command = smoke_hold.hold_command(container(), "x-held", 90)
    assert command[:3] == ["docker", "run", "--detach"]
    for words in (["--network", "none"], ["--cap-drop", "ALL"], ["--device", "nvidia.com/gpu=all"], ["--name", "x-held"], ["--pull", "never"]):
        assert any(command[at : at + 2] == words for at in range(len(command)))
    assert command[-4:] == [IMAGE, "/rackready/smoke_probe.py", "hold", "90"]
    assert "--rm" in command and "--read-only" in command


@pytest.mark.parametrize(
    ("answers", "status", "words"),
    [
        ({"run": [(125, "", "no such device")]}, "could_not_run", "the container could not be held: no such device"),
        ({"exec": [(1, "cuInit failed with CUDA error 999", "")]}, "could_not_run", "the GPUs could not be used in the held container: cuInit failed"),
        ({"reload": [(1, "", "Failed to reload")]}, "could_not_run", "systemd did not reload: Failed to reload"),
        ({"exec": [GOOD, (1, "cuInit failed with CUDA error 999", "")]}, "fail", "after `systemctl daemon-reload` the container has lost its GPUs: cuInit"),
        ({"exec": [GOOD, (1, "", "")]}, "fail", "has lost its GPUs: exit status 1"),
        ({"exec": [GOOD, (None, "", "docker did not end within 20 s")]}, "could_not_run", "has lost its GPUs: docker did not end within 20 s"),
    ],
)
def test_each_step_that_goes_wrong(answers: dict[str, list[Answer]], status: str, words: str) -> None:
    engine = Engine(**answers)
    check = held(engine)
    assert check["status"] == status
    assert words in check["reason"]
    assert engine.steps[-3:] == ["kill", "rm", "ps"]


def test_nobody_elses_container_is_put_at_risk() -> None:
    facts = facts_for(**CONVERGED)
    facts["docker"]["containers"] = [
        {"id": "abc123def456", "name": "notebook", "image": "x", "devices": ["nvidia.com/gpu=0"]},
        {"id": "000000000000", "name": "web", "image": "x", "devices": []},
    ]
    engine = Engine()
    check = held(engine, facts)
    assert (check["status"], engine.asked) == ("could_not_run", [])
    assert check["reason"] == "systemd was not told to reload: container notebook (abc123def456) could lose its GPUs"
    facts["docker"]["containers"].pop(0)
    assert held(Engine(), facts)["status"] == "pass"


def test_without_systemd_the_plan_says_so() -> None:
    engine = Engine()
    check = held(engine, excused={"daemon_reload": "process 1 is runit"})
    assert (check["status"], check["reason"], engine.asked) == ("not_applicable", "process 1 is runit", [])


@pytest.mark.parametrize(("left", "asked"), [(19.9, False), (20.0, True), (1000.0, True)])
def test_it_takes_no_more_than_what_is_left(left: float, asked: bool) -> None:
    engine = Engine()
    check = held(engine, left=left)
    assert check["status"] == ("pass" if asked else "could_not_run")
    if not asked:
        assert check["reason"] == "only 20 s were left for it"
    assert sum(engine.limits[:4]) <= min(left, smoke_hold.AT_WORST_S) + 0.001


def test_it_is_removed_also_where_the_test_is_torn_down() -> None:
    asked: list[str] = []

    def run(command: Sequence[str], limit_s: float) -> Answer:
        asked.append(command[1])
        if command[1] == "exec":
            raise SystemExit(143)
        return 0, "", ""

    with pytest.raises(SystemExit):
        survives(run, container(), facts_for(**CONVERGED), {}, 100)
    assert asked == ["run", "exec", "kill", "rm", "ps"]
