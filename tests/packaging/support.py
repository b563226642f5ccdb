# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Pythons of this machine, environments made of them, and commands that see nothing of the checkout."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
STATE = ROOT / ".lab" / "packaging"  # removed by `./dev demo --down`
COLLECTION = Path("ansible_collections", "rackready", "gpu")
HOST = "bare-01"

# Plugins that ansible-doc knows, by their directory. An action plugin is documented by the module of its name.
DOCUMENTED = {kind: kind for kind in ("become", "cache", "callback", "connection", "filter", "inventory", "lookup", "strategy", "test", "vars")} | {
    "modules": "module"
}


@dataclass(frozen=True)
class Release:
    """A controller that is supported: Python, ansible-core and the lock that brings it."""

    python: str
    core: str
    lock: str


OLDEST = Release("3.11", "2.19", "requirements.lock")
NEWEST = Release("3.13", "2.21", "requirements-newest.lock")


@dataclass(frozen=True)
class Controller:
    """An environment with ansible-core. ``bin`` has its commands."""

    release: Release
    bin: Path


def run(command: list[str | Path], directory: Path, timeout: int = 120, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command as somebody does who has no configuration of Ansible."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON", "PYTEST_", "VIRTUAL_ENV"))}
    return subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        env={**kept, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def done(command: list[str | Path], directory: Path, timeout: int = 120, **environment: str) -> str:
    """What a command wrote that must succeed."""
    result = run(command, directory, timeout, **environment)
    assert result.returncode == 0, f"{' '.join(str(part) for part in command)} ended with {result.returncode}:\n{result.stdout[-6000:]}{result.stderr[-2000:]}"
    return result.stdout


def pythons(version: str) -> Iterator[Path]:
    """Interpreters of a version (``3.13``) that run: on PATH, then pyenv's, whose commands on PATH run only where they are switched on."""
    name = f"python{version}"
    places = [Path(sys.base_prefix, "bin"), *(Path(place) for place in os.get_exec_path())]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    question = "import sys; print('%d.%d' % sys.version_info[:2], getattr(sys, '_base_executable', sys.executable))"
    for path in [*(place / name for place in places), *sorted(pyenv.glob(f"{version}.*/bin/{name}"), reverse=True)]:
        if os.access(path, os.X_OK):
            found, _, executable = run([path, "-c", question], ROOT).stdout.strip().partition(" ")
            if found == version and executable:
                yield Path(executable)


def python(version: str) -> Path:
    """An interpreter that can make environments; without one the test is skipped and says so."""
    found = list(dict.fromkeys(pythons(version)))
    for path in found:
        if run([path, "-c", "import ensurepip, venv"], ROOT).returncode == 0:
            return path
    lack = (
        f"{found[0]} lacks ensurepip (Debian: python{version}-venv)" if found else f"there is no Python {version} on this machine, neither on PATH nor of pyenv"
    )
    pytest.skip(f"NOT TESTED with Python {version}: {lack}")


def make_environment(directory: Path, interpreter: Path, *arguments: str | Path) -> Path:
    """Commands of an environment that pip filled with these arguments; it is kept, and made again where they or the interpreter differ."""
    contents = [Path(argument).read_bytes() for argument in arguments if Path(argument).is_file()]
    version = run([interpreter, "-VV"], ROOT).stdout
    key = hashlib.sha256(b"\0".join([str(interpreter).encode(), version.encode(), *(str(a).encode() for a in arguments), *contents])).hexdigest()
    marker = directory / "made-of"
    if not marker.is_file() or marker.read_text(encoding="utf-8") != key:
        shutil.rmtree(directory, ignore_errors=True)
        done([interpreter, "-m", "venv", directory], ROOT)
        done([directory / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", *arguments], ROOT, timeout=600)
        marker.write_text(key, encoding="utf-8")
    return directory / "bin"


def controller(release: Release) -> Controller:
    """The environment that runs the tests where it is of this release, else one of the release's own."""
    here = Path(sys.executable).parent
    versions = run([here / "python", "-c", "import ansible.release as r, sys; print('%d.%d' % sys.version_info[:2], r.__version__)"], ROOT).stdout.split()
    if versions[:1] == [release.python] and versions[1].startswith(f"{release.core}."):
        return Controller(release, here)
    made = make_environment(STATE / f"python{release.python}", python(release.python), "--require-hashes", "--requirement", ROOT / release.lock)
    core = done([made / "ansible", "--version"], ROOT).splitlines()[0]
    assert f"core {release.core}." in core, f"{release.lock} brings {core}"
    return Controller(release, made)


def copy_of_the_tree(target: Path) -> Path:
    """What a fresh clone would hold if everything were committed. Never the working tree, which also holds caches and environments."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        source = ROOT / name
        if source.is_symlink() or source.exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name, follow_symlinks=False)
    return target


def site(directory: Path) -> Path:
    """An inventory of this machine as a host with GPUs that it does not have."""
    host = {
        "ansible_connection": "local",
        "ansible_become": False,
        "ansible_python_interpreter": "{{ ansible_playbook_python }}",
        "gpu_stack_release": "2026.11-longterm",
        "gpu_expected": {"model": "h100-sxm5-80gb", "count": 8},
    }
    directory.mkdir()
    (directory / "hosts.yml").write_text(yaml.safe_dump({"all": {"hosts": {HOST: host}}}), encoding="utf-8")
    return directory


def must_be_refused(commands: Path, directory: Path, **environment: str) -> dict[str, Any]:
    """Provision this machine, which has no GPU, by the collection's own playbook; the record of it."""
    if any(
        (device / "vendor").read_text() == "0x10de\n" and (device / "class").read_text().startswith("0x03") for device in Path("/sys/bus/pci/devices").glob("*")
    ):
        pytest.skip("NOT TESTED: this machine has an NVIDIA GPU, and is not to be provisioned by a test")
    if os.geteuid() != 0:
        pytest.skip("NOT TESTED: a host is read as root only")
    playbook: list[str | Path] = [commands / "ansible-playbook", "-i", "hosts.yml", "rackready.gpu.provision"]
    result = run(playbook, directory, 120, ANSIBLE_CALLBACKS_ENABLED="rackready.gpu.record", **environment)
    assert result.returncode == 2, result.stdout + result.stderr
    record: dict[str, Any] = json.loads((directory / "records" / HOST / "latest.json").read_text(encoding="utf-8"))
    assert record["outcome"] == "refused"
    assert "There is no NVIDIA GPU on the PCI bus, so there is nothing to provision" in record["reason"]
    assert record["changed"] == []
    return record


def plugins(root: Path) -> dict[str, list[str]]:
    """Names of all plugins and roles in a collection, by the type that ansible-doc has for them."""
    found = {
        kind: sorted(f"rackready.gpu.{path.stem}" for path in (root / "plugins" / directory).glob("[!_]*.py"))
        for directory, kind in DOCUMENTED.items()
        if (root / "plugins" / directory).is_dir()
    }
    return {**found, "role": sorted(f"rackready.gpu.{path.name}" for path in (root / "roles").iterdir())}


def must_be_documented(commands: Path, root: Path, directory: Path, **environment: str) -> None:
    """ansible-doc knows every plugin and role, and reads them from ``root``."""
    for kind, names in plugins(root).items():
        documented = json.loads(done([commands / "ansible-doc", "--type", kind, "--json", *names], directory, 120, **environment))
        assert sorted(documented) == names
        for name, entry in documented.items():
            if kind == "role":
                assert entry["path"] == str(root), f"{name} is read from {entry['path']}"
                assert all(point["description"] or point["short_description"] for point in entry["entry_points"].values()), name
            else:
                assert Path(entry["doc"]["filename"]).is_relative_to(root), f"{name} is read from {entry['doc']['filename']}"
                assert entry["doc"]["description"], name
