# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area smoke_test: what is tested (``options`` of gpu_smoke_test), and the stamp that says it was."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.areas import mig, nvidia_fabric, pytorch_image
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import AreaPlan, Context, Reason, split_reference

STAMPED = ("release", "image_digest", "driver", "gpus", "mig", "tier")


def plan(context: Context) -> AreaPlan:
    """A test of exactly what is planned; any difference to the last stamp asks for a new one."""
    entry = pytorch_image.locked(context)
    if entry is None or context.driver_version is None:
        return AreaPlan()
    wanted, _refusals = mig.layout(context)
    uuids = sorted(str(gpu.smi["uuid"]) for gpu in context.gpus if gpu.smi is not None and gpu.smi["uuid"] is not None)
    # Before the driver answers nobody knows the UUIDs, so no stamp can match.
    stamp: dict[str, Any] = {
        "release": context.request.release,
        "image_digest": entry["index"],
        "driver": context.driver_version,
        "gpus": uuids if context.smi_ok else None,
        "mig": {bus_id: sorted(profiles) for bus_id, profiles in wanted.items() if profiles} or "off",
        "tier": context.request.smoke_tier,
    }
    verdict = "accepted" if context.request.smoke_backend == "cuda" else "simulated"
    found = context.facts["stamp"] or {}
    actual_stamp = {key: found.get(key) for key in STAMPED} if found else "absent"
    reference = split_reference(context.image)
    return AreaPlan(
        desired={
            "image": f"{pytorch_image.mirrored(context, reference)}@{entry['index']}",
            "tier": context.request.smoke_tier,
            "backend": context.request.smoke_backend,
            "degraded": context.request.smoke_degraded,
            "ulimits": list(context.request.smoke_ulimits),
            "env": dict(context.request.smoke_env),
            "gpus": [_gpu(gpu) for gpu in context.gpus],
            "floors": _floors(context),
            "not_applicable": _not_applicable(context, wanted),
            "stamp": stamp,
        },
        target={"stamp": stamp, "verdict": verdict},
        actual={"stamp": actual_stamp, "verdict": found.get("verdict")},
        reasons=[Reason("a host is accepted for exactly one release, image, driver, set of GPUs and layout", "design")],
        warnings=_warnings(context, wanted),
        actions=[f"run the {context.request.smoke_tier} smoke test with {context.request.smoke_backend} on {len(context.gpus)} GPUs"],
    )


def _warnings(context: Context, wanted: dict[str, list[str]]) -> list[str]:
    if context.request.smoke_backend != "cuda" or not any(wanted.values()):
        return []
    return ["MIG instances are not tested one by one yet: with this mig_layout the smoke test ends incomplete and the host is not accepted."]


def _gpu(gpu: Any) -> dict[str, Any]:
    return {
        "pci_bus_id": gpu.pci_bus_id,
        "pci_id": gpu.pci_id,
        "uuid": gpu.smi["uuid"] if gpu.smi else None,
        "name": gpu.smi["name"] if gpu.smi else None,
        "compute_capability": gpu.entry["compute_capability"] if gpu.entry else None,
    }


def _floors(context: Context) -> dict[str, Any]:
    """The floors of this host's model, when it has one model and the catalog knows floors for it and for that many cards."""
    slugs = {gpu.slug for gpu in context.gpus}
    floors = context.catalog.floors.get(slugs.pop() or "", {}) if len(slugs) == 1 else {}
    return {name: dict(floor) for name, floor in floors.items() if floor["gpus"] in (1, len(context.gpus))}


def _not_applicable(context: Context, wanted: dict[str, list[str]]) -> dict[str, str]:
    """Checks that cannot apply, said before the test runs; the test itself never decides that."""
    reasons: dict[str, str] = {}
    if context.fabric_kind is None and not nvidia_fabric.unplanned(context):
        reasons["fabric"] = "this board has no NVSwitch fabric"
    if any(wanted.values()):
        reasons["all_reduce_exact"] = "MIG instances cannot talk to each other, and a process sees one of them"
    return reasons
