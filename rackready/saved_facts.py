# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Facts of a host that were gathered before: from a file that somebody kept, or from the host's newest record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
from ansible_collections.rackready.gpu.plugins.plugin_utils import host_plan
from ansible_collections.rackready.gpu.plugins.plugin_utils.record_masking import MASK

from rackready.report import newest_records

SCHEMA = Path(host_plan.__file__).with_name("schemas") / "facts.schema.json"
MESSAGE_LENGTH = 120


class SavedFacts(NamedTuple):
    """Facts, and where they were read from."""

    facts: dict[str, Any]
    path: Path

    @property
    def masked(self) -> bool:
        """Whether a record hides some of them."""
        return MASK in json.dumps(self.facts)


class SavedFactsError(Exception):
    """There are no facts that can be planned from; one sentence."""


def from_file(path: Path) -> SavedFacts:
    """What gpu_host_facts returned (its result, or the value of gpu_host), or a record. Raises SavedFactsError."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SavedFactsError(f"the facts file {path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise SavedFactsError(f"the facts file {path} is no JSON ({error})") from error
    # The result of the module, its facts, a record; else the value alone.
    for keys in (("ansible_facts", "gpu_host"), ("gpu_host",), ("facts",)):
        found: Any = content
        for key in keys:
            found = found.get(key) if isinstance(found, Mapping) else None
        if found is not None:
            return SavedFacts(_checked(found, str(path)), path)
    if not isinstance(content, Mapping) or "gpus" not in content:
        raise SavedFactsError(f"the file {path} holds no facts: give what rackready.gpu.gpu_host_facts returned, or a record of a host that was reached")
    return SavedFacts(_checked(content, str(path)), path)


def from_records(directory: Path, hosts: Sequence[str]) -> tuple[dict[str, SavedFacts], list[str]]:
    """Facts by host from the newest records, and a sentence for each host that has none."""
    found, problems = newest_records(directory, hosts)
    facts: dict[str, SavedFacts] = {}
    for entry in found:
        host = str(entry.record["host"])
        if entry.record.get("facts") is None:
            problems.append(f"{host}: its record {entry.path} holds no facts, as the host was {entry.record.get('outcome')}: run again, or give --facts")
            continue
        try:
            facts[host] = SavedFacts(_checked(entry.record["facts"], str(entry.path)), entry.path)
        except SavedFactsError as error:
            problems.append(f"{host}: {error}")
    return facts, problems


def _checked(facts: Any, place: str) -> dict[str, Any]:
    try:
        plain = host_plan.plain_facts(facts)
    except host_plan.FactsError as error:
        raise SavedFactsError(f"{place}: {error}") from error
    validator = jsonschema.Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))
    wrong = jsonschema.exceptions.best_match(validator.iter_errors(plain))
    if wrong is not None:
        words = wrong.message if len(wrong.message) <= MESSAGE_LENGTH else f"against the rule {wrong.validator}"
        raise SavedFactsError(
            f"{place}: its facts are not as this version reads them, at {wrong.json_path} ({words}): gather them again with rackready.gpu.gpu_host_facts"
        )
    return plain
