# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The errors that `./dev mutate` makes are those that it says, and of a sample of them none stays unseen."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.mutation.mutants import mutants_of
from tests.mutation.runner import EQUIVALENT, MODULES

ROOT = Path(__file__).parents[3]
SOURCE = '''
LIMITS = [4, "x"]
LEVEL = 2


def judge(value, floor=3, *, strict: bool = False):
    """Words."""
    found = []
    if value < floor and not strict:
        found.append(("fail", f"{value if value else floor} is low"))
    for name in ("a", "b", "c", "d"):
        if name == "b":
            continue
        found += [name]
    return make(found, status=FAIL, required=False, words="1") if value is not None else None


class Box:
    @property
    def full(self):
        return LEVEL - 1 >= len(LIMITS)
'''


def changes() -> list[str]:
    return [f"{mutant.function}: {mutant.before} -> {mutant.after}" for mutant in mutants_of("m", SOURCE)]


@pytest.mark.parametrize(
    "change",
    [
        "LIMITS: 4 -> (left out)",
        "LIMITS: 'x' -> (left out)",
        "LEVEL: 2 -> 3",
        "judge: value < floor -> True",
        "judge: value < floor -> False",
        "judge: value < floor -> value <= floor",
        "judge: value < floor and (not strict) -> value < floor",
        "judge: value < floor and (not strict) -> not strict",
        "judge: not strict -> strict",
        "judge: found.append(('fail', f'{(value if value else floor)} is low')) -> pass",
        "judge: name == 'b' -> True",
        "judge: 'c' -> (left out)",
        "judge: continue -> pass",
        "judge: found += [name] -> pass",
        "judge: FAIL -> DEGRADED",
        "judge: make(found, status=FAIL, required=False, words='1') -> make(found, status=FAIL, words='1')",
        "judge: value is not None -> False",
        "Box.full: LEVEL - 1 >= len(LIMITS) -> LEVEL - 1 > len(LIMITS)",
        "Box.full: LEVEL - 1 -> LEVEL + 1",
        "Box.full: 1 -> 2",
    ],
)
def test_the_errors(change: str) -> None:
    assert change in changes()


def test_words_annotations_and_defaults_are_left_alone() -> None:
    assert not [change for change in changes() if "value if value" in change.partition(" -> ")[0] and "append" not in change]
    assert not [change for change in changes() if change.startswith("judge: 3")]


def test_an_error_is_in_the_function_that_is_loaded() -> None:
    module = types.ModuleType("m")
    module.__file__ = "m.py"
    exec(compile(SOURCE, "m.py", "exec"), vars(module))
    full, limits = module.Box, module.LIMITS
    by_name = {f"{mutant.function}: {mutant.before} -> {mutant.after}": mutant for mutant in mutants_of("m", SOURCE)}
    assert full().full is False
    by_name["Box.full: LEVEL - 1 -> LEVEL + 1"].put_into(module)
    assert full().full is True
    by_name["LEVEL: 2 -> 3"].put_into(module)
    by_name["LIMITS: 4 -> (left out)"].put_into(module)
    assert (module.LEVEL, module.LIMITS, limits) == (3, ["x"], [4, "x"])


def test_what_is_named_as_making_no_difference_says_why() -> None:
    lines = [line for line in EQUIVALENT.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
    assert all(line.partition("  # ")[2] for line in lines)
    assert {line.partition(".")[0] for line in lines} <= set(MODULES)


def test_no_error_of_a_sample_stays_unseen() -> None:
    """All of them are tried by `./dev mutate`."""
    done = subprocess.run([sys.executable, "-m", "tests.mutation", "--sample", "75"], cwd=ROOT, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " errors made in " in done.stdout
