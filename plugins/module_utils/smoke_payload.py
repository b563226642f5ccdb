# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs inside the image: one process a GPU under ``torchrun``, JSON lines on stdout. Standard library and torch (2.1 to 2.13) only.

It measures and reports; what is required and what the verdict is, the host decides. Nothing here turns "could not run" into a pass, and on the backend
``cuda`` nothing ever computes on the CPU in place of a GPU.

Each line is one JSON object, complete by itself and written in one piece::

    {"rackready_smoke": 1, "run": "<id>", "rank": 3, "seq": 7, "event": "stage", "name": "matmul_exact.bf16"}

Events: ``start``; ``stage`` (announced before it begins, so that a hang names its stage); ``found`` (facts, by ``name``); ``check`` (a result, with
``status`` pass, fail or could_not_run, ``reason``, ``value``, ``duration_s`` in seconds); ``end`` (this rank has said everything).
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import re
import resource
import stat
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Callable, NamedTuple

MARK = "rackready_smoke"
PROTOCOL = 1
SETTINGS = "RACKREADY_SMOKE"
# A line stays below the size that a pipe takes in one piece (4096), so that lines of different ranks cannot mix.
LINE_MAX = 3800
# The bit of an interface's flags that says that it is up (linux/if.h).
IFF_UP = 1


class Product(NamedTuple):
    """A matrix product whose every partial sum is exact: integers, at most ``a_max * b_max * terms`` in magnitude.

    ``exact_max`` is the largest integer up to which input, accumulator and output hold every integer. Only one of ``stride`` consecutive entries of a
    column of B is non-zero, which leaves room for wider entries in A under a small ``exact_max``; shifted by column, every entry of A counts.
    """

    a_max: int
    b_max: int
    stride: int
    exact_max: int


# fp32 has entries of 12 bits on purpose: TF32 keeps 11, so a product that quietly ran in TF32 is wrong. fp64 likewise against fp32.
# fp8 (E4M3, integers to 16) has a bf16 output; its bound also stays inside the 14 bits that Hopper's fp8 accumulator keeps.
PRODUCTS = {
    "fp64": Product(a_max=2**20, b_max=2**20, stride=1, exact_max=2**53),
    "fp32": Product(a_max=4095, b_max=4, stride=1, exact_max=2**24),
    "tf32": Product(a_max=2047, b_max=4, stride=1, exact_max=2**24),
    "fp16": Product(a_max=8, b_max=1, stride=4, exact_max=2048),
    "bf16": Product(a_max=4, b_max=1, stride=16, exact_max=256),
    "fp8": Product(a_max=4, b_max=1, stride=16, exact_max=256),
}
# Lowest compute capability with the format in its matrix units; a rank leaves out what its own chip does not have.
LOWEST_CAPABILITY = {"fp64": (0, 0), "fp32": (0, 0), "fp16": (5, 3), "tf32": (8, 0), "bf16": (8, 0), "fp8": (8, 9)}
# Rows, inner length, columns; the inner length must keep every product of PRODUCTS inside its exact_max (a unit test says so).
SHAPES = {"cuda": (4096, 1024, 4096), "cpu": (128, 128, 128)}
REPEATS = {"cuda": 8, "cpu": 2}
# Elements of the vectors that are all-reduced: one, odd (no even split over ranks), and on GPUs one large enough to leave the low-latency path.
VECTORS = {"cuda": (1, 1023, 1048577, 8388608), "cpu": (1, 1023, 65537)}
REDUCE_ROUNDS = 5
# Up to this many multiplications the reference is computed in 64-bit integers as a whole, above it in fp64 on the CPU, with a part in integers.
INTEGER_WORK_MAX = 2**27


class Options(NamedTuple):
    """What the host asks for, as JSON in the environment variable ``RACKREADY_SMOKE``: torchrun takes options of ours for abbreviations of its own.

    ``run``: id of this run, repeated in every line. ``dtypes``: keys of PRODUCTS. ``collective``: whether the ranks
    can talk to each other (instances of a divided GPU cannot). ``limit``: seconds after which this process ends itself.
    """

    backend: str
    run: str
    dtypes: list[str]
    collective: bool
    limit: int


class Reporter:
    """Writes this rank's lines."""

    def __init__(self, run: str, rank: int, write: Callable[[bytes], object]) -> None:
        self.run = run
        self.rank = rank
        self.seq = 0
        self.write = write

    def emit(self, event: str, **fields: Any) -> None:
        """One complete line. A line that would be too long loses its value, never its status."""
        head = {MARK: PROTOCOL, "run": self.run, "rank": self.rank, "seq": self.seq, "event": event}
        self.seq += 1
        line = json.dumps({**head, **fields}, separators=(",", ":"), default=str)
        if len(line) > LINE_MAX:
            short = {k: (v[:500] if isinstance(v, str) else v) for k, v in fields.items() if k != "value"}
            line = json.dumps({**head, **short, "cut": True}, separators=(",", ":"), default=str)
        # The newline in front ends a half line that other code left there.
        self.write(b"\n" + line.encode() + b"\n")

    def stage(self, name: str) -> None:
        self.emit("stage", name=name)

    def check(self, name: str, status: str, reason: str | None = None, value: Any = None, started: float | None = None) -> None:
        seconds = None if started is None else round(time.monotonic() - started, 3)
        self.emit("check", name=name, status=status, reason=reason[:1000] if reason else None, value=value, duration_s=seconds)


def find_limits(root: Path = Path("/")) -> dict[str, Any]:
    """What this container allows: rlimits as ``[soft, hard]`` (-1: unlimited), /dev/shm in bytes, read-only root, no_new_privs, capabilities, interfaces up."""
    rlimits = {}
    for name in ("memlock", "nofile", "stack", "nproc", "core"):
        rlimits[name] = [-1 if n == resource.RLIM_INFINITY else n for n in resource.getrlimit(getattr(resource, "RLIMIT_" + name.upper()))]
    found: dict[str, Any] = {"ulimits": rlimits, "shm_bytes": None, "read_only_root": None, "no_new_privs": None, "cap_eff": None, "interfaces": None}
    try:
        shm = os.statvfs(root / "dev/shm")
        found["shm_bytes"] = shm.f_frsize * shm.f_blocks
        found["read_only_root"] = bool(os.statvfs(root).f_flag & os.ST_RDONLY)
    except OSError as error:
        found["error"] = str(error)
    try:
        status = dict(line.split(":", 1) for line in (root / "proc/self/status").read_text(encoding="utf-8").splitlines() if ":" in line)
        found["no_new_privs"] = status.get("NoNewPrivs", "").strip() == "1"
        found["cap_eff"] = status.get("CapEff", "").strip() or None
        found["interfaces"] = sorted(p.name for p in (root / "sys/class/net").iterdir() if is_up(p))
    except OSError as error:
        found["error"] = str(error)
    return found


def is_up(interface: Path) -> bool:
    """Whether a network interface (a directory of /sys/class/net) is up; one that does not tell counts.

    Kernel modules put tunl0, sit0, gre0 and their like into every network namespace, down and leading nowhere. ``operstate`` would not do: lo has none.
    """
    try:
        return bool(int((interface / "flags").read_text(encoding="utf-8"), 16) & IFF_UP)
    except (OSError, ValueError):
        return True


def find_device_nodes(root: Path = Path("/")) -> dict[str, list[int]]:
    """Character devices ``/dev/nvidia*`` visible here, path -> [major, minor]."""
    nodes = {}
    for path in sorted((root / "dev").glob("nvidia*")):
        entry = path.stat()
        if stat.S_ISCHR(entry.st_mode):
            nodes[f"/dev/{path.name}"] = [os.major(entry.st_rdev), os.minor(entry.st_rdev)]
    return nodes


def count_gpu_nodes(nodes: dict[str, list[int]]) -> int:
    """How many of the nodes are GPUs: ``/dev/nvidia<number>``."""
    return sum(1 for path in nodes if path[len("/dev/nvidia") :].isdigit())


def find_libcuda(maps: Path = Path("/proc/self/maps")) -> str | None:
    """The libcuda that this process really loaded: a forward-compatibility library shows here, not in the driver's version."""
    try:
        for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
            if "/libcuda.so" in line:
                return line[line.index("/") :].strip()
    except OSError:
        return None
    return None


def identity_from_libcuda(index: int) -> dict[str, str]:
    """UUID and PCI bus id by the driver's own interface, for a torch whose device properties do not carry them (they came after 2.1).

    Only after CUDA was initialised in this process. Empty where the library or the call is not there.
    """
    found: dict[str, str] = {}
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return found
    device = ctypes.c_int()
    if cuda.cuDeviceGet(ctypes.byref(device), ctypes.c_int(index)) != 0:
        return found
    text = ctypes.create_string_buffer(64)
    if cuda.cuDeviceGetPCIBusId(text, ctypes.c_int(64), device) == 0:
        found["pci_bus_id"] = text.value.decode().lower()
    raw = (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGetUuid(ctypes.byref(raw), device) == 0:
        digits = bytes(raw).hex()
        found["uuid"] = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return found


def cuda_identity(torch: Any, index: int) -> dict[str, Any]:
    """Who the device ``index`` is: uuid (``GPU-...``), pci_bus_id (``0000:1a:00.0``), name, capability, memory in MiB. Unknown ones are None."""
    properties = torch.cuda.get_device_properties(index)
    named: dict[str, Any] = {"uuid": None, "pci_bus_id": None}
    if hasattr(properties, "uuid"):
        named["uuid"] = str(properties.uuid)
    if all(hasattr(properties, key) for key in ("pci_domain_id", "pci_bus_id", "pci_device_id")):
        named["pci_bus_id"] = f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    if not all(named.values()):
        for key, value in identity_from_libcuda(index).items():
            named[key] = named[key] or value
    if named["uuid"] and not str(named["uuid"]).startswith(("GPU-", "MIG-")):
        named["uuid"] = "GPU-" + str(named["uuid"])
    return {
        **named,
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_mib": properties.total_memory // 2**20,
        "device_count": torch.cuda.device_count(),
    }


def built_for(architectures: list[str], capability: tuple[int, int]) -> bool:
    """Whether torch's list of architectures has code for a chip: machine code of its major version up to its minor one, or PTX up to it.

    ``sm_90a`` and ``compute_90a`` are for exactly that chip, those with an ``f`` for its major version.
    """
    for name in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if match is None:
            continue
        kind, only = match.group(1), match.group(4)
        chip = (int(match.group(2)), int(match.group(3)))
        if chip == capability or (chip < capability and only != "a" and (chip[0] == capability[0] or (kind == "compute" and not only))):
            return True
    return False


def architectures_of(torch: Any) -> list[str]:
    """What torch's kernels were built for. Its public function says nothing where CUDA does not work, so the build's own words are read first."""
    try:
        flags = torch._C._cuda_getArchFlags()
    except AttributeError:
        flags = None
    return str(flags).split() if flags else list(torch.cuda.get_arch_list())


def status_of(error: BaseException) -> str:
    """What an error in a check's own work says: software that lacks the operation could not run it, everything else is a failure of the machine."""
    lacking = ("no kernel image is available", "not implemented for", "only supported", "is not supported", "not compiled with")
    if isinstance(error, (ImportError, AttributeError, NotImplementedError, TypeError, AssertionError)):
        return "could_not_run"
    return "could_not_run" if any(words in str(error) for words in lacking) else "fail"


def words_of(error: BaseException) -> str:
    """The error's exact words on one line, with its type."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def operands(torch: Any, product: Product, shape: tuple[int, int, int]) -> tuple[Any, Any]:
    """The two integer matrices (int64, CPU) of a product; the same on every rank, so that GPUs of a host can be compared."""
    rows, inner, columns = shape
    seed = torch.Generator().manual_seed(20261201 + product.a_max)
    a = torch.randint(-product.a_max, product.a_max + 1, (rows, inner), generator=seed, dtype=torch.int64)
    b = torch.randint(-product.b_max, product.b_max + 1, (inner, columns), generator=seed, dtype=torch.int64)
    kept = (torch.arange(inner).unsqueeze(1) + torch.arange(columns).unsqueeze(0)) % product.stride == 0
    return a, b * kept


def reference(torch: Any, a: Any, b: Any) -> Any:
    """The true product as int64, from the CPU alone. Large ones in fp64, where these integers are exact, with some rows checked in integers."""
    rows, inner = a.shape
    if rows * inner * b.shape[1] <= INTEGER_WORK_MAX:
        return torch.mm(a, b)
    truth = torch.mm(a.double(), b.double()).long()
    sample = slice(0, rows, max(1, rows // 16))
    if not torch.equal(truth[sample], torch.mm(a[sample].contiguous(), b)):
        raise ArithmeticError("the reference on the CPU disagrees with itself: fp64 and 64-bit integers give different products")
    return truth


def torch_dtype(torch: Any, dtype: str) -> Any:
    """The torch type of our name for it. AttributeError where this torch has none."""
    names = {"fp64": "float64", "fp32": "float32", "tf32": "float32", "fp16": "float16", "bf16": "bfloat16", "fp8": "float8_e4m3fn"}
    return getattr(torch, names[dtype])


def multiplier(torch: Any, dtype: str, a: Any, b: Any, device: str) -> Callable[[], Any]:
    """A callable that computes the product on the device, each time into memory that held NaN before: work that did not happen cannot look right."""
    kind = torch_dtype(torch, dtype)
    left = a.double().to(kind).to(device)
    right = b.double().to(kind).to(device)
    shape = (a.shape[0], b.shape[1])
    if dtype == "fp8":
        # cuBLASLt wants the second matrix column by column.
        right = right.t().contiguous().t()
        one = torch.ones((), dtype=torch.float32, device=device)

        def scaled() -> Any:
            poison = torch.full(shape, float("nan"), dtype=torch.bfloat16, device=device)
            del poison  # the allocator hands the same block to the product
            out = torch._scaled_mm(left, right, scale_a=one, scale_b=one, out_dtype=torch.bfloat16, use_fast_accum=False)
            return out[0] if isinstance(out, tuple) else out

        return scaled

    def plain() -> Any:
        out = torch.full(shape, float("nan"), dtype=kind, device=device)
        torch.mm(left, right, out=out)
        return out

    return plain


def compare(torch: Any, out: Any, truth: Any) -> dict[str, Any]:
    """The whole output against the truth, on the CPU: elements, wrong ones (NaN counts as wrong), NaN, Inf, and the first wrong one."""
    got = out.cpu().double()
    differs = got != truth.double()
    found: dict[str, Any] = {
        "elements": got.numel(),
        "wrong": int(differs.sum()),
        "nan": int(torch.isnan(got).sum()),
        "inf": int(torch.isinf(got).sum()),
        "first_wrong": None,
    }
    if found["wrong"]:
        at = tuple(int(i) for i in differs.nonzero()[0])
        found["first_wrong"] = {"at": list(at), "got": repr(float(got[at])), "expected": int(truth[at])}
    return found


def matmul_exact(torch: Any, dtype: str, backend: str, device: str) -> tuple[str, str | None, dict[str, Any]]:
    """One exactly checked matrix product, repeated; (status, reason, value)."""
    product = PRODUCTS[dtype]
    # 'highest' is true fp32; 'high' lets the matrix units take TF32. Partial sums of split products stay in fp32.
    torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
    torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    a, b = operands(torch, product, SHAPES[backend])
    truth = reference(torch, a, b)
    multiply = multiplier(torch, dtype, a, b, device)
    first = multiply()
    if first.device.type != backend:
        return "could_not_run", f"the product was computed on {first.device.type}, not on {backend}", {}
    value = {"shape": list(SHAPES[backend]), **compare(torch, first, truth)}
    value["repeats"] = 1
    if value["wrong"]:
        return "fail", "{wrong} of {elements} elements are wrong ({nan} NaN, {inf} Inf), the first: {first_wrong}".format(**value), value
    for _repeat in range(REPEATS[backend] - 1):
        again = multiply()
        value["repeats"] += 1
        if not torch.equal(again, first):
            value.update(compare(torch, again, truth))
            return "fail", "repetition {repeats} differs from the first, correct product in {wrong} elements: {first_wrong}".format(**value), value
    return "pass", None, value


def reduce_term(torch: Any, size: int, rank: int, turn: int) -> Any:
    """What ``rank`` adds: integers from -15 to 15, different in each place, rank and round."""
    return (torch.arange(size, dtype=torch.int64) * 7 + rank * 13 + turn * 5) % 31 - 15


def all_reduce_exact(torch: Any, backend: str, device: str, rank: int, world: int) -> tuple[str, str | None, dict[str, Any]]:
    """Sums of integers over all ranks, each rank comparing its whole result with the sum that it computes alone; (status, reason, value)."""
    dist = torch.distributed
    value: dict[str, Any] = {"world": world, "rounds": 0, "elements": 0, "wrong": 0, "nan": 0, "inf": 0, "first_wrong": None}
    for size in VECTORS[backend]:
        # Two different inputs that take turns, so that a sum of the round before is no right answer. Of the others' terms only the sum is kept.
        terms = [reduce_term(torch, size, rank, turn) for turn in range(2)]
        truths = [torch.zeros(size, dtype=torch.int64) for _turn in range(2)]
        for turn in range(2):
            for other in range(world):
                truths[turn] += reduce_term(torch, size, other, turn)
        for kind in (torch.float32, torch.int64):
            for number in range(REDUCE_ROUNDS):
                # A copy, whatever the type and device: the sum replaces its input.
                mine = terms[number % 2].clone().to(kind).to(device)
                dist.all_reduce(mine)
                found = compare(torch, mine, truths[number % 2])
                value["rounds"] += 1
                value["elements"] += found["elements"]
                for key in ("wrong", "nan", "inf"):
                    value[key] += found[key]
                value["first_wrong"] = value["first_wrong"] or found["first_wrong"]
    if value["wrong"]:
        return "fail", "{wrong} of {elements} summed elements are wrong ({nan} NaN, {inf} Inf), the first: {first_wrong}".format(**value), value
    return "pass", None, value


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


def describe_torch(torch: Any) -> dict[str, Any]:
    """Versions of what computes: torch, its CUDA and NCCL, and the architectures that its kernels were built for."""
    found: dict[str, Any] = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "nccl": None, "arch_list": []}
    if torch.version.cuda:
        try:
            found["arch_list"] = architectures_of(torch)
            found["nccl"] = ".".join(str(n) for n in torch.cuda.nccl.version())
        except Exception as error:
            found["error"] = words_of(error)
    return found


def parse(text: str) -> Options:
    """The options from their JSON text. ValueError, KeyError or TypeError where they are not as they have to be."""
    given = json.loads(text)
    options = Options(backend=given["backend"], run=given["run"], dtypes=list(given["dtypes"]), collective=bool(given["collective"]), limit=int(given["limit"]))
    unknown = [d for d in options.dtypes if d not in PRODUCTS]
    if options.backend not in SHAPES or unknown:
        raise ValueError(f"backend {options.backend!r} or number formats {unknown} unknown")
    return options


def main() -> None:
    options = parse(os.environ[SETTINGS])
    # A thread of its own, in C: it works while the interpreter is stuck in a call. The parent's limit is shorter; this one is for a parent that died.
    faulthandler.dump_traceback_later(options.limit, exit=True)
    env = dict(os.environ)
    report = Reporter(options.run, int(env["RANK"]), lambda data: os.write(1, data))
    Rank(options, env, report).main()
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything has been said: the tear-down of CUDA and of the communicator is not tested, and must not turn a result into a hang.
    os._exit(0)


if __name__ == "__main__":
    main()
