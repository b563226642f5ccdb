# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run the smoke payload in a container: the command line, a child that cannot hold up its parent, and what its output says.

Nothing in here waits without a limit. A child that a wedged GPU keeps from dying is reported and left behind, never joined.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import Any, Callable, Iterable, Mapping, NamedTuple, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child
from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_text
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_figures import integer
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.options import SETTINGS
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.report import MARK, PROTOCOL

LABEL = "io.rackready.smoke-test"
NAME_PREFIX = "rackready-smoke-"
# The package smoke_payload lies in there and is found because torchrun's working directory is there: PYTHONPATH stays the image's own.
PAYLOAD_IN_CONTAINER = "/rackready"
PAYLOAD_MODULE = "smoke_payload"
# Seconds that the container's own limit lies above ours: it only matters when this parent was killed.
ORPHAN_GRACE_S = 30
# How long a killed child may take to be gone, and how long its pipes are still read after it ended.
KILL_GRACE_S = 5.0
# How long the engine may take for each of the three steps that end our container.
KILL_LIMIT_S = 8
STUCK_LIMIT_S = 4
DRAIN_S = 2.0
TICK_S = 0.2
LINE_MAX = 65536
KEPT_LINES = 400

Run = Callable[[Sequence[str], float], "tuple[int | None, str, str]"]


class Cluster(NamedTuple):
    """The part of a run over several hosts that one of them has. ``ranks``: of each host, in the order of hosts; ``node``: which of them this one is.

    ``address``: this host's, on ``interface``; ``master``: the first host's, where all meet at ``port``. ``devices``: paths of network adapters.
    """

    ranks: Sequence[int]
    node: int
    address: str
    interface: str
    master: str
    port: int
    devices: Sequence[str] = ()

    @property
    def first(self) -> int:
        """The number of this host's first rank: torchrun counts through the hosts."""
        return sum(self.ranks[: self.node])

    @property
    def world(self) -> int:
        return sum(self.ranks)


class Container(NamedTuple):
    """What to start. ``payload``: the folder that holds the package smoke_payload; ``ulimits`` in Docker's syntax, ``limit_s`` in seconds,
    ``devices`` as CDI names, ``threads`` per rank on the CPU, ``budget`` seconds that the payload may take for its work. ``visible``: the UUID that each
    rank gets, where GPUs are divided. ``cluster``: the other hosts of the run; None: there are none, and no network.
    """

    image: str
    run_id: str
    payload: str
    backend: str
    ranks: int
    dtypes: list[str]
    collective: bool
    ulimits: list[str]
    shm_size: str
    env: dict[str, str]
    limit_s: int
    threads: int
    tier: str = "quick"
    budget: int = 60
    figures: Sequence[str] = ()
    trainings: Sequence[str] = ()
    visible: Sequence[str] = ()
    burn_seconds: int = 0
    devices: Sequence[str] = ("nvidia.com/gpu=all",)
    cluster: Cluster | None = None

    @property
    def name(self) -> str:
        return NAME_PREFIX + self.run_id

    @property
    def first(self) -> int:
        """The number of its first rank."""
        return self.cluster.first if self.cluster else 0

    @property
    def world(self) -> int:
        """How many ranks take part in all, on other hosts too."""
        return self.cluster.world if self.cluster else self.ranks


def engine_options(container: Container, name: str) -> list[str]:
    """What every container of a test gets: our label, no network, no capability, nothing writable but /tmp and /dev/shm, the GPUs and the limits.

    Only with other hosts it gets the host's network, and where there are adapters for RDMA those, with the right to keep memory for them in place.
    """
    cluster = container.cluster
    # exec: what torch.compile builds is loaded from /tmp, and the engine forbids that on a tmpfs unless asked.
    options = ["--rm", "--name", name, "--label", LABEL, "--pull", "never", "--log-driver", "none"]
    options += ["--network", "host" if cluster else "none", "--read-only", "--tmpfs", "/tmp:rw,exec,nosuid,nodev,size=1g", "--shm-size", container.shm_size]
    options += ["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]
    if cluster and cluster.devices:
        options += ["--cap-add", "IPC_LOCK"]
    for device in [*container.devices, *(cluster.devices if cluster else ())]:
        options += ["--device", device]
    for ulimit in container.ulimits:
        options += ["--ulimit", ulimit]
    return [*options, "--volume", f"{container.payload}:{PAYLOAD_IN_CONTAINER}:ro", "--workdir", PAYLOAD_IN_CONTAINER]


def build_command(container: Container, engine: str = "docker") -> list[str]:
    """The engine's command line: the image by digest, never pulled, and torchrun in it."""
    settings = {
        "backend": container.backend,
        "run": container.run_id,
        "dtypes": container.dtypes,
        "collective": container.collective,
        "limit": container.limit_s + ORPHAN_GRACE_S,
        "tier": container.tier,
        "budget": container.budget,
        "figures": list(container.figures),
        "trainings": list(container.trainings),
        "mig": bool(container.visible),
        "visible": list(container.visible),
        "burn_seconds": container.burn_seconds,
        **({"hosts": list(container.cluster.ranks)} if container.cluster else {}),
    }
    cluster = container.cluster
    env = {
        # One order of GPUs for the driver's tools and for CUDA.
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "CUDA_CACHE_PATH": "/tmp/cuda",
        "GLOO_SOCKET_IFNAME": cluster.interface if cluster else "lo",
        "HOME": "/tmp",
        # With "=" it is that interface and none whose name only begins like it.
        "NCCL_SOCKET_IFNAME": f"={cluster.interface}" if cluster else "lo",
        "OMP_NUM_THREADS": str(container.threads),
        "PYTHONDONTWRITEBYTECODE": "1",
        **container.env,
        SETTINGS: json.dumps(settings),
    }
    command = [engine, "run", *engine_options(container, container.name)]
    for key in sorted(env):
        command += ["--env", f"{key}={env[key]}"]
    # The image's own entry point prints banners and changes the library path. The addresses are given because no name resolves without a network.
    command += ["--entrypoint", "torchrun", container.image]
    if cluster:
        command += ["--nnodes", str(len(cluster.ranks)), "--node-rank", str(cluster.node), "--local-addr", cluster.address]
        master = (cluster.master, cluster.port)
    else:
        command += ["--nnodes", "1"]
        master = ("127.0.0.1", 29500)
    command += ["--nproc-per-node", str(container.ranks), "--master-addr", master[0], "--master-port", str(master[1])]
    return [*command, "--module", PAYLOAD_MODULE]


def run_bounded(command: Sequence[str], limit_s: float) -> tuple[int | None, str, str]:
    """Exit status (None: not there, or out of time), stdout and stderr of a short command, which is never waited for beyond the limit."""
    result = Child(list(command), limit_s).finish()
    if result.problem:
        return None, result.text, f"{command[0]} {result.problem}"
    return result.rc, result.text, result.stderr.decode("utf-8", "replace")


def remove_leftovers(run: Run, engine: str = "docker") -> tuple[list[str], str | None]:
    """Remove containers that an earlier, killed smoke test left behind (by our label alone); (their ids, error sentence or None)."""
    code, out, err = run([engine, "ps", "--all", "--quiet", "--no-trunc", "--filter", f"label={LABEL}"], 15)
    if code != 0:
        return [], f"{engine} ps: {err.strip() or f'exit status {code}'}"
    found = out.split()
    if found:
        code, _out, err = run([engine, "rm", "--force", *found], 30)
        if code != 0:
            return found, f"{engine} rm --force {' '.join(i[:12] for i in found)}: {err.strip() or f'exit status {code}'}"
    return found, None


def kill_container(run: Run, name: str, engine: str = "docker") -> str | None:
    """Kill and remove our own container; None when it is gone, else a sentence."""
    run([engine, "kill", name], KILL_LIMIT_S)
    run([engine, "rm", "--force", name], KILL_LIMIT_S)
    code, out, err = run([engine, "ps", "--all", "--quiet", "--filter", f"name=^{name}$"], KILL_LIMIT_S)
    if code != 0:
        return f"whether the container {name} is gone is not known: {err.strip() or f'exit status {code}'}"
    return f"the container {name} could not be killed; a process in it hangs in the driver" if out.strip() else None


def stuck_processes(run: Run, name: str, pids: Mapping[int, int], root: Path = Path("/"), engine: str = "docker") -> dict[int, str]:
    """Where the processes of a container wait, by rank (``pids``: rank -> process id inside): ``process 4711 (state D, in nv_wait)``. Best effort."""
    code, out, _err = run([engine, "top", name, "-eo", "pid,stat,wchan:48"], STUCK_LIMIT_S)
    found: dict[int, str] = {}
    for line in out.splitlines()[1:] if code == 0 else []:
        words = line.split()
        if len(words) < 3 or not words[0].isdigit():
            continue
        status = read_text(root / "proc" / words[0] / "status", 8192) or ""
        inside = re.search(r"^NSpid:.*\s([0-9]+)$", status, re.MULTILINE)
        for rank, pid in pids.items():
            if inside and int(inside.group(1)) == pid:
                found[rank] = f"process {words[0]} (state {words[1]}, in {words[2]})"
    return found


class ChildResult(NamedTuple):
    """How a child ended. ``exit_code`` None: never started (``error`` says why), or not gone when we left it behind. Lines are the last ones."""

    exit_code: int | None
    timed_out: bool
    seconds: float
    stdout: list[str]
    stderr: list[str]
    error: str | None = None
    left_behind: str | None = None
    stuck: Mapping[int, str] = {}
    """Of a run that was ended at its limit: the host's process of each rank and where it waited."""


class _Lines:
    """Splits a byte stream into lines, keeps the last ones, drops what is too long; a half line at the end is kept but marked by ``half``."""

    def __init__(self, keep: int, each: Callable[[str], bool]) -> None:
        self.rest = b""
        self.kept: list[str] = []
        self.keep = keep
        self.each = each

    def feed(self, data: bytes) -> None:
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        if len(self.rest) > LINE_MAX:
            self.rest = b""

    def _take(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip()
        if text and not self.each(text):
            self.kept = [*self.kept, text][-self.keep :]

    def close(self) -> None:
        # Without its newline a line may be cut anywhere: it is shown to people and never read as a result.
        text = self.rest.decode("utf-8", "replace").strip()
        self.rest = b""
        if text:
            self.kept = [*self.kept, text][-self.keep :]


def run_child(
    command: Sequence[str],
    limit_s: float,
    each_line: Callable[[str], bool] = lambda line: False,
    kill: Callable[[], str | None] = lambda: None,
    *,
    keep: int = KEPT_LINES,
    tick: Callable[[], None] = lambda: None,
) -> ChildResult:
    """Run a child in its own process group and read both its pipes until it ends or ``limit_s`` seconds are over.

    :param each_line: is given each complete stdout line at once; those for which it returns True are not kept as output.
    :param kill: is called first when time is over or this function is left by an exception (the container is not a child of the engine's client).
    :param tick: is called about every TICK_S seconds while the child runs; it must not wait for anything.
    """
    started = time.monotonic()
    try:
        # Not run_command, which waits for a child that cannot be killed.
        child = subprocess.Popen(  # pylint: disable=ansible-bad-function
            list(command), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True, close_fds=True
        )
    except OSError as error:
        return ChildResult(None, False, 0.0, [], [], error=f"{command[0]} cannot be started: {error.strerror}")
    out, err = _Lines(keep, each_line), _Lines(keep, lambda line: False)
    left: str | None = None
    ended = False
    try:
        ended = _read_until(child, {child.stdout: out, child.stderr: err}, started + limit_s, tick)
    finally:
        if not ended:
            left = kill()
            left = _end_group(child) or left
            _read_until(child, {child.stdout: out, child.stderr: err}, time.monotonic() + 0.5)
        for pipe in (child.stdout, child.stderr):
            if pipe:
                pipe.close()
    out.close()
    err.close()
    return ChildResult(child.returncode, not ended, time.monotonic() - started, out.kept, err.kept, left_behind=left)


def _read_until(child: subprocess.Popen[bytes], pipes: dict[Any, _Lines], deadline: float, tick: Callable[[], None] = lambda: None) -> bool:
    """Read until the child has ended and its pipes are at their end; True if it ended before the deadline."""
    with selectors.DefaultSelector() as selector:
        for pipe in pipes:
            os.set_blocking(pipe.fileno(), False)
            selector.register(pipe, selectors.EVENT_READ)
        ended_at: float | None = None
        ticked = 0.0
        while True:
            now = time.monotonic()
            if ended_at is None and now >= ticked + TICK_S:
                ticked = now
                tick()
            if ended_at is None and child.poll() is not None:
                ended_at = now
            # A grandchild may hold a pipe open for ever: after the child's end it is read only a little longer.
            if ended_at is not None and (not selector.get_map() or now > ended_at + DRAIN_S):
                return True
            if ended_at is None and now >= deadline:
                return False
            for key, _events in selector.select(timeout=min(0.2, max(0.0, deadline - now)) if ended_at is None else 0.05):
                data = os.read(key.fd, 65536)
                if data:
                    pipes[key.fileobj].feed(data)
                else:
                    selector.unregister(key.fileobj)
            if not selector.get_map() and ended_at is None:
                time.sleep(0.02)


def _end_group(child: subprocess.Popen[bytes]) -> str | None:
    """End our child's process group, first politely; None when the child is gone, else which process was left behind and where it hangs."""
    for sign in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, sign)
        until = time.monotonic() + KILL_GRACE_S
        while time.monotonic() < until:
            if child.poll() is not None:
                return None
            time.sleep(0.05)
    return f"process {child.pid} does not die{_wait_channel(child.pid)}; it was left behind"


def _wait_channel(pid: int) -> str:
    """`` (state D, in <kernel function>)`` of a process, as far as /proc tells."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat, open(f"/proc/{pid}/wchan", encoding="utf-8") as wchan:  # noqa: PTH123
            return f" (state {stat.read().rsplit(')', 1)[-1].split()[0]}, in {wchan.read() or 'unknown'})"
    except (OSError, IndexError):
        return ""


class Result(NamedTuple):
    """A result of one rank for one check, as the payload said it."""

    status: str
    reason: str | None
    value: Any
    duration_s: float | None


class RankLog:
    """What one rank said. ``stages`` are (name, seconds since the start of the container) in order."""

    def __init__(self) -> None:
        self.started = False
        self.ended = False
        self.stages: list[tuple[str, float]] = []
        self.found: dict[str, Any] = {}
        self.results: dict[str, list[Result]] = {}
        self.measured: dict[str, list[Any]] = {}
        self.pid: int | None = None
        self._seen: set[str] = set()

    @property
    def stage(self) -> tuple[str, float] | None:
        """The stage that this rank announced last, if it has not ended."""
        return self.stages[-1] if self.stages and not self.ended else None

    def take(self, line: str, event: dict[str, Any], at: float) -> None:
        """Add one event; the very same line again counts once."""
        if line in self._seen:
            return
        self._seen.add(line)
        kind, name = event["event"], event.get("name")
        if kind == "start":
            self.started = True
            self.pid = integer(event.get("pid"))
        elif kind == "end":
            self.ended = True
        elif not isinstance(name, str):
            return
        elif kind == "stage":
            self.stages.append((name, at))
        elif kind == "found":
            self.found.setdefault(name, event.get("value"))
        elif kind == "measured":
            self.measured.setdefault(name, []).append(event.get("value"))
        elif kind == "check":
            duration = event.get("duration_s")
            reason = event.get("reason")
            self.results.setdefault(name, []).append(
                Result(
                    str(event.get("status")),
                    str(reason) if reason else None,
                    event.get("value"),
                    duration if isinstance(duration, float) else None,
                )
            )


def nccl_warnings(log: RankLog) -> list[str]:
    """What a rank's NCCL warned of, in its own words, which the payload has it write into a file."""
    said = log.found.get("nccl")
    lines = said.get("warnings") if isinstance(said, dict) else None
    return [str(line) for line in lines] if isinstance(lines, list) else []


class Transcript:
    """Reads the payload's lines out of a stream that other programs write into as well.

    Only a complete line of this very run, from a rank that was started, counts. Everything else is foreign and never a result.
    """

    def __init__(self, run_id: str, ranks: int, clock: Callable[[], float] = time.monotonic, first: int = 0) -> None:
        self.run_id = run_id
        self.ranks = {rank: RankLog() for rank in range(first, first + ranks)}
        self._clock = clock
        self._start = clock()

    def take(self, line: str) -> bool:
        """Take one line of stdout; whether it was one of ours."""
        at = line.find(f'{{"{MARK}"')
        if at < 0:
            return False
        try:
            event, _end = json.JSONDecoder().raw_decode(line[at:])
        except (ValueError, RecursionError):
            return False
        if event.get(MARK) != PROTOCOL or event.get("run") != self.run_id or not isinstance(event.get("event"), str):
            return False
        rank = event.get("rank")
        if not isinstance(rank, int) or isinstance(rank, bool) or rank not in self.ranks:
            return False
        self.ranks[rank].take(line[at:], event, self._clock() - self._start)
        return True

    def feed(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.take(line)

    def elapsed(self) -> float:
        """Seconds since this transcript began."""
        return self._clock() - self._start


def crashed_rank(stderr: Sequence[str]) -> tuple[int, int] | None:
    """(rank, exit code; negative: signal) of the process that torchrun names as the root cause of a failed run, or None."""
    text = "\n".join(stderr)
    cause = text.rfind("Root Cause")
    if cause < 0:
        return None
    match = re.search(r"rank\s*:\s*(\d+).*?exitcode\s*:\s*(-?\d+)", text[cause:], re.DOTALL)
    return (int(match.group(1)), int(match.group(2))) if match else None


class Outcome(NamedTuple):
    """A container that was run: what was asked for, how its child ended, what its ranks said."""

    container: Container
    child: ChildResult
    transcript: Transcript
