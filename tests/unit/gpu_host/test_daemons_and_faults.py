# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

from collections.abc import Callable

import pytest
from gpu_host.sim import daemons, faults
from gpu_host.sim.kernel import Kernel


@pytest.fixture
def commands() -> list[list[str]]:
    return []


@pytest.fixture
def machine(driver: Kernel, commands: list[list[str]]) -> faults.Machine:
    return faults.Machine(driver.store, commands.append)


def test_the_fabric_manager_wants_its_own_version_and_switches(driver: Kernel) -> None:
    state = driver.store.read()
    assert daemons.fabric_refusal(state, "580.178.04") is None
    refusal = daemons.fabric_refusal(state, "580.159.04") or ""
    assert refusal.startswith("fabric manager NVIDIA GPU driver interface version 580.159.04 don't match with driver version 580.178.04.")
    state["board"]["nvswitches"] = []
    assert "NV_WARN_NOTHING_TO_DO" in (daemons.fabric_refusal(state, "580.178.04") or "")
    assert "NV_WARN_NOTHING_TO_DO" in (daemons.fabric_refusal(None, "580.178.04") or "")


def test_a_gone_gpu_is_off_the_bus_and_comes_back(machine: faults.Machine) -> None:
    folder = machine.store.root / "sys/bus/pci/devices"
    faults.break_(machine, "gpu-gone", "3")
    assert not (folder / "0000:4b:00.0").exists()
    assert (machine.store.root / "dev/nvidia3").exists()
    faults.break_(machine, "gpu-gone", None)
    assert not (folder / "0000:cb:00.0").exists()
    assert faults.heal(machine, None) == ["gpu-gone"]
    assert (folder / "0000:4b:00.0").exists()
    assert machine.store.read()["faults"] == {}


def test_a_held_gpu_has_a_job_of_a_unit(machine: faults.Machine, commands: list[list[str]], open_node: Callable[..., None]) -> None:
    open_node(4711, ["python3", "train.py"], "nvidia2")
    faults.break_(machine, "gpu-held", "2")
    unit = machine.store.root / "run/systemd/system/train-gpu2.service"
    assert "ExecStart=@/usr/bin/python3 python3 train.py" in unit.read_text()
    assert ["systemctl", "start", "train-gpu2.service"] in commands
    faults.heal(machine, "gpu-held")
    assert ["systemctl", "stop", "train-gpu2.service"] in commands
    assert not unit.exists()


def test_a_hang_is_noted_and_taken_back(machine: faults.Machine) -> None:
    faults.break_(machine, "smi-hang", None)
    assert machine.store.read()["faults"] == {"smi-hang": True}
    assert faults.heal(machine, "smi-hang") == ["smi-hang"]
    assert faults.heal(machine, None) == []


@pytest.mark.parametrize(("before", "broken", "healed"), [("completed", "in_progress", "completed"), ("none", "none", "none")])
def test_a_fabric_that_does_not_complete_is_only_where_there_is_one(machine: faults.Machine, before: str, broken: str, healed: str) -> None:
    with machine.store.change() as state:
        state["fabric"] = before
    faults.break_(machine, "fabric-not-completed", None)
    assert machine.store.read()["fabric"] == broken
    faults.heal(machine, None)
    assert machine.store.read()["fabric"] == healed


@pytest.mark.parametrize(("name", "argument", "words"), [("gpu-gon", None, "no fault 'gpu-gon'"), ("gpu-gone", "8", "no GPU 8"), ("gpu-gone", "x", "no GPU x")])
def test_faults_that_cannot_be(machine: faults.Machine, name: str, argument: str | None, words: str) -> None:
    with pytest.raises(faults.FaultError, match=words):
        faults.break_(machine, name, argument)


def test_nothing_can_hold_a_gpu_without_a_driver(kernel: Kernel, commands: list[list[str]]) -> None:
    with pytest.raises(faults.FaultError, match="no driver is loaded"):
        faults.break_(faults.Machine(kernel.store, commands.append), "gpu-held", None)
    assert kernel.store.read()["faults"] == {}
