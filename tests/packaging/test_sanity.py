# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""ansible-test sanity, all of it, on the collection as it is delivered."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import warnings
from pathlib import Path

import pytest

from tests.packaging.support import COLLECTION, STATE, Controller, pythons, run

# The pip that ansible-test puts into its environments, by ansible-core (ansible_test/_data/requirements).
PIP = {"2.19": "24.2", "2.21": "25.2"}

# In place of the get-pip.py that ansible-test would fetch from a server of its own: ensurepip has one, and the package index has the wanted one.
GET_PIP = """\
import os
import subprocess
import sys

environment = dict(os.environ)
subprocess.check_call([sys.executable, "-m", "ensurepip"], stdout=subprocess.DEVNULL)
packages = [argument for argument in sys.argv[1:] if argument not in ("--no-setuptools", "--no-wheel")]
sys.exit(subprocess.call([sys.executable, "-m", "pip", "install", "--quiet"] + packages, env=environment))
"""


@pytest.fixture
def home(ansible: Controller) -> Path:
    """A home directory for ansible-test, which keeps its environments there, with the configuration of pip that the user has."""
    path = STATE / "home"
    bootstrap = path / ".ansible" / "test" / "cache" / f"get_pip_{PIP[ansible.release.core].replace('.', '_')}.py"
    bootstrap.parent.mkdir(parents=True, exist_ok=True)
    bootstrap.write_text(GET_PIP, encoding="utf-8")
    for name in (".config/pip", ".pip"):
        link = path / name
        link.parent.mkdir(exist_ok=True)
        if (Path.home() / name).exists() and not link.is_symlink():
            link.symlink_to(Path.home() / name)
    return path


@pytest.fixture
def interpreters(tmp_path: Path) -> Path:
    """A directory with every Python of this machine that ansible-test may want, by its versioned name."""
    path = tmp_path / "bin"
    path.mkdir()
    for version in (f"3.{minor}" for minor in range(8, 15)):
        for found in pythons(version):
            (path / f"python{version}").symlink_to(found)
            break
    return path


def test_sanity(ansible: Controller, installed: Path, home: Path, interpreters: Path, tmp_path: Path) -> None:
    copy = tmp_path / COLLECTION
    shutil.copytree(installed / COLLECTION, copy)
    # It looks at files that git knows, and at none outside a repository.
    subprocess.run(["git", "init", "--quiet", str(copy)], check=True)
    subprocess.run(["git", "-C", str(copy), "add", "--all"], check=True)
    path = os.pathsep.join([str(ansible.bin), str(interpreters), os.environ["PATH"]])
    result = run([ansible.bin / "ansible-test", "sanity", "--color", "no"], copy, timeout=580, HOME=str(home), PATH=path)
    output = result.stdout + result.stderr
    for line in dict.fromkeys(re.findall(r"WARNING: (Skipping .*)", output)):
        warnings.warn(f"NOT TESTED by ansible-core {ansible.release.core}: {line}", stacklevel=1)  # pytest shows it also when all is well
    assert result.returncode == 0, output[-8000:]
    ran = set(re.findall(r'Running sanity test "([^"]+)"', output))
    assert ran >= {"compile", "import", "validate-modules", "pylint", "pep8", "yamllint", "ansible-doc", "action-plugin-docs", "ignores", "shebang"}
