"""A run that was ended on the way and then repeated leaves the host exactly as an undisturbed run does."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
from killed.runs import HOST, Ran, Task, make_bare, on_host, run, state
from lab.play import ROOT

# Nothing of ours works on a host for longer than this; only for waiting, never for judging.
SETTLED_WITHIN_S = 300


@cache
def undisturbed() -> tuple[Ran, dict[str, Any]]:
    """A run that nobody disturbed, and what it left."""
    make_bare()
    ran = run()
    assert ran.status == 0, ran.output
    return ran, state()


@pytest.fixture(autouse=True)
def undisturbed_first() -> None:
    """It makes the host bare itself, so it must not be asked for in the middle of another run."""
    undisturbed()


def differences(found: dict[str, Any]) -> list[str]:
    """What is not as an undisturbed run leaves it, in words."""
    _ran, wanted = undisturbed()
    words = []
    for part, mine in wanted.items():
        theirs = found[part]
        if isinstance(mine, dict):
            words += [
                f"{part}: {key}: {mine.get(key, 'absent')} became {theirs.get(key, 'absent')}" for key in {**mine, **theirs} if mine.get(key) != theirs.get(key)
            ]
        else:
            words += [f"{part}: {line} is {'missing' if line in mine else 'too much'}" for line in sorted(set(mine) ^ set(theirs))]
    return words


def required(ran: Ran) -> int:
    return sum(check["required"] for check in ran.record(HOST)["checks"])


def accepted_as_undisturbed(ran: Ran) -> None:
    """The run succeeded, its record says what an undisturbed one says, and so does the host itself."""
    assert ran.status == 0, ran.output
    assert ran.record(HOST)["outcome"] == "simulated", ran.record(HOST)["reason"]
    assert required(ran) == required(undisturbed()[0]) > 0
    assert differences(state()) == []


def last_of(role: str) -> Task:
    """The last task of a role in an undisturbed run."""
    return [task for task in undisturbed()[0].tasks if role in task.roles][-1]


def settled() -> None:
    """Wait until nothing that a killed run started on the host is at work any more."""
    deadline = time.monotonic() + SETTLED_WITHIN_S
    # Ansible starts a module as `python3 && sleep 0`; the brackets keep the pattern from finding its own shell.
    while on_host("pgrep -f '[&]& sleep 0|[a]sync_wrapper' || pgrep -x 'apt-get|dpkg' || true"):
        assert time.monotonic() < deadline, on_host("ps -ef --forest")
        time.sleep(1)


def test_every_role_has_something_to_do_in_the_undisturbed_run() -> None:
    ran, _state = undisturbed()
    assert {role for task in ran.tasks for role in task.roles} == {path.name for path in (ROOT / "roles").iterdir()}


def test_killed_after_every_single_change_it_gets_there_all_the_same() -> None:
    make_bare()
    # Changes nothing by itself, so it would not be a point of the others.
    first = run(after=last_of("preflight"))
    assert first.killed and first.tasks[-1] == last_of("preflight"), first.output
    points = [first.tasks[-1]]
    while True:
        # The smoke test is the next test's: killed after it, the last run would have nothing left to prove.
        ran = run(after="change", before=[*points, last_of("smoke_test")])
        if not ran.killed:
            break
        assert ran.tasks[-1] not in points
        points.append(ran.tasks[-1])
        assert len(points) <= len(undisturbed()[0].tasks), points
    print("killed after:", *points, sep="\n  ")
    accepted_as_undisturbed(ran)
    assert {role for task in points for role in task.roles} == {path.name for path in (ROOT / "roles").iterdir()} - {"smoke_test"}
    changes = [task for task in undisturbed()[0].tasks if task.changed and "smoke_test" not in task.roles]
    assert len(points) >= 10
    # What a role does later in the same run, such as a second hold, an earlier task of the repeated one may have done.
    assert {task.roles[-1:] for task in changes} <= {task.roles[-1:] for task in points}


# Where a run leaves most behind that is not finished: modules that are loaded and not held, a layout that nothing lists yet, an engine without an image.
# All other points are in the chain above; each of these costs a whole run of its own.
ROLES = ["nvidia_driver", "mig", "docker"]


@pytest.mark.parametrize("role", ROLES)
def test_killed_after_a_role_and_run_again_normally(role: str) -> None:
    make_bare()
    point = last_of(role)
    ran = run(after=point)
    assert ran.killed and ran.tasks[-1] == point, ran.output
    accepted_as_undisturbed(run())


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=lambda sign: str(sign.name))
def test_a_run_that_is_stopped_by_a_signal_says_so_in_its_record(sign: signal.Signals) -> None:
    make_bare()
    point = last_of("host_tuning")
    ran = run(after=point, sign=sign)
    assert ran.status != 0 and ran.tasks[-1] == point, ran.output
    record = ran.record(HOST)
    assert record["outcome"] == "interrupted", record["reason"]
    assert sign.name in record["reason"]
    assert [change["task"] for change in record["changed"]] == [point.name]


def test_killed_in_the_middle_of_packages_of_the_image_and_of_the_smoke_test() -> None:
    make_bare()
    # While it unpacks or configures, and not while apt only asks it something: then nothing is locked.
    ended_in_the_middle_of("package_set / Install the packages", lambda: frozen("pkill -STOP -f '[d]pkg .*--status-fd'"))
    refused = run()
    assert refused.status != 0
    assert refused.record(HOST)["outcome"] == "refused", refused.record(HOST)["reason"]
    assert refused.record(HOST)["changed"] == []
    assert "The package manager is busy: apt-get" in refused.record(HOST)["reason"]
    assert "wait until it is done" in refused.record(HOST)["reason"]
    on_host("pkill -CONT -x dpkg")
    settled()

    # The engine goes on with the pull, and a second one of the same image joins it: nothing to wait for.
    ended_in_the_middle_of("pytorch_image / Pull the image", lambda: bool(on_host("pgrep -f '[d]ocker image pull' || true")))

    ended_in_the_middle_of("smoke_test / Test the GPUs", lambda: frozen("docker ps --quiet | grep . && docker pause $(docker ps --quiet)"))
    incomplete = run()
    assert incomplete.status != 0
    assert incomplete.record(HOST)["outcome"] == "incomplete", incomplete.record(HOST)["reason"]
    assert "another smoke test of this host is running" in incomplete.record(HOST)["reason"]
    assert incomplete.record(HOST)["changed"] == []
    on_host("docker unpause $(docker ps --quiet)")
    settled()

    # Nobody heard what that one measured, so it is measured again. Ended at the very end, before its record, this one's stamp holds.
    again = run(after=last_of("smoke_test"))
    assert again.killed and again.tasks[-1] == last_of("smoke_test") and again.tasks[-1].changed, again.output
    last = run()
    assert last.status == 0, last.output
    assert last.record(HOST)["outcome"] == "simulated" and last.record(HOST)["changed"] == []
    assert differences(state()) == []


def frozen(command: str) -> bool:
    """Whether the command found something on the host and stopped it in its tracks, so that it is at work for as long as the test wants."""
    return bool(on_host(f"({command}) >/dev/null 2>&1 && echo yes || true"))


def ended_in_the_middle_of(task: str, during: Callable[[], bool]) -> None:
    """Run until ``during`` is true, which it is while that task is at work on the host, and kill it then."""
    ran = run(during=during)
    assert ran.killed, ran.output
    assert str(ran.tasks[-1]).rpartition(" / ")[2] != task.rpartition(" / ")[2], "it ended before it was killed"
    begun = [line for line in ran.output.splitlines() if line.startswith("TASK [")][-1]
    assert task.rpartition(" / ")[2] in begun, begun
