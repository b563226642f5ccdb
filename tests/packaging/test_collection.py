# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The collection as Galaxy delivers it: built, installed elsewhere, used by its name."""

from __future__ import annotations

import tarfile
from pathlib import Path

from tests.packaging.support import COLLECTION, Controller, done, must_be_documented, must_be_refused, site


def test_the_tarball_holds_what_a_site_needs_and_nothing_else(tree: Path, tarball: Path) -> None:
    with tarfile.open(tarball) as archive:
        files = {member.name for member in archive if not member.isdir()}
    rooms = ("docs", "inventory/example", "meta", "playbooks", "plugins", "roles")
    wanted = {str(path.relative_to(tree)) for room in rooms for path in (tree / room).rglob("*") if path.is_file()}
    assert files == wanted | {"CHANGELOG.md", "COPYING", "FILES.json", "MANIFEST.json", "README.md"}


def test_its_playbooks_are_found_by_name(ansible: Controller, installed: Path, tmp_path: Path) -> None:
    names = sorted(f"rackready.gpu.{path.stem}" for path in (installed / COLLECTION / "playbooks").glob("*.yml"))
    directory = site(tmp_path / "site")
    output = done([ansible.bin / "ansible-playbook", "--syntax-check", "-i", "hosts.yml", *names], directory, ANSIBLE_COLLECTIONS_PATH=str(installed))
    assert output.count(f"playbook: {installed}") == len(names)


def test_every_plugin_is_documented(ansible: Controller, installed: Path, tmp_path: Path) -> None:
    must_be_documented(ansible.bin, installed / COLLECTION, tmp_path, ANSIBLE_COLLECTIONS_PATH=str(installed))


def test_a_host_without_gpus_is_refused_and_recorded(ansible: Controller, installed: Path, tmp_path: Path) -> None:
    record = must_be_refused(ansible.bin, site(tmp_path / "site"), ANSIBLE_COLLECTIONS_PATH=str(installed))
    assert record["playbook"].startswith(str(installed))
    assert record["versions"]["ansible"].startswith(f"{ansible.release.core}.")
