#!/usr/bin/env python3
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What planning costs the controller: processor time for 1,000 hosts of a mixed fleet, bare and converged, on one core. Prints, asserts nothing on time."""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "collections"), str(ROOT)]

from ansible_collections.rackready.gpu.plugins.plugin_utils import catalog_loader  # noqa: E402
from ansible_collections.rackready.gpu.plugins.plugin_utils.planner import make_plan  # noqa: E402
from ansible_collections.rackready.gpu.plugins.plugin_utils.request import Request  # noqa: E402

from tests.unit.hosts import facts_for  # noqa: E402
from tests.unit.plans import Facts, apply_plan, lock_for, request_for  # noqa: E402

HOSTS = 1000
TARGET_S = 5.0
KINDS = {
    "10de:2330": ("debian-13", ("debian", "13", "trixie", "Debian GNU/Linux 13 (trixie)"), 4),
    "10de:20b2": ("debian-12", ("debian", "12", "bookworm", "Debian GNU/Linux 12 (bookworm)"), 6),
    "10de:2901": ("ubuntu-24.04", ("ubuntu", "24.04", "noble", "Ubuntu 24.04.3 LTS"), 0),
    "10de:26b9": ("ubuntu-22.04", ("ubuntu", "22.04", "jammy", "Ubuntu 22.04.5 LTS"), 0),
}


def fleet() -> list[tuple[Facts, Request]]:
    """One host of each kind, bare and as planned."""
    catalog, found = catalog_loader.load(), []
    for pci_id, (distribution, names, switches) in KINDS.items():
        request = request_for(gpu_expected=None, rackready_lock=lock_for(f"{distribution}/x86_64"))
        bare = facts_for(pci_id=pci_id, distribution=names, nvswitches=switches)
        found += [(bare, request), (apply_plan(bare, make_plan("bare", bare, request, catalog)), request)]
    return found


def main() -> None:
    began = time.process_time()
    catalog = catalog_loader.read(Path(catalog_loader.__file__).with_name("catalog"))
    loading = time.process_time() - began
    hosts = fleet()
    began = time.process_time()
    for number in range(HOSTS):
        facts, request = hosts[number % len(hosts)]
        make_plan(f"host-{number}", facts, request, catalog)
    planning = time.process_time() - began
    table = Table("measured", "seconds of one core")
    table.add_row("read the catalog", f"{loading:.2f}")
    table.add_row(f"plan {HOSTS} hosts with 8 GPUs each", f"{planning:.2f} (wanted: under {TARGET_S:.0f})")
    Console().print(table)


if __name__ == "__main__":
    main()
