# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""CDI specifications of the host, compared with the host: a specification that is older than the driver names files and device numbers that are no more."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Callable

from ansible_collections.rackready.gpu.plugins.module_utils.block_yaml import NotBlockYaml, read_block_yaml
from ansible_collections.rackready.gpu.plugins.module_utils.holders import Number, char_device
from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_text

FOLDERS = ("etc/cdi", "var/run/cdi")
SPEC_LIMIT = 4 * 1024 * 1024
PROBLEM_LIMIT = 10


class UnreadableSpec(ValueError):
    """The text is not a CDI specification that can be read here."""


def specs(root: Path, number_of: Callable[[Path], Number | None] = char_device) -> list[dict[str, Any]]:
    """``cdi.specs`` of the facts: each .json, .yaml and .yml file in /etc/cdi and /var/run/cdi."""
    found = []
    for folder in FOLDERS:
        for path in sorted((root / folder).glob("*")):
            if path.suffix in (".json", ".yaml", ".yml"):
                facts: dict[str, Any] = {"path": "/" + path.relative_to(root).as_posix(), "kind": None, "cdi_version": None, "devices": [], "problems": []}
                try:
                    spec = parse_spec(read_text(path, SPEC_LIMIT) or "", path.suffix)
                except UnreadableSpec as error:
                    facts["problems"] = [f"cannot be read: {error}"]
                else:
                    facts.update(kind=spec["kind"], cdi_version=spec["cdi_version"], devices=spec["devices"], problems=_problems(spec, root, number_of))
                found.append(facts)
    return found


def parse_spec(text: str, suffix: str) -> dict[str, Any]:
    """``kind``, ``cdi_version``, ``devices`` (names), ``nodes`` (path to its numbers or None) and ``files`` (host paths) of a specification.

    Raises UnreadableSpec, and nothing else, for a text that is not one.
    """
    try:
        spec = json.loads(text) if suffix == ".json" else read_block_yaml(text)
    except (NotBlockYaml, ValueError, RecursionError) as error:
        raise UnreadableSpec(str(error)) from error
    spec = _mapping(spec, "the specification")
    devices = [_mapping(device, "a device") for device in _list(spec, "devices")]
    nodes: dict[str, Number | None] = {}
    files: dict[str, None] = {}  # as an ordered set
    for owner in (spec, *devices):
        edits = _mapping(owner.get("containerEdits") or {}, "containerEdits")
        for node in (_mapping(entry, "a device node") for entry in _list(edits, "deviceNodes")):
            major, minor = node.get("major"), node.get("minor", 0)  # the generator leaves a minor number of 0 out
            nodes[str(node.get("hostPath") or node.get("path"))] = (major, minor) if isinstance(major, int) and isinstance(minor, int) else None
        for key, entries in (("hostPath", _list(edits, "mounts")), ("path", _list(edits, "hooks"))):
            files.update((str(_mapping(entry, "a mount or hook").get(key)), None) for entry in entries)
    return {
        "kind": str(spec.get("kind")),
        "cdi_version": str(spec.get("cdiVersion")),
        "devices": [str(device.get("name")) for device in devices],
        "nodes": nodes,
        "files": list(files),
    }


def _mapping(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnreadableSpec(f"{what} is not a mapping")
    return value


def _list(owner: dict[str, Any], key: str) -> list[Any]:
    value = owner.get(key)
    if value is None:
        return []
    if not isinstance(value, list):
        raise UnreadableSpec(f"{key} is not a list")
    return value


def _problems(spec: dict[str, Any], root: Path, number_of: Callable[[Path], Number | None]) -> list[str]:
    problems = []
    for path, numbers in spec["nodes"].items():
        there = _number_at(root, path, number_of)
        if there is None:
            problems.append(f"{path} does not exist")
        elif numbers is not None and numbers != there:
            problems.append(f"{path} has {numbers[0]}:{numbers[1]} in the spec and {there[0]}:{there[1]} on the host")
    problems.extend(f"{path} does not exist" for path in spec["files"] if not _exists(root, path))
    more = len(problems) - PROBLEM_LIMIT
    return [*problems[:PROBLEM_LIMIT], f"and {more} more"] if more > 0 else problems


def _number_at(root: Path, path: str, number_of: Callable[[Path], Number | None]) -> Number | None:
    try:
        return number_of(root / path.lstrip("/"))
    except ValueError:  # a NUL in the path
        return None


def _exists(root: Path, path: str) -> bool:
    try:
        return (root / path.lstrip("/")).exists()
    except (OSError, ValueError):
        return False
