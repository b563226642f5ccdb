# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from lab import distribution
from lab.debs import upstream
from lab.docker_packages import PACKAGES, build, control
from lab.errors import LabError

KNOWN = distribution.load(Path(__file__).resolve().parents[3] / "molecule/lab/distributions.yml")
CATALOG = yaml.safe_load((Path(__file__).resolve().parents[3] / "plugins/plugin_utils/catalog/docker.yml").read_text())


def test_every_package_that_the_product_installs_is_served() -> None:
    assert {package.name for package in PACKAGES} == set(CATALOG["docker"]["packages"]["apt"])


@pytest.mark.parametrize(
    ("key", "version"), [("debian-12", "5:26.1.5-1~debian.12~bookworm"), ("ubuntu-24.04", "5:26.1.5-1~ubuntu.24.04~noble")], ids=["Debian", "Ubuntu"]
)
def test_versions_are_written_as_docker_writes_them(key: str, version: str) -> None:
    engine = next(package for package in PACKAGES if package.name == "docker-ce")
    fields = control(engine, upstream("docker.io_26.1.5+dfsg1-9+deb13u1+b1_amd64.deb"), KNOWN[key])
    assert fields["Version"] == version
    assert "stand-in" in fields["Description"]


def test_docker_s_and_the_distribution_s_engine_exclude_each_other() -> None:
    engine = next(package for package in PACKAGES if package.name == "docker-ce")
    assert "docker.io" in control(engine, "26.1.5", KNOWN["debian-12"])["Conflicts"]


def test_a_mirror_without_the_engine_is_said_by_name(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"has 0 packages runc instead of one; run \./dev lab down"):
        build(tmp_path, tmp_path, KNOWN["debian-12"], tmp_path)


def test_a_file_that_is_no_package_is_refused() -> None:
    with pytest.raises(LabError, match="not named as"):
        upstream("README")
