# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The payload with a real torch on the CPU: exact arithmetic, wrong results found, and all of it under torchrun with gloo."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import write_payload
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload import exchange, products
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.exchange import collective_exact
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.place import Place
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_payload.products import PRODUCTS, SHAPES, compare, matmul_exact, operands, reference
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import PAYLOAD_MODULE, Transcript, run_child

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


@pytest.mark.parametrize("ranks", [1, 2])
def test_everything_under_torchrun(ranks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"backend": "cpu", "run": "abc", "dtypes": list(PRODUCTS), "collective": True, "limit": 110}
    for key, value in {"RACKREADY_SMOKE": json.dumps(settings), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}.items():
        monkeypatch.setenv(key, value)
    transcript = Transcript("abc", ranks)
    ended = run_child(without_network(torchrun(ranks, tmp_path / "payload", 29650 + ranks)), 100, transcript.take)
    assert ended.exit_code == 0, ended.stderr[-5:]
    for log in transcript.ranks.values():
        assert log.started and log.ended
        assert {name: [r.status for r in results] for name, results in log.results.items()} == {
            name: ["pass"] for name in [*(f"{check}.{dtype}" for check in ("matmul_exact", "matmul_repeat") for dtype in PRODUCTS), "all_reduce_exact"]
        }
        assert log.results["all_reduce_exact"][0].value["world"] == ranks


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
