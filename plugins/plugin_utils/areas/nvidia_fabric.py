# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area nvidia_fabric: the fabric manager, only where the hardware has a fabric."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import (
    PIN_REMEDY,
    UNKNOWN,
    AreaPlan,
    Context,
    Reason,
    VersionRule,
    install_names,
    package_actions,
    packages_state,
    refusal,
    unit_actions,
    units_state,
)

COMPLETED = "Completed, Success"


def plan(context: Context) -> AreaPlan:
    """The fabric manager at exactly the driver's version, and every GPU in the fabric."""
    kind = context.fabric_kind
    if kind is None:
        return _none(context)
    fabric = context.catalog.fabrics[kind]
    questions: dict[str, dict[str, str | None]] = {}
    packages: dict[str, str | None] = {}
    refusals = []
    for name, entry in fabric["packages"].items():
        packages[name] = None
        if entry["repository"] is None:
            continue
        locked = context.locked_repository(entry["repository"])
        rule = VersionRule(exact=context.driver_version) if entry["version"] == "driver" else VersionRule()
        packages[name] = rule.newest_package(locked["packages"].get(name, [])) if locked else None
        questions.setdefault(entry["repository"], {})[name] = packages[name]
        # Without a driver version the driver's area has refused already; a second sentence about it would say nothing new.
        if packages[name] is None and context.driver_version is not None:
            wanted = f"{name} {context.driver_version}" if entry["version"] == "driver" else name
            refusals.append(refusal(f"The lock has no {wanted}", "the fabric of this board would not start", PIN_REMEDY))
    if refusals or context.driver_version is None:
        return AreaPlan(refusals=refusals)

    hold = sorted(name for name, entry in fabric["packages"].items() if entry["repository"] is not None)
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
            "install": install_names(packages),
            "hold": hold,
            "units": units,
            "modules": modules,
            "gpus_completed": bool(reports),
        },
        target=target,
        actual=actual,
        reasons=[_why(context, kind), Reason("the fabric manager starts only at exactly the driver's version", "gdc")],
        actions=[
            *package_actions(context, packages, hold),
            *([f"load {' '.join(missing_modules)}"] if missing_modules else []),
            *unit_actions(context, units),
            *([] if actual["gpus"] == target["gpus"] else ["wait until every GPU reports Completed, Success"]),
        ],
        packages=packages,
        archive_packages=[name for name, entry in fabric["packages"].items() if entry["repository"] is None and context.installed(name) is None],
        repositories=[found.question(names) for repository, names in questions.items() if (found := context.repository(repository)) is not None],
    )


def _none(context: Context) -> AreaPlan:
    boards = sorted({gpu.name for gpu in context.gpus if gpu.entry is not None and gpu.entry["fabric"] == "nvswitch"})
    warnings = []
    if boards and len(context.gpus) >= 8:
        warnings.append(f"{len(context.gpus)} x {boards[0]} but no NVSwitch on the PCI bus: on an 8-GPU board CUDA will not start until the switches are back.")
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


def _why(context: Context, kind: str) -> Reason:
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
