# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications against the host."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from ansible_collections.rackready.gpu.plugins.module_utils.cdi import UnreadableSpec, parse_spec, specs
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import CONVERGED, FIXTURES, Host, Tree

RECORDED = (FIXTURES / "h200" / "cdi.yaml").read_text()


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Host(**CONVERGED).tree(tmp_path)


def problems(tree: Tree) -> list[str]:
    [spec] = specs(tree.root, tree.number_of)
    found: list[str] = spec["problems"]
    return found


def test_recorded_spec() -> None:
    spec = parse_spec(RECORDED, ".yaml")
    assert spec["kind"] == "nvidia.com/gpu"
    assert spec["cdi_version"] == "0.5.0"
    assert spec["devices"] == ["0", "GPU-11111111-2222-3333-4444-555555555555", "all"]
    # A minor number of 0 is left out by the generator.
    assert spec["nodes"] == {"/dev/nvidia-uvm": (238, 0), "/dev/nvidia-uvm-tools": (238, 1), "/dev/nvidiactl": (195, 255), "/dev/nvidia0": (195, 0)}
    assert "/opt/eng/bin/nvidia-cdi-hook" in spec["files"]
    assert "/usr/local/nvidia/lib64/libcuda.so.580.159.04" in spec["files"]


def test_json_and_yaml_are_the_same() -> None:
    assert parse_spec(json.dumps(yaml.safe_load(RECORDED)), ".json") == parse_spec(RECORDED, ".yaml")


def test_spec_older_than_the_driver(tree: Tree) -> None:
    assert problems(tree) == []
    (tree.root / "usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04").unlink()
    tree.write("/dev/nvidia0", "1:3")
    (tree.root / "dev/nvidia7").unlink()
    assert problems(tree) == [
        "/dev/nvidia0 has 195:0 in the spec and 1:3 on the host",
        "/dev/nvidia7 does not exist",
        "/usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04 does not exist",
    ]


def test_long_lists_of_problems_are_cut(tmp_path: Path) -> None:
    tree = Host().tree(tmp_path)
    tree.write("/etc/cdi/nvidia.yaml", RECORDED)
    found = problems(tree)
    assert found[0] == "/dev/nvidia-uvm does not exist"
    assert len(found) == 11
    assert found[-1].startswith("and ")


def test_spec_without_numbers_and_with_another_host_path(tree: Tree) -> None:
    (tree.root / "var/run/cdi/nvidia.yaml").unlink()
    node = "    - path: /dev/gpu\n      hostPath: /dev/nvidia1\n"
    text = f"cdiVersion: 0.6.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits:\n    deviceNodes:\n{node}"
    tree.write("/var/run/cdi/own.yml", text)
    tree.write("/var/run/cdi/README", "not a specification")
    [spec] = specs(tree.root, tree.number_of)
    assert spec == {"path": "/var/run/cdi/own.yml", "kind": "nvidia.com/gpu", "cdi_version": "0.6.0", "devices": ["all"], "problems": []}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.yaml", "devices: [a, b]\n", "cannot be read: line 1: "),
        ("a.json", "{", "cannot be read: "),
        ("a.json", "[]", "cannot be read: the specification is not a mapping"),
        ("a.yaml", "devices: none\n", "cannot be read: devices is not a list"),
        ("a.yaml", "devices:\n- 0\n", "cannot be read: a device is not a mapping"),
        ("a.yaml", "", "cannot be read: the specification is not a mapping"),
    ],
)
def test_unreadable_is_a_problem(tmp_path: Path, name: str, text: str, why: str) -> None:
    tree = Host().tree(tmp_path)
    tree.write(f"/etc/cdi/{name}", text)
    [problem] = problems(tree)
    assert problem.startswith(why)


@given(st.text(), st.sampled_from([".json", ".yaml"]))
def test_arbitrary_text_is_a_spec_or_unreadable(text: str, suffix: str) -> None:
    try:
        spec = parse_spec(text, suffix)
    except UnreadableSpec:
        return
    assert set(spec) == {"kind", "cdi_version", "devices", "nodes", "files"}


JSON = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)
KEYS = st.sampled_from(["devices", "containerEdits", "deviceNodes", "mounts", "hooks", "path", "hostPath", "major", "minor", "name"])
SPECS = st.recursive(JSON, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=20)


@given(SPECS)
def test_arbitrary_structure_is_a_spec_or_unreadable(document: object) -> None:
    try:
        spec = parse_spec(json.dumps(document), ".json")
    except UnreadableSpec:
        return
    assert all(isinstance(path, str) for path in [*spec["nodes"], *spec["files"], *spec["devices"]])
