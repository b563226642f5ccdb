# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml
from gpu_host import contents, enterprise_linux, packages, rpm
from gpu_host.package import Package
from lab import rpm_packages

RELEASE = "6.12.0-55.9.1.el10_0.x86_64"
ALL = packages.enterprise_linux_packages(RELEASE)
BASE = [package for package, _tail in enterprise_linux.base("9.6", "Rocky Linux", b'ID="rocky"\n', RELEASE)]
CATALOG = yaml.safe_load((Path(__file__).resolve().parents[3] / "plugins/plugin_utils/catalog/driver_packages.yml").read_text())["driver_packages"]
STREAMS = {document["data"]["stream"]: document["data"] for document in enterprise_linux.modules(ALL) if document["document"] == "modulemd"}


def named(name: str, version: str) -> Package:
    return next(package for package in ALL if (package.name, package.version) == (name, version))


def test_every_package_says_that_it_is_a_stand_in() -> None:
    for package in [*ALL, *BASE]:
        assert "\nSummary: stand-in of the rackready lab: " in rpm.spec(package, "/sources/x/root", [])


def test_names_and_versions_are_unique() -> None:
    assert len({(package.name, package.version) for package in ALL}) == len(ALL)


@pytest.mark.parametrize(
    ("version", "parts"),
    [("3:580.178.04-1.el9", ("3", "580.178.04", "1.el9")), ("1.20.0-1", ("", "1.20.0", "1")), ("6.18.44-fc_v1045", ("", "6.18.44", "fc_v1045"))],
)
def test_a_version_has_an_epoch_or_none_and_a_release(version: str, parts: tuple[str, str, str]) -> None:
    assert rpm.split(version) == parts


def test_a_package_is_called_with_its_epoch_and_its_file_without() -> None:
    package = named("nvidia-driver-cuda", "3:580.178.04-1.el9")
    assert rpm.nevra(package) == "nvidia-driver-cuda-3:580.178.04-1.el9.x86_64"
    assert rpm.stem(package) == "nvidia-driver-cuda-580.178.04-1.el9.x86_64"
    assert rpm.nevra(named("nvidia-fabricmanager", "580.178.04-1")) == "nvidia-fabricmanager-0:580.178.04-1.x86_64"
    assert rpm.nevra(named("kmod-nvidia-open-dkms", "3:580.178.04-1.el9")) == "kmod-nvidia-open-dkms-3:580.178.04-1.el9.noarch"


def provided() -> dict[str, set[str]]:
    """Name -> versions, as far as a version is given: of packages, what they provide, and files that others ask for."""
    found: dict[str, set[str]] = {}
    for package in [*ALL, *BASE]:
        _epoch, version, _release = rpm.split(package.version)
        epoch = package.version.split(":", maxsplit=1)[0] + ":" if ":" in package.version else ""
        found.setdefault(package.name, set()).update({package.version, f"{epoch}{version}"})
        for each in package.relations.get("provides", ()):
            name, _sign, version = each.partition(" = ")
            found.setdefault(name, set()).add(version)
    for repackaged in (*rpm_packages.DOCKER, *rpm_packages.ROCKY):
        found.setdefault(repackaged.name, set())
    return found


@pytest.mark.parametrize("package", [*ALL, *BASE], ids=lambda package: f"{package.repository}/{rpm.nevra(package)}")
def test_every_dependency_is_served_or_there(package: Package) -> None:
    served = provided()
    for wanted in package.relations.get("depends", ()):
        name, sign, version = (*wanted.strip("()").split(), "", "")[:3]
        assert name in served, wanted
        assert sign != "=" or version in served[name], wanted


@pytest.mark.parametrize("package", [*rpm_packages.DOCKER, *rpm_packages.ROCKY], ids=lambda package: package.name)
def test_every_dependency_of_what_is_made_of_debian_s_files_is_served_or_there(package: rpm_packages.Repackaged) -> None:
    for wanted in package.relations.get("depends", ()):
        assert any(choice.split()[0] in provided() for choice in wanted.split(" | ")), wanted


@pytest.mark.parametrize("version", packages.DRIVERS)
def test_what_the_product_installs_is_in_the_stream_that_it_enables(version: str) -> None:
    entry = CATALOG["rhel-8-9-cuda"]
    for flavour, names in entry["flavours"].items():
        stream = STREAMS[entry["pin"]["streams"][flavour].format(branch=version.split(".", maxsplit=1)[0])]
        for name in names:
            assert any(artifact.startswith(f"{name}-3:{version}-1.el9.") for artifact in stream["artifacts"]["rpms"])


def test_a_stream_has_one_branch_and_one_flavour_and_the_newest_have_all_branches() -> None:
    assert set(STREAMS) == {"580-open", "580-dkms", "595-open", "595-dkms", "open-dkms", "latest-dkms"}
    open_580 = STREAMS["580-open"]["artifacts"]["rpms"]
    assert all("-3:580." in artifact for artifact in open_580)
    assert not any("latest-dkms" in artifact for artifact in open_580)
    assert set(STREAMS["open-dkms"]["artifacts"]["rpms"]) >= {*open_580, *STREAMS["595-open"]["artifacts"]["rpms"]}
    assert not any("fabricmanager" in artifact or "nscq" in artifact for stream in STREAMS.values() for artifact in stream["artifacts"]["rpms"])


def test_one_stream_is_the_default() -> None:
    *_streams, defaults = enterprise_linux.modules(ALL)
    assert defaults["document"] == "modulemd-defaults"
    assert defaults["data"]["stream"] == "latest-dkms"
    assert set(defaults["data"]["profiles"]) == set(STREAMS)


def test_the_flavours_exclude_each_other_and_are_built_by_the_script() -> None:
    package = named("kmod-nvidia-latest-dkms", "3:580.178.04-1.el9")
    spec = rpm.spec(package, "/x", [])
    assert "\nConflicts: kmod-nvidia-open-dkms\n" in spec
    assert "\nBuildArch: noarch\n" in spec
    assert "\nRequires: dkms\n" in spec
    assert "dkms-build 580.178.04 proprietary" in rpm.scripts(package)["post"]
    assert "dkms-remove 580.178.04 proprietary" in rpm.scripts(package)["preun"]


def test_presets_decide_and_nothing_of_the_driver_is_started() -> None:
    scripts = rpm.scripts(named("nvidia-persistenced", "3:580.178.04-1.el9"))
    assert scripts["post"] == "if [ $1 -eq 1 ]; then systemctl --no-reload preset nvidia-persistenced.service || :; fi\n"
    assert "posttrans" not in scripts
    assert "post" not in rpm.scripts(named("nvidia-fabricmanager", "580.178.04-1"))
    files = named("nvidia-driver-cuda", "3:580.178.04-1.el9").files
    assert b"enable nvidia-persistenced.service\n" in files["/usr/lib/systemd/system-preset/70-nvidia-driver-cuda.preset"][0]


@pytest.mark.parametrize(("version", "folder"), [("1.19.1-1", "/etc/systemd/system"), ("1.20.0-1", "/usr/lib/systemd/system")])
def test_the_toolkit_starts_the_refresh_whose_units_moved(version: str, folder: str) -> None:
    base = named("nvidia-container-toolkit-base", version)
    assert {f"{folder}/{unit}" for unit in contents.REFRESH_UNITS} <= set(base.files)
    assert "systemctl start nvidia-cdi-refresh.path nvidia-cdi-refresh.service" in rpm.scripts(base)["posttrans"]
    assert ("systemctl enable" in rpm.scripts(base)["post"]) == (folder == "/etc/systemd/system")


@pytest.mark.parametrize(
    ("release", "version", "provides"),
    [
        ("5.14.0-570.el9.x86_64", "5.14.0-570.el9", "kernel-devel-uname-r = 5.14.0-570.el9.x86_64"),
        ("6.18.44-fc-v1045", "6.18.44-fc_v1045", "kernel-devel-uname-r = 6.18.44_fc-v1045"),
        ("6.12.0", "6.12.0-1", "kernel-devel-uname-r = 6.12.0"),
        ("5.15.153.1-microsoft-standard-WSL2", "5.15.153.1-microsoft_standard_WSL2", "kernel-devel-uname-r = 5.15.153.1_microsoft_standard-WSL2"),
    ],
)
def test_headers_say_for_which_kernel_they_are(release: str, version: str, provides: str) -> None:
    package = enterprise_linux.kernel(release, "x86_64")["kernel-devel"]
    assert (package.name, package.version) == ("kernel-devel", version)
    assert package.relations["provides"] == (provides, f"kernel-devel-{release}")
    assert package.links == {f"/usr/lib/modules/{release}/build": f"/usr/src/kernels/{release}"}
    assert rpm.scripts(package) == {}, "dkms builds for a new kernel, not for headers that come later"


def test_the_kernel_that_runs_is_not_the_newest_and_what_builds_modules_asks_for_headers_that_match_a_kernel() -> None:
    own, other = (enterprise_linux.kernel(release, "x86_64") for release in (RELEASE, enterprise_linux.newer(RELEASE)))
    assert enterprise_linux.newer(RELEASE) == "6.12.0-55.9.1.el10_0.1.x86_64"
    assert enterprise_linux.newer("6.18.44-fc-v1045") == "6.18.44-fc-v1045.1"
    assert own["kernel-devel-matched"].relations["depends"] == ("kernel-devel = 6.12.0-55.9.1.el10_0", "kernel-core = 6.12.0-55.9.1.el10_0")
    assert other["kernel-core"].version == "6.12.0-55.9.1.el10_0.1"
    assert {package.version for package in ALL if package.name == "kernel-core"} == {own["kernel-core"].version, other["kernel-core"].version}
    dkms = next(package for package in ALL if package.name == "dkms")
    assert "\nRequires: (kernel-devel-matched if kernel-core)\n" in rpm.spec(dkms, "/x", [])


def test_the_specification_lists_files_by_what_they_are(tmp_path: Path) -> None:
    package = Package(
        "a", "1:2-3", "noarch", "r", "100% useful", {"depends": ("b = 1 | c",)}, {"/etc/a.conf": (b"", 0o644), "/usr/bin/a": (b"", 0o755)}, {"/usr/bin/b": "a"}
    )
    place = rpm.write_source(package, tmp_path, "/sources", "%triggerin -- b\n:\n")
    assert place == tmp_path / "a-2-3.noarch"
    spec = (place / "package.spec").read_text()
    assert '%config(noreplace) "/etc/a.conf"\n"/usr/bin/a"\n"/usr/bin/b"\n\n%triggerin -- b\n:\n' in spec
    assert "\nRequires: (b = 1 or c)\n" in spec
    assert "100%% useful" in spec
    assert 'cp -a "/sources/a-2-3.noarch/root/." %{buildroot}/' in spec
    assert (place / "root/usr/bin/a").stat().st_mode & 0o777 == 0o755
    assert (place / "root/usr/bin/b").is_symlink()


def test_a_bare_host_says_what_it_is_and_starts_nothing_by_itself() -> None:
    release, root, kernel = BASE
    assert kernel.name == "kernel-core"
    assert {"system-release(releasever) = 9", "system-release = 9.6"} <= set(release.relations["provides"])
    assert release.files["/usr/lib/systemd/system-preset/99-default-disable.preset"][0] == b"disable *\n"
    assert re.fullmatch(rb"Rocky Linux release 9\.6 \(stand-in .*\)\n", release.files["/etc/redhat-release"][0])
    assert "/bin/sh" in root.relations["provides"]


def test_module_metadata_is_plain_data() -> None:
    assert json.loads(json.dumps(enterprise_linux.modules(ALL))) == list(yaml.safe_load_all(yaml.safe_dump_all(enterprise_linux.modules(ALL))))
