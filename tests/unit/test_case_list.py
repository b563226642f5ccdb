# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No case is without a test: ``tests/fixtures/cases.yml`` names the tests of each, and they are there."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
LISTS: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load((ROOT / "tests/fixtures/cases.yml").read_text(encoding="utf-8"))


def numbered(letter: str, *numbers: int) -> set[str]:
    return {f"{letter}{number}" for number in numbers}


# The ids of the case files. E and I are spread over three of them.
IDS = {
    "planner": numbered("P", *range(1, 31)),
    "driver": numbered("A", *range(1, 14))
    | numbered("B", *range(1, 8))
    | numbered("C", *range(1, 6))
    | numbered("D", *range(1, 9))
    | numbered("E", 1, 2, 5, 8, 9)
    | numbered("I", 1, 3, 4),
    "containers": numbered("E", 3, 4, 6, 7) | numbered("F", *range(1, 15)),
    "mig": numbered("G", *range(1, 12)) | numbered("M", *range(1, 13)),
    "verification": numbered("H", *range(1, 8)) | numbered("I", 2) | numbered("V", *range(1, 36)),
}
CASES = {case: entry for cases in LISTS.values() for case, entry in cases.items()}
REFERENCE = re.compile(r"(?P<file>[\w/.-]+\.py)::(?P<test>test_\w+)(?:\[(?P<row>.+)\])?")
BY_NAME = re.compile(r"test_((?:[a-z]\d+_)+)")


@cache
def read(file: str) -> tuple[frozenset[str], frozenset[str]]:
    """The test functions of a file, and the texts in it: the name of a table's row is one of them."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    functions = frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
    return functions, frozenset(node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.parametrize("name", IDS)
def test_every_case_of_the_list_has_a_test(name: str) -> None:
    assert set(LISTS[name]) == IDS[name]
    assert [case for case, entry in LISTS[name].items() if not entry["tests"]] == []


@pytest.mark.parametrize("case", CASES)
def test_the_tests_of_a_case_are_there(case: str) -> None:
    entry = CASES[case]
    assert set(entry) <= {"tests", "open"}
    for reference in entry["tests"]:
        match = REFERENCE.fullmatch(reference)
        assert match is not None, reference
        assert (ROOT / match["file"]).is_file(), reference
        functions, texts = read(match["file"])
        assert match["test"] in functions, reference
        assert match["row"] is None or match["row"] in texts, reference


def test_the_lists_are_all_there_are() -> None:
    assert set(LISTS) == set(IDS)
    assert sum(len(cases) for cases in LISTS.values()) == len(CASES), "an id is in one list only"


def test_a_test_that_has_the_id_of_a_case_in_its_name_is_in_its_list() -> None:
    """Otherwise the list would not be where one looks what a case has."""
    found: dict[str, set[str]] = {}
    for path in sorted([*ROOT.glob("tests/unit/**/test_*.py"), *ROOT.glob("molecule/*/tests/test_*.py")]):
        for function in read(path.relative_to(ROOT).as_posix())[0]:
            match = BY_NAME.match(function)
            for case in match.group(1).upper().split("_")[:-1] if match else []:
                if case in CASES:
                    found.setdefault(case, set()).add(function)
    listed = {case: {reference.partition("::")[2].partition("[")[0] for reference in entry["tests"]} for case, entry in CASES.items()}
    assert len(found) > 40
    assert {case: sorted(functions - listed[case]) for case, functions in found.items() if functions - listed[case]} == {}
