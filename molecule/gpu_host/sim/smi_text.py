# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""What nvidia-smi prints, as pure functions of a view of the machine; compared with recordings in tests/unit/gpu_host.

A view is what NVML would answer to this process: driver version, and the GPUs that it can see with all their numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from string import Template
from typing import Any

from . import mig
from .board import HOME, smi_bus_id
from .state import State, link_of, mig_of, present_gpus

# CUDA version that each branch's nvidia-smi prints.
CUDA_OF_BRANCH = {"580": "13.0", "590": "13.1", "595": "13.2"}


@dataclass(frozen=True)
class Process:
    """A process that uses a GPU; ``memory_mib`` is made up, the same for each."""

    pid: int
    name: str
    memory_mib: int = 524


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML shows it. ``board`` holds the numbers of the board file, GPU and board together."""

    index: int
    board: dict[str, Any]
    persistence: bool
    mig_current: bool
    mig_pending: bool
    instances: list[dict[str, Any]]
    devices: list[dict[str, Any]]
    fabric: str
    processes: tuple[Process, ...]
    row_remap: str | None = None
    hot_since: float | None = None
    """When it became too hot, in seconds of the clock; its clocks are held back since."""

    @property
    def bus_id(self) -> str:
        return smi_bus_id(self.board["pci_bus_id"])

    @property
    def link_generation(self) -> int:
        return PCIE_GENERATIONS[self.board["link_speed"]]

    @property
    def max_link_generation(self) -> int:
        return PCIE_GENERATIONS[self.board.get("max_link_speed", self.board["link_speed"])]

    @property
    def table(self) -> tuple[mig.Profile, ...]:
        return mig.profiles(self.board)

    @property
    def memory_used(self) -> int:
        return sum(process.memory_mib for process in self.processes)

    @property
    def memory_free(self) -> int:
        # As recorded: 143771 in all, 616 reserved, 0 used, 143156 free; each number is rounded by itself.
        return int(self.board["memory_mib"]) - int(self.board["reserved_mib"]) - self.memory_used + 1

    def mig_word(self, on: bool) -> str:
        return ("Enabled" if on else "Disabled") if self.table else "N/A"


@dataclass(frozen=True)
class View:
    """All that is printed; ``cuda_version`` is the highest that the driver serves."""

    driver_version: str
    cuda_version: str
    gpus: tuple[Gpu, ...]
    now: datetime


PCIE_GENERATIONS = {"8.0 GT/s PCIe": 3, "16.0 GT/s PCIe": 4, "32.0 GT/s PCIe": 5}
FABRIC_WORDS = {"none": ("N/A", "N/A"), "not_started": ("Not Started", "N/A"), "in_progress": ("In Progress", "N/A"), "completed": ("Completed", "Success")}


def view_of(state: State, driver_version: str, processes: dict[int, tuple[Process, ...]], visible: Callable[[str], bool], now: datetime) -> View:
    """Make the view from the state.

    :param processes: by minor number of the GPU.
    :param visible: whether this process can use a device node (name below /dev); a container sees few of them.
    """
    gpus: list[Gpu] = []
    for gpu in present_gpus(state):
        if not visible(f"nvidia{gpu['minor']}"):
            continue
        board = {**state["board"]["gpu"], **link_of(state, gpu["pci_bus_id"]), **gpu}
        held = mig_of(state, gpu["pci_bus_id"])
        devices = mig.devices(mig.profiles(board), gpu, held["instances"])
        shown = [each for each in devices if visible(f"nvidia-caps/nvidia-cap{mig.capability_minor(gpu['minor'], each['gi'], each['ci'])}")]
        gpus.append(
            Gpu(
                index=len(gpus),
                board=board,
                persistence=state["persistence"],
                mig_current=held["current"],
                mig_pending=held["pending"],
                instances=held["instances"],
                devices=[{**each, "index": number} for number, each in enumerate(shown)],
                fabric=state["fabric"],
                processes=processes.get(gpu["minor"], ()),
                row_remap="pending" if gpu["pci_bus_id"] in state["faults"].get("row-remap-pending", []) else None,
                hot_since=state["faults"].get("gpu-hot", {}).get(gpu["pci_bus_id"]),
            )
        )
    return View(driver_version, CUDA_OF_BRANCH.get(driver_version.split(".", maxsplit=1)[0], "13.0"), tuple(gpus), now)


# -L


def listing(view: View) -> str:
    """``nvidia-smi -L``."""
    lines = []
    for gpu in view.gpus:
        lines.append(f"GPU {gpu.index}: {gpu.board['product_name']} (UUID: {gpu.board['uuid']})")
        lines += [f"  MIG {each['name']:<11} Device {each['index']:>2}: (UUID: {each['uuid']})" for each in gpu.devices if gpu.mig_current]
    return "".join(line + "\n" for line in lines)


# nvlink and topo -m


def nvlink_status(view: View) -> str:
    """``nvidia-smi nvlink -s``; a GPU without links is left out."""
    return _of_links(view, lambda gpu, link: [f"{gpu.board['nvlink_gbs']} GB/s"])


def nvlink_errors(view: View) -> str:
    """``nvidia-smi nvlink -e``: three counters of each link, none of which ever counts here."""
    return _of_links(view, lambda gpu, link: ["Replay Errors: 0", "Recovery Errors: 0", "CRC Errors: 0"])


def _of_links(view: View, said: Callable[[Gpu, int], list[str]]) -> str:
    lines = []
    for gpu in view.gpus:
        links = range(gpu.board["nvlinks"])
        lines += [f"GPU {gpu.index}: {gpu.board['product_name']} (UUID: {gpu.board['uuid']})"] if links else []
        lines += [f"\t Link {link}: {words}" for link in links for words in said(gpu, link)]
    return "".join(line + "\n" for line in lines)


_TOPOLOGY_LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NODE = Connection traversing PCIe as well as the interconnect between PCIe Host Bridges within a NUMA node
  PHB  = Connection traversing PCIe as well as a PCIe Host Bridge (typically the CPU)
  PXB  = Connection traversing multiple PCIe bridges (without traversing the PCIe Host Bridge)
  PIX  = Connection traversing at most a single PCIe bridge
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def topology(view: View) -> str:
    """``nvidia-smi topo -m``: every pair has all links of the board, which has switches."""
    head = ["", *(f"GPU{gpu.index}" for gpu in view.gpus), "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"]
    lines = ["\t\x1b[4m" + "\t".join(head[1:]) + "\x1b[0m"]
    for gpu in view.gpus:
        ways = [" X " if other is gpu else f"NV{gpu.board.get('nvlinks', 0)}" for other in view.gpus]
        numa = gpu.board["numa_node"]
        own = str(numa) if gpu.board["gpu_numa_id"] else "N/A"
        lines.append("\t".join([f"GPU{gpu.index}", *ways, gpu.board["cpus_of_numa"][numa], str(numa), "", own]))
    return "".join(line + "\n" for line in lines) + _TOPOLOGY_LEGEND


# The table


def table(view: View) -> str:
    """``nvidia-smi`` without options."""
    edge = "+-----------------------------------------+------------------------+----------------------+"
    lines = [
        f"{view.now:%a %b} {view.now.day:>2} {view.now:%H:%M:%S %Y}       ",
        "+-----------------------------------------------------------------------------------------+",
        f"| NVIDIA-SMI {view.driver_version:<22} Driver Version: {view.driver_version:<14} CUDA Version: {view.cuda_version:<9}|",
        edge,
        "| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |",
        "| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |",
        "|                                         |                        |               MIG M. |",
        "|=========================================+========================+======================|",
    ]
    for gpu in view.gpus:
        board = gpu.board
        ecc = "On" if gpu.mig_current else "0"
        power = f"{round(board['average_power_w'])}W /  {board['power_limit_w']}W"
        memory = f"{gpu.memory_used}MiB / {board['memory_mib']:>6}MiB"
        utilization = "N/A" if gpu.mig_current else "0%"
        lines += [
            f"| {gpu.index:>3}  {board['product_name']:<25.25} {'On' if gpu.persistence else 'Off':>7}  | {gpu.bus_id:>18} Off | {ecc:>20} |",
            f"| N/A {board['temperature_c']:>4}C    P0 {power:>23} | {memory:>22} | {utilization:>7} {'Default':>12} |",
            f"|                                         |                        | {gpu.mig_word(gpu.mig_current):>20} |",
            edge,
        ]
    if any(gpu.mig_current for gpu in view.gpus):
        lines += ["", *_mig_devices_table(view)]
    lines += ["", *_process_table(view)]
    return "".join(line + "\n" for line in lines)


def _mig_devices_table(view: View) -> list[str]:
    edge = "+------------------+----------------------------------+-----------+-----------------------+"
    lines = [
        "+-----------------------------------------------------------------------------------------+",
        "| MIG devices:                                                                            |",
        edge,
        "| GPU  GI  CI  MIG |              Shared Memory-Usage |        Vol|        Shared         |",
        "|      ID  ID  Dev |                Shared BAR1-Usage | SM     Unc| CE ENC  DEC  OFA  JPG |",
        "|                  |                                  |        ECC|                       |",
        "|==================+==================================+===========+=======================|",
    ]
    rows = 0
    for gpu in view.gpus:
        for each in gpu.devices:
            profile = each["profile"]
            copy, decoder, encoder, jpeg, ofa = profile.engines
            memory = f"{0}MiB / {profile.memory_mib}MiB"
            lines += [
                f"| {gpu.index:>2}  {each['gi']:>3} {each['ci']:>3} {each['index']:>3}  | {memory:>32} | {profile.multiprocessors:<3}     0 |"
                f" {copy:>2} {encoder:>3} {decoder:>4} {ofa:>4} {jpeg:>4} |",
                f"|                  | {'0MiB / ' + str(gpu.board['bar1_mib'] // 8) + 'MiB':>32} |           |                       |",
                edge,
            ]
            rows += 1
    if not rows:
        lines += ["|  No MIG devices found                                                                   |"]
        lines += ["+-----------------------------------------------------------------------------------------+"]
    return lines


def _process_table(view: View) -> list[str]:
    edge = "+-----------------------------------------------------------------------------------------+"
    lines = [
        edge,
        "| Processes:                                                                              |",
        "|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |",
        "|        ID   ID                                                               Usage      |",
        "|=========================================================================================|",
    ]
    rows = [
        f"| {gpu.index:>4}   N/A  N/A {process.pid:>16} {'C':>6}   {process.name:<35.35} {process.memory_mib:>6}MiB |"
        for gpu in view.gpus
        for process in gpu.processes
    ]
    return [*lines, *(rows or ["|  No running processes found                                                             |"]), edge]


# -q -x


def _template() -> Template:
    return Template(Path(HOME / "templates/gpu.xml").read_text(encoding="utf-8"))


def xml(view: View) -> str:
    """``nvidia-smi -q -x``: the recorded document of driver 580 with this machine's values."""
    head = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">',
        "<nvidia_smi_log>",
        f"\t<timestamp>{view.now:%a %b} {view.now.day:>2} {view.now:%H:%M:%S %Y}</timestamp>",
        f"\t<driver_version>{view.driver_version}</driver_version>",
        f"\t<cuda_version>{view.cuda_version}</cuda_version>",
        f"\t<attached_gpus>{len(view.gpus)}</attached_gpus>",
    ]
    template = _template()
    body = "".join(template.substitute(_xml_values(view, gpu)) for gpu in view.gpus)
    return "".join(line + "\n" for line in head) + body + "\n</nvidia_smi_log>\n"


# Placeholders of the template that are values of the board file as they are.
_AS_IT_IS = (
    *("product_name", "architecture", "display_attached", "serial", "uuid", "pdi", "minor", "vbios", "board_part_number", "gpu_part_number", "module_id"),
    *("inforom_image", "inforom_oem", "inforom_ecc", "virtualization_mode", "max_host_link_gen", "link_width", "tx_util", "rx_util", "remap_banks"),
)


def _xml_values(view: View, gpu: Gpu) -> dict[str, object]:
    board = gpu.board
    domain, bus, slot = board["pci_bus_id"].upper().split(":")
    state, status = FABRIC_WORDS[gpu.fabric]
    completed = gpu.fabric == "completed"
    vendor, product = board["pci_id"].upper().split(":")
    sub_vendor, sub_device = board["subsystem_id"].upper().split(":")
    return {
        **{name: board[name] for name in _AS_IT_IS},
        "bus_id": gpu.bus_id,
        "driver_version": view.driver_version,
        "persistence": "Enabled" if gpu.persistence else "Disabled",
        "mig_current": gpu.mig_word(gpu.mig_current),
        "mig_pending": gpu.mig_word(gpu.mig_pending),
        "mig_devices": _xml_mig_devices(gpu),
        "board_id": f"0x{(int(domain, 16) << 16) + (int(bus, 16) << 8) + int(slot.split('.', maxsplit=1)[0], 16):x}",
        "recovery_action": "Reset" if gpu.row_remap else "None",
        "pci_bus": bus,
        "pci_device": slot.split(".", maxsplit=1)[0],
        "pci_domain": domain,
        "pci_device_id": product + vendor,
        "pci_sub_system_id": sub_device + sub_vendor,
        "idle": "Not Active" if gpu.processes or gpu.hot_since else "Active",
        "hot": "Active" if gpu.hot_since else "Not Active",
        "hot_us": int((view.now.timestamp() - gpu.hot_since) * 1e6) if gpu.hot_since else 0,
        "link_gen": gpu.link_generation,
        "max_link_gen": gpu.max_link_generation,
        "memory_total": f"{board['memory_mib']} MiB",
        "memory_reserved": f"{board['reserved_mib']} MiB",
        "memory_used": f"{gpu.memory_used} MiB",
        "memory_free": f"{gpu.memory_free} MiB",
        "bar1_total": f"{board['bar1_mib']} MiB",
        "bar1_used": f"{board['bar1_used_mib']} MiB",
        "bar1_free": f"{board['bar1_mib'] - board['bar1_used_mib']} MiB",
        "utilization": "N/A" if gpu.mig_current else "0 %",
        "volatile_dram_uncorrectable": 1 if gpu.row_remap else 0,
        "aggregate_dram_uncorrectable": 1 if gpu.row_remap else 0,
        "remapped_rows": 1 if gpu.row_remap else 0,
        "remap_pending": "Yes" if gpu.row_remap == "pending" else "No",
        "remap_failure": "No",
        "temperature": board["temperature_c"],
        "temperature_tlimit": board["temperature_tlimit_c"],
        "memory_temperature": board["memory_temperature_c"],
        "average_power": f"{board['average_power_w']:.2f}",
        "instant_power": f"{board['instant_power_w']:.2f}",
        "memory_power": f"{board['memory_power_w']:.2f}",
        "power_limit": f"{board['power_limit_w']:.2f}",
        "min_power_limit": f"{board['min_power_limit_w']:.2f}",
        "graphics_clock": board["graphics_clock_mhz"],
        "video_clock": board["video_clock_mhz"],
        "memory_clock": board["memory_clock_mhz"],
        "max_graphics_clock": board["max_graphics_clock_mhz"],
        "max_video_clock": board["max_video_clock_mhz"],
        "fabric_state": state,
        "fabric_status": status,
        "fabric_clique": "0" if completed else "N/A",
        "fabric_cluster": "00000000-0000-0000-0000-000000000000" if completed else "N/A",
        "supported_clocks": _xml_supported_clocks(board),
        "processes": _xml_processes(gpu),
    }


def _xml_block(name: str, depth: int, *contents: tuple[str, object] | str) -> str:
    tabs = "\t" * depth
    inner = "".join(each if isinstance(each, str) else f"{tabs}\t<{each[0]}>{each[1]}</{each[0]}>\n" for each in contents)
    return f"{tabs}<{name}>\n{inner}{tabs}</{name}>\n"


def _xml_mig_devices(gpu: Gpu) -> str:
    if not gpu.mig_current or not gpu.devices:
        return "\t\t<mig_devices>\n\t\t\tNone\n\t\t</mig_devices>\n"
    blocks = []
    for each in gpu.devices:
        profile = each["profile"]
        copy, decoder, encoder, jpeg, ofa = profile.engines
        engines = (("copy_engine_count", copy), ("encoder_count", encoder), ("decoder_count", decoder), ("ofa_count", ofa), ("jpg_count", jpeg))
        bar1 = gpu.board["bar1_mib"] // 8
        blocks.append(
            _xml_block(
                "mig_device",
                3,
                ("index", each["index"]),
                ("gpu_instance_id", each["gi"]),
                ("compute_instance_id", each["ci"]),
                _xml_block("device_attributes", 4, _xml_block("shared", 5, ("multiprocessor_count", profile.multiprocessors), *engines)),
                _xml_block("ecc_error_count", 4, _xml_block("volatile_count", 5, ("sram_uncorrectable", 0))),
                _xml_block(
                    "fb_memory_usage",
                    4,
                    ("total", f"{profile.memory_mib} MiB"),
                    ("reserved", "0 MiB"),
                    ("used", "0 MiB"),
                    ("free", f"{profile.memory_mib} MiB"),
                ),
                _xml_block("bar1_memory_usage", 4, ("total", f"{bar1} MiB"), ("used", "0 MiB"), ("free", f"{bar1} MiB")),
            )
        )
    return _xml_block("mig_devices", 2, *blocks)


def _xml_supported_clocks(board: dict[str, Any]) -> str:
    blocks = []
    for memory in board["supported_memory_clocks_mhz"]:
        graphics = range(board["max_graphics_clock_mhz"], board["lowest_graphics_clock_mhz"] - 1, -15)
        clocks = [("supported_graphics_clock", f"{clock} MHz") for clock in graphics]
        blocks.append(_xml_block("supported_mem_clock", 3, ("value", f"{memory} MHz"), *clocks))
    return _xml_block("supported_clocks", 2, *blocks)


def _xml_processes(gpu: Gpu) -> str:
    blocks = [
        _xml_block(
            "process_info",
            3,
            ("gpu_instance_id", "N/A"),
            ("compute_instance_id", "N/A"),
            ("pid", process.pid),
            ("type", "C"),
            ("process_name", process.name),
            ("used_memory", f"{process.memory_mib} MiB"),
        )
        for process in gpu.processes
    ]
    return _xml_block("processes", 2, *blocks)


# --query-gpu


class FieldError(Exception):
    """A field that nvidia-smi does not know."""


def _fabric(gpu: Gpu, part: int) -> str:
    return FABRIC_WORDS[gpu.fabric][part]


_Field = tuple[Callable[[View, Gpu], object], str | None]

_ECC = "ecc.errors.uncorrected.{}.total"
GPU_FIELDS: dict[str, _Field] = {
    "timestamp": (lambda view, gpu: view.now.strftime("%Y/%m/%d %H:%M:%S.000"), None),
    "driver_version": (lambda view, gpu: view.driver_version, None),
    "count": (lambda view, gpu: len(view.gpus), None),
    "index": (lambda view, gpu: gpu.index, None),
    "name": (lambda view, gpu: gpu.board["product_name"], None),
    "uuid": (lambda view, gpu: gpu.board["uuid"], None),
    "serial": (lambda view, gpu: gpu.board["serial"], None),
    "pci.bus_id": (lambda view, gpu: gpu.bus_id, None),
    "pci.device_id": (lambda view, gpu: "0x{1}{0}".format(*gpu.board["pci_id"].upper().split(":")), None),
    "pcie.link.gen.current": (lambda view, gpu: gpu.link_generation, None),
    "pcie.link.gen.max": (lambda view, gpu: gpu.max_link_generation, None),
    "pcie.link.width.current": (lambda view, gpu: gpu.board["link_width"], None),
    "pcie.link.width.max": (lambda view, gpu: gpu.board["link_width"], None),
    "compute_cap": (lambda view, gpu: gpu.board["compute_capability"], None),
    "compute_mode": (lambda view, gpu: "Default", None),
    "vbios_version": (lambda view, gpu: gpu.board["vbios"], None),
    "persistence_mode": (lambda view, gpu: "Enabled" if gpu.persistence else "Disabled", None),
    "mig.mode.current": (lambda view, gpu: "[N/A]" if not gpu.table else gpu.mig_word(gpu.mig_current), None),
    "mig.mode.pending": (lambda view, gpu: "[N/A]" if not gpu.table else gpu.mig_word(gpu.mig_pending), None),
    "memory.total": (lambda view, gpu: gpu.board["memory_mib"], "MiB"),
    "memory.reserved": (lambda view, gpu: gpu.board["reserved_mib"], "MiB"),
    "memory.used": (lambda view, gpu: gpu.memory_used, "MiB"),
    "memory.free": (lambda view, gpu: gpu.memory_free, "MiB"),
    "utilization.gpu": (lambda view, gpu: "[N/A]" if gpu.mig_current else 0, "%"),
    "ecc.mode.current": (lambda view, gpu: "Enabled", None),
    "ecc.mode.pending": (lambda view, gpu: "Enabled", None),
    _ECC.format("volatile"): (lambda view, gpu: 1 if gpu.row_remap else 0, None),
    _ECC.format("aggregate"): (lambda view, gpu: 1 if gpu.row_remap else 0, None),
    "clocks_event_reasons.active": (lambda view, gpu: f"0x{0x48 if gpu.hot_since else 0 if gpu.processes else 1:016x}", None),
    "clocks.current.sm": (lambda view, gpu: gpu.board["graphics_clock_mhz"], "MHz"),
    "clocks.max.sm": (lambda view, gpu: gpu.board["max_graphics_clock_mhz"], "MHz"),
    "power.draw": (lambda view, gpu: f"{gpu.board['average_power_w']:.2f}", "W"),
    "power.limit": (lambda view, gpu: f"{gpu.board['power_limit_w']:.2f}", "W"),
    "temperature.gpu": (lambda view, gpu: gpu.board["temperature_c"], None),
    "temperature.memory": (lambda view, gpu: gpu.board["memory_temperature_c"], None),
    "fabric.state": (lambda view, gpu: _fabric(gpu, 0), None),
    "fabric.status": (lambda view, gpu: _fabric(gpu, 1), None),
}
_GPU_ALIASES = {
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_serial": "serial",
    "gpu_bus_id": "pci.bus_id",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
    "clocks.sm": "clocks.current.sm",
}
REMAP_FIELDS: dict[str, _Field] = {
    "gpu_name": (lambda view, gpu: gpu.board["product_name"], None),
    "gpu_bus_id": (lambda view, gpu: gpu.bus_id, None),
    "gpu_uuid": (lambda view, gpu: gpu.board["uuid"], None),
    "remapped_rows.correctable": (lambda view, gpu: 0, None),
    "remapped_rows.uncorrectable": (lambda view, gpu: 1 if gpu.row_remap else 0, None),
    "remapped_rows.pending": (lambda view, gpu: "Yes" if gpu.row_remap == "pending" else "No", None),
    "remapped_rows.failure": (lambda view, gpu: "No", None),
}


def _csv(rows: list[list[str]], header: list[str], noheader: bool) -> str:
    return "".join(", ".join(row) + "\n" for row in ([] if noheader else [header]) + rows)


def _cell(value: object, unit: str | None, nounits: bool) -> str:
    return str(value) if unit is None or nounits or str(value).startswith("[") else f"{value} {unit}"


def query(view: View, names: list[str], fields: dict[str, _Field], *, noheader: bool = False, nounits: bool = False) -> str:
    """``--query-gpu=`` and ``--query-remapped-rows=`` with ``--format=csv``.

    :raises FieldError: names a field that is not known.
    """
    aliases = _GPU_ALIASES if fields is GPU_FIELDS else {}
    chosen = []
    for name in names:
        known = aliases.get(name, name)
        if known not in fields:
            raise FieldError(name)
        chosen.append((name, *fields[known]))
    header = [name if unit is None or nounits else f"{name} [{unit}]" for name, _get, unit in chosen]
    rows = [[_cell(get(view, gpu), unit, nounits) for _name, get, unit in chosen] for gpu in view.gpus]
    return _csv(rows, header, noheader)


def query_apps(view: View, names: list[str], *, noheader: bool = False, nounits: bool = False) -> str:
    """``--query-compute-apps=``.

    :raises FieldError: names a field that is not known.
    """
    get: dict[str, tuple[Callable[[Gpu, Process], object], str | None]] = {
        "pid": (lambda gpu, process: process.pid, None),
        "process_name": (lambda gpu, process: process.name, None),
        "name": (lambda gpu, process: process.name, None),
        "used_memory": (lambda gpu, process: process.memory_mib, "MiB"),
        "used_gpu_memory": (lambda gpu, process: process.memory_mib, "MiB"),
        "gpu_uuid": (lambda gpu, process: gpu.board["uuid"], None),
        "gpu_bus_id": (lambda gpu, process: gpu.bus_id, None),
        "gpu_name": (lambda gpu, process: gpu.board["product_name"], None),
    }
    for name in names:
        if name not in get:
            raise FieldError(name)
    header = [name if get[name][1] is None or nounits else f"{name} [{get[name][1]}]" for name in names]
    rows = [[_cell(get[name][0](gpu, process), get[name][1], nounits) for name in names] for gpu in view.gpus for process in gpu.processes]
    return _csv(rows, header, noheader)


# mig -lgip and so on


def gpu_instance_profiles(view: View) -> str:
    """``nvidia-smi mig -lgip``."""
    edge = "+-------------------------------------------------------------------------------+"
    lines = [
        edge,
        "| GPU instance profiles:                                                        |",
        "| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |",
        "|                                Free/Total   GiB              CE    JPEG  OFA  |",
        "|===============================================================================|",
    ]
    for gpu in view.gpus:
        for profile in gpu.table:
            copy, decoder, encoder, jpeg, ofa = profile.engines
            counts = f"{mig.free_count(gpu.table, gpu.instances, profile)}/{profile.maximum}"
            lines += [
                f"| {gpu.index:>3}  MIG {profile.name:<15}{profile.profile_id:>3} {counts:>7}        {profile.memory_gib:<6}     No"
                f"     {profile.multiprocessors:<3} {decoder:>4} {encoder:>5}   |",
                f"|                                                          {copy:>6} {jpeg:>5} {ofa:>5}   |",
                edge,
            ]
    return "".join(line + "\n" for line in lines)


def placements(view: View) -> str:
    """``nvidia-smi mig -lgipp``."""
    lines = []
    for gpu in view.gpus:
        for profile in gpu.table:
            word = "Placements" if len(profile.starts) > 1 else "Placement "
            places = ",".join(map(str, profile.starts))
            lines.append(f"GPU {gpu.index:>2} Profile ID {profile.profile_id:>2} {word}: {{{places}}}:{profile.memory_slices}")
    return "".join(line + "\n" for line in lines)


def _by_profile(gpu: Gpu) -> list[dict[str, Any]]:
    """Instances in the order of -lgi and -lci: profile by profile as -lgip has them, then by id."""
    order = [profile.profile_id for profile in gpu.table]
    return sorted(gpu.instances, key=lambda each: (order.index(each["profile"]), each["gi"]))


def gpu_instances(view: View) -> str:
    """``nvidia-smi mig -lgi``; empty when there are none."""
    edge = "+---------------------------------------------------------+"
    lines = [
        edge,
        "| GPU instances:                                          |",
        "| GPU   Name               Profile  Instance   Placement  |",
        "|                            ID       ID       Start:Size |",
        "|=========================================================|",
    ]
    rows = []
    for gpu in view.gpus:
        for each in _by_profile(gpu):
            profile = mig.by_id(gpu.table, each["profile"])
            place = f"{each['start']}:{profile.memory_slices}"
            rows += [f"| {gpu.index:>3}  MIG {profile.name:<15}{profile.profile_id:>5} {each['gi']:>8} {place:>12}     |", edge]
    return "".join(line + "\n" for line in lines + rows) if rows else ""


def compute_instances(view: View, wanted: set[int] | None) -> str:
    """``nvidia-smi mig -lci``, of all GPU instances or of those with the ids of ``wanted``; empty when there are none."""
    edge = "+--------------------------------------------------------------------+"
    lines = [
        edge,
        "| Compute instances:                                                 |",
        "| GPU     GPU       Name             Profile   Instance   Placement  |",
        "|       Instance                       ID        ID       Start:Size |",
        "|         ID                                                         |",
        "|====================================================================|",
    ]
    rows = []
    for gpu in view.gpus:
        for each in _by_profile(gpu):
            profile = mig.by_id(gpu.table, each["profile"])
            for ci in each["cis"] if wanted is None or each["gi"] in wanted else []:
                place = f"{ci['start']}:{mig.CI_PROFILES[ci['profile']]}"
                name = mig.ci_name(profile, ci["profile"])
                rows += [f"| {gpu.index:>3} {each['gi']:>6}       MIG {name:<15}{ci['profile']:>3} {ci['ci']:>9} {place:>12}     |", edge]
    return "".join(line + "\n" for line in lines + rows) if rows else ""


def versions(view: View) -> str:
    """``nvidia-smi --version``."""
    nvml = ".".join(view.driver_version.split(".")[:2])
    numbers = {"NVIDIA-SMI version": view.driver_version, "NVML version": nvml, "DRIVER version": view.driver_version, "CUDA Version": view.cuda_version}
    return "".join(f"{name:<20}: {number}\n" for name, number in numbers.items())
