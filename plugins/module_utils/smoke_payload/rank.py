# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One process of the test: its stages in order, each announced before it begins."""

from __future__ import annotations

import os
import sys
import time
from datetime import timedelta
from typing import Any, Callable

from .exchange import all_reduce_exact
from .identity import architectures_of, built_for, cuda_identity, describe_torch
from .options import Options
from .products import LOWEST_CAPABILITY, matmul_exact
from .report import Reporter, status_of, words_of
from .surroundings import count_gpu_nodes, find_device_nodes, find_libcuda, find_limits


class Rank:
    """One process of the test."""

    def __init__(self, options: Options, env: dict[str, str], report: Reporter) -> None:
        self.options = options
        self.env = env
        self.report = report
        self.rank = int(env["RANK"])
        self.world = int(env["WORLD_SIZE"])
        self.local = int(env["LOCAL_RANK"])
        self.device = f"cuda:{self.local}" if options.backend == "cuda" else "cpu"
        self.dtypes = options.dtypes
        self.not_ready: str | None = None

    def main(self) -> None:
        self.report.emit("start", world=self.world, pid=os.getpid(), python=sys.version.split()[0], backend=self.options.backend)
        nodes = find_device_nodes()
        self.report.emit("found", name="container_limits", value=find_limits())
        self.report.emit("found", name="device_nodes", value=nodes)
        self.report.stage("import_torch")
        try:
            import torch  # noqa: PLC0415  only the image has it
            import torch.distributed as dist  # noqa: PLC0415
        except (ImportError, OSError) as error:
            for name in ["gpu_identity", *(f"matmul_exact.{d}" for d in self.dtypes), "all_reduce_exact"]:
                self.report.check(name, "could_not_run", f"torch cannot be imported in the image: {words_of(error)}")
            self.report.emit("end")
            return
        self.report.emit("found", name="torch", value=describe_torch(torch))
        self.identify(torch, nodes)
        for dtype in self.dtypes:
            self.one(f"matmul_exact.{dtype}", lambda d=dtype: matmul_exact(torch, d, self.options.backend, self.device))  # type: ignore[misc]
        if self.options.collective:
            self.collective(torch, dist)
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
            torch.cuda.set_device(self.local)
            identity = cuda_identity(torch, self.local)
            capability = tuple(int(n) for n in identity["compute_capability"].split("."))
            architectures = architectures_of(torch)
            if architectures and not built_for(architectures, (capability[0], capability[1])):
                self.not_ready = f"torch in the image has no code for compute capability {identity['compute_capability']}, only for {' '.join(architectures)}"
            else:
                torch.zeros(1, device=self.device).cpu()
        except Exception as error:
            self.not_ready = words_of(error)
            self.report.check("gpu_identity", status_of(error), f"CUDA cannot use device {self.local}: {self.not_ready}", None, started)
            return
        torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // self.world))
        self.dtypes = [d for d in self.dtypes if capability >= LOWEST_CAPABILITY[d]]
        self.report.emit("found", name="gpu_identity", value={"index": self.local, "libcuda": find_libcuda(), **identity})

    def one(self, name: str, work: Callable[[], tuple[str, str | None, dict[str, Any]]]) -> None:
        """Announce, run and report one check; an error in it is its result."""
        if self.not_ready:
            self.report.check(name, "could_not_run", f"not attempted: {self.not_ready}")
            return
        self.report.stage(name)
        started = time.monotonic()
        try:
            status, reason, value = work()
        except Exception as error:
            self.report.check(name, status_of(error), words_of(error), None, started)
            if self.options.backend == "cuda" and "CUDA error" in str(error):
                # Such an error spoils the whole context: nothing computed after it would mean anything.
                self.not_ready = words_of(error)
            return
        self.report.check(name, status, reason, value, started)

    def collective(self, torch: Any, dist: Any) -> None:
        """Meet the other ranks, and only if all are ready run the collective: one that cannot take part must not look like a hang of the others."""
        name = "all_reduce_exact"
        self.report.stage("wait_for_ranks")
        started = time.monotonic()
        try:
            patience = timedelta(seconds=self.options.limit)
            store, _rank, _world = next(dist.rendezvous("env://", timeout=patience))
            store.set(f"rackready/ready/{self.rank}", self.not_ready or "ready")
            for rank in range(self.world):
                said = store.get(f"rackready/ready/{rank}").decode()
                if said != "ready":
                    self.report.check(name, "could_not_run", f"not attempted: rank {rank} cannot take part: {said}", None, started)
                    return
        except Exception as error:
            self.report.check(name, "could_not_run", f"the ranks could not meet: {words_of(error)}", None, started)
            return

        def work() -> tuple[str, str | None, dict[str, Any]]:
            library = "nccl" if self.options.backend == "cuda" else "gloo"
            dist.init_process_group(library, store=store, rank=self.rank, world_size=self.world, timeout=patience)
            return all_reduce_exact(torch, self.options.backend, self.device, self.rank, self.world)

        self.one(name, work)
        # Nobody leaves while another may still read this one's memory.
        self.report.stage("leave")
        store.set(f"rackready/done/{self.rank}", "done")
        for rank in range(self.world):
            store.get(f"rackready/done/{rank}")
