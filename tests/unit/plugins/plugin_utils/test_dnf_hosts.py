# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Plans of hosts with dnf: what differs from those with apt, and what only dnf knows."""

from __future__ import annotations

import copy
import json
from functools import cache
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.sources import look
from ansible_collections.rackready.gpu.plugins.module_utils.web import Web

from tests.unit import plans
from tests.unit.hosts import CONVERGED, ROCKY, YUM_REPOSITORIES, facts_for
from tests.unit.plans import apply_plan, lock_for, plan_for
from tests.unit.sites import Site, package_xml, primary_xml, put_rpm_repository, served

Plan = dict[str, Any]
LOCKED = "/etc/dnf/plugins/versionlock.list"
PODMAN = {"podman": "5.4.0-1.el9", "podman-docker": "5.4.0-1.el9"}


@cache
def lock_text(cell: str) -> str:
    return json.dumps(lock_for(cell))


def lock(cell: str = "rocky-9/x86_64") -> Any:
    return json.loads(lock_text(cell))


def rocky(**changes: Any) -> dict[str, Any]:
    """Facts of a host with Rocky Linux 9, bare but for the changes."""
    return facts_for(**{**ROCKY, **changes})


def plan_of(facts: dict[str, Any], **variables: Any) -> Plan:
    return plan_for(facts, **{"rackready_lock": lock(), **variables})


def planned(**changes: Any) -> dict[str, Any]:
    """Facts of a host after its plan."""
    bare = rocky(**changes)
    return apply_plan(bare, plan_of(bare))


def desired(plan: Plan, area: str = "nvidia_driver") -> dict[str, Any]:
    found: dict[str, Any] = plan["areas"][area]["desired"]
    return found


def actions(plan: Plan) -> dict[str, list[str]]:
    """Of the areas that must act; the smoke test aside."""
    return {name: area["actions"] for name, area in plan["areas"].items() if not area["converged"] and name != "smoke_test"}


def only(refusals: list[str]) -> str:
    assert len(refusals) == 1, refusals
    return refusals[0]


# --- repositories


def test_repository_files_name_the_key_of_the_lock_and_check_what_the_vendor_signs() -> None:
    plan = plan_of(rocky())
    files = {spec["path"]: spec["content"] for area in ("nvidia_driver", "docker", "nvidia_container_toolkit") for spec in desired(plan, area)["files"]}
    assert files["/etc/yum.repos.d/rackready-nvidia-cuda.repo"].splitlines()[1:] == [
        "[rackready-nvidia-cuda]",
        "name=nvidia-cuda (rackready)",
        "baseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/",
        "enabled=1",
        "gpgcheck=1",
        "repo_gpgcheck=0",
        "gpgkey=file:///etc/pki/rpm-gpg/RPM-GPG-KEY-rackready-nvidia-cuda",
    ]
    assert "\ngpgcheck=1\nrepo_gpgcheck=0\n" in files["/etc/yum.repos.d/rackready-docker-ce.repo"]
    # NVIDIA signs the list of the toolkit's packages, with their checksums, and not the packages.
    assert "\ngpgcheck=0\nrepo_gpgcheck=1\n" in files["/etc/yum.repos.d/rackready-nvidia-container-toolkit.repo"]
    assert files["/etc/yum.repos.d/rackready-epel.repo"].endswith("\nincludepkgs=dkms\n")
    for path, content in files.items():
        assert ("RPM-GPG-KEY" not in path) or content == plans.KEY
    # A file that names a key which is not there yet would be read by any dnf that starts in between.
    paths = [spec["path"] for spec in desired(plan)["files"]]
    assert paths.index("/etc/pki/rpm-gpg/RPM-GPG-KEY-rackready-epel") < paths.index("/etc/yum.repos.d/rackready-epel.repo")


def test_every_package_is_looked_for_before_anything_changes() -> None:
    repositories = {entry["name"]: entry for entry in plan_of(rocky())["sources"]["repositories"]}
    assert repositories["nvidia-cuda"]["streams"] == ["nvidia-driver:580-open"]
    assert repositories["nvidia-cuda"]["packages"]["nvidia-fabricmanager"] == "580.178.04-1"
    assert repositories["epel"]["packages"] == {"dkms": None}
    host = repositories["rocky-9"]
    assert host["packages"] == {"kernel-devel-uname-r": ROCKY["kernel"], "python3-dnf-plugin-versionlock": None}
    assert host["url"] == "https://dl.rockylinux.org/pub/rocky/9/AppStream/x86_64/os/"
    assert host["hint"] == (
        f"kernel-devel-5.14.0-570.12.1.el9_6, which the driver is built with for the running kernel {ROCKY['kernel']}, is not in any enabled repository any "
        "more; install the newest kernel, reboot the host and run again, or enable a repository that keeps the older ones"
    )


def test_repositories_that_nobody_can_ask_are_said() -> None:
    files = {"/etc/yum.repos.d/rocky.repo": YUM_REPOSITORIES.replace("enabled=0", "enabled=1")}
    plan = plan_of(rocky(files=files))
    assert plan["refusals"] == []
    assert not any(entry["name"] == "rocky-9" for entry in plan["sources"]["repositories"])
    (warning,) = [sentence for sentence in plan["warnings"] if "cannot be asked" in sentence]
    assert f"whether kernel-devel-uname-r = {ROCKY['kernel']}, python3-dnf-plugin-versionlock can be installed is not known beforehand." in warning


def test_with_headers_the_hint_is_about_the_repository() -> None:
    (*_others, host) = plan_of(rocky(headers=True, packages={"dkms": "3.2.2-1.el9"}))["sources"]["repositories"]
    assert host["packages"] == {"python3-dnf-plugin-versionlock": None}
    assert host["hint"] == "enable the repository of the distribution that has it"


def test_somebody_elses_file_for_one_of_our_repositories_is_warned_about() -> None:
    text = "[cuda-rhel9-x86_64]\nbaseurl=https://developer.download.nvidia.com/compute/cuda/repos/rhel9/$basearch\ngpgcheck=0\n"
    for facts in (rocky(files={"/etc/yum.repos.d/cuda-rhel9.repo": text}), planned(files={"/etc/yum.repos.d/cuda-rhel9.repo": text})):
        plan = plan_of(facts)
        assert plan["refusals"] == []
        (warning,) = [sentence for sentence in plan["warnings"] if "cuda-rhel9.repo" in sentence]
        assert "has the package repository https://developer.download.nvidia.com/compute/cuda/repos/rhel9/x86_64/ too" in warning
    disabled = rocky(files={"/etc/yum.repos.d/cuda-rhel9.repo": text + "enabled=0\n"})
    assert not any("cuda-rhel9.repo" in sentence for sentence in plan_of(disabled)["warnings"])


def test_dkms_that_is_there_needs_no_epel() -> None:
    plan = plan_of(rocky(packages={"dkms": "3.2.2-1.el9"}))
    assert not any("epel" in spec["path"] for spec in desired(plan)["files"])
    assert not any(entry["name"] == "epel" for entry in plan["sources"]["repositories"])
    content = lock()
    del content["repositories"]["epel/rocky-9/x86_64"]
    assert plan_of(rocky(packages={"dkms": "3.2.2-1.el9"}), rackready_lock=content)["refusals"] == []
    sentence = only(plan_of(rocky(), rackready_lock=content)["refusals"])
    assert sentence == (
        "The lock has no packages of epel for rocky-9 on x86_64, so nothing would build the kernel modules: "
        "add rocky-9/x86_64 to rackready_pin_for in the inventory, then run playbooks/pin.yml."
    )


def test_arm64_and_kernels_with_64k_pages() -> None:
    kernel = "5.14.0-570.el9.aarch64+64k"
    facts = rocky(architecture="aarch64", kernel=kernel, pci_id="10de:2342", nvswitches=0, gpus=1)
    plan = plan_of(facts, rackready_lock=lock("rocky-9/aarch64"), gpu_expected=None)
    assert plan["refusals"] == []
    assert desired(plan)["before"]["packages"] == [f"kernel-devel-uname-r = {kernel}", "kernel-64k-devel-matched = 5.14.0-570.el9"]
    assert desired(plan)["before"]["otherwise"].startswith(f"kernel-64k-devel-5.14.0-570.el9, which the driver is built with for the running kernel {kernel}")
    excluded = rocky(architecture="aarch64", kernel=kernel, pci_id="10de:2342", nvswitches=0, gpus=1, excludes=("kernel-64k-devel",))
    refused = plan_of(excluded, rackready_lock=lock("rocky-9/aarch64"), gpu_expected=None)["refusals"]
    assert only(refused).startswith("dnf is told not to see kernel-64k-devel (kernel-64k-devel)")
    assert plan["sources"]["repositories"][0]["url"].endswith("/rhel9/sbsa/")


# --- kernels


def test_headers_come_in_a_transaction_before_what_is_built_with_them() -> None:
    """rpm orders by what packages require, NVIDIA's require no headers, and a module that could not be built is no error there."""
    driver = desired(plan_of(rocky()))
    assert driver["before"]["packages"] == [f"kernel-devel-uname-r = {ROCKY['kernel']}", "kernel-devel-matched = 5.14.0-570.12.1.el9_6"]
    assert not any("kernel-" in name for name in driver["install"])


@pytest.mark.parametrize(
    ("changes", "before"),
    [
        # dkms asks for headers that match a kernel, and would take the newest kernel along.
        ({"headers": True}, ["kernel-devel-matched = 5.14.0-570.12.1.el9_6"]),
        ({"headers": True, "packages": {f"kernel-devel-matched-{ROCKY['kernel']}": "5.14.0-570.12.1.el9_6"}}, None),
        ({"headers": True, "packages": {"dkms": "3.2.2-1.el9"}}, None),
        ({"packages": {"dkms": "3.2.2-1.el9"}}, [f"kernel-devel-uname-r = {ROCKY['kernel']}"]),
        # Of a kernel that is no package of this family nothing more is known.
        ({"kernel": "6.18.44-fc-v1045"}, ["kernel-devel-uname-r = 6.18.44-fc-v1045"]),
        ({"kernel": "6.12.0-124.el10_1.x86_64+debug", "headers": True}, ["kernel-debug-devel-matched = 6.12.0-124.el10_1"]),
    ],
)
def test_what_must_be_there_before(changes: dict[str, Any], before: list[str] | None) -> None:
    plan = plan_of(rocky(**changes))
    assert plan["refusals"] == []
    assert desired(plan).get("before", {"packages": None})["packages"] == before


@pytest.mark.parametrize(
    ("others", "remedy"),
    [
        (
            {"5.14.0-611.el9.x86_64": True, "5.14.0-503.el9.x86_64": True},
            "reboot the host into 5.14.0-611.el9.x86_64, the newest kernel that is installed, and",
        ),
        ({"5.14.0-503.el9.x86_64": True}, "install the newest kernel, reboot the host and run again, or enable a repository that keeps the older ones"),
    ],
)
def test_headers_that_left_the_repositories_are_one_sentence_before_anything_changes(others: dict[str, bool], remedy: str) -> None:
    plan = plan_of(rocky(other_kernels=others))
    asked = [entry for entry in plan["sources"]["repositories"] if entry["name"] == "rocky-9"]
    newer = {"kernel-devel-uname-r": "5.14.0-611.el9.x86_64"}
    primary = primary_xml(
        {"kernel-devel-matched": ["5.14.0-611.el9"], "python3-dnf-plugin-versionlock": ["4.3.0-21.el9"]},
        *[package_xml("kernel-devel", "5.14.0-611.el9", provides=newer)],
    )
    site = Site()
    for number, _entry in enumerate(asked):
        put_rpm_repository(site, f"/{number}/", primary if number else primary_xml({}))
    with served(site):
        questions = [{**entry, "url": f"{site.address}/{number}/"} for number, entry in enumerate(asked)]
        problems = look("rocky-01", questions, [], Web(5, None).fetch, Web(5, None).ask)["problems"]
    places = " and ".join(entry["url"] for entry in questions)
    (problem,) = problems
    assert problem.startswith(
        f"rocky-01: {places} has no kernel-devel-uname-r {ROCKY['kernel']} (its newest is 5.14.0-611.el9.x86_64): kernel-devel-5.14.0-570.12.1.el9_6, which "
        f"the driver is built with for the running kernel {ROCKY['kernel']}, is not in any enabled repository any more; {remedy}"
    )


@pytest.mark.parametrize("kernel", ["5.14.0-570.12.1.el9_6.x86_64+rt", "5.14.0-70.13.1.rt21.83.el9_0.x86_64"])
def test_real_time_kernels_are_refused_until_somebody_made_the_driver_work_there(kernel: str) -> None:
    assert only(plan_of(rocky(kernel=kernel))["refusals"]) == (
        f"The host runs the real-time kernel {kernel}, for which NVIDIA's kernel modules refuse to be built (PREEMPT_RT), so there would be no driver: "
        "boot the ordinary kernel of the distribution and run again."
    )
    built = rocky(**{**CONVERGED, "docker": None, "daemon_json": None, "streams": {"nvidia-driver": "580-open"}, "kernel": kernel})
    assert plan_of(built)["refusals"] == []


def test_the_initramfs_of_every_kernel_that_can_boot_next_learns_that_nouveau_is_out() -> None:
    plan = plan_of(rocky(other_kernels={"5.14.0-611.el9.x86_64": True}))
    kernels = [ROCKY["kernel"], "5.14.0-611.el9.x86_64"]
    assert desired(plan)["initramfs_commands"] == [["dracut", "--force", "--kver", kernel] for kernel in kernels]
    assert [action for action in plan["areas"]["nvidia_driver"]["actions"] if "initramfs" in action] == [
        f"rebuild the initramfs of {kernel}" for kernel in kernels
    ]


# --- streams


def test_a4_a_stream_is_branch_and_flavour_and_never_a_version() -> None:
    plan = plan_of(rocky(), nvidia_driver_version="580.178.04")
    assert desired(plan)["stream"] == {"module": "nvidia-driver", "name": "nvidia-driver:580-open", "reset": False, "enable": True}
    proprietary = plan_of(rocky(), nvidia_driver_flavour="proprietary", rackready_lock=lock_for("rocky-9/x86_64", nvidia_driver_flavour="proprietary"))
    assert desired(proprietary)["stream"]["name"] == "nvidia-driver:580-dkms"
    assert "kmod-nvidia-latest-dkms-3:580.178.04-1.el9" in desired(proprietary)["install"]


def test_a5_another_stream_is_reset_first_and_that_is_reported() -> None:
    plan = plan_of(rocky(streams={"nvidia-driver": "580-dkms", "nodejs": "20"}))
    assert plan["refusals"] == []
    assert desired(plan)["stream"]["reset"]
    steps = plan["areas"]["nvidia_driver"]["actions"]
    reset = steps.index("reset the module stream nvidia-driver:580-dkms")
    assert steps[reset + 1] == "enable the module stream nvidia-driver:580-open"


def test_a_stream_that_somebody_switched_is_switched_back() -> None:
    facts = planned()
    assert plan_of(facts)["converged"]
    facts["packages"]["streams"]["nvidia-driver"] = "595-open"
    assert actions(plan_of(facts)) == {"nvidia_driver": ["reset the module stream nvidia-driver:595-open", "enable the module stream nvidia-driver:580-open"]}


def test_the_release_after_has_no_streams() -> None:
    facts = facts_for(distribution=("rhel", "10.1", "", "Red Hat Enterprise Linux 10.1"), kernel="6.12.0-124.el10.x86_64")
    plan = plan_of(facts, rackready_lock=lock("rhel-10/x86_64"))
    assert plan["refusals"] == []
    assert "stream" not in desired(plan)
    assert desired(plan)["lock"]["lines"][0].startswith("kmod-nvidia-open-dkms-3:580.178.04-")
    assert plan["sources"]["repositories"][0]["streams"] == []


# --- locks


def installed_driver(version: str, locked: str = "", **changes: Any) -> dict[str, Any]:
    """A host on which a driver is installed and not loaded, with lines in versionlock's list."""
    facts = rocky(**{**changes, "headers": True})
    names = ["nvidia-driver-cuda", "kmod-nvidia-open-dkms", *plans.LIBRARY_PACKAGES["dnf"]]
    facts["packages"]["installed"].update({name: {"version": f"3:{version}-1.el9", "held": False} for name in names})
    facts["packages"]["installed"]["dkms"] = {"version": "3.2.2-1.el9", "held": False}
    facts["packages"]["streams"]["nvidia-driver"] = "580-open"
    facts["library_version"] = version
    if locked:
        facts["files"][LOCKED] = locked
    return facts


def test_what_came_along_is_locked_once_it_is_there() -> None:
    before = desired(plan_of(rocky()))["lock"]
    assert before["package"] == "python3-dnf-plugin-versionlock"
    assert before["lines"] == ["kmod-nvidia-open-dkms-3:580.178.04-1.el9.*", "nvidia-driver-cuda-3:580.178.04-1.el9.*"]
    after = desired(plan_of(installed_driver("580.178.04")))
    assert after["hold"] == sorted(["nvidia-driver-cuda", "kmod-nvidia-open-dkms", *plans.LIBRARY_PACKAGES["dnf"]])
    assert after["lock"]["lines"] == [f"{name}-3:580.178.04-1.el9.*" for name in after["hold"]]


def test_an_upgrade_does_not_lock_the_libraries_where_they_were() -> None:
    """Their new versions would be hidden from the very transaction that installs them."""
    plan = plan_of(installed_driver("580.95.05"))
    assert plan["refusals"] == []
    assert desired(plan)["lock"]["lines"] == ["kmod-nvidia-open-dkms-3:580.178.04-1.el9.*", "nvidia-driver-cuda-3:580.178.04-1.el9.*"]
    assert "libnvidia-ml" in desired(plan)["hold"]


OURS = "# BEGIN rackready nvidia_driver\nlibnvidia-ml-3:580.95.05-1.el9.*\n# END rackready nvidia_driver\n"


@pytest.mark.parametrize(
    ("locked", "words"),
    [
        ("libnvidia-ml-3:580.95.05-1.el9.*\n", "Somebody locks libnvidia-ml to other versions than 580.178.04 (libnvidia-ml-3:580.95.05-1.el9.*)"),
        ("# old\nlibnvidia-*-3:580.95.05-1.el9.*\n", "Somebody locks libnvidia-ml to other versions"),
        (OURS, None),
        ("libnvidia-ml-3:580.95.05-1.el9.*\nlibnvidia-ml-3:580.178.04-1.el9.*\n", None),
        # Of what we install ourselves our own line allows the version.
        ("nvidia-driver-cuda-3:580.95.05-1.el9.*\n", None),
        ("libnvidia-ml\n", None),
    ],
)
def test_locks_of_others_that_are_in_the_way_are_named(locked: str, words: str | None) -> None:
    refusals = plan_of(installed_driver("580.95.05", locked))["refusals"]
    assert (refusals == []) if words is None else only(refusals).startswith(words)
    if words is not None:
        assert "run dnf versionlock delete libnvidia-ml if that is over" in refusals[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"excludes": ("kernel*",)},
            "dnf is told not to see kernel-devel, kernel-devel-matched (kernel*), so it cannot install what is planned: take that out of excludepkgs",
        ),
        ({"excludes": ("*nvidia-driver*", "vim")}, "dnf is told not to see nvidia-driver-cuda (*nvidia-driver*)"),
        ({"excludes": ("dkms", "docker-ce")}, "dnf is told not to see dkms, docker-ce (dkms, docker-ce)"),
        ({"files": {LOCKED: "!docker-ce-3:29.2.1-*\n"}}, "dnf is told not to see docker-ce (!docker-ce-3:29.2.1-*)"),
        ({"files": {LOCKED: "!docker-ce-3:28.*\n# !dkms\n"}}, None),
        ({"excludes": ("kernel*",), "headers": True}, "dnf is told not to see kernel-devel-matched (kernel*)"),
        ({"excludes": ("kernel*",), "headers": True, "packages": {"dkms": "3.2.2-1.el9"}}, None),
    ],
)
def test_packages_that_dnf_is_told_not_to_see_are_refused_before_anything_changes(changes: dict[str, Any], words: str | None) -> None:
    refusals = plan_of(rocky(**changes))["refusals"]
    assert (refusals == []) if words is None else only(refusals).startswith(words)


def test_an_exclude_that_hides_only_what_is_installed_as_planned_does_not_matter() -> None:
    facts = planned()
    facts["packages"]["excludes"] = ["nvidia*", "docker*", "kernel*"]
    assert plan_of(facts)["converged"]


def test_without_the_plugin_nothing_is_locked_and_it_is_installed_again() -> None:
    facts = planned()
    del facts["packages"]["installed"]["python3-dnf-plugin-versionlock"]
    for entry in facts["packages"]["installed"].values():
        entry["held"] = False
    plan = plan_of(facts)
    assert plan["refusals"] == []
    assert "install python3-dnf-plugin-versionlock" in actions(plan)["nvidia_driver"]
    assert plan["sources"]["repositories"][-1]["packages"] == {"python3-dnf-plugin-versionlock": None}


# --- refusals in dnf's words


def with_packages(version: str, **packages: str) -> dict[str, Any]:
    facts = installed_driver(version)
    facts["packages"]["installed"].update({name.replace("_", "-"): {"version": found, "held": False} for name, found in packages.items()})
    return facts


REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "broken": (rocky(broken=True), {}, "rpm does not answer, or has a package in two versions as an installation that was cut off leaves it"),
    "busy": (rocky(busy="dnf (pid 812) holds /var/lib/dnf/rpmdb_lock.pid"), {}, "The package manager is busy: dnf (pid 812)"),
    "newer toolkit": (
        rocky(packages={"nvidia-container-toolkit": "1.21.0-1"}),
        {},
        "nvidia-container-toolkit 1.21.0-1 is installed, newer than the planned 1.20.0-1, so dnf would leave it as it is: "
        'set nvidia_container_toolkit_version: "1.21.0" and run playbooks/pin.yml, or remove nvidia-container-toolkit.',
    ),
    "other flavour": (
        with_packages("580.178.04", kmod_nvidia_latest_dkms="3:580.178.04-1.el9"),
        {},
        "kmod-nvidia-latest-dkms 3:580.178.04-1.el9 is installed and 580.178.04 open is planned, so the packages would conflict: "
        "run dnf remove kmod-nvidia-latest-dkms, then run again.",
    ),
    "RPM Fusion": (
        rocky(packages={"akmod-nvidia": "3:580.126.18-1.el9", "xorg-x11-drv-nvidia-cuda": "3:580.126.18-1.el9"}),
        {},
        "akmod-nvidia 3:580.126.18-1.el9 and 1 more packages of another driver are installed and 580.178.04 open is planned",
    ),
    "libraries of another version": (
        with_packages("580.178.04", libnvidia_ml="3:595.91.07-1.el9"),
        {},
        "run dnf --disableplugin=versionlock install libnvidia-ml-580.178.04, or remove libnvidia-ml, then run again.",
    ),
    "podman": (
        rocky(packages=PODMAN),
        {},
        "podman, podman-docker are installed and Docker's own packages are planned, so the two sets of packages exclude each other: "
        "remove podman podman-docker, then run again.",
    ),
    "no engine of the distribution": (
        rocky(),
        {"docker_source": "distribution"},
        "rocky-9 is not known to ship Docker, so the toolkit needs 26.1: set docker_source: docker.",
    ),
    "archives": (
        rocky(disks={"/var/cache/dnf": {"device": 2, "free_mib": 10}}),
        {},
        "/var/cache/dnf has 10 MiB free and installing nvidia_driver, nvidia_fabric, docker, nvidia_container_toolkit needs 620 MiB there",
    ),
}


@pytest.mark.parametrize(("facts", "variables", "words"), REFUSED.values(), ids=list(REFUSED))
def test_refused(facts: dict[str, Any], variables: dict[str, Any], words: str) -> None:
    refusals = plan_of(copy.deepcopy(facts), **variables)["refusals"]
    assert words in only(refusals)


@pytest.mark.parametrize(
    ("stream", "switch"), [("580-open", ""), ("595-open", "dnf module reset nvidia-driver, dnf module enable nvidia-driver:580-open and ")]
)
def test_packages_that_were_upgraded_under_the_module_name_dnf_s_way_back(stream: str, switch: str) -> None:
    facts = rocky(**{**CONVERGED, "docker": None, "daemon_json": None, "smi_state": "failed", "library": "595.91.07", "streams": {"nvidia-driver": stream}})
    for name in ("nvidia-driver-cuda", "kmod-nvidia-open-dkms", *plans.LIBRARY_PACKAGES["dnf"]):
        facts["packages"]["installed"][name] = {"version": "3:595.91.07-1.el9", "held": False}
    (sentence,) = [refusal for refusal in plan_of(facts)["refusals"] if refusal.startswith("The driver's packages were upgraded")]
    assert f"run {switch}dnf --disableplugin=versionlock install kmod-nvidia-open-dkms-580.178.04 " in sentence


def test_a_converged_host_of_others_is_locked_and_gets_its_files() -> None:
    facts = rocky(**{**CONVERGED, "docker": None, "daemon_json": None, "streams": {"nvidia-driver": "580-open"}})
    plan = plan_of(facts)
    assert plan["refusals"] == []
    assert plan["areas"]["nvidia_fabric"]["converged"]
    assert all(action.startswith(("write ", "rebuild the initramfs")) for action in plan["areas"]["nvidia_driver"]["actions"])


# --- SELinux


@pytest.mark.parametrize(
    ("options", "mode", "allowed", "warned"),
    [
        ({}, "enforcing", False, False),
        ({"selinux-enabled": True}, "enforcing", False, True),
        ({"selinux-enabled": True}, "enforcing", None, True),
        ({"selinux-enabled": True}, "enforcing", True, False),
        ({"selinux-enabled": True}, "permissive", False, False),
        ({"selinux-enabled": True}, "disabled", None, False),
    ],
)
def test_labelled_containers_that_may_not_open_devices_are_warned_about(options: dict[str, Any], mode: str, allowed: bool | None, warned: bool) -> None:
    plan = plan_of(rocky(selinux=mode, container_use_devices=allowed), docker_daemon_options=options)
    assert plan["refusals"] == []
    assert any("setsebool -P container_use_devices 1" in sentence for sentence in plan["warnings"]) is warned
