# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

from pathlib import Path

import pytest
from lab.steps import Steps, digest_of


class Kitchen:
    """A step that counts how often it was made."""

    def __init__(self, stamps: Path) -> None:
        self.lines: list[str] = []
        self.made = 0
        self.there = False
        self.steps = Steps(stamps, self.lines.append, clock=lambda: float(self.made))

    def make(self) -> None:
        self.made += 1
        self.there = True

    def run(self, inputs: str) -> bool:
        return self.steps.run("soup", "a soup", inputs, made=lambda: self.there, make=self.make)


def test_a_step_is_made_once_for_the_same_inputs(tmp_path: Path) -> None:
    kitchen = Kitchen(tmp_path / "stamps")
    assert [kitchen.run("carrots"), kitchen.run("carrots")] == [True, False]
    assert kitchen.made == 1
    assert kitchen.lines == ["  made      1.0s  a soup", "  kept            a soup"]


def test_a_step_is_made_again_when_inputs_change_or_its_work_is_gone(tmp_path: Path) -> None:
    kitchen = Kitchen(tmp_path)
    kitchen.run("carrots")
    assert kitchen.run("leeks")
    kitchen.there = False
    assert kitchen.run("leeks")
    assert kitchen.made == 3


def test_a_step_that_died_is_made_again_even_if_its_work_seems_to_be_there(tmp_path: Path) -> None:
    kitchen = Kitchen(tmp_path)
    kitchen.run("carrots")

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        kitchen.steps.run("soup", "a soup", "leeks", made=lambda: True, make=die)
    assert kitchen.run("carrots")


def test_digest_sees_contents_names_and_execute_bits_but_no_caches(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("one")
    before = digest_of(tmp_path)
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_text("cache")
    assert digest_of(tmp_path) == before
    (tmp_path / "a").chmod(0o755)
    executable = digest_of(tmp_path)
    (tmp_path / "a").rename(tmp_path / "b")
    renamed = digest_of(tmp_path)
    (tmp_path / "b").write_text("two")
    assert len({before, executable, renamed, digest_of(tmp_path)}) == 4


def test_digest_keeps_parts_apart() -> None:
    assert digest_of("ab", "c") != digest_of("a", "bc")
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})
