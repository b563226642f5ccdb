# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Playbooks for tests of action plugins: run for real by ansible-playbook, results read back from files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]


@dataclass
class Run:
    """How a playbook ended. ``results`` has what its tasks dumped with ``dump``, by host."""

    returncode: int
    output: str
    results: dict[str, Any]


def dump(variable: str, directory: Path) -> dict[str, Any]:
    """A task that keeps a variable of each host for ``Run.results``."""
    return {
        "name": f"Keep {variable}",
        "ansible.builtin.copy": {"content": f"{{{{ {variable} | to_json }}}}", "dest": f"{directory}/result-{{{{ inventory_hostname }}}}.json", "mode": "0600"},
        "check_mode": False,
        "delegate_to": "localhost",
        "diff": False,
    }


def run(directory: Path, inventory: dict[str, Any], playbook: Path | list[dict[str, Any]], *arguments: str, **environment: str) -> Run:
    """Run a playbook against an inventory of local connections in a directory of the test."""
    hosts = directory / "inventory"
    hosts.mkdir(exist_ok=True)
    (hosts / "hosts.yml").write_text(yaml.safe_dump({"all": inventory}), encoding="utf-8")
    (directory / "ansible.cfg").write_text(
        f"[defaults]\ncollections_path = {ROOT / 'collections'}\ninject_facts_as_vars = False\nstdout_callback = default\ncallback_result_format = yaml\n"
        f"local_tmp = {directory / 'local'}\nremote_tmp = {directory / 'remote'}\nretry_files_enabled = False\n",
        encoding="utf-8",
    )
    if isinstance(playbook, list):
        path = directory / "playbook.yml"
        path.write_text(yaml.safe_dump(playbook, sort_keys=False), encoding="utf-8")
    else:
        path = playbook
    for old in directory.glob("result-*.json"):
        old.unlink()
    command = [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(hosts), str(path), *arguments]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        command,
        cwd=directory,
        env={**clean, "ANSIBLE_CONFIG": str(directory / "ansible.cfg"), **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    results = {file.stem.removeprefix("result-"): json.loads(file.read_text(encoding="utf-8")) for file in directory.glob("result-*.json")}
    return Run(done.returncode, done.stdout + done.stderr, results)
