# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`rackready report` on records as the callback writes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import jsonschema
import pytest

from rackready.cli import main
from rackready.report import COLOURS, GOOD, MEANING, NoRecordError, junit, newest_records, page

ROOT = Path(__file__).resolve().parents[3]
SCHEMA = json.loads((ROOT / "plugins/plugin_utils/schemas/record.schema.json").read_text(encoding="utf-8"))
GPU = {"uuid": "GPU-5d8c0f0e-0000-0000-0000-000000000001", "pci_bus_id": "0000:1a:00.0"}


def check(name: str, status: str = "pass", **values: Any) -> dict[str, Any]:
    blank = {"required": True, "reason": None, "remedy": None, "value": None, "floor": None, "unit": None, "source": None, "gpu": None, "duration_s": None}
    return {**blank, "name": name, "status": status, **values}


def record(host: str = "h100-01", outcome: str = "accepted", **values: Any) -> dict[str, Any]:
    areas = {
        "nvidia_driver": {"desired": {"version": "580.178.04"}, "converged": True, "actions": []},
        "mig": {"desired": {"gpus": [{"mode": "disabled", "instances": []}] * 8}, "converged": True, "actions": []},
        "pytorch_image": {"desired": {"ref": "nvcr.io/nvidia/pytorch:26.07-py3", "digest": "sha256:abc"}, "converged": True, "actions": []},
        "smoke_test": {"desired": {"tier": "quick"}, "converged": False, "actions": ["run the smoke test"]},
    }
    content = {
        "schema": 1,
        "run_id": "20261201T040506Z-0123abcd",
        "host": host,
        "started_at": "2026-12-01T04:05:06Z",
        "finished_at": "2026-12-01T04:25:06Z",
        "outcome": outcome,
        "reason": None,
        "remedy": None,
        "release": "2026.11-longterm",
        "playbook": "site.yml",
        "check_mode": False,
        "facts": {
            "distribution": {"name": "Debian GNU/Linux 13 (trixie)"},
            "kernel": {"release": "6.12.0-amd64"},
            "gpus": [{}] * 8,
            "modules": {"nvidia": {"version": "580.178.04", "flavour": "open"}},
            "packages": {"installed": {"nvidia-fabricmanager": {"version": "580.178.04-1", "held": True}}},
            "docker": {"version": "26.1.5"},
            "nvidia_smi": {"driver_version": "580.178.04", "gpus": [{"name": "NVIDIA H100 80GB HBM3"}] * 8},
        },
        "plan": {"converged": True, "areas": areas, "refusals": [], "warnings": []},
        "plan_after": None,
        "changed": [{"role": "docker", "task": "Write daemon.json", "actions": ["dest=/etc/docker/daemon.json"]}],
        "checks": [
            check("gpu_count", value=8, floor=8, unit="GPUs"),
            check("matmul_exact.bf16", value=0.1234567891, unit="relative", gpu=GPU, duration_s=1.5),
            check("fabric", "not_applicable", reason="this board has no NVSwitch"),
        ],
        "verdict": "accepted",
        "smoke_test": {"seconds": 40},
        "stamp": {"time": "2026-12-01T04:25:00Z"},
        "failed_task": None,
        "versions": {"rackready": "0.1.0", "ansible": "2.19.14"},
        "tasks": dict.fromkeys(("ok", "changed", "failed", "skipped", "ignored", "rescued"), 0),
        **values,
    }
    jsonschema.Draft202012Validator(SCHEMA).validate(content)
    return content


def write(directory: Path, *records: dict[str, Any]) -> Path:
    for content in records:
        folder = directory / content["host"]
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("20261201T040506Z.json", "latest.json"):
            (folder / name).write_text(json.dumps(content), encoding="utf-8")
    return directory


def test_every_outcome_has_a_colour_and_a_side() -> None:
    outcomes = set(SCHEMA["properties"]["outcome"]["enum"])
    assert set(COLOURS) == outcomes
    assert outcomes > GOOD


@pytest.mark.parametrize("outcome", SCHEMA["properties"]["outcome"]["enum"])
def test_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: str) -> None:
    write(tmp_path, record("h100-01"), record("h100-02", outcome))
    assert main(["report", "--records", str(tmp_path)]) == (0 if outcome in ("accepted", "simulated", "converged", "planned") else 1)
    assert main(["report", "--records", str(tmp_path), "h100-01"]) == 0
    capsys.readouterr()


def shown(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_overview(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setattr("shutil.which", str)
    write(tmp_path, record("h100-01"), record("h100-02", "rejected", reason="gpu_count: 7 of 8 [GPU 3 is missing]", remedy="Reseat it."))
    assert main(["report", "--records", str(tmp_path)]) == 1
    assert shown(capsys) == [
        "host     outcome   release           time (UTC)        GPUs",
        "h100-01  accepted  2026.11-longterm  2026-12-01 04:25  8x H100 80GB HBM3",
        f"  record  {tmp_path}/h100-01/20261201T040506Z.json",
        "h100-02  rejected  2026.11-longterm  2026-12-01 04:25  8x H100 80GB HBM3",
        "  why     gpu_count: 7 of 8 [GPU 3 is missing]",
        "  do now  Reseat it.",
        f"  record  {tmp_path}/h100-02/20261201T040506Z.json",
        "",
        "accepted: every required check passed on the GPUs",
        "rejected: a required check failed: the host must not be used",
        f"All about one host: rackready report --records {tmp_path} h100-01",
    ]


@pytest.mark.parametrize("command", ["rackready", "python -m rackready.cli"])
def test_what_to_call_for_one_host_can_be_called_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    if command == "rackready":
        (tmp_path / command).touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "records", record())
    main(["report"])
    assert shown(capsys)[-1] == f"All about one host: {command} report h100-01"


@pytest.mark.parametrize("outcome", SCHEMA["properties"]["outcome"]["enum"])
def test_a_hundred_columns_are_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, outcome: str) -> None:
    """Into a pipe or a file too, with long names, boards of mixed cards and long sentences. Only a path may be longer: it is for copying."""
    monkeypatch.delenv("COLUMNS", raising=False)
    mixed = {"nvidia_smi": {"gpus": [{"name": f"NVIDIA H100 80GB HBM3 number {number}"} for number in range(8)]}}
    write(tmp_path, record("gpu-node-17.cluster.example", outcome, reason="word " * 200, remedy="do " * 80, facts=mixed))
    main(["report", "--records", str(tmp_path)])
    lines = shown(capsys)
    assert max(len(line) for line in lines if not line.startswith(("  record", "All about"))) <= 100
    [row] = [line for line in lines if line.startswith("gpu-node-17.cluster.example")]
    assert row.endswith("…")
    assert f"  record  {tmp_path}/gpu-node-17.cluster.example/20261201T040506Z.json" in lines


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_narrow_terminals_lose_nothing_of_a_reason_or_a_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    reason = "no route to the host (10.0.0.1) through the gateway of the management network, which answers"
    write(tmp_path, record("h100-01", "unreachable", reason=reason))
    assert main(["report", "--records", str(tmp_path)]) == 1
    lines = shown(capsys)
    first = next(number for number, line in enumerate(lines) if line.startswith("  why"))
    last = next(number for number, line in enumerate(lines) if line.startswith("  record"))
    assert " ".join(line[10:] for line in lines[first:last]) == reason
    assert lines[last] == f"  record  {tmp_path}/h100-01/20261201T040506Z.json"


def test_the_path_is_that_of_a_file_that_stays(tmp_path: Path) -> None:
    """latest.json is another run's tomorrow. Two runs of one second have a file each."""
    other = record("h100-01", run_id="20261201T040506Z-ffffffff")
    write(tmp_path, record("h100-01"))
    folder = tmp_path / "h100-01"
    for name in ("20261201T040506Z-2.json", "latest.json"):
        (folder / name).write_text(json.dumps(other), encoding="utf-8")
    [found], problems = newest_records(tmp_path)
    assert (found.path, found.record, problems) == (folder / "20261201T040506Z-2.json", other, [])
    (folder / "20261201T040506Z-2.json").unlink()
    [found], _ = newest_records(tmp_path)
    assert found.path == folder / "latest.json"


def test_every_outcome_is_explained() -> None:
    assert set(MEANING) == set(SCHEMA["properties"]["outcome"]["enum"])


def test_host_without_facts_or_plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lost = record("h100-01", "unreachable", reason="no route to host", facts=None, plan=None, checks=[], verdict=None, changed=[], stamp=None, release=None)
    write(tmp_path, lost)
    assert main(["report", "--records", str(tmp_path)]) == 1
    assert main(["report", "--records", str(tmp_path), "h100-01"]) == 1
    text = capsys.readouterr().out.split("# h100-01: unreachable")[1]
    assert "no route to host" in text
    assert "## Installed" not in text


def test_page() -> None:
    text = page(record())
    assert text.startswith("# h100-01: accepted\n")
    for line in (
        "| GPUs | 8x NVIDIA H100 80GB HBM3 |",
        "| Driver | 580.178.04 open |",
        "| Fabric manager | 580.178.04-1 (held) |",
        "| MIG | 8 GPUs disabled |",
        "| Image digest | sha256:abc |",
        "- docker: Write daemon.json (dest=/etc/docker/daemon.json)",
        "| gpu_count |  | pass | 8 | 8 | GPUs |  |",
        "| matmul_exact.bf16 | 0000:1a:00.0 | pass | 0.123457 |  | relative |  |",
        "- fabric (not_applicable): this board has no NVSwitch",
    ):
        assert line in text.splitlines()
    # The smoke test ran in this run, so that it was due before is nothing to do now.
    assert "still to do" not in text


def test_page_says_what_is_wrong_and_what_to_do() -> None:
    bad = check("all_reduce_exact", "fail", value=3, reason="rank 3 | differs", remedy="Reseat GPU 3.")
    plan = {"areas": {"docker": {"converged": False, "actions": ["install docker.io=26.1.5"]}}, "warnings": ["unverified: x"], "refusals": []}
    text = page(record(outcome="rejected", reason="all_reduce_exact: `rank` 3", remedy="Reseat GPU 3.", checks=[bad], plan=plan, verdict="rejected"))
    lines = text.splitlines()
    assert "all_reduce_exact: \\`rank\\` 3" in lines
    assert "**Now:** Reseat GPU 3." in lines
    assert "| all_reduce_exact |  | fail | 3 |  |  | rank 3 \\| differs Now: Reseat GPU 3. |" in lines
    assert lines[-2:] == ["- unverified: x", "- docker: install docker.io=26.1.5"]


def test_page_of_measurements_shows_the_number_and_the_floor() -> None:
    """Samples, kernel, conditions and source are in the record."""
    value = {"median": 663.71, "samples": [660.0, 663.71], "unit": "TFLOP/s", "kernel": "torch.mm"}
    speed = check("speed.matmul.bf16", value=value, floor={"floor": 620, "gpus": 1, "source": ["x"]}, unit="TFLOP/s", gpu=GPU)
    odd = check("speed.memory.copy", "could_not_run", value={"median": "fast"}, unit="GB/s")
    lines = page(record(checks=[speed, odd])).splitlines()
    assert "| speed.matmul.bf16 | 0000:1a:00.0 | pass | 663.71 | 620 | TFLOP/s |  |" in lines
    assert '| speed.memory.copy |  | could_not_run | {"median": "fast"} |  | GB/s |  |' in lines


def test_page_says_what_was_never_exercised_and_what_was_run_again() -> None:
    retries = [{"reason": "the ranks could not meet", "seconds": 8.1}]
    smoke_test = {"not_exercised": ["exchange between hosts: one host was tested by itself"], "retries": retries}
    lines = page(record(smoke_test=smoke_test)).splitlines()
    assert "- exchange between hosts: one host was tested by itself" in lines
    assert "Run again after 8.1 s: the ranks could not meet" in lines


def test_page_of_a_test_together_with_other_hosts() -> None:
    checks = [
        check("hosts_pairs"),
        check("speed.hosts.pair.busbw", "fail", value={"best": 24.0, "pairs": {"h100-02": 24.0}}, unit="GB/s", reason="slow", remedy="look"),
        check("speed.hosts.all_reduce.busbw", "not_applicable", reason="on the CPU"),
    ]
    cluster = {"verdict": "rejected", "reason": "slow", "remedy": "look", "checks": checks, "hosts": ["h100-01", "h100-02"]}
    lines = page(record(outcome="rejected", checks=[], cluster=cluster)).splitlines()
    assert "## Checks of h100-01, h100-02 together" in lines
    assert "| speed.hosts.pair.busbw |  | fail | 24 |  | GB/s | slow Now: look |" in lines
    assert "- speed.hosts.all_reduce.busbw (not_applicable): on the CPU" in lines
    assert "No smoke test ran in this run." not in lines
    cases = ElementTree.fromstring(junit([record(outcome="rejected", checks=[check("a")], cluster=cluster)])).iter("testcase")
    assert [case.get("name") for case in cases] == ["outcome", "a", *(one["name"] for one in checks)]


def test_simulated_host_says_that_no_gpu_was_exercised() -> None:
    assert "- the GPUs: this is a simulated host, the arithmetic ran on its CPU" in page(record(outcome="simulated")).splitlines()


def test_json_is_the_records(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = record("h100-01", reason="Größe"), record("h100-02")
    write(tmp_path, second, first)
    assert main(["report", "--records", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [first, second]


def test_junit(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checks = [
        check("a", gpu=GPU, duration_s=1.5),
        check("b", "fail", reason="wrong\x00 sum", value=1, floor=2, unit="x"),
        check("c", "could_not_run"),
        check("d", "not_applicable", reason="one GPU"),
        check("e", "fail", required=False),
        check("f", "degraded"),
    ]
    write(tmp_path, record("h100-01", "rejected", reason="b", checks=checks))
    target = tmp_path / "junit.xml"
    assert main(["report", "--records", str(tmp_path), "--junit", str(target)]) == 1
    capsys.readouterr()
    suite = ElementTree.fromstring(target.read_bytes()).find("testsuite")
    assert suite is not None
    assert {key: suite.get(key) for key in ("name", "tests", "failures", "errors", "skipped")} == {
        "name": "h100-01",
        "tests": "7",
        "failures": "2",
        "errors": "1",
        "skipped": "1",
    }
    results = {case.get("name"): [child.tag for child in case] for case in suite}
    assert results == {
        "outcome": ["failure"],
        "a [0000:1a:00.0]": ["system-out"],
        "b": ["failure"],
        "c": ["error"],
        "d": ["skipped"],
        "e": ["system-out"],
        "f": ["system-out"],
    }


def test_junit_of_a_host_without_checks_is_not_green() -> None:
    root = ElementTree.fromstring(junit([record("h100-01", "interrupted", checks=[], verdict=None)]))
    assert [child.tag for child in root.iter() if child.tag == "failure"] == ["failure"]


def test_damaged_latest_falls_back_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, record("h100-01"))
    (tmp_path / "h100-01/latest.json").write_text('{"schema": 1, "ho', encoding="utf-8")
    (tmp_path / "h100-01/.20261201T050506Z.json.tmp").write_text("", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    assert main(["report", "--records", str(tmp_path)]) == 2
    said = capsys.readouterr()
    assert "h100-01" in said.out
    assert "latest.json is missing or damaged; shown is the record of 2026-12-01T04:25:06Z" in said.err
    assert "empty: no readable record" in said.err


def test_unknown_host_and_empty_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--records", str(tmp_path / "nowhere")]) == 2
    assert "no records in" in capsys.readouterr().err
    write(tmp_path, record("h100-01"))
    assert main(["report", "--records", str(tmp_path), "h100-01", "h100-99"]) == 2
    assert "h100-99: no record in" in capsys.readouterr().err
    with pytest.raises(NoRecordError):
        newest_records(tmp_path / "nowhere")
