# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which releases suit a host: what a refusal offers instead of the one that does not. Pure."""

from __future__ import annotations

from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog, Table
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import Context, flavours_of
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least, numbers


def instead(context: Context, otherwise: str) -> str:
    """The remedy of a refusal: the other releases that suit the host, or ``otherwise`` when none does."""
    names = [name for name in suitable(context) if name != context.request.release]
    return f"set gpu_stack_release: {' or '.join(names)}" if names else otherwise


def suitable(context: Context) -> list[str]:
    """Releases that suit every known GPU of the host, its distribution and its architecture."""
    return [name for name, release in sorted(context.catalog.releases.items()) if _suits(context, release)]


def _suits(context: Context, release: Table) -> bool:
    catalog, driver = context.catalog, release["driver"]
    slugs = {gpu.slug for gpu in context.gpus if gpu.slug is not None}
    cell = catalog.driver_cell(context.distribution, context.architecture, driver["branch"])
    if cell is None or ended(context, driver["branch"]) is not None:
        return False
    shipped = catalog.drivers["branches"][driver["branch"]]["flavours"]
    flavours = [flavour for flavour in flavours_of(catalog, slugs) if flavour in cell["flavours"] and flavour in shipped]
    if not flavours or driver.get("flavour", flavours[0]) not in flavours:
        return False
    image = catalog.image(release["image"])
    return all(
        not_listed(catalog, slug, driver["branch"], driver["at_least"]) is None and (image is None or not lacks_code(catalog, image, context.platform, slug))
        for slug in slugs
    )


def ended(context: Context, branch: str) -> str | None:
    """Since when a branch gets no fixes, in words, by the date of the facts; None while it does."""
    known = context.catalog.drivers["branches"][branch]
    end = known["end_of_life"]
    if known["status"] == "ended" or (end is not None and str(context.facts["collected_at"])[:7] > end):
        return f"ended in {end}" if end is not None else "ended"
    return None


def not_listed(catalog: Catalog, slug: str, branch: str, version: str | None) -> tuple[str, str, str] | None:
    """Why a driver does not serve a GPU, as the three parts of a refusal, or None. Without a version the branch alone is looked at."""
    gpu = catalog.gpus[slug]
    name, last = gpu["name"], catalog.drivers["architectures"][gpu["architecture"]]["last_branch"]
    if last is not None and int(branch) > int(last):
        family = catalog.drivers["architectures"][gpu["architecture"]]["name"]
        return f"{family} ends with driver branch {last}", f"{name} does not work with branch {branch}", f"use branch {last}"
    if branch in gpu.get("missing_in_branch", []):
        return f"{name} is missing in driver branch {branch}", "that branch does not know it", "use another branch"
    first = gpu.get("late_in_branch", {}).get(branch) or gpu["first_driver"]
    platform = gpu.get("platform")
    floor = max((entry for entry in (first, platform and platform["driver"]) if entry is not None), key=numbers, default=None)
    if floor is None:
        return None
    # Of a branch without a version only this is certain: an older branch has no newer driver.
    if at_least(version, floor) if version is not None else int(branch) >= numbers(floor)[0]:
        return None
    found = f"driver {version}" if version is not None else f"driver branch {branch}"
    if platform is not None and floor == platform["driver"]:
        return f"{name} needs driver {floor} or newer ({platform['name']})", f"{found} does not serve it", f"use driver {floor} or newer"
    return f"{name} is listed from driver {floor}", f"{found} does not know it", f"use driver {floor} or newer"


def lacks_code(catalog: Catalog, image: Table, platform: str, slug: str) -> bool:
    """Whether an image certainly has nothing that runs on a GPU: by its list of code, else by its CUDA, which makes no code for what it has dropped."""
    gpu = catalog.gpus[slug]
    code = image["architectures"].get(platform)
    return dropped(catalog, image, slug) is not None if code is None else runs_on(code, gpu["compute_capability"]) is None


def dropped(catalog: Catalog, image: Table, slug: str) -> str | None:
    """The last CUDA of a GPU's family, where that of an image is newer."""
    last: str | None = catalog.drivers["architectures"][catalog.gpus[slug]["architecture"]]["last_cuda"]
    return last if last is not None and int(image["cuda"].partition(".")[0]) > int(last) else None


def runs_on(architectures: str, capability: str) -> str | None:
    """Which compiled code a GPU runs: same major and no higher minor, else portable code that is not newer. None: nothing."""
    major, minor = (int(part) for part in capability.split("."))
    best = None
    for entry in architectures.split():
        code_major, code_minor = (int(part) for part in entry.removesuffix("+PTX").split("."))
        if code_major == major and code_minor <= minor:
            best = f"sm_{code_major}{code_minor}"
        elif best is None and entry.endswith("+PTX") and (code_major, code_minor) <= (major, minor):
            best = f"compute_{code_major}{code_minor}"
    return best
