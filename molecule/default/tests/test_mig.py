"""One uniform MIG layout and back: every step is compared with what the host says afterwards."""

from __future__ import annotations

import yaml
from lab.play import play
from testinfra.host import Host

HOST = "h100-01"
GPUS, EACH = 8, 7
LAYOUT = {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": EACH}}]}


def devices(host: Host) -> list[str]:
    return [line for line in host.check_output("nvidia-smi -L").splitlines() if line.lstrip().startswith("MIG ")]


def cdi_names(host: Host) -> set[str]:
    return {device["name"] for device in yaml.safe_load(host.file("/var/run/cdi/nvidia.yaml").content_string)["devices"]}


def test_a_layout_that_the_card_cannot_hold_is_refused_before_any_change(host: Host) -> None:
    played = play("site.yml", variables={"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 8}}]})
    assert played.status != 0
    record = played.record(HOST)
    assert record["outcome"] == "refused"
    assert "1g.10gb" in record["reason"] and "8" in record["reason"]
    assert devices(host) == []


def test_seven_instances_on_every_gpu(host: Host) -> None:
    played = play("site.yml", variables=LAYOUT)
    assert played.status == 0, played.output
    assert len(devices(host)) == GPUS * EACH
    assert all("1g.10gb" in device for device in devices(host))
    assert {f"{gpu}:{instance}" for gpu in range(GPUS) for instance in range(EACH)} <= cdi_names(host), "the CDI specification is older than the layout"
    record = played.record(HOST)
    assert record["outcome"] == "simulated"
    assert {check["status"] for check in record["checks"] if check["name"] == "all_reduce_exact"} == {"not_applicable"}


def test_the_same_layout_again_changes_nothing(host: Host) -> None:
    before = devices(host)
    played = play("site.yml", variables=LAYOUT)
    assert played.status == 0 and "changed=0" in played.output, played.output
    assert devices(host) == before


def test_off_removes_the_instances_and_proves_the_host_again(host: Host) -> None:
    played = play("site.yml")
    assert played.status == 0, played.output
    assert devices(host) == []
    assert "0:0" not in cdi_names(host)
    assert played.record(HOST)["outcome"] == "simulated"
