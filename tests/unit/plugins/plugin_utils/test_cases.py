# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the planner must decide (P), and what people met on their hosts elsewhere, by the id of the case."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.sources import look
from ansible_collections.rackready.gpu.plugins.module_utils.web import Web
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load

from tests.unit import plans
from tests.unit.hosts import BUS_IDS, CONVERGED, ROCKY, facts_for, signed_by_ubuntu
from tests.unit.plans import apply_plan, lock_for, plan_for
from tests.unit.sites import Site, put_repository, served

NGC_25_08 = "nvcr.io/nvidia/pytorch:25.08-py3"
TORCH_28 = "docker.io/pytorch/pytorch:2.8.0-cuda12.8-cudnn9-runtime"
KERNEL = "6.12.1+deb13-amd64"
DISTRIBUTIONS = {
    "debian-12": ("debian", "12", "bookworm", "Debian GNU/Linux 12 (bookworm)"),
    "debian-13": ("debian", "13", "trixie", "Debian GNU/Linux 13 (trixie)"),
    "rhel-9": ("rhel", "9.6", "", "Red Hat Enterprise Linux 9.6 (Plow)"),
    "rocky-9": ("rocky", "9.6", "", "Rocky Linux 9.6 (Blue Onyx)"),
    "ubuntu-20.04": ("ubuntu", "20.04", "focal", "Ubuntu 20.04.6 LTS"),
    "ubuntu-22.04": ("ubuntu", "22.04", "jammy", "Ubuntu 22.04.5 LTS"),
    "ubuntu-24.04": ("ubuntu", "24.04", "noble", "Ubuntu 24.04.3 LTS"),
    "ubuntu-26.04": ("ubuntu", "26.04", "resolute", "Ubuntu 26.04 LTS"),
}
LOCKED = ("debian-12", "debian-13", "rhel-9", "rocky-9", "ubuntu-22.04", "ubuntu-24.04", "ubuntu-26.04")
# What a plan must hold: a path into it, and the value there.
Wanted = dict[tuple[str | int, ...], Any]


@dataclass
class Case:
    """One host and its request; words are looked for in refusals and warnings, ``wanted`` in the plan."""

    gpus: dict[str, int]
    distribution: str
    release: str
    words: tuple[str, ...] = ()
    warned: tuple[str, ...] = ()
    wanted: Wanted = field(default_factory=dict)
    architecture: str = "x86_64"
    nvswitches: int = 0
    variables: dict[str, Any] = field(default_factory=dict)
    host: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    refusals: int = 1

    def plan(self) -> dict[str, Any]:
        models = [pci_id for pci_id, count in self.gpus.items() for _number in range(count)]
        facts = facts_for(
            gpus=len(models),
            nvswitches=self.nvswitches,
            distribution=DISTRIBUTIONS[self.distribution],
            architecture=self.architecture,
            **self.host,
        )
        for gpu, pci_id in zip(facts["gpus"], models, strict=True):
            gpu["pci_id"] = pci_id
        for part, change in self.facts.items():
            facts[part].update(change)
        variables = {"gpu_expected": None, "gpu_stack_release": f"2026.11-{self.release}", **self.variables}
        asked = {name: value for name, value in variables.items() if value is not None and name != "rackready_lock"}
        if "rackready_lock" not in variables and self.distribution in LOCKED:
            variables["rackready_lock"] = lock_for(f"{self.distribution}/{self.architecture}", **asked)
        return plan_for(facts, **variables)


def driver(*path: str) -> tuple[str, ...]:
    return ("areas", "nvidia_driver", "desired", *path)


FABRIC = ("areas", "nvidia_fabric", "desired", "install")
NO_FABRIC: Wanted = {("areas", "nvidia_fabric", "desired"): {"required": False}}
OPEN: Wanted = {driver("flavour"): "open"}
NO_NVSWITCH = "there is no NVSwitch on the PCI bus and no GPU of an NVLink 5 board"
UBUNTU_KERNEL = "6.8.0-87-generic"
EL_KERNEL = "5.14.0-570.12.1.el9_6.x86_64"
SEVEN = [{"gpus": "all", "instances": {"1g.10gb": 7}}]

PLANS: dict[str, Case] = {
    "P1": Case(
        {"10de:2330": 8},
        "ubuntu-24.04",
        "longterm",
        nvswitches=4,
        wanted={
            **OPEN,
            driver("version"): "580.178.04",
            driver("install", -1): "nvidia-open-580=580.178.04-1",  # type: ignore[arg-type]
            FABRIC: ["nvidia-fabricmanager=580.178.04-1"],
            ("areas", "nvidia_fabric", "reasons", 0, "rule"): "4 NVSwitches on the PCI bus (NVSwitch 3 (H100, H200))",
        },
    ),
    "P2": Case({"10de:2331": 4}, "ubuntu-24.04", "longterm", wanted={**OPEN, **NO_FABRIC, ("areas", "nvidia_fabric", "reasons", 0, "rule"): NO_NVSWITCH}),
    "P3": Case({"10de:20b2": 8}, "debian-12", "longterm", nvswitches=6, wanted={FABRIC: ["nvidia-fabricmanager=580.178.04-1"]}),
    "P4": Case(
        {"10de:20b2": 4},
        "rocky-9",
        "production",
        host={"kernel": EL_KERNEL},
        wanted={
            **NO_FABRIC,
            **OPEN,
            ("areas", "nvidia_fabric", "reasons", 0, "rule"): NO_NVSWITCH,
            driver("before", "packages"): [f"kernel-devel-uname-r = {EL_KERNEL}", "kernel-devel-matched = 5.14.0-570.12.1.el9_6"],
            driver("install"): [
                "dkms",
                "nvidia-driver-cuda-3:595.91.07-1.el9",
                "kmod-nvidia-open-dkms-3:595.91.07-1.el9",
            ],
            driver("stream", "name"): "nvidia-driver:595-open",
        },
    ),
    "P12": Case(
        {"10de:26b9": 8},
        "rhel-9",
        "production",
        host={"kernel": EL_KERNEL},
        wanted={
            **NO_FABRIC,
            ("areas", "mig", "desired", "gpus"): [],
            driver("version"): "595.91.07",
            ("sources", "repositories", 0, "url"): "https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/",
        },
    ),
    "P5": Case(
        {"10de:2901": 8},
        "ubuntu-24.04",
        "production",
        facts={"modules": {"mlx5_core": {"loaded": False, "version": None, "flavour": None, "available": None}}},
        wanted={
            **OPEN,
            FABRIC: ["nvidia-fabricmanager=595.91.07-1", "nvlsm=5:29.2.1-1", "infiniband-diags"],
            ("areas", "nvidia_fabric", "desired", "modules"): ["mlx5_core", "ib_umad"],
            ("areas", "nvidia_fabric", "reasons", 0, "rule"): "the GPUs are of an NVLink 5 board, whose switches do not show on the bus",
        },
    ),
    "P6": Case(
        {"10de:2941": 4},
        "ubuntu-24.04",
        "production",
        architecture="aarch64",
        warned=("For which GPUs nvcr.io/nvidia/pytorch:26.07-py3 has code on linux/arm64 is not known",),
        wanted={
            **OPEN,
            FABRIC: ["nvidia-imex=595.91.07-1"],
            ("sources", "repositories", 0, "url"): "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2404/sbsa/",
            ("sources", "repositories", 2, "url"): "https://nvidia.github.io/libnvidia-container/stable/deb/arm64/",
            ("sources", "repositories", 2, "architecture"): "arm64",
        },
    ),
    "P8": Case(
        {"10de:1db5": 8},
        "ubuntu-22.04",
        "legacy",
        wanted={
            driver("branch"): "580",
            driver("flavour"): "proprietary",
            driver("install", -1): "cuda-drivers-580=580.178.04-1",  # type: ignore[arg-type]
            ("areas", "pytorch_image", "desired", "ref"): "docker.io/pytorch/pytorch:2.13.0-cuda12.6-cudnn9-runtime",
        },
    ),
    "P11": Case(
        {"10de:27b8": 1},
        "debian-13",
        "longterm",
        wanted={
            ("areas", "smoke_test", "desired", "gpus", 0, "compute_capability"): "8.9",
            ("areas", "nvidia_driver", "reasons", 1, "rule"): "open kernel modules fit Ada Lovelace",
            ("areas", "pytorch_image", "reasons", -1, "rule"): "L4 (sm_89) runs the image's sm_86 code",
        },
    ),
    "P20": Case(
        {"10de:2330": 8},
        "ubuntu-24.04",
        "longterm",
        nvswitches=4,
        variables={"mig_layout": SEVEN},
        wanted={
            ("areas", "mig", "desired", "resets"): [],
            ("areas", "smoke_test", "desired", "not_applicable", "all_reduce_exact"): (
                "MIG instances cannot talk to each other, and a process sees one of them"
            ),
        },
    ),
    "P21": Case(
        {"10de:20b2": 8},
        "ubuntu-24.04",
        "longterm",
        nvswitches=6,
        variables={"mig_layout": [{"gpus": "all", "instances": {"3g.40gb": 2}}]},
        wanted={("areas", "mig", "desired", "resets"): list(BUS_IDS)},
    ),
    "P22": Case(
        {"10de:2330": 8},
        "debian-12",
        "longterm",
        nvswitches=4,
        host={"secure_boot": "enabled"},
        warned=("loads the driver only after its signing key was enrolled at the console",),
    ),
    "P23": Case(
        {"10de:2330": 8},
        "ubuntu-24.04",
        "longterm",
        nvswitches=4,
        host={"kernel": UBUNTU_KERNEL, "secure_boot": "enabled", "signed_modules": signed_by_ubuntu(UBUNTU_KERNEL)},
        wanted={
            **OPEN,
            driver("install"): [
                "nvidia-utils-580-server=580.178.04-0ubuntu0.24.04.1",
                "nvidia-compute-utils-580-server=580.178.04-0ubuntu0.24.04.1",
                "nvidia-headless-no-dkms-580-server-open=580.178.04-0ubuntu0.24.04.1",
                f"linux-modules-nvidia-580-server-open-{UBUNTU_KERNEL}=6.8.0-87.88+1",
            ],
            FABRIC: ["nvidia-fabricmanager=580.178.04-1"],
            ("areas", "nvidia_driver", "reasons", -1, "rule"): "Secure Boot is on and Ubuntu 24.04 LTS has signed the modules of 580.178.04 for the kernel "
            f"{UBUNTU_KERNEL}: no key must be enrolled",
        },
    ),
    "P28": Case(
        {"10de:2bb5": 4},
        "ubuntu-26.04",
        "production",
        warned=("The key of nvidia-cuda for Ubuntu 26.04 LTS on x86_64 is not verified",),
        wanted={**OPEN, **NO_FABRIC, ("areas", "smoke_test", "desired", "gpus", 0, "compute_capability"): "12.0"},
    ),
    "P29": Case(
        {"10de:2684": 2},
        "ubuntu-24.04",
        "production",
        warned=(
            "The catalog does not know the GPU 10de:2684: it is planned as a recent one, its capability is read from the driver and no floor is known.",
            "Which kernel modules 10de:2684 needs is not known, open ones are planned: set nvidia_driver_flavour",
        ),
        wanted={("areas", "smoke_test", "desired", "floors"): {}, **OPEN},
    ),
}

REFUSALS: dict[str, Case] = {
    "P7": Case(
        {"10de:2901": 8},
        "ubuntu-24.04",
        "longterm",
        ("B200 180GB (Blackwell) needs the open kernel modules", "set nvidia_driver_flavour: open"),
        variables={"nvidia_driver_flavour": "proprietary"},
    ),
    "P9": Case(
        {"10de:1db5": 8},
        "ubuntu-22.04",
        "production",
        (
            "Volta ends with driver branch 580, so Tesla V100 SXM2 32GB does not work with branch 595: set gpu_stack_release: 2026.11-legacy",
            "has no code for Tesla V100 SXM2 32GB (sm_70)",
        ),
        refusals=2,
    ),
    "P10": Case(
        {"10de:1b38": 2},
        "ubuntu-22.04",
        "legacy",
        (f"{TORCH_28} has no code for Tesla P40 (sm_61)",),
        variables={"pytorch_image_ref": TORCH_28},
    ),
    "P13": Case(
        {"10de:2335": 8},
        "ubuntu-22.04",
        "longterm",
        ("H200 SXM 141GB is listed from driver 550.90.07, so driver 535.183.06 does not know it", "it does not start on driver 535.183.06"),
        ("Driver branch 535 ended in 2026-06 and gets no fixes: the release's branch is 580.",),
        nvswitches=4,
        variables={"nvidia_driver_version": "535.183.06"},
        refusals=2,
    ),
    "P14": Case(
        {"10de:2335": 8},
        "ubuntu-22.04",
        "longterm",
        (
            f"CUDA 13 in {NGC_25_08} needs driver 580.65.06 or newer",
            "use nvcr.io/nvidia/pytorch:25.07-py3 or older, or driver branch 580 or newer",
        ),
        nvswitches=4,
        variables={"nvidia_driver_branch": 550, "pytorch_image_ref": NGC_25_08},
    ),
    "P15": Case(
        {"10de:3182": 8},
        "ubuntu-24.04",
        "longterm",
        ("B300 needs driver 580.82.07 or newer (HGX B300, GB300)",),
        variables={"nvidia_driver_version": "580.65.06"},
    ),
    "P16": Case({"10de:2330": 8}, "ubuntu-20.04", "longterm", ("Ubuntu 20.04.6 LTS (ubuntu-20.04) is not a supported distribution",)),
    "P17": Case({}, "ubuntu-24.04", "longterm", ("There is no NVIDIA GPU on the PCI bus",)),
    "P18": Case(
        {"10de:2330": 7},
        "ubuntu-24.04",
        "longterm",
        ("7 of 8 H100 SXM5 80GB are on the PCI bus", f"present: {', '.join(BUS_IDS[:7])}"),
        variables={"gpu_expected": {"model": "h100-sxm5-80gb", "count": 8}},
    ),
    "P19": Case(
        {"10de:20b0": 1, "10de:20b2": 1},
        "ubuntu-24.04",
        "longterm",
        ("7 x 1g.10gb do not fit on A100 SXM4 40GB at 0000:1a:00.0 together",),
        variables={"mig_layout": SEVEN},
    ),
    "P25": Case(
        {"10de:2330": 8},
        "ubuntu-24.04",
        "longterm",
        ("Toolkit 1.17.0 fails on images", "use 1.20.0"),
        variables={"nvidia_container_toolkit_version": "1.17.0"},
        refusals=2,
    ),
    "P26": Case({"10de:2330": 8}, "ubuntu-24.04", "longterm", ("Docker is installed as a snap", "run snap remove docker"), facts={"docker": {"snap": True}}),
    "P27": Case(
        {"10de:2330": 8},
        "ubuntu-24.04",
        "longterm",
        ("The image nvcr.io/nvidia/pytorch:26.07-py3 is not in the lock", "playbooks/pin.yml"),
        variables={"rackready_lock": {**lock_for("ubuntu-24.04/x86_64"), "images": {}}},
    ),
    "P30": Case({"10de:2330": 8}, "ubuntu-24.04", "longterm", ("All 8 GPUs are bound to vfio-pci",), host={"bound_to": "vfio-pci"}),
}


def at(value: Any, path: tuple[str | int, ...]) -> Any:
    for step in path:
        value = value[step]
    return value


@pytest.mark.parametrize("case", PLANS.values(), ids=list(PLANS))
def test_the_case_is_planned(case: Case) -> None:
    plan = case.plan()
    assert plan["refusals"] == []
    assert {path: at(plan, path) for path in case.wanted} == case.wanted
    assert [words for words in case.warned if not any(words in warning for warning in plan["warnings"])] == [], plan["warnings"]


@pytest.mark.parametrize("case", REFUSALS.values(), ids=list(REFUSALS))
def test_the_case_is_refused(case: Case) -> None:
    plan = case.plan()
    said = " ".join(plan["refusals"])
    assert [words for words in case.words if words not in said] == [], plan["refusals"]
    assert len(plan["refusals"]) == case.refusals, plan["refusals"]
    assert {path: at(plan, path) for path in case.wanted} == case.wanted
    assert [words for words in case.warned if not any(words in warning for warning in plan["warnings"])] == [], plan["warnings"]
    assert not plan["converged"]


def test_no_case_of_the_planner_is_left_out() -> None:
    # Whether the archive has the headers of the running kernel is asked on the host: P24 has a test of its own.
    assert sorted([*PLANS, *REFUSALS, "P24"], key=lambda name: int(name[1:])) == [f"P{number}" for number in range(1, 31)]


BOOKWORM = "Types: deb\nURIs: https://deb.debian.org/debian\nSuites: bookworm bookworm-updates\nComponents: main\n"


@pytest.mark.parametrize("there", [False, True])
def test_p24_headers_that_left_the_archive_are_the_refusal_of_the_run_before_any_change(there: bool) -> None:
    """The plan only says what to ask; its very question is put to an archive here, which serves the headers of the running kernel or of a newer one alone."""
    case = Case({"10de:2330": 8}, "debian-12", "longterm", nvswitches=4, host={"kernel": "6.1.0-38-amd64"})
    case.host["files"] = {"/etc/apt/sources.list.d/debian.sources": BOOKWORM}
    plan = case.plan()
    assert plan["refusals"] == []
    asked = [entry for entry in plan["sources"]["repositories"] if entry["name"] == "debian-12"]
    headers = "linux-headers-6.1.0-38-amd64"
    assert [headers in entry["packages"] for entry in asked] == [True]
    with served(Site()) as site:
        for suite in ("bookworm", "bookworm-updates"):
            newest = {headers if there else "linux-headers-6.1.0-41-amd64": ["6.1.158-1"]}
            put_repository(site, f"/debian/dists/{suite}/", newest, directory="main/binary-amd64/")
        web = Web(5)
        entries = [{**entry, "url": f"{site.address}/debian", "packages": {headers: None}} for entry in asked]
        problems = look("h100-01", entries, [], web.fetch, web.ask)["problems"]
        refused = [
            f"h100-01: {site.address}/debian has no package {headers}: the archive has moved on from the running kernel 6.1.0-38-amd64 or a suite is missing "
            "in /etc/apt; install and boot the newest kernel first."
        ]
    assert problems == ([] if there else refused)


def test_p8_the_image_of_the_oldest_gpus_has_their_code() -> None:
    image = at(PLANS["P8"].plan(), ("areas", "pytorch_image", "desired", "ref"))
    known = load().image(image)
    assert known is not None
    assert known["cuda"].startswith("12.6")
    assert "7.0" in known["architectures"]["linux/amd64"].split()


def test_f14_the_smoke_test_runs_the_very_image_that_jobs_get() -> None:
    areas = plan_for(facts_for())["areas"]
    assert areas["smoke_test"]["desired"]["image"] == areas["pytorch_image"]["desired"]["pull"] == f"nvcr.io/nvidia/pytorch@{plans.INDEX}"


@pytest.mark.parametrize("name", ["vfio-pci", "nvgrace-gpu-vfio-pci", "pci-stub", "pciback"])
def test_p30_a_host_that_gave_some_gpus_away_is_left_alone_with_their_names(name: str) -> None:
    facts = facts_for()
    for gpu in facts["gpus"][2:4]:
        gpu["driver"] = name
    plan = plan_for(facts)
    assert plan["refusals"] == [
        f"GPUs are bound to {name} ({BUS_IDS[2]}, {BUS_IDS[3]}), so the driver cannot use them: unbind them, or give all GPUs of the host away."
    ]
    assert plan["areas"] == {}


def mixed(*layout: tuple[str, dict[str, int]]) -> dict[str, Any]:
    """The plan of a host with an A100 of 40 GB and one of 80 GB, in this order, and a layout for each selector."""
    variables = {"mig_layout": [{"gpus": gpus, "instances": instances} for gpus, instances in layout]}
    return Case({"10de:20b0": 1, "10de:20b2": 1}, "ubuntu-24.04", "longterm", variables=variables).plan()


@pytest.mark.parametrize(
    ("profile", "card", "other"),
    [("1g.5gb", f"A100 SXM4 80GB at {BUS_IDS[1]}", BUS_IDS[0]), ("1g.20gb", f"A100 SXM4 40GB at {BUS_IDS[0]}", BUS_IDS[1])],
)
def test_m11_a_profile_that_one_of_two_kinds_of_cards_has_is_refused_for_the_other_by_name(profile: str, card: str, other: str) -> None:
    plan = mixed(("all", {profile: 2}))
    assert [(f"{card} has no MIG profile {profile}, so the layout does not exist on it" in words, other in words) for words in plan["refusals"]] == [
        (True, False)
    ]
    # With a refusal no role runs for the host, so the other card is not touched either.
    assert [gpu["pci_bus_id"] for gpu in plan["areas"]["mig"]["desired"]["gpus"]] == [other]


def test_m11_each_kind_of_card_has_its_own_profiles() -> None:
    plan = mixed(("a100-sxm4-40gb", {"3g.20gb": 1, "1g.5gb": 1}), ("a100-sxm4-80gb", {"3g.40gb": 1, "1g.10gb": 1}))
    assert plan["refusals"] == []
    found = {gpu["pci_bus_id"]: sorted(instance["profile"] for instance in gpu["instances"]) for gpu in plan["areas"]["mig"]["desired"]["gpus"]}
    assert found == {BUS_IDS[0]: ["1g.5gb", "3g.20gb"], BUS_IDS[1]: ["1g.10gb", "3g.40gb"]}


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], tuple[str, ...]]] = {
    "F14": ({}, {"nvidia_container_toolkit_version": "1.17.0", "rackready_lock": plans.lock(toolkits=("1.17.0",))}, ("Toolkit 1.17.0 fails on images",)),
    "F7": ({}, {"nvidia_container_toolkit_version": "1.17.7", "rackready_lock": plans.lock(toolkits=("1.17.7",))}, ("Toolkit 1.17.7 GPU containers fail",)),
    "F11": (
        {"packages": {"cuda-compat-13-0": "580.65.06-1", "cuda-compat-12-9": "575.57.08-1", "cuda-toolkit-13-0-config-common": "13.0.96-1"}},
        {},
        (
            "cuda-compat-12-9, cuda-compat-13-0 are installed on the host, with a libcuda of another driver, so CUDA could end with error 804 in containers "
            "that find it: run apt-get remove cuda-compat-12-9 cuda-compat-13-0, then run again.",
        ),
    ),
    "F11 with dnf": (
        {**ROCKY, "packages": {"cuda-compat-13-0": "1:580.65.06-1.el9"}},
        {"rackready_lock": lock_for("rocky-9/x86_64")},
        ("cuda-compat-13-0 is installed on the host", "run dnf remove cuda-compat-13-0, then run again"),
    ),
    # One sentence for all cards of which the same is said.
    "M1 with too much": (
        {},
        {"mig_layout": [{"gpus": "all", "instances": {"3g.40gb": 2, "1g.10gb": 1}}]},
        (f"2 x 3g.40gb, 1 x 1g.10gb do not fit on H100 SXM5 80GB at {', '.join(BUS_IDS)} together, so the layout does not exist on it: ask for less",),
    ),
    "G2": (
        {},
        {"mig_layout": [{"gpus": "all", "instances": {"1g.5gb": 7}}]},
        (f"H100 SXM5 80GB at {', '.join(BUS_IDS)} has no MIG profile 1g.5gb", "use 1g.10gb, 1g.10gb+me, 1g.20gb"),
    ),
    "P12 with a layout": (
        {"pci_id": "10de:26b9", "nvswitches": 0},
        {"gpu_expected": None, "mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 1}}]},
        ("L40S", "has no MIG that is known, so mig_layout cannot be applied to it: leave that GPU out of mig_layout"),
    ),
    "a GPU that is not there": (
        {},
        {"mig_layout": [{"gpus": [8], "instances": {"1g.10gb": 1}}]},
        ("mig_layout[0] names the GPU 8, which this host does not have", "name one of 0 (0000:1a:00.0), 1 "),
    ),
    "an index in quotes": (
        {},
        {"mig_layout": [{"gpus": "0", "instances": {"1g.10gb": 1}}]},
        ('mig_layout[0] names the GPU "0" in quotes, which this host does not have', "write indices as numbers, in a list: one of 0 (0000:1a:00.0), 1 "),
    ),
    "a GPU twice": (
        {},
        {"mig_layout": [{"gpus": "all", "instances": {"1g.10gb": 7}}, {"gpus": [0], "instances": {"3g.40gb": 2}}]},
        ("mig_layout asks twice for the GPU 0000:1a:00.0, so it is not clear which layout it gets: name each GPU once",),
    ),
    "a lock of another release": (
        {},
        {"rackready_lock": plans.lock(drivers=("570.211.01",))},
        ("The lock has no nvidia-driver-cuda that is 580", "playbooks/pin.yml"),
    ),
    "M4": ({}, {"mig_layout": [{"gpus": [0], "instances": {"1g.10gb+me": 2}}]}, ("2 x 1g.10gb+me do not fit", "1g.10gb+me up to 1", "7g.80gb up to 1")),
}


@pytest.mark.parametrize(("changes", "variables", "words"), REFUSED.values(), ids=list(REFUSED))
def test_refused(changes: dict[str, Any], variables: dict[str, Any], words: tuple[str, ...]) -> None:
    plan = plan_for(facts_for(**changes), **variables)
    said = " ".join(plan["refusals"])
    assert len(plan["refusals"]) == len(set(plan["refusals"])) <= 4, plan["refusals"]
    assert [word for word in words if word not in said] == [], plan["refusals"]
    assert not plan["converged"]


PLANNED: dict[str, tuple[dict[str, Any], dict[str, Any], Wanted]] = {
    "D1": (
        {},
        {},
        {
            ("areas", "nvidia_driver", "desired", "flavour"): "open",
            ("areas", "nvidia_driver", "desired", "version"): "580.178.04",
            ("areas", "nvidia_fabric", "desired", "install"): ["nvidia-fabricmanager=580.178.04-1"],
            ("areas", "nvidia_fabric", "reasons", 0, "rule"): "4 NVSwitches on the PCI bus (NVSwitch 3 (H100, H200))",
        },
    ),
    "M1": (
        {},
        {"mig_layout": [{"gpus": [0], "instances": {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}}]},
        {
            ("areas", "mig", "desired", "gpus", 0, "instances"): [
                {"profile": "2g.20gb", "start": 0},
                {"profile": "1g.10gb", "start": 2},
                {"profile": "1g.10gb", "start": 3},
                {"profile": "3g.40gb", "start": 4},
            ]
        },
    ),
    # The archive is asked for the headers of the kernel that runs, before anything changes; if it lacks them the run ends with the hint.
    "P24 B1 B5": (
        {"kernel": KERNEL, "docker": "26.1.5", "packages": {"docker-cli": "26.1.5-1"}},
        {},
        {
            ("areas", "nvidia_driver", "desired", "install", 0): f"linux-headers-{KERNEL}",
            ("sources", "repositories", -1, "packages"): {f"linux-headers-{KERNEL}": None},
            ("sources", "repositories", -1, "hint"): f"the archive has moved on from the running kernel {KERNEL} or a suite is missing in /etc/apt; "
            "install and boot the newest kernel first",
        },
    ),
}


@pytest.mark.parametrize(("changes", "variables", "wanted"), PLANNED.values(), ids=list(PLANNED))
def test_planned(changes: dict[str, Any], variables: dict[str, Any], wanted: Wanted) -> None:
    plan = plan_for(facts_for(**changes), **variables)
    assert plan["refusals"] == []
    assert {path: at(plan, path) for path in wanted} == wanted


# On a host that was as planned: a change of the facts, and the actions of the one area that must act then.
MASKED = {"load": "masked", "active": "inactive", "enabled": "masked"}
FAILED = {"load": "loaded", "active": "failed", "enabled": "enabled"}
DRIFTED: dict[str, tuple[tuple[str, str, dict[str, Any]], str, list[str]]] = {
    "I3": (
        ("units", "nvidia-persistenced.service", MASKED),
        "nvidia_driver",
        ["unmask nvidia-persistenced.service", "enable and start nvidia-persistenced.service"],
    ),
    "D7": (
        ("units", "nvidia-fabricmanager.service", MASKED),
        "nvidia_fabric",
        ["unmask nvidia-fabricmanager.service", "enable and start nvidia-fabricmanager.service"],
    ),
    "F6": (("units", "nvidia-cdi-refresh.service", FAILED), "nvidia_container_toolkit", ["enable and start nvidia-cdi-refresh.service"]),
}


@pytest.mark.parametrize(("change", "area", "actions"), DRIFTED.values(), ids=list(DRIFTED))
def test_drifted(change: tuple[str, str, dict[str, Any]], area: str, actions: list[str]) -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    part, name, value = change
    facts[part][name] = value
    plan = plan_for(facts)
    assert plan["refusals"] == []
    assert {name: entry["actions"] for name, entry in plan["areas"].items() if not entry["converged"] and name != "smoke_test"} == {area: actions}


def test_b4_installed_packages_are_no_driver_for_another_kernel() -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    facts["kernel"].update(release=KERNEL, headers=False)
    facts["packages"]["installed"]["dkms"] = {"version": "3.2.2-1~deb13u1", "held": False}
    for name in ("nvidia", "nvidia_uvm"):
        facts["modules"][name] = {"loaded": False, "version": None, "flavour": None, "available": None}
    facts["nvidia_smi"].update(state="failed", error="nvidia-smi was not asked", driver_version=None, gpus=[])
    plan = plan_for(facts)
    assert plan["refusals"] == []
    assert not plan["converged"]
    assert plan["areas"]["nvidia_driver"]["actions"] == [
        "rebuild the initramfs",
        f"install linux-headers-{KERNEL}",
        f"build the kernel modules for {KERNEL}",
        "load nvidia, nvidia_uvm 580.178.04 (open)",
    ]
    assert plan["areas"]["nvidia_driver"]["desired"]["build_command"] == ["dkms", "autoinstall", "-k", KERNEL]


def test_b4_modules_are_built_only_where_packages_that_are_there_have_none_for_the_kernel() -> None:
    def command(available: str | None) -> list[str]:
        facts = facts_for(**CONVERGED)
        for name in ("nvidia", "nvidia_uvm"):
            facts["modules"][name].update(loaded=False, version=None, flavour=None)
        facts["modules"]["nvidia"]["available"] = available
        facts["nvidia_smi"].update(state="failed", error="nvidia-smi was not asked", driver_version=None, gpus=[])
        found: list[str] = plan_for(facts)["areas"]["nvidia_driver"]["desired"]["build_command"]
        return found

    assert command(None) == ["dkms", "autoinstall", "-k", "6.12.48+deb13-amd64"]
    assert command("580.178.04") == []
    assert plan_for(facts_for())["areas"]["nvidia_driver"]["desired"]["build_command"] == []


@pytest.mark.parametrize(
    ("others", "newest"),
    [
        ({"6.12.57+deb13-amd64": False}, "6.12.57+deb13-amd64"),
        ({"6.12.57+deb13-amd64": False, "6.12.100+deb13-amd64": False}, "6.12.100+deb13-amd64"),
        ({"6.12.57+deb13-amd64": True}, None),
        ({"6.12.57+deb13-amd64": False, "6.12.100+deb13-amd64": True}, None),
        ({"6.12.9+deb13-amd64": False}, None),
    ],
)
def test_b4_a_newer_kernel_without_headers_will_boot_without_the_driver(others: dict[str, bool], newest: str | None) -> None:
    plan = plan_for(facts_for(**CONVERGED, other_kernels=others))
    words = (
        "is installed beside the running 6.12.48+deb13-amd64 and its headers are not: the driver will be missing after the next boot. Install linux-headers-"
    )
    wanted = [] if newest is None else [f"The kernel {newest} {words}{newest} before it."]
    assert [warning for warning in plan["warnings"] if "headers" in warning] == wanted


def test_a3_a13_the_repository_is_also_asked_for_the_libraries_that_come_along() -> None:
    libraries = {"libcuda1": "580.178.04-1", "libnvidia-ml1": "580.178.04-1"}
    asked = plan_for(facts_for())["sources"]["repositories"][0]["packages"]
    assert {name: asked.get(name) for name in libraries} == libraries
    # A lock that was written before they were in it asks for none: their versions are not guessed.
    older = plans.lock()
    for name in libraries:
        del older["repositories"]["nvidia-cuda/debian-13/x86_64"]["packages"][name]
    plan = plan_for(facts_for(), rackready_lock=older)
    assert (plan["refusals"], set(libraries) & set(plan["sources"]["repositories"][0]["packages"])) == ([], set())


def test_e2_every_repository_of_the_lock_is_asked_whether_its_key_is_still_the_locked_one() -> None:
    lock = lock_for("debian-12/x86_64")
    plan = plan_for(facts_for(distribution=DISTRIBUTIONS["debian-12"]), rackready_lock=lock)
    asked = {entry["name"]: (entry.get("key_url"), entry.get("key_sha256")) for entry in plan["sources"]["repositories"]}
    keys = {name.partition("/")[0]: entry["key_sha256"] for name, entry in lock["repositories"].items()}
    assert {name: sha256 for name, (_url, sha256) in asked.items() if sha256 is not None} == keys
    assert asked["nvidia-cuda"][0] == "https://developer.download.nvidia.com/compute/cuda/repos/debian12/x86_64/3bf863cc.pub"


@pytest.mark.parametrize(
    ("devices", "cgroups", "unit", "refused"),
    [
        (["--gpus=all"], "systemd", "nvidia-persistenced.service", True),
        (["--gpus=device=0,1"], "systemd", "nvidia-cdi-refresh.service", True),
        (["NVIDIA_VISIBLE_DEVICES=all"], "systemd", "nvidia-fabricmanager.service", True),
        (["nvidia.com/gpu=0"], "systemd", "nvidia-persistenced.service", False),
        (["--gpus=all", "/dev/nvidia0", "/dev/nvidiactl"], "systemd", "nvidia-persistenced.service", False),
        (["--gpus=all"], "cgroupfs", "nvidia-persistenced.service", False),
        ([], "systemd", "nvidia-persistenced.service", False),
        (["--gpus=all"], "systemd", None, False),
    ],
)
def test_f4_a_container_that_would_lose_its_gpus_at_a_reload_of_systemd(devices: list[str], cgroups: str, unit: str | None, refused: bool) -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    facts["docker"].update(cgroup_driver=cgroups, containers=[{"id": "abc123def456", "name": "train", "image": "pytorch", "devices": devices}])
    if unit is not None:
        facts["units"][unit] = FAILED
    plan = plan_for(facts)
    (area, *none) = [name for name, entry in plan["areas"].items() if not entry["converged"] and name != "smoke_test"] or ["nothing"]
    sentence = (
        f"train got GPUs by --gpus or the nvidia runtime and not by CDI, so systemd, which a change of {area} reloads, would take the GPUs away while they "
        "run: stop those containers, or start them anew with --device nvidia.com/gpu=all, then run again."
    )
    assert (plan["refusals"], plan["drain"], none) == ([sentence] if refused else [], refused, [])


@pytest.mark.parametrize(("nvswitches", "active", "warned"), [(0, "failed", True), (0, "inactive", False), (4, "failed", False)])
def test_d4_a_fabric_manager_that_fails_as_there_is_no_fabric(nvswitches: int, active: str, warned: bool) -> None:
    units = {"nvidia-fabricmanager.service": ("loaded", active, "enabled")}
    plan = plan_for(facts_for(pci_id="10de:2331", nvswitches=nvswitches, units=units), gpu_expected=None)
    words = "nvidia-fabricmanager.service is installed and fails, as this host has no NVSwitch that it could manage: run systemctl disable --now"
    assert any(warning.startswith(words) for warning in plan["warnings"]) is warned


MANAGER = ("loaded", "inactive", "enabled")


@pytest.mark.parametrize(
    ("version", "unit", "refused", "warned"),
    [
        ("0.14.4-1", MANAGER, True, False),
        ("0.9.1-1", ("loaded", "active", "disabled"), True, False),
        ("0.14.5-1", MANAGER, False, True),
        ("0.15.0-1", MANAGER, False, True),
        (None, MANAGER, False, True),
        ("0.14.4-1", ("loaded", "inactive", "disabled"), False, False),
        ("0.14.4-1", ("masked", "inactive", "masked"), False, False),
    ],
)
def test_g4_a_mig_manager_that_can_keep_the_host_from_booting(version: str | None, unit: tuple[str, str, str], refused: bool, warned: bool) -> None:
    packages = {"nvidia-mig-manager": version} if version is not None else {}
    plan = plan_for(facts_for(packages=packages, units={"nvidia-mig-manager.service": unit}), mig_layout=[{"gpus": [0], "instances": {"1g.10gb": 7}}])
    name = f"nvidia-mig-manager {version.removesuffix('-1') if version else 'of an unknown version'} is {unit[2]}, {unit[1]}"
    refusals = [
        f"{name}, so the host can hang in boot, as below 0.14.5 it waits for services that wait for it: run systemctl disable --now "
        "nvidia-mig-manager.service, or upgrade it to 0.14.5 or newer, then run again."
    ]
    assert plan["refusals"] == (refusals if refused else [])
    assert any(warning.startswith(f"{name}: it applies a layout of its own at boot") for warning in plan["warnings"]) is warned
    assert any("Below 0.14.5 it can also make the host hang" in warning for warning in plan["warnings"]) is (version is None)


def test_a9_a_loaded_module_older_than_its_packages_asks_for_a_reboot() -> None:
    facts = apply_plan(facts_for(), plan_for(facts_for()))
    facts["modules"]["nvidia"]["version"] = "580.65.06"
    plan = plan_for(facts)
    assert plan["reboot"]
    assert ["580.65.06 open is loaded and 580.178.04 open is planned, so a reboot is needed" in sentence for sentence in plan["refusals"]] == [True]
