# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans as `rackready plan` prints them: golden files (tests/unit/golden.py says how they are written), widths and groups."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils import plan_text
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from ansible_collections.rackready.gpu.plugins.plugin_utils.record_masking import MASK, to_plain
from rich.console import Console

from rackready.plan_table import MASKED, Planned, show
from rackready.saved_facts import SavedFacts
from tests.unit import golden
from tests.unit.hosts import facts_for
from tests.unit.plans import accept, apply_plan, plan_for

DIRECTORY = Path(__file__).with_name("golden")
RECORDS = Path("records")


def planned(host: str = "h100-01", facts: dict[str, Any] | None = None, **variables: Any) -> Planned:
    facts = facts_for() if facts is None else facts
    return Planned({**plan_for(facts, **variables), "host": host}, SavedFacts(facts, RECORDS / host / "latest.json"))


def converged() -> dict[str, Any]:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    return accept(facts, plan_for(facts))


def shown(*entries: Planned, width: int = 100) -> str:
    text = io.StringIO()
    show(entries, Console(file=text, width=width), load())
    return "".join(f"{line.rstrip()}\n" for line in text.getvalue().splitlines())


FLEET: dict[str, Callable[[], list[Planned]]] = {
    "one-bare-host": lambda: [planned()],
    "one-refused-host": lambda: [planned(facts=facts_for(gpus=7))],
    "fleet": lambda: [
        planned("h100-01", converged()),
        *(planned(f"h100-0{number}") for number in (2, 3, 4)),
        planned("h100-05", facts_for(gpus=7)),
        planned("h100-06", converged(), pytorch_image_ref="docker.io/site/torch:1", rackready_lock=None),
    ],
}


@pytest.mark.parametrize("name", FLEET)
def test_the_golden_table_is_the_one_that_was_looked_at(name: str) -> None:
    golden.compare(DIRECTORY / f"plan-{name}.txt", shown(*FLEET[name]()))


def test_no_golden_table_is_left_over() -> None:
    golden.nothing_else_in(DIRECTORY, [f"plan-{name}.txt" for name in FLEET])


def test_one_host_is_told_in_the_lines_of_the_playbook() -> None:
    """The table is added; nothing is left out and nothing is told in other words."""
    facts = facts_for()
    found = shown(planned(), width=400).splitlines()
    assert [line for line in plan_text.lines(plan_for(facts), facts, load()) if line not in found] == []


def test_refused_hosts_come_first_and_hosts_of_which_the_same_is_to_be_said_are_told_once() -> None:
    found = shown(planned("a"), planned("b", facts_for(gpus=7)), planned("c")).splitlines()
    assert [line.partition(":")[0] for line in found if " x H100" in line] == ["b", "a, c"]
    assert [line for line in found if line.startswith("a and 1 more  host_tuning")]
    assert "What would be done and why: the same command with one host." in found


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_loses_nothing(width: int) -> None:
    found = shown(planned(facts=facts_for(gpus=7)), width=width)
    assert " ".join(plan_for(facts_for(gpus=7))["refusals"][0].split()) in " ".join(found.split())
    words = "".join(shown(planned(), width=width).split())
    assert "".join(["install", "nvidia-fabricmanager=580.178.04-1"]) in words
    assert max(len(line) for line in shown(planned(), width=width).splitlines() if "sha256" not in line and "/" not in line) <= width


def test_what_a_record_hides_is_said_where_it_could_matter() -> None:
    options: dict[str, Any] = {"docker_daemon_options": {"log-driver": "local"}}
    facts = apply_plan(facts_for(), plan_for(facts_for(), **options))
    assert plan_for(facts, **options)["areas"]["docker"]["converged"]
    recorded = to_plain(facts)
    assert MASK in str(recorded)
    said = " ".join(shown(planned(facts=recorded, **options)).split())
    assert MASKED in said
    assert MASKED not in " ".join(shown(planned(facts=facts, **options)).split())


def test_brackets_in_a_sentence_are_no_markup() -> None:
    entry = planned()
    entry.plan["warnings"] = ["the unit [bold]x[/bold] has failed"]
    assert "  WARNING  the unit [bold]x[/bold] has failed" in shown(entry).splitlines()
