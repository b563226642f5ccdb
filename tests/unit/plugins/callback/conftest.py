# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""A collection rackready.gpu for tests: the real callback and what it imports, stand-ins for the modules that it watches."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[4]
MODULES = ("gpu_host_facts", "gpu_plan", "gpu_smoke_test", "stack_pin", "stack_sources")


@dataclass
class Project:
    """A directory with a playbook, an inventory and the collection; run() is the real ansible-playbook."""

    path: Path

    @property
    def records(self) -> Path:
        return self.path / "records"

    def inventory(self, hosts: dict[str, Any]) -> None:
        """hosts: {name: host variables}; they are local, and each has its stand-ins' results in stand_in."""
        local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
        content = {"all": {"hosts": {name: {**local, **variables} for name, variables in hosts.items()}}}
        (self.path / "hosts.yml").write_text(yaml.safe_dump(content, allow_unicode=True), encoding="utf-8")

    def playbook(self, text: str, name: str = "site.yml") -> Path:
        path = self.path / name
        path.write_text(text, encoding="utf-8")
        return path

    def role(self, name: str, tasks: str) -> None:
        path = self.path / "collections/ansible_collections/rackready/gpu/roles" / name / "tasks/main.yml"
        path.parent.mkdir(parents=True)
        path.write_text(tasks, encoding="utf-8")

    def start(self, *arguments: str, playbook: str = "site.yml") -> subprocess.Popen[str]:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("ANSIBLE_")}
        return subprocess.Popen(
            [str(Path(sys.executable).with_name("ansible-playbook")), "-i", "hosts.yml", playbook, *arguments],
            cwd=self.path,
            env={**environment, "ANSIBLE_CONFIG": str(self.path / "ansible.cfg"), "LC_ALL": "C.UTF-8"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: str, playbook: str = "site.yml") -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, playbook=playbook)
        out, err = process.communicate(timeout=120)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def latest(self, host: str, records: Path | None = None) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(((records or self.records) / host / "latest.json").read_text(encoding="utf-8"))
        return found


@pytest.fixture
def project(tmp_path: Path) -> Project:
    collection = tmp_path / "collections/ansible_collections/rackready/gpu"
    for folder in ("action", "callback", "plugin_utils"):
        (collection / "plugins" / folder).mkdir(parents=True)
    shutil.copy(ROOT / "galaxy.yml", collection)
    # Copies, not links: the callback finds its collection's version from where it lies.
    shutil.copy(ROOT / "plugins/callback/record.py", collection / "plugins/callback")
    for name in ("record.py", "record_files.py", "record_masking.py", "variable_files.py"):
        shutil.copy(ROOT / "plugins/plugin_utils" / name, collection / "plugins/plugin_utils")
    for name in MODULES:
        shutil.copy(Path(__file__).with_name("stand_in.py"), collection / f"plugins/action/{name}.py")
    (tmp_path / "ansible.cfg").write_text(
        "[defaults]\ncollections_path = collections\ncallbacks_enabled = rackready.gpu.record\ngathering = explicit\n"
        "nocows = True\nlocal_tmp = local_tmp\nremote_tmp = /tmp\nhome = home\n",
        encoding="utf-8",
    )
    return Project(tmp_path)
