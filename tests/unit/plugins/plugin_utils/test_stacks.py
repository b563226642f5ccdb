# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which stack a host gets: kernel modules, branch, image, fabric and packages by GPU, distribution and architecture; and what is only warned about."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import provisioned
from ansible_collections.rackready.gpu.plugins.plugin_utils.releases import not_listed

from tests.unit import plans
from tests.unit.hosts import facts_for
from tests.unit.plans import lock_for, plan_for

CATALOG = load()
RTX_PRO, B200, B300, GB200, GB300, GH200, H100, H100_PCIE, V100, T4 = (
    f"10de:{number}" for number in ("2bb5", "2901", "3182", "2941", "31c2", "2342", "2330", "2331", "1db5", "1eb8")
)


def plan_of(*gpus: str, on: str = "debian-13/x86_64", switches: int = 0, facts: dict[str, Any] | None = None, **variables: Any) -> dict[str, Any]:
    """The plan of a host with these GPUs; its lock is written for what is asked, where one can be."""
    distribution, _slash, architecture = on.partition("/")
    identifier, _dash, version = distribution.rpartition("-")
    found = facts_for(gpus=len(gpus), nvswitches=switches, distribution=(identifier, version, "", distribution), architecture=architecture)
    found.update(facts or {})
    for gpu, pci_id in zip(found["gpus"], gpus, strict=True):
        gpu["pci_id"] = pci_id
    if "rackready_lock" not in variables and provisioned(CATALOG.distributions[distribution]):
        variables["rackready_lock"] = lock_for(on, **variables)
    return plan_for(found, **{"gpu_expected": None, **variables})


def said(sentences: list[str], words: str) -> bool:
    return any(words in sentence for sentence in sentences)


def driver(plan: dict[str, Any]) -> dict[str, Any]:
    desired: dict[str, Any] = plan["areas"]["nvidia_driver"]["desired"]
    return desired


# --- kernel modules and branches


@pytest.mark.parametrize(
    ("gpu", "variables", "words"),
    [
        (B200, {"nvidia_driver_flavour": "proprietary"}, "B200 180GB (Blackwell) needs the open kernel modules"),
        (GH200, {"nvidia_driver_flavour": "proprietary"}, "GH200 96GB (Grace Hopper) needs the open kernel modules"),
        (V100, {"nvidia_driver_flavour": "open", "gpu_stack_release": "2026.11-legacy"}, "(Volta) needs the proprietary kernel modules"),
        # What the release names is changed with the release.
        (
            B200,
            {"gpu_stack_release": "2026.11-legacy"},
            "so proprietary ones never find it: set gpu_stack_release: 2026.11-longterm",
        ),
        (H100, {"gpu_stack_release": "2026.11-newest", "nvidia_driver_flavour": "proprietary"}, "branch 620 has no proprietary kernel modules"),
        (V100, {"gpu_stack_release": "2026.11-newest"}, "branch 620 has no proprietary kernel modules, so they cannot be installed: set gpu_stack_release: "),
        ("10de:31c2", {"nvidia_driver_branch": 570}, "GB300 needs driver 580.82.07 or newer (HGX B300, GB300), so driver 570.100.01 does not serve it"),
        ("10de:2bb3", {"nvidia_driver_version": "575.51.03"}, "is listed from driver 575.57.08, so driver 575.51.03 does not know it"),
    ],
)
def test_what_the_hardware_forbids_is_refused(gpu: str, variables: dict[str, Any], words: str) -> None:
    assert said(plan_of(gpu, **variables)["refusals"], words)


LISTED = {
    ("h20-sxm5-141gb", "560", "560.35.03"): ("H20-3e 141GB is missing in driver branch 560", "that branch does not know it", "use another branch"),
    ("h200-sxm-141gb", "555", "555.42.02"): (
        "H200 SXM 141GB is listed from driver 555.42.06",
        "driver 555.42.02 does not know it",
        "use driver 555.42.06 or newer",
    ),
    ("h200-sxm-141gb", "560", "560.28.03"): None,
    ("b300-sxm-288gb", "570", None): (
        "B300 needs driver 580.82.07 or newer (HGX B300, GB300)",
        "driver branch 570 does not serve it",
        "use driver 580.82.07 or newer",
    ),
    ("b300-sxm-288gb", "580", None): None,
    # Of both floors the higher one counts.
    ("b200-sxm-180gb", "570", "570.124.06"): (
        "B200 180GB needs driver 570.133.20 or newer (HGX B200)",
        "driver 570.124.06 does not serve it",
        "use driver 570.133.20 or newer",
    ),
    ("h100-sxm5-64gb", "535", "535.54.03"): None,
}


@pytest.mark.parametrize(("slug", "branch", "version"), LISTED)
def test_a_driver_serves_the_gpus_that_it_lists(slug: str, branch: str, version: str | None) -> None:
    assert not_listed(load(), slug, branch, version) == LISTED[slug, branch, version]


def test_gpus_that_share_no_kernel_modules_are_refused_together() -> None:
    (sentence, *rest) = plan_of(V100, B200, gpu_stack_release="2026.11-torch28")["refusals"]
    assert sentence == (
        "The GPUs of this host cannot share one driver (of the kernel modules B200 180GB only the open ones and Tesla V100 SXM2 32GB only the proprietary ones "
        "work), so one of them would never be found: split the host."
    )
    assert rest == []


def test_gpus_of_different_models_get_what_all_of_them_can_take() -> None:
    mixed = plan_of(V100, H100_PCIE, gpu_stack_release="2026.11-torch28")
    assert mixed["refusals"] == []
    assert driver(mixed)["flavour"] == "proprietary"
    assert driver(plan_of("10de:20b0", "10de:20b2", T4))["flavour"] == "open"
    refused = plan_of(V100, H100_PCIE, gpu_stack_release="2026.11-production")["refusals"]
    assert said(refused, "Volta ends with driver branch 580, so Tesla V100 SXM2 32GB does not work with branch 595: set gpu_stack_release: 2026.11-legacy or")


# --- support, by the date of the facts


@pytest.mark.parametrize(
    ("branch", "words"),
    [
        (570, "Driver branch 570 ended in 2026-02 and gets no fixes: the release's branch is 580."),
        (570, "What is known of driver branch 570 is not verified (source: ogkm)."),
        (590, "Driver branch 590 ended and gets no fixes"),
        (615, "Whether driver branch 615 still gets fixes is not known."),
    ],
)
def test_a_branch_without_fixes_is_planned_with_a_warning(branch: int, words: str) -> None:
    image = "nvcr.io/nvidia/pytorch:25.07-py3"
    plan = plan_of(H100_PCIE, on="ubuntu-24.04/x86_64", nvidia_driver_branch=branch, pytorch_image_ref=image)
    assert plan["refusals"] == []
    assert said(plan["warnings"], words)


@pytest.mark.parametrize(("month", "ended"), [("2028-06", False), ("2028-07", True)])
def test_a_branch_ends_with_the_month_that_was_announced(month: str, ended: bool) -> None:
    plan = plan_of(H100_PCIE, facts={"collected_at": f"{month}-01T00:00:00Z"})
    assert plan["refusals"] == []
    # The production branch has ended by then too.
    assert said(plan["warnings"], "Driver branch 580 ended in 2028-06 and gets no fixes: set gpu_stack_release: 2026.11-newest.") == ended


@pytest.mark.parametrize(
    ("month", "gpu", "release", "branch", "words"),
    [
        ("2028-07", V100, "2026.11-legacy", None, "no release of this version of rackready has a supported branch for this host, so look for a newer version"),
        ("2030-01", H100_PCIE, "2026.11-longterm", 580, "no release of this version of rackready has a supported branch for this host"),
        ("2027-04", H100_PCIE, "2026.11-production", None, "set gpu_stack_release: 2026.11-legacy or 2026.11-longterm or 2026.11-newest"),
        ("2027-04", H100_PCIE, "2026.11-production", 535, "take nvidia_driver_branch and nvidia_driver_version out of the inventory and set gpu_stack_release"),
        ("2027-04", H100_PCIE, "2026.11-longterm", 595, "the release's branch is 580."),
    ],
)
def test_a_branch_that_ended_is_never_the_remedy_for_itself(month: str, gpu: str, release: str, branch: int | None, words: str) -> None:
    override: dict[str, Any] = {} if branch is None else {"nvidia_driver_branch": branch}
    plan = plan_of(gpu, facts={"collected_at": f"{month}-01T00:00:00Z"}, gpu_stack_release=release, **override)
    assert said(plan["warnings"], f"gets no fixes: {words}"), plan["warnings"]


@pytest.mark.parametrize("on", ["debian-12/aarch64", "debian-13/aarch64", "ubuntu-26.04/aarch64"])
def test_a_machine_with_arm_is_offered_distributions_and_not_another_architecture(on: str) -> None:
    (sentence,) = plan_of(GH200, on=on, rackready_lock=plans.lock())["refusals"]
    assert "so no repository for it is known: install one of Ubuntu 22.04 LTS, Ubuntu 24.04 LTS, Red Hat Enterprise Linux 9," in sentence
    (other,) = plan_of(GH200, on="debian-13/riscv64", rackready_lock=plans.lock())["refusals"]
    assert other.endswith("so no repository for it is known: use a machine with x86_64.")


def test_an_nvlink5_or_nvswitch_board_is_offered_branches_that_have_its_fabric() -> None:
    offered = plan_of(B200, nvidia_driver_branch=570, rackready_lock=plans.lock())["refusals"]
    assert said(offered, "so the fabric would not start: use one of the driver branches 580, 590, 595, 610, 615, 620.")
    none = plan_of(H100, on="sles-15/x86_64", switches=4)["refusals"]
    assert said(none, "so the fabric would not start: use another distribution.")


# --- images


def test_a_driver_of_the_right_branch_that_is_too_old_for_cuda_is_not_told_to_use_that_branch() -> None:
    refusals = plan_of(H100_PCIE, nvidia_driver_version="580.65.05")["refusals"]
    assert said(refusals, "use nvcr.io/nvidia/pytorch:25.07-py3 or older, or driver 580.65.06 or newer.")


def test_an_image_of_a_newer_cuda_than_the_driver_runs_is_refused() -> None:
    plan = plan_of(H100_PCIE, nvidia_driver_branch=575)
    (sentence,) = plan["refusals"]
    assert sentence == (
        "CUDA 13 in nvcr.io/nvidia/pytorch:26.07-py3 needs driver 580.65.06 or newer, so it does not start on driver 575.100.01: "
        "use nvcr.io/nvidia/pytorch:25.07-py3 or older, or driver branch 580 or newer."
    )
    without = plan_of(H100_PCIE, nvidia_driver_branch=575, rackready_lock=plans.lock())["refusals"]
    assert said(without, "so it does not start on driver branch 575")
    upstream = plan_of(H100_PCIE, nvidia_driver_branch=575, pytorch_image_ref="pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime")["refusals"]
    assert said(upstream, "use an image with an older CUDA, or driver branch 580 or newer")


@pytest.mark.parametrize(
    ("gpu", "on", "image", "words"),
    [
        (
            B200,
            "debian-13/x86_64",
            "nvcr.io/nvidia/pytorch:23.10-py3",
            "code for B200 180GB, which the driver compiles when it is first used, and CUDA 12.2",
        ),
        ("10de:2e12", "ubuntu-24.04/x86_64", "nvcr.io/nvidia/pytorch:26.08-py3", "has code is assumed and was not read off it (7.5 8.0"),
        (T4, "debian-13/x86_64", "nvcr.io/nvidia/pytorch:24.08-py3", "For which GPUs nvcr.io/nvidia/pytorch:24.08-py3 has code on linux/amd64 is not known"),
        (T4, "debian-13/x86_64", "docker.io/pytorch/pytorch:2.15.0-cuda13.2-cudnn9-devel", "pytorch:2.15.0-cuda13.2-cudnn9-devel is not verified"),
        (GH200, "ubuntu-24.04/aarch64", "nvcr.io/nvidia/pytorch:25.10-py3", "has code is assumed and was not read off it (8.0 8.6 9.0 10.0 11.0 12.0+PTX)"),
        (T4, "debian-13/x86_64", "registry.example/ours:1", "The catalog does not know registry.example/ours:1"),
    ],
)
def test_an_image_that_nobody_looked_into_is_planned_with_a_warning(gpu: str, on: str, image: str, words: str) -> None:
    plan = plan_of(gpu, on=on, pytorch_image_ref=image)
    assert plan["refusals"] == []
    assert said(plan["warnings"], words), plan["warnings"]


UPSTREAM = "docker.io/pytorch/pytorch"


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
@pytest.mark.parametrize("cuda", [cuda for cuda in ("9.2", "10.2", "14.0") if cuda.partition(".")[0] not in CATALOG.cuda["min_driver"]])
def test_an_image_with_a_cuda_of_which_nothing_is_known_is_refused(cuda: str, backend: str) -> None:
    image = f"{UPSTREAM}:1.9.0-cuda{cuda}-cudnn7-runtime"
    plan = plan_of(H100_PCIE, pytorch_image_ref=image, smoke_test_backend=backend)
    assert plan["refusals"] == (
        []
        if backend == "cpu"
        else [
            f"The catalog knows nothing of CUDA {cuda.partition('.')[0]}, which {image} has, so nobody knows whether it starts on driver 580.178.04: "
            "use an image with CUDA 11 or 12 or 13."
        ]
    )


@pytest.mark.parametrize("gpu", [gpu["pci_ids"][0] for gpu in CATALOG.gpus.values()])
def test_an_image_whose_cuda_has_dropped_the_gpu_is_refused_though_its_code_is_not_known(gpu: str) -> None:
    entry = next(known for known in CATALOG.gpus.values() if gpu in known["pci_ids"])
    family = CATALOG.drivers["architectures"][entry["architecture"]]
    release = "2026.11-longterm" if "open" in family["flavours"] else "2026.11-legacy"
    refusals = plan_of(gpu, on="ubuntu-24.04/x86_64", gpu_stack_release=release, pytorch_image_ref=f"{UPSTREAM}:2.15.0-cuda13.2-cudnn9-runtime")["refusals"]
    ends = f"{family['name']} ends with CUDA 12 and this is CUDA 13, so nothing would run on it: use an image that is built for it."
    assert len(refusals) == (0 if family["last_cuda"] is None else 1)
    assert all(ends in sentence for sentence in refusals)


@pytest.mark.parametrize("release", CATALOG.pytorch["arm64"]["releases"])
@pytest.mark.parametrize(
    ("gpu", "cuda", "fits"), [(GB200, "12.6", False), (T4, "12.6", False), (GH200, "12.6", True), (GB200, "13.0", True), (T4, "13.0", False)]
)
def test_upstream_s_images_have_other_code_on_arm64(release: str, gpu: str, cuda: str, fits: bool) -> None:
    image = f"{UPSTREAM}:{release}-cuda{cuda}-cudnn9-runtime"
    refusals = plan_of(gpu, on="ubuntu-24.04/aarch64", pytorch_image_ref=image)["refusals"]
    assert [f"{image} has no code for" in sentence for sentence in refusals] == ([] if fits else [True])


def test_an_image_without_the_platform_of_the_host_is_refused() -> None:
    lock = lock_for("ubuntu-24.04/aarch64")
    for image in lock["images"].values():
        del image["platforms"]["linux/arm64"]
    refusals = plan_of(GH200, on="ubuntu-24.04/aarch64", rackready_lock=lock)["refusals"]
    assert said(refusals, "has no linux/arm64 (it has linux/amd64)")


# --- GPUs


@pytest.mark.parametrize(
    ("gpu", "words"),
    [
        ("10de:2337", "No driver is known to list H100 SXM5 64GB (10de:2337)"),
        ("10de:31c3", "No driver is known to list GB300 (10de:31c3)"),
        (B300, "The compute capability 10.3 of B300 is not verified"),
        ("10de:2920", "What fabric a board with B100 / HGX B200 168GB has is not verified"),
        ("10de:230e", "What fabric a board with H20 NVL16 has is not verified"),
    ],
)
def test_what_nobody_knows_of_a_gpu_is_said(gpu: str, words: str) -> None:
    plan = plan_of(gpu)
    assert plan["refusals"] == []
    assert said(plan["warnings"], words), plan["warnings"]


@pytest.mark.parametrize("gpu", [T4, H100_PCIE, GB300, "10de:20f1"])
def test_of_other_gpus_the_driver_is_known(gpu: str) -> None:
    assert not said(plan_of(gpu)["warnings"], "No driver is known to list")


def test_the_operator_is_asked_for_the_kernel_modules_of_an_unknown_gpu() -> None:
    assert said(plan_of("10de:2684")["warnings"], "set nvidia_driver_flavour (open from Turing on, proprietary for older ones")
    told = plan_of("10de:2684", nvidia_driver_flavour="proprietary")
    assert driver(told)["flavour"] == "proprietary"
    assert not said(told["warnings"], "set nvidia_driver_flavour")
    assert said(told["warnings"], "no floor is known")


def test_floors_hold_for_their_number_of_gpus_only() -> None:
    eight = plan_of(*[H100] * 8, switches=4)["areas"]["smoke_test"]["desired"]["floors"]["h100-sxm5-80gb"]
    four = plan_of(*[H100] * 4)["areas"]["smoke_test"]["desired"]["floors"]["h100-sxm5-80gb"]
    alone = {"matmul.bf16", "copy.host_to_device", "copy.device_to_host"}
    assert (set(eight), set(four)) == (alone | {"all_reduce.busbw"}, alone)
    assert [floor["gpus"] for floor in eight["all_reduce.busbw"]] == [8]


# --- MIG


@pytest.mark.parametrize(
    ("gpu", "release", "profile", "words"),
    [
        (RTX_PRO, "longterm", "1g.24gb", "Where MIG instances of RTX PRO 6000 Blackwell Server at 0000:1a:00.0 may begin is not known"),
        (GB300, "longterm", "1g.35gb", "MIG on GB300 needs driver 595.58.03, so driver 580.178.04 cannot do it"),
        (H100, "longterm", "1g.18gb", "H100 SXM5 80GB at 0000:1a:00.0 has no MIG profile 1g.18gb"),
    ],
)
def test_a_layout_that_a_card_cannot_have_is_refused(gpu: str, release: str, profile: str, words: str) -> None:
    layout = [{"gpus": [0], "instances": {profile: 1}}]
    assert said(plan_of(gpu, gpu_stack_release=f"2026.11-{release}", mig_layout=layout)["refusals"], words)


def test_a_layout_on_a_card_that_nobody_split_yet_is_planned_with_warnings() -> None:
    plan = plan_of("10de:2348", mig_layout=[{"gpus": [0], "instances": {"1g.18gb": 7}}])
    assert plan["refusals"] == []
    assert said(plan["warnings"], "Where MIG instances of GH200-144GB may begin is not verified (source: mig-lgipp-logs).")
    assert said(plan["warnings"], "From which driver on GH200-144GB can be split is not known.")


# --- fabrics


def test_the_fabric_follows_from_the_gpus_and_never_from_infiniband() -> None:
    known = plan_of(H100_PCIE, facts={"nvlink5_management": True})
    assert known["areas"]["nvidia_fabric"]["desired"] == {"required": False}
    unknown = plan_of("10de:2684", facts={"nvlink5_management": True})
    assert unknown["areas"]["nvidia_fabric"]["desired"] == {"required": False}
    assert said(unknown["warnings"], "A management port of NVLink 5 switches shows and the catalog does not know the GPUs")


def test_a_fabric_whose_packages_nobody_knows_is_refused() -> None:
    refusals = plan_of(*[H100] * 8, switches=4, nvidia_driver_branch=570, pytorch_image_ref="nvcr.io/nvidia/pytorch:25.07-py3")["refusals"]
    assert refusals == [
        "The catalog has no packages of this board's fabric (fabricmanager) that go with driver branch 570 for Debian 13 (trixie) on x86_64, so the fabric "
        "would not start: use one of the driver branches 580, 590, 595, 610, 615, 620."
    ]
    ubuntu = plan_of(*[H100] * 8, on="ubuntu-24.04/x86_64", switches=4, nvidia_driver_branch=570, pytorch_image_ref="nvcr.io/nvidia/pytorch:25.07-py3")
    assert ubuntu["refusals"] == []
    assert ubuntu["areas"]["nvidia_fabric"]["desired"]["install"] == ["nvidia-fabricmanager-570=570.100.01-1"]
    assert said(ubuntu["warnings"], "The list of fabric packages is not verified (source: azhpc).")


def test_an_nvswitch_that_is_known_from_memory_only_is_warned_about() -> None:
    facts = {"nvswitches": [{"pci_bus_id": "0000:05:00.0", "pci_id": "10de:1ac2"}]}
    plan = plan_of(*["10de:1db8"] * 8, gpu_stack_release="2026.11-legacy", facts=facts)
    assert plan["areas"]["nvidia_fabric"]["desired"]["install"] == ["nvidia-fabricmanager=580.178.04-1"]
    assert said(plan["warnings"], "What is known of NVSwitch 1 (V100) is not verified (source: recall).")


def test_a_fabric_that_the_lock_lacks_is_refused_once() -> None:
    lock = lock_for("debian-13/x86_64")
    del lock["repositories"]["nvidia-cuda/debian-13/x86_64"]["packages"]["nvlsm"]
    assert plan_of(B200, rackready_lock=lock)["refusals"] == ["The lock has no nvlsm, so the fabric of this board would not start: run playbooks/pin.yml."]


# --- distributions


def test_on_ubuntu_apt_never_takes_the_distributions_own_packages_of_the_driver() -> None:
    files = {spec["path"]: spec["content"] for spec in driver(plan_of(H100_PCIE, on="ubuntu-24.04/x86_64"))["files"]}
    pin = files["/etc/apt/preferences.d/rackready-nvidia.pref"].splitlines()
    globs = "Package: src:*nvidia*:any *nvidia* cuda-drivers*"
    assert pin[1:] == [
        *(globs, "Pin: release o=Ubuntu", "Pin-Priority: -1", ""),
        *(globs, "Pin: version 580.178.04-*", "Pin-Priority: 1001"),
    ]


def test_a_cell_that_the_facts_do_not_give_is_refused_by_name() -> None:
    lock = plans.lock()
    assert plan_of(H100_PCIE, on="ubuntu-26.04/x86_64", rackready_lock=lock)["refusals"][0] == (
        "The catalog has no driver packages of branch 580 for Ubuntu 26.04 LTS on x86_64, so no driver can be planned: "
        "set gpu_stack_release: 2026.11-newest or 2026.11-production."
    )
    asked = plan_of(H100_PCIE, on="ubuntu-26.04/x86_64", rackready_lock=lock, nvidia_driver_branch=575)["refusals"]
    assert said(asked, "of branch 575 for Ubuntu 26.04 LTS on x86_64, so no driver can be planned: use one of the branches 590, 595, 610, 615, 620.")
    assert said(plan_of(GH200, on="ubuntu-26.04/aarch64", rackready_lock=lock)["refusals"], "Ubuntu 26.04 LTS on aarch64 is not supported")


# What is said of a distribution that is not provisioned, and how its driver would be installed and pinned.
NOT_PROVISIONED: dict[str, tuple[dict[str, Any], str, list[str], dict[str, Any]]] = {
    "rhel-8/aarch64": (
        {"nvidia_driver_flavour": "proprietary"},
        "Red Hat Enterprise Linux 8 has dnf for its own Python 3.6 only, so Ansible cannot install packages there: use release 9 or 10; what would be",
        ["nvidia-driver-cuda", "kmod-nvidia-latest-dkms"],
        {"kind": "dnf-stream", "module": "nvidia-driver", "stream": "580-dkms"},
    ),
    "rocky-8/x86_64": (
        {},
        "Rocky Linux 8 has dnf for its own Python 3.6 only",
        ["nvidia-driver-cuda", "kmod-nvidia-open-dkms"],
        {"kind": "dnf-stream", "module": "nvidia-driver", "stream": "580-open"},
    ),
    "ol-9/x86_64": (
        {},
        "Oracle Linux 9 has kernels of its own",
        ["nvidia-driver-cuda", "kmod-nvidia-open-dkms"],
        {"kind": "dnf-stream", "module": "nvidia-driver", "stream": "580-open"},
    ),
    "amzn-2023/x86_64": (
        {},
        "Amazon Linux 2023 has no EPEL",
        ["nvidia-driver-cuda", "kmod-nvidia-open-dkms"],
        {"kind": "dnf-stream", "module": "nvidia-driver", "stream": "580-open"},
    ),
    "fedora-44/x86_64": (
        {"gpu_stack_release": "2026.11-production"},
        "Fedora 44 has dnf 5",
        ["nvidia-driver-cuda", "kmod-nvidia-open-dkms"],
        {"kind": "dnf-versionlock", "patterns": ["*nvidia*595*"]},
    ),
    "sles-15/x86_64": (
        {},
        "is installed with zypper, whose packages the catalog knows, so this version of rackready cannot provision it yet, as it installs with apt or dnf",
        ["nvidia-open-driver-G06-signed-cuda-kmp-default", "nvidia-compute-utils-G06"],
        {"kind": "zypper-version", "form": "<name>=<version>"},
    ),
}


@pytest.mark.parametrize("on", NOT_PROVISIONED)
def test_what_is_not_provisioned_is_refused_and_its_names_and_pins_are_planned(on: str) -> None:
    variables, words, names, pin = NOT_PROVISIONED[on]
    plan = plan_of(H100_PCIE, on=on, **variables)
    assert (driver(plan)["install"], driver(plan)["pin"]) == (names, pin)
    assert plan["areas"]["nvidia_driver"]["actual"] == "unknown"
    (sentence,) = [refusal for refusal in plan["refusals"] if "what would be installed is in the plan" in refusal]
    assert words in sentence
    if not on.startswith("sles"):
        assert [sentence] == [refusal for refusal in plan["refusals"] if "linux/arm64" not in refusal]
        areas = plan["areas"]
        assert "podman" in areas["docker"]["desired"].get("remove", ["podman"])
        assert areas["nvidia_container_toolkit"]["desired"]["install"][0] == "nvidia-container-toolkit"
        assert areas["host_tuning"]["desired"]["files"]


def test_that_docker_serves_the_newest_rhel_is_not_verified() -> None:
    warnings = plan_of(H100_PCIE, on="rhel-10/x86_64")["warnings"]
    assert said(warnings, "That Docker serves Red Hat Enterprise Linux 10 on x86_64 is not verified (source: docker-docs).")
    assert not said(plan_of(H100_PCIE, on="rhel-9/x86_64")["warnings"], "That Docker serves")


def test_where_no_packages_are_known_that_is_refused_too() -> None:
    azure = plan_of(H100_PCIE, on="azurelinux-3/x86_64")["refusals"]
    assert said(azure, "The catalog has no driver packages of branch 580 for Azure Linux 3 on x86_64, so no driver can be planned: use another distribution")
    assert said(azure, "Azure Linux 3 is installed with tdnf")
    volta = plan_of(V100, on="rhel-10/x86_64", gpu_stack_release="2026.11-legacy", rackready_lock=lock_for("rhel-10/x86_64"))["refusals"]
    assert said(volta, "The catalog has no packages with proprietary kernel modules for Red Hat Enterprise Linux 10 on x86_64")
    fedora = plan_of(*[H100] * 8, on="fedora-44/x86_64", switches=4)["refusals"]
    assert said(fedora, "The catalog has no packages of this board's fabric (fabricmanager)")


def test_a_package_that_the_lock_lacks_is_refused_by_name() -> None:
    lock = lock_for("debian-13/x86_64")
    del lock["repositories"]["nvidia-cuda/debian-13/x86_64"]["packages"]["nvidia-persistenced"]
    assert said(plan_of(H100_PCIE, rackready_lock=lock)["refusals"], "The lock has no nvidia-persistenced 580.178.04, so the driver's packages would not match")


def test_the_toolkit_before_its_units_is_refused() -> None:
    assert said(plan_of(H100_PCIE, nvidia_container_toolkit_version="1.17.8")["refusals"], "Toolkit 1.17.8 has no units that keep the CDI specification fresh")


def test_an_engine_that_the_distribution_does_not_ship_new_enough_is_refused() -> None:
    assert said(plan_of(H100_PCIE, on="debian-12/x86_64", docker_source="distribution")["refusals"], "debian-12 ships Docker 20.10.24")
    ubuntu = plan_of(H100_PCIE, on="ubuntu-24.04/x86_64", docker_source="distribution")["refusals"]
    assert said(ubuntu, "ubuntu-24.04 is not known to ship Docker, so the toolkit needs 26.1: set docker_source: docker")
