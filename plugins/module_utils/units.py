# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units, asked with two short calls, and the options that the engine's unit gives by flag."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any, Dict, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Commands
from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_text

TIMEOUT_S = 10
UNITS = (
    "docker.service",
    "docker.socket",
    "containerd.service",
    "nvidia-persistenced.service",
    "nvidia-fabricmanager.service",
    "nvidia-imex.service",
    "nvidia-cdi-refresh.service",
    "nvidia-cdi-refresh.path",
    "nvidia-mig-manager.service",
    "rackready-verify.timer",
)
_PROPERTIES = "Id,LoadState,ActiveState,UnitFileState,ExecStart,Environment,EnvironmentFiles"
_SHORT_OPTIONS = {
    "-H": "--host",
    "-D": "--debug",
    "-l": "--log-level",
    "-G": "--group",
    "-p": "--pidfile",
    "-g": "--data-root",
    "-s": "--storage-driver",
    "-b": "--bridge",
}
_VARIABLE = re.compile(r"\$\{(\w+)\}")

Properties = Dict[str, Dict[str, str]]


class UnitsError(ValueError):
    """systemctl did not answer; the message is a sentence."""


class Query:
    """systemctl, started at once. ``init`` is the command name of process 1: without systemd there is nothing to ask."""

    def __init__(self, root: Path, commands: Commands, init: str | None) -> None:
        self._root = root
        systemctl = commands.find("systemctl") if init == "systemd" else None
        self._show: Child | None = None
        self._failed: Child | None = None
        if systemctl:
            self._show = commands.start([systemctl, "show", "--property", _PROPERTIES, *UNITS], TIMEOUT_S)
            self._failed = commands.start([systemctl, "list-units", "--failed", "--plain", "--no-legend", "--no-pager", "--full"], TIMEOUT_S)

    def facts(self) -> dict[str, Any]:
        """``units`` and ``failed_units`` of the facts, and ``engine_flags``. Raises UnitsError: a host whose systemd does not answer cannot be planned for."""
        if self._show is None or self._failed is None:
            return {"units": {}, "failed_units": [], "engine_flags": []}
        show, failed = self._show.finish(), self._failed.finish()
        for result, name in ((show, "systemctl show"), (failed, "systemctl list-units")):
            complaint = result.complaint(name)
            if complaint is not None:
                raise UnitsError(complaint)
        properties = parse_show(show.text)
        return {
            "units": {name: unit_state(properties[name]) for name in UNITS if name in properties},
            "failed_units": sorted(line.split()[0] for line in failed.text.splitlines() if line.strip()),
            "engine_flags": engine_flags(properties.get("docker.service", {}), self._root),
        }


def parse_show(text: str) -> Properties:
    """Properties of each unit in the output of ``systemctl show``: blocks of ``Name=value``, an empty line between them."""
    units = {}
    for block in text.split("\n\n"):
        properties: dict[str, str] = {}
        for line in block.splitlines():
            name, equals, value = line.partition("=")
            if equals:  # EnvironmentFiles comes once for each file
                properties[name] = f"{properties[name]}\n{value}" if name in properties else value
        if "Id" in properties:
            units[properties["Id"]] = properties
    return units


def unit_state(properties: dict[str, str]) -> dict[str, str]:
    """``load``, ``active`` and ``enabled`` of one unit."""
    return {
        "load": properties.get("LoadState") or "not-found",
        "active": properties.get("ActiveState") or "inactive",
        "enabled": properties.get("UnitFileState") or "not-found",
    }


def engine_flags(properties: dict[str, str], root: Path) -> list[str]:
    """Options in docker.service's command line, drop-ins and environment files included, in long form with ``=``: ``--host=fd://``.

    A key that is given both by flag and in daemon.json keeps the engine from starting.
    """
    command = re.search(r"argv\[\]=(.*?)(?: ; \w+=|\s*\}$)", properties.get("ExecStart", ""))
    if command is None:
        return []
    return command_flags(command.group(1), _variables(properties, root))


def drop_in_flags(texts: Sequence[str]) -> list[str] | None:
    """The same of drop-ins whose unit is not there yet, in their order; None where none of them gives a command line. Environment files are not read."""
    command: str | None = None
    assignments: list[str] = []
    for line in "\n".join(texts).replace("\\\n", " ").splitlines():
        name, _equals, value = (part.strip() for part in line.partition("="))
        if name == "ExecStart":  # an empty one takes back what was there before
            command = value
        elif name == "Environment":
            assignments.extend(_words(value))
    if command is None:
        return None
    return command_flags(command, {name: value for name, _equals, value in (assignment.partition("=") for assignment in assignments)})


def command_flags(command: str, variables: dict[str, str]) -> list[str]:
    """Options of a unit's command line in long form with ``=``."""
    flags: list[str] = []
    for word in _expand(command, variables)[1:]:
        if word.startswith("-"):
            name, equals, value = word.partition("=")
            flags.append(_SHORT_OPTIONS.get(name, name) + equals + value)
        elif flags and "=" not in flags[-1]:
            flags[-1] += f"={word}"
    return flags


def _variables(properties: dict[str, str], root: Path) -> dict[str, str]:
    assignments = _words(properties.get("Environment", ""))
    for entry in properties.get("EnvironmentFiles", "").splitlines():
        path = re.sub(r" \(ignore_errors=(?:yes|no)\)$", "", entry)
        lines = (read_text(root / path.lstrip("/")) or "").splitlines()
        assignments.extend(name + equals + "".join(_words(value)[:1]) for name, equals, value in (line.strip().partition("=") for line in lines) if equals)
    return {name: value for name, _equals, value in (assignment.partition("=") for assignment in assignments)}


def _expand(command: str, variables: dict[str, str]) -> list[str]:
    """As systemd does: ``$NAME`` as a word of its own becomes words, ``${NAME}`` stays within its word."""
    words: list[str] = []
    for word in _words(command):
        if re.fullmatch(r"\$\w+", word):
            words.extend(_words(variables.get(word[1:], "")))
        else:
            words.append(_VARIABLE.sub(lambda match: variables.get(match.group(1), ""), word))
    return words


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that is not closed
        return text.split()
