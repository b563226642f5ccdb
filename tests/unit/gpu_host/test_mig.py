# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Placement as NVIDIA's MIG User Guide shows it for the seven-slice GPUs."""

from __future__ import annotations

from typing import Any

import pytest
from gpu_host.sim import mig
from hypothesis import given
from hypothesis import strategies as st

TABLE = mig.TABLES["H100-80GB"]


def create(*asked: str) -> list[Any]:
    """Create instances by ``id`` or ``name[:start]``; their ids in order, and the error that ended it."""
    instances: list[dict[str, Any]] = []
    done: list[Any] = []
    for word in asked:
        name, _colon, start = word.partition(":")
        try:
            done.append(mig.create_instance(TABLE, instances, mig.find_profile(TABLE, name), int(start) if start else None)["gi"])
        except mig.MigError as error:
            return [*done, str(error)]
    return done


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (["9", "19", "14", "19"], [2, 7, 4, 8]),
        # The order decides: the guide's known trap.
        (["19", "19", "14", "9"], [13, 11, 3, "Insufficient Resources"]),
        (["19", "14", "5"], [13, 5, 1]),
        (["9", "9"], [2, 1]),
        (["19"] * 7, [13, 11, 12, 7, 8, 9, 10]),
        (["19"] * 8, [13, 11, 12, 7, 8, 9, 10, "Insufficient Resources"]),
        (["7g.80gb", "1g.10gb"], [0, "Insufficient Resources"]),
        (["1g.10gb+me:0", "1g.10gb+me:1"], [7, "Insufficient Resources"]),
        (["3g.40gb:4", "4g.40gb:0"], [2, 1]),
        (["4g.40gb", "4g.40gb"], [1, "Insufficient Resources"]),
        (["3g.40gb:2"], ["Invalid Argument"]),
        (["1g.10gb:7"], ["Invalid Argument"]),
        (["1g.20gb:6", "1g.20gb:4", "1g.20gb:2", "1g.20gb:0"], [6, 5, 4, 3]),
    ],
)
def test_creation(asked: list[str], expected: list[Any]) -> None:
    assert create(*asked) == expected


@pytest.mark.parametrize("asked", ["7", "1g.5gb", "", "2g.20gb+me"])
def test_a_profile_that_the_card_has_not(asked: str) -> None:
    with pytest.raises(mig.MigError, match="Invalid Argument"):
        mig.find_profile(TABLE, asked)


@given(st.lists(st.sampled_from(TABLE), max_size=9))
def test_whatever_is_created_instances_never_overlap_and_never_exceed_the_card(wanted: list[mig.Profile]) -> None:
    instances: list[dict[str, Any]] = []
    for profile in wanted:
        before = mig.free_count(TABLE, instances, profile)
        try:
            mig.create_instance(TABLE, instances, profile, None)
        except mig.MigError:
            assert before == 0
        else:
            assert before > 0
    slices = [place for each in instances for place in range(each["start"], each["start"] + mig.by_id(TABLE, each["profile"]).memory_slices)]
    assert len(slices) == len(set(slices))
    assert sum(mig.by_id(TABLE, each["profile"]).compute_slices for each in instances) <= mig.COMPUTE_SLICES
    assert len({each["gi"] for each in instances}) == len(instances)


def test_compute_instances_share_a_gpu_instance() -> None:
    profile = mig.find_profile(TABLE, "3g.40gb")
    instance = mig.create_instance(TABLE, [], profile, 0)
    made = [mig.create_compute_instance(profile, instance, name) for name in ("1c.3g.40gb", "2c.3g.40gb")]
    assert [(each["ci"], each["start"]) for each in made] == [(0, 0), (1, 1)]
    assert [device["name"] for device in mig.devices(TABLE, {"uuid": "GPU-01000100-0000-0000-0000-000000000000"}, [instance])] == ["1c.3g.40gb", "2c.3g.40gb"]
    with pytest.raises(mig.MigError, match="Insufficient Resources"):
        mig.create_compute_instance(profile, instance, "0")


def test_capability_minors_are_those_of_mig_minors() -> None:
    # From /proc/driver/nvidia-caps/mig-minors of real hosts: gpu0/gi1 12, gpu0/gi1/ci0 13, gpu1/gi1 147.
    assert (mig.capability_minor(0, 1), mig.capability_minor(0, 1, 0), mig.capability_minor(1, 1)) == (12, 13, 147)
