# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The YAML subset, against PyYAML."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible_collections.rackready.gpu.plugins.module_utils.block_yaml import NotBlockYaml, read_block_yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.hosts import FIXTURES

SPEC = (FIXTURES / "h200" / "cdi.yaml").read_text()


def test_recorded_spec_reads_as_pyyaml_reads_it() -> None:
    assert read_block_yaml(SPEC) == yaml.safe_load(SPEC)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        "a: 1\nb: -2\nc: true\nd: null\ne: ~\nf:\ng: ''\nh: \"\"\n",
        'devices:\n- containerEdits:\n    deviceNodes:\n    - path: /dev/nvidia0\n  name: "0"\nkind: nvidia.com/gpu\n',
        "a:\n  - - 1\n    - 2\n  - - 3\n",
        "- \n  a: 1\n-\n  - b\n- null\n-\n",
        "a: [] # none\nb: {}\n",
        "url: https://host/path#part # a comment\n",
        "args:\n- --link\n- lib.so.1::/usr/lib/lib.so\n- -x\n",
        "a: 'it''s' # x\nb: \"tab\\t\\\"q\\\" \\\\\"\n",
        "'quoted key': 1\n\"other: key\": 2\n",
        "a:\n\n  # between\n  b: 1\n\n",
        "version: 0.5\n",
        "---\nwindows: yes-not-a-word\r\nline: 2\r\n",
    ],
)
def test_reads_what_pyyaml_reads(text: str) -> None:
    expected: Any = yaml.safe_load(text)
    if text == "version: 0.5\n":
        expected = {"version": "0.5"}  # fractions stay text: "0.10" is a version here
    assert read_block_yaml(text) == expected


NAMES = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789./:=-_ #'\"\\,[]{}&*!|>%@`~?+", max_size=20)
SCALARS = st.none() | st.booleans() | st.integers(-(2**62), 2**62) | NAMES
DOCUMENTS = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=15)


@given(DOCUMENTS)
def test_reads_what_pyyaml_writes_or_refuses(document: Any) -> None:
    text = yaml.safe_dump(document, default_flow_style=False, width=10_000)
    try:
        assert read_block_yaml(text) == document
    except NotBlockYaml as error:
        assert str(error).startswith("line ")


@example("0:")
@example("~: b")
@example("a: 1\rb: 2")
@example("a\u2028# b:")
@example("a\x85b: c")
@example("\ufeffa:")
@example("a:\u00a0# b:")
@example("- ?\x85 ")
@given(st.text() | st.text("-: \n#ab'\"\\[{&*0") | st.text("-: \n#ab0~?\r\x85\u2028\ufeff\u00a0"))
def test_arbitrary_text_is_refused_or_means_what_pyyaml_says(text: str) -> None:
    try:
        found = read_block_yaml(text)
    except NotBlockYaml:
        return
    if isinstance(found, (dict, list)):
        try:
            expected = yaml.safe_load(text)
        except yaml.YAMLError:
            return  # more lenient than YAML is harmless: a specification that the engine refuses is the engine's to report
        assert shape(found) == shape(expected)


def shape(value: Any) -> Any:
    """Keys and structure without the types of values, which differ for dates, octal numbers and fractions."""
    if isinstance(value, dict):
        return sorted(((key, shape(inner)) for key, inner in value.items()), key=str)
    return [shape(inner) for inner in value] if isinstance(value, list) else None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: 1\n---\nb: 2\n", "line 2: more than one document"),
        ("a: |\n  text\n", "line 1"),
        ("a: [1, 2]\n", "line 1"),
        ("a: &x 1\n", "line 1"),
        ("a: 1\n  b: 2\n", "line 2: unexpected indentation"),
        ("a: 1\na: 2\n", "line 2: a is there twice"),
        ("a: b: c\n", "line 1: a mapping inside a value"),
        ("\ta: 1\n", "line 1: a tab"),
        ("a: 1\n\n0: 2\n", "line 3: the key 0 is no text"),
        ("Yes: 1\n", "line 1: the key Yes is no text"),
        ("a: 1\rb: 2\n", "line 1: a character that is no text"),
        ("a: b\u2028c: d\n", "line 1: a character that is no text"),
        ("a: 'x\n", "line 1: a quote that is not closed"),
        ('a: "\\x41"\n', "line 1: the escape"),
        ("- " * 60 + "x\n", "nested deeper than 50"),
    ],
)
def test_refused_with_the_line(text: str, why: str) -> None:
    with pytest.raises(NotBlockYaml, match=why):
        read_block_yaml(text)
