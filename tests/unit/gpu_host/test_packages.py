# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import ctypes
import platform
from pathlib import Path

import pytest
import yaml
from gpu_host import deb, debian, packages
from gpu_host.elf import shared_object
from gpu_host.package import Package

RELEASE = "6.12.57-amd64"
ALL = packages.debian_packages(RELEASE)
CATALOG = yaml.safe_load((Path(__file__).resolve().parents[3] / "plugins/plugin_utils/catalog/driver_packages.yml").read_text())["driver_packages"]


def named(name: str, version: str) -> Package:
    return next(package for package in ALL if (package.name, package.version) == (name, version))


def test_every_package_says_that_it_is_a_stand_in() -> None:
    for package in ALL:
        assert "\nDescription: stand-in of the rackready lab: " in deb.control(package)


def test_names_and_versions_are_unique() -> None:
    assert len({(package.repository, package.name, package.version) for package in ALL}) == len(ALL)


@pytest.mark.parametrize("version", packages.DRIVERS)
def test_the_driver_depends_on_exactly_its_own_version(version: str) -> None:
    control = deb.control(named("nvidia-driver-cuda", f"{version}-1"))
    depends = next(line for line in control.splitlines() if line.startswith("Depends: ")).removeprefix("Depends: ").split(", ")
    assert {f"libcuda1 (= {version}-1)", f"libnvidia-ml1 (= {version}-1)", f"nvidia-persistenced (= {version}-1)"} <= set(depends)
    assert f"nvidia-kernel-open-dkms (= {version}-1) | nvidia-kernel-dkms (= {version}-1)" in depends


@pytest.mark.parametrize("package", ALL, ids=lambda package: f"{package.repository}/{package.name}={package.version}")
def test_every_dependency_on_a_stand_in_is_served(package: Package) -> None:
    served = {(each.name, each.version) for each in ALL if each.repository == package.repository}
    for group in package.relations.get("depends", ()):
        exact = [words for words in (choice.split() for choice in group.split(" | ")) if len(words) == 3 and words[1] in ("=", ">=")]
        for name, _relation, version in exact:
            assert (name, version) in served


@pytest.mark.parametrize("version", packages.DRIVERS)
def test_what_the_product_installs_on_ubuntu_is_served(version: str) -> None:
    branch = version.split(".", maxsplit=1)[0]
    names = {package.name for package in debian.ubuntu_driver(version, "amd64")}
    entry = CATALOG["ubuntu-cuda-580" if branch == "580" else "ubuntu-cuda-590"]
    for wanted in (*entry["flavours"].values(), *entry["compute"].values(), entry["libraries"]):
        assert {name.format(branch=branch) for name in wanted} <= names


def test_the_whole_driver_of_ubuntu_brings_the_kernel_modules_of_its_flavour_and_nvidia_smi() -> None:
    def depends(name: str) -> set[str]:
        wanted = named(name, "580.178.04-0ubuntu1").relations.get("depends", ())
        return {name, *(each for word in wanted if " = " in word for each in depends(word.split()[0]))}

    assert {"nvidia-dkms-580-open", "nvidia-utils-580", "libnvidia-compute-580", "nvidia-compute-utils-580"} <= depends("nvidia-open-580")
    assert "nvidia-dkms-580" in depends("cuda-drivers-580")
    assert "nvidia-dkms-580-open" not in depends("cuda-drivers-580")


def test_the_flavours_exclude_each_other() -> None:
    package = named("nvidia-kernel-dkms", "580.178.04-1")
    assert "\nConflicts: nvidia-kernel-open-dkms\n" in deb.control(package)
    assert "dkms-build 580.178.04 proprietary" in deb.scripts(package)["postinst"]
    assert "dkms-remove 580.178.04 proprietary" in deb.scripts(package)["prerm"]


def test_the_toolkit_is_in_lockstep_and_refreshes_the_specification() -> None:
    base = named("nvidia-container-toolkit-base", "1.19.0-1")
    assert {"/etc/systemd/system/nvidia-cdi-refresh.path", "/etc/systemd/system/nvidia-cdi-refresh.service", "/usr/bin/nvidia-ctk"} <= set(base.files)
    assert "nvidia-container-toolkit-base (= 1.19.0-1), libnvidia-container-tools (>= 1.19.0-1), libnvidia-container-tools (<< 2.0.0)" in deb.control(
        named("nvidia-container-toolkit", "1.19.0-1")
    )
    unit = base.files["/etc/systemd/system/nvidia-cdi-refresh.service"][0].decode()
    assert "grep -qE '/(nvidia|nvidia-current)\\\\.ko' /lib/modules/%v/modules.dep" in unit


def test_starting_obeys_policy_for_the_driver_and_nothing_starts_the_fabric_manager() -> None:
    assert "deb-systemd-invoke" in deb.scripts(named("nvidia-persistenced", "580.178.04-1"))["postinst"]
    assert "start" not in deb.scripts(named("nvidia-fabricmanager", "580.178.04-1"))["postinst"]


def test_the_toolkit_starts_its_units_without_asking() -> None:
    scripts = deb.scripts(named("nvidia-container-toolkit-base", "1.19.0-1"))
    assert "systemctl enable --now nvidia-cdi-refresh.path" in scripts["postinst"]
    assert "systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service" in scripts["prerm"]
    assert "postrm" not in scripts


def test_a_package_with_nothing_to_do_has_no_scripts() -> None:
    assert deb.scripts(named("libcuda1", "580.178.04-1")) == {}


def test_the_pin_holds_the_branch() -> None:
    text = named("nvidia-driver-pinning-580", "580-1").files["/etc/apt/preferences.d/nvidia-driver-pinning-580"][0].decode()
    assert "Pin: version 580.*\n" in text
    assert "nvidia-driver-cuda" in text
    assert "libcuda1" in text


def test_headers_bring_the_build_folder() -> None:
    headers = debian.headers(RELEASE, "amd64")
    assert (headers.name, headers.version) == (f"linux-headers-{RELEASE}", "6.12.57-1")
    assert f"/usr/lib/modules/{RELEASE}/build" in headers.links


def test_a_release_that_no_package_can_be_named_after() -> None:
    with pytest.raises(ValueError, match="microsoft-standard-WSL2"):
        debian.headers("5.15.153.1-microsoft-standard-WSL2", "amd64")


def test_each_package_is_built_into_the_folder_of_its_repository(tmp_path: Path) -> None:
    commands: list[list[str]] = []
    paths = packages.build_packages(tmp_path, ALL, lambda package, folder: deb.build(package, folder, commands.append))
    assert len(paths) == len(ALL) == len(commands)
    assert {path.parent.name for path in paths} == {"nvidia-cuda", "nvidia-cuda-ubuntu", "nvidia-container-toolkit", "archive"}
    assert tmp_path / "nvidia-cuda/nvidia-driver-cuda_580.178.04-1_amd64.deb" in paths
    assert commands[0][-1] == str(paths[0])


def test_the_loader_takes_the_library(tmp_path: Path) -> None:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    path = tmp_path / "libcuda.so.580.178.04"
    path.write_bytes(shared_object("libcuda.so.1", architecture))
    library = ctypes.CDLL(str(path))
    with pytest.raises(AttributeError):
        _ = library.cuInit
