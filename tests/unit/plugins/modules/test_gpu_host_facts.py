# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module as Ansible runs it: arguments, refusals, and one real collection from the machine that runs the test."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.rackready.gpu.plugins.doc_fragments.attributes import ModuleDocFragment
from ansible_collections.rackready.gpu.plugins.module_utils.units import UnitsError
from ansible_collections.rackready.gpu.plugins.modules import gpu_host_facts
from jsonschema import Draft202012Validator

from tests.unit.hosts import Facts, facts_for

SCHEMA = json.loads((Path(__file__).parents[4] / "plugins/plugin_utils/schemas/facts.schema.json").read_text())


def run(capsys: pytest.CaptureFixture[str], arguments: dict[str, Any]) -> dict[str, Any]:
    with patch_module_args(arguments), pytest.raises(SystemExit):
        gpu_host_facts.main()
    answer: dict[str, Any] = json.loads(capsys.readouterr().out)
    return answer


@pytest.mark.parametrize("check_mode", [False, True])
def test_facts_come_back_and_nothing_changes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], check_mode: bool) -> None:
    limits: list[float] = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def gather(limit: float) -> Facts:
        limits.append(limit)
        return facts_for()

    monkeypatch.setattr(gpu_host_facts, "gather", gather)
    answer = run(capsys, {"smi_timeout": 60, "_ansible_check_mode": check_mode})
    assert answer["ansible_facts"] == {"gpu_host": facts_for()}
    assert (answer["changed"], limits) == (False, [60])


def test_needs_root(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    answer = run(capsys, {})
    assert answer["failed"] is True
    assert answer["msg"].startswith(f"{os.uname().nodename}: gpu_host_facts runs as user 1000 and needs root, ")
    assert answer["msg"].endswith("Set `become: true` or connect as root.")


def test_limit_must_be_a_time(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert "smi_timeout is 0; give a number of seconds from 1 on." in run(capsys, {"smi_timeout": 0})["msg"]


@pytest.mark.parametrize(
    ("error", "words"),
    [(UnitsError("systemctl show did not end within 10 s and was given up"), "systemd does not answer"), (OSError(5, "Input/output error"), "cannot be read")],
)
def test_host_that_cannot_be_read(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], error: Exception, words: str) -> None:
    def broken(limit: float) -> None:
        raise error

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(gpu_host_facts, "gather", broken)
    answer = run(capsys, {})
    assert answer["failed"] is True
    assert words in answer["msg"]
    assert str(error) in answer["msg"]


@pytest.mark.skipif(os.geteuid() != 0, reason="reads the machine that runs the test, which takes root")
def test_machine_that_runs_the_test(capsys: pytest.CaptureFixture[str]) -> None:
    started = time.monotonic()
    answer = run(capsys, {})
    assert time.monotonic() - started < 16
    Draft202012Validator(SCHEMA).validate(answer["ansible_facts"]["gpu_host"])


def test_documentation_states_what_the_fragment_names() -> None:
    documentation = yaml.safe_load(gpu_host_facts.DOCUMENTATION)
    assert documentation["options"]["smi_timeout"]["default"] == 15
    described = yaml.safe_load(ModuleDocFragment.DOCUMENTATION)["attributes"]
    stated = yaml.safe_load(ModuleDocFragment.READ_ONLY)["attributes"]
    assert set(described) == set(stated) == {"check_mode", "diff_mode", "idempotent"}
    assert all("description" in attribute for attribute in described.values())
    assert all("support" in attribute for attribute in stated.values())
