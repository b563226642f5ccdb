# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""dpkg's order of versions."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import deb_version
from hypothesis import given, settings
from hypothesis import strategies as st

# Each line in rising order, as deb-version(7) and its examples say.
RISING = [
    ["1.0~rc1-1", "1.0-1", "1.0-1+b1", "1.0-1.1", "1.0-2", "1.0+dfsg-1", "1.0.1-1"],
    ["535.183.06-1", "550.90.07-1", "580.65.06-1", "580.95.05-1", "580.178.04-1", "595.45.04-1", "1:470.1-1"],
    ["20.10.24+dfsg1-1+deb12u1+b6", "26.1.5+dfsg1-9", "26.1.5+dfsg1-9+b6", "5:26.0.0-1~debian.13~trixie", "5:29.2.1-1~debian.13~trixie"],
    ["1.0~~", "1.0~~a", "1.0~", "1.0", "1.0a", "1.0+"],
    ["1.2", "1.10", "1.10.0"],
]
part = st.text(alphabet="0123456789abz.+~", min_size=0, max_size=6)
versions = st.builds(
    lambda epoch, first, rest, revision: f"{epoch}{first}{rest}{revision}",
    st.sampled_from(["", "0:", "1:"]),
    st.integers(0, 30),
    part,
    part.map(lambda text: f"-{text}" if text else ""),
)


@pytest.mark.parametrize("rising", RISING, ids=lambda rising: rising[0])
def test_rising(rising: list[str]) -> None:
    for older, newer in pairwise(rising):
        assert deb_version.compare(older, newer) == -1, (older, newer)
        assert deb_version.compare(newer, older) == 1, (older, newer)
    assert deb_version.newest(reversed(rising)) == rising[-1]


@pytest.mark.parametrize(("left", "right"), [("1.0", "0:1.0"), ("1.01", "1.1"), ("1.0-0", "1.0"), ("1.0", "1.0")])
def test_equal(left: str, right: str) -> None:
    assert deb_version.compare(left, right) == 0


def test_parts() -> None:
    assert deb_version.split("5:29.2.1-1~debian.13~trixie") == (5, "29.2.1", "1~debian.13~trixie")
    assert deb_version.split("1.0-rc-2") == (0, "1.0-rc", "2")
    assert deb_version.upstream("580.178.04-1") == "580.178.04"
    assert deb_version.upstream("1.20.0") == "1.20.0"


@pytest.mark.parametrize("broken", ["", "x:1.0", ":1"])
def test_broken(broken: str) -> None:
    with pytest.raises(ValueError, match="version"):
        deb_version.split(broken)


@given(versions, versions, versions)
def test_it_is_an_order(left: str, middle: str, right: str) -> None:
    assert deb_version.compare(left, left) == 0
    assert deb_version.compare(left, right) == -deb_version.compare(right, left)
    if deb_version.compare(left, middle) <= 0 and deb_version.compare(middle, right) <= 0:
        assert deb_version.compare(left, right) <= 0


@pytest.mark.skipif(shutil.which("dpkg") is None, reason="dpkg is the reference and is not here")
@given(versions, versions)
@settings(max_examples=120)
def test_dpkg_agrees(left: str, right: str) -> None:
    relation = {-1: "lt", 0: "eq", 1: "gt"}[deb_version.compare(left, right)]
    assert subprocess.run(["dpkg", "--compare-versions", left, relation, right], check=False, capture_output=True).returncode == 0, (left, relation, right)
