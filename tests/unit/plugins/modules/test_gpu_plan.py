# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of gpu_plan, which is where ``ansible-doc`` shows the variables of the collection."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml
from ansible_collections.rackready.gpu.plugins.modules.gpu_plan import DOCUMENTATION
from ansible_collections.rackready.gpu.plugins.plugin_utils import request

SCHEMA = json.loads(Path(request.__file__).with_name("schemas").joinpath("request.schema.json").read_text(encoding="utf-8"))
KINDS = {"string": "text", "integer": "whole number", "boolean": "true or false", "object": "mapping", "array": "list"}


def note(name: str, schema: dict[str, Any]) -> str:
    """What a variable is, may be and is by default, from its schema."""
    types = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [])
    values = " or ".join(KINDS[kind] for kind in types)
    if "enum" in schema:
        values = f"one of {', '.join(f'V({value})' for value in schema['enum'])}"
    if schema.get("type") == "object" and "properties" in schema:
        values += f" of {', '.join(f'V({key})' for key in schema['properties'])}"
    default = schema.get("default")
    text = default if isinstance(default, str) else json.dumps(default)
    said = [values] if values else []
    said += [f"default V({text})"] if "default" in schema else []
    return f"C({name}) - {schema['description'].rstrip('.')} ({'; '.join(said)})."


def test_ansible_doc_shows_every_variable_as_the_schema_has_it() -> None:
    """To accept a change, write the notes that the schema gives into the module."""
    assert yaml.safe_load(DOCUMENTATION)["notes"][1:] == [note(name, schema) for name, schema in SCHEMA["properties"].items()]
