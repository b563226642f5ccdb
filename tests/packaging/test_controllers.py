# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The checkout on the oldest and on the newest controller that it supports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.packaging.support import ROOT, Controller, done, must_be_documented, run


def test_the_unit_tests_pass(ansible: Controller) -> None:
    if ansible.bin == Path(sys.executable).parent:
        pytest.skip("this environment runs the unit tests in ./dev test itself")
    rooms = ["tests/unit/plugins", "tests/unit/rackready"]
    done([ansible.bin / "python", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", *rooms], ROOT, timeout=600)


def test_the_playbooks_are_read(ansible: Controller) -> None:
    playbooks = [ROOT / "site.yml", *sorted((ROOT / "playbooks").glob("*.yml"))]
    result = run([ansible.bin / "ansible-playbook", "--syntax-check", "-i", "inventory/example", *playbooks], ROOT)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.count("playbook: ") == len(playbooks)


def test_every_plugin_is_documented(ansible: Controller) -> None:
    must_be_documented(ansible.bin, ROOT / "collections" / "ansible_collections" / "rackready" / "gpu", ROOT)
