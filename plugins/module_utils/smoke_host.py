# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether the host is the one that was planned and ready to be tested, before anything is started. Pure: facts in, checks out.

What the environment lacks is ``could_not_run`` with the way to mend it; only what is wrong with the machine itself is a ``fail``.
"""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.holders import container_words
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import integer
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.surroundings import count_gpu_nodes
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, DEGRADED, FAIL, NOT_APPLICABLE, PASS, Check, Gpu, make_check

Facts = Mapping[str, Any]
CONTROL_NODES = ("/dev/nvidiactl", "/dev/nvidia-uvm")
IMEX_CHANNEL = "/dev/nvidia-caps-imex-channels/channel"
# Sold as 80 GB, a card tells 79.6 or 81.6 of them (GiB), and one whose error correction lies in the same memory some percent less.
MEMORY_OFF = 0.1
# What CUDA keeps back of the memory that the driver tells.
CUDA_KEEPS = 0.05


class Bought(NamedTuple):
    """``gpu_expected`` of the inventory: the catalog's slug and the number of cards."""

    model: str
    number: int


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


class Counted(NamedTuple):
    """What each rank saw in the container: the number of devices, and how many each should see (one, where each gets a part of a divided GPU)."""

    devices: Mapping[int, int]
    each: int


def gpu_count(gpus: Sequence[ExpectedGpu], facts: Facts, bought: Bought | None, counted: Counted | None = None) -> Check:
    """The expected GPUs in the order form, on the PCI bus, in the driver and, once it ran, in the container."""
    expected = {gpu.pci_bus_id for gpu in gpus}
    smi = facts["nvidia_smi"]
    sources = {"the PCI bus": {gpu["pci_bus_id"] for gpu in facts["gpus"]}}
    value: dict[str, Any] = {
        "expected": len(expected),
        "gpu_expected": bought.number if bought else None,
        "pci": len(sources["the PCI bus"]),
        "nvidia_smi": None,
        "container": None,
    }
    source = "gpu_expected, sysfs, nvidia-smi, the container"
    if smi["state"] == "ok":
        sources["nvidia-smi"] = {gpu["pci_bus_id"] for gpu in smi["gpus"]}
        value["nvidia_smi"] = len(sources["nvidia-smi"])
    uuids = {gpu["pci_bus_id"]: gpu["uuid"] for gpu in smi["gpus"]}
    problems = [
        f"GPU {gpu.pci_bus_id} is {uuids[gpu.pci_bus_id]}, the plan says {gpu.uuid}"
        for gpu in gpus
        if gpu.uuid and uuids.get(gpu.pci_bus_id) and uuids[gpu.pci_bus_id] != gpu.uuid
    ]
    if bought and bought.number != len(expected):
        problems.append(f"gpu_expected says {bought.number}")
    for where, present in sources.items():
        if expected - present:
            problems.append(f"{where} lacks {', '.join(sorted(expected - present))}")
        if present - expected:
            problems.append(f"{where} has {', '.join(sorted(present - expected))}, which the plan does not expect")
    if counted and counted.devices:
        value["container"] = min(counted.devices.values())
        wrong = [f"rank {rank} saw {count} in the container" for rank, count in sorted(counted.devices.items()) if count != counted.each]
        problems += wrong[:1]
    if problems or not expected:
        reason = f"{len(expected)} GPUs are expected, but " + ("; ".join(problems) or "a test of none shows nothing")
        remedy = "look for the card in `dmesg` (Xid 79, fallen off the bus) and in its slot; reset or reseat it, or correct gpu_expected"
        return make_check("gpu_count", FAIL, reason, remedy=remedy, value=value, floor=len(expected), source=source)
    if smi["state"] != "ok":
        return smi_missing("gpu_count", smi, value)
    return make_check("gpu_count", PASS, value=value, floor=len(expected), source=source)


def smi_missing(name: str, smi: Mapping[str, Any], value: Any = None, gpu: Gpu | None = None) -> Check:
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
        return make_check("device_nodes", COULD_NOT_RUN, "; ".join(problems[:6]), remedy=remedy, value=value, floor=len(gpus), source="/dev")
    return make_check("device_nodes", PASS, value=value, floor=len(gpus), source="/dev")


def _node_problems(where: str, nodes: Mapping[str, Sequence[int]], expected: int) -> list[str]:
    """What is wrong with the nodes of one place."""
    problems = [f"{where} lacks {path}" for path in CONTROL_NODES if path not in nodes]
    found = count_gpu_nodes({path: list(numbers) for path, numbers in nodes.items()})
    if found != expected:
        problems.append(f"{where} has {found} GPU nodes, {expected} are expected")
    return problems


# --- each card -------------------------------------------------------------------------------------------------------------------------


def _of_smi(name: str, gpu: ExpectedGpu, facts: Facts) -> tuple[Mapping[str, Any], Check | None]:
    """What nvidia-smi says of a GPU, or the check that it says nothing."""
    smi = facts["nvidia_smi"]
    said = next((entry for entry in smi["gpus"] if entry["pci_bus_id"] == gpu.pci_bus_id), None)
    if smi["state"] != "ok":
        return {}, smi_missing(name, smi, gpu=gpu.gpu)
    if said is None:
        return {}, make_check(name, COULD_NOT_RUN, "nvidia-smi does not list the GPU", source="nvidia-smi", gpu=gpu.gpu)
    return said, None


def gpu_model(gpu: ExpectedGpu, facts: Facts, bought: Bought | None, cuda: Mapping[str, Any] | None = None) -> Check:
    """The model in the order form, by PCI id, in the driver and, once it ran, in CUDA (``cuda``: what a process in the container said of this card)."""
    said, missing = _of_smi("gpu_model", gpu, facts)
    if missing:
        return missing
    on_bus = next((entry["pci_id"] for entry in facts["gpus"] if entry["pci_bus_id"] == gpu.pci_bus_id), None)
    named = (cuda or {}).get("name")
    value = {"gpu_expected": bought.model if bought else None, "model": gpu.model, "pci_id": on_bus, "nvidia_smi": said["name"], "cuda": named}
    source = "gpu_expected, sysfs, nvidia-smi, CUDA in the container"
    problems = []
    if gpu.pci_id and on_bus != gpu.pci_id:
        problems.append(f"the card on the bus is {on_bus or 'none'}, the plan says {gpu.pci_id}")
    if bought and gpu.model != bought.model:
        problems.append(f"it is {gpu.model or 'a card that the catalog does not know'}, gpu_expected says {bought.model}")
    if gpu.name and said["name"] != gpu.name:
        problems.append(f"nvidia-smi calls it {said['name']}, the plan says {gpu.name}")
    # CUDA adds the profile to the name of a part of a GPU.
    alike = named == said["name"] or (gpu.instance is not None and str(named).startswith(f"{said['name']} MIG "))
    if named and not alike:
        problems.append(f"CUDA calls it {named}, nvidia-smi {said['name']}")
    if problems:
        remedy = "this is another card than was bought or planned: correct gpu_expected or the inventory, or send the card back; then plan again"
        return make_check("gpu_model", FAIL, "; ".join(problems), remedy=remedy, value=value, source=source, gpu=gpu.gpu)
    untold = [who for who, name in (("nvidia-smi", said["name"]), *((("CUDA", named),) if cuda is not None else ())) if not name]
    if untold:
        return make_check("gpu_model", COULD_NOT_RUN, f"{' and '.join(untold)} told no name of it", value=value, source=source, gpu=gpu.gpu)
    return make_check("gpu_model", PASS, value=value, source=source, gpu=gpu.gpu)


def gpu_memory(gpu: ExpectedGpu, facts: Facts, cuda: Mapping[str, Any] | None = None) -> Check:
    """The memory that the card is sold with, in the driver and, once it ran, in CUDA. A part of a GPU has a part of it."""
    said, missing = _of_smi("gpu_memory", gpu, facts)
    if missing:
        return missing
    mib = said["memory_mib"]
    in_cuda = (cuda or {}).get("memory_mib") if gpu.instance is None else None
    value = {"nvidia_smi": mib, "cuda": in_cuda}
    floor = gpu.memory_gb * 1024 if gpu.memory_gb else None
    source = "catalog, nvidia-smi, CUDA in the container"

    def check(status: str, reason: str | None, remedy: str | None = None) -> Check:
        return make_check("gpu_memory", status, reason, remedy=remedy, value=value, floor=floor, unit="MiB", source=source, gpu=gpu.gpu)

    if not mib:
        return check(COULD_NOT_RUN, "nvidia-smi does not tell its memory")
    problems = []
    if floor and abs(mib - floor) > MEMORY_OFF * floor:
        problems.append(f"it has {mib} MiB, a card of this model has {floor}")
    if cuda is not None and gpu.instance is None:
        if integer(in_cuda) is None:
            return check(COULD_NOT_RUN, "CUDA did not tell its memory")
        if abs(mib - in_cuda) > CUDA_KEEPS * mib:
            problems.append(f"CUDA has {in_cuda} MiB of the {mib} MiB that nvidia-smi tells")
    if problems:
        return check(FAIL, "; ".join(problems), "look for memory errors (`nvidia-smi -q -d ECC,ROW_REMAPPER`); a card of another size is not what was bought")
    return check(PASS, None) if floor else check(DEGRADED, "the catalog does not know how much memory a card of this model has", "add the GPU to the catalog")


def compute_mode(gpu: ExpectedGpu, facts: Facts) -> Check:
    """A card that lets one process or none at all compute says nothing about itself in a test."""
    said, missing = _of_smi("compute_mode", gpu, facts)
    if missing:
        return missing
    mode = said["compute_mode"]
    remedy = f"set it back: `nvidia-smi -i {gpu.pci_bus_id} -c DEFAULT`"
    if mode is None:
        return make_check("compute_mode", DEGRADED, "nvidia-smi does not report the compute mode", remedy=remedy, source="nvidia-smi", gpu=gpu.gpu)
    if mode != "Default":
        reason = f"its compute mode is {mode}, in which other processes cannot use it"
        return make_check("compute_mode", COULD_NOT_RUN, reason, remedy=remedy, value=mode, floor="Default", source="nvidia-smi", gpu=gpu.gpu)
    return make_check("compute_mode", PASS, value=mode, floor="Default", source="nvidia-smi", gpu=gpu.gpu)


def persistence(gpu: ExpectedGpu, facts: Facts) -> Check:
    """Without persistence mode the driver forgets a card between two users, and its settings and error counts with it."""
    said, missing = _of_smi("persistence", gpu, facts)
    if missing:
        return missing
    if said["persistence"] is True:
        return make_check("persistence", PASS, value=True, floor=True, source="nvidia-smi", gpu=gpu.gpu)
    reason = "persistence mode is off" if said["persistence"] is False else "nvidia-smi does not report persistence mode"
    remedy = "run `systemctl enable --now nvidia-persistenced.service`"
    return make_check("persistence", DEGRADED, reason, remedy=remedy, value=said["persistence"], floor=True, source="nvidia-smi", gpu=gpu.gpu)


def mig_mode(gpu: ExpectedGpu, facts: Facts, planned: Any) -> Check:
    """Whether the card is divided as planned (``planned``: bus id -> profiles, or "off"), now and not only after a reset."""
    said, missing = _of_smi("mig_mode", gpu, facts)
    if missing:
        return missing
    mig = said["mig"]
    wanted = sorted(planned.get(gpu.pci_bus_id) or []) if isinstance(planned, Mapping) else []
    there = sorted(str(entry["profile"]) for entry in mig["instances"]) if mig["current"] == "enabled" else []
    value = {"current": mig["current"], "pending": mig["pending"], "instances": there}
    remedy = "bring the host to its plan with playbooks/provision.yml; a mode that waits for a reset needs every holder of the GPU stopped, or a reboot"
    problems = []
    if mig["current"] != mig["pending"]:
        problems.append(f"MIG mode is {mig['current']} and waits for a reset to be {mig['pending']}")
    if bool(wanted) != (mig["current"] == "enabled"):
        problems.append(f"MIG mode is {mig['current']}, the plan says {', '.join(wanted) or 'off'}")
    elif there != wanted:
        problems.append(f"it is divided into {', '.join(there) or 'nothing'}, the plan says {', '.join(wanted)}")
    if any(entry["uuid"] is None for entry in mig["instances"]):
        problems.append("nvidia-smi tells no UUID of an instance, by which a process gets it")
    if problems:
        return make_check("mig_mode", COULD_NOT_RUN, "; ".join(problems), remedy=remedy, value=value, floor=wanted, source="nvidia-smi", gpu=gpu.gpu)
    return make_check("mig_mode", PASS, value=value, floor=wanted, source="nvidia-smi", gpu=gpu.gpu)


def imex(facts: Facts, not_applicable: Mapping[str, str]) -> Check:
    """GPUs of a rack share memory through IMEX: its daemon runs, and there is a channel that a process can be given."""
    if "imex" in not_applicable:
        return make_check("imex", NOT_APPLICABLE, not_applicable["imex"])
    unit = facts["units"].get("nvidia-imex.service", {}).get("active")
    channels = [node["path"] for node in facts["device_nodes"] if node["path"].startswith(IMEX_CHANNEL)]
    value = {"unit": unit, "channels": channels}
    problems = [] if unit == "active" else [f"nvidia-imex.service is {unit or 'not there'}"]
    if not channels:
        problems.append(f"there is no {IMEX_CHANNEL}0")
    if problems:
        remedy = (
            "start nvidia-imex.service on all hosts of the rack, and create a channel (`nvidia-modprobe -c 0`, or module option NVreg_CreateImexChannel0=1)"
        )
        return make_check("imex", COULD_NOT_RUN, "; ".join(problems), remedy=remedy, value=value, source="systemd, /dev")
    return make_check("imex", PASS, value=value, source="systemd, /dev")
