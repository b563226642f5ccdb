# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area smoke_test: what is tested (``options`` of gpu_smoke_test), and the stamp that says it was."""

from __future__ import annotations

from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_tiers, smoke_window
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import ALL_REDUCE, PAIRS, PRODUCT_MATCH, speed
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.plugin_utils.areas import mig, nvidia_fabric, pytorch_image
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import UNREADABLE, AreaPlan, Context, Reason, split_reference

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
    damage = _damage(context.facts["stamp"])
    actual_stamp: Any = "absent" if context.facts["stamp"] is None else UNREADABLE if damage else {key: found[key] for key in STAMPED}
    if isinstance(actual_stamp, dict) and smoke_tiers.covers(found.get("tier"), stamp["tier"]):
        actual_stamp["tier"] = stamp["tier"]
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
            "expected": _expected(context),
            "floors": _floors(context),
            "not_applicable": _not_applicable(context, wanted),
            "burn_minutes": context.request.smoke_burn_minutes,
            "data_paths": list(context.request.smoke_data_paths),
            "timeout": _limit(context),
            "stamp": stamp,
        },
        target={"stamp": stamp, "verdict": verdict},
        actual={"stamp": actual_stamp, "verdict": None if damage else found.get("verdict")},
        reasons=[
            Reason("a host is accepted for exactly one release, image, driver, set of GPUs and layout", "design"),
            *([Reason(f"the stamp of the last test is unreadable ({damage}), so the host is tested again", "host")] if damage else []),
        ],
        actions=[f"run the {context.request.smoke_tier} smoke test with {context.request.smoke_backend} on {len(context.gpus)} GPUs"],
    )


def _damage(stamp: Any) -> str:
    """What is wrong with a stamp that is there; empty where it can be compared, or where there is none."""
    if stamp is None:
        return ""
    if "error" in stamp:
        return str(stamp["error"])
    lacking = [name for name in (*STAMPED, "verdict") if name not in stamp]
    return f"it has no {', '.join(lacking)}" if lacking else ""


def _gpu(gpu: Any) -> dict[str, Any]:
    return {
        "pci_bus_id": gpu.pci_bus_id,
        "pci_id": gpu.pci_id,
        "uuid": gpu.smi["uuid"] if gpu.smi else None,
        "name": gpu.smi["name"] if gpu.smi else None,
        "compute_capability": gpu.entry["compute_capability"] if gpu.entry else None,
        "model": gpu.slug,
        "memory_gb": gpu.entry["memory_gb"] if gpu.entry else None,
    }


def _expected(context: Context) -> dict[str, Any] | None:
    expected = context.request.expected
    return None if expected is None else {"model": expected.model, "count": expected.count}


def _limit(context: Context) -> int:
    """Seconds that the whole test may take."""
    return smoke_tiers.limit_s(context.request.smoke_tier, len(context.gpus), context.request.smoke_backend, context.request.smoke_burn_minutes)


def _floors(context: Context) -> dict[str, Any]:
    """The floors of this host's models, for each card alone and for so many together as a test can put to work here."""
    counts = {1, 2, len(context.gpus)}
    floors: dict[str, Any] = {}
    for slug in sorted({gpu.slug for gpu in context.gpus if gpu.slug is not None}):
        known = {name: [dict(entry) for entry in entries if entry["gpus"] in counts] for name, entries in context.catalog.floors.get(slug, {}).items()}
        floors[slug] = {name: entries for name, entries in known.items() if entries}
    return {slug: known for slug, known in floors.items() if known}


def _not_applicable(context: Context, wanted: dict[str, list[str]]) -> dict[str, str]:
    """Checks that cannot apply, said before the test runs; the test itself never decides that.

    Of every tier: a host may be tested in another one than the planned, and what a tier never asks for needs no excuse.
    """
    reasons: dict[str, str] = {}
    backend, most = context.request.smoke_backend, "accept"
    cards = [ExpectedGpu(gpu.pci_bus_id, gpu.pci_id, compute_capability=gpu.entry["compute_capability"] if gpu.entry else None) for gpu in context.gpus]
    if context.fabric_kind is None and not nvidia_fabric.unplanned(context):
        reasons["fabric"] = "this board has no NVSwitch fabric"
    if context.fabric_kind != "imex":
        reasons["imex"] = "these GPUs do not share memory with other hosts"
    if not context.facts["nvswitches"]:
        reasons[smoke_window.SXID] = "there is no NVSwitch on the PCI bus, whose errors the kernel would log"
    if context.facts["init"] != "systemd":
        reasons["daemon_reload"] = f"process 1 is {context.facts['init'] or 'not known'}, so no systemd can reload"
    kinds = [card.kind for card in cards]
    if all(kinds.count(kind) == 1 for kind in kinds):
        reasons[PRODUCT_MATCH] = "no two GPUs of this host are of one model"
    if len(cards) == 1:
        reasons.update(dict.fromkeys((smoke_tiers.PAIR_EXACT, speed(ALL_REDUCE), speed(PAIRS)), "there is one GPU, and nothing between GPUs to measure"))
    if backend == "cpu":
        reasons.update(dict.fromkeys(smoke_tiers.speeds(cards, most, backend), "it is computed on the CPU, for which there are no floors"))
    if any(wanted.values()):
        reasons.update(dict.fromkeys(smoke_tiers.BETWEEN, "MIG instances cannot talk to each other, and a process sees one of them"))
        reasons.update(dict.fromkeys(smoke_tiers.speeds(cards, most, backend), "floors are those of whole GPUs, and these are divided"))
        reasons[PRODUCT_MATCH] = "GPUs are divided, and parts of different size compute in different ways"
    return reasons
