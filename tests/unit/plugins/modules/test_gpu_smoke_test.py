# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's edge: options in, exit_json or fail_json out, and check mode that runs nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_machine, smoke_request, smoke_test, stamp
from ansible_collections.rackready.gpu.plugins.module_utils.units import UnitsError
from ansible_collections.rackready.gpu.plugins.modules import gpu_smoke_test

DIGEST = "sha256:" + "cd" * 32
ARGUMENTS: dict[str, Any] = {
    "image": f"registry.example/pytorch@{DIGEST}",
    "gpus": [{"pci_bus_id": "0000:1a:00.0", "compute_capability": "9.0"}],
    "stamp": {"release": "2026.11-longterm", "image_digest": DIGEST, "driver": "580.178.04", "mig": "off", "tier": "quick"},
}
KEYS = {
    "verdict",
    "reason",
    "remedy",
    "checks",
    "seconds",
    "image",
    "backend",
    "tier",
    "torch",
    "topology",
    "not_exercised",
    "retries",
    "container_started",
    "containers_removed",
    "stamp",
}


def result(verdict: str, remedy: str | None = None) -> dict[str, Any]:
    return {**dict.fromkeys(KEYS), "verdict": verdict, "reason": "it was so", "remedy": remedy, "checks": [], "changed": verdict == "accepted"}


def call(capsys: pytest.CaptureFixture[str], arguments: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Exit status and result of the module."""
    with patch_module_args(arguments), pytest.raises(SystemExit) as ended:
        gpu_smoke_test.main()
    code = ended.value.code
    assert isinstance(code, int)
    return code, json.loads(capsys.readouterr().out)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[smoke_request.Request]:
    """Requests that reached the test itself; there it would be accepted."""
    requests: list[smoke_request.Request] = []

    def run_test(request: smoke_request.Request, machine: smoke_machine.Machine) -> dict[str, Any]:
        requests.append(request)
        return result("accepted")

    monkeypatch.setattr(smoke_test, "run_test", run_test)
    return requests


@pytest.mark.parametrize(("verdict", "code"), [("accepted", 0), ("simulated", 0), ("rejected", 1), ("incomplete", 1)])
def test_the_verdict_decides_and_every_key_is_there(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], verdict: str, code: int) -> None:
    monkeypatch.setattr(smoke_test, "run_test", lambda request, machine: result(verdict, "do this"))
    ended, returned = call(capsys, ARGUMENTS)
    assert ended == code
    assert set(returned) >= KEYS
    assert returned["verdict"] == verdict
    assert bool(returned.get("failed")) == bool(code)
    if code:
        assert returned["msg"] == f"{verdict}: it was so. What to do: do this."


def test_options_become_the_request(asked: list[smoke_request.Request], capsys: pytest.CaptureFixture[str]) -> None:
    call(capsys, {**ARGUMENTS, "env": {"NCCL_NVLS_ENABLE": 0}, "backend": "cpu", "ulimits": [], "not_applicable": {"fabric": "none"}, "degraded": "reject"})
    [request] = asked
    assert (request.env, request.backend, request.ulimits, request.degraded) == ({"NCCL_NVLS_ENABLE": "0"}, "cpu", [], "reject")
    assert request.not_applicable == {"fabric": "none"}
    assert request.stamp == {**ARGUMENTS["stamp"], "gpus": None}
    assert (request.timeout, request.limit_s, request.bought) == (None, 300, None)


def test_what_was_bought_and_a_burn_reach_the_request(asked: list[smoke_request.Request], capsys: pytest.CaptureFixture[str]) -> None:
    bought = {"expected": {"model": "h100-sxm5-80gb", "count": 1}, "tier": "burn", "burn_minutes": 30, "data_paths": ["/data"], "floors": {"a": {}}}
    call(capsys, {**ARGUMENTS, **bought})
    [request] = asked
    assert (request.bought, request.burn_minutes, request.data_paths, request.floors) == (("h100-sxm5-80gb", 1), 30, ["/data"], {"a": {}})
    assert request.limit_s == 360 + 1800


def test_check_mode_runs_nothing_and_says_what_it_would(asked: list[smoke_request.Request], capsys: pytest.CaptureFixture[str]) -> None:
    code, returned = call(capsys, {**ARGUMENTS, "_ansible_check_mode": True})
    assert (code, returned["changed"], asked) == (0, True, [])
    assert returned["reason"] == f"would test 1 GPUs in {ARGUMENTS['image']} (backend cuda, tier quick, at most 120 s)"


def test_check_mode_refuses_what_the_test_would_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    code, returned = call(capsys, {**ARGUMENTS, "image": "registry.example/pytorch:latest", "_ansible_check_mode": True})
    assert code == 1
    assert "is not given by digest" in returned["msg"]


@pytest.mark.parametrize(
    "error", [smoke_request.RequestError("GPU x is given twice"), UnitsError("systemd does not answer"), PermissionError(13, "Permission denied")]
)
def test_what_kept_the_test_from_being_made_is_incomplete(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception) -> None:
    def run_test(request: smoke_request.Request, machine: smoke_machine.Machine) -> dict[str, Any]:
        raise error

    monkeypatch.setattr(smoke_test, "run_test", run_test)
    code, returned = call(capsys, ARGUMENTS)
    assert (code, returned["verdict"], returned["checks"]) == (1, "incomplete", [])
    assert str(error) in returned["msg"]


def test_a_test_that_broke_off_tells_the_stamp_that_is_there_now(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    stamps: list[Any] = [{"verdict": "accepted"}]

    def run_test(request: smoke_request.Request, machine: smoke_machine.Machine) -> dict[str, Any]:
        stamps[0] = None
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(smoke_test, "run_test", run_test)
    monkeypatch.setattr(stamp, "read", lambda: stamps[0])
    code, returned = call(capsys, ARGUMENTS)
    assert (code, returned["verdict"], returned["stamp"]) == (1, "incomplete", None)
    assert "stamp" in returned


def test_documentation_and_argument_spec_say_the_same() -> None:
    documented = yaml.safe_load(gpu_smoke_test.DOCUMENTATION)["options"]
    assert set(documented) == set(gpu_smoke_test.ARGUMENTS)
    for name, spec in gpu_smoke_test.ARGUMENTS.items():
        for key in ("type", "default", "choices", "elements", "required"):
            assert documented[name].get(key) == spec.get(key), (name, key)
        assert set(documented[name].get("suboptions", {})) == set(spec.get("options", {}))
    assert set(yaml.safe_load(gpu_smoke_test.RETURN)) == KEYS


def test_a_signal_ends_the_module_by_an_exception() -> None:
    with pytest.raises(SystemExit) as ended:
        gpu_smoke_test.ended_from_outside(15, None)
    assert ended.value.code == 143
