# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The lab's Docker network."""

from __future__ import annotations

from .engine import Engine
from .errors import LabError
from .names import LABEL, NETWORK, SUBNET


def ensure(engine: Engine) -> None:
    found = engine.inspect("network", NETWORK)
    if found is not None:
        subnets = [config["Subnet"] for config in found["IPAM"]["Config"]]
        if LABEL not in (found.get("Labels") or {}) or subnets != [SUBNET]:
            raise LabError(f"there is a Docker network {NETWORK} that the lab did not make (subnets {subnets}); remove it: docker network rm {NETWORK}")
        return
    result = engine.attempt("network", "create", f"--label={LABEL}=1", f"--subnet={SUBNET}", NETWORK)
    if result.returncode != 0:
        raise LabError(
            f"the lab's network {SUBNET} cannot be made: {result.stderr.strip()}. If another network has these addresses "
            "(docker network ls; ip route), remove that one."
        )
