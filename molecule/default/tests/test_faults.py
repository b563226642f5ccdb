"""Things break on a converged host: verdict, cause and GPU must be the right ones, and nothing may be half-done."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from lab.play import Played, lab, play
from testinfra.host import Host

HOST = "h100-01"
SMI_LIMIT_S = 15


@pytest.fixture
def broken() -> Iterator[Callable[[str], None]]:
    yield lambda fault: print(lab("break", HOST, fault))
    lab("heal", HOST)


def stamp(host: Host) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(host.file("/var/lib/rackready/stamp.json").content_string)
    return found


def failed(played: Played, outcome: str, *words: str) -> dict[str, Any]:
    assert played.status != 0, played.output
    record = played.record(HOST)
    assert record["outcome"] == outcome, record["reason"]
    for word in words:
        assert word in record["reason"], record["reason"]
    return record


@pytest.mark.parametrize("playbook", ["site.yml", "playbooks/verify.yml"])
def test_a_gpu_that_fell_off_the_bus_is_counted_before_anything_runs(broken: Callable[[str], None], playbook: str) -> None:
    broken("gpu-gone:3")
    record = failed(play(playbook), "refused", "7 of 8 H100 SXM5 80GB are on the PCI bus")
    assert "0000:4b:00.0" not in record["reason"], "the GPU that is gone must not be listed as present"
    assert "0000:4a:00.0" in record["reason"]


@pytest.mark.parametrize("playbook", ["site.yml", "playbooks/verify.yml"])
def test_nvidia_smi_that_hangs_is_reported_in_time_and_by_name(broken: Callable[[str], None], playbook: str) -> None:
    broken("smi-hang")
    began = time.monotonic()
    failed(play(playbook), "refused", f"nvidia-smi did not end within {SMI_LIMIT_S} s")
    # Not a benchmark: the run must not wait for the process, which never ends.
    assert time.monotonic() - began < 4 * SMI_LIMIT_S


def test_a_gpu_in_use_by_a_process_is_not_tested_and_its_user_is_named(host: Host, broken: Callable[[str], None]) -> None:
    before = stamp(host)
    broken("gpu-held:2")
    record = failed(play("playbooks/verify.yml"), "incomplete", "train.py", "train-gpu2.service", "/dev/nvidia2")
    busy = next(check for check in record["checks"] if check["name"] == "gpu_idle")
    assert busy["status"] == "could_not_run"
    assert host.service("train-gpu2").is_running, "a busy GPU is reported, its process is never touched"
    assert host.check_output("docker ps --all --quiet") == ""
    assert stamp(host) == before


def test_a_converged_host_with_a_running_job_is_left_in_peace(broken: Callable[[str], None]) -> None:
    broken("gpu-held:2")
    played = play("site.yml")
    assert played.status == 0, played.output
    assert played.record(HOST)["outcome"] == "simulated"


def test_gpus_that_do_not_join_the_fabric_are_waited_for_and_then_named(broken: Callable[[str], None]) -> None:
    broken("fabric-not-completed")
    failed(play("site.yml"), "failed", f"{HOST}: 8 of 8 GPUs have not joined the fabric", "0000:1a:00.0 says In Progress", "nvidia-fabricmanager")


def test_after_healing_the_host_proves_itself_again() -> None:
    played = play("playbooks/verify.yml")
    assert played.status == 0, played.output
    assert played.record(HOST)["outcome"] == "simulated"
