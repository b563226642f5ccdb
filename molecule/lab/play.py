"""Run a playbook against the lab as an operator would, and read what it left behind. For the scenarios' tests."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Far above what any of them takes: a run that hangs must fail its test, not the whole scenario.
LIMIT_S = 600


@dataclass(frozen=True)
class Played:
    """How a run ended: exit status, everything it printed, and the folder with its records."""

    status: int
    output: str
    records: Path

    def record(self, host: str) -> dict[str, Any]:
        """The record that the run left for one host."""
        record: dict[str, Any] = json.loads((self.records / host / "latest.json").read_text())
        return record


def command_of(playbook: str, *arguments: str, variables: dict[str, Any] | None = None, limit: str = "h100_nodes") -> tuple[list[str], dict[str, str], Path]:
    """What an operator would type at the root of the checkout, its environment, and the folder of its own that the records go to."""
    records = Path(tempfile.mkdtemp(prefix="records-", dir=ROOT / ".lab"))
    extra = json.dumps({**(variables or {}), "rackready_records_dir": str(records)})
    command = ["ansible-playbook", "-i", "inventory/lab", playbook, "-l", limit, "-e", extra, *arguments]
    # Molecule points Ansible at a configuration of its own; an operator has the checkout's.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE_", "MOLECULE_"))}
    return command, environment, records


def play(playbook: str, *arguments: str, variables: dict[str, Any] | None = None, limit: str = "h100_nodes") -> Played:
    """Run ``ansible-playbook`` from the root of the checkout with records in a folder of their own."""
    command, environment, records = command_of(playbook, *arguments, variables=variables, limit=limit)
    ran = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LIMIT_S, check=False)
    return Played(ran.returncode, ran.stdout, records)


def lab(*arguments: str) -> str:
    """Run a command of the lab, such as ``lab("break", "h100-01", "gpu-gone")``."""
    ran = subprocess.run(["./dev", "lab", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if ran.returncode != 0:
        raise RuntimeError(f"./dev lab {' '.join(arguments)} failed: {ran.stdout}{ran.stderr}")
    return ran.stdout
