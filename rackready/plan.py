# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`rackready plan`: plans of hosts from saved facts. What is said of a plan is plugin_utils/plan_text.py's; here it becomes a table.

Imports the collection: rackready.collection.make_importable() comes first.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from ansible_collections.rackready.gpu.plugins.plugin_utils import catalog_loader, plan_text
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rackready.inventory import Inventory, InventoryError
from rackready.saved_facts import SavedFacts, SavedFactsError, from_file, from_records

STYLES = {"  REFUSED": "magenta", "  WARNING": "yellow"}
MASKED = (
    "What a record hides (********) counts as it stands there, so Docker's daemon.json may be shown as to be written although it holds: playbooks/plan.yml "
    "asks the host itself."
)


class Planned(NamedTuple):
    """The plan of a host, and what it was made from."""

    plan: dict[str, Any]
    saved: SavedFacts


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Plans, prints what was asked for and returns the exit status."""
    try:
        catalog = catalog_loader.load()
        planned, problems = plans(arguments, catalog)
    except (InventoryError, SavedFactsError) as error:
        planned, problems = [], [str(error)]
    if arguments.json and (planned or not problems):
        # Not through rich: it would wrap and colour.
        console.file.write(json.dumps([entry.plan for entry in planned], ensure_ascii=False, indent=2) + "\n")
    elif planned:
        show(planned, console, catalog)
    for problem in problems:
        print(f"rackready: {problem.rstrip('.')}.", file=sys.stderr)
    if problems:
        return 2
    return 1 if any(entry.plan["refusals"] for entry in planned) else 0


def plans(arguments: argparse.Namespace, catalog: Catalog) -> tuple[list[Planned], list[str]]:
    """The plans of the hosts that were asked for, and a sentence for each host that has none. Raises InventoryError, SavedFactsError."""
    given = from_file(arguments.facts) if arguments.facts else None
    if not arguments.inventory and given is None:
        raise InventoryError("name the inventory with -i, or a facts file with --facts (and its variables with -e)")
    # Without an inventory, a host that is in none: it has the variables of -e and nothing else.
    alone = [f"{','.join(arguments.hosts or [given.facts['hostname']])},"] if given is not None else []
    inventory = Inventory(arguments.inventory or alone, options(arguments))
    hosts = inventory.hosts(arguments.hosts)
    saved, problems = (dict.fromkeys(hosts, given), []) if given is not None else from_records(arguments.records, hosts)
    planned = []
    for host in (host for host in hosts if host in saved):
        try:
            planned.append(Planned(inventory.plan(host, saved[host].facts, catalog), saved[host]))
        except InventoryError as error:
            problems.append(f"{host}: {error}")
    return planned, problems


def options(arguments: argparse.Namespace) -> list[str]:
    """Those that Ansible shall read."""
    vaults = [f"--vault-id={entry}" for entry in arguments.vault_id]
    return [*(f"--extra-vars={entry}" for entry in arguments.extra_vars), *vaults, *(["--ask-vault-pass"] if arguments.ask_vault_pass else [])]


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
    if any(entry.saved.masked for entry in planned):
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
        found.add_column(name, overflow="fold")
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
