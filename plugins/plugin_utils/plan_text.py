# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan for people: readable lines, and what differs between a host and its plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog

Plan = Mapping[str, Any]

# Sites put secrets into it, and the sentence about a host that is not as planned is written into records.
_NOT_SHOWN = " daemon_json"


def lines(plan: Plan, facts: Mapping[str, Any], catalog: Catalog) -> list[str]:
    """The plan as text, one entry a line: the machine, then each area with what would be done and why."""
    return list(_lines(plan, facts, catalog))


def _lines(plan: Plan, facts: Mapping[str, Any], catalog: Catalog) -> Iterator[str]:
    models = Counter(_gpu_name(gpu["pci_id"], catalog) for gpu in facts["gpus"])
    machine = ", ".join(f"{count} x {name}" for name, count in models.items()) or "no GPU"
    if facts["nvswitches"]:
        machine += f", {len(facts['nvswitches'])} NVSwitches"
    yield f"{plan['host']}: {machine}; {facts['distribution']['name']}, kernel {facts['kernel']['release']}"
    yield f"release {plan['release']}: {_outcome(plan)}"
    for refusal in plan["refusals"]:
        yield f"  REFUSED  {refusal}"
    for warning in plan["warnings"]:
        yield f"  WARNING  {warning}"
    for name, area in plan["areas"].items():
        if not area["desired"]:
            yield f"  {name}: not planned"
            continue
        yield f"  {name}: {'as planned' if area['converged'] else _count(len(area['actions']), 'action')}"
        for action in area["actions"]:
            yield f"    - {action}"
        if not area["converged"]:
            for reason in area["reasons"]:
                yield f"      because {reason['rule']} [{reason['source']}]"
    if plan["download_mib"] is not None:
        yield f"  to download: {plan['download_mib']} MiB of image, and packages"


def _gpu_name(pci_id: str, catalog: Catalog) -> str:
    slug = catalog.gpu_by_pci_id(pci_id)
    return str(catalog.gpus[slug]["name"]) if slug else f"unknown GPU {pci_id}"


def _outcome(plan: Plan) -> str:
    if plan["refusals"]:
        return f"refused, nothing would be changed ({_count(len(plan['refusals']), 'reason')})"
    changes = sum(len(area["actions"]) for name, area in plan["areas"].items() if name != "smoke_test")
    if plan["converged"]:
        smoke = plan["areas"]["smoke_test"]
        return "as planned" if smoke["converged"] else "as planned, smoke test to run"
    return f"{_count(changes, 'action')}, then the smoke test"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def not_converged(plan: Plan) -> str:
    """One sentence for a host that should be as planned and is not: which areas, and what differs in them."""
    found = []
    for name, area in plan["areas"].items():
        if area["converged"] or name == "smoke_test":
            continue
        differences = [
            f"{path.strip() or name} {'differs' if path.startswith(_NOT_SHOWN) else f'is {_value(is_now)} instead of {_value(will_be)}'}"
            for path, is_now, will_be in _differences(area["actual"], area["target"])
        ]
        found.append(f"{name} ({'; '.join(differences[:3]) or 'not planned'}{f' and {len(differences) - 3} more' if len(differences) > 3 else ''})")
    return f"{plan['host']}: the host is not as planned in {', '.join(found)}: run site.yml; if that has just run, its tasks above show the cause."


def diff(plan: Plan) -> dict[str, str]:
    """Ansible's diff of what is and what would be, only where they differ."""
    before, after = [], []
    for name, area in plan["areas"].items():
        if area["converged"] or not area["desired"]:
            continue
        for path, is_now, will_be in _differences(area["actual"], area["target"]):
            before.append(f"{name}{path}: {_value(is_now)}")
            after.append(f"{name}{path}: {_value(will_be)}")
    return {
        "before_header": f"{plan['host']} as it is",
        "after_header": f"{plan['host']} as planned",
        "before": "".join(f"{line}\n" for line in before),
        "after": "".join(f"{line}\n" for line in after),
    }


def _differences(actual: Any, target: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(actual, Mapping) and isinstance(target, Mapping):
        for key in dict.fromkeys([*target, *actual]):
            yield from _differences(actual.get(key), target.get(key), f"{path} {key}")
    elif actual != target:
        yield path, actual, target


def _value(value: Any) -> str:
    if value is None:
        return "absent"
    if isinstance(value, list):
        return ", ".join(_value(entry) for entry in value) or "none"
    if isinstance(value, Mapping):
        return "; ".join(f"{key} {_value(entry)}" for key, entry in value.items()) or "none"
    return str(value)
