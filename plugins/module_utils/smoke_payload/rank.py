# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One process of the test: who it is, then its stages, each announced before it begins and each with its part of the time."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable

from .budget import NO_TIME_LEFT, Budget, Deadline, NoTimeLeft
from .identity import architectures_of, built_for, cuda_identity, describe_torch
from .meeting import READY, Meeting
from .nccl_log import hear, listen
from .options import Options
from .place import Place
from .products import LOWEST_CAPABILITY
from .report import Reporter, status_of, words_of
from .stages import AT_ONCE, BY_ITSELF, REPEAT, Stage, stages_of
from .surroundings import count_gpu_nodes, find_device_nodes, find_libcuda, find_limits


class Rank:
    """One process of the test."""

    def __init__(self, options: Options, env: dict[str, str], report: Reporter) -> None:
        self.options = options
        self.report = report
        self.rank = int(env["RANK"])
        self.world = int(env["WORLD_SIZE"])
        self.local = int(env["LOCAL_RANK"])
        self.local_world = int(env.get("LOCAL_WORLD_SIZE") or self.world)
        if options.visible and len(options.visible) != self.world:
            raise ValueError(f"{len(options.visible)} GPUs or instances are given for {self.world} ranks")
        if options.hosts and sum(options.hosts) != self.world:
            raise ValueError(f"hosts with {sum(options.hosts)} ranks are given for {self.world} ranks")
        # Where only one GPU or instance is visible it is number 0.
        self.index = 0 if options.visible else self.local
        device = f"cuda:{self.index}" if options.backend == "cuda" else "cpu"
        self.place = Place(None, options.backend, device, options.tier, self.rank, self.world)
        self.dtypes = options.dtypes
        self.budget = Budget(options.budget or options.limit)
        self.not_ready: str | None = None
        # Why this rank takes part in nothing together any more, where it could still work alone.
        self.apart: str | None = None
        self.meeting: Meeting | None = None
        self.group = False
        self.nccl_log: Path | None = None
        self.hashes: dict[str, str] = {}

    def main(self) -> None:
        self.report.emit("start", world=self.world, pid=os.getpid(), python=sys.version.split()[0], backend=self.options.backend)
        nodes = find_device_nodes()
        self.report.emit("found", name="container_limits", value=find_limits())
        self.report.emit("found", name="device_nodes", value=nodes)
        self.report.stage("import_torch")
        if self.options.visible:
            # Before CUDA looks at it. A process may use one instance of a divided GPU only, and then sees no other GPU.
            os.environ["CUDA_VISIBLE_DEVICES"] = self.options.visible[self.rank]
        # Compile in this process: a pool of workers takes longer to start than it saves here.
        os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
        try:
            import torch  # noqa: PLC0415  only the image has it
            import torch.distributed as dist  # noqa: PLC0415
        except (ImportError, OSError) as error:
            for name in ["gpu_identity", *(stage.name for stage in stages_of(self.place, self.dtypes, self.options))]:
                self.report.check(name, "could_not_run", f"torch cannot be imported in the image: {words_of(error)}")
            self.report.emit("end")
            return
        self.report.emit("found", name="torch", value=describe_torch(torch))
        self.identify(torch, nodes)
        stages = stages_of(self.place._replace(torch=torch), self.dtypes, self.options)
        if any(stage.begun != BY_ITSELF for stage in stages):
            self.meet(dist)
        for number, stage in enumerate(stages):
            if self.hashes and not stage.name.startswith(REPEAT):
                self.tell_hashes()
            self.begin(torch, stage, sum(later.least for later in stages[number + 1 :]))
        self.tell_hashes()
        self.leave()
        self.report.emit("end")

    def identify(self, torch: Any, nodes: dict[str, list[int]]) -> None:
        """Report which GPU this rank has. On cuda a context is made here, so that a driver that cannot is caught by its own words."""
        self.report.stage("gpu_identity")
        started = time.monotonic()
        if self.options.backend == "cpu":
            torch.set_num_threads(1)
            self.report.emit("found", name="gpu_identity", value={"index": self.local, "device_count": count_gpu_nodes(nodes)})
            return
        try:
            # is_available() swallows the driver's error; init() tells it.
            torch.cuda.init()
            torch.cuda.set_device(self.index)
            identity = cuda_identity(torch, self.index)
            capability = tuple(int(n) for n in identity["compute_capability"].split("."))
            architectures = architectures_of(torch)
            if architectures and not built_for(architectures, (capability[0], capability[1])):
                self.not_ready = f"torch in the image has no code for compute capability {identity['compute_capability']}, only for {' '.join(architectures)}"
            else:
                torch.zeros(1, device=self.place.device).cpu()
        except Exception as error:
            self.not_ready = words_of(error)
            self.report.check("gpu_identity", status_of(error), f"CUDA cannot use device {self.index}: {self.not_ready}", None, started)
            return
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // self.local_world))
        self.dtypes = [d for d in self.options.dtypes if capability >= LOWEST_CAPABILITY[d]]
        self.place = self.place._replace(bus_id=identity["pci_bus_id"])
        visible = self.options.visible[self.rank] if self.options.visible else None
        self.report.emit("found", name="gpu_identity", value={"index": self.local, "visible": visible, "libcuda": find_libcuda(), **identity})

    def meet(self, dist: Any) -> None:
        """Find the store in which the ranks tell each other where they are."""
        self.report.stage("meet")
        try:
            # The store outlives every stage; how long a rank is waited for in it is said each time.
            store, _rank, _world = next(dist.rendezvous("env://", timeout=timedelta(seconds=self.options.limit)))
            self.meeting = Meeting(store, self.rank, self.world)
        except Exception as error:
            self.apart = f"the ranks could not meet: {words_of(error)}"

    def begin(self, torch: Any, stage: Stage, later: float) -> None:
        """Run a stage in its way, if there is time for it and if all who belong to it are ready."""
        try:
            if stage.begun == BY_ITSELF:
                self.run(torch, stage, self.budget.stage(stage.least, later))
            elif stage.begun == AT_ONCE:
                self.at_once(torch, stage, later)
            else:
                self.in_turn(torch, stage, later)
        except NoTimeLeft as error:
            self.refuse(stage, f"{NO_TIME_LEFT}: {error}")
        except TimeoutError as error:
            self.refuse(stage, str(error))

    def refuse(self, stage: Stage, words: str) -> None:
        """Report a stage that is not begun."""
        self.report.check(stage.name, "could_not_run", words if words.startswith(NO_TIME_LEFT) else f"not attempted: {words}")

    def word(self, stage: Stage, later: float) -> str:
        """What this rank tells the others before a stage."""
        try:
            self.budget.stage(stage.least, later)
        except NoTimeLeft as error:
            return f"{NO_TIME_LEFT}: {error}"
        return self.not_ready or self.apart or READY

    def at_once(self, torch: Any, stage: Stage, later: float) -> None:
        """All ranks together, or none of them."""
        if self.meeting is None:
            self.refuse(stage, self.not_ready or self.apart or "the ranks have not met")
            return
        self.report.stage("wait_for_ranks")
        refusal = self.meeting.refusal(stage.name, self.word(stage, later), self.budget.left())
        if refusal:
            self.refuse(stage, refusal)
            return
        self.run(torch, stage, self.budget.begun(stage.least, later))

    def in_turn(self, torch: Any, stage: Stage, later: float) -> None:
        """One rank after the other, as what they use they share. Who cannot is passed over."""
        if self.meeting is None:
            self.refuse(stage, self.not_ready or self.apart or "the ranks have not met")
            return
        self.report.stage("wait_for_turn")
        said = self.meeting.gather(stage.name, self.word(stage, later), self.budget.left())
        if said[self.rank] != READY:
            self.refuse(stage, said[self.rank])
            return
        queue = [rank for rank, word in sorted(said.items()) if word == READY]
        place, mine = queue.index(self.rank), stage.least / self.world
        try:
            for rank in queue[:place]:
                self.meeting.hear(f"{stage.name}/done", rank, self.budget.end)
            whole = self.budget.begun(mine, later)
            self.run(torch, stage, whole.sooner(max(mine, whole.left() / (len(queue) - place))))
        finally:
            self.meeting.tell(f"{stage.name}/done", "done")

    def run(self, torch: Any, stage: Stage, deadline: Deadline) -> None:
        """Do a stage's work and report it."""

        def together() -> Any:
            try:
                self.join(torch)
                return stage.work(deadline=deadline)
            except Exception as error:
                if not isinstance(error, NoTimeLeft) and status_of(error) == "fail":
                    # The ranks may be out of step now: whoever went on would wait for the others, or take their next message for this one.
                    self.apart = self.apart or f"{stage.name} ended with {words_of(error)}"
                raise

        run = self.figure if stage.measures else self.one
        run(stage.name, together if stage.begun == AT_ONCE else lambda: stage.work(deadline=deadline))
        if self.options.backend == "cuda" and not self.not_ready:
            try:
                # What one figure took must not be missing for the next.
                torch.cuda.empty_cache()
            except Exception as error:
                self.not_ready = words_of(error)

    def one(self, name: str, work: Callable[[], Any]) -> None:
        """Announce, run and report one check; an error in it is its result."""
        if self.not_ready:
            self.report.check(name, "could_not_run", f"not attempted: {self.not_ready}")
            return
        self.report.stage(name)
        started = time.monotonic()
        try:
            status, reason, value = work()
        except Exception as error:
            self.failed(name, error, started)
            return
        self.report.check(name, status, reason, value, started)
        if status == "pass" and name.startswith(REPEAT):
            self.hashes[name.partition(".")[2]] = value["sha256"]

    def figure(self, name: str, work: Callable[[], Any]) -> None:
        """Announce, measure and report one figure; one that could not be measured, or whose work was wrong, is a check of its name."""
        if self.not_ready:
            self.report.check(name, "could_not_run", f"not attempted: {self.not_ready}")
            return
        self.report.stage(name)
        started = time.monotonic()
        try:
            value = work()
        except Exception as error:
            self.failed(name, error, started)
            return
        if value is not None:
            self.report.emit("measured", name=name, value=value)

    def failed(self, name: str, error: Exception, started: float) -> None:
        """Report a check that ended in an error."""
        if isinstance(error, NoTimeLeft):
            self.report.check(name, "could_not_run", f"{NO_TIME_LEFT}: {error}", None, started)
            return
        self.report.check(name, status_of(error), words_of(error), None, started)
        if status_of(error) == "fail":
            self.tell_nccl()
        if self.options.backend == "cuda" and "CUDA error" in str(error):
            # Such an error spoils the whole context: nothing computed after it would mean anything.
            self.not_ready = words_of(error)

    def join(self, torch: Any) -> None:
        """Make the communicator of all ranks, once."""
        if self.group or self.meeting is None:
            return
        library = "nccl" if self.options.backend == "cuda" else "gloo"
        self.nccl_log = listen(os.environ, os.getpid()) if library == "nccl" else None
        patience = timedelta(seconds=self.options.limit)
        self.group = True
        torch.distributed.init_process_group(library, store=self.meeting.store, rank=self.rank, world_size=self.world, timeout=patience)

    def tell_hashes(self) -> None:
        """What the products of random numbers came to, for the host to compare between GPUs of one model."""
        if self.hashes:
            self.report.emit("found", name="product_hash", value=self.hashes)
        self.hashes = {}

    def tell_nccl(self) -> None:
        """What NCCL had to say, once: at the end, or when something failed. Its warnings go on to where they would have been seen."""
        if self.nccl_log is None:
            return
        said = hear(self.nccl_log)
        self.nccl_log = None
        self.report.emit("found", name="nccl", value=said)
        for warning in said["warnings"]:
            sys.stderr.write(f"NCCL WARN {warning}\n")
            sys.stderr.flush()

    def leave(self) -> None:
        """Nobody leaves while another may still read this one's memory."""
        self.tell_nccl()
        if self.meeting is None:
            return
        self.report.stage("leave")
        try:
            self.meeting.gather("done", "done", self.options.limit)
        except TimeoutError as error:
            self.report.emit("found", name="left_alone", value=str(error))
