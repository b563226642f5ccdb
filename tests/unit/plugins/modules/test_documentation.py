# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The documentation of every module, as ``ansible-doc`` reads it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.unit.playbooks import ROOT


def test_ansible_doc_reads_every_module() -> None:
    names = sorted(f"rackready.gpu.{path.stem}" for path in (ROOT / "plugins" / "modules").glob("[!_]*.py"))
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-doc")), "--type", "module", "--json", *names],
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": str(ROOT / "collections")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    documented = json.loads(done.stdout)
    assert sorted(documented) == names
    for name, entry in documented.items():
        assert entry["doc"]["description"], name
        assert entry["examples"], name
        assert entry["return"], name
