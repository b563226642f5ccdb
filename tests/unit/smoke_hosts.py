# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A double of a host for whole smoke tests: facts, an engine, containers whose ranks say what the test wants, and a window to look through."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_hold, smoke_probe
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import unit_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_host import Bought
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import Look, Machine
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import Request
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import ChildResult, Container, Outcome, Transcript
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_tiers import figures_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_window import Events, Snapshot, Window
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Check, make_check

from tests.unit.hosts import BUS_IDS, CONVERGED, DRIVER, facts_for
from tests.unit.smoke_fakes import IMAGE, MODEL, RUN, Event, floor, gpus, lines, rank_events, uuid_of, window

WORLD = 2
DIGEST = IMAGE.partition("@")[2]
STAMP = {"release": "2026.11-longterm", "image_digest": DIGEST, "driver": DRIVER, "gpus": [uuid_of(0), uuid_of(1)], "mig": "off", "tier": "quick"}
EXCUSES = {"imex": "no rack", "window.sxid": "no NVSwitch"}
QUICK_FIGURES = ("matmul.bf16", "memory.copy", "copy.host_to_device", "copy.device_to_host")
FLOORS = {MODEL: {name: [floor(90, unit=unit_of(name))] for name in QUICK_FIGURES}}
CPU = {**EXCUSES, **{f"speed.{name}": "on the CPU" for name in QUICK_FIGURES}}
OLD = {**STAMP, "schema": 1, "verdict": "accepted", "time": "2026-11-01T00:00:00Z"}


def floors_of(tier: str = "quick") -> dict[str, Any]:
    """Confirmed floors of everything that a tier measures on two of these cards, which the figures of smoke_fakes reach."""
    known = {name: [floor(90, unit=unit_of(name))] for name in figures_of(gpus(1)[0], tier, "cuda")}
    between = {name: [floor(90, unit="GB/s", gpus=WORLD)] for name in ("all_reduce.busbw", "pair.copy")}
    return {MODEL: {**known, **(between if tier != "quick" else {})}}


def request_of(tier: str, **changes: Any) -> Request:
    """A request of another tier than quick."""
    burn = {"burn_minutes": 10} if tier == "burn" else {}
    return request(**{"tier": tier, "stamp": {**STAMP, "tier": tier}, "floors": floors_of(tier), "timeout": None, **burn, **changes})


def request(**changes: Any) -> Request:
    made = Request(
        image=IMAGE,
        backend="cuda",
        tier="quick",
        gpus=[{"pci_bus_id": bus_id, "pci_id": "10de:2330", "compute_capability": "9.0", "model": MODEL, "memory_gb": 80} for bus_id in BUS_IDS[:WORLD]],
        ulimits=["memlock=-1", "stack=67108864"],
        shm_size="1g",
        env={},
        not_applicable=EXCUSES,
        degraded="accept",
        stamp=STAMP,
        timeout=300,
        bought=Bought(MODEL, WORLD),
        floors=FLOORS,
    )
    return made._replace(**changes)


def named(returned: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [check for check in returned["checks"] if check["name"] == name]


def replaced(events: list[Event], name: str, new: Event | None) -> list[Event]:
    """The events with what was said of this name replaced or left out."""
    kept = []
    for event in events:
        if event.get("name") == name and event["event"] in ("check", "found", "measured"):
            kept += [new] if new else []
        else:
            kept.append(event)
    return kept


def sound(tier: str = "quick", burn_seconds: int = 0) -> list[list[Event]]:
    return [rank_events(rank, WORLD, tier=tier, burn_seconds=burn_seconds) for rank in range(WORLD)]


class Watched:
    """A double of what looks at the GPUs while they work."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.asked: list[bool] = []

    def tick(self, stages: object) -> None:
        pass

    def finish(self, ask: bool) -> Window:
        self.asked.append(ask)
        return self.window if ask else self.window._replace(after=Snapshot({}, "no time"))


@dataclass
class Ran:
    """How one container went: what its ranks said (None: what sound ones say), and what differs from an end with status 0.

    ``mixed``: makes of the lines of each rank those that came, in their order; without it one rank speaks after the other.
    """

    events: list[list[Event]] | None = None
    child: dict[str, Any] = field(default_factory=dict)
    mixed: Callable[[list[list[str]]], list[str]] = lambda ranks: [line for rank in ranks for line in rank]


class Host:
    """A double of a host: what it is, what its containers say one after the other (the last one stays), and what was done to it."""

    def __init__(self, tmp_path: Path, facts: list[dict[str, Any]] | None = None, events: list[list[Event]] | None = None, **child: Any) -> None:
        self.state_dir = tmp_path / "rackready"
        self.facts = facts or [facts_for(**{**CONVERGED, "gpus": WORLD})]
        self.runs = [Ran(events, child)]
        self.now = 1000.0
        self.asked: list[list[str]] = []
        self.containers: list[Container] = []
        self.payloads: list[tuple[dict[str, str], set[int]]] = []
        self.leftovers = ""
        self.looked: Watched | None = None
        self.window = window(WORLD)
        self.engine: dict[str, list[tuple[int | None, str, str]]] = {}
        self.advice: list[Check] = [make_check("pcie_path", "degraded", "ACS", required=False)]
        self.log = Events()
        self.takes_s = 0.0
        self.engine_error: str | None = None
        self.heard = True

    def machine(self) -> Machine:
        return Machine(
            gather=self.gather,
            run=self.run,
            run_container=self.run_container,
            watch=self.watch,
            advise=lambda request, facts, seen, whole: [check for check in self.advice if whole or check["name"] != "data_path"],
            topology=lambda: "GPU0 X",
            kernel_log=lambda: self.log,
            sleep=self.sleep,
            monotonic=lambda: self.now,
            utc=lambda: "2026-12-01T04:00:00Z",
            run_id=lambda: RUN,
            heard=lambda: self.heard,
            state_dir=self.state_dir,
        )

    def watch(self, parts: Sequence[ExpectedGpu]) -> Watched:
        self.looked = Watched(self.window)
        return self.looked

    def gather(self) -> dict[str, Any]:
        return self.facts.pop(0) if len(self.facts) > 1 else self.facts[0]

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run(self, command: Sequence[str], limit_s: float) -> tuple[int | None, str, str]:
        self.asked.append(list(command))
        if self.engine_error:
            return None, "", self.engine_error
        what = "call" if "call" in command else "reload" if "daemon-reload" in command else command[1]
        if self.engine.get(what):
            return self.engine[what].pop(0)
        return 0, self.leftovers if command[1] == "ps" else "", ""

    def run_container(self, container: Container, look: Look) -> Outcome:
        self.now += self.takes_s
        self.containers.append(container)
        folder = Path(container.payload)
        package = folder / "smoke_payload"
        assert [stat.S_IMODE(path.stat().st_mode) for path in (folder.parent, folder, package)] == [0o700, 0o755, 0o755]
        files = list(package.iterdir())
        assert (folder / smoke_hold.PROBE).read_text(encoding="utf-8") == Path(smoke_probe.__file__).read_text(encoding="utf-8")
        self.payloads.append(({path.name: path.read_text(encoding="utf-8") for path in files}, {stat.S_IMODE(path.stat().st_mode) for path in files}))
        transcript = Transcript(container.run_id, container.ranks, clock=lambda: 0.0)
        ran = self.runs.pop(0) if len(self.runs) > 1 else self.runs[0]
        transcript.feed(ran.mixed([lines(rank, ran.events[rank] if ran.events else self.said(rank, container)) for rank in range(container.ranks)]))
        ended: dict[str, Any] = {"exit_code": 0, "timed_out": False, "seconds": 20.0, "stdout": [], "stderr": [], **ran.child}
        return Outcome(container, ChildResult(**ended), transcript)

    def said(self, rank: int, container: Container) -> list[Event]:
        """What a sound rank says to what it was asked for."""
        return rank_events(rank, container.ranks, container.backend, tier=container.tier, burn_seconds=container.burn_seconds)

    def with_stamp(self, stamp: dict[str, Any]) -> Host:
        self.state_dir.mkdir(exist_ok=True)
        (self.state_dir / "stamp.json").write_text(json.dumps(stamp), encoding="utf-8")
        return self

    @property
    def stamp(self) -> Any:
        path = self.state_dir / "stamp.json"
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
