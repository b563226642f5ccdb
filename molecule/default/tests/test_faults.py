"""Things break on a converged host: verdict, cause and GPU must be the right ones, and nothing may be half-done.

In the order of what a fault costs: first those with which nothing is started, so that the stamp stays; then those that a test finds, which withdraw it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest
from lab.play import Played, lab, play
from testinfra.host import Host

HOST = "h100-01"
DRIVER, OLDER, NEWER = "580.178.04", "580.159.04", "595.91.07"
SMI_LIMIT_S = 15
BUS_IDS = [f"0000:{bus}:00.0" for bus in ("1a", "1b", "4a", "4b", "8a", "8b", "ca", "cb")]
VERIFY = "playbooks/verify.yml"

Break = Callable[[str], None]


@pytest.fixture
def broken(host: Host) -> Iterator[Break]:
    """Breaks the host, and heals it after the test, which may have left nothing running."""
    yield lambda fault: print(lab("break", HOST, fault))
    lab("heal", HOST)
    nothing_left(host)


def nothing_left(host: Host) -> None:
    assert host.check_output("docker ps --all --quiet") == "", "a container was left behind"
    assert host.check_output("ls /var/lib/rackready | grep '^smoke-' || true") == "smoke-test.lock", "a private directory was left behind"


def stamp(host: Host) -> dict[str, Any] | None:
    file = host.file("/var/lib/rackready/stamp.json")
    return dict(json.loads(file.content_string)) if file.exists else None


def failed(played: Played, outcome: str, *words: str) -> dict[str, Any]:
    assert played.status != 0, played.output
    record = played.record(HOST)
    assert record["outcome"] == outcome, record["reason"]
    for word in words:
        assert word in record["reason"], record["reason"]
    return record


def of_status(record: dict[str, Any], status: str) -> dict[str, set[str | None]]:
    """Names of the checks with this status that said something themselves, each with the bus ids of the GPUs that it is about."""
    found: dict[str, set[str | None]] = {}
    for check in record["checks"]:
        if check["status"] == status and check["reason"] != "there is no result of it":
            found.setdefault(check["name"], set()).add(check["gpu"] and check["gpu"]["pci_bus_id"])
    return found


# --- the plan sees it, and nothing is started -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("playbook", ["site.yml", VERIFY])
def test_a_gpu_that_fell_off_the_bus_is_counted_before_anything_runs(host: Host, broken: Break, playbook: str) -> None:
    before = stamp(host)
    broken("gpu-gone:3")
    record = failed(play(playbook), "refused", "7 of 8 H100 SXM5 80GB are on the PCI bus")
    assert "0000:4b:00.0" not in record["reason"], "the GPU that is gone must not be listed as present"
    assert "0000:4a:00.0" in record["reason"]
    assert stamp(host) == before


def test_nvidia_smi_that_hangs_is_reported_in_time_and_by_name(host: Host, broken: Break) -> None:
    before = stamp(host)
    broken("smi-hang")
    began = time.monotonic()
    failed(play(VERIFY), "refused", f"nvidia-smi did not end within {SMI_LIMIT_S} s", "look at dmesg for NVRM and Xid lines and reboot the host")
    # Not a benchmark: the run must not wait for the process, which never ends.
    assert time.monotonic() - began < 4 * SMI_LIMIT_S
    assert stamp(host) == before


def test_nvidia_smi_that_is_slow_is_waited_for_and_no_hang(broken: Break) -> None:
    broken("smi-slow:8")
    played = play("site.yml")
    assert played.status == 0, played.output
    record = played.record(HOST)
    assert record["outcome"] == "simulated"
    assert record["facts"]["nvidia_smi"]["state"] == "ok" and 8 <= record["facts"]["nvidia_smi"]["seconds"] < SMI_LIMIT_S


@pytest.mark.parametrize(
    ("how", "words"),
    [("truncated", "is not its XML (unclosed token"), ("words", "Unable to determine the device handle for GPU0")],
    ids=["truncated", "words"],
)
def test_nvidia_smi_that_prints_rubbish_is_not_believed_and_quoted(host: Host, broken: Break, how: str, words: str) -> None:
    before = stamp(host)
    broken(f"smi-garbled:{how}")
    failed(play(VERIFY), "refused", "nvidia-smi does not work although the driver 580.178.04 is loaded", words, "the GPUs cannot be trusted", "reboot the host")
    assert stamp(host) == before


def test_packages_upgraded_under_the_loaded_driver_are_told_apart_from_it(host: Host, broken: Break) -> None:
    before = stamp(host)
    broken("driver-upgraded")
    assert host.run("nvidia-smi").rc == 18
    for playbook in (VERIFY, "site.yml"):
        failed(
            play(playbook),
            "refused",
            f"The driver's packages were upgraded to {NEWER} and the loaded nvidia kernel module is {DRIVER}",
            f"nvidia-driver-cuda={DRIVER}-*",
            "reboot the host",
        )
    assert stamp(host) == before


def test_a_newer_fabric_manager_is_refused_by_its_version(host: Host, broken: Break) -> None:
    before = stamp(host)
    broken("fabric-manager-version")
    assert not host.service("nvidia-fabricmanager").is_running
    failed(play(VERIFY), "refused", f"nvidia-fabricmanager {NEWER}-1 is installed, newer than the planned {DRIVER}-1")
    assert stamp(host) == before


def test_an_older_fabric_manager_is_named_by_verify_and_mended_by_site(host: Host, broken: Break) -> None:
    before = stamp(host)
    broken(f"fabric-manager-version:{OLDER}")
    failed(play(VERIFY), "failed", "in 1 area, nvidia_fabric (", f"nvidia-fabricmanager is {OLDER}", f"instead of {DRIVER}", "more)")
    assert stamp(host) == before
    played = play("site.yml")
    assert played.status == 0, played.output
    assert host.service("nvidia-fabricmanager").is_running
    assert host.package("nvidia-fabricmanager").version == f"{DRIVER}-1"


@pytest.mark.parametrize(
    ("how", "words"),
    [("numbers", "/dev/nvidia-uvm has 511:3 in the spec and 1:3 on the host"), ("files", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05 does not exist")],
    ids=["numbers", "files"],
)
def test_a_stale_cdi_specification_is_named_by_what_it_has_of_the_past(host: Host, broken: Break, how: str, words: str) -> None:
    before = stamp(host)
    broken(f"cdi-stale:{how}")
    failed(play(VERIFY), "failed", "the host differs from its plan in 1 area, nvidia_container_toolkit", words)
    assert stamp(host) == before


def test_a_stale_cdi_specification_is_written_anew_by_site(host: Host, broken: Break) -> None:
    broken("cdi-stale:numbers")
    played = play("site.yml")
    assert played.status == 0, played.output
    assert "511" not in host.file("/var/run/cdi/nvidia.yaml").content_string


# --- the test sees it, before it starts anything --------------------------------------------------------------------------------------


def test_a_gpu_in_use_by_a_process_is_not_tested_and_its_user_is_named(host: Host, broken: Break) -> None:
    before = stamp(host)
    broken("gpu-held:2")
    record = failed(play(VERIFY), "incomplete", "train.py", "train-gpu2.service", "/dev/nvidia2")
    assert of_status(record, "could_not_run") == {"gpu_idle": {None}}
    assert host.service("train-gpu2").is_running, "a busy GPU is reported, its process is never touched"
    assert host.check_output("docker ps --all --quiet") == ""
    assert stamp(host) == before


def test_a_gpu_in_use_by_a_container_is_not_tested_and_the_container_is_named(host: Host, broken: Break) -> None:
    before = stamp(host)
    broken("gpu-in-container:5")
    container = host.check_output("docker ps --quiet --filter name=train-gpu5")
    record = failed(play(VERIFY), "incomplete", "/dev/nvidia5 is open in process", f"(python3 train.py), container train-gpu5 ({container})")
    assert of_status(record, "could_not_run") == {"gpu_idle": {None}}
    assert host.check_output("docker ps --all --quiet") == container, "the container of somebody is never touched, and ours was not started"
    assert stamp(host) == before


@pytest.mark.parametrize("fault", ["gpu-held:2", "gpu-in-container:5"])
def test_a_converged_host_with_a_running_job_is_left_in_peace(broken: Break, fault: str) -> None:
    broken(fault)
    played = play("site.yml")
    assert played.status == 0, played.output
    assert played.record(HOST)["outcome"] == "simulated"


def test_a_gpu_whose_memory_waits_for_a_reset_is_rejected(host: Host, broken: Break) -> None:
    broken("row-remap-pending:3")
    record = failed(play(VERIFY), "rejected", f"gpu_health on GPU {BUS_IDS[3]}", "a faulty row of its memory waits for a reset to be remapped")
    assert of_status(record, "fail") == {"gpu_health": {BUS_IDS[3]}}
    assert "reset the GPU" in record["remedy"]
    assert stamp(host) is None, "the host does not do what the stamp says it did"


# --- seen while the GPUs work ---------------------------------------------------------------------------------------------------------


def test_heat_a_slow_link_and_an_xid_reject_the_gpus_that_have_them(host: Host, broken: Break) -> None:
    for fault in ("gpu-hot:1", "pcie-slow:2", "xid:79"):
        broken(fault)
    record = failed(play(VERIFY), "rejected")
    assert of_status(record, "fail") == {"window.throttle": {BUS_IDS[1]}, "pcie_link": {BUS_IDS[2]}, "window.xid": {BUS_IDS[7]}}
    assert of_status(record, "could_not_run") == {}
    reasons = {check["name"]: check["reason"] for check in record["checks"] if check["status"] == "fail"}
    assert reasons["window.throttle"].startswith("hw_thermal_slowdown for ")
    assert reasons["pcie_link"] == "its PCIe link runs at generation 3, card and slot can do 5"
    assert reasons["window.xid"].startswith("Xid 79 x") and "GPU has fallen off the bus" in reasons["window.xid"]
    assert stamp(host) is None


def test_an_xid_that_an_application_causes_is_said_and_rejects_nothing(broken: Break) -> None:
    broken("xid:31")
    played = play(VERIFY)
    assert played.status == 0, played.output
    record = played.record(HOST)
    assert record["outcome"] == "simulated"
    assert of_status(record, "degraded")["window.xid"] == {BUS_IDS[7]}


# --- the container's run shows it -----------------------------------------------------------------------------------------------------


def test_a_wrong_product_rejects_the_gpu_that_computed_it(host: Host, broken: Break) -> None:
    broken("payload-wrong:3")
    record = failed(play(VERIFY), "rejected", f"matmul_exact.fp64 on GPU {BUS_IDS[3]}", "1 of 16384 elements are wrong", "'at': [0, 0]")
    assert set().union(*of_status(record, "fail").values()) == {BUS_IDS[3]}
    assert of_status(record, "could_not_run") == {}, "the other GPUs were tested"
    assert "take the GPU out of use" in record["remedy"]
    assert stamp(host) is None


def test_a_crash_rejects_the_gpu_in_whose_work_it_was(host: Host, broken: Break) -> None:
    broken("payload-crash:6")
    record = failed(play(VERIFY), "rejected", f"matmul_exact.fp64 on GPU {BUS_IDS[6]}", "rank 6 crashed in it with SIGABRT")
    assert of_status(record, "fail") == {"matmul_exact.fp64": {BUS_IDS[6]}}
    assert stamp(host) is None


def test_a_process_that_was_killed_says_nothing_about_its_gpu(host: Host, broken: Break) -> None:
    broken("payload-killed:6")
    record = failed(play(VERIFY), "incomplete", f"container_run could not run: exit status 1, first rank 6 (GPU {BUS_IDS[6]}) with SIGKILL")
    assert of_status(record, "fail") == {}
    assert "oom-kill" in record["remedy"]
    assert stamp(host) is None


def test_too_little_shared_memory_and_half_a_line_are_both_reported(host: Host, broken: Break) -> None:
    broken("shm-small")
    broken("payload-half-line:1")
    record = failed(play(VERIFY), "incomplete", "container_limits could not run: /dev/shm has 67108864 bytes, 1073741824 were asked for")
    assert "docker info --format '{{.DefaultRuntime}}'" in record["remedy"]
    assert of_status(record, "fail") == {}
    assert of_status(record, "could_not_run") == {"container_limits": {None}, "matmul_exact.fp64": {BUS_IDS[1]}}
    lost = next(check for check in record["checks"] if check["name"] == "matmul_exact.fp64" and check["status"] == "could_not_run")
    assert lost["reason"].startswith("its result is not in the output of rank 1; a line of the output breaks off: ")
    assert stamp(host) is None


# --- faults that take two minutes to be sure of ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Waited:
    hang: Played
    fabric: Played
    stamp: dict[str, Any] | None


@pytest.fixture(scope="module")
def waited(host: Host) -> Waited:
    """Both at the same time: a product that never returns, and once its test is under way, GPUs that do not join the fabric."""
    try:
        lab("break", HOST, "payload-hang:4")
        with ThreadPoolExecutor(1) as beside:
            hang = beside.submit(play, "molecule/default/impatient.yml")
            while not hang.done() and not host.check_output("docker ps --quiet"):
                time.sleep(1)
            lab("break", HOST, "fabric-not-completed")
            fabric = play("site.yml")
            found = Waited(hang.result(), fabric, stamp(host))
    finally:
        lab("heal", HOST)
    nothing_left(host)
    return found


def test_gpus_that_do_not_join_the_fabric_are_waited_for_and_then_named(waited: Waited) -> None:
    failed(waited.fabric, "failed", f"{HOST}: 8 of 8 GPUs have not joined the fabric", "0000:1a:00.0 says In Progress", "nvidia-fabricmanager")


def test_a_product_that_never_returns_is_ended_and_rejects_its_gpu(waited: Waited) -> None:
    record = failed(waited.hang, "rejected", f"matmul_exact.fp64 on GPU {BUS_IDS[4]}", "rank 4 hung in it for")
    assert of_status(record, "fail") == {"matmul_exact.fp64": {BUS_IDS[4]}}
    run = next(check for check in record["checks"] if check["name"] == "container_run")
    assert f"rank 4 (GPU {BUS_IDS[4]}) in matmul_exact.fp64 since" in run["reason"]
    assert waited.stamp is None


def test_after_healing_the_host_proves_itself_again(host: Host) -> None:
    played = play(VERIFY)
    assert played.status == 0, played.output
    assert played.record(HOST)["outcome"] == "simulated"
    assert stamp(host) is not None
