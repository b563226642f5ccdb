# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a smoke test may be asked for, how long it may take, and what its checks are told of it."""

from __future__ import annotations

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import RequestError

from tests.unit.hosts import BUS_IDS, CONVERGED, facts_for
from tests.unit.smoke_hosts import STAMP, WORLD, request, request_of


@pytest.mark.parametrize("minutes", [1, 2, 600])
def test_a_burn_of_a_minute_is_one(minutes: int) -> None:
    request_of("burn", burn_minutes=minutes).validate()


@pytest.mark.parametrize("minutes", [0, -1])
def test_a_burn_of_less_is_none(minutes: int) -> None:
    with pytest.raises(RequestError, match="burn_minutes of 1 or more"):
        request_of("burn", burn_minutes=minutes).validate()
    # Of the other tiers nobody asks it.
    request(burn_minutes=minutes).validate()


@pytest.mark.parametrize(("tier", "timeout", "seconds"), [("quick", None, 120), ("quick", 77, 77), ("accept", None, 600), ("burn", None, 1200)])
def test_how_long_everything_may_take(tier: str, timeout: int | None, seconds: int) -> None:
    assert request_of(tier, timeout=timeout).limit_s == seconds


@pytest.mark.parametrize("image", ["registry.example/pytorch:26.07", "registry.example/pytorch@sha512:00", "", "sha256:00"])
def test_an_image_that_is_not_named_by_digest_is_refused(image: str) -> None:
    with pytest.raises(RequestError, match="is not given by digest"):
        request(image=image).validate()


@pytest.mark.parametrize("key", ["image_digest", "tier"])
@pytest.mark.parametrize("value", [None, "other"])
def test_a_stamp_of_something_else_is_refused(key: str, value: str | None) -> None:
    with pytest.raises(RequestError, match=f"the stamp to be written says {key}"):
        request(stamp={**STAMP, key: value}).validate()


def test_on_the_cpu_a_divided_card_is_one_part() -> None:
    facts = facts_for(**{**CONVERGED, "gpus": WORLD})
    facts["nvidia_smi"]["gpus"][1]["mig"] = {"current": "enabled", "pending": "enabled", "instances": [{"gi": 7, "ci": 0, "uuid": "MIG-a"}]}
    whole, divided = (request(backend=backend).asked(facts) for backend in ("cpu", "cuda"))
    assert [part.instance for part in whole.parts] == [None, None]
    assert [part.instance for part in divided.parts] == [None, "MIG-a"]
    assert tuple(gpu.pci_bus_id for gpu in divided.gpus) == BUS_IDS[:WORLD]
    assert (divided.driver, divided.mig, divided.tier, divided.backend) == (STAMP["driver"], "off", "quick", "cuda")
