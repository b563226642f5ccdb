# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How the role nvidia_fabric waits for the fabric (D5, D6, D8): its last task runs for real, with readings of the host as data and no pause between them."""

from __future__ import annotations

import copy
import sys
from typing import Any

import pytest
import yaml

from tests.unit import playbooks
from tests.unit.hosts import BUS_IDS

TASKS = yaml.safe_load((playbooks.ROOT / "roles/nvidia_fabric/tasks/main.yml").read_text(encoding="utf-8"))
DONE = ("Completed", "Success")
UNDER_WAY = ("In Progress", "N/A")
# By host: what its two GPUs say in one reading after the other; the last reading stays.
READINGS: dict[str, list[list[tuple[str, str]]]] = {
    "at-once": [[DONE, DONE]],
    "third": [[], [UNDER_WAY, DONE], [DONE, DONE]],
    "stays": [[DONE, UNDER_WAY]],
    "no-success": [[("Completed", "Failure"), DONE]],
    "silent": [[]],
}
NEXT_READING = """
from pathlib import Path
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={"counter": {"type": "path"}, "readings": {"type": "list", "elements": "list"}})
counter, readings = Path(module.params["counter"]), module.params["readings"]
number = len(counter.read_text()) if counter.exists() else 0
counter.write_text("x" * (number + 1))
module.exit_json(ansible_facts={"gpu_host": {"nvidia_smi": {"gpus": readings[min(number, len(readings) - 1)]}}})
"""


def test_d8_units_are_enabled_after_packages_and_modules_and_then_waited_for() -> None:
    """Nothing starts the fabric manager before its modules are loaded: policy-rc.d keeps its package from it (see the order of apt's tasks)."""
    packages, modules, units, wait = TASKS
    assert packages["ansible.builtin.include_role"]["name"] == "rackready.gpu.package_set"
    assert modules["ansible.builtin.command"]["argv"].startswith("{{ ['modprobe'")
    assert {key: units["ansible.builtin.systemd_service"][key] for key in ("enabled", "masked", "state")} == {
        "enabled": True,
        "masked": False,
        "state": "started",
    }
    [reading] = wait["block"]
    assert reading["retries"] * reading["delay"] == 120


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> playbooks.Run:
    directory = tmp_path_factory.mktemp("fabric")
    wait = copy.deepcopy(TASKS[-1])
    [reading] = wait["block"]
    # The module gives facts of a real host; this one gives those of one reading after the other, in the same shape.
    (directory / "library").mkdir()
    (directory / "library/next_reading.py").write_text(NEXT_READING, encoding="utf-8")
    del reading["rackready.gpu.gpu_host_facts"]
    reading["next_reading"] = {"counter": f"{directory}/count-{{{{ inventory_hostname }}}}", "readings": "{{ readings }}"}
    reading.update(retries=4, delay=0)
    hosts: dict[str, Any] = {name: {"readings": [gpus(said) for said in readings]} for name, readings in READINGS.items()}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "nvidia_fabric_desired": {"gpus_completed": "{{ inventory_hostname != 'a100' }}"},
        },
        "tasks": [wait],
    }
    hosts["a100"] = {"readings": [gpus([UNDER_WAY, UNDER_WAY])]}
    return playbooks.run(directory, {"hosts": hosts}, [play])


def gpus(said: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [{"pci_bus_id": bus_id, "fabric": {"state": state, "status": status}} for bus_id, (state, status) in zip(BUS_IDS, said, strict=False)]


def test_d8_gpus_that_join_late_are_waited_for(run: playbooks.Run) -> None:
    assert [failed(run, name) for name in ("at-once", "third")] == [0, 0], run.output
    assert "third: 1 of" not in run.output
    assert run.output.count("FAILED - RETRYING: [third]") == 2
    assert "RETRYING: [at-once]" not in run.output


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("stays", f"stays: 1 of 2 GPUs have not joined the fabric within 2 minutes, so CUDA would fail on them: {BUS_IDS[1]} says In Progress, N/A. Look at"),
        (
            "no-success",
            f"no-success: 1 of 2 GPUs have not joined the fabric within 2 minutes, so CUDA would fail on them: {BUS_IDS[0]} says Completed, Failure.",
        ),
        ("silent", "silent: nvidia-smi has listed no GPU for 2 minutes, so CUDA would fail. Look at"),
    ],
)
def test_d6_one_gpu_of_all_that_does_not_join_fails_the_host_and_is_named(run: playbooks.Run, name: str, words: str) -> None:
    assert failed(run, name) == 1
    assert words in " ".join(run.output.split())
    assert run.output.count(f"FAILED - RETRYING: [{name}]") == 4


def test_a_board_that_reports_no_state_is_not_waited_for(run: playbooks.Run) -> None:
    assert failed(run, "a100") == 0


def failed(run: playbooks.Run, name: str) -> int:
    line = next(line for line in run.output.splitlines() if line.startswith(f"{name} ") and "unreachable=" in line)
    return int(line.partition("failed=")[2].split()[0])
