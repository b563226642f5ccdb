# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What nvidia-smi says, from ``nvidia-smi -q -x``, and MIG instances from ``-L`` and ``mig -lgi``, which tell what the XML leaves out.

The formats are those recorded in tests/fixtures/h200 (580.159) and NVIDIA's MIG user guide (the table of ``mig -lgi``).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Dict, Optional, Tuple

from ansible_collections.rackready.gpu.plugins.module_utils.pci import normalize_bus_id

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

    from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Commands

    _MigNames = Dict[Tuple[Optional[str], Optional[int]], Tuple[Optional[str], Optional[str]]]

# In place of a value, with or without square brackets: there is none, or it could not be read.
_NO_VALUE = frozenset(["", "n/a", "not supported"])
_ERRORS = frozenset(["unknown error", "gpu is lost", "gpu requires reset", "err!"])
# Where an error must not pass for a card that has nothing to report.
_HEALTH = ("ecc_errors", "remapped_rows", "gpu_recovery_action")
_NUMBER = re.compile(r"[0-9]{1,15}")
_LIST_GPU = re.compile(r"GPU [0-9]+: .*\(UUID: (GPU-[0-9A-Za-z-]+)\)")
_LIST_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+([0-9]{1,4}): \(UUID: (MIG-[0-9A-Za-z/-]+)\)")
# A line of `nvidia-smi nvlink -e`: Link 0: Replay Errors: 0
_LINK_COUNTER = re.compile(r"\s+Link ([0-9]{1,3}): ([A-Za-z][A-Za-z /-]*?) ?: ([0-9]{1,18})\s*$")
# Why clocks are held back: names in the XML, and NVML's bits (nvml.h, NvmlClocksEventReasons).
THROTTLE_BITS = {
    "gpu_idle": 0x1,
    "applications_clocks_setting": 0x2,
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
    "display_clocks_setting": 0x100,
}
# The time that newer drivers count for some of them.
THROTTLE_TIMES = {
    "sw_power_cap": "sw_power_cap",
    "sync_boost": "sync_boost",
    "sw_thermal_slowdown": "sw_therm_slowdown",
    "hw_thermal_slowdown": "hw_therm_slowdown",
    "hw_power_brake_slowdown": "hw_power_brake",
}
_NO_INSTANCES = "No GPU instances found"
_LIST_INSTANCE = re.compile(r"\|\s+([0-9]{1,4})\s+MIG (\S+)\s+[0-9]{1,4}\s+([0-9]{1,4})\s+([0-9]{1,4}):[0-9]{1,4}\s+\|")


class GarbledOutput(ValueError):
    """The text is not what nvidia-smi writes."""


def absent() -> dict[str, Any]:
    """``nvidia_smi`` of the facts where the tool is not installed."""
    return {"state": "absent", "error": None, "seconds": None, "driver_version": None, "cuda_version": None, "gpus": []}


class Query:
    """nvidia-smi, started at once and read later. ``timeout`` (s) is the limit of everything it is asked."""

    def __init__(self, commands: Commands, timeout: float, module_loaded: bool) -> None:
        self._commands = commands
        self._timeout = timeout
        self._tool = commands.find("nvidia-smi")
        # Asked by root while the module is out, the tool loads it: reading would change the host.
        self._child: Child | None = commands.start([self._tool, "-q", "-x"], timeout) if self._tool and module_loaded else None

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child else None

    def facts(self) -> dict[str, Any]:
        """``nvidia_smi`` of the facts. Never raises for what the tool does."""
        facts = absent()
        if self._tool is None:
            return facts
        if self._child is None:
            return {**facts, "state": "failed", "error": "nvidia-smi was not asked: the nvidia kernel module is not loaded, and asking would load it"}
        result = self._child.finish()
        facts["seconds"] = result.seconds
        try:
            facts.update(parse_query(result.stdout))
        except GarbledOutput as error:
            facts.update(state="garbled", error=f"nvidia-smi wrote something that is not its XML ({error}){_beginning(result.text)}")
        else:
            facts["state"] = "ok"
        complaint = result.complaint("nvidia-smi")
        if complaint is not None:  # what it wrote before it failed is kept
            facts.update(state="failed" if result.problem is None else "hung", error=complaint)
        elif facts["state"] == "ok" and any(gpu["mig"]["current"] == "enabled" for gpu in facts["gpus"]):
            facts.update(self._with_instances(self._tool, result.stdout, self._timeout - result.seconds))
        return facts

    def _with_instances(self, tool: str, query: bytes, left: float) -> dict[str, Any]:
        texts = []
        failure: dict[str, Any] = {}
        asked = [(arguments, self._commands.start([tool, *arguments], max(left, 1.0))) for arguments in (["-L"], ["mig", "-lgi"])]
        for arguments, child in asked:
            result = child.finish()
            # An enabled GPU without instances is an answer, whatever the exit status says.
            empty = result.problem is None and _NO_INSTANCES in result.text
            complaint = None if empty else result.complaint(" ".join(["nvidia-smi", *arguments]))
            texts.append(result.text)
            if complaint is not None:
                failure = {"state": "failed" if result.problem is None else "hung", "error": complaint}
        return {**parse_query(query, *texts), **failure}


def _beginning(text: str) -> str:
    """What it wrote, where that is words: an XML that breaks off says nothing by its beginning."""
    words = " ".join(text[:2000].split())
    if not words:
        return ": it wrote nothing"
    return "" if words.startswith("<") else f": {words[:200]}"


def parse_query(data: bytes, listing: str = "", instances: str = "") -> dict[str, Any]:
    """``driver_version``, ``cuda_version`` and ``gpus`` from the XML of ``nvidia-smi -q -x``.

    ``listing`` is the text of ``nvidia-smi -L``, which alone has profile and UUID of MIG devices; ``instances`` that of ``nvidia-smi mig -lgi``, which alone
    has placements and the GPU instances without compute instances. Lines of another form are passed over: both are made for people.

    Raises GarbledOutput, and nothing else, for anything that is not that.
    """
    from xml.etree import ElementTree  # noqa: PLC0415 - not needed on a host without a driver

    try:
        log = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise GarbledOutput(str(error)) from error
    if log.tag != "nvidia_smi_log":
        raise GarbledOutput(f"its outermost element is {log.tag}")
    driver_version = _text(log, "driver_version")
    if driver_version is None:
        raise GarbledOutput("it names no driver version")
    names = _mig_names(listing)
    gpus = [_gpu(index, gpu, names) for index, gpu in enumerate(log.findall("gpu"))]
    _add_placements(gpus, instances)
    return {"driver_version": driver_version, "cuda_version": _text(log, "cuda_version"), "gpus": gpus}


def parse_counters(data: bytes) -> dict[str, dict[str, Any]]:
    """What a GPU counts and how it runs now, by PCI bus id, from the same XML. A number or flag that a card does not report is None.

    ``ecc`` (volatile and aggregate, correctable and uncorrectable), ``rows`` (remapped rows and repairs), ``replays`` (of PCIe), ``link`` (generation and
    width, now and at most), ``throttle``: the reasons that clocks are held back for, as NVML's bit mask (``mask``), and the time of each in microseconds.

    Raises GarbledOutput as parse_query does.
    """
    from xml.etree import ElementTree  # noqa: PLC0415 - not needed on a host without a driver

    try:
        log = ElementTree.fromstring(data)
    except (ElementTree.ParseError, ValueError, LookupError) as error:
        raise GarbledOutput(str(error)) from error
    return {_bus_id(gpu): _counters(gpu) for gpu in log.findall("gpu")}


def _bus_id(gpu: Element) -> str:
    try:
        return normalize_bus_id(gpu.get("id") or _text(gpu, "pci/pci_bus_id") or "")
    except ValueError as error:
        raise GarbledOutput(str(error)) from error


def _counters(gpu: Element) -> dict[str, Any]:
    ecc = {}
    for period in ("volatile", "aggregate"):
        ecc[f"{period}_uncorrectable"] = _uncorrectable(gpu, period)
        ecc[f"{period}_correctable"] = _correctable(gpu, period)
    rows: dict[str, Any] = {kind: _number(gpu, f"remapped_rows/remapped_row_{short}") for kind, short in (("correctable", "corr"), ("uncorrectable", "unc"))}
    flags = {
        "pending": "remapped_rows/remapped_row_pending",
        "failure": "remapped_rows/remapped_row_failure",
        "retirement_pending": "retired_pages/pending_retirement",
        "channel_repair_pending": "ecc_errors/channel_repair_pending",
        "tpc_repair_pending": "ecc_errors/tpc_repair_pending",
        "unrepairable_memory": "ecc_errors/unrepairable_memory",
    }
    rows.update({name: _flag(gpu, path, "Yes", "No") for name, path in flags.items()})
    link = "pci/pci_gpu_link_info"
    return {
        "ecc": ecc,
        "rows": rows,
        "replays": _number(gpu, "pci/replay_counter"),
        "link": {
            "generation": _number(gpu, f"{link}/pcie_gen/current_link_gen"),
            "max_generation": _number(gpu, f"{link}/pcie_gen/max_link_gen"),
            "width": _number(gpu, f"{link}/link_widths/current_link_width"),
            "max_width": _number(gpu, f"{link}/link_widths/max_link_width"),
        },
        "throttle": _throttle(gpu),
    }


def _throttle(gpu: Element) -> dict[str, Any]:
    """Older drivers call the reasons those of throttling, newer ones those of events, and only these count their time."""
    mask: int | None = None
    for name, bit in THROTTLE_BITS.items():
        for word in ("event", "throttle"):
            active = _flag(gpu, f"clocks_{word}_reasons/clocks_{word}_reason_{name}", "Active", "Not Active")
            if active is not None:
                mask = (mask or 0) | (bit if active else 0)
    times = {name: _number(gpu, f"clocks_event_reasons_counters/clocks_event_reasons_counters_{short}") for name, short in THROTTLE_TIMES.items()}
    return {"mask": mask, "microseconds": times}


def _correctable(gpu: Element, period: str) -> int | None:
    """Sum over the memories. Before Ampere there is one figure, called single bit."""
    errors = gpu.find(f"ecc_errors/{period}")
    if errors is None:
        return None
    counts = [_number(errors, child.tag) for child in errors if child.tag.endswith("_correctable")]
    counts.append(_number(errors, "single_bit/total"))
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def parse_nvlink_errors(listing: str) -> dict[str, dict[int, dict[str, int]]]:
    """Error counters of each link by the GPU's UUID, from ``nvidia-smi nvlink -e``: UUID -> link -> counter -> count. A GPU without links has none."""
    found: dict[str, dict[int, dict[str, int]]] = {}
    uuid = None
    for line in listing.splitlines():
        gpu, counter = _LIST_GPU.match(line), _LINK_COUNTER.match(line)
        if gpu:
            uuid = gpu.group(1)
            found[uuid] = {}
        elif counter and uuid:
            found[uuid].setdefault(int(counter.group(1)), {})[counter.group(2)] = int(counter.group(3))
    return found


def _gpu(index: int, gpu: Element, names: _MigNames) -> dict[str, Any]:
    address = gpu.get("id") or _text(gpu, "pci/pci_bus_id") or ""
    try:
        bus_id = normalize_bus_id(address)
    except ValueError as error:
        raise GarbledOutput(f"GPU {index} is {error}") from error
    uuid = _text(gpu, "uuid")
    return {
        "index": index,
        "uuid": uuid if uuid and uuid.startswith("GPU-") else None,
        "pci_bus_id": bus_id,
        "name": _text(gpu, "product_name"),
        "serial": _text(gpu, "serial"),
        "memory_mib": _number(gpu, "fb_memory_usage/total"),
        "persistence": _flag(gpu, "persistence_mode", "Enabled", "Disabled"),
        "compute_mode": _text(gpu, "compute_mode"),
        "mig": {
            "current": _mig_state(gpu, "mig_mode/current_mig"),
            "pending": _mig_state(gpu, "mig_mode/pending_mig"),
            "instances": [_mig_instance(device, uuid, names) for device in gpu.findall("mig_devices/mig_device")],
        },
        "fabric": {"state": _text(gpu, "fabric/state"), "status": _text(gpu, "fabric/status")},
        "ecc": {"volatile_uncorrectable": _uncorrectable(gpu, "volatile"), "aggregate_uncorrectable": _uncorrectable(gpu, "aggregate")},
        "remapped_rows": {
            "pending": _flag(gpu, "remapped_rows/remapped_row_pending", "Yes", "No"),
            "failure": _flag(gpu, "remapped_rows/remapped_row_failure", "Yes", "No"),
        },
        "recovery_action": _text(gpu, "gpu_recovery_action"),
        "errors": _errors(gpu),
        "processes": [
            {"pid": _number(process, "pid") or 0, "name": _text(process, "process_name"), "memory_mib": _number(process, "used_memory")}
            for process in gpu.findall("processes/process_info")
        ],
    }


def _text(element: Element, path: str) -> str | None:
    """Text of a child; None where it is absent or one of the ways in which the tool says that it has no value."""
    text = (element.findtext(path) or "").strip()
    return None if _word(text) in _NO_VALUE | _ERRORS else text


def _word(text: str) -> str:
    return text.strip().strip("[]").lower()


def _errors(gpu: Element) -> list[str]:
    """Each field about the card's health that could not be read, with the tool's words in place of the value."""
    fields = (field for name in _HEALTH for part in gpu.findall(name) for field in part.iter())
    return [f"{field.tag}: {(field.text or '').strip()}" for field in fields if _word(field.text or "") in _ERRORS]


def _number(element: Element, path: str) -> int | None:
    match = _NUMBER.match(_text(element, path) or "")
    return int(match.group()) if match else None


def _flag(element: Element, path: str, true: str, false: str) -> bool | None:
    return {true: True, false: False}.get(_text(element, path) or "")


def _mig_state(gpu: Element, path: str) -> str:
    return {"Enabled": "enabled", "Disabled": "disabled"}.get(_text(gpu, path) or "", "unsupported")


def _uncorrectable(gpu: Element, period: str) -> int | None:
    """Sum over the memories. Before Ampere there is one figure, called double bit."""
    errors = gpu.find(f"ecc_errors/{period}")
    if errors is None:
        return None
    counts = [_number(errors, child.tag) for child in errors if "uncorrectable" in child.tag]
    counts.append(_number(errors, "double_bit/total"))
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _mig_instance(device: Element, gpu_uuid: str | None, names: _MigNames) -> dict[str, Any]:
    instance = _number(device, "gpu_instance_id")
    if instance is None:
        raise GarbledOutput("a MIG device has no GPU instance id")
    profile, uuid = names.get((gpu_uuid, _number(device, "index")), (None, None))
    return {"profile": profile, "gi": instance, "ci": _number(device, "compute_instance_id"), "placement_start": None, "uuid": uuid}


def _mig_names(listing: str) -> _MigNames:
    """GPU UUID and index of the MIG device on it, to its profile and UUID."""
    names: _MigNames = {}
    uuid = None
    for line in listing.splitlines():
        gpu, device = _LIST_GPU.match(line), _LIST_MIG.match(line)
        if gpu:
            uuid = gpu.group(1)
        elif device:
            names[uuid, int(device.group(2))] = device.group(1), device.group(3)
    return names


def _add_placements(gpus: list[dict[str, Any]], listing: str) -> None:
    for line in listing.splitlines():
        match = _LIST_INSTANCE.match(line)
        if match is None or int(match.group(1)) >= len(gpus):
            continue
        profile, gi, start = match.group(2), int(match.group(3)), int(match.group(4))
        instances = gpus[int(match.group(1))]["mig"]["instances"]
        of_this = [instance for instance in instances if instance["gi"] == gi]
        if not of_this:
            of_this = [{"profile": profile, "gi": gi, "ci": None, "placement_start": None, "uuid": None}]
            instances.extend(of_this)
        for instance in of_this:
            instance["placement_start"] = start
