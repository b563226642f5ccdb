# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role mig tells the operator (M6): its tasks after the module's run for real, with what the module returned as data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml

from tests.unit import playbooks

TASKS = playbooks.ROOT / "roles/mig/tasks/main.yml"
RETURNED: dict[str, Any] = {
    "split": [
        {"pci_bus_id": "0000:1a:00.0", "profile": "3g.40gb", "start": 0, "uuid": "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"},
        {"pci_bus_id": "0000:1b:00.0", "profile": "1g.10gb", "start": 4, "uuid": "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d"},
    ],
    "off": [],
}


def test_m6_the_names_to_paste_are_printed(tmp_path: Path) -> None:
    module, *rest = yaml.safe_load(TASKS.read_text(encoding="utf-8"))
    assert (set(module), module["register"]) == ({"name", "rackready.gpu.gpu_mig", "register"}, "__mig_applied")
    play = {"hosts": "all", "gather_facts": False, "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}, "tasks": rest}
    hosts = {name: {"__mig_applied": {"instances": instances}} for name, instances in RETURNED.items()}
    run = playbooks.run(tmp_path, {"hosts": hosts}, [play])
    assert run.returncode == 0, run.output
    assert (
        "split: a process gets one of these by CUDA_VISIBLE_DEVICES=UUID, a container by --device nvidia.com/gpu=UUID: "
        "MIG-c7384736-a75d-5afc-978f-d2f1294409fd (3g.40gb at 0 of 0000:1a:00.0), MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d (1g.10gb at 4 of 0000:1b:00.0)."
    ) in " ".join(run.output.split())
    assert "off: a process" not in run.output
