# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looks at the GPUs before, while and after they work, for smoke_window to judge. Nothing here waits for nvidia-smi while the work runs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Callable, Mapping, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils import nvidia_smi, pci
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Commands
from ansible_collections.rackready.gpu.plugins.module_utils.kernel_log import KernelLog
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import HOST_COPIES
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_window import PCIE_GENERATIONS, Reading, Slot, Snapshot, Window

DEVICES = "sys/bus/pci/devices"
# How often nvidia-smi and, while data is copied, the link is read.
SAMPLE_S = 10.0
LINK_S = 0.4


class Watch:
    """One window, from its making to ``finish``. ``parts``: whose process each rank is, in the order of ranks."""

    def __init__(
        self, parts: Sequence[ExpectedGpu], smi_timeout: float, commands: Commands, root: Path = Path("/"), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._parts = parts
        self._timeout = smi_timeout
        self._commands = commands
        self._devices = root / DEVICES
        self._clock = clock
        self._tool = commands.find("nvidia-smi")
        self._readings: dict[str, list[Reading]] = {part.pci_bus_id: [] for part in parts}
        self._sample: Child | None = None
        self._sampled_stages: Mapping[int, str | None] = {}
        self._log = KernelLog(commands, root)
        self._before = self._snapshot()
        self._slots = {bus_id: self._slot(bus_id) for bus_id in self._readings}
        self._started = self._sampled = self._linked = clock()

    def _snapshot(self) -> Snapshot:
        if self._tool is None:
            return Snapshot({}, "nvidia-smi is not installed", {}, "nvidia-smi is not installed")
        query, links = (self._commands.start([self._tool, *words], self._timeout) for words in (["-q", "-x"], ["nvlink", "-e"]))
        result, link_result = query.finish(), links.finish()
        problem = result.complaint("nvidia-smi")
        gpus: dict[str, dict[str, Any]] = {}
        try:
            gpus = {} if problem else nvidia_smi.parse_counters(result.stdout)
        except nvidia_smi.GarbledOutput as error:
            problem = f"nvidia-smi wrote something that is not its XML ({error})"
        return Snapshot(gpus, problem, nvidia_smi.parse_nvlink_errors(link_result.text), link_result.complaint("nvidia-smi nvlink -e"))

    def _slot(self, bus_id: str) -> Slot:
        above = pci.link(pci.port_above(self._devices / bus_id))
        return Slot(PCIE_GENERATIONS.get(above["max_speed_gts"]), above["max_width"])

    def tick(self, stages: Mapping[int, str | None]) -> None:
        """Look on, quickly. ``stages``: what each rank does now."""
        self._log.look(0.2)
        now = self._clock()
        if now >= self._linked + LINK_S:
            self._linked = now
            for rank, stage in stages.items():
                if stage in HOST_COPIES:
                    self._read_link(rank, stage)
        if self._sample is None and self._tool and now >= self._sampled + SAMPLE_S:
            self._sampled, self._sampled_stages = now, dict(stages)
            self._sample = self._commands.start([self._tool, "-q", "-x"], self._timeout)
        elif self._sample and self._sample.over:
            self._take_sample(self._sample)

    def _add(self, bus_id: str, reading: Reading) -> None:
        # Of readings that are alike one says as much as many.
        if reading not in self._readings[bus_id]:
            self._readings[bus_id].append(reading)

    def _read_link(self, rank: int, stage: str | None) -> None:
        bus_id = self._parts[rank].pci_bus_id
        link = pci.link(self._devices / bus_id)
        self._add(bus_id, Reading(stage, None, PCIE_GENERATIONS.get(link["speed_gts"]), link["width"]))

    def _take_sample(self, sample: Child) -> None:
        self._sample = None
        result = sample.finish()
        try:
            gpus = {} if result.complaint("nvidia-smi") else nvidia_smi.parse_counters(result.stdout)
        except nvidia_smi.GarbledOutput:
            return  # the look afterwards tells what is wrong with it
        for rank, part in enumerate(self._parts):
            said = gpus.get(part.pci_bus_id)
            if said:
                link = said["link"]
                self._add(part.pci_bus_id, Reading(self._sampled_stages.get(rank), said["throttle"]["mask"], link["generation"], link["width"]))

    def finish(self, ask: bool) -> Window:
        """Look for the last time. ``ask``: whether there is time for nvidia-smi to answer."""
        seconds = self._clock() - self._started
        if self._sample:
            self._sample.give_up()
        after = self._snapshot() if ask else Snapshot({}, "there was no time left to ask nvidia-smi", {}, "there was no time left to ask nvidia-smi")
        for rank in range(len(self._parts)):
            self._read_link(rank, None)
        self._log.close()
        return Window(self._before, after, seconds, self._readings, self._slots, self._log.earlier, self._log.new, self._log.problem)
