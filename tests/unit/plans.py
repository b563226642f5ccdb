# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans for tests: a lock, plans made with it, and facts of a host after its plan was applied.

plan_for(facts_for())                               the plan of a bare host
plan_for(facts, mig_layout=[...])                   with other variables
plan_for(facts, rackready_lock=lock_for("debian-12/x86_64"))   on another distribution
apply_plan(facts, plan)                             the facts that the roles would leave behind
"""

from __future__ import annotations

import copy
import hashlib
import json
from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils import reading, verify_tool
from ansible_collections.rackready.gpu.plugins.plugin_utils import pin, versionlock
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from ansible_collections.rackready.gpu.plugins.plugin_utils.planner import make_plan
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import VersionRule
from ansible_collections.rackready.gpu.plugins.plugin_utils.request import Request, parse

from tests.unit.hosts import RPM_LIBRARIES

Facts = dict[str, Any]
Plan = dict[str, Any]

KEY = "-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nbm90IGEga2V5\n=0000\n-----END PGP PUBLIC KEY BLOCK-----\n"
IMAGE = "nvcr.io/nvidia/pytorch:26.07-py3"
INDEX = "sha256:" + "1d" * 32
DRIVER_PACKAGES = (
    "nvidia-driver-cuda",
    "nvidia-kernel-open-dkms",
    "nvidia-kernel-dkms",
    "nvidia-persistenced",
    "nvidia-fabricmanager",
    "libcuda1",
    "libnvidia-ml1",
)
LIBRARY_PACKAGES = {"apt": ("libcuda1", "libnvidia-ml1"), "dnf": RPM_LIBRARIES}
TOOLKIT_PACKAGES = ("nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1")
DOCKER_PACKAGES = ("docker-ce", "docker-ce-cli", "containerd.io", "docker-buildx-plugin", "docker-compose-plugin")
MODEL = {"model": "h100-sxm5-80gb", "count": 8}


def lock(drivers: tuple[str, ...] = ("580.178.04",), toolkits: tuple[str, ...] = ("1.20.0",)) -> dict[str, Any]:
    """A lock for debian-13/x86_64 with these versions."""
    return {
        "schema": 1,
        "written_at": "2026-12-01T04:00:00Z",
        "images": {IMAGE: {"index": INDEX, "platforms": {"linux/amd64": {"digest": "sha256:" + "2e" * 32, "size_bytes": 9_000_000_000}}}},
        "repositories": {
            "nvidia-cuda/debian-13/x86_64": _repository(
                "https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64/",
                {**{name: [f"{version}-1" for version in drivers] for name in DRIVER_PACKAGES}, "nvlsm": ["2026.02.16-1"]},
            ),
            "nvidia-container-toolkit/debian-13/x86_64": _repository(
                "https://nvidia.github.io/libnvidia-container/stable/deb/amd64/", {name: [f"{version}-1" for version in toolkits] for name in TOOLKIT_PACKAGES}
            ),
            "docker-ce/debian-13/x86_64": _repository(
                "https://download.docker.com/linux/debian/", {name: ["5:29.2.1-1~debian.13~trixie"] for name in DOCKER_PACKAGES}
            ),
        },
    }


def _repository(url: str, packages: dict[str, list[str]]) -> dict[str, Any]:
    return {"url": url, "key": KEY, "key_sha256": hashlib.sha256(KEY.encode()).hexdigest(), "packages": packages}


def lock_for(cell: str, **variables: Any) -> dict[str, Any]:
    """What pin.yml would write for one host with these variables, if every repository had exactly what is asked of it."""
    needs = pin.Needs()
    needs.add("host", parse(variables, load()), load(), cell)
    assert needs.problems == []
    asked = needs.questions()
    rules = {name: need.rules for name, need in needs.repositories.items()}
    answers = {
        "repositories": [
            {
                **_repository(
                    entry["url"], {name: [_version(next(iter(found)), entry.get("type", "deb"), name)] for name, found in rules[entry["name"]].items()}
                ),
                "name": entry["name"],
            }
            for entry in asked["repositories"]
        ],
        "images": [
            {
                "ref": entry["ref"],
                "index": INDEX,
                "platforms": {platform: {"digest": "sha256:" + "2e" * 32, "size_bytes": 9_000_000_000} for platform in ("linux/amd64", "linux/arm64")},
            }
            for entry in asked["images"]
        ],
    }
    content, problems = pin.lock(needs, answers, "2026-12-01T04:00:00Z")
    assert problems == []
    return content


def _version(rule: VersionRule, kind: str, name: str) -> str:
    """A version that the rule allows; a package that any version will do for gets one that looks like Docker's."""
    if not (rule.exact or rule.at_least or rule.branch):
        return "5:29.2.1-1" if kind == "deb" else "3:29.2.1-1.el9"
    version = f"{rule.exact or rule.at_least or f'{rule.branch}.100.01'}-1"
    # NVIDIA's packages of the driver have an epoch in RPM repositories, those of the fabric and of the toolkit have none.
    return f"3:{version}.el9" if kind == "rpm" and (name in RPM_LIBRARIES or "driver" in name or "kmod" in name) else version


def request_for(**variables: Any) -> Request:
    """A request with a lock and the GPUs of an HGX H100, changed by variables; one that is None is left out."""
    asked = {"gpu_expected": MODEL, "rackready_lock": lock(), **variables}
    return parse({name: value for name, value in asked.items() if value is not None}, load())


def plan_for(facts: Facts, **variables: Any) -> Plan:
    """The plan of a host."""
    return make_plan(facts["hostname"], facts, request_for(**variables), load())


def apply_plan(facts: Facts, plan: Plan) -> Facts:
    """Facts as the roles leave them: what ``desired`` says is written, installed, held, loaded, started and pulled. The smoke test is not run."""
    after = copy.deepcopy(facts)
    areas = {name: area["desired"] for name, area in plan["areas"].items()}
    for name in ("host_tuning", "nvidia_driver", "docker", "nvidia_container_toolkit", "verify_tool"):
        for spec in areas[name]["files"]:
            after["files"][spec["path"]] = spec["content"]
    for name in ("nvidia_driver", "nvidia_fabric", "docker", "nvidia_container_toolkit"):
        _install(after, [*areas[name].get("before", {"packages": []})["packages"], *areas[name].get("install", [])])
        _hold(after, name, areas[name])
        for unit in areas[name].get("units", []):
            after["units"][unit] = {"load": "loaded", "active": "active", "enabled": "enabled"}
    driver = areas["nvidia_driver"]
    if "stream" in driver:
        after["packages"]["streams"][driver["stream"]["module"]] = driver["stream"]["name"].partition(":")[2]
    for name in LIBRARY_PACKAGES[driver["manager"]]:  # they come with the driver's packages, and are held once the plan was made again
        version = f"{driver['version']}-1" if driver["manager"] == "apt" else f"3:{driver['version']}-1.el9"
        after["packages"]["installed"][name] = {"version": version, "held": True}
    after["kernel"]["headers"] = True
    after["modules"]["nouveau"]["loaded"] = False
    for module in [*driver["modules"], *areas["nvidia_fabric"].get("modules", [])]:
        ours = module.startswith("nvidia")
        after["modules"][module] = {
            "loaded": True,
            "version": driver["version"] if ours else None,
            "flavour": driver["flavour"] if module == "nvidia" else None,
            "available": driver["version"] if module == "nvidia" else None,
        }
    after["library_version"] = driver["version"]
    _docker(after, areas["docker"])
    after["docker"]["images"][areas["pytorch_image"]["pull"]] = "sha256:" + "3f" * 32
    _smi(after, driver["version"], areas)
    _cdi(after, areas["nvidia_container_toolkit"]["cdi"]["path"])
    _verify_tool(after, areas)
    return after


def accept(facts: Facts, plan: Plan, verdict: str = "accepted") -> Facts:
    """The facts after a smoke test that ended well."""
    after = copy.deepcopy(facts)
    after["stamp"] = {**copy.deepcopy(plan["areas"]["smoke_test"]["desired"]["stamp"]), "verdict": verdict, "time": "2026-12-01T05:00:00Z"}
    return after


def _install(facts: Facts, install: list[str]) -> None:
    installed = facts["packages"]["installed"]
    for entry in install:
        name, version = _taken_apart(entry, facts["packages"]["manager"])
        if name == "kernel-devel-matched":  # in the facts those of the running kernel only
            name = f"{name}-{facts['kernel']['release']}"
        if version or name not in installed:
            installed[name] = {"version": version or "26.1.5-1", "held": False}


def _taken_apart(entry: str, manager: str) -> tuple[str, str]:
    """Name and version of a package as the package manager takes it; without a version any will do."""
    if manager == "apt" or " = " in entry:
        name, _equals, version = entry.partition(" = " if " = " in entry else "=")
        return (f"kernel-devel-{version}", "1-1") if name == "kernel-devel-uname-r" else (name, version)
    parts = entry.rsplit("-", 2)
    return (parts[0], "-".join(parts[1:])) if len(parts) == 3 and parts[1][:1].isdigit() else (entry, "")


def _hold(facts: Facts, area: str, desired: dict[str, Any]) -> None:
    """apt holds what it is told; with dnf what a line of versionlock's list has in its version is held, and the plugin is there then."""
    installed = facts["packages"]["installed"]
    if facts["packages"]["manager"] == "apt":
        for name in desired.get("hold", []):
            installed[name]["held"] = True
        return
    lines = desired.get("lock", {}).get("lines", [])
    if not lines:
        return
    installed.setdefault(desired["lock"]["package"], {"version": "4.3.0-21.el9", "held": False})
    block = "".join(f"{line}\n" for line in [f"# BEGIN rackready {area}", *lines, f"# END rackready {area}"])
    before = facts["files"].get(versionlock.FILE, "")
    head, begin, rest = before.partition(f"# BEGIN rackready {area}\n")
    facts["files"][versionlock.FILE] = head + block + (rest.partition(f"# END rackready {area}\n")[2] if begin else "")
    for name in desired["hold"]:
        if name in installed:
            installed[name]["held"] = versionlock.line(name, installed[name]["version"]) in lines


def _docker(facts: Facts, desired: dict[str, Any]) -> None:
    facts["files"]["/etc/docker/daemon.json"] = desired["daemon_json_text"]
    version = "29.2.1" if "docker-ce" in facts["packages"]["installed"] else "26.1.5"
    facts["docker"].update(installed=True, running=True, api_error=None, version=version, running_version=version, cdi_enabled=True)
    facts["docker"].update(root_dir="/var/lib/docker", configuration_read=True)


def _smi(facts: Facts, version: str, areas: dict[str, Any]) -> None:
    layouts = {gpu["pci_bus_id"]: gpu for gpu in areas["mig"]["gpus"]}
    gpus = []
    for index, gpu in enumerate(facts["gpus"]):
        gpu["driver"] = "nvidia"
        layout = layouts.get(gpu["pci_bus_id"])
        mode = layout["mode"] if layout else "unsupported"
        instances = [
            {"profile": instance["profile"], "gi": 7 + number, "ci": 0, "placement_start": instance["start"], "uuid": f"MIG-{index:04d}-{number:04d}"}
            for number, instance in enumerate(layout["instances"] if layout else [])
        ]
        done = bool(areas["nvidia_fabric"].get("gpus_completed"))
        gpus.append(
            {
                "index": index,
                "uuid": f"GPU-{index:08d}",
                "pci_bus_id": gpu["pci_bus_id"],
                "name": "NVIDIA GPU",
                "mig": {"current": mode, "pending": mode, "instances": instances},
                "fabric": {"state": "Completed" if done else None, "status": "Success" if done else None},
                "processes": [],
            }
        )
    facts["nvidia_smi"] = {"state": "ok", "error": None, "seconds": 0.4, "driver_version": version, "cuda_version": "13.0", "gpus": gpus}


def _cdi(facts: Facts, path: str) -> None:
    devices = ["all"]
    for gpu in facts["nvidia_smi"]["gpus"]:
        if gpu["mig"]["current"] == "enabled":
            for number, instance in enumerate(gpu["mig"]["instances"]):
                devices += [f"{gpu['index']}:{number}", instance["uuid"]]
        else:
            devices += [str(gpu["index"]), gpu["uuid"]]
    facts["cdi"] = {"specs": [{"path": path, "kind": "nvidia.com/gpu", "cdi_version": "0.7.0", "devices": devices, "problems": []}]}


def _verify_tool(facts: Facts, areas: dict[str, Any]) -> None:
    """As apply.yml does, from the plan that is made again once the driver tells the GPUs' names and UUIDs."""
    request, timer = copy.deepcopy(areas["smoke_test"]), areas["verify_tool"]["timer"]
    told = {gpu["pci_bus_id"]: gpu for gpu in facts["nvidia_smi"]["gpus"]}
    for gpu in request["gpus"]:
        gpu.update(uuid=told[gpu["pci_bus_id"]]["uuid"], name=told[gpu["pci_bus_id"]]["name"])
    request["stamp"]["gpus"] = sorted(gpu["uuid"] for gpu in told.values())
    for file in verify_tool.files(request, timer):
        if file.path in reading.DIGESTED:
            facts["digests"][file.path] = {"sha256": hashlib.sha256(file.data).hexdigest(), "mode": file.mode}
    active, enabled = ("inactive", "disabled") if timer == "off" else ("active", "enabled")
    facts["units"][verify_tool.TIMER] = {"load": "loaded", "active": active, "enabled": enabled}


def canonical(value: Any) -> str:
    """A text that is equal exactly when two plans are."""
    return json.dumps(value, sort_keys=True)
