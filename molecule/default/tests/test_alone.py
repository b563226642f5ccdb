"""A converged host tests itself, without a controller."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from lab.play import ROOT, lab, play
from testinfra.host import Host

HOST = "h100-01"
COMMAND = "rackready-verify"
LAST = "/var/lib/rackready/last-verify.json"


@pytest.fixture
def healed() -> Iterator[None]:
    yield
    lab("heal", HOST)


def stamp_of(host: Host) -> Any:
    return json.loads(host.file("/var/lib/rackready/stamp.json").content_string)


def test_it_says_and_keeps_what_the_playbook_would_say(host: Host) -> None:
    before = stamp_of(host)
    ran = host.run(f"{COMMAND} --tier quick --json")
    assert ran.rc == 0, ran.stdout + ran.stderr
    told = json.loads(ran.stdout)
    assert told["verdict"] == "simulated"
    assert {check["status"] for check in told["checks"] if check["required"]} <= {"pass", "degraded", "not_applicable"}
    assert json.loads(host.file(LAST).content_string) == told
    after = stamp_of(host)
    assert after["time"] > before["time"]
    assert {**after, "time": None} == {**before, "time": None}
    schema = json.loads((ROOT / "plugins/plugin_utils/schemas/verify.schema.json").read_text(encoding="utf-8"))
    assert set(schema["required"]) <= set(told)


def test_its_timer_is_off_and_its_service_ends_well(host: Host) -> None:
    assert not host.service("rackready-verify.timer").is_running
    assert not host.service("rackready-verify.timer").is_enabled
    started = host.run("systemctl start rackready-verify.service")
    assert started.rc == 0, host.run("journalctl --unit rackready-verify.service --no-pager").stdout
    assert "SIMULATED" in host.check_output("journalctl --unit rackready-verify.service --no-pager --output cat")


def test_gpus_in_use_are_left_alone_and_the_exit_status_tells(host: Host, healed: None) -> None:
    before = stamp_of(host)
    lab("break", HOST, "gpu-held:2")
    ran = host.run(COMMAND)
    assert ran.rc == 3, ran.stdout + ran.stderr
    assert "train.py" in ran.stdout
    assert stamp_of(host) == before


def test_a_fault_rejects_takes_the_stamp_away_and_is_told_first(host: Host, healed: None) -> None:
    lab("break", HOST, "row-remap-pending:3")
    ran = host.run(COMMAND)
    assert ran.rc == 1, ran.stdout + ran.stderr
    assert "REJECTED" in ran.stdout.splitlines()[0]
    assert "0000:4b:00.0" in ran.stdout
    assert not host.file("/var/lib/rackready/stamp.json").exists


def test_the_next_run_proves_the_host_again() -> None:
    played = play("site.yml")
    assert played.status == 0, played.output
    assert played.record(HOST)["outcome"] == "simulated"
