# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from lab import distribution, host_image, image_root
from lab.engine import Engine
from lab.errors import LabError
from lab.paths import Layout

TABLE = Layout.of_this_file().code / "distributions.yml"
IMAGES = {
    "RACKREADY_LAB_ROOT_DEBIAN_12": "docker.io/library/debian:12",
    "RACKREADY_LAB_ROOT_UBUNTU_24_04": "docker.io/library/ubuntu:24.04",
    "RACKREADY_LAB_ROOT_ROCKY_9": "docker.io/rockylinux/rockylinux:9",
}
KNOWN, ON_IMAGES = distribution.load(TABLE, {}), distribution.load(TABLE, IMAGES)


class Recorded(Engine):
    """An engine that does as it is told and has no image."""

    def __init__(self) -> None:
        self.told: list[tuple[str, ...]] = []

    def attempt(self, *args: str, stdin: object = None, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        self.told.append(args)
        missing = args[:2] == ("image", "inspect")
        return subprocess.CompletedProcess(args, int(missing), "", "Error: No such image" * missing)


def test_an_image_makes_a_stand_in_the_distribution_itself() -> None:
    rocky, ubuntu = ON_IMAGES["rocky-9"], ON_IMAGES["ubuntu-24.04"]
    assert (rocky.root, rocky.os_release, rocky.image) == ("rocky-9", {}, "docker.io/rockylinux/rockylinux:9")
    assert "procps-ng" in rocky.packages and "procps" not in rocky.packages
    assert (ubuntu.root, ubuntu.os_release, ubuntu.runc_from) == ("ubuntu-24.04", {}, "ubuntu-24.04")
    assert ubuntu.needs == {"ubuntu-24.04", "debian-13"}
    assert rocky.needs == {"rocky-9", "debian-13", "debian-12"}
    assert ON_IMAGES["debian-13"] == KNOWN["debian-13"]


@pytest.mark.parametrize("key", KNOWN)
def test_every_distribution_can_have_its_own_image(key: str) -> None:
    assert KNOWN[key].to_image.packages and KNOWN[key].to_image.mirror


def test_a_variable_that_means_no_distribution_is_refused() -> None:
    with pytest.raises(LabError, match=r"RACKREADY_LAB_ROOT_ROCKY: no distribution of the lab has that variable; there are .*RACKREADY_LAB_ROOT_ROCKY_9"):
        distribution.load(TABLE, {"RACKREADY_LAB_ROOT_ROCKY": "x"})


def test_an_empty_variable_is_none() -> None:
    assert distribution.load(TABLE, {"RACKREADY_LAB_ROOT_ROCKY_9": ""}) == KNOWN


def test_another_image_is_another_root() -> None:
    other = distribution.load(TABLE, {"RACKREADY_LAB_ROOT_ROCKY_9": "docker.io/rockylinux/rockylinux:9.6"})["rocky-9"]
    assert len({host_image.root_inputs(one) for one in (KNOWN["rocky-9"], ON_IMAGES["rocky-9"], other)}) == 3


@pytest.mark.parametrize(
    ("key", "words"), [("debian-12", "--download-only"), ("rocky-9", "dnf --assumeyes --quiet download --resolve --destdir /mirror container-selinux")]
)
def test_packages_go_into_the_image_and_the_mirror_beside_it(tmp_path: Path, key: str, words: str) -> None:
    engine = Recorded()
    image_root.make(engine, ON_IMAGES[key], tmp_path, "digest")
    verbs = [args[0] for args in engine.told]
    assert verbs == ["image", "pull", "rm", "run", "commit", "rm"]
    run, commit = engine.told[3], engine.told[4]
    assert f"--volume={tmp_path}:/mirror" in run
    assert words in run[-1]
    assert "openssh-server" in run[-1]
    assert commit[-1] == f"rackready-lab/root:{key}"
    assert any(word.endswith("rackready-lab.inputs=digest") for word in commit)
