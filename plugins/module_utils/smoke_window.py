# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What happened to the GPUs while they worked: counters and the kernel's log before and after, and how they ran in between. Pure.

Only what is new counts, since a card keeps counts of its whole life; rows that wait to be remapped or could not be always do. What a card does not report is
named and makes the check ``degraded``: silence is no pass. What cannot be read at all is ``could_not_run``.
"""

from __future__ import annotations

import re
from typing import Any, Callable, List, Mapping, NamedTuple, Sequence, Tuple

from ansible_collections.rackready.gpu.plugins.module_utils.nvidia_smi import THROTTLE_BITS
from ansible_collections.rackready.gpu.plugins.module_utils.pci import normalize_bus_id
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import HOST_COPIES
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, DEGRADED, FAIL, PASS, Check, Gpu, make_check

ECC, ROWS, NVLINK, REPLAYS, THROTTLE = "window.ecc", "window.row_remap", "window.nvlink", "window.replay", "window.throttle"
XID, SXID, LINK = "window.xid", "window.sxid", "pcie_link"
OF_EACH_GPU = (ECC, ROWS, NVLINK, REPLAYS, THROTTLE, XID, LINK)

# NVIDIA's Xid catalog (docs.nvidia.com/deploy/xid-errors, read 2025-10): whose immediate action is to restart or to ignore the application.
APPLICATION_XIDS = frozenset([8, 11, 13, 25, 31, 32, 37, 43, 44, 45, 60, 66, 67, 68, 69, 80, 82, 83, 84, 86, 88, 89, *range(96, 106), 139, 141, 142])
# Events of the card that the same catalog says to ignore or to restart the application for: said, and no reason to turn it away. 154 repeats what
# gpu_health reads itself.
NOTED_XIDS = frozenset([39, 40, 41, 70, 71, 72, 75, 76, 77, 85, 92, 93, 106, 107, 121, *range(126, 136), 152, 153, 154, 160, 161, 162, 163, 164])
# Of NVLink 5; their text says whether they are fatal.
NVLINK5_XIDS = frozenset(range(144, 151))
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]{1,4}),?\s*(.*)")
_SXID = re.compile(r"nvidia-nvswitch[0-9]*: SXid \((?:PCI:)?([0-9a-fA-F:.]+)\): ([0-9]{1,6}), (.*)")
# What DCGM takes for too many (dcgm_gpu_hardware_limits.h): replays of PCIe in a minute, CRC errors of an NVLink in a second.
REPLAYS_A_MINUTE = 8
CRC_A_SECOND = 100
CRC = "CRC Errors"
# Counters of `nvidia-smi nvlink -e` that a sound link leaves alone.
LINK_FAULTS = ("Replay Errors", "Recovery Errors")
HOT = THROTTLE_BITS["sw_thermal_slowdown"] | THROTTLE_BITS["hw_thermal_slowdown"] | THROTTLE_BITS["hw_power_brake_slowdown"]
# Held back for heat or by the power supply for less than this part of the work is said, for more it is a fault of the machine.
HOT_PART = 0.01
KEPT_LINES = 20
PCIE_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
RESET = "drain the host and reset the GPU (`nvidia-smi --gpu-reset`) or reboot, then test again; if it comes back, have the GPU replaced"
DMESG = "look in `dmesg` for its text and in NVIDIA's Xid catalog for its number"
BOTH = "nvidia-smi, before and after"
SMI_REMEDY = "run `nvidia-smi -q` on the host; a GPU whose driver hangs usually needs a reset or a reboot"


class Event(NamedTuple):
    """What makes two lines of the kernel's log one event: of a GPU or a switch (``device`` None: it does not say), its number and whether it is fatal."""

    kind: str
    device: str | None
    code: int
    fatal: bool | None


class Events:
    """Events by their number of lines, with the first text of each: a flood of one neither hides another nor fills the memory."""

    def __init__(self) -> None:
        self.counts: dict[Event, int] = {}
        self.texts: dict[Event, str] = {}
        self.of_peer_memory: list[str] = []

    def take(self, line: str) -> None:
        """Add one line of the kernel's log; most are none of ours."""
        event = event_of(line)
        if "peer_mem: " in line.replace("peermem", "peer_mem") and len(self.of_peer_memory) < KEPT_LINES:
            self.of_peer_memory.append(line.strip()[:300])
        if event:
            self.counts[event] = self.counts.get(event, 0) + 1
            self.texts.setdefault(event, line.strip()[:300])

    def of(self, kind: str, device: str | None) -> list[Event]:
        return sorted((event for event in self.counts if event.kind == kind and event.device == device), key=lambda event: (event.code, str(event.fatal)))

    def devices(self, kind: str) -> list[str | None]:
        return sorted({event.device for event in self.counts if event.kind == kind}, key=str)

    def words(self, events: Sequence[Event]) -> str:
        names = {"xid": "Xid", "sxid": "SXid"}
        return ", ".join(f"{names[event.kind]} {event.code}" + (f" x{self.counts[event]}" if self.counts[event] > 1 else "") for event in events)


def event_of(line: str) -> Event | None:
    """A line of the driver about a GPU (Xid) or a switch (SXid); None for everything else."""
    for kind, pattern in (("xid", _XID), ("sxid", _SXID)):
        match = pattern.search(line)
        if match:
            address, code, text = match.groups()
            return Event(kind, _bus_id(address), int(code), _fatal(text))
    return None


def _bus_id(text: str) -> str | None:
    """The driver leaves the function out: ``0000:9b:00``."""
    try:
        return normalize_bus_id(text if "." in text else f"{text}.0")
    except ValueError:
        return None


def _fatal(text: str) -> bool | None:
    match = re.search(r"\b(non-?)?fatal\b", text, re.IGNORECASE)
    return None if match is None else match.group(1) is None


def severity(event: Event) -> str:
    """What an event means for the verdict: ``fail`` for everything that is not known to be harmless."""
    if event.kind == "sxid" or event.code in NVLINK5_XIDS:
        return DEGRADED if event.fatal is False else FAIL
    return DEGRADED if event.code in APPLICATION_XIDS or event.code in NOTED_XIDS else FAIL


class Snapshot(NamedTuple):
    """Counters at one moment: those of nvidia-smi by bus id, those of the links by UUID. The problems say why there are none."""

    gpus: Mapping[str, Mapping[str, Any]]
    problem: str | None = None
    nvlinks: Mapping[str, Mapping[int, Mapping[str, int]]] = {}
    nvlink_problem: str | None = None


class Reading(NamedTuple):
    """How a GPU ran at one moment of the work; ``stage`` is what its process did, None where that is not known. Unknown numbers are None."""

    stage: str | None
    mask: int | None = None
    generation: int | None = None
    width: int | None = None


class Slot(NamedTuple):
    """What the slot of a GPU can do at most, as the port above it says; None: it does not say."""

    generation: int | None = None
    width: int | None = None


class Window(NamedTuple):
    """Everything that was looked at. ``readings`` and ``slots`` by bus id; ``log_problem``: why the kernel's log was not read, or not wholly."""

    before: Snapshot
    after: Snapshot
    seconds: float
    readings: Mapping[str, Sequence[Reading]]
    slots: Mapping[str, Slot]
    earlier: Events
    new: Events
    log_problem: str | None = None


Found = List[Tuple[str, str]]


def judge(window: Window, gpus: Sequence[ExpectedGpu], loaded: bool = True) -> list[Check]:
    """Every check of the window. ``loaded``: whether the GPUs themselves did the work, so that their links were under load."""
    checks = []
    for gpu in gpus:
        checks += [
            _counted(ECC, gpu, window, _ecc),
            _counted(ROWS, gpu, window, _rows),
            nvlink(gpu, window),
            _counted(REPLAYS, gpu, window, lambda before, after: _replays(before, after, window.seconds)),
            throttle(gpu, window),
            pcie_link(gpu, gpus, window, loaded),
        ]
    return [*checks, *xids(gpus, window), sxids(window)]


def _make(name: str, gpu: Gpu | None, found: Found, value: Any, *, remedy: str, source: str) -> Check:
    """One check of (status, words) pairs: the worst counts and is said first. Without any it passes."""
    order = [FAIL, COULD_NOT_RUN, DEGRADED]
    said = sorted(found, key=lambda entry: order.index(entry[0]))
    status = said[0][0] if said else PASS
    words = "; ".join(words for _status, words in said) or None
    return make_check(name, status, words, remedy=None if status == PASS else remedy, value=value, source=source, gpu=gpu)


def _counted(name: str, gpu: ExpectedGpu, window: Window, compare: Callable[[Mapping[str, Any], Mapping[str, Any]], tuple[Found, Any]]) -> Check:
    """A check of one GPU's counters before and after."""
    problem = _unread(gpu, window)
    if problem:
        return make_check(name, COULD_NOT_RUN, problem, remedy=SMI_REMEDY, source=BOTH, gpu=gpu.gpu)
    found, value = compare(window.before.gpus[gpu.pci_bus_id], window.after.gpus[gpu.pci_bus_id])
    return _make(name, gpu.gpu, found, value, remedy=RESET, source=BOTH)


def _unread(gpu: ExpectedGpu, window: Window) -> str | None:
    """Why a GPU's counters cannot be compared, or None."""
    for snapshot, when in ((window.before, "before"), (window.after, "after")):
        if snapshot.problem:
            return f"the counters {when} the test are not known: {snapshot.problem}"
        if gpu.pci_bus_id not in snapshot.gpus:
            return f"nvidia-smi did not list the GPU {when} the test"
    return None


def _more(before: Mapping[str, Any], after: Mapping[str, Any], names: Sequence[str]) -> tuple[dict[str, int], Found]:
    """How much each counter has grown; what is not reported or went back is a finding."""
    grown: dict[str, int] = {}
    found: Found = []
    silent = [name for name in names if before.get(name) is None or after.get(name) is None]
    if silent:
        found.append((DEGRADED, f"nvidia-smi does not report on this GPU: {', '.join(silent)}"))
    for name in names:
        if name in silent:
            continue
        grown[name] = after[name] - before[name]
        if grown[name] < 0:
            found.append((COULD_NOT_RUN, f"{name} went back from {before[name]} to {after[name]} during the test: somebody reset the GPU or its counters"))
    return grown, found


def _ecc(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Found, Any]:
    names = ("volatile_uncorrectable", "aggregate_uncorrectable", "volatile_correctable", "aggregate_correctable")
    grown, found = _more(before["ecc"], after["ecc"], names)
    for kind, status in (("uncorrectable", FAIL), ("correctable", DEGRADED)):
        new = max(grown.get(f"{period}_{kind}", 0) for period in ("volatile", "aggregate"))
        if new > 0:
            found.append((status, f"{new} {kind} memory errors during the test"))
    return found, {"new": grown, "after": after["ecc"]}


def _rows(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[Found, Any]:
    grown, found = _more(before["rows"], after["rows"], ("correctable", "uncorrectable"))
    found += [(FAIL, f"{count} rows of its memory were remapped for {kind} errors during the test") for kind, count in grown.items() if count > 0]
    lasting = {
        "pending": "a faulty row of its memory waits for a reset to be remapped",
        "failure": "a row of its memory could not be remapped",
        "retirement_pending": "a faulty page of its memory waits for a reset to be retired",
        "channel_repair_pending": "a channel of its memory waits for a reset to be repaired",
        "tpc_repair_pending": "a part of the chip waits for a reset to be repaired",
        "unrepairable_memory": "its memory cannot be repaired",
    }
    found += [(FAIL, words) for name, words in lasting.items() if after["rows"].get(name)]
    return found, {"new": grown, "after": after["rows"]}


def _replays(before: Mapping[str, Any], after: Mapping[str, Any], seconds: float) -> tuple[Found, Any]:
    grown, found = _more(before, after, ("replays",))
    new = grown.get("replays", 0)
    if new > 0:
        status = FAIL if new > REPLAYS_A_MINUTE * max(1.0, seconds / 60) else DEGRADED
        found.append((status, f"{new} packets of its PCIe link were sent again within {seconds:.0f} s"))
    return found, {"new": grown, "after": after.get("replays")}


def nvlink(gpu: ExpectedGpu, window: Window) -> Check:
    """Errors of the GPU's NVLinks. A GPU that reports no link has none to count, which is said."""
    problem = window.before.nvlink_problem or window.after.nvlink_problem
    before, after = window.before.nvlinks.get(gpu.uuid or ""), window.after.nvlinks.get(gpu.uuid or "")
    source = "nvidia-smi nvlink -e, before and after"
    if problem or before is None or after is None:
        if not problem and not window.before.nvlinks and not window.after.nvlinks:
            return make_check(NVLINK, PASS, "nvidia-smi reports no NVLink on this host", value={"links": 0}, source=source, gpu=gpu.gpu)
        return make_check(NVLINK, COULD_NOT_RUN, problem or "nvidia-smi did not list the GPU's links", remedy=SMI_REMEDY, source=source, gpu=gpu.gpu)
    if not before and not after:
        return make_check(NVLINK, PASS, "nvidia-smi reports no NVLink on this GPU", value={"links": 0}, source=source, gpu=gpu.gpu)
    found: Found = []
    gone = sorted(set(before) - set(after))
    if gone:
        found.append((FAIL, f"NVLink {', '.join(map(str, gone))} went down during the test"))
    value: dict[str, Any] = {"links": len(after), "new": {}}
    for link in sorted(set(before) & set(after)):
        names = [name for name in (*LINK_FAULTS, CRC) if name in before[link] or name in after[link]]
        if not names:
            found.append((DEGRADED, f"nvidia-smi reports no errors of NVLink {link}"))
        grown, problems = _more(before[link], after[link], names)
        found += problems
        for name in names:
            if grown.get(name, 0) > 0:
                value["new"][f"{link}: {name}"] = grown[name]
                few = name == CRC and grown[name] < CRC_A_SECOND * max(1.0, window.seconds)
                found.append((DEGRADED if few else FAIL, f"NVLink {link}: {grown[name]} new {name}"))
    return _make(NVLINK, gpu.gpu, found[:8], value, remedy="reseat or replace the board; `nvidia-smi nvlink -e` and `dmesg` name the link", source=source)


def throttle(gpu: ExpectedGpu, window: Window) -> Check:
    """Whether the clocks were held back for heat or by the power supply, as a bit mask: a power cap alone is what every busy card shows."""
    problem = _unread(gpu, window)
    source = "nvidia-smi, before, during and after"
    if problem:
        return make_check(THROTTLE, COULD_NOT_RUN, problem, remedy=SMI_REMEDY, source=source, gpu=gpu.gpu)
    before, after = window.before.gpus[gpu.pci_bus_id], window.after.gpus[gpu.pci_bus_id]
    masks = [reading.mask for reading in window.readings.get(gpu.pci_bus_id, []) if reading.mask is not None]
    seen = 0
    for mask in masks:
        seen |= mask
    times = {name: (before["throttle"]["microseconds"].get(name), told) for name, told in after["throttle"]["microseconds"].items()}
    grown = {name: told - first for name, (first, told) in times.items() if first is not None and told is not None}
    hot = {name: count for name, count in grown.items() if THROTTLE_BITS[name] & HOT and count > 0}
    found: Found = []
    for name, microseconds in hot.items():
        part = microseconds / (max(1.0, window.seconds) * 1e6)
        found.append((FAIL if part >= HOT_PART else DEGRADED, f"{name} for {microseconds / 1e6:.1f} s of {window.seconds:.0f} s"))
    uncounted = _names(seen & HOT & ~sum(THROTTLE_BITS[name] for name in grown))
    if uncounted:
        found.append((FAIL, f"{', '.join(uncounted)} while it worked"))
    contradicted = _names(seen & HOT & sum(THROTTLE_BITS[name] for name in grown if name not in hot))
    if contradicted:
        found.append((DEGRADED, f"{', '.join(contradicted)} while it worked, of which no time was counted"))
    if seen & THROTTLE_BITS["hw_slowdown"] and not seen & HOT and not hot:
        found.append((DEGRADED, "hw_slowdown while it worked, without heat or a power brake: it may have been a change of clocks"))
    if not masks and not grown:
        found.append((DEGRADED, "nvidia-smi does not report why this GPU's clocks are held back"))
    value = {"seen": _names(seen), "mask": f"0x{seen:x}", "microseconds": grown}
    remedy = "look at air flow, fans and power supply of the server, and at the neighbours of this GPU"
    return _make(THROTTLE, gpu.gpu, found, value, remedy=remedy, source=source)


def _names(mask: int) -> list[str]:
    return [name for name, bit in THROTTLE_BITS.items() if mask & bit]


def pcie_link(gpu: ExpectedGpu, gpus: Sequence[ExpectedGpu], window: Window, loaded: bool) -> Check:
    """Generation and width of the GPU's PCIe link under load, against what card and slot can do: an idle link is slow by design."""
    readings = window.readings.get(gpu.pci_bus_id, [])
    best = _best(readings, loaded)
    told = (window.before.gpus.get(gpu.pci_bus_id) or {}).get("link") or {}
    slot = window.slots.get(gpu.pci_bus_id, Slot())
    wanted = Slot(_least(told.get("max_generation"), slot.generation), _least(told.get("max_width"), slot.width))
    value = {"generation": best.generation, "width": best.width, "under_load": loaded}
    source = "sysfs and nvidia-smi while it copied" if loaded else "sysfs and nvidia-smi"
    remedy = "reseat the card and its riser, and look at the BIOS setting of the slot; `lspci -vv` shows what both ends can do (LnkCap) and do (LnkSta)"
    found: Found = []
    if best.generation is None or best.width is None:
        reason = "its PCIe link was not read while it copied" if loaded else "its PCIe link could not be read"
        return make_check(LINK, COULD_NOT_RUN, reason, remedy="test again; read `lspci -vv`", value=value, floor=wanted._asdict(), source=source, gpu=gpu.gpu)
    if wanted.generation is None or wanted.width is None:
        found.append((DEGRADED, "what its PCIe link could do at most is not reported"))
    if wanted.generation is not None and best.generation < wanted.generation:
        found.append((FAIL, f"its PCIe link runs at generation {best.generation}, card and slot can do {wanted.generation}"))
    if wanted.width is not None and best.width < wanted.width:
        words = f"its PCIe link has {best.width} lanes, card and slot can do {wanted.width}"
        if slot.width is None and len(gpus) > 1 and {_best(window.readings.get(other.pci_bus_id, []), loaded).width for other in gpus} == {best.width}:
            # Some servers wire all slots with fewer lanes than the card has, and their ports do not all say so.
            found.append((DEGRADED, f"{words}; all GPUs of this host have so many, so it may be wired like that"))
        else:
            found.append((FAIL, words))
    check = _make(LINK, gpu.gpu, found, value, remedy=remedy, source=source)
    check["floor"] = wanted._asdict()
    return check


def _best(readings: Sequence[Reading], loaded: bool) -> Slot:
    of_copies = [reading for reading in readings if not loaded or reading.stage in HOST_COPIES]
    generations = [reading.generation for reading in of_copies if reading.generation is not None]
    widths = [reading.width for reading in of_copies if reading.width is not None]
    return Slot(max(generations) if generations else None, max(widths) if widths else None)


def _least(first: int | None, second: int | None) -> int | None:
    known = [number for number in (first, second) if number]
    return min(known) if known else None


def xids(gpus: Sequence[ExpectedGpu], window: Window) -> list[Check]:
    """Xids of each GPU that came during the test; those before it are listed. One of a GPU that nobody expects counts as well."""
    known = {gpu.pci_bus_id: gpu.gpu for gpu in gpus}
    strangers = [device for device in window.new.devices("xid") if device not in known]
    checks = [_logged(XID, "xid", [bus_id], gpu, window) for bus_id, gpu in known.items()]
    return [*checks, *([_logged(XID, "xid", strangers, None, window)] if strangers else [])]


def sxids(window: Window) -> Check:
    """SXids of all switches that came during the test."""
    return _logged(SXID, "sxid", window.new.devices("sxid"), None, window)


def _logged(name: str, kind: str, devices: Sequence[str | None], gpu: Gpu | None, window: Window) -> Check:
    found: Found = []
    new = [event for device in devices for event in window.new.of(kind, device)]
    for status in (FAIL, DEGRADED):
        events = [event for event in new if severity(event) == status]
        application = [event for event in events if event.kind == "xid" and event.code in APPLICATION_XIDS]
        for part, words in (([event for event in events if event not in application], ""), (application, ", which an application causes as a rule")):
            if part:
                where = "" if gpu else f" of {', '.join(sorted({event.device or 'an unknown device' for event in part}))}"
                found.append((status, f"{window.new.words(part)}{where} during the test{words} ({window.new.texts[part[0]]})"))
    if window.log_problem:
        found.append((COULD_NOT_RUN, f"the kernel's log is not known: {window.log_problem}"))
    earlier = [event for device in (devices if gpu else window.earlier.devices(kind)) for event in window.earlier.of(kind, device)]
    value = {"new": {window.new.texts[event]: window.new.counts[event] for event in new}, "earlier": window.earlier.words(earlier) or None}
    remedy = DMESG if new else "read it with `dmesg` or `journalctl -k` on the host"
    check = _make(name, gpu, found, value, remedy=remedy, source="the kernel's log")
    if not found and earlier:
        check["reason"] = f"before the test, since the log begins: {window.earlier.words(earlier)}"
    return check


def said_before(events: Events) -> Check:
    """Advice for a host on which nothing was started: what the driver has said since the log begins, as why a GPU hangs often stands there alone."""
    words = {events.texts[event]: count for event, count in events.counts.items()}
    status = DEGRADED if words else PASS
    reason = "; ".join(list(words)[:4]) if words else None
    return make_check("kernel_log", status, reason, remedy=DMESG if words else None, value=words, source="the kernel's log", required=False)
