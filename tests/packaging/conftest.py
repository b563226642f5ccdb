# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.packaging.support import COLLECTION, NEWEST, OLDEST, Controller, controller, copy_of_the_tree, done


@pytest.fixture(scope="session", params=[OLDEST, NEWEST], ids=lambda release: f"core-{release.core}")
def ansible(request: pytest.FixtureRequest) -> Controller:
    """Each supported controller in turn."""
    return controller(request.param)


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clean copy of the checkout."""
    return copy_of_the_tree(tmp_path_factory.mktemp("tree"))


@pytest.fixture(scope="session")
def tarball(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The collection as Galaxy would get it."""
    out = tmp_path_factory.mktemp("galaxy")
    done([Path(sys.executable).with_name("ansible-galaxy"), "collection", "build", tree, "--output-path", out], out)
    [built] = out.glob("*.tar.gz")
    return built


@pytest.fixture(scope="session")
def installed(ansible: Controller, tarball: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A collections directory with the collection in it, far from the checkout."""
    path = tmp_path_factory.mktemp("collections")
    done([ansible.bin / "ansible-galaxy", "collection", "install", "--offline", "--collections-path", path, tarball], path)
    assert (path / COLLECTION / "MANIFEST.json").is_file()
    return path
