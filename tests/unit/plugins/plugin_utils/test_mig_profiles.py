# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""MIG profiles of the catalog against what a card said of itself (``tests/fixtures/h200/smi-more.txt``, nvidia-smi mig -lgip and -lgipp of an H200)."""

from __future__ import annotations

import re
from pathlib import Path

from ansible_collections.rackready.gpu.plugins.module_utils.mig_geometry import card_from_table
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load

from tests.unit.hosts import facts_for
from tests.unit.plans import plan_for

SAID = (Path(__file__).parents[3] / "fixtures/h200/smi-more.txt").read_text(encoding="utf-8")


def test_g5_profiles_of_the_catalog_are_those_that_a_card_listed_itself() -> None:
    """Names, how many of each, and where they may begin. Cards of which no listing was at hand, GB200 among them, have the tables of NVIDIA's documents."""
    listed = re.findall(r"^\| +0 +MIG (\S+) +(\d+) +\d+/(\d+) ", SAID, re.MULTILINE)
    assert len(listed) == 7
    places = re.findall(r"^GPU +0 Profile ID +(\d+) Placements? ?: \{([\d,]+)\}:(\d+)", SAID, re.MULTILINE)
    begins = {number: ([int(start) for start in starts.split(",")], int(size)) for number, starts, size in places}
    card = card_from_table(load().mig["H200-141GB"])
    found = {name: (profile.maximum, list(profile.starts), profile.size) for name, profile in card.profiles.items()}
    assert found == {name: (int(most), *begins[number]) for name, number, most in listed}


def test_g5_a_layout_in_the_names_of_an_h200_is_planned_and_one_in_those_of_an_h100_is_refused() -> None:
    def plan(profile: str) -> list[str]:
        layout = [{"gpus": "all", "instances": {profile: 7}}]
        found: list[str] = plan_for(facts_for(pci_id="10de:2335"), gpu_expected=None, mig_layout=layout)["refusals"]
        return found

    assert plan("1g.18gb") == []
    [sentence] = plan("1g.10gb")
    assert "has no MIG profile 1g.10gb, so the layout does not exist on it: use 1g.18gb, " in sentence
