# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The host that a smoke test runs on: everything that the test does to it or reads of it, in one place, so that tests can give another one."""

from __future__ import annotations

import importlib.util
import os
import pkgutil
import re
import select
import time
from pathlib import Path
from typing import Any, Callable, Mapping, NamedTuple, Protocol, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils import smoke_hold, smoke_payload, smoke_probe, smoke_run, smoke_window, stamp
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands
from ansible_collections.rackready.gpu.plugins.module_utils.kernel_log import KernelLog
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu, expected_gpus
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_paths import data_path, pcie_path, peer_memory

# The payload's entry point imports all of its other files, so that Ansible's archive has them; nothing runs here.
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import __main__ as _payload  # noqa: F401
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import Request, RequestError
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container, Outcome, Run
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_watch import Watch
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Check


class Look(Protocol):
    """What looks at the GPUs while they work (smoke_watch.Watch)."""

    def tick(self, stages: Mapping[int, str | None]) -> None: ...

    def finish(self, ask: bool) -> smoke_window.Window: ...


class Machine(NamedTuple):
    """What the test needs of the host it runs on; tests give their own. ``advise``: checks that are advice, all of them or those that take no time.
    ``topology``: how the GPUs are connected.
    """

    gather: Callable[[], Mapping[str, Any]]
    run: Run
    run_container: Callable[[Container, Look], Outcome]
    watch: Callable[[Sequence[ExpectedGpu]], Look]
    advise: Callable[[Request, Mapping[str, Any], smoke_window.Window, bool], list[Check]]
    topology: Callable[[], str | None]
    kernel_log: Callable[[], smoke_window.Events]
    sleep: Callable[[float], None]
    monotonic: Callable[[], float]
    utc: Callable[[], str]
    run_id: Callable[[], str]
    heard: Callable[[], bool]
    state_dir: Path


def real_machine(gather: Callable[[], Mapping[str, Any]], smi_timeout: float) -> Machine:
    """This host."""
    commands = Commands()
    return Machine(
        gather=gather,
        run=smoke_run.run_bounded,
        run_container=run_container,
        watch=lambda parts: Watch(parts, smi_timeout, commands),
        advise=lambda request, facts, window, whole: advise(request, facts, window, commands if whole else None),
        topology=lambda: topology(commands, smi_timeout),
        kernel_log=lambda: KernelLog(commands).earlier,
        sleep=time.sleep,
        monotonic=time.monotonic,
        utc=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        run_id=lambda: os.urandom(6).hex(),
        heard=lambda: is_heard(1),  # standard output, where the result goes
        state_dir=stamp.STATE_DIR,
    )


def topology(commands: Commands, timeout: float) -> str | None:
    """``nvidia-smi topo -m``, kept with the result; None where it gives none."""
    tool = commands.find("nvidia-smi")
    if tool is None:
        return None
    result = commands.start([tool, "topo", "-m"], timeout).finish()
    # Its head is underlined, for a terminal.
    return re.sub(r"\x1b\[[0-9;]*m", "", result.text)[:20000] if result.rc == 0 else None


def advise(request: Request, facts: Mapping[str, Any], window: smoke_window.Window, commands: Commands | None) -> list[Check]:
    """What explains a slow or hanging host, and, where there is time (``commands``), how fast its data comes."""
    gpus = expected_gpus(request.gpus, facts)
    peer = peer_memory([*window.earlier.of_peer_memory, *window.new.of_peer_memory])
    paths = [pcie_path(gpus, facts["kernel"]["command_line"])] if len(gpus) > 1 else []
    return [*paths, *([peer] if peer else []), *(data_path(path, commands) for path in request.data_paths if commands)]


def is_heard(descriptor: int) -> bool:
    """Whether what is written there can still reach somebody: False for the pipe of a connection that was closed because its run was killed."""
    poll = select.poll()
    poll.register(descriptor, 0)  # errors and hang-ups are reported without being asked for
    return not poll.poll(0)


def run_container(container: Container, look: Look) -> Outcome:
    """Run the container to its end or its limit, looking at the GPUs all the while."""
    transcript = smoke_run.Transcript(container.run_id, container.ranks, first=container.first)
    stuck: dict[int, str] = {}

    def kill() -> str | None:
        pids = {rank: log.pid for rank, log in transcript.ranks.items() if log.pid and not log.ended}
        stuck.update(smoke_run.stuck_processes(smoke_run.run_bounded, container.name, pids))
        return smoke_run.kill_container(smoke_run.run_bounded, container.name)

    child = smoke_run.run_child(
        smoke_run.build_command(container),
        container.limit_s,
        each_line=transcript.take,
        kill=kill,
        tick=lambda: look.tick({rank: log.stage[0] if log.stage else None for rank, log in transcript.ranks.items()}),
    )
    return Outcome(container, child._replace(stuck=stuck), transcript)


def payload_source() -> dict[str, str]:
    """The payload's files, name -> text, from wherever this code was loaded: a checkout, or the archive that Ansible sends."""
    files = {"__init__.py": ""}
    for name in sorted(module.name for module in pkgutil.iter_modules(smoke_payload.__path__)):
        spec = importlib.util.find_spec(f"{smoke_payload.__name__}.{name}")
        source = spec.loader.get_source(spec.name) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
        if not source:
            raise RequestError(f"the text of the smoke payload's {name} cannot be read from where this module was loaded")
        files[f"{name}.py"] = str(source)
    if "__main__.py" not in files:
        raise RequestError("the smoke payload's entry point is not where this module was loaded from")
    return files


def source_of(module: Any) -> str:
    """The text of one of our modules, from wherever it was loaded."""
    spec = module.__spec__
    source = spec.loader.get_source(spec.name) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
    if not source:
        raise RequestError(f"the text of {module.__name__} cannot be read from where this module was loaded")
    return str(source)


def write_payload(folder: Path) -> None:
    """Write the package ``smoke_payload`` and the probe into a new folder, readable for the container's root, which has no capability to read what
    belongs to others.
    """
    package = folder / smoke_run.PAYLOAD_MODULE
    for directory in (folder, package):
        directory.mkdir()
        directory.chmod(0o755)
    files = {package / name: text for name, text in payload_source().items()}
    files[folder / smoke_hold.PROBE] = source_of(smoke_probe)
    for path, text in files.items():
        path.write_text(text, encoding="utf-8")
        path.chmod(0o444)
