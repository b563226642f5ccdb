# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The wheel in an environment with nothing but what it asks for, used from another directory without configuration."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest

from tests.packaging.support import COLLECTION, HOST, NEWEST, OLDEST, Release, done, make_environment, must_be_documented, must_be_refused, python, run, site


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    done([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", out, tree], out, timeout=300)
    [built] = out.glob("*.whl")
    return built


@pytest.fixture(scope="module", params=[OLDEST, NEWEST], ids=lambda release: f"python-{release.python}")
def commands(request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    release: Release = request.param
    return make_environment(tmp_path_factory.mktemp("bare") / "venv", python(release.python), wheel)


def test_the_wheel_holds_the_package_and_the_collection_and_nothing_else(tree: Path, wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        files = {name for name in archive.namelist() if ".dist-info/" not in name}
    wanted = {str(path.relative_to(tree)) for path in (tree / "rackready").rglob("*") if path.is_file()}
    for room in ("meta", "playbooks", "plugins", "roles"):
        wanted |= {str(COLLECTION / path.relative_to(tree)) for path in (tree / room).rglob("*") if path.is_file()}
    assert files == wanted | {str(COLLECTION / "galaxy.yml")}


def test_it_works_without_configuration(commands: Path, tmp_path: Path) -> None:
    directory = site(tmp_path / "site")
    home = str(tmp_path)
    assert "newest record" in done([commands / "rackready", "report", "--help"], directory, HOME=home)
    [root] = (commands.parent / "lib").glob(f"python3*/site-packages/{COLLECTION}")
    must_be_documented(commands, root, directory, HOME=home)
    output = done([commands / "ansible-playbook", "--syntax-check", "-i", "hosts.yml", "rackready.gpu.plan"], directory, HOME=home)
    assert f"playbook: {root}" in output
    must_be_refused(commands, directory, HOME=home)
    report = run([commands / "rackready", "report"], directory, HOME=home)
    assert report.returncode == 1, report.stdout
    assert HOST in report.stdout
    assert "refused" in report.stdout
    plan = run([commands / "rackready", "plan", "-i", "hosts.yml"], directory, HOME=home)
    assert (plan.returncode, plan.stderr) == (1, "")
    assert plan.stdout.startswith(f"{HOST}: no GPU; ")
