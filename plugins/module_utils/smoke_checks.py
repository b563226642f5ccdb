# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""From facts and the payload's output to checks: everything of one test in the order in which one thing explains the next. Pure.

Fail closed: an absent fact is ``could_not_run``, and a pass that the payload reports counts only with the numbers that show the work.
"""

from __future__ import annotations

import re
from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_evidence, smoke_figures
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_container import LOST_RESULT, SILENT_REMEDY, container_limits, container_run, without_result
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import ALL_REDUCE, HOST_COPIES, Figure, Floors, speed
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_health import fabric, gpu_health
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import (
    Bought,
    Counted,
    Facts,
    compute_mode,
    device_nodes,
    driver_library_match,
    gpu_count,
    gpu_idle,
    gpu_memory,
    gpu_model,
    imex,
    mig_mode,
    persistence,
)
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_identity import (
    GPU_IDENTITY,
    IMAGE_REMEDY,
    gpu_identity,
    identity_of,
    image_architecture,
    image_cuda,
    lacks_kernels,
    libcuda,
    owners_of,
)
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container, Outcome, Result, nccl_warnings
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_tiers import (
    BURN,
    COLLECTIVES,
    GROUP_FIGURES,
    OPTIONAL_TRAININGS,
    PAIR_EXACT,
    figures_of,
    part_checks,
)
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, FAIL, PASS, Check, make_check

BETWEEN_GPUS = (*COLLECTIVES, PAIR_EXACT)
_WITHOUT_PEERS = "GPUs of this host have no way to each other: set smoke_test_env NCCL_CUMEM_HOST_ENABLE: 0, or NCCL_P2P_DISABLE: 1, and look at pcie_path"
# What NCCL says where a setting of it keeps it from starting on sound GPUs, and that setting (nccl#1838, nccl#2190).
NCCL_SETTINGS = {
    "failure 217": _WITHOUT_PEERS,
    "peer access is not supported": _WITHOUT_PEERS,
    "(size 0)": "the ranks do not agree on how to share host memory: set smoke_test_env NCCL_CUMEM_HOST_ENABLE: 0, and test again",
}
# The same of what may be the machine as well, so that it stays a failure (nccl#1925, nccl#2106: a crash where memory lies unevenly on the NUMA nodes).
NCCL_HINTS = {
    "cuMem": "set smoke_test_env NCCL_CUMEM_ENABLE: 0 and NCCL_CUMEM_HOST_ENABLE: 0, and test again",
    "SIGSEGV": "look for Xid in `dmesg`; without one set smoke_test_env NCCL_CUMEM_HOST_ENABLE: 0, or use driver branch 595 or later, and test again",
}
# Of copies between a GPU and its host, the same way in the other direction.
OTHER_WAY = {name: other for name in HOST_COPIES for other in HOST_COPIES if other != name}
# What is looked at on the host before the work, and again with what the container saw.
SEEN_TWICE = ("gpu_count", "gpu_model", "gpu_memory", "device_nodes")


class Asked(NamedTuple):
    """What the plan asks of a host: its cards, what was bought, the driver, how the cards are divided, what cannot apply, and the floors."""

    gpus: Sequence[ExpectedGpu]
    parts: Sequence[ExpectedGpu]
    tier: str
    backend: str
    bought: Bought | None
    driver: str | None
    mig: Any
    excused: Mapping[str, str]
    floors: Floors

    @property
    def model(self) -> str | None:
        """The model of all of them together; None where there are several."""
        models = {gpu.model for gpu in self.gpus}
        return models.pop() if len(models) == 1 else None


def host_checks(asked: Asked, facts: Facts) -> list[Check]:
    """All that is looked at before a container is started."""
    gpus = asked.gpus
    return [
        gpu_idle(facts),
        gpu_count(gpus, facts, asked.bought),
        *(gpu_model(gpu, facts, asked.bought) for gpu in gpus),
        *(gpu_memory(gpu, facts) for gpu in gpus),
        driver_library_match(facts, asked.driver),
        device_nodes(gpus, facts),
        *(compute_mode(gpu, facts) for gpu in gpus),
        *(mig_mode(gpu, facts, asked.mig) for gpu in gpus),
        imex(facts, asked.excused),
        *(persistence(gpu, facts) for gpu in gpus),
        *gpu_health(gpus, facts),
        *fabric(gpus, facts, asked.excused),
    ]


def container_checks(asked: Asked, facts: Facts, outcome: Outcome, without_nvls: Figure | None = None) -> list[Check]:
    """Every check that the container's run gives, its own first. ``without_nvls``: the all-reduce measured again."""
    logs = outcome.transcript.ranks
    owners = owners_of(asked.parts, outcome)
    nodes = [log.found["device_nodes"] for log in logs.values() if isinstance(log.found.get("device_nodes"), dict)]
    checks = [
        container_run(outcome, owners),
        container_limits(outcome),
        gpu_count(asked.gpus, facts, asked.bought, _counted(outcome, len(asked.gpus))),
        *_seen_again(asked, facts, outcome, owners),
        device_nodes(asked.gpus, facts, nodes[0])
        if nodes
        else make_check("device_nodes", COULD_NOT_RUN, "the container told no device nodes", remedy=SILENT_REMEDY, source="/dev"),
    ]
    for rank, log in logs.items():
        part = owners.get(rank)
        if part is None:
            continue
        checks.append(gpu_identity(rank, part, log, outcome))
        if asked.backend == "cuda":
            driver = facts["nvidia_smi"]["driver_version"]
            checks += [image_architecture(rank, part, log, outcome), image_cuda(part, log, facts["nvidia_smi"]["cuda_version"]), libcuda(part, log, driver)]
        checks += payload_checks(rank, part, asked, outcome)
    return [*checks, *speed_checks(asked, outcome, owners, without_nvls), *_products(asked, outcome, owners)]


def _counted(outcome: Outcome, gpus: int) -> Counted:
    told = {rank: identity_of(log).get("device_count") for rank, log in outcome.transcript.ranks.items() if identity_of(log)}
    whole = {rank: smoke_figures.integer(count) for rank, count in told.items()}
    devices = {rank: -1 if count is None else count for rank, count in whole.items()}
    return Counted(devices, 1 if outcome.container.visible else gpus)


def _seen_again(asked: Asked, facts: Facts, outcome: Outcome, owners: Mapping[int, ExpectedGpu]) -> list[Check]:
    """Model and memory of each card with what CUDA says of it; without CUDA there is nothing more to say than before."""
    said = {part.pci_bus_id: (part, identity_of(outcome.transcript.ranks[rank])) for rank, part in owners.items() if asked.backend == "cuda"}
    checks = []
    for gpu in asked.gpus:
        part, identity = said.get(gpu.pci_bus_id, (gpu, None))
        of_card = [gpu_model(part, facts, asked.bought, identity or None), gpu_memory(part, facts, identity or None)]
        for check in of_card:
            check["gpu"] = gpu.gpu  # of the card, also where a part of it told
        checks += of_card
    return checks


def payload_checks(rank: int, part: ExpectedGpu, asked: Asked, outcome: Outcome) -> list[Check]:
    """The checks that the payload made on one part, required ones without a result included."""
    log = outcome.transcript.ranks[rank]
    said = nccl_warnings(log)
    mine = [name for name in part_checks(part, asked.tier, asked.backend) if name.startswith(_FAMILIES) or name in _BY_PAYLOAD]
    # What it ran beyond that counts too: formats of a chip that the catalog does not know, and what only some images can do.
    more = [name for name in log.results if name.startswith(_FAMILIES)]
    checks = []
    for name in dict.fromkeys([*mine, *more]):
        if name in asked.excused and name not in log.results:
            continue
        if name in log.results:
            checks += [from_payload(name, result, part, outcome.container, said) for result in log.results[name]]
        else:
            checks.append(from_payload(name, without_result(rank, name, outcome), part, outcome.container, ()))
    # A failure that nobody asked for was seen all the same; figures and the identity have their own place.
    figures = {*figures_of(part, asked.tier, asked.backend), *(name for name in GROUP_FIGURES if name in outcome.container.figures)}
    for name in [name for name in log.results if name not in {*mine, *more, *figures, GPU_IDENTITY}]:
        shown = name if _NAME.fullmatch(name) else "payload"
        checks += [from_payload(shown, result, part, outcome.container, said) for result in log.results[name] if result.status == FAIL]
    return checks


_NAME = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)*")
_FAMILIES = (smoke_evidence.EXACT, smoke_evidence.REPEAT, smoke_evidence.TRAINING)
_BY_PAYLOAD = (*COLLECTIVES, PAIR_EXACT, BURN)


# --- figures ---------------------------------------------------------------------------------------------------------------------------


def speed_checks(asked: Asked, outcome: Outcome, owners: Mapping[int, ExpectedGpu], without_nvls: Figure | None) -> list[Check]:
    """Every figure, judged; where the plan says that nothing is to hold it against, it is only told."""
    checks: list[Check] = []
    names = list(dict.fromkeys(name for part in asked.parts for name in figures_of(part, asked.tier, asked.backend)))
    figures = {name: _figures(name, asked, outcome, owners) for name in names}
    for name in names:
        mine = [figure for _part, figure in figures[name]]
        if speed(name) in asked.excused:
            checks += [smoke_figures.only_told(name, figure, asked.excused[speed(name)]) for figure in mine]
            continue
        back = OTHER_WAY.get(name, "")
        backs = {part.pci_bus_id: figure.value["median"] for part, figure in figures.get(back, []) if _is_figure(back, figure)}
        checks += smoke_figures.judge_gpus(name, mine, asked.floors, backs)
    for name in GROUP_FIGURES:
        if name not in outcome.container.figures:
            continue
        if speed(name) in asked.excused:
            checks.append(smoke_figures.only_told(name, _of_all(name, outcome)[0], asked.excused[speed(name)]))
        elif name == ALL_REDUCE:
            checks.append(smoke_figures.judge_all_reduce(all_reduce(outcome), asked.floors, asked.model, len(asked.parts), without_nvls))
        else:
            checks += smoke_figures.judge_pairs(_of_all(name, outcome)[0], asked.parts, asked.floors, uniform="fabric" not in asked.excused)
    return checks


def _is_figure(name: str, figure: Figure) -> bool:
    return smoke_figures.missing_figure(name, figure) is None


def _figures(name: str, asked: Asked, outcome: Outcome, owners: Mapping[int, ExpectedGpu]) -> list[tuple[ExpectedGpu, Figure]]:
    """A figure of each part whose process should have it."""
    return [(part, _figure(rank, part, name, outcome)) for rank, part in owners.items() if name in figures_of(part, asked.tier, asked.backend)]


def _figure(rank: int, part: ExpectedGpu | None, name: str, outcome: Outcome) -> Figure:
    """What a rank measured; of two values the lower one, and of none why."""
    log = outcome.transcript.ranks[rank]
    values = log.measured.get(name, [])
    failed = next((result for result in log.results.get(name, []) if result.status == FAIL), None)
    if failed:
        return Figure(part, failed.value, failed.reason or "the payload gave no reason", True)
    odd = [value for value in values if smoke_figures.lacking(name, value)]
    if values:
        return Figure(part, odd[0] if odd else min(values, key=lambda value: float(value["median"])))
    result = (log.results.get(name) or [without_result(rank, name, outcome)])[0]
    return Figure(part, result.value, result.reason or f"the payload said {result.status!r}", result.status == FAIL)


def _of_all(name: str, outcome: Outcome) -> list[Figure]:
    """A figure of all ranks together, as each of them tells it; a failure of any of them is one of all."""
    every = [_figure(rank, None, name, outcome) for rank in outcome.transcript.ranks]
    return [figure for figure in every if figure.failed] or every


def all_reduce(outcome: Outcome) -> Figure:
    """The bus bandwidth of all ranks together: the lowest that any of them measured, and none where one of them has none."""
    every = _of_all(ALL_REDUCE, outcome)
    missing = [figure for figure in every if not _is_figure(ALL_REDUCE, figure)]
    return missing[0] if missing else min(every, key=lambda figure: float(figure.value["median"]))


def _products(asked: Asked, outcome: Outcome, owners: Mapping[int, ExpectedGpu]) -> list[Check]:
    hashes = {part.pci_bus_id: outcome.transcript.ranks[rank].found.get("product_hash") for rank, part in owners.items()}
    return smoke_figures.product_match(asked.parts, hashes)


# --- what the payload says, and whether it shows its work -------------------------------------------------------------------------------


def from_payload(name: str, result: Result, part: ExpectedGpu, container: Container, said: Sequence[str]) -> Check:
    """A payload's result as a check. A pass without the numbers of the whole work is none. ``said``: warnings of the rank's NCCL."""
    status, reason, remedy = result.status, result.reason, None
    lacking = smoke_evidence.lacking(name, result.value, container) if status == PASS else None
    if lacking:
        status, reason, remedy = COULD_NOT_RUN, f"the payload said pass, but {lacking}", SILENT_REMEDY
    elif status not in (PASS, FAIL, COULD_NOT_RUN):
        status, reason, remedy = COULD_NOT_RUN, f"the payload said {status!r}: {reason or 'no reason given'}", SILENT_REMEDY
    if lacks_kernels(reason):
        status, remedy = COULD_NOT_RUN, IMAGE_REMEDY
    setting = _setting(name, result, said)
    if setting:
        status, remedy = COULD_NOT_RUN, setting
    remedy = remedy or _remedy(name, status, reason or "")
    source = "{} in the container".format("torch.distributed" if name in BETWEEN_GPUS else "torch")
    # What only some images can do counts where it ran.
    required = status == FAIL or name not in OPTIONAL_TRAININGS
    return make_check(name, status, reason, remedy=remedy, value=result.value, source=source, gpu=part.gpu, duration_s=result.duration_s, required=required)


def _setting(name: str, result: Result, said: Sequence[str]) -> str | None:
    """What to set where NCCL could not start for want of it. Where it did start and compared something, its numbers count."""
    if name not in BETWEEN_GPUS or result.status not in (FAIL, COULD_NOT_RUN) or isinstance(result.value, dict):
        return None
    text = "\n".join([result.reason or "", *said])
    return next((setting for words, setting in NCCL_SETTINGS.items() if words in text), None)


def _remedy(name: str, status: str, reason: str) -> str | None:
    if reason.startswith(LOST_RESULT):
        return "test again; if it comes back, look for what else writes to the output of processes in the image (pytorch_image_ref, smoke_test_env)"
    if status == FAIL and name in BETWEEN_GPUS:
        remedy = "look for Xid and NVLink errors in `dmesg` and `nvidia-smi nvlink -e`, and at pcie_path; run again with smoke_test_env NCCL_DEBUG=INFO"
        return next((hint for words, hint in NCCL_HINTS.items() if words in reason), remedy)
    if status == FAIL:
        return "take the GPU out of use; look for Xid and ECC messages in `dmesg` and `nvidia-smi -q`, repeat the test, then have it replaced"
    return "nothing, unless the image shall be able to do it (pytorch_image_ref)" if name in OPTIONAL_TRAININGS and status != PASS else None
