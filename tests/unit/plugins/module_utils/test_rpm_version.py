# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""rpm's order of versions."""

from __future__ import annotations

import shutil
import subprocess
from itertools import pairwise

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import rpm_version
from hypothesis import given, settings
from hypothesis import strategies as st

# Each line in rising order, as rpm-version(7) and rpm's own tests say.
RISING = [
    ["1.0~rc1-1", "1.0-1", "1.0^20260101-1", "1.0.1-1", "1:0.1-1"],
    ["535.183.06-1.el9", "550.90.07-1.el9", "580.65.06-1.el9", "580.95.05-1.el9", "580.178.04-1.el9", "3:470.1-1.el9", "3:580.178.04-1.el9"],
    ["1.0~~", "1.0~~a", "1.0~", "1.0~^1", "1.0", "1.0^", "1.0^1", "1.0a", "1.0.1"],
    ["1.2", "1.10", "1.10.0", "1.10.0-1", "1.10.0-1.1", "1.10.0-2"],
    ["5.14.0-570.el9.x86_64", "5.14.0-570.12.1.el9_6.x86_64", "5.14.0-611.el9.x86_64"],
    ["xyz", "xyz.4", "8", "8.a", "8.1"],
]
part = st.text(alphabet="0019abAZ.+_~^", min_size=0, max_size=7)
versions = st.builds(
    lambda epoch, first, rest, release: f"{epoch}{first}{rest}{release}",
    st.sampled_from(["", "0:", "3:"]),
    st.integers(0, 30),
    part,
    part.map(lambda text: f"-{text}" if text else ""),
)


@pytest.mark.parametrize("rising", RISING, ids=lambda rising: rising[0])
def test_rising(rising: list[str]) -> None:
    for older, newer in pairwise(rising):
        assert rpm_version.compare(older, newer) == -1, (older, newer)
        assert rpm_version.compare(newer, older) == 1, (older, newer)
    assert rpm_version.newest(reversed(rising)) == rising[-1]


@pytest.mark.parametrize(
    ("left", "right"), [("1.0", "0:1.0"), ("1.01", "1.1"), ("1.0", "1_0"), ("1.0", "1..0."), ("2a", "2.a"), ("1" + "0" * 5000, "1" + "0" * 5000)]
)
def test_equal(left: str, right: str) -> None:
    assert rpm_version.compare(left, right) == 0


def test_parts() -> None:
    assert rpm_version.split("3:580.178.04-1.el9") == (3, "580.178.04", "1.el9")
    assert rpm_version.split("1.20.0") == (0, "1.20.0", "")
    assert rpm_version.split("6.18.44-fc-v1045") == (0, "6.18.44-fc", "v1045")
    assert rpm_version.upstream("3:580.178.04-1.el9") == "580.178.04"
    assert rpm_version.join("3", "580.178.04", "1.el9") == "3:580.178.04-1.el9"
    assert rpm_version.join("0", "1.20.0", "1") == rpm_version.join(None, "1.20.0", "1") == "1.20.0-1"
    assert rpm_version.join("0", "6.18.3", None) == "6.18.3"


@pytest.mark.parametrize("broken", ["", "x:1.0", ":1", "3:-1", "٣:1.0"])
def test_broken(broken: str) -> None:
    with pytest.raises(ValueError, match="version"):
        rpm_version.split(broken)


@given(versions, versions, versions)
def test_it_is_an_order(left: str, middle: str, right: str) -> None:
    assert rpm_version.compare(left, left) == 0
    assert rpm_version.compare(left, right) == -rpm_version.compare(right, left)
    if rpm_version.compare(left, middle) <= 0 and rpm_version.compare(middle, right) <= 0:
        assert rpm_version.compare(left, right) <= 0


@given(versions, st.text(alphabet="09az", min_size=1, max_size=4))
def test_a_tilde_is_older_than_the_end_and_a_caret_newer(version: str, more: str) -> None:
    assert rpm_version.compare(f"{version}~{more}", version) == -1
    assert rpm_version.compare(f"{version}^{more}", version) == 1


@pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is the reference and is not here")
@given(st.lists(st.tuples(*[part.filter(bool)] * 2), min_size=1, max_size=50))
@settings(max_examples=100)
def test_rpm_agrees(pairs: list[tuple[str, str]]) -> None:
    lua = " ".join(f'print(rpm.vercmp("{left}", "{right}") .. " ")' for left, right in pairs)
    said = subprocess.run(["rpm", "--eval", f"%{{lua:{lua}}}"], check=True, capture_output=True, text=True).stdout.split()
    assert [int(word) for word in said] == [rpm_version._compare_part(left, right) for left, right in pairs]
