# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The module's edge: the plan's request in, what was done or one sentence out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.module_utils.testing import patch_module_args
from ansible_collections.rackready.gpu.plugins.module_utils import tool_archive, verify_install, verify_tool
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands
from ansible_collections.rackready.gpu.plugins.modules import gpu_verify_tool

from tests.unit.hosts import CONVERGED, Answers, facts_for
from tests.unit.plans import plan_for

REQUEST: dict[str, Any] = plan_for(facts_for(**CONVERGED))["areas"]["smoke_test"]["desired"]
OFF = "Id=rackready-verify.timer\nLoadState=loaded\nActiveState=inactive\nUnitFileState=disabled\nNeedDaemonReload=no\n"


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where files are written instead of /, on a host whose systemd has the timer and has it off."""
    answers = Answers()
    answers["systemctl show"] = OFF

    def bring(request: dict[str, Any], timer: str, commands: Commands, dry: bool) -> dict[str, Any]:
        return verify_install.bring(request, timer, answers, dry, tmp_path)

    monkeypatch.setattr(gpu_verify_tool, "bring", bring)
    return tmp_path


def call(capsys: pytest.CaptureFixture[str], **arguments: Any) -> dict[str, Any]:
    with patch_module_args({"request": REQUEST, **arguments}), pytest.raises(SystemExit):
        gpu_verify_tool.main()
    returned: dict[str, Any] = json.loads(capsys.readouterr().out)
    return returned


def test_what_the_plan_asks_for_is_installed_and_a_second_time_changes_nothing(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    first, second = call(capsys), call(capsys)
    assert (first["changed"], second["changed"]) == (True, False)
    assert first["actions"][-1] == f"write {verify_tool.TOOL}" and second["actions"] == []
    assert json.loads((root / verify_tool.REQUEST[1:]).read_text(encoding="utf-8")) == REQUEST


def test_check_mode_writes_nothing(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    told = call(capsys, _ansible_check_mode=True)
    assert (told["changed"], list(root.iterdir())) == (True, [])
    assert told["actions"] == call(capsys)["actions"]


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({}, "KeyError"),
        ({**REQUEST, "gpus": ["0000:1a:00.0"]}, "TypeError"),
        ({**REQUEST, "image": "pytorch:latest"}, "is not given by digest"),
        ({**REQUEST, "tier": "long", "stamp": {**REQUEST["stamp"], "tier": "long"}}, "tier 'long' is not one of quick, accept, burn"),
    ],
)
def test_what_the_command_could_not_use_is_not_installed(capsys: pytest.CaptureFixture[str], root: Path, request_: dict[str, Any], words: str) -> None:
    told = call(capsys, request=request_)
    assert told["failed"] and told["msg"].startswith("the request is none that the command could use (") and words in told["msg"]
    assert "give it as the plan has it" in told["msg"]
    assert list(root.iterdir()) == []


def test_a_file_system_that_cannot_be_written_is_a_sentence(capsys: pytest.CaptureFixture[str], root: Path) -> None:
    (root / "etc").write_text("", encoding="utf-8")
    told = call(capsys)
    assert told["failed"]
    assert told["msg"].startswith("what the host tests itself with cannot be written (") and told["msg"].endswith("mend that file system and run again")


def test_a_systemd_that_refuses_is_a_sentence(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def bring(*_arguments: Any) -> dict[str, Any]:
        raise verify_install.VerifyToolError("systemctl enable exited 1: no: look at `systemctl status` on the host and run again")

    monkeypatch.setattr(gpu_verify_tool, "bring", bring)
    told = call(capsys, timer="daily")
    assert (told["failed"], told["msg"]) == (True, "systemctl enable exited 1: no: look at `systemctl status` on the host and run again")


def test_sources_that_cannot_be_read_are_a_sentence(capsys: pytest.CaptureFixture[str], root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(entry: str) -> bytes:
        raise OSError("facts.py cannot be read from where rackready was loaded (/x)")

    verify_tool.tool.cache_clear()
    monkeypatch.setattr(tool_archive, "build", build)
    told = call(capsys)
    verify_tool.tool.cache_clear()
    assert told["failed"] and "facts.py cannot be read" in told["msg"]


def test_documentation_says_what_there_is() -> None:
    documented = yaml.safe_load(gpu_verify_tool.DOCUMENTATION)
    assert set(documented["options"]) == {"request", "timer"}
    assert documented["options"]["timer"]["default"] == verify_tool.OFF
    assert verify_tool.TOOL in str(documented["description"]) and verify_tool.REQUEST in str(documented["description"])
    assert set(yaml.safe_load(gpu_verify_tool.RETURN)) == {"actions"}
