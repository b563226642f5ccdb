# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area nvidia_fabric: the fabric manager, only where the hardware has a fabric."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Table
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import (
    PIN_REMEDY,
    UNKNOWN,
    AreaPlan,
    Context,
    Reason,
    VersionRule,
    names_only,
    package_actions,
    package_set,
    packages_state,
    refusal,
    unit_actions,
    units_state,
    unverified,
)

COMPLETED = "Completed, Success"
MANAGER = "nvidia-fabricmanager.service"


def plan(context: Context) -> AreaPlan:
    """The fabric manager at exactly the driver's version, and every GPU in the fabric."""
    kind = context.fabric_kind
    if kind is None:
        return _none(context)
    if context.driver_cell is None:
        return AreaPlan()  # the driver's area has refused that already
    fabric, parts, cell = context.catalog.fabrics[kind], context.fabric_parts.get(kind), context.fabric_cell
    if parts is None or cell is None:
        what = f"The catalog has no packages of this board's fabric ({', '.join(fabric['parts'])}) that go with driver branch {context.driver_branch}"
        return AreaPlan(refusals=[refusal(f"{what} for {context.where}", "the fabric would not start", _other_branches(context, fabric))])
    warnings = _warnings(context, kind, cell)
    if not context.installable:
        return names_only(
            list(parts), {"required": True, "kind": kind, "units": list(fabric["units"]), "modules": list(fabric["modules"])}, [_why(context, kind)], warnings
        )
    name_of = context.driver_cell["repository"]
    locked = context.locked_repository(name_of)
    packages: dict[str, str | None] = {}
    refusals = []
    for name, entry in parts.items():
        packages[name] = None
        if entry["version"] is None:
            continue
        rule = VersionRule(exact=context.driver_version) if entry["version"] == "driver" else VersionRule()
        packages[name] = rule.newest_package(locked["packages"].get(name, []), context.order) if locked else None
        # Without a driver version the driver's area has refused already; a second sentence about it would say nothing new.
        if packages[name] is None and context.driver_version is not None:
            wanted = f"{name} {context.driver_version}" if entry["version"] == "driver" else name
            refusals.append(refusal(f"The lock has no {wanted}", "the fabric of this board would not start", PIN_REMEDY))
    if refusals or context.driver_version is None:
        return AreaPlan(refusals=refusals, warnings=warnings)

    hold = sorted(name for name, entry in parts.items() if entry["version"] is not None)
    repository = context.repository(name_of)
    units, modules = list(fabric["units"]), list(fabric["modules"])
    reports = _reporting(context)
    package_target, package_actual = packages_state(context, packages)
    actual_gpus: Any = {gpu.pci_bus_id: _state(gpu.smi) for gpu in context.gpus if gpu.pci_bus_id in reports} if context.smi_ok else UNKNOWN
    target: dict[str, Any] = {
        "packages": package_target,
        "held": hold,
        "units": dict.fromkeys(units, "enabled, active"),
        "modules": dict.fromkeys(modules, "loaded"),
        "gpus": dict.fromkeys(reports, COMPLETED),
    }
    actual: dict[str, Any] = {
        "packages": package_actual,
        "held": context.held(hold),
        "units": units_state(context, units),
        "modules": {name: "loaded" if (context.facts["modules"].get(name) or {}).get("loaded") else "not loaded" for name in modules},
        "gpus": actual_gpus if reports else {},
    }
    missing_modules = [name for name in modules if actual["modules"][name] != "loaded"]
    return AreaPlan(
        desired={
            "required": True,
            "kind": kind,
            **package_set(context, packages, hold),
            "units": units,
            "modules": modules,
            "gpus_completed": bool(reports),
        },
        target=target,
        actual=actual,
        reasons=[_why(context, kind), Reason(f"{'IMEX' if kind == 'imex' else 'the fabric manager'} starts only at exactly the driver's version", "gdc")],
        warnings=warnings,
        actions=[
            *package_actions(context, packages, hold),
            *([f"load {' '.join(missing_modules)}"] if missing_modules else []),
            *unit_actions(context, units),
            *([] if actual["gpus"] == target["gpus"] else ["wait until every GPU reports Completed, Success"]),
        ],
        packages=packages,
        archive_packages=context.to_be_there([*(name for name, entry in parts.items() if entry["version"] is None), context.lock_package]),
        repositories=[repository.question({name: packages[name] for name in packages if name in hold}, locked=locked)] if repository is not None else [],
    )


def _other_branches(context: Context, fabric: Table) -> str:
    """The remedy where the driver's branch has no packages of the fabric: those that have them."""
    catalog, found = context.catalog, []
    for name in catalog.drivers["branches"]:
        driver = catalog.driver_cell(context.distribution, context.architecture, name)
        cell = catalog.fabric_cell(context.distribution, driver["repository"], name) if driver is not None else None
        if cell is not None and set(fabric["parts"]) <= set(cell["parts"]):
            found.append(name)
    return f"use one of the driver branches {', '.join(found)}" if found else "use another distribution"


def _none(context: Context) -> AreaPlan:
    boards = sorted({gpu.name for gpu in context.gpus if gpu.entry is not None and gpu.entry["fabric"] == "nvswitch"})
    warnings = []
    if boards and len(context.gpus) >= 8:
        warnings.append(f"{len(context.gpus)} x {boards[0]} but no NVSwitch on the PCI bus: on an 8-GPU board CUDA will not start until the switches are back.")
    warnings += _guessed(context)
    if context.facts["nvlink5_management"] and any(gpu.entry is None for gpu in context.gpus):
        warnings.append(
            "A management port of NVLink 5 switches shows and the catalog does not know the GPUs: if CUDA does not start, the board needs a fabric manager "
            "that is not planned here, as GPUs are what decides."
        )
    if context.unit(MANAGER)["active"] == "failed":
        warnings.append(
            f"{MANAGER} is installed and fails, as this host has no NVSwitch that it could manage: run systemctl disable --now {MANAGER} and "
            f"systemctl reset-failed {MANAGER}, or remove its package."
        )
    reporting = unplanned(context)
    if reporting:
        states = ", ".join(f"{bus_id} {state}" for bus_id, state in reporting.items())
        warnings.append(
            f"GPUs report a fabric ({states}) and no NVSwitch is on the PCI bus: until all of them report {COMPLETED} CUDA does not start and the smoke test "
            "fails. On a virtual machine the fabric manager runs outside: ask whoever runs the machine below; on a whole board the switches are missing."
        )
    return AreaPlan(
        desired={"required": False},
        target={"required": False},
        actual={"required": False},
        reasons=[Reason("there is no NVSwitch on the PCI bus and no GPU of an NVLink 5 board", "ogkm-nvswitch")],
        warnings=warnings,
    )


def unplanned(context: Context) -> dict[str, str]:
    """Bus id to the state of the fabric that a GPU reports although none is planned: then it is in one, or waits for one."""
    if context.fabric_kind is not None:
        return {}
    return {gpu.pci_bus_id: _state(gpu.smi) for gpu in context.gpus if gpu.smi is not None and gpu.smi["fabric"]["state"] is not None}


def _guessed(context: Context) -> list[str]:
    unsure = sorted({gpu.name for gpu in context.gpus if gpu.entry is not None and "fabric" in gpu.entry.get("unverified", [])})
    return [f"What fabric a board with {name} has is not verified; it is planned from what is on the PCI bus and the model." for name in unsure]


def _warnings(context: Context, kind: str, cell: Table) -> list[str]:
    warnings = [
        *unverified("The list of fabric packages", cell),
        *unverified(f"What a host with {kind} needs", context.catalog.fabrics[kind]),
        *_guessed(context),
    ]
    keys = sorted({key for switch in context.facts["nvswitches"] if (key := context.catalog.nvswitch_by_pci_id(switch["pci_id"])) is not None})
    for key in keys:
        warnings += unverified(f"What is known of {context.catalog.nvswitches[key]['name']}", context.catalog.nvswitches[key])
    return warnings


def _why(context: Context, kind: str) -> Reason:
    if kind == "imex":
        return Reason("the GPUs are of a rack whose switches are elsewhere: its hosts share memory through IMEX and run no fabric manager", "deepops")
    if kind == "nvlink5":
        return Reason("the GPUs are of an NVLink 5 board, whose switches do not show on the bus", "gdc")
    switches = context.facts["nvswitches"]
    names = sorted(
        {context.catalog.nvswitches[key]["name"] for switch in switches if (key := context.catalog.nvswitch_by_pci_id(switch["pci_id"])) is not None}
    )
    return Reason(f"{len(switches)} NVSwitches on the PCI bus ({', '.join(names) or 'generation not in the catalog'})", "ogkm-nvswitch")


def _reporting(context: Context) -> list[str]:
    """Bus ids of the GPUs whose driver reports the state of the fabric."""
    return [gpu.pci_bus_id for gpu in context.gpus if (architecture := context.architecture_of(gpu)) is not None and architecture["fabric_state"]]


def _state(smi: Any) -> str:
    if smi is None:
        return "not listed by nvidia-smi"
    return f"{smi['fabric']['state'] or 'N/A'}, {smi['fabric']['status'] or 'N/A'}"
