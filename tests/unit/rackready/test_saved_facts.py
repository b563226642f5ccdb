# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts that were kept: every form that they come in, and one sentence for what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rackready.saved_facts import SavedFactsError, from_file, from_records
from tests.unit.hosts import facts_for

FACTS = facts_for()


def kept(directory: Path, content: Any) -> Path:
    path = directory / "facts.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "content",
    [FACTS, {"gpu_host": FACTS}, {"ansible_facts": {"gpu_host": FACTS}, "changed": False}, {"schema": 1, "host": "x", "facts": FACTS}],
    ids=["value", "facts by name", "result of the module", "record"],
)
def test_facts_are_found_in_whatever_holds_them(tmp_path: Path, content: Any) -> None:
    assert from_file(kept(tmp_path, content)).facts == FACTS


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ([], "holds no facts"),
        ({"schema": 1, "facts": None}, "holds no facts"),
        ({"gpu_host": []}, "there are no facts"),
        ({**FACTS, "schema": 2}, "its facts have schema 2, this planner reads 1"),
        ({**FACTS, "gpus": "eight"}, "at $.gpus ('eight' is not of type 'array')"),
        ({**FACTS, "docker": {}}, "at $.docker"),
        # Versions that nothing can be compared with.
        ({**FACTS, "docker": {**FACTS["docker"], "version": "dev"}}, "at $.docker.version"),
        ({**FACTS, "docker": {**FACTS["docker"], "running_version": ""}}, "at $.docker.running_version"),
        ({**FACTS, "packages": {**FACTS["packages"], "installed": {"dkms": {"version": "", "held": False}}}}, "at $.packages.installed.dkms.version"),
    ],
)
def test_what_is_no_facts_is_told_in_one_sentence(tmp_path: Path, content: Any, words: str) -> None:
    with pytest.raises(SavedFactsError) as told:
        from_file(kept(tmp_path, content))
    assert words in str(told.value)
    assert "facts.json" in str(told.value)
    assert "\n" not in str(told.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SavedFactsError, match=r"nothing\.json cannot be read: No such file"):
        from_file(tmp_path / "nothing.json")


def record(directory: Path, host: str, facts: Any, outcome: str = "planned") -> None:
    folder = directory / host
    folder.mkdir(parents=True)
    content = {"schema": 1, "host": host, "run_id": "20261201T040506Z-0123abcd", "outcome": outcome, "facts": facts}
    for name in ("latest.json", "20261201T040506Z.json"):
        (folder / name).write_text(json.dumps(content), encoding="utf-8")


def test_records_give_facts_or_say_why_not(tmp_path: Path) -> None:
    record(tmp_path, "h100-01", FACTS)
    record(tmp_path, "h100-02", None, "unreachable")
    record(tmp_path, "h100-03", {**FACTS, "schema": 0})
    record(tmp_path, "h100-04", FACTS)
    facts, problems = from_records(tmp_path, ["h100-01", "h100-02", "h100-03", "h100-05"])
    assert {host: saved.path for host, saved in facts.items()} == {"h100-01": tmp_path / "h100-01/20261201T040506Z.json"}
    assert sorted(problem.partition(":")[0] for problem in problems) == ["h100-02", "h100-03", "h100-05"]
    assert any("holds no facts, as the host was unreachable" in problem for problem in problems)


def test_without_any_record_it_says_where_it_looked(tmp_path: Path) -> None:
    assert from_records(tmp_path / "records", ["h100-01"]) == ({}, [f"h100-01: no record in {tmp_path}/records. Provision or plan it first."])
