# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""One version, written in three files."""

from __future__ import annotations

import tomllib
from pathlib import Path

import yaml

from rackready import __version__

ROOT = Path(__file__).resolve().parents[3]


def test_package_collection_and_distribution_have_one_version() -> None:
    galaxy = yaml.safe_load((ROOT / "galaxy.yml").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert galaxy["version"] == project["project"]["version"] == __version__
