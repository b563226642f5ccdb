# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Faults of the simulated hardware, by the host's own simulator."""

from __future__ import annotations

from collections.abc import Callable

from .engine import Engine
from .errors import LabError

SIMULATOR = "/opt/gpu-host-sim/bin/gpu-host-sim"


def inject(engine: Engine, verb: str, host: str, fault: str | None, say: Callable[[str], None]) -> None:
    """VERB: break or heal. What there is no fault of, the simulator says with the names of all."""
    known = engine.containers("host")
    if host not in known:
        raise LabError(f"the lab has no host {host}; it has {', '.join(sorted(known))}" if known else "the lab is not up; run ./dev lab up")
    result = engine.attempt("exec", host, SIMULATOR, verb, *([fault] if fault else []))
    if result.returncode != 0:
        raise LabError(f"{host} could not {verb} {fault or 'everything'}: {(result.stderr or result.stdout).strip()}")
    say(result.stdout.strip() or f"{host}: {verb} {fault or 'everything'}: done")
