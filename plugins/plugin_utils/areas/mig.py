# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area mig: mode and instances of each GPU, resolved card by card and placed exactly."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils.mig_geometry import Card, Instance, card_from_table, place
from ansible_collections.rackready.gpu.plugins.module_utils.pci import normalize_bus_id
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import (
    UNKNOWN,
    AreaPlan,
    Context,
    Gpu,
    Reason,
    refusal,
    unit_words,
    unverified,
    who,
)
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least

MANAGER = "nvidia-mig-manager"
# Before that its hook waits at boot for services that are ordered after it, and its unit had no time limit (rules.yml).
MANAGER_FLOOR = "0.14.5"
# Units that watch GPUs: what NVIDIA's packages of DCGM install, and under which names its exporter is run.
MONITORING = re.compile(r"(nvidia-dcgm|dcgm|nvidia-dcgm-exporter|dcgm-exporter)\.service")


def plan(context: Context) -> AreaPlan:
    """What mig_layout asks of each card; MIG off where it asks nothing."""
    area = _layout_plan(context)
    refusals, warnings = _manager(context)
    area.refusals += refusals
    area.warnings += [*warnings, *_monitoring(context)]
    return area


def _monitoring(context: Context) -> list[str]:
    """What watches the GPUs and has failed: exporters end when the devices that they knew are gone. The host is also read after its layout was changed."""
    failed = [name for name in context.facts["failed_units"] if MONITORING.fullmatch(name)]
    if not failed:
        return []
    has, it = ("has", "it") if len(failed) == 1 else ("have", "they")
    return [
        f"{', '.join(failed)} {has} failed, so nobody watches the GPUs: run systemctl restart {' '.join(failed)}; if {it} cannot cope with MIG, upgrade "
        "the packages."
    ]


def _manager(context: Context) -> tuple[list[str], list[str]]:
    """Refusals and warnings about NVIDIA's service that applies a layout of its own at boot."""
    unit, version = context.unit(f"{MANAGER}.service"), context.installed(MANAGER) if context.installable else None
    if unit["load"] != "loaded" or (unit["active"] == "inactive" and unit["enabled"] != "enabled"):
        return [], []
    what = f"{MANAGER} {context.order.upstream(version) if version is not None else 'of an unknown version'} is {unit_words(unit)}"
    disable = f"systemctl disable --now {MANAGER}.service"
    if version is not None and not at_least(context.order.upstream(version), MANAGER_FLOOR):
        why = f"the host can hang in boot, as below {MANAGER_FLOOR} it waits for services that wait for it"
        return [refusal(what, why, f"run {disable}, or upgrade it to {MANAGER_FLOOR} or newer, then run again")], []
    unsure = "" if version is not None else f" Below {MANAGER_FLOOR} it can also make the host hang in boot."
    return [], [f"{what}: it applies a layout of its own at boot, and rackready the one of mig_layout. Where that is not wanted run {disable}.{unsure}"]


def _layout_plan(context: Context) -> AreaPlan:
    wanted, refusals = layout(context)
    if refusals:
        return AreaPlan(refusals=refusals)
    later = [] if context.smi_ok else _uuids(context)
    if later:
        return _planned_later(later)
    area = AreaPlan(reasons=[Reason(f"mig_layout asks for {_summary(wanted)}", "inventory")])
    desired, resets = [], []
    target: dict[str, str] = {}
    actual: dict[str, str] = {}
    impossible: list[tuple[str, str]] = []
    for gpu in context.gpus:
        profiles = wanted[gpu.pci_bus_id]
        supported = gpu.entry is not None and gpu.entry["mig"] is not None
        if not profiles and not supported:
            continue  # MIG off on a card without MIG holds by itself
        entry, problem = _card_plan(context, gpu, profiles)
        if problem is not None or entry is None:
            impossible.append((gpu.pci_bus_id, str(problem)))
            continue
        desired.append(entry)
        reset = _needs_reset(context, gpu, entry["mode"])
        if reset:
            resets.append(gpu.pci_bus_id)
        target[gpu.pci_bus_id] = _words(entry["mode"], entry["instances"])
        actual[gpu.pci_bus_id] = _actual_words(gpu)
        if target[gpu.pci_bus_id] != actual[gpu.pci_bus_id]:
            area.actions += _card_actions(gpu, entry, reset)
            if _takes_away(gpu, entry) and not _busy(context, gpu, area):
                area.warnings += _idle_ones_go(gpu, entry)
            if reset:
                _cannot_reset(gpu, entry["mode"], area)
    area.refusals += _together(impossible)
    for name in sorted({str(gpu.entry["mig"]) for gpu in context.gpus if gpu.entry is not None and gpu.entry["mig"] and wanted[gpu.pci_bus_id]}):
        area.warnings += _unsure(name, context.catalog.mig[name])
    area.desired = {"gpus": desired, "resets": resets}
    area.target = {"gpus": target}
    # Only the driver can tell the mode: before it is there nothing is known of cards that could have MIG on.
    area.actual = {"gpus": actual} if context.smi_ok or not target else UNKNOWN
    if area.actual == UNKNOWN:
        area.actions = [action for action in area.actions if not action.startswith("disable")]
        if not any(wanted.values()):
            area.actions = ["switch MIG off where the driver finds it on"]
    return area


def _unsure(name: str, table: Mapping[str, Any]) -> list[str]:
    warnings = unverified(f"Where MIG instances of {name} may begin", table["placement"] or {})
    return warnings if table["min_driver"] is not None else [*warnings, f"From which driver on {name} can be split is not known."]


def _uuids(context: Context) -> list[str]:
    """The GPUs that mig_layout names by UUID."""
    named = (selector for entry in context.request.mig_layout for selector in (entry["gpus"] if isinstance(entry["gpus"], list) else [entry["gpus"]]))
    return [str(selector) for selector in named if str(selector).startswith("GPU-")]


def _planned_later(uuids: list[str]) -> AreaPlan:
    """Which GPU has which UUID only the driver can tell, so before it answers no card is touched."""
    names = ", ".join(uuids)
    return AreaPlan(
        desired={"gpus": [], "resets": []},
        target={"gpus": dict.fromkeys(uuids, "as mig_layout says")},
        actual=UNKNOWN,
        reasons=[Reason(f"mig_layout names GPUs by UUID ({names})", "inventory")],
        actions=["apply mig_layout once the driver tells which GPU has which UUID"],
        warnings=[f"mig_layout names {names}: whether this host has that GPU is known, and planned again, once the driver is loaded."],
    )


def layout(context: Context) -> tuple[dict[str, list[str]], list[str]]:
    """Bus id to the wanted profiles (empty: off), and refusals."""
    wanted: dict[str, list[str]] = {gpu.pci_bus_id: [] for gpu in context.gpus}
    named: set[str] = set()
    refusals = []
    for number, entry in enumerate(context.request.mig_layout):
        for selector in entry["gpus"] if isinstance(entry["gpus"], list) else [entry["gpus"]]:
            found = _select(context, selector)
            if not found and not context.smi_ok and str(selector).startswith("GPU-"):
                continue
            if not found:
                have = ", ".join(f"{index} ({gpu.pci_bus_id})" for index, gpu in enumerate(context.gpus))
                text = isinstance(selector, str) and selector.isdigit()
                what = f'mig_layout[{number}] names the GPU "{selector}" in quotes' if text else f"mig_layout[{number}] names the GPU {selector}"
                remedy = f"write indices as numbers, in a list: one of {have}" if text else f"name one of {have}"
                refusals.append(refusal(f"{what}, which this host does not have", "the layout cannot be applied", remedy))
            for gpu in found:
                if gpu.pci_bus_id in named:
                    refusals.append(
                        refusal(f"mig_layout asks twice for the GPU {gpu.pci_bus_id}", "it is not clear which layout it gets", "name each GPU once")
                    )
                named.add(gpu.pci_bus_id)
                wanted[gpu.pci_bus_id] = [profile for profile, count in entry["instances"].items() for _number in range(count)]
    return wanted, refusals


def _select(context: Context, selector: Any) -> list[Gpu]:
    if selector == "all":
        return list(context.gpus)
    if isinstance(selector, int) and not isinstance(selector, bool):
        return [gpu for index, gpu in enumerate(context.gpus) if (gpu.smi["index"] if gpu.smi else index) == selector]
    text = str(selector)
    try:
        bus_id: str | None = normalize_bus_id(text)
    except ValueError:
        bus_id = None
    return [gpu for gpu in context.gpus if text in (gpu.slug, gpu.smi["uuid"] if gpu.smi else None) or bus_id == gpu.pci_bus_id]


def _together(problems: list[tuple[str, str]]) -> list[str]:
    """Refusals of single cards, by bus id: what is said of several of them is said once."""
    places: dict[str, list[str]] = {}
    for bus_id, sentence in problems:
        places.setdefault(sentence.replace(bus_id, "\0"), []).append(bus_id)
    return [sentence.replace("\0", ", ".join(bus_ids)) for sentence, bus_ids in places.items()]


def _card_plan(context: Context, gpu: Gpu, profiles: list[str]) -> tuple[dict[str, Any] | None, str | None]:
    """The desired state of one card, or the refusal."""
    name = gpu.entry["mig"] if gpu.entry is not None else None
    current = gpu.smi["mig"]["current"] if gpu.smi else None
    if not profiles:
        return {"pci_bus_id": gpu.pci_bus_id, "mode": "disabled", "instances": []}, None
    if name is None or current == "unsupported":
        return None, refusal(
            f"{gpu.name} at {gpu.pci_bus_id} has no MIG that is known", "mig_layout cannot be applied to it", "leave that GPU out of mig_layout"
        )
    table = context.catalog.mig[name]
    problem = _not_on(context, gpu, table, profiles)
    if problem is not None:
        return None, problem
    card = card_from_table(table)
    placed = _place(gpu, card, profiles)
    if placed is None:
        counts = ", ".join(f"{count} x {profile}" for profile, count in Counter(profiles).items())
        most = ", ".join(f"{profile.name} up to {profile.maximum}" for profile in card.profiles.values())
        return None, refusal(
            f"{counts} do not fit on {gpu.name} at {gpu.pci_bus_id} together", "the layout does not exist on it", f"ask for less (alone: {most})"
        )
    instances = [{"profile": instance.profile, "start": instance.start} for instance in placed]
    return {"pci_bus_id": gpu.pci_bus_id, "mode": "enabled", "instances": instances}, None


def _not_on(context: Context, gpu: Gpu, table: Mapping[str, Any], profiles: list[str]) -> str | None:
    """The refusal of profiles that this kind of card, or the driver, does not have."""
    if table["placement"] is None:
        remedy = f"leave {gpu.pci_bus_id} out of mig_layout"
        return refusal(f"Where MIG instances of {gpu.name} at {gpu.pci_bus_id} may begin is not known", "no layout can be placed on it", remedy)
    foreign = sorted(set(profiles) - set(table["profiles"]))
    if foreign:
        what = f"{gpu.name} at {gpu.pci_bus_id} has no MIG profile {', '.join(foreign)}"
        return refusal(what, "the layout does not exist on it", f"use {', '.join(table['profiles'])}")
    version, floor = context.driver_version, table.get("min_driver_of", {}).get(gpu.slug) or table["min_driver"]
    if version is not None and floor is not None and not at_least(version, floor):
        return refusal(f"MIG on {gpu.name} needs driver {floor}", f"driver {version} cannot do it", "use a newer driver")
    return None


def _needs_reset(context: Context, gpu: Gpu, mode: str) -> bool:
    """Whether the mode can only change with a GPU reset; while nobody knows the mode, only switching it on is a change for certain."""
    architecture = context.architecture_of(gpu)
    current = gpu.smi["mig"]["current"] if gpu.smi else "disabled"
    return bool(architecture and architecture["mig_reset"] and current != mode)


def _place(gpu: Gpu, card: Card, profiles: list[str]) -> tuple[Instance, ...] | None:
    """Instances that are there and wanted keep their place; only if that does not work out is the card laid out anew."""
    rest = Counter(profiles)
    kept = []
    for instance in gpu.smi["mig"]["instances"] if gpu.smi else []:
        where = Instance(str(instance["profile"]), int(instance["placement_start"])) if instance["placement_start"] is not None else None
        if where is not None and where.profile in card.profiles and rest[where.profile] > 0:
            kept.append(where)
            rest[where.profile] -= 1
    found = place(list(rest.elements()), card, kept)
    if found is not None:
        return tuple(sorted((*kept, *found), key=lambda instance: (instance.start, instance.profile)))
    return place(profiles, card)


def _words(mode: str, instances: list[dict[str, Any]]) -> str:
    """Mode and instances in words, without places: a layout is what instances there are. One that no container can use is another one."""
    if mode != "enabled":
        return mode
    counts = Counter(
        f"{instance['profile'] or 'unknown'}{'' if instance.get('uuid', '') is not None else ' without a compute instance'}" for instance in instances
    )
    return f"enabled: {', '.join(f'{counts[profile]} x {profile}' for profile in sorted(counts))}" if counts else "enabled: no instances"


def _actual_words(gpu: Gpu) -> str:
    if gpu.smi is None:
        return UNKNOWN
    mig = gpu.smi["mig"]
    if mig["current"] != mig["pending"]:
        return f"{mig['current']}, {mig['pending']} after a reset"
    return _words("disabled" if mig["current"] == "unsupported" else mig["current"], mig["instances"])


def _card_actions(gpu: Gpu, entry: Mapping[str, Any], needs_reset: bool) -> list[str]:
    current = gpu.smi["mig"]["current"] if gpu.smi else None
    reset = " (with a GPU reset)" if needs_reset else ""
    if entry["mode"] == "disabled":
        return [f"disable MIG on {gpu.pci_bus_id}{reset}"]
    switch = [] if current == "enabled" else [f"enable MIG on {gpu.pci_bus_id}{reset}"]
    where = ", ".join(f"{instance['profile']} at {instance['start']}" for instance in entry["instances"])
    return [*switch, f"bring {gpu.pci_bus_id} to {where}"]


def _cannot_reset(gpu: Gpu, mode: str, area: AreaPlan) -> None:
    """A GPU reset stops everything that uses the GPU or its fabric; it is left to whoever runs the host."""
    verb, flag = ("on", 1) if mode == "enabled" else ("off", 0)
    remedy = f"run nvidia-smi -i {gpu.pci_bus_id} -mig {flag} and reboot the host, then run again"
    if gpu.smi is None:
        area.warnings.append(f"MIG on {gpu.name} at {gpu.pci_bus_id} is switched {verb} by a GPU reset: if it is not yet, the run will stop there and say how.")
    else:
        area.refusals.append(
            refusal(
                f"MIG on {gpu.name} at {gpu.pci_bus_id} is switched {verb} only by a GPU reset",
                "rackready cannot do it, as it does not reset GPUs",
                remedy,
            )
        )


def _takes_away(gpu: Gpu, entry: Mapping[str, Any]) -> bool:
    """Whether something that can be in use ends: the mode changes, or an instance goes. New instances in free space disturb nobody."""
    if gpu.smi is None:
        return False
    mig = gpu.smi["mig"]
    if not mig["current"] == mig["pending"] == entry["mode"]:
        return True
    return bool(_going(mig["instances"], entry))


def _going(instances: Sequence[Mapping[str, Any]], entry: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Those of the instances that are there which the layout has no place for."""
    places = {(instance["profile"], instance["start"]) for instance in entry["instances"]}
    found = Counter((instance["profile"], instance["placement_start"]) for instance in instances)
    # Several compute instances of one GPU instance, which are listed one by one, give way to one.
    return [instance for instance in instances if (place := (instance["profile"], instance["placement_start"])) not in places or found[place] > 1]


def _idle_ones_go(gpu: Gpu, entry: Mapping[str, Any]) -> list[str]:
    """The warning that instances which nobody uses at this moment are destroyed: somebody may have made them, or know them by name."""
    there = gpu.smi["mig"]["instances"] if gpu.smi is not None else []
    going = _going(there, entry)
    if not going:
        return []
    names = ", ".join(f"{instance['profile'] or 'unknown'} ({instance['uuid'] or 'without a compute instance'})" for instance in going)
    places = {(instance["profile"], instance["placement_start"]) for instance in there}
    new = {instance["profile"] for instance in entry["instances"] if (instance["profile"], instance["start"]) not in places}
    why = "mig_layout asks for no MIG there" if entry["mode"] == "disabled" else "mig_layout asks for other ones there"
    if new & {instance["profile"] for instance in going}:
        why = "what mig_layout asks for only fits where they are moved"
    return [f"Idle MIG instances of {gpu.name} at {gpu.pci_bus_id} are destroyed, as {why}, and whoever knows them by name loses them: {names}."]


def _busy(context: Context, gpu: Gpu, area: AreaPlan) -> bool:
    """Holders are known by card and not by instance, so any use of the card refuses the change; use of another card does not matter."""
    if gpu.smi is None:
        return False
    pids = {int(process["pid"]) for process in gpu.smi["processes"]}
    node = f"/dev/nvidia{gpu.smi['index']}"
    users = [holder for holder in context.workloads if holder["device"] == node or int(holder["pid"]) in pids]
    if users:
        area.drain = True
        area.refusals.append(
            refusal(
                f"GPU {gpu.pci_bus_id} is in use by {who(users, context.facts['docker']['containers'])}",
                "its MIG layout cannot be changed",
                "stop them or wait until they are done, then run again",
            )
        )
    return bool(users)


def _summary(wanted: Mapping[str, list[str]]) -> str:
    split = sum(1 for profiles in wanted.values() if profiles)
    return f"MIG on {split} of {len(wanted)} GPUs" if split else "no MIG"
