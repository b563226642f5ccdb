# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""What the faults payload-* do to a process, in processes of their own with a stand-in of torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

HOOK = Path(__file__).parents[3] / "molecule/gpu_host/in_container"
TORCH = """\
class Matrix(dict):
    pass


def mm(a, b, out=None):
    out = Matrix() if out is None else out
    out[0, 0] = a * b
    return out
"""
PRODUCTS = """\
import os, torch
truth = torch.mm(2, 3)
out = torch.Matrix()
torch.mm(2, 3, out=out)
os.write(1, b'{"event":"check","value":%d}\\n' % (out[0, 0] - truth[0, 0]))
os.write(1, b'{"event":"check"}\\n')
"""


@pytest.fixture
def process(tmp_path: Path) -> list[str]:
    (tmp_path / "torch.py").write_text(TORCH)
    # Python loads it by itself in the image; this environment's Python may have one of its own in the way.
    start = "import os, sys; sys.path.insert(0, sys.argv[1]); sys.path.insert(0, sys.argv[2]); import sitecustomize"
    install = "import json; sitecustomize.install(json.loads(sys.argv[3]), os.environ.get('RANK'))"
    return [sys.executable, "-S", "-c", f"{start}; {install}\n{PRODUCTS}", str(tmp_path), str(HOOK)]


def run(process: list[str], fault: str, rank: str | None) -> tuple[int, str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", **({"RANK": rank} if rank else {})}
    ran = subprocess.run([*process, json.dumps({fault: 3, "smi-slow": 3})], capture_output=True, text=True, check=False, timeout=60, env=environment)
    return ran.returncode, ran.stdout


SOUND = '{"event":"check","value":0}\n{"event":"check"}\n'


@pytest.mark.parametrize(
    ("fault", "status", "printed"),
    [
        ("payload-wrong", 0, SOUND.replace("0", "1")),
        ("payload-crash", -signal.SIGABRT, ""),
        ("payload-killed", -signal.SIGKILL, ""),
        ("payload-half-line", 0, '{"event":"chec{"event":"check"}\n'),
    ],
)
def test_the_process_of_the_gpu_suffers_what_the_fault_says(process: list[str], fault: str, status: int, printed: str) -> None:
    assert run(process, fault, "3") == (status, printed)


def test_a_product_that_never_returns(process: list[str]) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        subprocess.run([*process, '{"payload-hang": 3}'], env={**os.environ, "RANK": "3"}, capture_output=True, timeout=2, check=False)


@pytest.mark.parametrize("rank", ["2", None])
@pytest.mark.parametrize("fault", ["payload-wrong", "payload-crash", "payload-half-line"])
def test_processes_of_other_gpus_and_those_of_none_do_not(process: list[str], fault: str, rank: str | None) -> None:
    assert run(process, fault, rank) == (0, SOUND)
