# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Which GPU each process in the container had, and whether the image and the driver's library in it fit that GPU. Pure: an outcome in, checks out."""

from __future__ import annotations

import re
from typing import Any, Mapping, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.pci import normalize_bus_id
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_container import without_result
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, capability
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.identity import built_for
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Outcome, RankLog
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, DEGRADED, FAIL, PASS, Check, make_check

GPU_IDENTITY = "gpu_identity"
IMAGE_ARCHITECTURE = "image_architecture"
IMAGE_REMEDY = "use an image built for this GPU (pytorch_image_ref)"
# What CUDA says where the surroundings keep it from a GPU, and what mends that. Everything else that it says is held against the GPU.
SURROUNDINGS = {
    "no kernel image is available": IMAGE_REMEDY,
    "Error 803": "reboot the host: the driver in the container is another version than the loaded module",
    "Error 804": "a forward-compatibility libcuda was loaded: take its folder (cuda/compat) out of the image's library path, or use another image",
    "forward compatibility was attempted": "a forward-compatibility libcuda was loaded: take its folder (cuda/compat) out of the image's library path",
    "busy or unavailable": "somebody uses the GPU, or its compute mode is exclusive: `nvidia-smi -c DEFAULT`",
    "no CUDA-capable device": "look at the device nodes in the container; `systemctl restart nvidia-cdi-refresh.service` makes their list anew",
    "driver version is insufficient": "use a newer driver branch, or an image with an older CUDA (pytorch_image_ref)",
    "driver on your system is too old": "use a newer driver branch, or an image with an older CUDA (pytorch_image_ref)",
    "Found no NVIDIA driver": "look whether the container was given the driver's libraries: `nvidia-ctk cdi list`",
}
IN_CONTAINER = "torch in the container"


def owners_of(gpus: Sequence[ExpectedGpu], outcome: Outcome) -> dict[int, ExpectedGpu]:
    """Which GPU, or part of one, each rank had: by what it was given and CUDA says, and where a rank could not tell by its number in bus order."""
    by_instance = {gpu.instance: gpu for gpu in gpus if gpu.instance}
    by_bus_id = {gpu.pci_bus_id: gpu for gpu in gpus if not gpu.instance}
    by_uuid = {gpu.uuid: gpu for gpu in gpus if gpu.uuid and not gpu.instance}
    owners: dict[int, ExpectedGpu] = {}
    for rank, log in outcome.transcript.ranks.items():
        said = identity_of(log)
        bus_id = bus_id_of(said.get("pci_bus_id"))
        owner = by_instance.get(str(said.get("visible"))) or by_bus_id.get(bus_id or "") or by_uuid.get(str(said.get("uuid")))
        if owner:
            owners[rank] = owner
    free = [gpu for gpu in gpus if gpu not in owners.values()]
    for rank, log in outcome.transcript.ranks.items():
        said = identity_of(log)
        if rank in owners or said.get("pci_bus_id") or said.get("uuid"):
            continue
        index = rank - outcome.container.first
        if index < len(gpus) and gpus[index] in free:
            owners[rank] = gpus[index]
    return owners


def identity_of(log: RankLog) -> Mapping[str, Any]:
    said = log.found.get(GPU_IDENTITY)
    return said if isinstance(said, dict) else {}


def bus_id_of(text: Any) -> str | None:
    try:
        return normalize_bus_id(str(text))
    except ValueError:
        return None


def gpu_identity(rank: int, gpu: ExpectedGpu, log: RankLog, outcome: Outcome) -> Check:
    """The rank had the GPU that the plan names: bus id, UUID and capability as CUDA says them; on the CPU only that its node is there."""
    said = dict(identity_of(log))
    value = {"rank": rank, **said}
    refused = sorted(log.results.get(GPU_IDENTITY, []), key=lambda result: result.status != FAIL)
    if refused or not said:
        result = (refused or [without_result(rank, GPU_IDENTITY, outcome)])[0]
        surroundings = next((remedy for words, remedy in SURROUNDINGS.items() if words in (result.reason or "")), None)
        status = FAIL if result.status == FAIL and not surroundings else COULD_NOT_RUN
        remedy = surroundings or "look for Xid messages in `dmesg`; error 802 is the fabric's: `systemctl status nvidia-fabricmanager`"
        return make_check(GPU_IDENTITY, status, result.reason, remedy=remedy, value=value, source=IN_CONTAINER, gpu=gpu.gpu, duration_s=result.duration_s)
    if outcome.container.backend == "cpu":
        return make_check(GPU_IDENTITY, PASS, value=value, source="device nodes in the container", gpu=gpu.gpu)
    # The parts of one GPU may have its UUID in common; what a rank was given tells them apart.
    mark = "visible" if gpu.instance else "uuid"
    twice = [r for r, other in outcome.transcript.ranks.items() if r != rank and said.get(mark) and identity_of(other).get(mark) == said[mark]]
    told = {"pci_bus_id": bus_id_of(said.get("pci_bus_id")), mark: said.get(mark), "compute_capability": said.get("compute_capability")}
    wanted = {"pci_bus_id": gpu.pci_bus_id, mark: gpu.instance or gpu.uuid, "compute_capability": gpu.compute_capability}
    differs = [f"{key} is {told[key]}, the plan says {wanted[key]}" for key in told if told[key] and wanted[key] and told[key] != wanted[key]]
    if twice:
        differs.append(f"rank {twice[0]} had the same GPU")
    if differs:
        remedy = "plan again: the card in this slot is another one than planned"
        return make_check(GPU_IDENTITY, FAIL, "; ".join(differs), remedy=remedy, value=value, source=IN_CONTAINER, gpu=gpu.gpu)
    if not told["pci_bus_id"] and not (told[mark] and wanted[mark]):
        return make_check(GPU_IDENTITY, COULD_NOT_RUN, "CUDA told neither bus id nor UUID", value=value, source=IN_CONTAINER, gpu=gpu.gpu)
    return make_check(GPU_IDENTITY, PASS, value=value, source=IN_CONTAINER, gpu=gpu.gpu)


def image_architecture(rank: int, gpu: ExpectedGpu, log: RankLog, outcome: Outcome) -> Check:
    """torch in the image has code for the chip. An image without it says nothing about the GPU, so this never fails one."""
    torch = log.found.get("torch")
    told = torch.get("arch_list") if isinstance(torch, dict) else None
    architectures = [str(name) for name in told] if isinstance(told, list) else []
    chip = identity_of(log).get("compute_capability")
    value = {"arch_list": architectures, "capability": chip}
    found = capability(chip if isinstance(chip, str) else None)
    status, reason, remedy = COULD_NOT_RUN, None, None
    if found is None:
        cause = (log.results.get(GPU_IDENTITY) or [without_result(rank, GPU_IDENTITY, outcome)])[0].reason
        reason = f"the GPU's compute capability was not told: {cause}"
    elif not architectures:
        reason = "torch in the image does not tell which GPUs it was built for"
        remedy = IMAGE_REMEDY
    elif not built_for(architectures, found):
        reason = f"torch in the image was built for {' '.join(architectures)}, which has no code for compute capability {chip}"
        remedy = IMAGE_REMEDY
    else:
        status = PASS
    return make_check(IMAGE_ARCHITECTURE, status, reason, remedy=remedy, value=value, source=IN_CONTAINER, gpu=gpu.gpu)


def lacks_kernels(reason: str | None) -> bool:
    """CUDA's own words for an image, or an extension in it, without code for the GPU."""
    return "no kernel image is available" in (reason or "")


def image_cuda(gpu: ExpectedGpu, log: RankLog, driver_cuda: str | None) -> Check:
    """The driver serves the image's CUDA: any of its own major version and older ones."""
    torch = log.found.get("torch")
    told = torch.get("cuda") if isinstance(torch, dict) else None
    value = {"image": told, "driver": driver_cuda}
    image, driver = capability(told if isinstance(told, str) else None), capability(driver_cuda)
    status, reason, remedy = PASS, None, None
    if image is None or driver is None:
        status = COULD_NOT_RUN
        reason = "torch in the image does not tell its CUDA" if image is None else "nvidia-smi does not tell which CUDA the driver serves"
        remedy = IMAGE_REMEDY if image is None else None
    elif image[0] > driver[0]:
        status, reason = COULD_NOT_RUN, f"torch in the image is built with CUDA {told}, the driver serves CUDA {driver_cuda}"
        remedy = "use a newer driver branch, or an image with an older CUDA (pytorch_image_ref)"
    return make_check("image_cuda", status, reason, remedy=remedy, value=value, source="torch in the container, nvidia-smi", gpu=gpu.gpu)


def libcuda(gpu: ExpectedGpu, log: RankLog, driver: str | None) -> Check:
    """The process computed with the driver's own libcuda. One that the image brings (forward compatibility) shows in no version number, only here."""
    path = identity_of(log).get("libcuda")
    value = {"libcuda": path, "driver": driver}
    match = re.search(r"libcuda\.so\.([0-9]+(?:\.[0-9]+)+)", path if isinstance(path, str) else "")
    status, reason, remedy = PASS, None, None
    if not isinstance(path, str) or not path:
        status, reason = COULD_NOT_RUN, "the process did not tell which libcuda it had loaded"
    elif "/compat" in path or (match and driver and match.group(1) != driver):
        status, reason = COULD_NOT_RUN, f"the process had loaded {path}, which is not of the driver {driver or 'that is loaded'}"
        remedy = "take the folder out of the image's library path (LD_LIBRARY_PATH, /etc/ld.so.conf.d), or use another image (pytorch_image_ref)"
    elif match is None or driver is None:
        status, reason = DEGRADED, f"whether {path} is of the driver cannot be told by its name"
    return make_check("libcuda", status, reason, remedy=remedy, value=value, floor=driver, source="/proc/self/maps in the container", gpu=gpu.gpu)
