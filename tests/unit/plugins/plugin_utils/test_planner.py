# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of whole hosts: what is planned, what is refused, and that a planned host has nothing left to do."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils import planner
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from tests.unit import plans
from tests.unit.hosts import BUS_IDS, CONVERGED, facts_for
from tests.unit.plans import accept, apply_plan, canonical, plan_for

SCHEMA = json.loads(Path(planner.__file__).with_name("schemas").joinpath("plan.schema.json").read_text(encoding="utf-8"))
WORKLOAD = {"device": "/dev/nvidia0", "pid": 4711, "command": "python3 train.py", "unit": "session-3.scope", "container": None, "role": "workload"}


def only(refusals: list[str]) -> str:
    assert len(refusals) == 1, refusals
    return refusals[0]


def open_areas(plan: dict[str, Any]) -> list[str]:
    return [name for name, area in plan["areas"].items() if not area["converged"]]


def test_a_bare_host_gets_everything() -> None:
    plan = plan_for(facts_for())
    Draft202012Validator(SCHEMA).validate(plan)
    assert plan["refusals"] == []
    assert not plan["converged"]
    assert open_areas(plan) == list(planner.AREAS)
    driver = plan["areas"]["nvidia_driver"]["desired"]
    assert (driver["branch"], driver["version"], driver["flavour"]) == ("580", "580.178.04", "open")
    assert "nvidia-kernel-open-dkms=580.178.04-1" in driver["install"]
    assert driver["install"][0] == "linux-headers-6.12.48+deb13-amd64"
    fabric = plan["areas"]["nvidia_fabric"]["desired"]
    assert fabric["install"] == ["nvidia-fabricmanager=580.178.04-1"]
    assert fabric["gpus_completed"]
    assert plan["areas"]["docker"]["desired"]["source"] == "distribution"
    assert plan["areas"]["pytorch_image"]["desired"]["pull"] == f"nvcr.io/nvidia/pytorch@{plans.INDEX}"
    assert plan["download_mib"] == 8584
    assert plan["areas"]["mig"]["actual"] == "unknown"


def test_repository_files_carry_the_key_and_pins_have_a_name_that_apt_reads() -> None:
    files = {spec["path"]: spec["content"] for spec in plan_for(facts_for())["areas"]["nvidia_driver"]["desired"]["files"]}
    sources = files["/etc/apt/sources.list.d/rackready-nvidia-cuda.sources"]
    assert (
        "URIs: https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64/\nSuites: /\nArchitectures: amd64\nSigned-By:\n -----BEGIN PGP"
        in sources
    )
    assert "\n .\n" in sources
    assert "" not in sources.splitlines()
    pin = files["/etc/apt/preferences.d/rackready-nvidia.pref"]
    assert "Pin: version 580.178.04-*\nPin-Priority: 1001\n" in pin
    assert "src:*nvidia*:any" in pin


def test_what_must_be_reachable_is_named_before_anything_changes() -> None:
    sources = plan_for(facts_for())["sources"]
    by_name = {entry["name"]: entry for entry in sources["repositories"]}
    assert by_name["nvidia-cuda"]["packages"]["nvidia-fabricmanager"] == "580.178.04-1"
    assert by_name["nvidia-cuda"]["packages"]["nvidia-driver-cuda"] == "580.178.04-1"
    archive = by_name["debian-13"]
    assert archive["url"] == "https://deb.debian.org/debian"
    assert archive["packages"] == {"linux-headers-6.12.48+deb13-amd64": None, "docker.io": None, "docker-cli": None}
    assert "kernel" in archive["hint"]
    assert sources["images"] == [{"ref": plans.IMAGE, "digest": plans.INDEX}]


def test_without_an_archive_to_ask_the_plan_says_so() -> None:
    facts = facts_for()
    facts["files"]["/etc/apt/sources.list.d/debian.sources"] = "Types: deb\nURIs: file:/srv/debian\nSuites: trixie\nComponents: main\n"
    assert any("no HTTP source of debian-13" in warning for warning in plan_for(facts)["warnings"])


def test_a_planned_host_has_nothing_left_but_the_smoke_test() -> None:
    bare = facts_for()
    facts = apply_plan(bare, plan_for(bare))
    plan = plan_for(facts)
    assert open_areas(plan) == ["smoke_test"]
    assert plan["converged"]
    assert plan["sources"] == {"repositories": [], "images": []}
    assert plan["download_mib"] is None
    assert plan_for(accept(facts, plan))["areas"]["smoke_test"]["converged"]


def test_the_installed_fixture_differs_only_where_our_files_are_missing() -> None:
    plan = plan_for(facts_for(**CONVERGED))
    assert plan["areas"]["nvidia_fabric"]["converged"]
    assert plan["areas"]["mig"]["converged"]
    assert all(action.startswith(("write ", "rebuild the initramfs")) for action in plan["areas"]["nvidia_driver"]["actions"])


# --- refusals


def test_a_missing_gpu_is_refused_with_those_that_are_there() -> None:
    plan = plan_for(facts_for(gpus=7))
    sentence = only(plan["refusals"])
    assert "7 of 8 H100 SXM5 80GB" in sentence
    assert "1 missing" in sentence
    assert all(bus_id in sentence for bus_id in BUS_IDS[:7])
    assert plan["areas"] == {}
    assert not plan["converged"]


@pytest.mark.parametrize(
    ("changes", "variables", "words"),
    [
        ({"gpus": 0}, {}, "no NVIDIA GPU on the PCI bus"),
        ({}, {"gpu_expected": {"model": "h100-sxm5-80gb", "count": 4}}, "4 more than gpu_expected says"),
        ({}, {"gpu_expected": {"model": "h200-sxm-141gb", "count": 8}}, "H100 SXM5 80GB at 0000:1a:00.0"),
        ({"bound_to": "vfio-pci"}, {}, "bound to vfio-pci"),
        ({"distribution": ("ubuntu", "20.04", "focal", "Ubuntu 20.04.6 LTS")}, {}, "Ubuntu 20.04.6 LTS (ubuntu-20.04) is not a supported distribution"),
        ({"architecture": "aarch64"}, {}, "Debian 13 (trixie) on aarch64 is not supported"),
        ({"broken": True}, {}, "dpkg has half-installed packages"),
        ({"busy": "apt-get (pid 123) holds /var/lib/dpkg/lock-frontend"}, {}, "apt-get (pid 123) holds"),
        ({"bound_to": "nvgrace-gpu-vfio-pci"}, {}, "All 8 GPUs are bound to nvgrace-gpu-vfio-pci, so they belong to virtual machines"),
        ({"bound_to": "pci-stub"}, {}, "All 8 GPUs are bound to pci-stub, so they belong to virtual machines"),
        ({"bound_to": "NovaCore"}, {}, "All 8 GPUs are bound to NovaCore, so the driver cannot use them: unbind the GPUs."),
        *(
            ({"kernel": kernel, "gpus": gpus}, {}, f"This is a Jetson (kernel {kernel}), so its driver is part of NVIDIA's system image")
            for kernel in ("5.15.0-1015-nvidia-tegra-rt", "5.15.0-1020-nvidia-tegra-igx", "5.10.104-tegra-custom")
            for gpus in (0, 1)
        ),
        ({"kernel": "5.15.148-tegra"}, {}, "This is a Jetson (kernel 5.15.148-tegra), so its driver is part of NVIDIA's system image"),
        ({}, {"nvidia_driver_branch": 999}, "Driver branch 999 is not in the catalog"),
        ({}, {"nvidia_driver_branch": 620, "nvidia_driver_flavour": "proprietary"}, "branch 620 has no proprietary kernel modules"),
        ({}, {"nvidia_driver_version": "580.65.06"}, "The lock has no nvidia-driver-cuda that is 580.65.06 (it has 580.178.04-1)"),
        ({}, {"nvidia_container_toolkit_version": "1.17.0"}, "Toolkit 1.17.0 fails on images"),
        ({}, {"nvidia_container_toolkit_version": "1.16.2"}, "CVE-2025-23266"),
        ({}, {"nvidia_container_toolkit_version": "1.19.1"}, "The lock has no nvidia-container-toolkit and no"),
        ({}, {"pytorch_image_ref": "nvcr.io/nvidia/pytorch:26.08-py3"}, "nvcr.io/nvidia/pytorch:26.08-py3 is not in the lock"),
        ({}, {"pytorch_image_ref": f"{plans.IMAGE}@sha256:{'9' * 64}"}, "it is not clear which image is meant"),
        ({"pci_id": "10de:2901", "nvswitches": 0}, {"gpu_expected": None, "nvidia_driver_flavour": "proprietary"}, "(Blackwell) needs the open kernel modules"),
        ({"free_mib": 20_000}, {}, "would fill the disk"),
        ({"daemon_json": {"features": {"cdi": False}}}, {}, "turns CDI off"),
        ({"files": {"/etc/docker/daemon.json": "{"}}, {}, "/etc/docker/daemon.json is not JSON"),
        ({"docker": "26.1.5"}, {"docker_source": "docker"}, "docker.io is installed and Docker's own packages are planned"),
        ({"docker": "26.1.5"}, {"docker_daemon_options": {"hosts": ["tcp://0.0.0.0"]}}, "sets --host on its command line"),
        ({"docker": "26.1.5", "containers": ({"id": "1", "name": "web", "image": "x", "devices": []},)}, {}, "running containers would stop (web)"),
        ({**CONVERGED, "driver": "550.163.01"}, {}, "550.163.01 open is loaded and 580.178.04 open is planned, so a reboot is needed"),
        ({**CONVERGED, "driver": "550.163.01"}, {"nvidia_driver_reboot_ok": True}, "this version of rackready does not reboot hosts"),
        ({**CONVERGED, "flavour": "proprietary"}, {}, "580.178.04 proprietary is loaded"),
        ({**CONVERGED, "smi_state": "hung"}, {}, "nvidia-smi did not end within 15 s"),
        ({**CONVERGED, "smi_state": "failed"}, {}, "nvidia-smi exited 9"),
        ({**CONVERGED, "held": True, "packages": {"x": "1"}, "library": "580.178.04", "smi_state": "garbled"}, {}, "is not its XML"),
    ],
)
def test_refused(changes: dict[str, Any], variables: dict[str, Any], words: str) -> None:
    plan = plan_for(facts_for(**changes), **variables)
    Draft202012Validator(SCHEMA).validate(plan)
    matching = [sentence for sentence in plan["refusals"] if words in sentence]
    assert len(matching) == 1, plan["refusals"]
    assert ", so " in matching[0]
    assert matching[0].endswith(".")
    assert not plan["converged"]


@pytest.mark.parametrize(("text", "warned"), [("#!/bin/sh\nexit 101\n", True), ("#!/bin/sh\n# site policy\nexit 101\n", False)], ids=["ours", "somebody's own"])
def test_what_an_installation_that_was_cut_off_leaves_is_said(text: str, warned: bool) -> None:
    plan = plan_for(facts_for(files={"/usr/sbin/policy-rc.d": text}))
    assert any("/usr/sbin/policy-rc.d keeps packages from starting their services" in sentence for sentence in plan["warnings"]) is warned
    assert plan["refusals"] == []


BOOKWORM = ("debian", "12", "bookworm", "Debian GNU/Linux 12 (bookworm)")
A100 = {"pci_id": "10de:20b2", "gpu_name": "NVIDIA A100-SXM4-80GB", "memory_mib_each": 81920, "nvswitches": 6}


def bookworm_lock() -> dict[str, Any]:
    """The lock of Debian 13 with the names and addresses of Debian 12."""
    text = json.dumps(plans.lock()).replace("debian-13", "debian-12").replace("debian13", "debian12")
    lock: dict[str, Any] = json.loads(text)
    return lock


def test_a_distribution_whose_engine_is_too_old_gets_docker_s_packages_and_repository() -> None:
    plan = plan_for(facts_for(distribution=BOOKWORM), rackready_lock=bookworm_lock())
    docker = plan["areas"]["docker"]
    assert plan["refusals"] == []
    assert docker["desired"]["source"] == "docker"
    assert [spec["path"] for spec in docker["desired"]["files"]] == ["/etc/apt/sources.list.d/rackready-docker-ce.sources"]
    assert any("ships Docker 20.10.24, older than 26.1" in reason["rule"] for reason in docker["reasons"])
    assert any(action.startswith("install docker-ce=") for action in docker["actions"])


@pytest.mark.parametrize(
    ("changes", "variables", "remedy"),
    [
        ({"distribution": BOOKWORM, "docker": "20.10.24"}, {}, "remove docker.io, then run again."),
        ({"docker": "26.1.5"}, {"docker_source": "docker"}, "remove docker.io or set docker_source: distribution, then run again."),
    ],
    ids=["the other source is too old", "the other source serves"],
)
def test_another_engine_is_never_replaced_and_the_remedy_names_only_what_can_work(changes: dict[str, Any], variables: dict[str, Any], remedy: str) -> None:
    lock = bookworm_lock() if "distribution" in changes else plans.lock()
    refusals = plan_for(facts_for(**changes), rackready_lock=lock, **variables)["refusals"]
    assert [sentence for sentence in refusals if "docker.io is installed and Docker's own packages are planned" in sentence and sentence.endswith(remedy)]


@pytest.mark.parametrize("key", ["hosts", "containerd"])
def test_an_option_that_the_packages_unit_will_set_is_refused_before_they_are_installed(key: str) -> None:
    refusals = plan_for(facts_for(), docker_daemon_options={key: "tcp://0.0.0.0:2375"})["refusals"]
    assert [
        sentence
        for sentence in refusals
        if f"{key} is to go into /etc/docker/daemon.json" in sentence and f"leave {key} out of docker_daemon_options" in sentence
    ]
    drop_in = {"/etc/systemd/system/docker.service.d/site.conf": "[Service]\nExecStart=\nExecStart=/usr/sbin/dockerd\n"}
    assert plan_for(facts_for(files=drop_in), docker_daemon_options={key: "tcp://0.0.0.0:2375"})["refusals"] == []


VENDOR = "/usr/lib/systemd/system/docker.service.d/vendor.conf"
OWN = "/etc/systemd/system/docker.service.d/docker-override.conf"
DGX = """[Service]
Environment="OPTS=--insecure-registry=registry.example:5000"
ExecStart=
ExecStart=/usr/bin/dockerd -H fd:// -s overlay2 \\
    --default-shm-size=1G $OPTS
"""


@pytest.mark.parametrize("path", [VENDOR, OWN])
@pytest.mark.parametrize(
    ("key", "flag"), [("storage-driver", "--storage-driver"), ("insecure-registries", "--insecure-registry"), ("default-shm-size", "--default-shm-size")]
)
def test_f2_an_option_that_a_vendors_drop_in_will_set_is_refused_before_docker_is_installed(path: str, key: str, flag: str) -> None:
    options = {key: ["registry.example:5000"] if key.endswith("ies") else "overlay2"}
    assert plan_for(facts_for(files={path: DGX}), docker_daemon_options=options)["refusals"] == [
        f"docker.service sets {flag} on its command line and {key} is to go into /etc/docker/daemon.json, so Docker does not start with both: remove {flag} "
        f"from {path}, or leave {key} out of docker_daemon_options."
    ]


def test_f2_the_drop_in_that_counts_is_the_last_by_name_and_the_hosts_own_before_a_vendors() -> None:
    def refused(files: dict[str, str]) -> list[str]:
        found: list[str] = plan_for(facts_for(files=files), docker_daemon_options={"storage-driver": "overlay2"})["refusals"]
        return found

    bare = "[Service]\nExecStart=\nExecStart=/usr/bin/dockerd -H fd://\n"
    assert refused({VENDOR: DGX, OWN: bare})  # docker-override.conf comes before vendor.conf
    assert refused({VENDOR: DGX, OWN.replace("docker-override", "vendor"): bare}) == []
    assert refused({VENDOR: DGX, OWN.replace("docker-override", "zz"): bare}) == []
    assert refused({VENDOR: "[Service]\nEnvironment=A=1\n"}) == []


def test_an_a100_board_gets_a_fabric_manager_and_no_state_is_waited_for() -> None:
    plan = plan_for(facts_for(distribution=BOOKWORM, **A100), rackready_lock=bookworm_lock(), gpu_expected={"model": "a100-sxm4-80gb", "count": 8})
    fabric = plan["areas"]["nvidia_fabric"]
    assert fabric["desired"]["required"]
    assert not fabric["desired"]["gpus_completed"]
    assert not any("Completed" in action for action in fabric["actions"])


def test_without_a_lock_driver_toolkit_and_image_are_refused_with_the_remedy() -> None:
    refusals = plan_for(facts_for(), rackready_lock=None)["refusals"]
    assert len(refusals) == 3
    assert all(sentence.endswith("run playbooks/pin.yml.") for sentence in refusals)


def test_a_lock_for_another_address_is_refused() -> None:
    refusals = plan_for(facts_for(), rackready_mirror={"packages": {"nvidia-cuda": "https://mirror.example/cuda"}})["refusals"]
    assert "this host uses https://mirror.example/cuda/debian13/x86_64/" in only(refusals)


def test_docker_from_a_snap_is_refused() -> None:
    facts = facts_for()
    facts["docker"]["snap"] = True
    assert "snap remove docker" in only(plan_for(facts)["refusals"])


def test_a_driver_under_a_running_job_is_not_touched() -> None:
    facts = facts_for(**CONVERGED, holders=(WORKLOAD,))
    del facts["packages"]["installed"]["nvidia-kernel-open-dkms"]
    plan = plan_for(facts)
    assert "python3 train.py (pid 4711, session-3.scope)" in only(plan["refusals"])
    assert plan["drain"]


def test_a_running_job_does_not_matter_when_driver_and_mig_hold() -> None:
    bare = facts_for()
    facts = apply_plan(bare, plan_for(bare))
    facts["holders"] = [WORKLOAD]
    assert plan_for(facts)["converged"]


def test_a_library_that_stayed_behind_the_module_is_repaired_and_not_refused() -> None:
    facts = facts_for(**CONVERGED, smi_state="failed", library="580.65.06")
    facts["packages"]["installed"]["nvidia-driver-cuda"]["version"] = "580.65.06-1"
    plan = plan_for(facts)
    assert plan["refusals"] == []
    assert "install nvidia-driver-cuda=580.178.04-1" in plan["areas"]["nvidia_driver"]["actions"]


def test_packages_that_were_upgraded_under_the_loaded_module_are_named_with_both_ways_out() -> None:
    facts = facts_for(**CONVERGED, smi_state="failed", library="595.91.07")
    names = ["libcuda1", "libnvidia-ml1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced"]
    for name in names:
        facts["packages"]["installed"][name] = {"version": "595.91.07-1", "held": True}
    refusals = plan_for(facts)["refusals"]
    (sentence,) = [refusal for refusal in refusals if refusal.startswith("The driver's packages were upgraded")]
    back = " ".join(f"{name}=580.178.04-*" for name in facts["packages"]["installed"] if name in names)
    assert sentence == (
        "The driver's packages were upgraded to 595.91.07 and the loaded nvidia kernel module is 580.178.04, so no program can use a GPU: "
        f"run apt-get install --allow-downgrades --allow-change-held-packages {back} to go back, or plan 595.91.07 and reboot the host; then run again."
    )


# --- what others put on the host


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "/etc/apt/sources.list.d/cuda-debian13-x86_64.list",
            "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] https://developer.download.nvidia.com/compute/cuda/repos/debian13/x86_64/ /\n",
        ),
        (
            "/etc/apt/sources.list.d/nvidia-container-toolkit.list",
            "deb [signed-by=/usr/share/keyrings/nct.gpg] https://nvidia.github.io/libnvidia-container/stable/deb/$(ARCH) /\n",
        ),
    ],
)
def test_somebody_elses_source_of_our_repository_is_refused_by_its_file(path: str, text: str) -> None:
    bare = facts_for(files={path: text})
    assert f"remove it from {path} (ours takes its place)" in only(plan_for(bare)["refusals"])
    there = apply_plan(facts_for(), plan_for(facts_for()))
    there["files"][path] = text
    assert plan_for(there)["converged"], "nothing is installed there, so nothing is asked of apt"


@pytest.mark.parametrize("package", ["nvidia-persistenced", "nvidia-fabricmanager", "docker.io", "nvidia-container-toolkit"])
@pytest.mark.parametrize("name", ["nvidia-cuda", "nvidia-container-toolkit"])
def test_somebody_elses_source_is_refused_also_where_the_area_of_that_repository_holds(package: str, name: str) -> None:
    """apt reads all sources, whichever package it is asked for."""
    facts = planned_host()
    ours = f"/etc/apt/sources.list.d/rackready-{name}.sources"
    facts["files"]["/etc/apt/sources.list.d/site.sources"] = facts["files"][ours]
    assert plan_for(facts)["converged"]
    del facts["packages"]["installed"][package]
    if package == "docker.io":
        facts["docker"].update(installed=False, running=False, version=None, running_version=None)
    assert "remove it from /etc/apt/sources.list.d/site.sources (ours takes its place)" in only(plan_for(facts)["refusals"])


def test_somebody_elses_source_of_docker_is_refused_when_ours_is_to_be_written() -> None:
    docker = facts_for(files={"/etc/apt/sources.list.d/docker.list": "deb [arch=amd64] https://download.docker.com/linux/debian trixie stable\n"})
    assert "/etc/apt/sources.list.d/docker.list" in only(plan_for(docker, docker_source="docker")["refusals"])
    assert plan_for(docker)["refusals"] == []


def test_a_file_that_cannot_be_read_is_never_overwritten() -> None:
    areas = plan_for(facts_for(), docker_source="docker")["areas"]
    whole = [spec["path"] for name in ("host_tuning", "nvidia_driver", "docker", "nvidia_container_toolkit") for spec in areas[name]["desired"]["files"]]
    for path in [*whole, "/etc/docker/daemon.json"]:
        facts = facts_for(unread_files={path: "it is longer than 64 KiB"})
        sentence = only(plan_for(facts, docker_source="docker")["refusals"])
        assert sentence.startswith(f"{path} is there and cannot be read (it is longer than 64 KiB), so ")


PINNED = {
    "nvidia-driver-cuda": ("580.178.04", "580.200.01", 'set nvidia_driver_version: "580.200.01"'),
    "nvidia-fabricmanager": ("580.178.04", "595.91.07", 'set nvidia_driver_version: "595.91.07"'),
    "nvidia-container-toolkit": ("1.20.0", "1.21.0", 'set nvidia_container_toolkit_version: "1.21.0"'),
}


@pytest.mark.parametrize("name", PINNED)
def test_a_package_newer_than_planned_is_refused(name: str) -> None:
    planned, newer, remedy = PINNED[name]
    facts = facts_for(**CONVERGED)
    facts["packages"]["installed"][name]["version"] = f"{newer}-1"
    sentence = only(plan_for(facts)["refusals"])
    assert sentence.startswith(f"{name} {newer}-1 is installed, newer than the planned {planned}-1, so apt would stop at the downgrade: {remedy}")


def of_docker(version: str, engine: str, **changes: Any) -> dict[str, Any]:
    """A host with Docker's own packages."""
    facts = facts_for(docker=engine, daemon_json={"features": {"cdi": True}}, packages=dict.fromkeys(plans.DOCKER_PACKAGES, version), **changes)
    del facts["packages"]["installed"]["docker.io"]
    return facts


def test_a_hold_of_somebody_else_is_respected() -> None:
    old = "5:24.0.9-1~debian.13~trixie"
    facts = of_docker(old, "24.0.9")
    assert plan_for(facts)["refusals"] == []
    facts["packages"]["installed"]["docker-ce"]["held"] = True
    assert only(plan_for(facts)["refusals"]) == (
        f"Somebody holds docker-ce at {old} (planned: 5:29.2.1-1~debian.13~trixie) with apt-mark hold, so it is not changed: "
        "run apt-mark unhold docker-ce if that is over, then run again."
    )
    facts["packages"]["installed"]["containerd.io"]["held"] = True
    sentence = only(plan_for(facts)["refusals"])
    assert "so they are not changed: run apt-mark unhold containerd.io docker-ce if that is over" in sentence
    serves = of_docker("5:28.5.1-1~debian.13~trixie", "28.5.1")
    serves["packages"]["installed"]["docker-ce"]["held"] = True
    assert plan_for(serves)["refusals"] == []


def test_our_own_holds_are_moved() -> None:
    facts = facts_for(**{**CONVERGED, "toolkit": "1.19.1"})
    plan = plan_for(facts)
    assert plan["refusals"] == []
    assert "nvidia-container-toolkit=1.20.0-1" in plan["areas"]["nvidia_container_toolkit"]["actions"][1]


@pytest.mark.parametrize("left", ["module", "library", "both"])
def test_a_driver_that_no_package_brought_is_refused(left: str) -> None:
    facts = facts_for(**CONVERGED)
    facts["packages"]["installed"] = {name: entry for name, entry in facts["packages"]["installed"].items() if "580.178.04" not in entry["version"]}
    if left == "library":
        facts["modules"]["nvidia"].update(loaded=False, version=None, flavour=None)
    if left == "module":
        facts["library_version"] = None
    assert "run nvidia-uninstall" in only(plan_for(facts)["refusals"])


LIBRARIES = plans.LIBRARY_PACKAGES["apt"]


def planned_host(**changes: Any) -> dict[str, Any]:
    """A host after its plan was applied."""
    bare = facts_for(**changes)
    return apply_plan(bare, plan_for(bare))


def unloaded(facts: dict[str, Any]) -> dict[str, Any]:
    """The facts with packages and files of the driver, and no module."""
    for name in ("nvidia", "nvidia_uvm"):
        facts["modules"][name].update(loaded=False, version=None, flavour=None)
    facts["nvidia_smi"].update(state="failed", error="no driver", driver_version=None, gpus=[])
    return facts


def put(facts: dict[str, Any], version: str, *names: str, held: bool = False) -> None:
    facts["packages"]["installed"].update({name: {"version": version, "held": held} for name in names})


@pytest.mark.parametrize("version", ["580.65.06", "580.200.01", "595.91.07"])
def test_libraries_of_another_version_than_their_driver_package_are_refused(version: str) -> None:
    """A nightly upgrade that took what no hold named; module, kernel package and tools still have the planned version."""
    facts = planned_host()
    put(facts, f"{version}-1", *LIBRARIES)
    facts["library_version"] = version
    plan = plan_for(facts)
    assert not plan["areas"]["nvidia_driver"]["converged"]
    sentence = only(plan["refusals"])
    assert f"libcuda1 {version}-1, libnvidia-ml1 {version}-1 are installed beside nvidia-driver-cuda 580.178.04-1" in sentence
    assert "libcuda1=580.178.04-* libnvidia-ml1=580.178.04-*" in sentence


def test_libraries_that_no_package_brought_are_refused_though_the_module_is_packaged() -> None:
    facts = planned_host()
    facts["library_version"] = "580.200.01"
    assert only(plan_for(facts)["refusals"]).startswith("The driver 580.200.01 is on the host and no installed package brought it")


@pytest.mark.parametrize(("found", "words"), [(None, "libcuda and libnvidia-ml are not found"), ("580.65.06", "programs find are 580.65.06")])
def test_packages_as_planned_with_other_libraries_are_refused(found: str | None, words: str) -> None:
    facts = planned_host()
    put(facts, "580.65.06-1", "cuda-drivers-fabricmanager")
    facts["library_version"] = found
    assert words in only(plan_for(facts)["refusals"])


def test_every_installed_package_of_the_driver_is_held() -> None:
    facts = planned_host()
    put(facts, "580.178.04-1", "libnvidia-nscq", "libnvidia-ml1:i386", "libnvcuvid1")
    put(facts, "1.2.2-1", "glx-alternative-nvidia")
    put(facts, "20250410-2", "firmware-nvidia-graphics")
    area = plan_for(facts)["areas"]["nvidia_driver"]
    assert not area["converged"]
    assert area["actions"] == ["hold libnvcuvid1 libnvidia-ml1:i386 libnvidia-nscq"]
    assert set(area["desired"]["hold"]) == {
        *("nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced", "libcuda1", "libnvidia-ml1"),
        *("libnvcuvid1", "libnvidia-ml1:i386", "libnvidia-nscq"),
    }
    assert plan_for(apply_plan(facts, plan_for(facts)))["areas"]["nvidia_driver"]["converged"]


def test_libraries_of_an_older_driver_move_with_it() -> None:
    facts = unloaded(planned_host())
    put(facts, "570.211.01-1", "nvidia-driver-cuda", "nvidia-kernel-open-dkms", "nvidia-persistenced", "nvidia-fabricmanager", *LIBRARIES)
    facts["library_version"] = "570.211.01"
    plan = plan_for(facts)
    assert plan["refusals"] == []
    assert any(action.startswith("install nvidia-driver-cuda=580.178.04-1") for action in plan["areas"]["nvidia_driver"]["actions"])


FOREIGN: dict[str, tuple[dict[str, str], bool, str]] = {
    "other flavour": ({"nvidia-kernel-dkms": "580.178.04-1"}, False, "run apt-get remove nvidia-kernel-dkms, then"),
    "other flavour of an older driver": (
        {"nvidia-driver-cuda": "570.211.01-1", "nvidia-kernel-dkms": "570.211.01-1"},
        True,
        "run apt-get remove --allow-change-held-packages nvidia-kernel-dkms, then",
    ),
    "Debian's own": (
        {"nvidia-driver": "550.163.01-2", "nvidia-kernel-open-dkms": "550.163.01-2", "libcuda1": "550.163.01-2", "nvidia-support": "20240109+1"},
        False,
        "run apt-get remove libcuda1 nvidia-driver nvidia-kernel-open-dkms, then",
    ),
    "Ubuntu's own": (
        {"nvidia-driver-570-server": "570.211.01-0ubuntu1", "nvidia-dkms-570-server": "570.211.01-0ubuntu1"},
        False,
        "run apt-get remove nvidia-dkms-570-server nvidia-driver-570-server, then",
    ),
    # A7: its files are those of ours. What of it a kernel is too new for shows when the modules are built, in a sentence of the role.
    "firmware of another branch": (
        {"nvidia-firmware-575-575.57.08": "575.57.08-0ubuntu0.24.04.2", "nvidia-kernel-common-575": "575.57.08-0ubuntu0.24.04.2"},
        False,
        "run apt-get remove nvidia-firmware-575-575.57.08 nvidia-kernel-common-575, then",
    ),
}


@pytest.mark.parametrize(("packages", "held", "remedy"), FOREIGN.values(), ids=list(FOREIGN))
def test_packages_of_another_driver_are_refused_before_any_change(packages: dict[str, str], held: bool, remedy: str) -> None:
    facts = facts_for()
    for name, version in packages.items():
        put(facts, version, name, held=held)
    sentence = only(plan_for(facts)["refusals"])
    assert remedy in sentence
    assert "580.178.04 open is planned, so the packages would conflict" in sentence


def test_a_loaded_driver_is_refused_once_with_its_packages() -> None:
    facts = facts_for(**{**CONVERGED, "driver": "550.163.01"})
    put(facts, "550.163.01-2", "nvidia-driver")
    assert [sentence for sentence in plan_for(facts)["refusals"] if "nvidia-driver" in sentence] == []


def test_a_gpu_that_the_driver_has_lost_is_refused() -> None:
    facts = facts_for(**CONVERGED)
    del facts["nvidia_smi"]["gpus"][3]
    assert only(plan_for(facts)["refusals"]).startswith("0000:4b:00.0 is on the PCI bus and nvidia-smi does not list it, so ")


def test_headers_that_are_there_are_not_asked_of_the_archive() -> None:
    plan = plan_for(facts_for(headers=True))
    assert not [name for name in plan["areas"]["nvidia_driver"]["desired"]["install"] if name.startswith("linux-headers")]
    assert "linux-headers-6.12.48+deb13-amd64" not in plan["sources"]["repositories"][-1]["packages"]


# --- decisions


UNITS = ("nvidia-persistenced.service", "nvidia-fabricmanager.service", "docker.service", "nvidia-cdi-refresh.path", "nvidia-cdi-refresh.service")


def test_every_unit_that_is_to_run_is_among_those_that_may_be_masked() -> None:
    assert {name for area in plan_for(facts_for())["areas"].values() for name in area["desired"].get("units", [])} == set(UNITS)


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("words", ["masked", "masked-runtime"])
def test_a_masked_unit_is_unmasked_and_the_plan_says_so(name: str, words: str) -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    facts["units"][name] = {"load": "masked", "active": "inactive", "enabled": words}
    plan = plan_for(facts)
    assert plan["refusals"] == []
    [actions] = [area["actions"] for key, area in plan["areas"].items() if not area["converged"] and key != "smoke_test"]
    assert actions == [f"unmask {name}", f"enable and start {name}"]


def test_a_masked_unit_that_is_not_wanted_is_nobody_s_business() -> None:
    facts = facts_for(nvswitches=0)
    facts["units"]["nvidia-fabricmanager.service"] = {"load": "masked", "active": "inactive", "enabled": "masked"}
    assert plan_for(facts)["refusals"] == []


def test_no_fabric_without_switches_but_a_warning_on_a_full_board() -> None:
    plan = plan_for(facts_for(nvswitches=0))
    fabric = plan["areas"]["nvidia_fabric"]
    assert fabric["desired"] == {"required": False}
    assert fabric["converged"]
    assert any("no NVSwitch on the PCI bus" in warning for warning in plan["warnings"])
    assert plan["areas"]["smoke_test"]["desired"]["not_applicable"]["fabric"] == "this board has no NVSwitch fabric"


@pytest.mark.parametrize("state", ["In Progress", "Not Started", "Completed"])
@pytest.mark.parametrize("gpu", [0, 7])
def test_a_fabric_that_a_gpu_reports_is_not_excused_though_no_switch_shows(state: str, gpu: int) -> None:
    """A machine of a cloud provider: its GPUs belong to a fabric whose switches it does not see."""
    facts = planned_host(nvswitches=0)
    assert plan_for(facts)["areas"]["smoke_test"]["desired"]["not_applicable"].keys() == {"fabric", "imex", "window.sxid"}
    facts["nvidia_smi"]["gpus"][gpu]["fabric"].update(state=state)
    plan = plan_for(facts)
    assert plan["areas"]["smoke_test"]["desired"]["not_applicable"].keys() == {"imex", "window.sxid"}
    assert plan["areas"]["nvidia_fabric"]["desired"] == {"required": False}
    assert [f"({BUS_IDS[gpu]} {state}, N/A)" in warning for warning in plan["warnings"] if "report a fabric" in warning] == [True]


def test_an_nvlink5_board_is_known_by_its_gpus() -> None:
    plan = plan_for(facts_for(pci_id="10de:2901", nvswitches=0), gpu_expected={"model": "b200-sxm-180gb", "count": 8})
    fabric = plan["areas"]["nvidia_fabric"]["desired"]
    assert fabric["install"] == ["nvidia-fabricmanager=580.178.04-1", "nvlsm=2026.02.16-1", "infiniband-diags"]
    assert fabric["modules"] == ["mlx5_core", "ib_umad"]
    assert fabric["hold"] == ["nvidia-fabricmanager", "nvlsm"]


def test_an_a100_board_reports_no_fabric_state() -> None:
    plan = plan_for(facts_for(pci_id="10de:20b2"), gpu_expected=None)
    assert plan["areas"]["nvidia_fabric"]["desired"]["gpus_completed"] is False


def test_a_fabric_that_is_not_complete_is_not_converged() -> None:
    plan = plan_for(facts_for(**CONVERGED, fabric_state="In Progress"))
    assert plan["areas"]["nvidia_fabric"]["actions"] == ["wait until every GPU reports Completed, Success"]


def test_an_unknown_gpu_is_planned_with_warnings() -> None:
    plan = plan_for(facts_for(pci_id="10de:2684", gpus=2, nvswitches=0), gpu_expected=None)
    assert plan["refusals"] == []
    assert any("10de:2684" in warning for warning in plan["warnings"])


def test_secure_boot_and_unverified_facts_are_warned_about() -> None:
    warnings = plan_for(facts_for(secure_boot="enabled"))["warnings"]
    assert any("enrolled at the console" in warning for warning in warnings)
    assert any("is not verified (source: dig-compute)" in warning for warning in warnings)


def test_secure_boot_that_cannot_be_read_is_warned_about_until_the_driver_is_loaded() -> None:
    def warned(**host: Any) -> list[str]:
        return [warning for warning in plan_for(facts_for(**host))["warnings"] if "Secure Boot" in warning]

    assert warned(secure_boot="unknown") == [
        "Whether Secure Boot is on cannot be read: if it is, the kernel loads the driver only after its signing key was enrolled at the console (mokutil)."
    ]
    assert warned(secure_boot="unknown", **CONVERGED) == warned(secure_boot="unsupported") == warned(secure_boot="disabled") == []


def test_the_newest_locked_version_of_the_branch_is_taken() -> None:
    lock = plans.lock(drivers=("580.178.04", "580.200.01", "595.91.07"))
    assert plan_for(facts_for(), rackready_lock=lock)["areas"]["nvidia_driver"]["desired"]["version"] == "580.200.01"
    other = plan_for(facts_for(), rackready_lock=lock, nvidia_driver_branch=595)
    assert other["areas"]["nvidia_driver"]["desired"]["version"] == "595.91.07"
    assert other["areas"]["nvidia_fabric"]["desired"]["install"] == ["nvidia-fabricmanager=595.91.07-1"]


def test_nouveau_is_unloaded_and_kept_out_of_the_initramfs() -> None:
    driver = plan_for(facts_for(nouveau=True))["areas"]["nvidia_driver"]
    assert "unload nouveau" in driver["actions"]
    assert driver["desired"]["initramfs_commands"] == [["update-initramfs", "-u", "-k", "all"]]  # -u alone is for the newest kernel


def test_daemon_json_is_merged() -> None:
    facts = facts_for(docker="26.1.5", daemon_json={"log-driver": "local", "features": {"buildkit": True}})
    docker = plan_for(facts, docker_daemon_options={"log-driver": "journald"})["areas"]["docker"]["desired"]
    assert docker["daemon_json"] == {"features": {"cdi": True, "buildkit": True}, "log-driver": "journald"}
    assert json.loads(docker["daemon_json_text"]) == docker["daemon_json"]
    assert docker["restart"]


def test_a_daemon_json_that_holds_is_left_alone_to_the_letter() -> None:
    text = '{"features": {"cdi":true}, "data-root":"/data"}'
    docker = plan_for(facts_for(docker="26.1.5", files={"/etc/docker/daemon.json": text}))["areas"]["docker"]["desired"]
    assert docker["daemon_json_text"] == text
    assert not docker["restart"]


def test_docker_of_docker_is_locked_and_an_engine_that_serves_is_kept() -> None:
    fresh = plan_for(facts_for(), docker_source="docker")["areas"]["docker"]["desired"]
    assert fresh["install"][0] == "docker-ce=5:29.2.1-1~debian.13~trixie"
    assert "Suites: trixie\nComponents: stable\n" in fresh["files"][0]["content"]
    there = facts_for(docker="28.5.1", packages=dict.fromkeys(plans.DOCKER_PACKAGES, "5:28.5.1-1~debian.13~trixie"))
    del there["packages"]["installed"]["docker.io"]
    kept = plan_for(there)["areas"]["docker"]["desired"]
    assert (kept["source"], kept["files"], kept["install"]) == ("docker", [], list(plans.DOCKER_PACKAGES))


CONTAINER = {"id": "abc123def456", "name": "trainer", "image": "train:1", "devices": []}
PACKAGES = {"docker-cli": "26.1.5-1"}
RESTARTS: dict[str, dict[str, Any]] = {
    "daemon.json lacks a key": {"docker": "26.1.5", "daemon_json": {}},
    # What a run leaves that was killed between writing the file and restarting the engine.
    "the engine has CDI off though daemon.json turns it on": {**CONVERGED, "cdi_enabled": False},
    "an upgrade left the old engine running": {**CONVERGED, "docker_running_version": "20.10.24"},
    "the engine is too old": {**CONVERGED, "docker": "20.10.24"},
}


@pytest.mark.parametrize("changes", RESTARTS.values(), ids=list(RESTARTS))
def test_an_engine_that_lacks_something_is_restarted_and_containers_are_not_stopped(changes: dict[str, Any]) -> None:
    changes = {**changes, "packages": PACKAGES}
    area = plan_for(facts_for(**changes))["areas"]["docker"]
    assert (area["converged"], area["desired"]["restart"]) == (False, True)
    assert area["actions"][-1] == "restart docker.service"
    refused = plan_for(facts_for(**changes, containers=(CONTAINER,)))
    assert "the running containers would stop (trainer)" in only(refused["refusals"])
    assert refused["drain"]
    silent = facts_for(**changes)
    silent["docker"]["api_error"] = "docker ps did not end within 10 s and was given up"
    assert "does not say which containers run (docker ps did not end" in only(plan_for(silent)["refusals"])


def test_an_upgrade_of_the_packages_restarts_the_engine() -> None:
    old = of_docker("5:24.0.9-1~debian.13~trixie", "24.0.9")
    assert plan_for(old)["areas"]["docker"]["desired"]["restart"]
    with_container = of_docker("5:24.0.9-1~debian.13~trixie", "24.0.9", containers=(CONTAINER,))
    assert "Docker must be restarted for the upgrade of docker-ce, " in only(plan_for(with_container)["refusals"])
    with_container["files"]["/etc/docker/daemon.json"] = '{"features": {"cdi": true}, "live-restore": true}'
    assert plan_for(with_container)["refusals"] == []


def test_times_of_files_alone_restart_nothing() -> None:
    """A reload reads daemon.json without a new start, and clocks jump."""
    for containers in ((), (CONTAINER,)):
        plan = plan_for(facts_for(**CONVERGED, packages=PACKAGES, configuration_read=False, containers=containers))
        assert plan["areas"]["docker"]["converged"]
        assert plan["refusals"] == []
        assert any("until docker.service is restarted" in warning for warning in plan["warnings"])


@pytest.mark.parametrize("features", [None, [], {}, "cdi", {"cdi": False}, {"cdi": None}, {"cdi": "true"}, {"cdi": 1}])
def test_cdi_is_on_or_the_host_is_refused(features: Any) -> None:
    asked = plan_for(facts_for(), docker_daemon_options={"features": features})
    there = plan_for(facts_for(docker="26.1.5", daemon_json={"features": features}))
    if features == {}:
        assert all(plan["areas"]["docker"]["desired"]["daemon_json"]["features"] == {"cdi": True} for plan in (asked, there))
        return
    assert only(asked["refusals"]).startswith("docker_daemon_options turns CDI off")
    assert only(there["refusals"]).startswith("/etc/docker/daemon.json turns CDI off")


@pytest.mark.parametrize("deep", ["[" * 100 + "]" * 100, "[" * 100_000])
def test_a_daemon_json_that_nobody_could_walk_through_is_refused(deep: str) -> None:
    assert "is not JSON that can be used" in only(plan_for(facts_for(files={"/etc/docker/daemon.json": f'{{"x": {deep}}}'}))["refusals"])


def test_an_old_engine_is_upgraded() -> None:
    actions = plan_for(facts_for(docker="20.10.24"))["areas"]["docker"]["actions"]
    assert "upgrade Docker 20.10.24 to 26.1 or newer" in actions


def test_images_come_from_the_mirror_by_the_same_digest() -> None:
    plan = plan_for(facts_for(), rackready_mirror={"images": {"nvcr.io": "registry.example:5000/cache"}})
    assert plan["areas"]["pytorch_image"]["desired"]["pull"] == f"registry.example:5000/cache/nvidia/pytorch@{plans.INDEX}"
    assert plan["sources"]["images"][0]["ref"] == "registry.example:5000/cache/nvidia/pytorch:26.07-py3"


def test_a_cdi_specification_that_lacks_a_gpu_or_has_problems_is_written_again() -> None:
    bare = facts_for()
    facts = apply_plan(bare, plan_for(bare))
    broken = copy.deepcopy(facts)
    broken["cdi"]["specs"][0]["devices"].remove("7")
    assert open_areas(plan_for(broken)) == ["nvidia_container_toolkit", "smoke_test"]
    facts["cdi"]["specs"][0]["problems"] = ["/dev/nvidia0 has 195:0 in the spec and 1:3 on the host"]
    assert plan_for(facts)["areas"]["nvidia_container_toolkit"]["actions"] == ["write /var/run/cdi/nvidia.yaml for 8 GPUs"]


STALE = ("8", "0:0", "GPU-00000099", "MIG-0000-0000")


@pytest.mark.parametrize("name", STALE)
def test_a_cdi_specification_with_a_gpu_that_is_no_more_is_written_again(name: str) -> None:
    facts = planned_host()
    facts["cdi"]["specs"][0]["devices"].append(name)
    area = plan_for(facts)["areas"]["nvidia_container_toolkit"]
    assert area["actions"] == ["write /var/run/cdi/nvidia.yaml for 8 GPUs"]
    assert name in area["actual"]["cdi"]["devices"]


def test_a_cdi_specification_from_before_a_split_is_written_again() -> None:
    whole = planned_host()
    wanted = layout({"gpus": [0], "instances": {"3g.40gb": 2}})
    split = apply_plan(whole, plan_for(whole, **wanted))
    split["cdi"] = whole["cdi"]
    split["cdi"]["specs"][0]["devices"] += ["0:0", "0:1", "MIG-0000-0000", "MIG-0000-0001"]
    assert not plan_for(split, **wanted)["areas"]["nvidia_container_toolkit"]["converged"]


def test_other_names_in_a_cdi_specification_do_not_matter() -> None:
    facts = planned_host()
    facts["cdi"]["specs"][0]["devices"] += ["gds", "trainer", "gpu0"]
    assert plan_for(facts)["areas"]["nvidia_container_toolkit"]["converged"]


def test_a_simulated_stamp_does_not_accept_a_real_host() -> None:
    bare = facts_for()
    facts = apply_plan(bare, plan_for(bare))
    facts = accept(facts, plan_for(facts), verdict="simulated")
    assert not plan_for(facts)["areas"]["smoke_test"]["converged"]
    assert plan_for(facts, smoke_test_backend="cpu")["areas"]["smoke_test"]["converged"]


@pytest.mark.parametrize("change", [{"driver": "580.1"}, {"gpus": []}, {"tier": "none"}, {"mig": {}}, {"release": "x"}, {"image_digest": "x"}])
def test_any_difference_to_the_stamp_asks_for_a_new_test(change: dict[str, Any]) -> None:
    bare = facts_for()
    facts = apply_plan(bare, plan_for(bare))
    facts = accept(facts, plan_for(facts))
    facts["stamp"].update(change)
    assert open_areas(plan_for(facts)) == ["smoke_test"]


# --- MIG


def layout(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"mig_layout": list(entries)}


def test_a_layout_is_placed_on_every_card() -> None:
    plan = plan_for(facts_for(), **layout({"gpus": "all", "instances": {"1g.10gb": 7}}))
    mig = plan["areas"]["mig"]["desired"]
    assert mig["resets"] == []
    assert [instance["start"] for instance in mig["gpus"][0]["instances"]] == list(range(7))
    assert {"all_reduce_exact", "product_match", "speed.matmul.bf16"} <= plan["areas"]["smoke_test"]["desired"]["not_applicable"].keys()


def test_ampere_needs_a_reset_to_switch_mig() -> None:
    plan = plan_for(facts_for(pci_id="10de:20b2"), gpu_expected=None, **layout({"gpus": "all", "instances": {"3g.40gb": 2}}))
    assert plan["areas"]["mig"]["desired"]["resets"] == list(BUS_IDS)
    assert plan["refusals"] == []
    assert any("is switched on by a GPU reset: if it is not yet, the run will stop there" in warning for warning in plan["warnings"])


@pytest.mark.parametrize(("mig", "flag"), [({}, 1), ({0: []}, 0)])
def test_a_reset_is_left_to_the_operator(mig: dict[int, Any], flag: int) -> None:
    facts = facts_for(**CONVERGED, gpus=1, pci_id="10de:20b2", mig=mig)
    wanted = layout({"gpus": [0], "instances": {"3g.40gb": 2}}) if flag else {}
    assert f"run nvidia-smi -i 0000:1a:00.0 -mig {flag} and reboot the host" in only(plan_for(facts, gpu_expected=None, **wanted)["refusals"])


def test_cards_are_named_by_index_uuid_and_bus_id() -> None:
    facts = facts_for(**CONVERGED)
    uuid = facts["nvidia_smi"]["gpus"][5]["uuid"]
    mig = plan_for(facts, **layout({"gpus": [0, "0000:1B:00.0", "00000000:4A:00.0", uuid], "instances": {"7g.80gb": 1}}))["areas"]["mig"]["desired"]
    assert [gpu["mode"] for gpu in mig["gpus"]] == ["enabled", "enabled", "enabled", "disabled", "disabled", "enabled", "disabled", "disabled"]


def test_a_uuid_waits_for_the_driver() -> None:
    """Of a bare host nobody knows the UUIDs: planned again once the driver tells them, and refused only then."""
    installed = facts_for(**CONVERGED)
    uuid = installed["nvidia_smi"]["gpus"][0]["uuid"]
    wanted = layout({"gpus": [uuid], "instances": {"1g.10gb": 7}})
    plan = plan_for(facts_for(), **wanted)
    assert plan["refusals"] == []
    assert (plan["areas"]["mig"]["actual"], plan["areas"]["mig"]["converged"]) == ("unknown", False)
    assert any(uuid in warning and "planned again" in warning for warning in plan["warnings"])
    known = plan_for(installed, **wanted)
    assert [gpu["mode"] for gpu in known["areas"]["mig"]["desired"]["gpus"]][:2] == ["enabled", "disabled"]
    other = plan_for(installed, **layout({"gpus": ["GPU-ffffffff"], "instances": {"1g.10gb": 7}}))
    assert "names the GPU GPU-ffffffff, which this host does not have" in only(other["refusals"])


def test_a_gpu_instance_without_a_compute_instance_is_not_the_layout() -> None:
    half = {**instance("3g.40gb", 4), "ci": None, "uuid": None}
    facts = facts_for(**CONVERGED, mig={0: [half, instance("3g.40gb", 0, 1)]})
    plan = plan_for(facts, **layout({"gpus": [0], "instances": {"3g.40gb": 2}}))
    assert plan["areas"]["mig"]["actual"]["gpus"]["0000:1a:00.0"] == "enabled: 1 x 3g.40gb, 1 x 3g.40gb without a compute instance"
    assert not plan["areas"]["mig"]["converged"]
    cdi = plan["areas"]["nvidia_container_toolkit"]["desired"]["cdi"]["devices"]
    assert cdi[:3] == ["all", "0:0", "MIG-0"]
    assert None not in cdi


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ([{"gpus": "all", "instances": {"1g.5gb": 7}}], "has no MIG profile 1g.5gb"),
        ([{"gpus": [0], "instances": {"3g.40gb": 2, "1g.10gb": 1}}], "1 x 1g.10gb do not fit on H100 SXM5 80GB at 0000:1a:00.0"),
        ([{"gpus": [0], "instances": {"1g.10gb+me": 2}}], "2 x 1g.10gb+me do not fit"),
        ([{"gpus": [9], "instances": {"1g.10gb": 1}}], "names the GPU 9, which this host does not have"),
        ([{"gpus": "all", "instances": {"1g.10gb": 1}}, {"gpus": [0], "instances": {"1g.10gb": 2}}], "asks twice for the GPU 0000:1a:00.0"),
    ],
)
def test_impossible_layouts_are_refused(entries: list[dict[str, Any]], words: str) -> None:
    refusals = plan_for(facts_for(), **layout(*entries))["refusals"]
    assert any(words in sentence for sentence in refusals), refusals


def test_a_card_without_mig_is_refused_by_name_and_off_holds_on_it() -> None:
    l40s = facts_for(pci_id="10de:26b9", nvswitches=0)
    refusals = plan_for(l40s, gpu_expected=None, **layout({"gpus": [0], "instances": {"1g.10gb": 1}}))["refusals"]
    assert "L40S at 0000:1a:00.0 has no MIG" in only(refusals)
    assert plan_for(l40s, gpu_expected=None)["areas"]["mig"]["converged"]


def instance(profile: str, start: int, number: int = 0) -> dict[str, Any]:
    return {"profile": profile, "gi": number, "ci": 0, "placement_start": start, "uuid": f"MIG-{start}"}


def test_instances_that_are_wanted_stay_where_they_are() -> None:
    facts = facts_for(**CONVERGED, mig={0: [instance("3g.40gb", 4)]})
    mig = plan_for(facts, **layout({"gpus": [0], "instances": {"3g.40gb": 1, "2g.20gb": 1}}))["areas"]["mig"]
    assert mig["desired"]["gpus"][0]["instances"] == [{"profile": "2g.20gb", "start": 0}, {"profile": "3g.40gb", "start": 4}]
    same = plan_for(facts, **layout({"gpus": [0], "instances": {"3g.40gb": 1}}))["areas"]["mig"]
    assert same["converged"]


def test_a_card_in_use_keeps_its_layout_and_another_card_does_not_matter() -> None:
    facts = facts_for(**CONVERGED, holders=(WORKLOAD,))
    assert "GPU 0000:1a:00.0 is in use" in only(plan_for(facts, **layout({"gpus": [0], "instances": {"1g.10gb": 7}}))["refusals"])
    assert plan_for(facts, **layout({"gpus": [1], "instances": {"1g.10gb": 7}}))["refusals"] == []


JOB_STAYS: dict[str, tuple[list[dict[str, Any]], dict[str, int], bool]] = {
    "free half is split": ([instance("3g.40gb", 4)], {"3g.40gb": 1, "1g.10gb": 3}, True),
    "nothing was there": ([], {"1g.10gb": 7}, True),
    "another instance goes": ([instance("3g.40gb", 4), instance("1g.10gb", 0, 1)], {"3g.40gb": 1, "2g.20gb": 1}, False),
    "an instance goes and nothing comes": ([instance("3g.40gb", 4), instance("3g.40gb", 0, 1)], {"3g.40gb": 1}, False),
    "all others fit around it": ([instance("1g.10gb", 4)], {"4g.40gb": 1, "1g.10gb": 3}, True),
    "no place without moving": ([instance("1g.10gb", 2)], {"4g.40gb": 1, "1g.10gb": 3}, False),
    "two compute instances become one": ([instance("3g.40gb", 4), {**instance("3g.40gb", 4), "ci": 1}], {"3g.40gb": 1}, False),
    "a compute instance is missing": ([{**instance("3g.40gb", 4), "ci": None, "uuid": None}], {"3g.40gb": 1}, True),
    "the place is not known": ([{**instance("3g.40gb", 4), "placement_start": None}], {"3g.40gb": 2}, False),
}


@pytest.mark.parametrize(("there", "wanted", "goes_on"), JOB_STAYS.values(), ids=list(JOB_STAYS))
@pytest.mark.parametrize("by", ["holder", "process"])
def test_beside_a_running_job_only_free_space_changes(there: list[dict[str, Any]], wanted: dict[str, int], goes_on: bool, by: str) -> None:
    facts = facts_for(**CONVERGED, mig={0: there}, holders=({**WORKLOAD, "device": "/dev/nvidia0" if by == "holder" else "/dev/nvidiactl"},))
    if by == "process":
        facts["nvidia_smi"]["gpus"][0]["processes"] = [{"pid": WORKLOAD["pid"], "name": "python3", "memory_mib": 10}]
    plan = plan_for(facts, **layout({"gpus": [0], "instances": wanted}))
    assert not plan["areas"]["mig"]["converged"]
    assert (plan["refusals"] == []) == goes_on
    if not goes_on:
        assert "GPU 0000:1a:00.0 is in use by python3 train.py" in only(plan["refusals"])
        assert plan["drain"]


IDLE_ONES_GO: dict[str, tuple[list[dict[str, Any]], dict[str, int] | None, str | None]] = {
    "no layout": ([instance("3g.40gb", 0), instance("1g.10gb", 4, 1)], None, "mig_layout asks for no MIG there: 3g.40gb (MIG-0), 1g.10gb (MIG-4)"),
    "another layout": (
        [instance("3g.40gb", 4), instance("3g.40gb", 0, 1)],
        {"3g.40gb": 1, "1g.10gb": 3},
        "mig_layout asks for other ones there: 3g.40gb (MIG-0)",
    ),
    "one less": ([instance("1g.10gb", 0), instance("1g.10gb", 1, 1)], {"1g.10gb": 1}, "mig_layout asks for other ones there: 1g.10gb (MIG-1)"),
    "one moves": (
        [instance("1g.10gb", 2)],
        {"4g.40gb": 1, "1g.10gb": 3},
        "what mig_layout asks for only fits where they are moved: 1g.10gb (MIG-2)",
    ),
    "one without a compute instance": (
        [{**instance("3g.40gb", 4), "ci": None, "uuid": None}],
        {"7g.80gb": 1},
        "mig_layout asks for other ones there: 3g.40gb (without a compute instance)",
    ),
    "more beside": ([instance("3g.40gb", 4)], {"3g.40gb": 1, "1g.10gb": 3}, None),
    "nothing was there": ([], None, None),
}


@pytest.mark.parametrize(("there", "wanted", "words"), IDLE_ONES_GO.values(), ids=list(IDLE_ONES_GO))
def test_m3_idle_instances_that_go_are_named(there: list[dict[str, Any]], wanted: dict[str, int] | None, words: str | None) -> None:
    facts = facts_for(**CONVERGED, mig={0: there})
    plan = plan_for(facts, **(layout({"gpus": [0], "instances": wanted}) if wanted else {}))
    assert plan["refusals"] == []
    assert not plan["areas"]["mig"]["converged"]
    why, _colon, names = (words or "").partition(": ")
    sentence = f"Idle MIG instances of H100 SXM5 80GB at 0000:1a:00.0 are destroyed, as {why}, and whoever knows them by name loses them: {names}."
    assert [warning for warning in plan["warnings"] if "Idle" in warning] == ([sentence] if words else [])
    busy = facts_for(**CONVERGED, mig={0: there}, holders=(WORKLOAD,))
    assert not any("Idle" in warning for warning in plan_for(busy, **(layout({"gpus": [0], "instances": wanted}) if wanted else {}))["warnings"])


@pytest.mark.parametrize("changed", [{"mig_layout": [{"gpus": [0], "instances": {"1g.10gb": 7}}]}, {"uvm": "not loaded"}])
def test_a_job_in_a_container_is_named_by_the_containers_name(changed: dict[str, Any]) -> None:
    holder = {**WORKLOAD, "unit": None, "container": "abc123def456"}
    running = {"id": "abc123def456", "name": "train", "image": "pytorch", "devices": ["nvidia.com/gpu=0"]}
    facts = facts_for(**CONVERGED, holders=(holder,), containers=(running,))
    if "uvm" in changed:
        facts["modules"]["nvidia_uvm"]["loaded"] = False
    plan = plan_for(facts, **{name: value for name, value in changed.items() if name != "uvm"})
    assert "in use by python3 train.py (pid 4711, container train (abc123def456))" in only(plan["refusals"])


@pytest.mark.parametrize(("current", "pending"), [("enabled", "enabled"), ("disabled", "enabled"), ("enabled", "disabled")])
def test_under_a_running_job_the_mode_does_not_change(current: str, pending: str) -> None:
    facts = facts_for(**CONVERGED, holders=(WORKLOAD,))
    facts["nvidia_smi"]["gpus"][0]["mig"].update(current=current, pending=pending)
    assert "GPU 0000:1a:00.0 is in use" in only(plan_for(facts)["refusals"])


def test_a_mode_that_is_pending_is_not_converged() -> None:
    facts = facts_for(**CONVERGED)
    facts["nvidia_smi"]["gpus"][0]["mig"].update(current="disabled", pending="enabled")
    assert plan_for(facts)["areas"]["mig"]["actual"]["gpus"]["0000:1a:00.0"] == "disabled, enabled after a reset"


SPLIT = {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}]}


@pytest.mark.parametrize(
    ("failed", "words"),
    [
        (("dcgm-exporter.service",), "dcgm-exporter.service has failed, so nobody watches the GPUs: run systemctl restart dcgm-exporter.service; if it cannot"),
        (
            ("nvidia-dcgm.service", "dcgm-exporter.service"),
            "dcgm-exporter.service, nvidia-dcgm.service have failed, so nobody watches the GPUs: run systemctl restart dcgm-exporter.service nvidia-dcgm",
        ),
        (("apache2.service", "my-dcgm-exporter.service"), None),
        ((), None),
    ],
)
@pytest.mark.parametrize("layout_", [{}, SPLIT], ids=["MIG off", "MIG on"])
def test_g10_monitoring_that_did_not_live_through_a_change_of_mig_is_named(failed: tuple[str, ...], words: str | None, layout_: dict[str, Any]) -> None:
    """Facts of a host whose layout was just applied: the run reads and plans once more at its end, and that plan is in the record."""
    facts = apply_plan(facts_for(), plan_for(facts_for(), **layout_))
    facts["failed_units"] = sorted(failed)
    plan = plan_for(facts, **layout_)
    assert plan["areas"]["mig"]["converged"]
    found = [warning for warning in plan["warnings"] if "nobody watches" in warning]
    assert [warning.startswith(words or "") for warning in found] == ([True] if words else [])


# --- properties

hosts = st.fixed_dictionaries(
    {
        "pci_id": st.sampled_from(["10de:20b2", "10de:2330", "10de:2335", "10de:2901", "10de:26b9"]),
        "gpus": st.integers(1, 8),
        "nvswitches": st.sampled_from([0, 4]),
        "nouveau": st.booleans(),
        "headers": st.booleans(),
        "docker": st.sampled_from([None, "26.1.5"]),
        "daemon_json": st.sampled_from([None, {}, {"log-driver": "local"}]),
    }
)
requests = st.fixed_dictionaries(
    {
        "gpu_expected": st.none(),
        "mig_layout": st.sampled_from(["off", [{"gpus": "all", "instances": {"1g.10gb": 3}}], [{"gpus": [0], "instances": {"3g.40gb": 1, "2g.20gb": 1}}]]),
        "nvidia_driver_flavour": st.sampled_from([None, "open", "proprietary"]),
        "docker_daemon_options": st.sampled_from([{}, {"live-restore": True}]),
        "smoke_test_backend": st.sampled_from(["cuda", "cpu"]),
    }
)


@given(changes=hosts, variables=requests)
@settings(max_examples=150)
def test_planning_is_deterministic_and_its_result_plans_to_nothing(changes: dict[str, Any], variables: dict[str, Any]) -> None:
    facts = facts_for(**changes)
    before = canonical(facts)
    plan = plan_for(facts, **variables)
    assert canonical(plan_for(copy.deepcopy(facts), **variables)) == canonical(plan)
    assert canonical(facts) == before, "planning must not change the facts"
    Draft202012Validator(SCHEMA).validate(plan)
    if plan["refusals"]:
        return
    after = apply_plan(facts, plan)
    again = plan_for(after, **variables)
    assert again["refusals"] == []
    assert open_areas(again) == ["smoke_test"], [(name, again["areas"][name]["actions"]) for name in open_areas(again)]
    assert again["converged"]
    assert canonical(plan_for(apply_plan(after, again), **variables)) == canonical(again)


def test_a_host_without_gpu_expected_is_planned_with_a_warning() -> None:
    """A missing card would go unnoticed: that is said, since the variable is the only thing that knows what was bought."""
    assert "gpu_expected is not set" in " ".join(plan_for(facts_for(gpus=7), gpu_expected=None)["warnings"])
    assert "gpu_expected is not set" not in " ".join(plan_for(facts_for())["warnings"])
