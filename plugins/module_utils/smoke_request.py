# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a smoke test is asked for, and whether that can be."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_tiers
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_checks import Asked
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_container import parse_size, parse_ulimit
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import expected_gpus, parts_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import Bought
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import ACCEPTED_AS


class RequestError(ValueError):
    """The module was asked for something that cannot be; the sentence says what."""


# Of the container's /dev/shm, where nobody asks for another.
SHM_SIZE = "1g"


class Request(NamedTuple):
    """What is to be tested. ``gpus``: as the plan lists them; ``bought``: gpu_expected; ``stamp``: what to write on success; ``timeout``: seconds for
    everything, None for what the tier may take; ``planned``: False where another tier than the plan's is asked for.
    """

    image: str
    backend: str
    tier: str
    gpus: list[dict[str, Any]]
    ulimits: list[str]
    shm_size: str
    env: dict[str, str]
    not_applicable: dict[str, str]
    degraded: str
    stamp: dict[str, Any]
    timeout: int | None = None
    bought: Bought | None = None
    floors: Mapping[str, Any] = {}
    burn_minutes: int = 0
    data_paths: Sequence[str] = ()
    planned: bool = True

    @property
    def limit_s(self) -> int:
        return self.timeout or smoke_tiers.limit_s(self.tier, len(self.gpus), self.backend, self.burn_minutes)

    def validate(self) -> None:
        """RequestError where the request contradicts itself: a stamp must never name what was not tested."""
        digest = self.image.partition("@")[2]
        if not digest.startswith("sha256:"):
            raise RequestError(f"image {self.image!r} is not given by digest (name@sha256:...), so what was tested would not be known")
        for key, mine in (("image_digest", digest), ("tier", self.tier)):
            if self.stamp.get(key) != mine:
                raise RequestError(f"the stamp to be written says {key} {self.stamp.get(key)!r}, but {mine!r} is tested")
        if self.tier == "burn" and self.burn_minutes < 1:
            raise RequestError("tier burn needs burn_minutes of 1 or more")
        if not self.gpus:
            raise RequestError("no GPUs are given, and a test of none shows nothing")
        try:
            bus_ids = [gpu.pci_bus_id for gpu in expected_gpus(self.gpus, {"nvidia_smi": {"gpus": []}})]
            for ulimit in self.ulimits:
                parse_ulimit(ulimit)
            parse_size(self.shm_size)
        except ValueError as error:
            raise RequestError(str(error)) from error
        twice = sorted({bus_id for bus_id in bus_ids if bus_ids.count(bus_id) > 1})
        if twice:
            raise RequestError(f"GPU {twice[0]} is given twice")

    def in_tier(self, tier: str) -> Request:
        """The same test, more or less thorough than planned. What the plan excuses and floors hold for every tier."""
        if tier == self.tier:
            return self
        return self._replace(tier=tier, stamp={**self.stamp, "tier": tier}, timeout=None, planned=False)

    def asked(self, facts: Mapping[str, Any]) -> Asked:
        """What the checks need to know of it, on a host with these facts. On the CPU there is one process for each card, divided or not."""
        gpus = expected_gpus(self.gpus, facts)
        parts = parts_of(gpus, facts) if self.backend == "cuda" else gpus
        driver, mig = self.stamp.get("driver"), self.stamp.get("mig")
        return Asked(gpus, parts, self.tier, self.backend, self.bought, driver, mig, self.not_applicable, self.floors)


def request_of(values: Mapping[str, Any]) -> Request:
    """The request in the plan's own words (``areas.smoke_test.desired``), which are also the options of gpu_smoke_test.

    RequestError where a word is none that is known; KeyError, TypeError or AttributeError where it is not of this shape.
    """
    bought = values["expected"]
    for name, known in (("tier", smoke_tiers.TIERS), ("backend", tuple(ACCEPTED_AS)), ("degraded", ("accept", "reject"))):
        if values[name] not in known:
            raise RequestError(f"{name} {values[name]!r} is not one of {', '.join(known)}")
    return Request(
        image=values["image"],
        backend=values["backend"],
        tier=values["tier"],
        gpus=values["gpus"],
        ulimits=values["ulimits"],
        shm_size=values.get("shm_size", SHM_SIZE),
        env={str(key): str(value) for key, value in values["env"].items()},
        not_applicable={str(key): str(value) for key, value in values["not_applicable"].items()},
        degraded=values["degraded"],
        stamp=values["stamp"],
        timeout=values["timeout"],
        bought=Bought(bought["model"], bought["count"]) if bought else None,
        floors=values["floors"],
        burn_minutes=values["burn_minutes"],
        data_paths=values["data_paths"],
    )
