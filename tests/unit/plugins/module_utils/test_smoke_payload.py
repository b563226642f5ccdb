# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The payload without torch: its lines, what it finds in the container, and that its numbers stay exact."""

from __future__ import annotations

import ast
import json
import resource
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_payload
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import identity
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.identity import architectures_of, built_for, cuda_identity
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.options import Options, parse
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.place import Place
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import LOWEST_CAPABILITY, PRODUCTS, SHAPES, matmul_exact
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.rank import Rank
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.report import LINE_MAX, Reporter, status_of, words_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.surroundings import count_gpu_nodes, find_device_nodes, find_libcuda, find_limits

FILES = sorted(Path(smoke_payload.__path__[0]).glob("*.py"))


class Written(list[bytes]):
    """What a reporter wrote, piece by piece."""

    def __call__(self, data: bytes) -> None:
        self.append(data)

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(data) for data in self]


def test_it_needs_the_standard_library_and_torch_alone() -> None:
    imported = set()
    for node in (node for path in FILES for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            imported.add(str(node.module).split(".", maxsplit=1)[0])
    assert imported - sys.stdlib_module_names == {"torch"}


class TestNumbers:
    @pytest.mark.parametrize("backend", list(SHAPES))
    @pytest.mark.parametrize("dtype", list(PRODUCTS))
    def test_no_partial_sum_leaves_the_exact_integers(self, dtype: str, backend: str) -> None:
        product = PRODUCTS[dtype]
        terms = -(-SHAPES[backend][1] // product.stride)
        assert product.a_max * product.b_max * terms <= product.exact_max

    @pytest.mark.parametrize(("dtype", "significand_bits"), [("fp64", 53), ("fp32", 24), ("tf32", 11), ("fp16", 11), ("bf16", 8), ("fp8", 4)])
    def test_the_inputs_are_exact_in_the_format(self, dtype: str, significand_bits: int) -> None:
        assert max(PRODUCTS[dtype].a_max, PRODUCTS[dtype].b_max) <= 2**significand_bits

    def test_the_outputs_are_exact_in_the_format(self) -> None:
        assert PRODUCTS["bf16"].exact_max == PRODUCTS["fp8"].exact_max == 2**8
        assert PRODUCTS["fp16"].exact_max == 2**11
        assert PRODUCTS["fp32"].exact_max == PRODUCTS["tf32"].exact_max == 2**24
        assert PRODUCTS["fp64"].exact_max == 2**53

    def test_a_narrower_format_could_not_give_the_same_product(self) -> None:
        assert PRODUCTS["fp32"].a_max > 2**11  # TF32 would round it
        assert PRODUCTS["fp64"].a_max * PRODUCTS["fp64"].b_max > 2**24  # so would fp32 round the products

    def test_the_inner_length_is_a_multiple_of_every_stride(self) -> None:
        # Otherwise some columns of B would have more terms than others.
        for shape in SHAPES.values():
            assert all(shape[1] % product.stride == 0 for product in PRODUCTS.values())

    def test_every_format_has_its_lowest_chip(self) -> None:
        assert set(LOWEST_CAPABILITY) == set(PRODUCTS)


class TestLines:
    def test_each_is_complete_and_in_one_piece(self) -> None:
        written = Written()
        report = Reporter("abc", 3, written)
        report.stage("import_torch")
        report.check("matmul_exact.bf16", "fail", "3 wrong", {"wrong": 3}, None)
        assert all(data.startswith(b"\n{") and data.endswith(b"}\n") and data.count(b"\n") == 2 for data in written)
        assert written.events() == [
            {"rackready_smoke": 1, "run": "abc", "rank": 3, "seq": 0, "event": "stage", "name": "import_torch"},
            {
                "rackready_smoke": 1,
                "run": "abc",
                "rank": 3,
                "seq": 1,
                "event": "check",
                "name": "matmul_exact.bf16",
                "status": "fail",
                "reason": "3 wrong",
                "value": {"wrong": 3},
                "duration_s": None,
            },
        ]

    def test_a_long_one_loses_its_value_and_keeps_its_status(self) -> None:
        written = Written()
        Reporter("abc", 0, written).check("x", "fail", "r" * 3000, {"much": "v" * 9000})
        assert len(written[0]) <= LINE_MAX + 2
        event = written.events()[0]
        assert (event["status"], event["cut"], "value" in event) == ("fail", True, False)


class TestFindings:
    def test_limits_of_this_very_process(self) -> None:
        found = find_limits()
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        assert found["ulimits"]["nofile"] == [soft, hard]
        assert found["shm_bytes"] is None or found["shm_bytes"] > 0
        assert isinstance(found["no_new_privs"], bool)
        assert "lo" in found["interfaces"]

    def test_no_new_privs_and_capabilities_are_read_from_the_status(self, tmp_path: Path) -> None:
        (tmp_path / "dev/shm").mkdir(parents=True)
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "sys/class/net/lo").mkdir(parents=True)
        status = tmp_path / "proc/self/status"
        status.write_text("Name:\tpython3\nCapEff:\t0000000000000000\nNoNewPrivs:\t1\n", encoding="utf-8")
        found = find_limits(tmp_path)
        assert (found["no_new_privs"], found["cap_eff"], found["interfaces"]) == (True, "0" * 16, ["lo"])
        status.write_text("NoNewPrivs:\t0\n", encoding="utf-8")
        assert find_limits(tmp_path)["no_new_privs"] is False

    def test_only_interfaces_that_are_up_count(self, tmp_path: Path) -> None:
        """Every network namespace gets the fallback interfaces of loaded tunnel modules, which are down."""
        flags = {"lo": "0x9", "tunl0": "0x80", "sit0": "0x80", "gre0": "0x80", "gretap0": "0x1002", "ip6tnl0": "0x80", "eth0": "0x1003", "odd0": "?"}
        for name, text in flags.items():
            (tmp_path / "sys/class/net" / name).mkdir(parents=True)
            (tmp_path / "sys/class/net" / name / "flags").write_text(text + "\n", encoding="utf-8")
        (tmp_path / "sys/class/net/silent0").mkdir()
        (tmp_path / "proc/self").mkdir(parents=True)
        (tmp_path / "proc/self/status").write_text("NoNewPrivs:\t1\n", encoding="utf-8")
        assert find_limits(tmp_path)["interfaces"] == ["eth0", "lo", "odd0", "silent0"]

    def test_what_cannot_be_read_is_none(self, tmp_path: Path) -> None:
        found = find_limits(tmp_path / "nowhere")
        assert (found["shm_bytes"], found["read_only_root"], found["no_new_privs"]) == (None, None, None)

    def test_only_character_devices_are_nodes(self, tmp_path: Path) -> None:
        (tmp_path / "dev/nvidia-caps").mkdir(parents=True)
        (tmp_path / "dev/nvidia0").write_text("", encoding="utf-8")
        assert find_device_nodes(tmp_path) == {}
        assert count_gpu_nodes({"/dev/nvidia0": [195, 0], "/dev/nvidia17": [195, 17], "/dev/nvidiactl": [195, 255], "/dev/nvidia-uvm": [511, 0]}) == 2

    def test_the_loaded_libcuda_is_told_by_its_path(self, tmp_path: Path) -> None:
        maps = tmp_path / "maps"
        maps.write_text("7f00-7f01 r-xp 0000 00:00 1   /usr/local/cuda/compat/lib.real/libcuda.so.590.44.01\n", encoding="utf-8")
        assert find_libcuda(maps) == "/usr/local/cuda/compat/lib.real/libcuda.so.590.44.01"
        maps.write_text("7f00-7f01 r-xp 0000 00:00 1   /usr/lib/libc.so.6\n", encoding="utf-8")
        assert find_libcuda(maps) is None
        assert find_libcuda(tmp_path / "absent") is None


def cuda(**properties: object) -> SimpleNamespace:
    """The part of torch that tells who a GPU is."""
    known = {"name": "NVIDIA H200", "major": 9, "minor": 0, "total_memory": 150 * 2**30}
    return SimpleNamespace(cuda=SimpleNamespace(get_device_properties=lambda index: SimpleNamespace(**{**known, **properties}), device_count=lambda: 8))


class TestIdentity:
    def test_from_the_properties(self) -> None:
        said = cuda_identity(cuda(uuid="0a1b", pci_domain_id=0, pci_bus_id=0x1A, pci_device_id=0), 0)
        assert (said["uuid"], said["pci_bus_id"]) == ("GPU-0a1b", "0000:1a:00.0")
        assert (said["compute_capability"], said["memory_mib"], said["device_count"]) == ("9.0", 153600, 8)

    def test_an_instance_keeps_its_prefix(self) -> None:
        assert cuda_identity(cuda(uuid="MIG-0a1b", pci_domain_id=1, pci_bus_id=0xCB, pci_device_id=0), 0)["uuid"] == "MIG-0a1b"

    def test_an_old_torch_is_helped_by_the_driver_and_never_guessed_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(identity, "identity_from_libcuda", lambda index: {"pci_bus_id": "0000:1a:00.0", "uuid": "0a1b"})
        assert cuda_identity(cuda(), 0)["uuid"] == "GPU-0a1b"
        monkeypatch.setattr(identity, "identity_from_libcuda", lambda index: {})
        said = cuda_identity(cuda(), 0)
        assert (said["uuid"], said["pci_bus_id"]) == (None, None)


class TestArchitectures:
    @pytest.mark.parametrize(
        ("architectures", "chip", "runs"),
        [
            ("sm_90", (9, 0), True),
            ("sm_80", (8, 9), True),
            ("sm_89", (8, 0), False),
            ("sm_80", (9, 0), False),
            ("sm_100", (9, 0), False),
            ("sm_100", (10, 3), True),
            ("sm_100", (12, 0), False),
            ("compute_80", (9, 0), True),
            ("compute_90", (12, 0), True),
            ("compute_90", (8, 9), False),
            ("compute_90", (9, 0), True),
            ("sm_90a", (9, 0), True),
            ("sm_100a", (10, 3), False),
            ("compute_90a", (10, 0), False),
            ("sm_100f", (10, 3), True),
            ("compute_100f", (12, 0), False),
            ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", (8, 9), True),
            ("sm_75 sm_80 sm_86 sm_90 sm_100 sm_120", (7, 0), False),
            ("gfx942", (9, 0), False),
            ("", (9, 0), False),
        ],
    )
    def test_what_runs_on_a_chip(self, architectures: str, chip: tuple[int, int], runs: bool) -> None:
        assert built_for(architectures.split(), chip) == runs

    def test_they_are_told_also_where_cuda_does_not_work(self) -> None:
        nothing = SimpleNamespace(get_arch_list=list)
        assert architectures_of(SimpleNamespace(_C=SimpleNamespace(_cuda_getArchFlags=lambda: "sm_80 sm_90"), cuda=nothing)) == ["sm_80", "sm_90"]
        public = SimpleNamespace(get_arch_list=lambda: ["sm_70"])
        assert architectures_of(SimpleNamespace(_C=SimpleNamespace(_cuda_getArchFlags=lambda: None), cuda=public)) == ["sm_70"]
        assert architectures_of(SimpleNamespace(_C=SimpleNamespace(), cuda=public)) == ["sm_70"]


class TestErrors:
    @pytest.mark.parametrize(
        ("error", "status"),
        [
            (RuntimeError("CUDA error: an illegal memory access was encountered"), "fail"),
            (RuntimeError("Unexpected error from cudaGetDeviceCount(). Error 802: system not yet initialized"), "fail"),
            (RuntimeError("No CUDA GPUs are available"), "fail"),
            (RuntimeError("CUDA error: no kernel image is available for execution on the device"), "could_not_run"),
            (ArithmeticError("the reference disagrees with itself"), "fail"),
            (RuntimeError("\"addmm_impl_cpu_\" not implemented for 'Half'"), "could_not_run"),
            (RuntimeError("torch._scaled_mm is only supported on CUDA devices with compute capability >= 9.0"), "could_not_run"),
            (AssertionError("Torch not compiled with CUDA enabled"), "could_not_run"),
            (AttributeError("module 'torch' has no attribute 'float8_e4m3fn'"), "could_not_run"),
            (ImportError("libcudnn.so.9"), "could_not_run"),
        ],
    )
    def test_the_machine_fails_the_software_could_not_run(self, error: Exception, status: str) -> None:
        assert status_of(error) == status

    def test_words_are_exact_and_on_one_line(self) -> None:
        assert words_of(RuntimeError("CUDA error:\n  802")) == "RuntimeError: CUDA error: 802"


class TestOptions:
    def test_given_by_the_host(self) -> None:
        given = {"backend": "cpu", "run": "a", "dtypes": ["bf16"], "collective": True, "limit": 9}
        assert parse(json.dumps(given)) == Options("cpu", "a", ["bf16"], True, 9, budget=9)
        more = {"tier": "burn", "budget": 7, "figures": ["pair.copy"], "trainings": ["training.fp8"], "visible": ["MIG-1"], "burn_seconds": 60, "later": 1}
        whole = parse(json.dumps({**given, **more}))
        assert whole == Options("cpu", "a", ["bf16"], True, 9, "burn", 7, ("pair.copy",), ("training.fp8",), ("MIG-1",), 60)

    @pytest.mark.parametrize("change", [{"backend": "gpu"}, {"dtypes": ["int4"]}, {"tier": "long"}, {"figures": ["speed"]}, {"trainings": ["epoch"]}])
    def test_what_is_unknown_is_an_error(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValueError, match="unknown"):
            parse(json.dumps({"backend": "cpu", "run": "a", "dtypes": [], "collective": True, "limit": 9, **change}))

    def test_what_is_no_json_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="Expecting"):
            parse("nothing")


class TestRank:
    def rank(self, written: Written) -> Rank:
        env = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1"}
        return Rank(Options("cuda", "abc", ["fp64", "bf16"], True, 9), env, Reporter("abc", 1, written))

    def test_cuda_that_is_not_there_fails_in_its_own_words_and_nothing_runs_on_the_cpu(self) -> None:
        def no_cuda() -> None:
            raise RuntimeError("Error 802: system not yet initialized")

        written = Written()
        rank = self.rank(written)
        rank.identify(SimpleNamespace(cuda=SimpleNamespace(init=no_cuda)), {})
        rank.one("matmul_exact.fp64", lambda: ("pass", None, {}))
        stage, identity, product = written.events()
        assert (stage["event"], stage["name"]) == ("stage", "gpu_identity")
        assert (identity["status"], identity["reason"]) == ("fail", "CUDA cannot use device 1: RuntimeError: Error 802: system not yet initialized")
        assert (product["status"], product["reason"]) == ("could_not_run", "not attempted: RuntimeError: Error 802: system not yet initialized")

    def test_an_image_without_code_for_the_gpu_says_who_the_gpu_is_and_computes_nothing(self) -> None:
        def kernel(*_args: object, **_options: object) -> None:
            raise AssertionError("a kernel was started")

        torch = cuda(uuid="GPU-1", pci_domain_id=0, pci_bus_id=0x1A, pci_device_id=0)
        torch.cuda.init = torch.cuda.set_device = lambda *_args: None
        torch._C = SimpleNamespace(_cuda_getArchFlags=lambda: "sm_80 sm_100")
        torch.zeros, torch.set_num_threads = kernel, lambda _number: None
        written = Written()
        rank = self.rank(written)
        rank.identify(torch, {})
        rank.one("matmul_exact.fp64", lambda: ("pass", None, {}))
        _stage, identity, product = written.events()
        assert (identity["event"], identity["value"]["compute_capability"]) == ("found", "9.0")
        assert product["status"] == "could_not_run"
        assert product["reason"] == "not attempted: torch in the image has no code for compute capability 9.0, only for sm_80 sm_100"

    def test_a_stage_is_announced_before_it_begins(self) -> None:
        written = Written()
        seen: list[int] = []

        def work() -> tuple[str, str | None, dict[str, Any]]:
            seen.append(len(written))
            return "pass", None, {"elements": 4}

        self.rank(written).one("matmul_exact.fp64", work)
        assert seen == [1]
        assert [event["event"] for event in written.events()] == ["stage", "check"]

    def test_after_a_cuda_error_nothing_more_is_computed(self) -> None:
        def broken() -> tuple[str, str | None, dict[str, Any]]:
            raise RuntimeError("CUDA error: uncorrectable ECC error encountered")

        written = Written()
        rank = self.rank(written)
        rank.one("matmul_exact.fp64", broken)
        rank.one("matmul_exact.bf16", lambda: ("pass", None, {}))
        assert [event["status"] for event in written.events() if event["event"] == "check"] == ["fail", "could_not_run"]

    def test_a_cpu_result_never_passes_for_a_gpus(self) -> None:
        torch = pytest.importorskip("torch")
        if torch.cuda.is_available():
            pytest.skip("this machine has a GPU")
        status, reason, _ = matmul_exact(Place(torch, "cuda", "cpu"), "fp32")
        assert status == "could_not_run"
        assert "cpu" in str(reason)
