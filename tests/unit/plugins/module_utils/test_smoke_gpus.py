# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPUs a test is about, what gets a process of its own, and which cards are held against each other."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, alike, dtypes_to_run, expected_gpus, parts_of

from tests.unit.hosts import BUS_IDS, CONVERGED, facts_for
from tests.unit.smoke_fakes import gpus, uuid_of


def host(**smi: Any) -> dict[str, Any]:
    """Facts of two GPUs, of which nvidia-smi says this of the first one."""
    facts = facts_for(**{**CONVERGED, "gpus": 2})
    facts["nvidia_smi"]["gpus"][0].update(smi)
    return facts


class TestExpected:
    PLANNED: dict[str, Any] = {  # noqa: RUF012
        "pci_id": "10de:2330",
        "uuid": "GPU-planned",
        "name": "planned",
        "compute_capability": "9.0",
        "model": "h100-sxm5-80gb",
        "memory_gb": 80,
    }

    def test_what_the_plan_says_is_never_taken_from_nvidia_smi(self) -> None:
        """Else a card that was exchanged would be what was expected."""
        [gpu] = expected_gpus([{"pci_bus_id": BUS_IDS[0], **self.PLANNED}], host())
        assert gpu._asdict() == {"pci_bus_id": BUS_IDS[0], **self.PLANNED, "instance": None}
        assert gpu.gpu == {"uuid": "GPU-planned", "pci_bus_id": BUS_IDS[0]}

    def test_what_the_plan_could_not_know_is(self) -> None:
        [gpu] = expected_gpus([{"pci_bus_id": BUS_IDS[0]}], host(name="NVIDIA H100 80GB HBM3"))
        assert (gpu.uuid, gpu.name) == (uuid_of(0), "NVIDIA H100 80GB HBM3")
        assert (gpu.pci_id, gpu.compute_capability, gpu.model, gpu.memory_gb) == (None, None, None, None)

    def test_of_a_card_that_nvidia_smi_does_not_list_nothing_is_known(self) -> None:
        [gpu] = expected_gpus([{"pci_bus_id": BUS_IDS[7]}], host())
        assert (gpu.uuid, gpu.name) == (None, None)


class TestAlike:
    def test_by_pci_id_and_where_there_is_none_by_name(self) -> None:
        one, two, three, four = gpus(4)
        named = [gpu._replace(pci_id=None) for gpu in (three, four)]
        assert list(alike([one, two, *named]).values()) == [[one, two], named]
        # The same id counts, whatever the driver calls it.
        assert list(alike([one, two._replace(name="other")]).values()) == [[one, two._replace(name="other")]]

    @pytest.mark.parametrize("odd", [{"pci_id": None, "name": None}, {"instance": "MIG-1"}])
    def test_what_is_like_no_other(self, odd: dict[str, Any]) -> None:
        assert alike([gpu._replace(**odd) for gpu in gpus(2)]) == {}


class TestParts:
    @staticmethod
    def divided(*instances: dict[str, Any], mode: str = "enabled") -> list[ExpectedGpu]:
        facts = host(mig={"current": mode, "pending": mode, "instances": list(instances)})
        return parts_of(gpus(2), facts)

    def test_instances_in_the_order_of_their_numbers(self) -> None:
        said: list[dict[str, Any]] = [{"gi": 9, "ci": 0, "uuid": "MIG-c"}, {"gi": 7, "ci": 1, "uuid": "MIG-b"}, {"gi": 7, "ci": None, "uuid": "MIG-z"}]
        assert [part.gpu["uuid"] for part in self.divided(*said)] == ["MIG-z", "MIG-b", "MIG-c", uuid_of(1)]

    def test_an_instance_without_a_uuid_can_be_given_to_nobody(self) -> None:
        assert [part.gpu["uuid"] for part in self.divided({"gi": 7, "ci": 0, "uuid": None})] == [uuid_of(1)]

    @pytest.mark.parametrize("mode", ["disabled", "unsupported"])
    def test_a_whole_card_is_one_part(self, mode: str) -> None:
        assert self.divided(mode=mode) == gpus(2)

    def test_a_card_of_which_nothing_is_said_is_whole(self) -> None:
        assert parts_of(gpus(2), host(mig=None)) == gpus(2)
        assert parts_of(gpus(8)[7:], host()) == gpus(8)[7:]


@pytest.mark.parametrize("known", ["7.5", "9.0"])
def test_beside_a_chip_that_nobody_knows_every_format_is_asked_for(known: str) -> None:
    for cards in ([gpus(1, None)[0], gpus(2, known)[1]], [gpus(1, known)[0], gpus(2, None)[1]]):
        assert dtypes_to_run(cards) == ["fp64", "fp32", "fp16", "tf32", "bf16", "fp8"]
