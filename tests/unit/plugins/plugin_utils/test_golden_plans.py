# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole plans and their texts as they were once looked at: a change of code or catalog that changes one of them is seen as a difference of its file.

How a difference that is meant is written: tests/unit/golden.py.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils import plan_text
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load

from tests.unit import golden, plans
from tests.unit.hosts import CONVERGED, ROCKY, Facts, facts_for, signed_by_ubuntu
from tests.unit.plans import Plan, accept, apply_plan, lock_for, plan_for

DIRECTORY = Path(__file__).with_name("golden")
SCHEMA = json.loads(Path(plan_text.__file__).with_name("schemas").joinpath("plan.schema.json").read_text(encoding="utf-8"))

DEBIAN_11: dict[str, Any] = {"distribution": ("debian", "11", "bullseye", "Debian GNU/Linux 11 (bullseye)"), "kernel": "5.10.0-36-amd64"}
DEBIAN_12: dict[str, Any] = {"distribution": ("debian", "12", "bookworm", "Debian GNU/Linux 12 (bookworm)"), "kernel": "6.1.0-41-amd64"}
UBUNTU: dict[str, Any] = {"distribution": ("ubuntu", "24.04", "noble", "Ubuntu 24.04.3 LTS"), "kernel": "6.8.0-87-generic"}
RHEL: dict[str, Any] = {"distribution": ("rhel", "9.6", "", "Red Hat Enterprise Linux 9.6 (Plow)"), "kernel": "5.14.0-570.el9.x86_64", "selinux": "enforcing"}
ROCKY_8: dict[str, Any] = {"distribution": ("rocky", "8.10", "", "Rocky Linux 8.10 (Green Obsidian)"), "kernel": "4.18.0-553.el8_10.x86_64"}
ALMA_10: dict[str, Any] = {"distribution": ("almalinux", "10.1", "", "AlmaLinux 10.1 (Heliotrope Lion)"), "kernel": "6.12.0-124.el10_1.x86_64"}
A100: dict[str, Any] = {"hostname": "a100-01", "pci_id": "10de:20b2", "gpu_name": "NVIDIA A100-SXM4-80GB", "nvswitches": 6}
B200: dict[str, Any] = {"hostname": "b200-01", "pci_id": "10de:2901", "gpu_name": "NVIDIA B200", "nvswitches": 0}
TRAINING = {"device": "/dev/nvidia3", "pid": 4711, "command": "python3 train.py", "unit": "session-3.scope", "container": None, "role": "workload"}


def expected(model: str, count: int = 8) -> dict[str, Any]:
    return {"gpu_expected": {"model": model, "count": count}}


@dataclass(frozen=True)
class Golden:
    """A host (changes of ``facts_for``), what is asked for, and for which distribution the lock was written, where that is not Debian 13."""

    host: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    locked_for: str | None = None
    accepted: bool = False
    """The plan was applied and the smoke test accepted the host before."""

    def made(self) -> tuple[Plan, Facts]:
        """The plan, and the facts that it was made from."""
        facts = facts_for(**self.host)
        if self.host.get("pci_id") == A100["pci_id"]:
            for switch in facts["nvswitches"]:
                switch["pci_id"] = "10de:1af1"
        asked = self.variables
        if "rackready_lock" not in asked:
            release = {name: value for name, value in asked.items() if name == "gpu_stack_release"}
            asked = {**asked, "rackready_lock": lock_for(f"{self.locked_for}/x86_64", **release) if self.locked_for else plans.lock()}
        if self.accepted:
            facts = apply_plan(facts, plan_for(facts, **asked))
            facts = accept(facts, plan_for(facts, **asked))
        return plan_for(facts, **asked), facts


GOLDEN: dict[str, Golden] = {
    "debian-13-h100-bare": Golden(),
    "debian-13-h100-converged": Golden(accepted=True),
    "debian-13-h100-missing-card-refused": Golden({"gpus": 7}),
    "debian-13-h100-secure-boot": Golden({"secure_boot": "enabled"}),
    "debian-13-h100-other-driver-in-use-refused": Golden({**CONVERGED, "driver": "570.133.20", "fabric_manager": "570.133.20", "holders": (TRAINING,)}),
    "debian-13-h200-mig": Golden(
        {"hostname": "h200-01", "pci_id": "10de:2335", "gpu_name": "NVIDIA H200"},
        {**expected("h200-sxm-141gb"), "mig_layout": [{"gpus": "all", "instances": {"3g.71gb": 2}}]},
    ),
    "debian-13-a100-mig": Golden(A100, {"gpu_expected": None, "mig_layout": [{"gpus": [0], "instances": {"1g.10gb": 7}}]}),
    "debian-13-b200": Golden(B200, expected("b200-sxm-180gb")),
    "debian-13-l40s-converged": Golden(
        {"hostname": "l40s-01", "pci_id": "10de:26b9", "gpu_name": "NVIDIA L40S", "nvswitches": 0, "gpus": 4}, expected("l40s-48gb", 4), accepted=True
    ),
    "debian-13-v100-legacy": Golden(
        {"hostname": "v100-01", "pci_id": "10de:1db5", "gpu_name": "Tesla V100-SXM2-32GB", "nvswitches": 0},
        {"gpu_expected": None, "gpu_stack_release": "2026.11-legacy"},
        "debian-13",
    ),
    "debian-13-unknown-gpu": Golden({"hostname": "new-01", "pci_id": "10de:fffe", "nvswitches": 0, "gpus": 2}, {"gpu_expected": None}),
    "debian-12-h100-bare": Golden(DEBIAN_12, locked_for="debian-12"),
    "debian-12-h100-converged": Golden(DEBIAN_12, locked_for="debian-12", accepted=True),
    "debian-12-a100-bare": Golden({**A100, **DEBIAN_12}, expected("a100-sxm4-80gb"), "debian-12"),
    "debian-11-h100-refused": Golden(DEBIAN_11),
    "ubuntu-24.04-h100-bare": Golden(UBUNTU, locked_for="ubuntu-24.04"),
    "ubuntu-24.04-h100-secure-boot": Golden(
        {**UBUNTU, "secure_boot": "enabled", "signed_modules": signed_by_ubuntu(UBUNTU["kernel"])}, locked_for="ubuntu-24.04"
    ),
    "ubuntu-24.04-b200-bare": Golden({**B200, **UBUNTU}, expected("b200-sxm-180gb"), "ubuntu-24.04"),
    "rhel-9-h100-bare": Golden(RHEL, locked_for="rhel-9"),
    "rocky-9-a100-other-stream": Golden({**A100, **ROCKY, "streams": {"nvidia-driver": "595-open"}}, expected("a100-sxm4-80gb"), "rocky-9"),
    "rocky-9-h100-converged": Golden(ROCKY, locked_for="rocky-9", accepted=True),
    "rocky-8-h100-refused": Golden(ROCKY_8),
    "almalinux-10-b200-bare": Golden({**B200, **ALMA_10}, expected("b200-sxm-180gb"), "almalinux-10"),
}


@pytest.mark.parametrize("name", GOLDEN)
def test_the_golden_plan_is_the_one_that_was_looked_at(name: str) -> None:
    plan, _facts = GOLDEN[name].made()
    jsonschema.Draft202012Validator(SCHEMA).validate(plan)
    golden.compare(DIRECTORY / f"{name}.json", json.dumps(plan, indent=1) + "\n")


@pytest.mark.parametrize("name", GOLDEN)
def test_the_golden_text_is_the_one_that_was_looked_at(name: str) -> None:
    plan, facts = GOLDEN[name].made()
    golden.compare(DIRECTORY / f"{name}.txt", "".join(f"{line}\n" for line in plan_text.lines(plan, facts, load())))


def test_no_golden_plan_is_left_over() -> None:
    golden.nothing_else_in(DIRECTORY, [f"{name}.{kind}" for name in GOLDEN for kind in ("json", "txt")])


@pytest.mark.parametrize("name", GOLDEN)
def test_a_golden_host_is_called_what_it_is(name: str) -> None:
    plan, _facts = GOLDEN[name].made()
    kinds = {"refused": bool(plan["refusals"]), "converged": plan["converged"]}
    assert kinds == {kind: name.endswith(f"-{kind}") for kind in kinds}
