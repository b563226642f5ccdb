# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the smoke test requires, and what facts and the payload's output say about it. Pure: facts and transcripts in, checks out.

Fail closed: an absent fact is ``could_not_run``, and a pass that the payload reports counts only with the numbers that show the work.
"""

from __future__ import annotations

import re
import signal
from types import MappingProxyType
from typing import Any, Iterable, Mapping, NamedTuple, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.holders import container_words
from ansible_collections.rackready.gpu.plugins.module_utils.pci import normalize_bus_id
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.exchange import REDUCE_ROUNDS, VECTORS
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.identity import built_for
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import LOWEST_CAPABILITY, REPEATS, SHAPES
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.report import MARK
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.surroundings import count_gpu_nodes
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import ChildResult, Container, RankLog, Result, Transcript, crashed_rank
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, FAIL, NOT_APPLICABLE, PASS, Check, Gpu, Requirement, make_check

Facts = Mapping[str, Any]
HOST_CHECKS = ("gpu_count", "gpu_idle", "driver_library_match", "device_nodes", "container_limits", "container_run")
ALL_REDUCE = "all_reduce_exact"
IMAGE_ARCHITECTURE = "image_architecture"
LOST_RESULT = "its result is not in the output"
IMAGE_REMEDY = "use an image built for this GPU (pytorch_image_ref)"
# A stage that ran this long (s) without a result when time was over is a hang of that stage; below, the time was simply too short.
STALL_S = 60
FAULT_SIGNALS = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
# What the entry point of NVIDIA's own image advises for PyTorch; on GPUs less than that is no test of the machine.
FLOORS = {"memlock": -1, "stack": 67108864}
FLOORS_SOURCE = "entry point of NVIDIA's PyTorch image"
# Docker's default /dev/shm, with which NCCL is known to fail (nccl#290, nccl#342).
SHM_TOO_SMALL = 64 * 2**20
# How torchrun begins to report that a rank has ended badly.
_TORCHRUN_REPORT = re.compile(r"torch/distributed/elastic/\S+\] .*(closing signal|failed \(exitcode)|elastic\S*\.ChildFailedError")
UNITS = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


class ExpectedGpu(NamedTuple):
    """A GPU that the plan expects. ``uuid``, ``name`` and ``compute_capability`` (``9.0``) are None where nothing has told them yet."""

    pci_bus_id: str
    pci_id: str | None = None
    uuid: str | None = None
    name: str | None = None
    compute_capability: str | None = None

    @property
    def gpu(self) -> Gpu:
        return Gpu(uuid=self.uuid, pci_bus_id=self.pci_bus_id)


def expected_gpus(given: Iterable[Mapping[str, Any]], facts: Facts) -> list[ExpectedGpu]:
    """The plan's GPUs by bus id; a UUID or name that the plan could not know yet is taken from nvidia-smi, never the other way round."""
    known = {gpu["pci_bus_id"]: gpu for gpu in facts["nvidia_smi"]["gpus"]}
    gpus = []
    for entry in given:
        bus_id = normalize_bus_id(entry["pci_bus_id"])
        seen = known.get(bus_id, {})
        gpus.append(
            ExpectedGpu(
                bus_id, entry.get("pci_id"), entry.get("uuid") or seen.get("uuid"), entry.get("name") or seen.get("name"), entry.get("compute_capability")
            )
        )
    return sorted(gpus)


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


def requirements(gpus: Sequence[ExpectedGpu], backend: str = "cuda") -> list[Requirement]:
    """Everything that has to have a result on a host with these GPUs. What the image was built for only matters where it computes on them."""
    required = [Requirement(name) for name in HOST_CHECKS]
    for gpu in gpus:
        image = [IMAGE_ARCHITECTURE] if backend == "cuda" else []
        names = ["fabric", "gpu_health", "gpu_identity", *image, *(f"matmul_exact.{dtype}" for dtype in dtypes_of(gpu)), ALL_REDUCE]
        required += [Requirement(name, gpu.gpu) for name in names]
    return required


# --- the host, before anything is started ---------------------------------------------------------------------------------------------


def gpu_idle(facts: Facts) -> Check:
    """Nobody may be using a GPU: not for our sake, whose results would mean nothing, nor for theirs."""
    containers = facts["docker"]["containers"]
    users = ["{} is open in {}".format(holder["device"], _who(holder, containers)) for holder in facts["holders"] if holder.get("role") != "service"]
    by_holder = {holder["pid"] for holder in facts["holders"]}
    for gpu in facts["nvidia_smi"]["gpus"]:
        users += [
            f"GPU {gpu['pci_bus_id']} is used by process {process['pid']} ({process['name']})"
            for process in gpu["processes"]
            if process["pid"] not in by_holder
        ]
    if not users:
        return make_check("gpu_idle", PASS, value={"holders": len(facts["holders"])}, source="open files of all processes, nvidia-smi")
    return make_check(
        "gpu_idle",
        COULD_NOT_RUN,
        "the GPUs are in use, so nothing was started: " + "; ".join(users[:8]) + (f"; {len(users) - 8} more" if len(users) > 8 else ""),
        remedy="end what is named there, or wait for it, then run the test again",
        value={"users": users},
        source="open files of all processes, nvidia-smi",
    )


def _who(holder: Mapping[str, Any], containers: Sequence[Mapping[str, Any]]) -> str:
    """Process, container and unit of a holder in words."""
    parts = [f"process {holder['pid']} ({holder['command']})"]
    if holder.get("container"):
        parts.append(container_words(holder["container"], containers))
    if holder.get("unit"):
        parts.append(f"unit {holder['unit']}")
    return ", ".join(parts)


def gpu_count(gpus: Sequence[ExpectedGpu], facts: Facts, counted: Mapping[int, Any] | None = None) -> Check:
    """The expected GPUs on the PCI bus, in the driver and, once it ran, in the container (``counted``: rank -> devices that it saw)."""
    expected = {gpu.pci_bus_id for gpu in gpus}
    smi = facts["nvidia_smi"]
    sources = {"the PCI bus": {gpu["pci_bus_id"] for gpu in facts["gpus"]}}
    value: dict[str, Any] = {"expected": len(expected), "pci": len(sources["the PCI bus"]), "nvidia_smi": None, "container": None}
    source = "sysfs, nvidia-smi, the container"
    if smi["state"] == "ok":
        sources["nvidia-smi"] = {gpu["pci_bus_id"] for gpu in smi["gpus"]}
        value["nvidia_smi"] = len(sources["nvidia-smi"])
    uuids = {gpu["pci_bus_id"]: gpu["uuid"] for gpu in smi["gpus"]}
    problems = [
        f"GPU {gpu.pci_bus_id} is {uuids[gpu.pci_bus_id]}, the plan says {gpu.uuid}"
        for gpu in gpus
        if gpu.uuid and uuids.get(gpu.pci_bus_id) and uuids[gpu.pci_bus_id] != gpu.uuid
    ]
    for where, present in sources.items():
        if expected - present:
            problems.append(f"{where} lacks {', '.join(sorted(expected - present))}")
        if present - expected:
            problems.append(f"{where} has {', '.join(sorted(present - expected))}, which the plan does not expect")
    if counted:
        value["container"] = min(counted.values())
        wrong = [f"rank {rank} saw {count} in the container" for rank, count in sorted(counted.items()) if count != len(expected)]
        problems += wrong[:1]
    if problems or not expected:
        reason = f"{len(expected)} GPUs are expected, but " + ("; ".join(problems) or "a test of none shows nothing")
        remedy = "look for the card in `dmesg` (Xid 79, fallen off the bus) and in its slot; reset or reseat it, or correct gpu_expected"
        return make_check("gpu_count", FAIL, reason, remedy=remedy, value=value, floor=len(expected), source=source)
    if smi["state"] != "ok":
        return _smi_missing("gpu_count", smi, value)
    return make_check("gpu_count", PASS, value=value, floor=len(expected), source=source)


def _smi_missing(name: str, smi: Mapping[str, Any], value: Any = None, gpu: Gpu | None = None) -> Check:
    """``could_not_run`` because nvidia-smi gave no answer."""
    remedies = {
        "absent": "install the driver with playbooks/provision.yml",
        "hung": "look for Xid messages in `dmesg`; a GPU whose driver hangs usually needs a reset or a reboot",
    }
    reason = f"nvidia-smi is {smi['state']}: {smi['error'] or 'no further words'}"
    remedy = remedies.get(smi["state"], "run `nvidia-smi` on the host; mismatched versions need a reboot")
    return make_check(name, COULD_NOT_RUN, reason, remedy=remedy, value=value, source="nvidia-smi", gpu=gpu)


def driver_library_match(facts: Facts, planned: str | None) -> Check:
    """The loaded kernel module, the user-space libraries, nvidia-smi's answer and the plan name one driver version."""
    value = {
        "planned": planned,
        "module": facts["modules"].get("nvidia", {}).get("version"),
        "library": facts["library_version"],
        "nvidia_smi": facts["nvidia_smi"]["driver_version"],
    }
    source = "/sys/module/nvidia, libcuda and libnvidia-ml, nvidia-smi"
    told = {key: version for key, version in value.items() if version}
    if len(set(told.values())) > 1:
        reason = "driver versions differ: " + ", ".join(f"{key} {version}" for key, version in told.items())
        remedy = "reboot the host: the loaded module is another version than what is installed"
        return make_check("driver_library_match", FAIL, reason, remedy=remedy, value=value, source=source)
    missing = [key for key in ("module", "library", "nvidia_smi") if not value[key]]
    if missing:
        reason = f"the driver version is not told by: {', '.join(missing)}"
        remedy = "install and load the driver with playbooks/provision.yml"
        return make_check("driver_library_match", COULD_NOT_RUN, reason, remedy=remedy, value=value, source=source)
    return make_check("driver_library_match", PASS, value=value, source=source)


def device_nodes(gpus: Sequence[ExpectedGpu], facts: Facts, inside: Mapping[str, Sequence[int]] | None = None) -> Check:
    """One node a GPU and the two control nodes on the host and, once it ran, in the container, with the host's device numbers."""
    host = {node["path"]: [node["major"], node["minor"]] for node in facts["device_nodes"]}
    value: dict[str, Any] = {"host": count_gpu_nodes(host), "container": None}
    problems = _node_problems("the host", host, len(gpus))
    if inside is not None:
        given = {path: list(numbers) for path, numbers in inside.items()}
        value["container"] = count_gpu_nodes(given)
        problems += _node_problems("the container", given, len(gpus))
        problems += [
            f"{path} is {given[path][0]}:{given[path][1]} in the container and {host[path][0]}:{host[path][1]} on the host"
            for path in sorted(given)
            if path in host and given[path] != host[path]
        ]
    if problems:
        remedy = "run `nvidia-modprobe -u -c 0` and `systemctl restart nvidia-cdi-refresh.service` on the host, then test again"
        return make_check("device_nodes", FAIL, "; ".join(problems[:6]), remedy=remedy, value=value, floor=len(gpus), source="/dev")
    return make_check("device_nodes", PASS, value=value, floor=len(gpus), source="/dev")


def _node_problems(where: str, nodes: Mapping[str, Sequence[int]], expected: int) -> list[str]:
    """What is wrong with the nodes of one place."""
    problems = [f"{where} lacks {path}" for path in CONTROL_NODES if path not in nodes]
    found = count_gpu_nodes({path: list(numbers) for path, numbers in nodes.items()})
    if found != expected:
        problems.append(f"{where} has {found} GPU nodes, {expected} are expected")
    return problems


def gpu_health(gpus: Sequence[ExpectedGpu], facts: Facts) -> list[Check]:
    """What the driver says about each GPU's memory and whether it asks for a reset. What a card does not report is named, and held for good."""
    smi = facts["nvidia_smi"]
    known = {gpu["pci_bus_id"]: gpu for gpu in smi["gpus"]}
    checks = []
    for gpu in gpus:
        if smi["state"] != "ok":
            checks.append(_smi_missing("gpu_health", smi, gpu=gpu.gpu))
        elif gpu.pci_bus_id not in known:
            checks.append(make_check("gpu_health", COULD_NOT_RUN, "nvidia-smi does not list the GPU", gpu=gpu.gpu, source="nvidia-smi"))
        else:
            checks.append(_health(gpu, known[gpu.pci_bus_id]))
    return checks


def _health(gpu: ExpectedGpu, said: Mapping[str, Any]) -> Check:
    """One GPU's health. The aggregate count is not held against it: it tells of the card's whole life, and rows that were remapped since are sound."""
    ecc, rows = said.get("ecc") or {}, said.get("remapped_rows") or {}
    value = {
        "volatile_uncorrectable": ecc.get("volatile_uncorrectable"),
        "row_remap_failure": rows.get("failure"),
        "row_remap_pending": rows.get("pending"),
        "recovery_action": said.get("recovery_action"),
    }
    floor = {"volatile_uncorrectable": 0, "row_remap_failure": False, "row_remap_pending": False, "recovery_action": "None"}
    reset = "drain the host and reset the GPU (`nvidia-smi --gpu-reset`) or reboot, then test again; if it comes back, have the GPU replaced"
    found = []
    unread = said.get("errors") or []
    lost = [words for words in unread if "unknown error" not in words.lower()]
    if lost:
        found.append((f"nvidia-smi cannot read its health ({_some(lost)})", f"look for Xid messages in `dmesg`; {reset}"))
    if value["row_remap_failure"]:
        found.append(("a row of its memory could not be remapped", "have the GPU replaced: it has no spare rows left for a faulty one"))
    if value["volatile_uncorrectable"]:
        found.append((f"{value['volatile_uncorrectable']} uncorrectable memory errors since the driver was loaded", reset))
    if value["row_remap_pending"]:
        found.append(("a faulty row of its memory waits for a reset to be remapped", reset))
    if value["recovery_action"] not in (None, floor["recovery_action"]):
        found.append((f"the driver asks for: {value['recovery_action']}", reset))
    status, reason, remedy = PASS, None, None
    silent = [name for name, told in value.items() if told is None]
    if found:
        status, reason, remedy = FAIL, "; ".join(words for words, _remedy in found), found[0][1]
    elif unread:
        status, reason = COULD_NOT_RUN, f"nvidia-smi cannot read its health ({_some(unread)})"
        remedy = f"look for Xid messages in `dmesg` and test again; if it stays, {reset}"
    elif silent:
        reason = f"nvidia-smi does not report on this GPU: {', '.join(silent)}"
    return make_check("gpu_health", status, reason, remedy=remedy, value=value, floor=floor, source="nvidia-smi", gpu=gpu.gpu)


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:2]) + (f" and {len(words) - 2} more" if len(words) > 2 else "")


def fabric(gpus: Sequence[ExpectedGpu], facts: Facts, not_applicable: Mapping[str, str]) -> list[Check]:
    """The NVLink fabric, GPU by GPU. Hopper and newer say so themselves; before, the fabric manager's unit and version stand for it."""
    if "fabric" in not_applicable:
        return [make_check("fabric", NOT_APPLICABLE, not_applicable["fabric"], gpu=gpu.gpu) for gpu in gpus]
    smi = facts["nvidia_smi"]
    known = {gpu["pci_bus_id"]: gpu for gpu in smi["gpus"]}
    checks = []
    for gpu in gpus:
        chip = capability(gpu.compute_capability)
        if smi["state"] != "ok":
            checks.append(_smi_missing("fabric", smi, gpu=gpu.gpu))
        elif gpu.pci_bus_id not in known:
            checks.append(make_check("fabric", COULD_NOT_RUN, "nvidia-smi does not list the GPU", gpu=gpu.gpu, source="nvidia-smi"))
        elif chip is None:
            reason = "the plan does not give the GPU's compute capability, which decides how its fabric reports"
            checks.append(make_check("fabric", COULD_NOT_RUN, reason, remedy="add the GPU to the catalog", gpu=gpu.gpu))
        elif chip >= (9, 0):
            checks.append(_registered(gpu, known[gpu.pci_bus_id]["fabric"]))
        else:
            checks.append(_managed(gpu, facts))
    return checks


def _registered(gpu: ExpectedGpu, said: Mapping[str, Any]) -> Check:
    """Hopper or newer: State Completed, Status Success; no answer (N/A) is a failure where the plan has a fabric."""
    good = said["state"] == "Completed" and said["status"] == "Success"
    reason = f"its fabric says State {said['state'] or 'N/A'}, Status {said['status'] or 'N/A'} instead of Completed, Success"
    remedy = "`systemctl status nvidia-fabricmanager` and its log /var/log/fabricmanager.log; its version must be the driver's exactly. "
    remedy += "Where no NVSwitch is visible, as in a virtual machine, ask whoever runs the machine below"
    return make_check(
        "fabric",
        PASS if good else FAIL,
        None if good else reason,
        remedy=None if good else remedy,
        value=dict(said),
        floor={"state": "Completed", "status": "Success"},
        source="nvidia-smi",
        gpu=gpu.gpu,
    )


def _managed(gpu: ExpectedGpu, facts: Facts) -> Check:
    """Before Hopper: fabric manager active and of the driver's very version. That every GPU gives a context, the checks of each GPU show."""
    unit = facts["units"].get("nvidia-fabricmanager.service", {})
    driver = facts["nvidia_smi"]["driver_version"]
    versions = sorted({entry["version"] for name, entry in facts["packages"]["installed"].items() if re.fullmatch(r"nvidia-fabric-?manager(-\d+)?", name)})
    plain = [re.split(r"[-~+]", version.split(":", 1)[-1])[0] for version in versions]
    value = {"active": unit.get("active"), "versions": plain, "driver": driver}
    remedy = "install the fabric manager of exactly the driver's version and start nvidia-fabricmanager.service"
    source = "systemd, package database"
    if not plain:
        return make_check("fabric", COULD_NOT_RUN, "no package of the fabric manager is installed", remedy=remedy, value=value, source=source, gpu=gpu.gpu)
    if unit.get("active") != "active" or plain != [driver]:
        reason = f"nvidia-fabricmanager.service is {unit.get('active') or 'not there'} at version {', '.join(plain)}, the driver is {driver}"
        return make_check("fabric", FAIL, reason, remedy=remedy, value=value, source=source, gpu=gpu.gpu)
    return make_check("fabric", PASS, value=value, source=source, gpu=gpu.gpu)


def fabric_in_progress(gpus: Sequence[ExpectedGpu], facts: Facts) -> bool:
    """Whether a GPU still registers, which is worth a bounded wait."""
    wanted = {gpu.pci_bus_id for gpu in gpus}
    return any(gpu["pci_bus_id"] in wanted and gpu["fabric"]["state"] in ("In Progress", "Not Started") for gpu in facts["nvidia_smi"]["gpus"])


def undivided(gpus: Sequence[ExpectedGpu], facts: Facts, backend: str) -> list[Check]:
    """Checks of the GPUs that are divided: on ``cuda`` their instances cannot be addressed yet, which must not look like a wrong GPU."""
    wanted = {gpu.pci_bus_id: gpu for gpu in gpus}
    divided = [wanted[gpu["pci_bus_id"]] for gpu in facts["nvidia_smi"]["gpus"] if gpu["pci_bus_id"] in wanted and gpu["mig"]["current"] == "enabled"]
    reason = "the GPU is in MIG mode, and this version of the test addresses whole GPUs only"
    remedy = 'test the host with mig_layout: "off" first'
    return [make_check("gpu_identity", COULD_NOT_RUN, reason, remedy=remedy, source="nvidia-smi", gpu=gpu.gpu) for gpu in divided if backend == "cuda"]


def host_checks(gpus: Sequence[ExpectedGpu], facts: Facts, backend: str, planned_driver: str | None, not_applicable: Mapping[str, str]) -> list[Check]:
    """All that is looked at before a container is started, in the order in which one explains the next."""
    return [
        *undivided(gpus, facts, backend),
        gpu_idle(facts),
        gpu_count(gpus, facts),
        driver_library_match(facts, planned_driver),
        device_nodes(gpus, facts),
        *gpu_health(gpus, facts),
        *fabric(gpus, facts, not_applicable),
    ]


# --- the container, from its transcript -----------------------------------------------------------------------------------------------


class Outcome(NamedTuple):
    """A container that was run: what was asked for, how its child ended, what its ranks said."""

    container: Container
    child: ChildResult
    transcript: Transcript


def container_checks(gpus: Sequence[ExpectedGpu], facts: Facts, outcome: Outcome) -> list[Check]:
    """Every check that the container's run gives, its own first."""
    logs = outcome.transcript.ranks
    counted = {rank: log.found["gpu_identity"].get("device_count") for rank, log in logs.items() if isinstance(log.found.get("gpu_identity"), dict)}
    nodes = [log.found["device_nodes"] for log in logs.values() if isinstance(log.found.get("device_nodes"), dict)]
    owners = owners_of(gpus, outcome)
    checks = [
        container_run(outcome, owners),
        container_limits(outcome),
        gpu_count(gpus, facts, {rank: count if isinstance(count, int) else -1 for rank, count in counted.items()}),
        device_nodes(gpus, facts, nodes[0]) if nodes else make_check("device_nodes", COULD_NOT_RUN, "the container told no device nodes", source="/dev"),
    ]
    for rank, log in logs.items():
        gpu = owners.get(rank)
        if gpu is None:
            continue
        checks.append(gpu_identity(rank, gpu, log, outcome))
        if outcome.container.backend == "cuda":
            checks.append(image_architecture(rank, gpu, log, outcome))
        names = list(dict.fromkeys([f"matmul_exact.{dtype}" for dtype in dtypes_of(gpu)] + [n for n in log.results if n.startswith("matmul_exact.")]))
        for name in [*names, ALL_REDUCE]:
            results = log.results.get(name) or [_without_result(rank, name, outcome)]
            checks += [_from_payload(name, result, gpu, outcome.container) for result in results]
    return checks


def owners_of(gpus: Sequence[ExpectedGpu], outcome: Outcome) -> dict[int, ExpectedGpu]:
    """Which GPU each rank had: by what CUDA says, and where a rank could not tell (or computes on the CPU) by its number in bus order."""
    by_bus_id = {gpu.pci_bus_id: gpu for gpu in gpus}
    by_uuid = {gpu.uuid: gpu for gpu in gpus if gpu.uuid}
    owners: dict[int, ExpectedGpu] = {}
    for rank, log in outcome.transcript.ranks.items():
        said = _identity(log)
        bus_id = _bus_id(said.get("pci_bus_id"))
        owner = by_bus_id.get(bus_id or "") or by_uuid.get(str(said.get("uuid")))
        if owner:
            owners[rank] = owner
    free = [gpu for gpu in gpus if gpu not in owners.values()]
    for rank, log in outcome.transcript.ranks.items():
        said = _identity(log)
        if rank in owners or said.get("pci_bus_id") or said.get("uuid"):
            continue
        if rank < len(gpus) and gpus[rank] in free:
            owners[rank] = gpus[rank]
    return owners


def _identity(log: RankLog) -> Mapping[str, Any]:
    said = log.found.get("gpu_identity")
    return said if isinstance(said, dict) else {}


def _bus_id(text: Any) -> str | None:
    try:
        return normalize_bus_id(str(text))
    except ValueError:
        return None


def gpu_identity(rank: int, gpu: ExpectedGpu, log: RankLog, outcome: Outcome) -> Check:
    """The rank had the GPU that the plan names: bus id, UUID and capability as CUDA says them; on the CPU only that its node is there."""
    said = dict(_identity(log))
    value = {"rank": rank, **said}
    if not said:
        result = (log.results.get("gpu_identity") or [_without_result(rank, "gpu_identity", outcome)])[0]
        status = result.status if result.status in (FAIL, COULD_NOT_RUN) else COULD_NOT_RUN
        remedy = "look for Xid messages in `dmesg`; error 802: the fabric manager; 803: reboot; 804 and 999: device nodes and libcuda in the container"
        remedy = IMAGE_REMEDY if _lacks_kernels(result.reason) else remedy
        return make_check(
            "gpu_identity", status, result.reason, remedy=remedy, value=value, source="torch in the container", gpu=gpu.gpu, duration_s=result.duration_s
        )
    if outcome.container.backend == "cpu":
        return make_check("gpu_identity", PASS, value=value, source="device nodes in the container", gpu=gpu.gpu)
    twice = [r for r, other in outcome.transcript.ranks.items() if r != rank and said.get("uuid") and _identity(other).get("uuid") == said["uuid"]]
    told = {"pci_bus_id": _bus_id(said.get("pci_bus_id")), "uuid": said.get("uuid"), "compute_capability": said.get("compute_capability")}
    wanted = {"pci_bus_id": gpu.pci_bus_id, "uuid": gpu.uuid, "compute_capability": gpu.compute_capability}
    differs = [f"{key} is {told[key]}, the plan says {wanted[key]}" for key in told if told[key] and wanted[key] and told[key] != wanted[key]]
    if twice:
        differs.append(f"rank {twice[0]} had the same GPU")
    if differs:
        remedy = "plan again: the card in this slot is another one than planned"
        return make_check("gpu_identity", FAIL, "; ".join(differs), remedy=remedy, value=value, source="torch in the container", gpu=gpu.gpu)
    if not told["pci_bus_id"] and not (told["uuid"] and gpu.uuid):
        return make_check("gpu_identity", COULD_NOT_RUN, "CUDA told neither bus id nor UUID", value=value, source="torch in the container", gpu=gpu.gpu)
    return make_check("gpu_identity", PASS, value=value, source="torch in the container", gpu=gpu.gpu)


def image_architecture(rank: int, gpu: ExpectedGpu, log: RankLog, outcome: Outcome) -> Check:
    """torch in the image has code for the chip. An image without it says nothing about the GPU, so this never fails one."""
    torch = log.found.get("torch")
    told = torch.get("arch_list") if isinstance(torch, dict) else None
    architectures = [str(name) for name in told] if isinstance(told, list) else []
    chip = _identity(log).get("compute_capability")
    value = {"arch_list": architectures, "capability": chip}
    found = capability(chip if isinstance(chip, str) else None)
    status, reason, remedy = COULD_NOT_RUN, None, None
    if found is None:
        cause = (log.results.get("gpu_identity") or [_without_result(rank, "gpu_identity", outcome)])[0].reason
        reason = f"the GPU's compute capability was not told: {cause}"
    elif not architectures:
        reason = "torch in the image does not tell which GPUs it was built for"
        remedy = IMAGE_REMEDY
    elif not built_for(architectures, found):
        reason = f"torch in the image was built for {' '.join(architectures)}, which has no code for compute capability {chip}"
        remedy = IMAGE_REMEDY
    else:
        status = PASS
    return make_check(IMAGE_ARCHITECTURE, status, reason, remedy=remedy, value=value, source="torch in the container", gpu=gpu.gpu)


def _lacks_kernels(reason: str | None) -> bool:
    """CUDA's own words for an image, or an extension in it, without code for the GPU."""
    return "no kernel image is available" in (reason or "")


def _from_payload(name: str, result: Result, gpu: ExpectedGpu, container: Container) -> Check:
    """A payload's result as a check. A pass without the numbers of the whole work is none."""
    status, reason = result.status, result.reason
    if status == PASS:
        lacking = _lacks_evidence(name, result.value, container)
        if lacking:
            status, reason = COULD_NOT_RUN, f"the payload said pass, but {lacking}"
    elif status not in (FAIL, COULD_NOT_RUN):
        status, reason = COULD_NOT_RUN, f"the payload said {status!r}: {reason or 'no reason given'}"
    remedy = None
    if _lacks_kernels(reason):
        status, remedy = COULD_NOT_RUN, IMAGE_REMEDY
    elif (reason or "").startswith(LOST_RESULT):
        remedy = "test again; if it comes back, look for what else writes to the output of processes in the image (pytorch_image_ref, smoke_test_env)"
    elif status == FAIL:
        remedy = "take the GPU out of use; look for Xid and ECC messages in `dmesg` and `nvidia-smi -q`, repeat the test, then have it replaced"
        if name == ALL_REDUCE:
            remedy = "look for Xid and NVLink errors in `dmesg` and `nvidia-smi nvlink -e`; run again with smoke_test_env NCCL_DEBUG=INFO"
    source = "{} in the container".format("torch" if name != ALL_REDUCE else "torch.distributed")
    return make_check(name, status, reason, remedy=remedy, value=result.value, source=source, gpu=gpu.gpu, duration_s=result.duration_s)


def _lacks_evidence(name: str, value: Any, container: Container) -> str | None:
    """What is missing from the numbers of a pass, or None. The amounts are those that the payload must have worked through."""
    if not isinstance(value, dict):
        return "gave no numbers"
    if name == ALL_REDUCE:
        rounds = 2 * len(VECTORS[container.backend]) * REDUCE_ROUNDS
        wanted: dict[str, Any] = {"world": container.ranks, "rounds": rounds, "elements": 2 * sum(VECTORS[container.backend]) * REDUCE_ROUNDS}
    else:
        rows, _inner, columns = SHAPES[container.backend]
        wanted = {"shape": list(SHAPES[container.backend]), "elements": rows * columns, "repeats": REPEATS[container.backend]}
    wanted.update(wrong=0, nan=0, inf=0)
    for key, amount in wanted.items():
        if value.get(key) != amount or isinstance(value.get(key), bool):
            return f"{key} is {value.get(key)!r}, {amount} is the whole test"
    return None


def _without_result(rank: int, name: str, outcome: Outcome) -> Result:
    """Why a rank has no result of a check: hung in it, crashed in it, or never came to it."""
    log, child = outcome.transcript.ranks[rank], outcome.child
    stage, since = log.stage or ("", 0.0)
    if child.error:
        return Result(COULD_NOT_RUN, f"the container was not started: {child.error}", None, None)
    if not log.started:
        return Result(COULD_NOT_RUN, f"rank {rank} never reported: {_how_it_ended(outcome)}", None, None)
    if stage == name:
        return _ended_inside(rank, since, outcome)
    if log.ended:
        broken = next((line for line in child.stdout if f'{{"{MARK}"' in line), None)
        return Result(COULD_NOT_RUN, f"{LOST_RESULT} of rank {rank}" + (f"; a line of the output breaks off: {broken[:300]}" if broken else ""), None, None)
    return Result(COULD_NOT_RUN, f"rank {rank} was {f'in {stage}' if stage else 'at its start'} when the run ended: {_how_it_ended(outcome)}", None, None)


def _ended_inside(rank: int, since: float, outcome: Outcome) -> Result:
    """The run ended while the rank was in the stage of this check, which is the GPU's own work: a failure of the machine if it hung or crashed there."""
    child = outcome.child
    if child.timed_out:
        ran = max(0.0, child.seconds - since)
        if ran >= STALL_S:
            return Result(FAIL, f"rank {rank} hung in it for {ran:.0f} s, until {_how_it_ended(outcome)}", None, ran)
        return Result(COULD_NOT_RUN, f"rank {rank} had been in it for {ran:.0f} s when {_how_it_ended(outcome)}", None, ran)
    crash = crashed_rank(child.stderr)
    if crash is None or crash[0] != rank:
        return Result(COULD_NOT_RUN, f"rank {rank} was in it when the run ended: {_how_it_ended(outcome)}", None, None)
    if -crash[1] in FAULT_SIGNALS:
        return Result(FAIL, f"rank {rank} crashed in it with {signal.Signals(-crash[1]).name}", None, None)
    return Result(COULD_NOT_RUN, f"rank {rank} ended in it with {_end_words(crash[1])}", None, None)


def _end_words(code: int) -> str:
    """A process's exit code in words; a negative one is a signal."""
    try:
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"
    except ValueError:
        return f"signal {-code}"


def _rank_words(rank: int, owners: Mapping[int, ExpectedGpu]) -> str:
    """A rank with the GPU that it had, where that is known."""
    return f"rank {rank} (GPU {owners[rank].pci_bus_id})" if rank in owners else f"rank {rank}"


def _how_it_ended(outcome: Outcome, owners: Mapping[int, ExpectedGpu] = MappingProxyType({})) -> str:
    """How the container's run ended, in words, with the last that it said."""
    child, container = outcome.child, outcome.container
    if child.error:
        return child.error
    if child.timed_out:
        return f"the limit of {container.limit_s} s was over"
    crash = crashed_rank(child.stderr)
    words = f"exit status {child.exit_code}"
    if crash:
        words += f", first {_rank_words(crash[0], owners)} with {_end_words(crash[1])}"
    last = _telling([*child.stdout, *child.stderr])
    return f"{words}; last words: {last}" if last else words


def _telling(lines: Sequence[str]) -> str | None:
    """The line of a failed run that tells most: an error's, else the last one. torchrun's own report of it says who ended, which is read apart, and not why."""
    report = next((at for at, line in enumerate(lines) if _TORCHRUN_REPORT.search(line)), len(lines))
    lines = lines[:report]
    for line in reversed(lines):
        if re.search(r"error|denied|fatal|cannot|no such|not found|unresolvable", line, re.IGNORECASE) and not line.startswith(("=", "-")):
            return line[:500]
    return lines[-1][:500] if lines else None


def container_run(outcome: Outcome, owners: Mapping[int, ExpectedGpu]) -> Check:
    """The container itself: started, every rank said everything, ended by itself with status 0 within its limit, and is gone."""
    child, container, logs = outcome.child, outcome.container, outcome.transcript.ranks
    ended = [rank for rank, log in logs.items() if log.ended]
    value = {
        "exit_code": child.exit_code,
        "timed_out": child.timed_out,
        "ranks": len(logs),
        "ranks_ended": len(ended),
        "stages": {str(rank): log.stage[0] for rank, log in logs.items() if log.stage},
        "output": [line[:500] for line in [*child.stdout, *child.stderr][-20:]] if child.exit_code != 0 or len(ended) < len(logs) else [],
    }

    def check(reason: str | None, remedy: str | None = None) -> Check:
        status = COULD_NOT_RUN if reason else PASS
        duration = round(child.seconds, 1)
        return make_check(
            "container_run", status, reason, remedy=remedy, value=value, floor=container.limit_s, unit="s", source="the container engine", duration_s=duration
        )

    if child.error:
        return check(child.error, "install and start the container engine with playbooks/provision.yml")
    if child.timed_out:
        stages = [(rank, *log.stage) for rank, log in logs.items() if log.stage]
        stuck = "; ".join(f"{_rank_words(rank, owners)} in {name} since {max(0.0, child.seconds - since):.0f} s" for rank, name, since in stages)
        left = f"; {child.left_behind}" if child.left_behind else ""
        return check(
            f"not done within {container.limit_s} s: {stuck or 'no rank reported anything'}{left}",
            "see which rank and stage hung; on a sound host allow more time (timeout), on a suspect one look at `dmesg` for Xid messages",
        )
    if child.exit_code in (125, 126, 127) and not any(log.started for log in logs.values()):
        return check(f"the engine could not start it: {_how_it_ended(outcome)}", _engine_remedy([*child.stdout, *child.stderr]))
    if child.exit_code != 0:
        return check(_how_it_ended(outcome, owners), _crash_remedy(crashed_rank(child.stderr)))
    if len(ended) < len(logs):
        missing = ", ".join(str(rank) for rank in logs if rank not in ended)
        return check(f"it ended with status 0, but of rank {missing} the end is missing", "read the output under `value`; the image's torchrun may be broken")
    return check(None)


def _crash_remedy(crash: tuple[int, int] | None) -> str:
    if crash and crash[1] == -signal.SIGKILL:
        return "look in `dmesg` whether the kernel killed it for want of memory (oom-kill); end what else uses the memory, then test again"
    return "read the output under `value`"


def _engine_remedy(lines: Sequence[str]) -> str:
    text = "\n".join(lines).lower()
    if "cdi" in text:
        return "regenerate the device specification: systemctl restart nvidia-cdi-refresh.service; Docker needs features.cdi in daemon.json"
    if "no such image" in text or "unable to find image" in text:
        return "pull the image with playbooks/provision.yml"
    if "torchrun" in text:
        return "the image has no torchrun: choose one with PyTorch (pytorch_image_ref)"
    if "operation not permitted" in text or "rlimit" in text:
        return "the engine may not give these limits: set smoke_test_ulimits to what it can"
    return "read the engine's words; `journalctl -u docker` has more"


def container_limits(outcome: Outcome) -> Check:
    """The limits that the container really had, against what was asked for and, on GPUs, what PyTorch's images need."""
    found = [log.found["container_limits"] for log in outcome.transcript.ranks.values() if isinstance(log.found.get("container_limits"), dict)]
    asked = {"ulimits": outcome.container.ulimits, "shm_size": outcome.container.shm_size}
    source = "getrlimit, statvfs and /proc/self/status in the container"
    if not found:
        return make_check("container_limits", COULD_NOT_RUN, f"no rank told its limits: {_how_it_ended(outcome)}", floor=asked, source=source)
    problems = limit_problems(found[0], outcome.container)
    if any(other.get("ulimits") != found[0].get("ulimits") for other in found):
        problems.append("the ranks have different limits")
    remedy = _limits_remedy(problems) if problems else None
    status = COULD_NOT_RUN if problems else PASS
    return make_check("container_limits", status, "; ".join(problems) or None, remedy=remedy, value=found[0], floor=asked, source=source)


def _limits_remedy(problems: Sequence[str]) -> str:
    """The engine was told the size of /dev/shm and makes it, so another size comes from what it hands the container to."""
    if problems[0].startswith("/dev/shm"):
        return "look which runtime the engine hands containers to (`docker info --format '{{.DefaultRuntime}}'`): runc gives what is asked for"
    return "give the container what it needs (smoke_test_ulimits), and its engine the right to give it"


def limit_problems(found: Mapping[str, Any], container: Container) -> list[str]:
    """What is wrong with the limits that a rank found; -1 is unlimited."""
    ulimits = found.get("ulimits") or {}
    problems = []
    for text in container.ulimits:
        name, wanted = parse_ulimit(text)
        if ulimits.get(name) != wanted:
            problems.append(f"{name} is {ulimits.get(name)}, {wanted} was asked for")
    if container.backend == "cuda":
        for name, floor in FLOORS.items():
            soft = (ulimits.get(name) or [0])[0]
            if soft != -1 and (floor == -1 or soft < floor):
                problems.append(f"{name} is {soft} bytes, {'unlimited' if floor == -1 else floor} is what {FLOORS_SOURCE} asks for")
    shm = found.get("shm_bytes")
    wanted_shm = parse_size(container.shm_size)
    if not isinstance(shm, int) or shm < wanted_shm:
        problems.append(f"/dev/shm has {shm} bytes, {wanted_shm} were asked for")
    elif container.backend == "cuda" and shm <= SHM_TOO_SMALL:
        problems.append(f"/dev/shm has {shm} bytes, with which NCCL fails (nccl#290)")
    if found.get("read_only_root") is not True:
        problems.append("the root file system is writable")
    if found.get("no_new_privs") is not True:
        problems.append("no_new_privs is not set")
    if found.get("interfaces") != ["lo"]:
        problems.append(f"the network interfaces that are up are {found.get('interfaces')}, only lo was asked for")
    return problems


def parse_ulimit(text: str) -> tuple[str, list[int]]:
    """Docker's ``name=soft[:hard]`` as (name, [soft, hard]). ValueError where it is none."""
    match = re.fullmatch(r"([a-z]+)=(-?\d+)(?::(-?\d+))?", text.strip())
    if match is None:
        raise ValueError(f"ulimit {text!r} is not of the form name=soft[:hard]")
    soft = int(match.group(2))
    return match.group(1), [soft, int(match.group(3)) if match.group(3) else soft]


def parse_size(text: str) -> int:
    """Docker's size (``1g``, ``64m``, ``65536``) in bytes. ValueError where it is none."""
    match = re.fullmatch(r"(\d+)\s*([bkmgt]?)b?", text.strip().lower())
    if match is None:
        raise ValueError(f"size {text!r} is not a number with b, k, m, g or t")
    return int(match.group(1)) * UNITS[match.group(2)]
