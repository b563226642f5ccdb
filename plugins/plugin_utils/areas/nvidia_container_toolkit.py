# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area nvidia_container_toolkit: four packages in lockstep and a CDI specification that matches the host."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import (
    PIN_REMEDY,
    AreaPlan,
    Context,
    Reason,
    VersionRule,
    file_actions,
    files_state,
    names_only,
    package_actions,
    package_set,
    packages_state,
    refusal,
    unit_actions,
    unit_words,
)
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least

GPU_NAME = re.compile(r"\d+(:\d+)?|(GPU|MIG)-.+")
"""The names that the toolkit gives GPUs and instances: such a name in the specification that the host no longer has is a stale one."""
FORWARD_COMPATIBILITY = re.compile(r"cuda-compat-\d+-\d+(:.+)?")
"""Packages with a libcuda of another driver (catalog/cuda.yml). Images may bring one of their own: which one a process loaded is seen in the smoke test."""


def plan(context: Context) -> AreaPlan:
    """The toolkit at one exact version, its refresh units, and a specification that lists every GPU."""
    table = context.catalog.toolkit
    version = context.toolkit_version
    repository, locked = context.repository(table["repository"]), context.locked_repository(table["repository"])
    refusals = _bad(context)
    where = f"{context.distribution} on {context.architecture}"
    if not context.installable:
        names = table["packages"].get(context.manager, [])
        named = names_only(names, {"version": version}, [_reason(context)], []) if names else AreaPlan()
        return replace(named, refusals=refusals)
    if repository is None:
        return AreaPlan(
            refusals=[
                *refusals,
                refusal(f"The repository {table['repository']} has nothing known for {where}", "the toolkit cannot be planned", "use a supported distribution"),
            ]
        )
    if locked is None:
        return AreaPlan(refusals=[*refusals, context.unlocked(table["repository"], "no exact toolkit version is known")])
    rule = VersionRule(exact=version)
    packages = {name: rule.newest_package(locked["packages"].get(name, []), context.order) for name in table["packages"][context.manager]}
    missing = [name for name, found in packages.items() if found is None]
    if missing:
        refusals.append(refusal(f"The lock has no {' and no '.join(missing)} {version}", "the four packages of the toolkit would not match", PIN_REMEDY))
    if refusals:
        return AreaPlan(refusals=refusals)

    hold = sorted(packages)
    units = list(table["units"])
    cdi = table["cdi"]
    devices = expected_devices(context)
    files = repository.files(locked["key"])
    package_target, package_actual = packages_state(context, packages)
    file_target, file_actual = files_state(context, files)
    spec = _spec(context, cdi["path"])
    listed = sorted({name for name in spec["devices"] if name in devices or (context.smi_ok and GPU_NAME.fullmatch(name))}) if spec else []
    area = AreaPlan(
        desired={
            "version": version,
            "files": [spec.as_dict() for spec in files],
            **package_set(context, packages, hold),
            "units": units,
            "cdi": {"path": cdi["path"], "kind": cdi["kind"], "devices": devices},
        },
        target={
            "packages": package_target,
            "held": hold,
            "files": file_target,
            "units": dict.fromkeys(units, "enabled"),
            "cdi": {"devices": sorted(devices), "problems": []},
        },
        actual={
            "packages": package_actual,
            "held": context.held(hold),
            "files": file_actual,
            "units": {name: _enabled_words(context, name) for name in units},
            "cdi": {"devices": listed, "problems": list(spec["problems"])} if spec else "absent",
        },
        reasons=[_reason(context)],
        packages=packages,
        files=files,
        repositories=[repository.question(packages, locked=locked)],
        archive_packages=context.to_be_there([context.lock_package]),
    )
    current = area.actual["cdi"] if isinstance(area.actual, dict) else None
    area.actions = [
        *file_actions(context, files),
        *package_actions(context, packages, hold),
        *[action for name in units if _enabled_words(context, name) != "enabled" for action in unit_actions(context, [name])],
        *([] if current == area.target["cdi"] else [f"write {cdi['path']} for {len(context.gpus)} GPUs"]),
    ]
    area.refusals += _forward_compatibility(context)
    for other in context.facts["cdi"]["specs"]:
        if other["kind"] == cdi["kind"] and _normal(other["path"]) != cdi["path"]:
            area.warnings.append(
                f"{other['path']} describes {cdi['kind']} too: remove it if nobody needs it, an old one gives containers devices that are gone."
            )
    return area


def _reason(context: Context) -> Reason:
    if context.request.toolkit_version is not None:
        return Reason(f"toolkit {context.toolkit_version} is what nvidia_container_toolkit_version names", "inventory")
    return Reason(f"toolkit {context.toolkit_version} is what release {context.request.release} names", context.request.release)


def expected_devices(context: Context) -> list[str]:
    """Names that the specification must have: all, and once nvidia-smi tells them each index and UUID (for a split GPU, its instances)."""
    if not context.smi_ok:
        return ["all"]
    names = ["all"]
    for gpu in context.gpus:
        if gpu.smi is None:
            continue
        index = str(gpu.smi["index"])
        if gpu.smi["mig"]["current"] != "enabled":
            names += [index, *([gpu.smi["uuid"]] if gpu.smi["uuid"] is not None else [])]
            continue
        # A GPU instance without a compute instance has no UUID and is no device.
        devices = [instance["uuid"] for instance in gpu.smi["mig"]["instances"] if instance["uuid"] is not None]
        for number, uuid in enumerate(devices):
            names += [f"{index}:{number}", uuid]
    return names


def _forward_compatibility(context: Context) -> list[str]:
    names = sorted(name for name in context.facts["packages"]["installed"] if FORWARD_COMPATIBILITY.fullmatch(name))
    if not names:
        return []
    return [
        refusal(
            f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} installed on the host, with a libcuda of another driver",
            "CUDA could end with error 804 in containers that find it",
            f"run {context.packaging.removal(names, context.held(names))}, then run again",
        )
    ]


def _normal(path: str) -> str:
    return path if path.startswith("/var/") or not path.startswith("/run/") else f"/var{path}"


def _spec(context: Context, path: str) -> dict[str, Any] | None:
    return next((spec for spec in context.facts["cdi"]["specs"] if _normal(spec["path"]) == path), None)


def _enabled_words(context: Context, name: str) -> str:
    """The path unit waits for events (active), the service ends after its work (inactive): enabled and not failed is what both share."""
    unit = context.unit(name)
    if unit["load"] != "loaded" or unit["enabled"] != "enabled" or unit["active"] == "failed":
        return unit_words(unit)
    return unit_words(unit) if name.endswith(".path") and unit["active"] != "active" else "enabled"


def _bad(context: Context) -> list[str]:
    table, version = context.catalog.toolkit, context.toolkit_version
    refusals = []
    good = f"use {context.release['container_toolkit']['version']}"
    for known, entry in table["known_bad"].items():
        if at_least(version, known) and at_least(known, version):
            refusals.append(refusal(f"Toolkit {known} {entry['reason']}", "it is not installed", good))
    floor = table["security_floor"]
    if not at_least(version, floor["version"]):
        refusals.append(refusal(f"Toolkit {version} is older than {floor['version']} ({floor['reason']})", "containers could break out", good))
    elif not at_least(version, table["cdi_refresh_since"]):
        refusals.append(
            refusal(
                f"Toolkit {version} has no units that keep the CDI specification fresh",
                "containers would lose GPUs after a change",
                f"use {table['cdi_refresh_since']} or newer",
            )
        )
    return refusals
