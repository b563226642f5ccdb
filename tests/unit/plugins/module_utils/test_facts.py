# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The whole collection, from trees that imitate hosts, against the facts contract and the facts that other tests plan from."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Result
from ansible_collections.rackready.gpu.plugins.module_utils.units import UnitsError
from jsonschema import Draft202012Validator

from tests.unit.hosts import CONVERGED, DRIVER, FIXTURES, ROCKY, Answers, Facts, Host, facts_for, signed_by_ubuntu

SCHEMA = json.loads((Path(__file__).parents[4] / "plugins/plugin_utils/schemas/facts.schema.json").read_text())
VALIDATOR = Draft202012Validator(SCHEMA)

CONTAINER = {"id": "abc123def456", "name": "train", "image": "nvcr.io/nvidia/pytorch:26.07-py3", "devices": ["/dev/nvidia0", "nvidia.com/gpu=1"]}
TRAINING = {"device": "/dev/nvidia0", "pid": 4711, "command": "python3 train.py", "unit": "session-3.scope", "container": None, "role": "workload"}
IN_CONTAINER = {"device": "/dev/nvidia1", "pid": 4712, "command": "python3 /w/train.py", "unit": None, "container": "abc123def456", "role": "workload"}
SLICES = [{"profile": "1g.10gb", "gi": 7 + slot, "ci": 0, "placement_start": slot, "uuid": f"MIG-{slot}f"} for slot in range(7)]
WITHOUT_CI = [{"profile": "3g.40gb", "gi": 1, "ci": None, "placement_start": 4, "uuid": None}]

UBUNTU: dict[str, Any] = {"distribution": ("ubuntu", "24.04", "noble", "Ubuntu 24.04.3 LTS"), "kernel": "6.8.0-87-generic"}

HOSTS: dict[str, dict[str, Any]] = {
    "bare": {},
    "converged": CONVERGED,
    "one GPU missing": {"gpus": 7},
    "no GPU": {"gpus": 0, "nvswitches": 0},
    "given to virtual machines": {"bound_to": "vfio-pci"},
    "nouveau": {"nouveau": True},
    "audio functions": {"audio_functions": True},
    "secure boot": {"secure_boot": "enabled", "headers": True},
    "no EFI": {"secure_boot": "unsupported"},
    "other kernels": {"other_kernels": {"6.12.41+deb13-amd64": True, "6.12.57+deb13-amd64": False}},
    "ubuntu": UBUNTU,
    "ubuntu with secure boot": {**UBUNTU, "secure_boot": "enabled", "signed_modules": signed_by_ubuntu("6.8.0-87-generic")},
    "ubuntu without lists": {**UBUNTU, "secure_boot": "enabled"},
    "rocky": {**ROCKY, "selinux": "enforcing", "container_use_devices": False},
    "rocky converged": {**CONVERGED, **ROCKY, "docker": None, "daemon_json": None, "streams": {"nvidia-driver": "580-open"}},
    "rocky not held": {**CONVERGED, **ROCKY, "docker": None, "daemon_json": None, "held": False, "selinux": "permissive", "container_use_devices": True},
    "rocky excludes": {**ROCKY, "excludes": ("kernel*", "nvidia*")},
    "rocky broken": {**ROCKY, "broken": True, "packages": {"dkms": "1.0-1"}},
    "proprietary": {**CONVERGED, "flavour": "proprietary"},
    "library replaced under a loaded module": {**CONVERGED, "library": "580.181.01"},
    "packages broken": {"broken": True, "packages": {"dkms": "3.2.2-1~deb13u1"}},
    "not held": {**CONVERGED, "held": False},
    "engine older than its configuration": {**CONVERGED, "configuration_read": False},
    "engine stopped": {**CONVERGED, "docker_running": False},
    "old engine": {"docker": "20.10.24"},
    "fabric in progress": {**CONVERGED, "fabric_state": "In Progress"},
    "MIG": {**CONVERGED, "mig": {0: SLICES, 3: WITHOUT_CI}},
    "nvidia-smi hangs": {**CONVERGED, "smi_state": "hung"},
    "nvidia-smi fails": {**CONVERGED, "smi_state": "failed"},
    "nvidia-smi garbled": {**CONVERGED, "smi_state": "garbled"},
    "busy": {**CONVERGED, "holders": (TRAINING, IN_CONTAINER), "containers": (CONTAINER,)},
    "masked unit": {**CONVERGED, "units": {"nvidia-persistenced.service": ("masked", "inactive", "masked")}, "failed_units": ("nvidia-imex.service",)},
    "image and stamp": {**CONVERGED, "images": ("nvcr.io/nvidia/pytorch@sha256:" + "1" * 64,), "stamp": {"release": "2026.11-longterm", "driver": DRIVER}},
}


def comparable(facts: Facts) -> Facts:
    """Without what cannot be equal: times, the Python that runs the test, and the disk under the tree."""
    nvidia_smi = {**facts["nvidia_smi"], "seconds": None}
    return {**facts, "nvidia_smi": nvidia_smi, "collected_at": None, "python": None, "disk": sorted(facts["disk"])}


@pytest.mark.parametrize("fields", HOSTS.values(), ids=HOSTS.keys())
def test_what_is_collected_is_what_the_host_is(tmp_path: Path, fields: dict[str, Any]) -> None:
    host = Host(**fields)
    collected = host.tree(tmp_path).gather()
    VALIDATOR.validate(collected)
    assert comparable(collected) == comparable(host.facts())


@pytest.mark.parametrize("fields", HOSTS.values(), ids=HOSTS.keys())
def test_built_facts_keep_the_contract(fields: dict[str, Any]) -> None:
    VALIDATOR.validate(facts_for(**fields))


@pytest.mark.parametrize(("name", "fields"), [("h100-bare", {}), ("h100-converged", CONVERGED)])
def test_example_files_are_the_built_facts(name: str, fields: dict[str, Any]) -> None:
    assert json.loads((FIXTURES / "facts" / f"{name}.json").read_text()) == facts_for(**fields)


def test_facts_for_refuses_what_it_does_not_know() -> None:
    with pytest.raises(TypeError, match="gpu_count"):
        facts_for(gpu_count=7)
    assert facts_for(boot_id="x")["boot_id"] == "x"


def test_contract_is_strict() -> None:
    facts = facts_for()
    for path in ((), ("kernel",), ("gpus", 0), ("gpus", 0, "link"), ("docker",), ("nvidia_smi",), ("packages",), ("modules", "nvidia")):
        broken: Any = json.loads(json.dumps(facts))
        target = broken
        for step in path:
            target = target[step]
        target["surprise"] = 1
        assert not VALIDATOR.is_valid(broken), path


class WedgedDriver(Answers):
    """Recorded answers, but nvidia-smi is a real command that hangs and ignores a polite end."""

    def __init__(self, others: Answers) -> None:
        self.answers = others.answers

    def start(self, argv: list[str], timeout: float, env: dict[str, str] | None = None) -> Child:
        if argv[0].endswith("nvidia-smi"):
            return Child(["/bin/sh", "-c", "trap '' TERM HUP INT; while :; do sleep 60; done"], timeout, env)
        return super().start(argv, timeout, env)


def test_wedged_nvidia_smi_costs_its_limit_and_nothing_else(tmp_path: Path) -> None:
    host = Host(**CONVERGED)
    tree = host.tree(tmp_path)
    tree.commands = WedgedDriver(tree.commands)
    started = time.monotonic()
    collected = tree.gather(smi_timeout=1)
    assert time.monotonic() - started < 2.5
    VALIDATOR.validate(collected)
    assert collected["nvidia_smi"]["state"] == "hung"
    assert collected["nvidia_smi"]["error"] == "nvidia-smi did not end within 1 s and was given up"
    silent = {**collected, "nvidia_smi": host.facts()["nvidia_smi"]}
    assert comparable(silent) == comparable(host.facts())


def test_nvidia_smi_is_not_asked_while_the_module_is_out(tmp_path: Path) -> None:
    tree = Host().tree(tmp_path)
    tree.commands["nvidia-smi -L"] = ""  # installed; being asked anything else would fail the test
    smi = tree.gather()["nvidia_smi"]
    assert smi["state"] == "failed"
    assert "module is not loaded" in smi["error"]


def test_stopped_engine_is_not_asked(tmp_path: Path) -> None:
    tree = Host(**{**CONVERGED, "docker_running": False}).tree(tmp_path)
    for question in ("docker info", "docker ps", "docker image ls"):
        del tree.commands.answers[question]  # docker.socket is active: a question would start the engine
    docker = tree.gather()["docker"]
    assert (docker["installed"], docker["running"], docker["version"], docker["api_error"]) == (True, False, "26.1.5", None)


def test_silent_systemd_is_an_error(tmp_path: Path) -> None:
    tree = Host().tree(tmp_path)
    tree.commands["systemctl show"] = Result(None, b"", b"", 10.0, "did not end within 10 s and was given up")
    with pytest.raises(UnitsError, match="systemctl show did not end within 10 s"):
        tree.gather()


def test_host_without_systemd_has_no_units(tmp_path: Path) -> None:
    tree = Host(**CONVERGED).tree(tmp_path)
    tree.write("/proc/1/comm", "sshd\n")
    facts = tree.gather()
    VALIDATOR.validate(facts)
    assert (facts["init"], facts["units"], facts["failed_units"]) == ("sshd", {}, [])
