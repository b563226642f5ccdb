# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""``down``: removes all that the lab made, and nothing else."""

from __future__ import annotations

import shutil
from collections.abc import Callable

from . import hosts
from .engine import Engine
from .errors import LabError
from .paths import Layout
from .up import owners


def down(layout: Layout, engine: Engine, keep_images: bool, say: Callable[[str], None]) -> None:
    """With KEEP_IMAGES only containers and network go: the next ``up`` is a matter of seconds. What the lab of another checkout uses stays."""
    found = owners(engine)
    others = sorted({owner for owner in found.values() if owner not in (None, str(layout.checkout))})
    names = [name for name, owner in found.items() if owner == str(layout.checkout) or (owner is None and not others)]
    for name in names:
        hosts.remove(engine, name)
    if others:
        layout.fleet_file.unlink(missing_ok=True)
        if not keep_images:
            shutil.rmtree(layout.state, ignore_errors=True)
        say(f"  removed {len(names)} containers with their volumes; network and images stay, as the lab of {', '.join(others)} uses them")
        return
    networks = engine.ours("network")
    if networks:
        engine.run("network", "rm", *networks)
    say(f"  removed {len(names)} containers with their volumes, {len(networks)} networks")
    layout.fleet_file.unlink(missing_ok=True)
    if keep_images:
        return
    images = engine.ours("image")
    held = [result.stderr.strip() for result in (engine.attempt("image", "rm", "--force", image) for image in images) if result.returncode != 0]
    shutil.rmtree(layout.state, ignore_errors=True)
    say(f"  removed {len(images) - len(held)} images and {layout.state}")
    if held:
        raise LabError(f"images of the lab are used by containers that it did not make; remove those, then run this again. {'; '.join(held)}")
