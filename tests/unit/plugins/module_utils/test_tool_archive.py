# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program in one file: complete, the same wherever it is built, and independent of what is around it."""

from __future__ import annotations

import ast
import hashlib
import io
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import tool_archive

from tests.unit.playbooks import ROOT

MODULE_UTILS = ROOT / "plugins/module_utils"
# Through the interpreter's own name: a shim of pyenv would run any version that is set.
OTHER_PYTHONS = [
    found
    for version in ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13")
    for found in [*sorted(map(str, Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))), shutil.which(f"python{version}")][:1]
    if found
]


def by_syntax_tree(entry: str) -> set[str]:
    """The same question as ``sources``, answered slowly and by Python's own parser."""
    found, todo = set(), [entry]
    while todo:
        name = todo.pop()
        path = MODULE_UTILS / f"{name.replace('.', '/')}.py"
        path = path if path.is_file() else path.with_suffix("") / "__init__.py"
        if not path.is_file() or str(path) in found:
            continue
        found.add(str(path))
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        todo += [package] if package else []
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").startswith(tool_archive.PACKAGE)):
                origin = (node.module or "").replace(tool_archive.PACKAGE, "").strip(".")
                where = ".".join(part for part in (package if node.level else "", origin) if part)
                todo += [where, *(f"{where}.{alias.name}".strip(".") for alias in node.names)]
    return {Path(path).relative_to(MODULE_UTILS).as_posix() for path in found}


@pytest.mark.parametrize("entry", ["smoke_alone", "smoke_payload.__main__", "stamp", "facts"])
def test_everything_that_is_imported_comes_along_and_nothing_else(entry: str) -> None:
    assert set(tool_archive.sources(entry)) == by_syntax_tree(entry)


def test_the_files_are_those_of_the_checkout() -> None:
    assert all((MODULE_UTILS / path).read_bytes() == data for path, data in tool_archive.sources("smoke_alone").items())


def test_a_module_that_is_not_there_is_an_error() -> None:
    with pytest.raises(OSError, match="nobody"):
        tool_archive.build("nobody")


def test_a_program_starts_with_the_python_of_the_distribution_and_holds_nothing_that_changes() -> None:
    data = tool_archive.build("stamp")
    assert data.startswith(b"#!/usr/bin/python3 -I\n")
    members = zipfile.ZipFile(io.BytesIO(data)).infolist()
    assert [member.filename for member in members] == sorted(member.filename for member in members)
    assert {(member.date_time, member.compress_type, member.external_attr >> 16, member.create_system) for member in members} == {
        ((1980, 1, 1, 0, 0, 0), zipfile.ZIP_STORED, 0o644, 3)
    }
    assert "ansible_collections/__init__.py" in {member.filename for member in members}


DIGEST = f"""\
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from {tool_archive.PACKAGE} import tool_archive
print(hashlib.sha256(tool_archive.build("smoke_alone")).hexdigest())
"""


@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: Path(path).name)
def test_every_python_builds_the_same_bytes_also_out_of_an_archive(python: str, tmp_path: Path) -> None:
    """As the controller does from a checkout, and a host from what Ansible sends it."""
    archive = tmp_path / "sent.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as sent:
        names = {"tool_archive.py", *tool_archive.sources("smoke_alone")}
        for name in sorted(names):
            sent.write(MODULE_UTILS / name, f"ansible_collections/rackready/gpu/plugins/module_utils/{name}")
        for depth in ("", "rackready/", "rackready/gpu/", "rackready/gpu/plugins/", "rackready/gpu/plugins/module_utils/"):
            sent.writestr(f"ansible_collections/{depth}__init__.py", "")
    for place in (ROOT / "collections", archive):
        ran = subprocess.run([python, "-I", "-c", DIGEST, str(place)], capture_output=True, text=True, check=False, timeout=60)
        assert ran.stdout.strip() == hashlib.sha256(tool_archive.build("smoke_alone")).hexdigest(), ran.stderr


@pytest.mark.parametrize("python", [sys.executable, *OTHER_PYTHONS], ids=lambda path: Path(path).name)
def test_a_program_needs_nothing_but_python(python: str, tmp_path: Path) -> None:
    """From another folder, without site-packages, where another package of the same name is first on the path that a login sets."""
    tool = tmp_path / "tool"
    tool.write_bytes(tool_archive.build("smoke_alone"))
    (tmp_path / "ansible_collections").mkdir()
    (tmp_path / "ansible_collections/__init__.py").write_text("raise SystemExit('the wrong one')\n", encoding="utf-8")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "LC_ALL": "C"}
    ran = subprocess.run([python, "-I", "-S", str(tool), "--help"], cwd="/", env=environment, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert "64  called wrongly" in ran.stdout
