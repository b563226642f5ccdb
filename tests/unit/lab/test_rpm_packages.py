# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml
from lab import rpm_packages
from lab.errors import LabError

CATALOG = yaml.safe_load((Path(__file__).resolve().parents[3] / "plugins/plugin_utils/catalog/docker.yml").read_text())


def deb(folder: Path, name: str, version: str, *files: str) -> None:
    """A real package with those files in it."""
    root = folder / "root"
    for path in files:
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(name)
    (root / "DEBIAN").mkdir(parents=True)
    (root / "DEBIAN/control").write_text(f"Package: {name}\nVersion: {version}\nArchitecture: amd64\nMaintainer: a <a@b.invalid>\nDescription: x\n")
    subprocess.run(["dpkg-deb", "--build", str(root), str(folder / f"{name}_{version}_amd64.deb")], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["rm", "-r", str(root)], check=True)


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_every_package_that_the_product_installs_is_served() -> None:
    assert {package.name for package in rpm_packages.DOCKER} == set(CATALOG["docker"]["packages"]["dnf"])


def test_docker_s_packages_have_debian_s_programs_and_docker_s_versions(tmp_path: Path) -> None:
    engine, own = tmp_path / "engine", tmp_path / "own"
    for folder in (engine, own):
        folder.mkdir()
    deb(engine, "docker.io", "26.1.5+dfsg1-9", "usr/sbin/dockerd", "etc/init.d/docker", "etc/default/docker", "usr/share/doc/docker.io/README")
    deb(engine, "docker-cli", "26.1.5+dfsg1-9", "usr/bin/docker")
    deb(engine, "containerd", "1.7.24~ds1-6", "usr/bin/containerd", "lib/systemd/system/containerd.service")
    deb(engine, "tini", "0.19.0-3", "usr/bin/tini")
    deb(own, "runc", "1.1.5+ds1-1", "usr/sbin/runc", "usr/bin/other")
    made = {package.name: package for package in rpm_packages.write_sources(rpm_packages.DOCKER, engine, tmp_path / "sources", own)}
    assert {name: package.version for name, package in made.items()} == {
        "containerd.io": "1.7.24-3.1.el9",
        "docker-ce-cli": "1:26.1.5-1.el9",
        "docker-ce": "3:26.1.5-1.el9",
        "docker-buildx-plugin": "2.0.0-1.el9",
        "docker-compose-plugin": "2.0.0-1.el9",
    }
    assert files(tmp_path / "sources/docker-ce-26.1.5-1.el9.x86_64/root") == {"usr/sbin/dockerd", "etc/default/docker", "usr/bin/tini"}
    assert files(tmp_path / "sources/containerd.io-1.7.24-3.1.el9.x86_64/root") == {
        *("usr/bin/containerd", "usr/lib/systemd/system/containerd.service", "usr/sbin/runc"),
    }
    spec = (tmp_path / "sources/docker-ce-26.1.5-1.el9.x86_64/package.spec").read_text()
    assert "systemctl --no-reload preset docker.service" in spec
    assert "\nRequires: (iptables-nft or iptables)\n" in spec
    assert "systemctl start" not in spec


def test_a_plugin_of_its_own_is_not_in_the_package_of_the_others(tmp_path: Path) -> None:
    plugins = "usr/lib/python3/dist-packages/dnf-plugins"
    deb(
        tmp_path,
        "dnf-plugins-core",
        "4.3.1-3",
        f"{plugins}/versionlock.py",
        f"{plugins}/local.py",
        f"{plugins}/download.py",
        "etc/dnf/plugins/versionlock.conf",
    )
    deb(tmp_path, "iptables", "1.8.9-2", "usr/sbin/xtables-nft-multi")
    deb(tmp_path, "libnftnl11", "1.2.4-2", "usr/lib/x86_64-linux-gnu/libnftnl.so.11.6.0")
    rpm_packages.write_sources(rpm_packages.ROCKY, tmp_path, tmp_path / "sources")
    assert files(tmp_path / "sources/python3-dnf-plugins-core-4.3.1-1.el9.x86_64/root") == {f"{plugins}/download.py"}
    assert files(tmp_path / "sources/python3-dnf-plugin-versionlock-4.3.1-1.el9.x86_64/root") == {
        *("etc/dnf/plugins/versionlock.conf", f"{plugins}/versionlock.py"),
    }
    tables = tmp_path / "sources/iptables-nft-1.8.9-1.el9.x86_64/root/usr"
    assert (tables / "sbin/iptables").readlink() == Path("xtables-nft-multi")
    assert (tables / "lib/x86_64-linux-gnu/libnftnl.so.11.6.0").is_file()


def test_a_mirror_without_the_engine_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"has 0 packages containerd instead of one; run \./dev lab down"):
        rpm_packages.write_sources(rpm_packages.DOCKER, tmp_path, tmp_path / "sources")
