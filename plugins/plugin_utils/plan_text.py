# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A plan for people: readable lines, and what differs between a host and its plan."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import UNKNOWN, UNREADABLE

Plan = Mapping[str, Any]

# Sites put secrets into it, and the sentence about a host that is not as planned is written into records.
_NOT_SHOWN = " daemon_json"


class Row(NamedTuple):
    """An area at a glance: what it is now, what it would be, and in how many steps."""

    area: str
    now: str
    planned: str
    actions: int


# What an area's state is told by in few words: this part of it, and of several packages or modules the first.
_HEADLINES = {
    "host_tuning": "files",
    "nvidia_driver": "modules",
    "nvidia_fabric": "packages",
    "docker": "engine",
    "nvidia_container_toolkit": "packages",
    "mig": "gpus",
    "pytorch_image": "image",
    "verify_tool": "timer",
    "smoke_test": "verdict",
}
_HOLDS = "as planned"


def lines(plan: Plan, facts: Mapping[str, Any], catalog: Catalog) -> list[str]:
    """The plan as text, one entry a line: the machine, what is said of it as a whole, then each area with what would be done and why."""
    return [f"{plan['host']}: {machine(facts, catalog)}", *summary(plan), *needs(plan, catalog), *details(plan)]


def machine(facts: Mapping[str, Any], catalog: Catalog) -> str:
    """GPUs, switches, distribution and kernel."""
    models = Counter(_gpu_name(gpu["pci_id"], catalog) for gpu in facts["gpus"])
    words = ", ".join(f"{count} x {name}" for name, count in models.items()) or "no GPU"
    if facts["nvswitches"]:
        words += f", {len(facts['nvswitches'])} NVSwitches"
    return f"{words}; {facts['distribution']['name']}, kernel {facts['kernel']['release']}"


def summary(plan: Plan) -> list[str]:
    """How it ends for the host, then refusals, then warnings."""
    release = f"release {plan['release']}: " if plan["release"] else ""
    refusals = [f"  REFUSED  {sentence}" for sentence in plan["refusals"]]
    return [f"{release}{_outcome(plan)}", *refusals, *(f"  WARNING  {sentence}" for sentence in plan["warnings"])]


def needs(plan: Plan, catalog: Catalog) -> list[str]:
    """Reboot, drain and download; nothing where no area was planned."""
    areas = plan["areas"]
    if not areas:
        return []
    fetching_nothing = ("verify_tool", "smoke_test")
    unplanned = [name for name, area in areas.items() if name not in fetching_nothing and not area["desired"]]
    unknown = unplanned or areas["nvidia_driver"]["actual"] == UNKNOWN
    reboot, drain = ("needed" if plan[name] else "not known" if unknown else "not needed" for name in ("reboot", "drain"))
    download = f"not known, as {', '.join(unplanned)} could not be planned" if unplanned else _download(plan, catalog)
    return [f"  reboot: {reboot}", f"  drain: {drain}", f"  download: {download}"]


def rows(plan: Plan) -> list[Row]:
    """Each area at a glance."""
    return [Row(name, *_states(name, area), len(area["actions"])) for name, area in plan["areas"].items()]


def details(plan: Plan) -> list[str]:
    """Each area; where it does not hold with its actions in order, and the rules and sources that decided it, also where they decided that it is not needed."""
    return list(_details(plan))


def _details(plan: Plan) -> Iterator[str]:
    for name, now, planned, actions in rows(plan):
        area = plan["areas"][name]
        if not area["desired"]:
            yield f"  {name}: {planned}"
            continue
        if area["converged"]:
            yield f"  {name}: {', '.join(dict.fromkeys((now, planned)))}"
        else:
            yield f"  {name}: {now} -> {planned}, {_count(actions, 'action')}"
        for action in area["actions"] if not area["converged"] else []:
            yield f"    - {action}"
        # What is left out is told with its reason too: otherwise nobody sees that it was thought of.
        told = not area["converged"] or area["desired"].get("required") is False
        for reason in area["reasons"] if told else []:
            yield f"      because {reason['rule']} [{reason['source']}]"


def _states(name: str, area: Mapping[str, Any]) -> tuple[str, str]:
    """What an area is and what it would be; where its headline holds already, the first thing that does not."""
    if not area["desired"]:
        return "-", "not planned"
    now, planned = (_headline(name, area["desired"], area[side]) for side in ("actual", "target"))
    if area["converged"]:
        return now, _HOLDS
    if now != planned:
        return now, planned
    (path, is_now, will_be), *others = _differences(area["actual"], area["target"])
    return f"{path.strip()} {_brief(is_now)}", _brief(will_be) + (f" and {len(others)} more" if others else "")


def _headline(name: str, desired: Mapping[str, Any], state: Any) -> str:
    if not isinstance(state, Mapping):
        return str(state)
    if state.get("required") is False:
        return "not needed"
    told = state.get(_HEADLINES[name], state.get("packages"))
    if name == "pytorch_image" and told == desired["digest"]:
        return str(desired["ref"])
    if name in ("smoke_test", "verify_tool"):
        nothing = "unreadable stamp" if state.get("stamp") == UNREADABLE else "not tested"
        return f"timer {told}" if told in ("on", "off") else str(told or nothing)
    if name == "mig":
        return ", ".join(f"{count} x {layout}" for layout, count in Counter((told or {}).values()).items()) or "none"
    return _brief(next(iter(told.values()), None) if isinstance(told, Mapping) else told)


def _download(plan: Plan, catalog: Catalog) -> str:
    """What is fetched and about how long that takes, by the rule of the catalog's download.yml."""
    rule, areas = catalog.download, plan["areas"]
    fetching = [name for name, area in areas.items() if _part(area["actual"], "packages") != _part(area["target"], "packages")]
    image, packages = plan["download_mib"] or 0, sum(catalog.room["room"].get(name, {}).get("archives", 0) for name in fetching)
    parts = [f"{image} MiB of image"] if image else []
    if packages:
        parts.append(f"at most about {packages} MiB of packages ({', '.join(fetching)})")
    if not parts:
        return "nothing"
    minutes = math.ceil((image + packages) * 2**20 * 8 / (rule["speed_gbit_s"] * 1e9) / 60)
    return f"{' and '.join(parts)}, about {minutes} min at {rule['speed_gbit_s']:g} Gbit/s"


def _brief(value: Any) -> str:
    """A value for a glance: many of a kind by their number, a digest by its beginning."""
    if isinstance(value, list | Mapping) and len(value) > 2:
        return f"{len(value)} entries"
    return re.sub(r"(sha256:[0-9a-f]{12})[0-9a-f]{52}", r"\1", _value(value))


def _part(state: Any, name: str) -> Any:
    return state.get(name) if isinstance(state, Mapping) else None


def _gpu_name(pci_id: str, catalog: Catalog) -> str:
    slug = catalog.gpu_by_pci_id(pci_id)
    return str(catalog.gpus[slug]["name"]) if slug else f"unknown GPU {pci_id}"


def _outcome(plan: Plan) -> str:
    if plan["refusals"]:
        return f"refused, nothing would be changed ({_count(len(plan['refusals']), 'reason')})"
    changes = sum(len(area["actions"]) for name, area in plan["areas"].items() if name != "smoke_test")
    if plan["converged"]:
        smoke = plan["areas"]["smoke_test"]
        return _HOLDS if smoke["converged"] else f"{_HOLDS}, smoke test to run"
    return f"{_count(changes, 'action')}, then the smoke test"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def difference(plan: Plan, inventory: str = "", aside: Iterable[str] = ()) -> str:
    """Why a host that should be as planned is not: its refusals, else one sentence with every area and what differs there first. Empty where it is.

    ``inventory`` is the run's own options, each followed by a space, so that the command can be pasted; the smoke test and areas that are ``aside`` may differ.
    """
    if plan["refusals"]:
        return f"{plan['host']}: {' '.join(plan['refusals'])}"
    found = []
    for name, area in plan["areas"].items():
        if area["converged"] or name in ("smoke_test", *aside):
            continue
        differences = [
            f"{path.strip() or name} {'differs' if path.startswith(_NOT_SHOWN) else f'is {_value(is_now)} instead of {_value(will_be)}'}"
            for path, is_now, will_be in _differences(area["actual"], area["target"])
        ]
        found.append(f"{name} ({differences[0] if differences else 'not planned'}{f' and {len(differences) - 1} more' if len(differences) > 1 else ''})")
    if not found:
        return ""
    return (
        f"{plan['host']}: the host differs from its plan in {_count(len(found), 'area')}, {', '.join(found)}: run ansible-playbook {inventory}site.yml "
        f"-l {plan['host']}; if that has just run, its tasks above show the cause."
    )


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
