# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area pytorch_image: one image by digest, that fits driver and GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Table
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import (
    PIN_REMEDY,
    AreaPlan,
    Context,
    Reason,
    Reference,
    refusal,
    split_reference,
    unverified,
)
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least, numbers

PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
# Compressed layers plus their unpacked content, which is about twice as large: what must be free for a pull.
SPACE_FACTOR = 3


def plan(context: Context) -> AreaPlan:
    """The image that the release or the inventory names, at the digest in the lock."""
    reference = split_reference(context.image)
    platform = PLATFORMS.get(context.architecture, f"linux/{context.architecture}")
    entry = locked(context)
    refusals = _fits(context)
    if entry is None:
        return AreaPlan(
            refusals=[
                *refusals,
                refusal(f"The image {context.image} is not in the lock", "what its tag means today could be something else tomorrow", PIN_REMEDY),
            ]
        )
    if reference.digest is not None and reference.digest != entry["index"]:
        refusals.append(
            refusal(
                f"pytorch_image_ref names {reference.digest} and the lock has {entry['index']} for {reference.tagged}",
                "it is not clear which image is meant",
                f"correct pytorch_image_ref or {PIN_REMEDY}",
            )
        )
    mine = entry["platforms"].get(platform)
    if mine is None:
        known = ", ".join(entry["platforms"])
        refusals.append(
            refusal(f"The image {context.image} has no {platform} (it has {known})", "it cannot run on this host", "use an image for this architecture")
        )
    if refusals or mine is None:
        return AreaPlan(refusals=refusals)

    pull = f"{mirrored(context, reference)}@{entry['index']}"
    size_mib = -(-int(mine["size_bytes"]) // 2**20)
    present = pull in context.facts["docker"]["images"]
    known_image = context.catalog.images.get(reference.tagged)
    area = AreaPlan(
        desired={"ref": context.image, "pull": pull, "digest": entry["index"], "size_mib": size_mib},
        target={"image": entry["index"]},
        actual={"image": entry["index"] if present else "absent"},
        reasons=_reasons(context, known_image),
        actions=[f"pull {pull} ({size_mib} MiB)"],
        images=[{"ref": f"{mirrored(context, reference)}:{reference.tag}" if reference.tag else pull, "digest": entry["index"]}],
    )
    if known_image is None and context.request.smoke_backend == "cuda":
        area.warnings.append(f"The catalog does not know {reference.tagged}: whether it fits the driver and the GPUs is seen only in the smoke test.")
    elif known_image is not None:
        area.warnings += unverified(f"What is known of the image {reference.tagged}", known_image)
    if not present:
        _space(context, area, size_mib)
    return area


def locked(context: Context) -> Mapping[str, Any] | None:
    """The lock's entry of the image: under the reference as asked for, or under its tag."""
    images: Mapping[str, Any] = (context.lock or {}).get("images") or {}
    return images.get(context.image) or images.get(split_reference(context.image).tagged)


def mirrored(context: Context, reference: Reference) -> str:
    """Registry and repository where this host pulls from."""
    mirror = context.request.mirror_images.get(reference.registry)
    return f"{mirror or reference.registry}/{reference.repository}"


def _reasons(context: Context, known: Table | None) -> list[Reason]:
    who = "pytorch_image_ref" if context.request.image_ref else f"release {context.request.release}"
    reasons = [Reason(f"{context.image} is what {who} names", "inventory" if context.request.image_ref else context.request.release)]
    version = context.driver_version
    if known is not None and known["cuda"] is not None and version is not None:
        major = known["cuda"].partition(".")[0]
        floor = context.catalog.cuda_min_driver[major]["driver"]
        reasons.append(Reason(f"CUDA {known['cuda']} runs on driver {floor} or newer by minor-version compatibility; {version} is planned", "cuda-compat"))
        if not at_least(version, known["toolkit_driver"]):
            reasons.append(
                Reason(
                    f"the driver is older than the image's own ({known['toolkit_driver']}): compiled code runs, code that needs newer PTX does not",
                    "cuda-compat",
                )
            )
    return reasons


def _fits(context: Context) -> list[str]:
    """Refusals: the image's CUDA against the driver, its compiled code against every kind of GPU."""
    known = context.catalog.images.get(split_reference(context.image).tagged)
    if known is None or context.request.smoke_backend == "cpu":
        return []
    refusals = []
    version = context.driver_version or context.driver_rule.exact
    major = known["cuda"].partition(".")[0]
    floor = context.catalog.cuda_min_driver[major]["driver"]
    if version is not None and not at_least(version, floor):
        refusals.append(
            refusal(
                f"CUDA {major} in {context.image} needs driver {floor} or newer",
                f"it does not start on driver {version}",
                f"use an image with CUDA {int(major) - 1} or a newer driver",
            )
        )
    for slug in sorted({gpu.slug for gpu in context.gpus if gpu.slug is not None}):
        gpu = context.catalog.gpus[slug]
        if runs_on(known["architectures"], gpu["compute_capability"]) is None:
            short = gpu["compute_capability"].replace(".", "")
            refusals.append(
                refusal(f"{context.image} has no code for {gpu['name']} (sm_{short})", "nothing would run on it", "use an image that is built for it")
            )
    return refusals


def runs_on(architectures: str, capability: str) -> str | None:
    """Which compiled code a GPU runs: same major and no higher minor, else portable code that is not newer. None: nothing."""
    device = numbers(f"{capability}.")
    major, minor = device[0], device[1] if len(device) > 1 else 0
    best = None
    for entry in architectures.split():
        code_major, code_minor = (int(part) for part in entry.removesuffix("+PTX").split("."))
        if code_major == major and code_minor <= minor:
            best = f"sm_{code_major}{code_minor}"
        elif best is None and entry.endswith("+PTX") and (code_major, code_minor) <= (major, minor):
            best = f"compute_{code_major}{code_minor}"
    return best


def _space(context: Context, area: AreaPlan, size_mib: int) -> None:
    disk = context.facts["disk"]
    place = next((path for path in (context.facts["docker"]["root_dir"], "/var/lib/docker", "/var", "/") if path in disk), None)
    needed = size_mib * SPACE_FACTOR
    if place is not None and int(disk[place]["free_mib"]) < needed:
        area.refusals.append(
            refusal(
                f"{place} has {disk[place]['free_mib']} MiB free and the image needs {needed} MiB",
                "the pull would fill the disk",
                "make room or move Docker's data-root (docker_daemon_options)",
            )
        )
