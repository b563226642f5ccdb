# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`rackready plan`: plans of hosts from saved facts and the variables of an inventory.

Imports the collection: rackready.collection.make_importable() comes first.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from ansible_collections.rackready.gpu.plugins.plugin_utils import catalog_loader
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog
from rich.console import Console

from rackready.inventory import Inventory, InventoryError
from rackready.plan_table import Planned, show
from rackready.saved_facts import SavedFactsError, from_file, from_records


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Plans, prints what was asked for and returns the exit status."""
    catalog = catalog_loader.load()
    try:
        planned, problems = plans(arguments, catalog)
    except (InventoryError, SavedFactsError) as error:
        planned, problems = [], [str(error)]
    if planned and arguments.json:
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
    """Those that Ansible shall read; raises InventoryError for a file that is not there."""
    for entry in arguments.extra_vars:
        if entry.startswith("@") and not Path(entry[1:]).is_file():
            raise InventoryError(f"there is no file of variables {entry[1:]}")
    vaults = [f"--vault-id={entry}" for entry in arguments.vault_id]
    return [*(f"--extra-vars={entry}" for entry in arguments.extra_vars), *vaults, *(["--ask-vault-pass"] if arguments.ask_vault_pass else [])]
