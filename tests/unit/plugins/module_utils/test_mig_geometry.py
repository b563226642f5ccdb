# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where MIG instances fit, against a search that tries everything."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.mig_geometry import Card, Instance, card_from_table, place
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load
from hypothesis import given, settings
from hypothesis import strategies as st

TABLES = {name: table for name, table in load().mig.items() if table["placement"] is not None}
H100 = card_from_table(TABLES["H100-80GB"])


def overlap(card: Card, instances: list[Instance]) -> bool:
    slices = [start for instance in instances for start in range(instance.start, instance.start + card.profiles[instance.profile].size)]
    return len(slices) != len(set(slices))


def possible(wanted: list[str], card: Card, fixed: list[Instance]) -> bool:
    """Every combination of starts is tried, without any of place()'s short cuts."""
    everything = Counter([*wanted, *(instance.profile for instance in fixed)])
    if any(count > card.profiles[name].maximum for name, count in everything.items()):
        return False
    if sum(card.profiles[name].compute_slices * count for name, count in everything.items()) > card.compute_slices:
        return False
    choices = product(*(card.profiles[name].starts for name in wanted))
    return any(not overlap(card, [*fixed, *map(Instance, wanted, starts)]) for starts in choices)


@st.composite
def cases(draw: st.DrawFn) -> tuple[Card, list[str], list[Instance]]:
    card = card_from_table(TABLES[draw(st.sampled_from(sorted(TABLES)))])
    names = st.sampled_from(sorted(card.profiles))
    wanted = draw(st.lists(names, max_size=5))
    fixed = [Instance(name, draw(st.sampled_from(card.profiles[name].starts))) for name in draw(st.lists(names, max_size=2))]
    return card, wanted, fixed


@given(cases())
@settings(max_examples=400, deadline=None)
def test_it_finds_a_place_exactly_when_there_is_one(case: tuple[Card, list[str], list[Instance]]) -> None:
    card, wanted, fixed = case
    found = place(wanted, card, fixed)
    if found is None:
        assert not (not overlap(card, fixed) and possible(wanted, card, fixed)), "there is a place"
        return
    assert possible(wanted, card, fixed)
    assert Counter(instance.profile for instance in found) == Counter(wanted)
    assert all(instance.start in card.profiles[instance.profile].starts for instance in found)
    assert not overlap(card, [*fixed, *found])
    assert list(found) == sorted(found, key=lambda instance: (instance.start, instance.profile))


@pytest.mark.parametrize(
    ("wanted", "starts"),
    [
        (["3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb"], {"2g.20gb": [0], "1g.10gb": [2, 3], "3g.40gb": [4]}),
        (["4g.40gb", "3g.40gb"], {"4g.40gb": [0], "3g.40gb": [4]}),
        (["1g.10gb"] * 7, {"1g.10gb": [0, 1, 2, 3, 4, 5, 6]}),
        (["1g.20gb"] * 4, {"1g.20gb": [0, 2, 4, 6]}),
        ([], {}),
    ],
)
def test_layouts_that_people_ask_for(wanted: list[str], starts: dict[str, list[int]]) -> None:
    found = place(wanted, H100)
    assert found is not None
    sizes = {name: len(values) for name, values in starts.items()}
    assert Counter(instance.profile for instance in found) == sizes


@pytest.mark.parametrize("wanted", [["3g.40gb"] * 3, ["1g.10gb"] * 8, ["7g.80gb", "1g.10gb"], ["1g.10gb+me"] * 2, ["4g.40gb", "3g.40gb", "1g.10gb"]])
def test_layouts_that_do_not_exist(wanted: list[str]) -> None:
    assert place(wanted, H100) is None


def test_a_kept_instance_can_be_in_the_way() -> None:
    assert place(["4g.40gb"], H100, [Instance("3g.40gb", 4)]) == (Instance("4g.40gb", 0),)
    assert place(["4g.40gb"], H100, [Instance("3g.40gb", 0)]) is None


def test_the_largest_first_is_not_needed() -> None:
    assert place(["1g.10gb", "3g.40gb", "3g.40gb"], H100) is None
    assert place(["1g.10gb", "3g.40gb", "2g.20gb"], H100) is not None


def test_an_unknown_profile_is_an_error_of_the_caller() -> None:
    with pytest.raises(KeyError):
        place(["1g.5gb"], H100)
