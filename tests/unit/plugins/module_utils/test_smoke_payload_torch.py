# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The payload with a real torch on the CPU: exact arithmetic, wrong results found, and all of it under torchrun with gloo."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import write_payload
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import burn, busbw, exchange, figures, pairs, products, training
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.budget import Deadline, NoTimeLeft
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.exchange import collective_exact
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.pairs import MESSAGES, ground_of, message
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.place import Place
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import (
    PRODUCTS,
    SHAPES,
    compare,
    least_repeats,
    matmul_exact,
    operands,
    reference,
)
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.repeats import matmul_repeat, sha256_of
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import PAYLOAD_MODULE, RankLog, Transcript, run_child

torch = pytest.importorskip("torch", reason="torch is not installed here")

SMALL = (64, 64, 64)
CPU = Place(torch, "cpu", "cpu")


class TestProducts:
    @pytest.mark.parametrize("dtype", list(PRODUCTS))
    def test_exact_on_the_cpu(self, dtype: str) -> None:
        status, reason, value = matmul_exact(CPU, dtype)
        assert (status, reason) == ("pass", None)
        assert (value["elements"], value["wrong"], value["nan"], value["inf"], value["repeats"]) == (16384, 0, 0, 0, 2)

    @pytest.mark.parametrize("dtype", list(PRODUCTS))
    def test_the_inputs_are_what_the_table_says_and_the_same_each_time(self, dtype: str) -> None:
        product = PRODUCTS[dtype]
        a, b = operands(torch, product, SHAPES["cpu"])
        assert int(a.abs().max()) <= product.a_max and int(b.abs().max()) <= product.b_max
        assert int((b != 0).sum(dim=0).max()) <= SHAPES["cpu"][1] // product.stride
        again = operands(torch, product, SHAPES["cpu"])
        assert torch.equal(a, again[0]) and torch.equal(b, again[1])

    def test_a_large_reference_is_checked_in_integers(self, monkeypatch: pytest.MonkeyPatch) -> None:
        a, b = operands(torch, PRODUCTS["fp64"], SMALL)
        whole = reference(torch, a, b)
        monkeypatch.setattr(products, "INTEGER_WORK_MAX", 1)
        assert torch.equal(reference(torch, a, b), whole)
        # Integers beyond 2**53 are where fp64 stops being exact: the reference notices that it is none.
        with pytest.raises(ArithmeticError, match="disagrees with itself"):
            reference(torch, a * 2**20 + 1, b * 2**10 + 1)

    @pytest.mark.parametrize(
        ("bend", "found"),
        [
            (lambda out: out[3, 5].add_(1), {"wrong": 1, "nan": 0, "inf": 0}),
            (lambda out: out[0, 0].fill_(float("nan")), {"wrong": 1, "nan": 1, "inf": 0}),
            (lambda out: out[63, 63].fill_(float("inf")), {"wrong": 1, "nan": 0, "inf": 1}),
            (lambda out: out.fill_(float("nan")), {"wrong": 4096, "nan": 4096, "inf": 0}),
        ],
    )
    def test_every_wrong_element_is_found(self, bend: Any, found: dict[str, int]) -> None:
        a, b = operands(torch, PRODUCTS["fp32"], SMALL)
        truth = reference(torch, a, b)
        out = truth.float()
        assert compare(torch, out, truth)["wrong"] == 0
        bend(out)
        seen = compare(torch, out, truth)
        assert {key: seen[key] for key in found} == found
        assert seen["first_wrong"] is not None

    def test_a_product_that_never_happened_is_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch, "mm", lambda a, b, out=None: out if out is not None else a @ b)
        status, reason, value = matmul_exact(CPU, "fp32")
        assert (status, value["nan"]) == ("fail", 16384)
        assert "16384 of 16384 elements are wrong (16384 NaN, 0 Inf)" in str(reason)

    def test_a_repetition_that_differs_is_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = torch.mm
        calls: list[int] = []

        def flaky(a: Any, b: Any, out: Any = None) -> Any:
            if out is None:
                return real(a, b)
            real(a, b, out=out)
            calls.append(1)
            if len(calls) == 2:
                out[1, 2] += 1
            return out

        monkeypatch.setattr(torch, "mm", flaky)
        status, reason, value = matmul_exact(CPU, "bf16")
        assert (status, value["repeats"], value["wrong"]) == ("fail", 2, 1)
        assert "repetition 2 differs" in str(reason)

    def test_a_narrower_format_is_noticed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        real = products.torch_dtype
        narrower = {"fp64": "fp32", "fp32": "fp16"}
        monkeypatch.setattr(products, "torch_dtype", lambda module, dtype: real(module, narrower[dtype]))
        for dtype in narrower:
            assert matmul_exact(CPU, dtype)[0] == "fail"


class TestCollective:
    def run(self, monkeypatch: pytest.MonkeyPatch, bend: Any, world: int = 3) -> Any:
        """all_reduce of rank 1 with the sum done by a double that may bend it."""
        state = {"turn": 0}

        def summed(mine: Any) -> None:
            size, turn = mine.numel(), state["turn"] % exchange.REDUCE_ROUNDS % 2
            mine.copy_(sum(exchange.term(torch, size, rank, turn) for rank in range(world)))
            state["turn"] += 1
            bend(mine)

        monkeypatch.setattr(torch.distributed, "all_reduce", summed)
        return collective_exact(CPU._replace(rank=1, world=world), "all_reduce_exact")

    def test_the_right_sum_passes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        status, reason, value = self.run(monkeypatch, lambda mine: None)
        assert (status, reason, value["wrong"], value["world"], value["rounds"]) == ("pass", None, 0, 3, 30)

    def test_one_element_wrong_in_one_round_is_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[int] = []

        def once(mine: Any) -> None:
            seen.append(1)
            if len(seen) == 17:
                mine[-1] += 1

        status, reason, value = self.run(monkeypatch, once)
        assert (status, value["wrong"]) == ("fail", 1)
        assert "1 of 665610 exchanged elements are wrong" in str(reason)

    def test_a_sum_that_never_happened_is_a_failure(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.distributed, "all_reduce", lambda mine: None)
        assert collective_exact(CPU._replace(rank=1, world=3), "all_reduce_exact")[0] == "fail"


class TestRepeats:
    @pytest.mark.parametrize("dtype", list(PRODUCTS))
    def test_the_same_bits_each_time(self, dtype: str) -> None:
        first, again = (matmul_repeat(CPU, dtype) for _time in range(2))
        assert (first[0], first[2]["different"], first[2]["not_finite"], first[2]["repeats"]) == ("pass", 0, 0, 2)
        assert first[2]["sha256"] == again[2]["sha256"]

    def test_in_accept_more_often(self) -> None:
        assert matmul_repeat(CPU._replace(tier="accept"), "bf16")[2]["repeats"] == least_repeats("bf16", "cpu", "accept") == 10

    def test_the_hash_is_that_of_the_bytes(self) -> None:
        numbers = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float32)
        assert sha256_of(numbers) == hashlib.sha256(struct.pack("<4f", 1, 2, 3, 4)).hexdigest()
        assert sha256_of(numbers.t()) == hashlib.sha256(struct.pack("<4f", 1, 3, 2, 4)).hexdigest()

    def test_wrong_once_is_found_here_and_wrong_in_a_steady_way_by_the_hash(self, monkeypatch: pytest.MonkeyPatch) -> None:
        sound = matmul_repeat(CPU, "fp32")[2]["sha256"]
        calls = bend_products(monkeypatch, lambda out, call: out[5, 6].add_(1e-3))
        status, _reason, value = matmul_repeat(CPU, "fp32")
        assert (status, value["sha256"] == sound) == ("pass", False)
        calls.clear()
        bend_products(monkeypatch, lambda out, call: out[5, 6].add_(1e-3) if call == 2 else None)
        status, reason, value = matmul_repeat(CPU, "fp32")
        assert (status, value["different"], value["repeats"]) == ("fail", 1, 2)
        assert "repetition 2 of the same product differs from the first in 1 of 16384 elements" in str(reason)

    def test_what_is_not_finite_is_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bend_products(monkeypatch, lambda out, call: out[0, 0].fill_(float("inf")))
        status, reason, _value = matmul_repeat(CPU, "bf16")
        assert (status, reason) == ("fail", "1 of 16384 elements of a product of small random numbers are NaN or Inf")

    def test_without_time_for_the_least_it_could_not_run(self) -> None:
        with pytest.raises(NoTimeLeft, match="1 of 10 products were made and right"):
            matmul_repeat(CPU._replace(tier="accept"), "fp16", Deadline(0))
        with pytest.raises(NoTimeLeft, match="1 of 2 products"):
            matmul_exact(CPU, "fp16", Deadline(0))


def bend_products(monkeypatch: pytest.MonkeyPatch, bend: Any) -> list[int]:
    """Let something happen to each product in its output; the calls so far."""
    real, calls = torch.mm, [0]
    del calls[0]

    def mm(a: Any, b: Any, out: Any = None) -> Any:
        if out is None:
            return real(a, b)
        torch.matmul(a, b, out=out)
        calls.append(1)
        bend(out, len(calls))
        return out

    monkeypatch.setattr(torch, "mm", mm)
    return calls


class TestPairs:
    def test_each_ordered_pair_has_bytes_of_its_own(self) -> None:
        ground = ground_of(torch, 4097)
        sent = {sha256_of(message(torch, ground, a, b, turn)) for a in range(16) for b in range(16) for turn in range(2)}
        # A message of the turn before is that of another pair at most, never the same pair's.
        assert len(sent) == 256
        assert all(not torch.equal(message(torch, ground, a, b, 0), message(torch, ground, a, b, 1)) for a in range(16) for b in range(16))

    def run(self, monkeypatch: pytest.MonkeyPatch, bend: Any) -> Any:
        """Rank 1 of 3, to which a double sends what the others send."""
        turns = dict.fromkeys(MESSAGES["cpu"], 0)

        def pass_on(_dist: Any, _out: Any, _to: int | None, into: Any, source: int | None) -> None:
            size = into.numel()
            into.copy_(message(torch, ground_of(torch, size), int(source or 0), 1, turns[size] // 2))
            turns[size] += 1
            bend(into, source)

        monkeypatch.setattr(pairs, "pass_on", pass_on)
        return pairs.pair_exact(CPU._replace(rank=1, world=3))

    def test_right_bytes_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        status, reason, value = self.run(monkeypatch, lambda into, source: None)
        assert (status, reason) == ("pass", None)
        assert {key: value[key] for key in pairs.amount_of("cpu", 3)} == pairs.amount_of("cpu", 3)

    def test_a_wrong_bit_is_found_with_its_sender(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def bend(into: Any, source: int) -> None:
            if source == 2 and into.numel() == 4097:
                into[4096] ^= 1

        status, reason, value = self.run(monkeypatch, bend)
        assert (status, value["wrong"], value["wrong_from"], value["first_wrong"]["at"]) == ("fail", 2, {"2": 2}, 4096)
        assert "2 of 278548 bytes are wrong, by sender: {'2': 2}" in str(reason)

    def test_bytes_that_never_came_are_wrong(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pairs, "pass_on", lambda *_arguments: None)
        assert pairs.pair_exact(CPU._replace(rank=1, world=3))[0] == "fail"

    def test_one_rank_has_none(self) -> None:
        assert pairs.pair_exact(CPU)[0] == "could_not_run"


class TestFigures:
    def later(self) -> Deadline:
        return Deadline(time.monotonic() + 60)

    @pytest.mark.parametrize("dtype", list(PRODUCTS))
    def test_a_product(self, dtype: str) -> None:
        value = figures.matmul(CPU, dtype, self.later())
        assert (value["unit"], value["conditions"][:28]) == ("TFLOP/s", "128 x 128 x 128, random data")
        assert 0 < min(value["samples"]) <= value["median"] <= max(value["samples"])
        assert value["calls"] >= len(value["samples"]) >= 3

    def test_memory(self) -> None:
        value = figures.memory_copy(CPU, self.later())
        assert (value["unit"], value["bytes"]) == ("GB/s", figures.MEMORY_BYTES["cpu"])

    def test_work_that_is_wrong_has_no_speed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        bend_products(monkeypatch, lambda out, call: out[1, 1].fill_(float("nan")) if call > 1 else None)
        with pytest.raises(figures.WrongResult, match="1 of 16384 elements of the product that was timed differ"):
            figures.matmul(CPU, "fp32", self.later())

    def test_the_cpu_has_no_way_to_itself(self) -> None:
        with pytest.raises(NotImplementedError, match="the CPU is the host itself"):
            figures.host_copy(CPU, figures.HOST_COPIES[0], self.later())

    def test_one_rank_has_no_bus(self) -> None:
        for work in (busbw.all_reduce_speed, pairs.pair_speed):
            with pytest.raises(NotImplementedError, match="one rank alone has no"):
                work(CPU, self.later())


class TestBurn:
    def run(self) -> Any:
        return burn.burn(CPU, "bf16", 0.5, Deadline(time.monotonic() + 60))

    def test_every_product_is_compared(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(burn, "LOOK_SECONDS", 0.1)
        status, reason, value = self.run()
        assert (status, reason, value["wrong"]) == ("pass", None, 0)
        assert value["products"] >= burn.QUEUED * len(value["samples"]) > 0
        assert value["lowest"] <= value["median"]

    def test_one_wrong_product_in_many_ends_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(burn, "LOOK_SECONDS", 0.1)
        bend_products(monkeypatch, lambda out, call: out[7, 7].add_(64) if call == 5 else None)
        status, reason, value = self.run()
        assert (status, value["wrong"]) == ("fail", 1)
        assert "1 words of" in str(reason)

    def test_it_is_not_begun_if_it_cannot_be_ended(self) -> None:
        with pytest.raises(NoTimeLeft, match="it was asked for 3600 s, 1"):
            burn.burn(CPU, "bf16", 3600, Deadline(time.monotonic() + 10.4))

    def test_a_chip_without_bf16_burns_in_fp16(self) -> None:
        assert [burn.dtype_of(dtypes) for dtypes in (["fp32", "fp16", "bf16"], ["fp64", "fp16"], ["fp64"], [])] == ["bf16", "fp16", "fp64", "bf16"]


class TestTraining:
    def test_a_compiled_function_and_its_gradient(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # Compiling itself takes a compiler and a minute; what comes out of it is looked at here.
        monkeypatch.setattr(torch, "compile", lambda function, fullgraph: function)
        status, reason, value = training.compiled(CPU)
        assert (status, reason, value["wrong"], value["elements"]) == ("pass", None, 0, 16 * 32 + 16 * 64)
        monkeypatch.setattr(torch, "compile", lambda function, fullgraph: lambda a, b: function(a, b) + 1)
        assert training.compiled(CPU)[0] == "fail"

    def compile_with(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> Any:
        def broken(a: Any, b: Any) -> Any:
            raise RuntimeError("backend='inductor' raised") from error

        monkeypatch.setattr(torch, "compile", lambda function, fullgraph: broken)
        return training.compiled(CPU)

    def test_an_image_without_a_compiler_could_not_run_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        status, reason, _value = self.compile_with(monkeypatch, RuntimeError("Failed to find C compiler. Please specify via CC environment variable."))
        assert status == "could_not_run"
        assert reason.startswith("the image cannot compile: RuntimeError: backend='inductor' raised; from RuntimeError: Failed to find C compiler.")

    @pytest.mark.parametrize("error", [RuntimeError("CUDA error: an illegal memory access was encountered"), NoTimeLeft("30 s were not enough")])
    def test_a_fault_of_the_gpu_and_the_end_of_time_are_their_own(self, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
        with pytest.raises(type(error)) as raised:
            self.compile_with(monkeypatch, error)
        assert raised.value is error

    def test_fp8(self, monkeypatch: pytest.MonkeyPatch) -> None:
        status, reason, value = training.fp8_step(CPU)
        assert (status, reason, value["elements"]) == ("pass", None, 2 * 64 * 64)
        monkeypatch.setattr(training, "scaled_product", lambda *given: products.scaled_product(*given) + 1)
        assert training.fp8_step(CPU)[0] == "fail"

    def test_no_transformer_engine(self) -> None:
        assert training.transformer_engine(CPU)[:2] == ("could_not_run", "the image has no Transformer Engine")

    @pytest.mark.parametrize(("factor", "status"), [(1.0, "pass"), (1.03, "pass"), (1.2, "fail"), (float("nan"), "fail")])
    def test_transformer_engine_within_what_fp8_allows(self, monkeypatch: pytest.MonkeyPatch, factor: float, status: str) -> None:
        """With a double of it: only some images have it."""

        class Linear(torch.nn.Linear):  # type: ignore[misc,name-defined]
            def __init__(self, inputs: int, outputs: int, bias: bool, params_dtype: Any, device: str) -> None:
                super().__init__(inputs, outputs, bias=bias, dtype=params_dtype, device=device)

            def forward(self, given: Any) -> Any:
                return super().forward(given) * factor

        engine = SimpleNamespace(Linear=Linear, fp8_autocast=lambda enabled: contextlib.nullcontext())
        modules = {"transformer_engine.pytorch": engine, "transformer_engine": SimpleNamespace(__version__="2.9")}
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
        monkeypatch.setattr(importlib, "import_module", lambda name: modules[name])
        found, reason, value = training.transformer_engine(CPU)
        assert (found, value["version"]) == (status, "2.9")
        assert (reason is None) == (status == "pass")


def torchrun(ranks: int, folder: Path, port: int) -> list[str]:
    """The command as the container runs it: the payload is found because it lies in the working directory."""
    write_payload(folder)
    command = ["env", f"--chdir={folder}", sys.executable, "-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", str(ranks)]
    return [*command, "--master-addr", "127.0.0.1", "--master-port", str(port), "--module", PAYLOAD_MODULE]


def without_network(command: list[str]) -> list[str]:
    """The command in a network of its own with only lo, as ``--network none`` gives it; unchanged where that is not allowed here."""
    if os.geteuid() == 0 and shutil.which("unshare") and subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode == 0:
        return ["unshare", "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh", *command]
    return command


ALONE = [f"{check}.{dtype}" for check in ("matmul_exact", "matmul_repeat") for dtype in PRODUCTS]


def run_payload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int, **settings: Any) -> Transcript:
    """The payload under torchrun, all of it, to its end; what its ranks said."""
    whole = {"backend": "cpu", "run": "abc", "dtypes": list(PRODUCTS), "collective": True, "limit": 170, "budget": 150, **settings}
    for key, value in {"RACKREADY_SMOKE": json.dumps(whole), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}.items():
        monkeypatch.setenv(key, value)
    transcript = Transcript("abc", ranks)
    ended = run_child(without_network(torchrun(ranks, tmp_path / "payload", 29650 + ranks)), 160, transcript.take)
    assert ended.exit_code == 0, ended.stderr[-5:]
    assert all(log.started and log.ended for log in transcript.ranks.values())
    return transcript


def statuses(log: RankLog) -> dict[str, list[str]]:
    return {name: [result.status for result in results] for name, results in log.results.items()}


def test_tier_quick_under_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = run_payload(tmp_path, monkeypatch, 1, figures=["matmul.bf16", figures.MEMORY_COPY]).ranks[0]
    assert statuses(log) == {name: ["pass"] for name in [*ALONE, "all_reduce_exact"]}
    assert log.results["all_reduce_exact"][0].value["world"] == 1
    assert sorted(log.measured) == ["matmul.bf16", "memory.copy"]
    assert sorted(log.found["product_hash"]) == sorted(PRODUCTS)


# Three ranks share nothing evenly, and an average over them is rounded.
@pytest.mark.parametrize("ranks", [2, 3])
def test_tier_accept_under_torchrun(ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["matmul.bf16", figures.ALL_REDUCE_SPEED, figures.PAIR_SPEED]
    transcript = run_payload(tmp_path, monkeypatch, ranks, tier="accept", figures=names, trainings=[training.DDP_STEP, training.FP8], burn_seconds=1)
    together = [*exchange.COLLECTIVES, "pair_exact", training.DDP_STEP]
    for log in transcript.ranks.values():
        assert statuses(log) == {name: ["pass"] for name in [*ALONE, *together, training.FP8, "burn"]}
        for name in exchange.COLLECTIVES:
            value, whole = log.results[name][0].value, exchange.amount_of(name, "cpu", "accept", ranks)
            assert {key: value[key] for key in whole} == whole
        assert log.results["pair_exact"][0].value["bytes"] == pairs.amount_of("cpu", ranks)["bytes"]
        assert log.results["matmul_exact.bf16"][0].value["repeats"] == 10
        assert [value["world"] for value in log.measured[figures.ALL_REDUCE_SPEED]] == [ranks]
    assert len({json.dumps(log.found["product_hash"], sort_keys=True) for log in transcript.ranks.values()}) == 1
    [speeds] = [value["pairs"] for log in transcript.ranks.values() for value in log.measured.get(figures.PAIR_SPEED, [])]
    assert [speed[:2] for speed in speeds] == [[a, b] for a in range(ranks) for b in range(ranks) if a != b]


def test_what_does_not_fit_into_the_budget_is_told_and_nobody_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {"figures": ["matmul.bf16", figures.ALL_REDUCE_SPEED], "trainings": [training.DDP_STEP, training.COMPILE]}
    transcript = run_payload(tmp_path, monkeypatch, 2, tier="accept", budget=0.001, **asked)
    for log in transcript.ranks.values():
        assert not log.measured
        assert set(log.results) == {*ALONE, *exchange.COLLECTIVES, "pair_exact", *asked["figures"], *asked["trainings"]}
        for results in log.results.values():
            assert [result.status for result in results] == ["could_not_run"]
            assert str(results[0].reason).startswith("no time left")


def test_asked_for_cuda_without_a_gpu_nothing_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    monkeypatch.setenv("RACKREADY_SMOKE", json.dumps({"backend": "cuda", "run": "abc", "dtypes": ["fp64"], "collective": True, "limit": 110}))
    transcript = Transcript("abc", 1)
    ended = run_child(torchrun(1, tmp_path / "payload", 29660), 100, transcript.take)
    log = transcript.ranks[0]
    assert (ended.exit_code, log.ended) == (0, True)
    assert "pass" not in {r.status for results in log.results.values() for r in results}
    assert "CUDA cannot use device 0" in str(log.results["gpu_identity"][0].reason)
