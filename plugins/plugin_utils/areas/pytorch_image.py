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
from ansible_collections.rackready.gpu.plugins.plugin_utils.releases import dropped, instead, lacks_code, runs_on
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least, branch

# Compressed layers plus their unpacked content, which is about twice as large: what must be free for a pull.
SPACE_FACTOR = 3


def plan(context: Context) -> AreaPlan:
    """The image that the release or the inventory names, at the digest in the lock."""
    reference = split_reference(context.image)
    platform = context.platform
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
    known_image = context.catalog.image(reference.tagged)
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
        area.warnings += _unsure(context, reference.tagged, known_image)
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
    floor = _floor(context, known) if known is not None else None
    if known is not None and version is not None and floor is not None:
        cuda = ".".join(known["cuda"].split(".")[:3])
        reasons.append(Reason(f"CUDA {cuda} runs on driver {floor} or newer by minor-version compatibility; {version} is planned", "cuda-compat"))
        if known["toolkit_driver"] is not None and not at_least(version, known["toolkit_driver"]):
            reasons.append(
                Reason(
                    f"the driver is older than the image's own ({known['toolkit_driver']}): compiled code runs, code that needs newer PTX does not",
                    "cuda-compat",
                )
            )
    for gpu in _models(context).values():
        code = runs_on(_code(context, known), gpu["compute_capability"])
        own = f"sm_{gpu['compute_capability'].replace('.', '')}"
        if code not in (None, own):
            reasons.append(Reason(f"{gpu['name']} ({own}) runs the image's {code} code", "torch-archlist-logs"))
    return reasons


def _models(context: Context) -> dict[str, Table]:
    """The kinds of GPUs that the catalog knows, by slug."""
    return {slug: context.catalog.gpus[slug] for slug in sorted({gpu.slug for gpu in context.gpus if gpu.slug is not None})}


def _code(context: Context, known: Table | None) -> str:
    """The compiled code for this host's platform; nothing where it is not known."""
    return str(known["architectures"].get(context.platform, "")) if known is not None else ""


def _floor(context: Context, known: Table) -> str | None:
    """The oldest driver for the CUDA of an image; None: nothing is known of that CUDA."""
    entry = context.catalog.cuda["min_driver"].get(known["cuda"].partition(".")[0])
    return str(entry["driver"]) if entry is not None else None


def _unsure(context: Context, tagged: str, known: Table) -> list[str]:
    """What a plan with this image rests on that nobody has looked up."""
    warnings = unverified(f"What is known of the image {tagged}", known)
    code = _code(context, known)
    if not code:
        return [*warnings, f"For which GPUs {tagged} has code on {context.platform} is not known: it is seen only in the smoke test."]
    if not known["architectures_verified"]:
        warnings.append(f"For which GPUs {tagged} has code is assumed and was not read off it ({code}).")
    for gpu in _models(context).values():
        first = context.catalog.drivers["architectures"][gpu["architecture"]]["first_cuda"]
        if str(runs_on(code, gpu["compute_capability"])).startswith("compute_"):
            cuda = f", and CUDA {known['cuda']} is older than the first with {gpu['name']} ({first})" if not at_least(known["cuda"], first) else ""
            warnings.append(f"{tagged} has only portable code for {gpu['name']}, which the driver compiles when it is first used{cuda}.")
    return warnings


def _fits(context: Context) -> list[str]:
    """Refusals: the image's CUDA against the driver, its compiled code against every kind of GPU."""
    reference = split_reference(context.image)
    known = context.catalog.image(reference.tagged)
    if known is None or context.request.smoke_backend == "cpu":
        return []
    refusals = []
    version, floor = context.driver_version or context.driver_rule.exact, _floor(context, known)
    major = known["cuda"].partition(".")[0]
    found = f"driver {version}" if version is not None else f"driver branch {context.driver_branch}"
    if floor is None:
        majors = " or ".join(context.catalog.cuda["min_driver"])
        what = f"The catalog knows nothing of CUDA {major}, which {context.image} has"
        return [refusal(what, f"nobody knows whether it starts on {found}", f"use an image with CUDA {majors}")]
    newer = floor if context.driver_branch == branch(floor) else f"branch {branch(floor)}"
    if not at_least(version, floor) if version is not None else int(context.driver_branch) < int(branch(floor)):
        refusals.append(
            refusal(
                f"CUDA {major} in {context.image} needs driver {floor} or newer",
                f"it does not start on {found}",
                f"use {_older(context, reference, version)}, or driver {newer} or newer",
            )
        )
    for slug, gpu in _models(context).items():
        if lacks_code(context.catalog, known, context.platform, slug):
            short, last = gpu["compute_capability"].replace(".", ""), dropped(context.catalog, known, slug)
            family = context.catalog.drivers["architectures"][gpu["architecture"]]["name"]
            why = f", as {family} ends with CUDA {last} and this is CUDA {major}" if last is not None else ""
            remedy = "use an image that is built for it"
            refusals.append(
                refusal(
                    f"{context.image} has no code for {gpu['name']} (sm_{short}){why}",
                    "nothing would run on it",
                    remedy if context.request.image_ref is not None else instead(context, remedy),
                )
            )
    return refusals


def _older(context: Context, reference: Reference, version: str | None) -> str:
    """The newest image of the same repository whose CUDA the driver runs, in words."""
    ngc = context.catalog.ngc
    driver = version or f"{context.driver_branch}.0"
    floors = {tag: _floor(context, known) for tag, known in ngc["images"].items()} if reference.name == ngc["repository"] else {}
    fitting = [tag for tag, floor in floors.items() if floor is not None and at_least(driver, floor)]
    return f"{ngc['repository']}:{fitting[-1]} or older" if fitting else "an image with an older CUDA"


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
