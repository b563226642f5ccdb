# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The GPUs that a smoke test is about, as the plan names them, and what follows from a card alone. Pure."""

from __future__ import annotations

import re
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.pci import normalize_bus_id
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import LOWEST_CAPABILITY
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Gpu


class ExpectedGpu(NamedTuple):
    """A GPU that the plan expects. ``uuid``, ``name`` and ``compute_capability`` (``9.0``) are None where nothing has told them yet.

    ``model`` is the catalog's slug, ``memory_gb`` what that card is sold with; both None for a card that the catalog does not know. ``instance`` is the
    UUID (``MIG-...``) of the part of a divided GPU that one process gets.
    """

    pci_bus_id: str
    pci_id: str | None = None
    uuid: str | None = None
    name: str | None = None
    compute_capability: str | None = None
    model: str | None = None
    memory_gb: int | None = None
    instance: str | None = None

    @property
    def gpu(self) -> Gpu:
        return Gpu(uuid=self.instance or self.uuid, pci_bus_id=self.pci_bus_id)

    @property
    def kind(self) -> str | None:
        """What two GPUs have in common that must compute alike: the PCI id, which tells form factor and memory too, else the product name."""
        return self.pci_id or self.name


def expected_gpus(given: Iterable[Mapping[str, Any]], facts: Mapping[str, Any]) -> list[ExpectedGpu]:
    """The plan's GPUs by bus id; a UUID or name that the plan could not know yet is taken from nvidia-smi, never the other way round."""
    known = {gpu["pci_bus_id"]: gpu for gpu in facts["nvidia_smi"]["gpus"]}
    gpus = []
    for entry in given:
        bus_id = normalize_bus_id(entry["pci_bus_id"])
        seen = known.get(bus_id, {})
        gpus.append(
            ExpectedGpu(
                bus_id,
                entry.get("pci_id"),
                entry.get("uuid") or seen.get("uuid"),
                entry.get("name") or seen.get("name"),
                entry.get("compute_capability"),
                entry.get("model"),
                entry.get("memory_gb"),
            )
        )
    return sorted(gpus, key=lambda gpu: gpu.pci_bus_id)


def parts_of(gpus: Sequence[ExpectedGpu], facts: Mapping[str, Any]) -> list[ExpectedGpu]:
    """What gets a process of its own: each whole GPU, and each instance of a divided one by its UUID, in the order of bus ids."""
    known = {gpu["pci_bus_id"]: gpu for gpu in facts["nvidia_smi"]["gpus"]}
    parts: list[ExpectedGpu] = []
    for gpu in gpus:
        mig = known.get(gpu.pci_bus_id, {}).get("mig") or {}
        if mig.get("current") != "enabled":
            parts.append(gpu)
            continue
        instances = sorted((entry["gi"], entry["ci"] or 0, entry["uuid"]) for entry in mig["instances"] if entry["uuid"])
        parts += [gpu._replace(instance=uuid) for _gi, _ci, uuid in instances]
    return parts


def alike(gpus: Sequence[ExpectedGpu]) -> dict[str, list[ExpectedGpu]]:
    """The whole GPUs by kind; one whose kind nobody knows is like no other, and a part of one is no card to compare."""
    found: dict[str, list[ExpectedGpu]] = {}
    for gpu in gpus:
        if gpu.kind and gpu.instance is None:
            found.setdefault(gpu.kind, []).append(gpu)
    return found


def capability(text: str | None) -> tuple[int, int] | None:
    """``9.0`` as (9, 0); None where it is not one."""
    match = re.fullmatch(r"(\d+)\.(\d+)", text or "")
    return (int(match.group(1)), int(match.group(2))) if match else None


def dtypes_of(gpu: ExpectedGpu) -> list[str]:
    """Number formats that this GPU must compute exactly. Of an unknown chip those that every chip has; it runs its others as well, and they count."""
    chip = capability(gpu.compute_capability) or (7, 0)
    return [dtype for dtype, lowest in LOWEST_CAPABILITY.items() if chip >= lowest]


def dtypes_to_run(gpus: Sequence[ExpectedGpu]) -> list[str]:
    """Number formats that the payload is asked for; each rank leaves out what its own chip lacks."""
    if any(capability(gpu.compute_capability) is None for gpu in gpus):
        return list(LOWEST_CAPABILITY)
    return [dtype for dtype in LOWEST_CAPABILITY if any(dtype in dtypes_of(gpu) for gpu in gpus)]
