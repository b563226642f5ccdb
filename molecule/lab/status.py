# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""``status``: what is up, as a table."""

from __future__ import annotations

import json

from rich.console import Console
from rich.table import Table

from . import services
from .engine import Engine
from .faults import SIMULATOR
from .names import SERVICES
from .paths import Layout


def status(layout: Layout, engine: Engine, console: Console) -> bool:
    """Print the table; True when something of the lab runs."""
    names = engine.containers("services", "host")
    if not names:
        console.print(f"The lab is down. State kept in {layout.state}: {'yes' if layout.state.exists() else 'no'}.")
        return False
    table = Table("container", "address", "state", "says")
    for name in sorted(names):
        found = engine.inspect("container", name)
        if found is None:
            continue
        address = next(iter(found["NetworkSettings"]["Networks"].values()))["IPAddress"]
        state = found["State"]["Status"]
        table.add_row(name, address, state, says(engine, name) if state == "running" else "")
    console.print(table)
    return True


def says(engine: Engine, name: str) -> str:
    if name == SERVICES:
        return "healthy" if services.healthy(engine) else "NOT healthy: docker logs " + name
    system = engine.attempt("exec", name, "systemctl", "is-system-running").stdout.strip()
    return f"systemd: {system}; {simulated(engine.attempt('exec', name, SIMULATOR, 'status').stdout)}"


def simulated(answer: str) -> str:
    """One line from what the simulator prints."""
    try:
        state = json.loads(answer)
    except json.JSONDecodeError:
        return "no simulated GPUs"
    modules = ", ".join(state.get("modules") or []) or "none"
    faults = ", ".join(state.get("faults") or []) or "none"
    return f"{len(state.get('gpus') or [])} GPUs on {state.get('board')}; modules: {modules}; faults: {faults}"
