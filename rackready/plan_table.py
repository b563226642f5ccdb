# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans on a terminal. What is said of a plan is plugin_utils/plan_text.py's, as in playbooks/plan.yml; here areas become a table, and hosts of which the
same is to be said become one."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackready.gpu.plugins.plugin_utils import plan_text
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackready.saved_facts import SavedFacts

STYLES = {"  REFUSED": "magenta", "  WARNING": "yellow"}
MASKED = (
    "What a record hides (********) counts as it stands there, so Docker's daemon.json may be shown as to be written although it holds: playbooks/plan.yml "
    "asks the host itself."
)


class Planned(NamedTuple):
    """The plan of a host, and what it was made from."""

    plan: dict[str, Any]
    saved: SavedFacts


class Group(NamedTuple):
    """Hosts of which the same is to be said."""

    hosts: list[str]
    machine: str
    summary: list[str]
    rows: list[plan_text.Row]
    needs: list[str]


def grouped(planned: Iterable[Planned], catalog: Catalog) -> list[Group]:
    """Refused hosts first, else in the order of the inventory."""
    groups: dict[str, Group] = {}
    for plan, saved in sorted(planned, key=lambda entry: not entry.plan["refusals"]):
        said = (plan_text.machine(saved.facts, catalog), plan_text.summary(plan), plan_text.rows(plan), plan_text.needs(plan, catalog))
        groups.setdefault(repr(said), Group([], *said)).hosts.append(plan["host"])
    return list(groups.values())


def show(planned: Sequence[Planned], console: Console, catalog: Catalog) -> None:
    """What is said of each host, refusals first, and one table of all; of a single host also each action and why."""
    groups = grouped(planned, catalog)
    for group in groups:
        say(console, f"{', '.join(group.hosts)}: {group.machine}", "bold")
        for line in (*group.summary, *group.needs):
            say(console, line, STYLES.get(line[:9], ""))
    if any(group.rows for group in groups):
        console.print()
        console.print(table(groups))
    console.print()
    if len(planned) == 1:
        for line in plan_text.details(planned[0].plan):
            say(console, line)
        say(console, f"facts: {planned[0].saved.path}, {read(planned)}")
    else:
        paths = {entry.saved.path for entry in planned}
        say(console, f"facts: {f'{paths.pop()},' if len(paths) == 1 else 'the newest records, the oldest'} {read(planned)}")
        say(console, "What would be done and why: the same command with one host.")
    if any(entry.saved.masked and not entry.plan["areas"].get("docker", {"converged": True})["converged"] for entry in planned):
        say(console, MASKED)


def read(planned: Iterable[Planned]) -> str:
    """Of which host and when the oldest facts are."""
    oldest = min((entry.saved.facts for entry in planned), key=lambda facts: str(facts["collected_at"]))
    return f"read from {oldest['hostname']} at {oldest['collected_at'].replace('T', ' ').removesuffix('Z')} UTC"


def table(groups: Sequence[Group]) -> Table:
    """A row an area, for each group of hosts."""
    several = len(groups) > 1
    found = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    for name in ("hosts", "area", "now", "planned") if several else ("area", "now", "planned"):
        found.add_column(name, overflow="fold", no_wrap=name == "area")
    found.add_column("actions", justify="right")
    for group in groups:
        more = f" and {len(group.hosts) - 1} more" if len(group.hosts) > 1 else ""
        for number, row in enumerate(group.rows):
            host = [Text(f"{group.hosts[0]}{more}" if number == 0 else "")] if several else []
            style = "" if row.actions or row.planned == "not planned" else "dim"
            found.add_row(*host, *map(Text, (row.area, row.now, row.planned, str(row.actions or ""))), style=style, end_section=number == len(group.rows) - 1)
    return found


def say(console: Console, line: str, style: str = "") -> None:
    """A line; where the console is narrower, the lines that it goes on in are indented as it is."""
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    for part in textwrap.wrap(line, max(20, console.width), subsequent_indent=indent, break_on_hyphens=False, break_long_words=False) or [""]:
        # Text, not str: a sentence with brackets is no markup.
        console.print(Text(part, style), soft_wrap=True)
