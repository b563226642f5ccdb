# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole plans as they were once looked at: a change of code or catalog that changes one of them is seen as a difference of its file.

A difference that is meant is written with ``python -m tests.unit.plugins.plugin_utils.test_golden_plans`` and reviewed as any other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit import plans
from tests.unit.hosts import facts_for
from tests.unit.plans import accept, apply_plan, lock_for, plan_for

DIRECTORY = Path(__file__).parents[3] / "fixtures" / "plans"
DEBIAN_12 = {"distribution": ("debian", "12", "bookworm", "Debian GNU/Linux 12 (bookworm)"), "kernel": "6.1.0-41-amd64"}

UBUNTU = {"distribution": ("ubuntu", "24.04", "noble", "Ubuntu 24.04.3 LTS"), "kernel": "6.8.0-87-generic"}

# Changes of the host, variables, and whether the plan was applied and accepted before.
GOLDEN: dict[str, tuple[dict[str, Any], dict[str, Any], bool]] = {
    "debian-13-h100-bare": ({}, {}, False),
    "debian-13-h100-converged": ({}, {}, True),
    "debian-13-h200-mig": (
        {"pci_id": "10de:2335"},
        {"gpu_expected": {"model": "h200-sxm-141gb", "count": 8}, "mig_layout": [{"gpus": "all", "instances": {"3g.71gb": 2}}]},
        False,
    ),
    "debian-13-a100-mig": (
        {"pci_id": "10de:20b2", "nvswitches": 6},
        {"gpu_expected": None, "mig_layout": [{"gpus": [0], "instances": {"1g.10gb": 7}}]},
        False,
    ),
    "debian-13-b200": ({"pci_id": "10de:2901", "nvswitches": 0}, {"gpu_expected": {"model": "b200-sxm-180gb", "count": 8}}, False),
    "debian-13-l40s-converged": ({"pci_id": "10de:26b9", "nvswitches": 0, "gpus": 4}, {"gpu_expected": {"model": "l40s-48gb", "count": 4}}, True),
    "ubuntu-24.04-b200-bare": ({"pci_id": "10de:2901", "nvswitches": 0, **UBUNTU}, {"gpu_expected": {"model": "b200-sxm-180gb", "count": 8}}, False),
    "debian-12-h100-bare": (DEBIAN_12, {}, False),
    "debian-12-h100-converged": (DEBIAN_12, {}, True),
}


def golden(name: str) -> str:
    changes, variables, converged = GOLDEN[name]
    facts = facts_for(**changes)
    distribution = "-".join(name.split("-")[:2])
    variables = {"rackready_lock": plans.lock() if distribution == "debian-13" else lock_for(f"{distribution}/x86_64"), **variables}
    if converged:
        facts = apply_plan(facts, plan_for(facts, **variables))
        facts = accept(facts, plan_for(facts, **variables))
    return json.dumps(plan_for(facts, **variables), indent=1) + "\n"


@pytest.mark.parametrize("name", GOLDEN)
def test_the_plan_is_the_one_that_was_looked_at(name: str) -> None:
    assert golden(name) == DIRECTORY.joinpath(f"{name}.json").read_text(encoding="utf-8")


def test_no_golden_plan_is_left_over() -> None:
    assert sorted(path.stem for path in DIRECTORY.iterdir()) == sorted(GOLDEN)


if __name__ == "__main__":
    DIRECTORY.mkdir(exist_ok=True)
    for each in GOLDEN:
        DIRECTORY.joinpath(f"{each}.json").write_text(golden(each), encoding="utf-8")
