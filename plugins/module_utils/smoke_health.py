# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the driver says of each GPU's health, and of the fabric that it is in. Pure: facts in, checks out."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, capability
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import Facts, smi_missing
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, FAIL, NOT_APPLICABLE, PASS, Check, make_check


def gpu_health(gpus: Sequence[ExpectedGpu], facts: Facts) -> list[Check]:
    """What the driver says about each GPU's memory and whether it asks for a reset. What a card does not report is named, and held for good."""
    smi = facts["nvidia_smi"]
    known = {gpu["pci_bus_id"]: gpu for gpu in smi["gpus"]}
    checks = []
    for gpu in gpus:
        if smi["state"] != "ok":
            checks.append(smi_missing("gpu_health", smi, gpu=gpu.gpu))
        elif gpu.pci_bus_id not in known:
            checks.append(make_check("gpu_health", COULD_NOT_RUN, "nvidia-smi does not list the GPU", gpu=gpu.gpu, source="nvidia-smi"))
        else:
            checks.append(_health(gpu, known[gpu.pci_bus_id]))
    return checks


def _health(gpu: ExpectedGpu, said: Mapping[str, Any]) -> Check:
    """One GPU's health. The aggregate count is not held against it: it tells of the card's whole life, and rows that were remapped since are sound."""
    ecc, rows = said.get("ecc") or {}, said.get("remapped_rows") or {}
    value = {
        "volatile_uncorrectable": ecc.get("volatile_uncorrectable"),
        "row_remap_failure": rows.get("failure"),
        "row_remap_pending": rows.get("pending"),
        "recovery_action": said.get("recovery_action"),
    }
    floor = {"volatile_uncorrectable": 0, "row_remap_failure": False, "row_remap_pending": False, "recovery_action": "None"}
    reset = "drain the host and reset the GPU (`nvidia-smi --gpu-reset`) or reboot, then test again; if it comes back, have the GPU replaced"
    found = []
    unread = said.get("errors") or []
    lost = [words for words in unread if "unknown error" not in words.lower()]
    if lost:
        found.append((f"nvidia-smi cannot read its health ({_some(lost)})", f"look for Xid messages in `dmesg`; {reset}"))
    if value["row_remap_failure"]:
        found.append(("a row of its memory could not be remapped", "have the GPU replaced: it has no spare rows left for a faulty one"))
    if value["volatile_uncorrectable"]:
        found.append((f"{value['volatile_uncorrectable']} uncorrectable memory errors since the driver was loaded", reset))
    if value["row_remap_pending"]:
        found.append(("a faulty row of its memory waits for a reset to be remapped", reset))
    if value["recovery_action"] not in (None, floor["recovery_action"]):
        found.append((f"the driver asks for: {value['recovery_action']}", reset))
    status, reason, remedy = PASS, None, None
    silent = [name for name, told in value.items() if told is None]
    if found:
        status, reason, remedy = FAIL, "; ".join(words for words, _remedy in found), found[0][1]
    elif unread:
        status, reason = COULD_NOT_RUN, f"nvidia-smi cannot read its health ({_some(unread)})"
        remedy = f"look for Xid messages in `dmesg` and test again; if it stays, {reset}"
    elif silent:
        reason = f"nvidia-smi does not report on this GPU: {', '.join(silent)}"
    return make_check("gpu_health", status, reason, remedy=remedy, value=value, floor=floor, source="nvidia-smi", gpu=gpu.gpu)


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:2]) + (f" and {len(words) - 2} more" if len(words) > 2 else "")


def fabric(gpus: Sequence[ExpectedGpu], facts: Facts, not_applicable: Mapping[str, str]) -> list[Check]:
    """The NVLink fabric, GPU by GPU. Hopper and newer say so themselves; before, the fabric manager's unit and version stand for it."""
    if "fabric" in not_applicable:
        return [make_check("fabric", NOT_APPLICABLE, not_applicable["fabric"], gpu=gpu.gpu) for gpu in gpus]
    smi = facts["nvidia_smi"]
    known = {gpu["pci_bus_id"]: gpu for gpu in smi["gpus"]}
    checks = []
    for gpu in gpus:
        chip = capability(gpu.compute_capability)
        if smi["state"] != "ok":
            checks.append(smi_missing("fabric", smi, gpu=gpu.gpu))
        elif gpu.pci_bus_id not in known:
            checks.append(make_check("fabric", COULD_NOT_RUN, "nvidia-smi does not list the GPU", gpu=gpu.gpu, source="nvidia-smi"))
        elif chip is None:
            reason = "the plan does not give the GPU's compute capability, which decides how its fabric reports"
            checks.append(make_check("fabric", COULD_NOT_RUN, reason, remedy="add the GPU to the catalog", gpu=gpu.gpu))
        elif chip >= (9, 0):
            checks.append(_registered(gpu, known[gpu.pci_bus_id]["fabric"]))
        else:
            checks.append(_managed(gpu, facts))
    return checks


def _registered(gpu: ExpectedGpu, said: Mapping[str, Any]) -> Check:
    """Hopper or newer: State Completed, Status Success; no answer (N/A) is a failure where the plan has a fabric."""
    good = said["state"] == "Completed" and said["status"] == "Success"
    reason = f"its fabric says State {said['state'] or 'N/A'}, Status {said['status'] or 'N/A'} instead of Completed, Success"
    remedy = "`systemctl status nvidia-fabricmanager` and its log /var/log/fabricmanager.log; its version must be the driver's exactly. "
    remedy += "Where no NVSwitch is visible, as in a virtual machine, ask whoever runs the machine below"
    return make_check(
        "fabric",
        PASS if good else FAIL,
        None if good else reason,
        remedy=None if good else remedy,
        value=dict(said),
        floor={"state": "Completed", "status": "Success"},
        source="nvidia-smi",
        gpu=gpu.gpu,
    )


def _managed(gpu: ExpectedGpu, facts: Facts) -> Check:
    """Before Hopper: fabric manager active and of the driver's very version. That every GPU gives a context, the checks of each GPU show."""
    unit = facts["units"].get("nvidia-fabricmanager.service", {})
    driver = facts["nvidia_smi"]["driver_version"]
    versions = sorted({entry["version"] for name, entry in facts["packages"]["installed"].items() if re.fullmatch(r"nvidia-fabric-?manager(-\d+)?", name)})
    plain = [re.split(r"[-~+]", version.split(":", 1)[-1])[0] for version in versions]
    value = {"active": unit.get("active"), "versions": plain, "driver": driver}
    remedy = "install the fabric manager of exactly the driver's version and start nvidia-fabricmanager.service"
    source = "systemd, package database"
    if not plain:
        return make_check("fabric", COULD_NOT_RUN, "no package of the fabric manager is installed", remedy=remedy, value=value, source=source, gpu=gpu.gpu)
    if unit.get("active") != "active" or plain != [driver]:
        reason = f"nvidia-fabricmanager.service is {unit.get('active') or 'not there'} at version {', '.join(plain)}, the driver is {driver}"
        return make_check("fabric", FAIL, reason, remedy=remedy, value=value, source=source, gpu=gpu.gpu)
    return make_check("fabric", PASS, value=value, source=source, gpu=gpu.gpu)


def fabric_in_progress(gpus: Sequence[ExpectedGpu], facts: Facts) -> bool:
    """Whether a GPU still registers, which is worth a bounded wait."""
    wanted = {gpu.pci_bus_id for gpu in gpus}
    return any(gpu["pci_bus_id"] in wanted and gpu["fabric"]["state"] in ("In Progress", "Not Started") for gpu in facts["nvidia_smi"]["gpus"])
