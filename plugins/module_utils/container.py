# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The Docker engine: what is installed, and what a running engine tells. Nothing here starts an engine.

A unit that is stopped while its socket is active would be started by the first question, so only a running engine is asked.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands, Result
from ansible_collections.rackready.gpu.plugins.module_utils.reading import read_line

TIMEOUT_S = 10
SOCKET = "/var/run/docker.sock"
PID_FILE = Path("var/run/docker.pid")
DAEMON_JSON = Path("etc/docker/daemon.json")
# The engine of this host, whatever context or remote host root's own configuration names.
_ENVIRONMENT = {"DOCKER_HOST": f"unix://{SOCKET}", "DOCKER_CONTEXT": "", "DOCKER_CLI_HINTS": "false"}
_VERSION = re.compile(r"version v?([0-9]+(?:\.[0-9]+)*)")
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")
_NO_DEVICES = frozenset(["", "void", "none"])
_SNAP = Path("snap/docker/current")


def facts(root: Path, commands: Commands, unit_active: bool, unit_flags: list[str]) -> dict[str, Any]:
    """``docker`` of the facts. ``unit_active``: systemd says that docker.service is active; ``unit_flags``: see units.engine_flags."""
    snap = (root / _SNAP).exists()
    dockerd = commands.find("dockerd") or (str(root / _SNAP / "bin/dockerd") if snap else None)
    docker: dict[str, Any] = {
        "installed": dockerd is not None,
        "version": None,
        "running": False,
        "running_version": None,
        "cdi_enabled": None,
        "configuration_read": None,
        "api_error": None,
        "root_dir": None,
        "storage_driver": None,
        "cgroup_driver": None,
        "snap": snap,
        "containers": [],
        "unit_flags": unit_flags,
        "images": {},
    }
    if dockerd is None:
        return docker
    version = commands.start([dockerd, "--version"], TIMEOUT_S)
    docker["running"] = unit_active or _engine_process(root)
    if docker["running"]:
        docker["configuration_read"] = _configuration_read(root)
        _ask(docker, commands)
    match = _VERSION.search(version.finish().text)
    docker["version"] = match.group(1) if match else None
    return docker


def _engine_process(root: Path) -> bool:
    """Whether the process that the pid file names is an engine: also true where something else than systemd started it."""
    for pid_file in ("var/run/docker.pid", "run/snap.docker/docker.pid"):
        pid = read_line(root / pid_file)
        if pid and pid.isdigit() and read_line(root / "proc" / pid / "comm") == "dockerd":
            return True
    return False


def _configuration_read(root: Path) -> bool | None:
    """Whether the engine started after daemon.json was last written; None where it left no pid file to tell.

    A run that was stopped between writing the file and restarting the engine leaves a file that is right and an engine that does not know it.
    """
    try:
        started = (root / PID_FILE).stat().st_mtime_ns
    except OSError:
        return None
    try:
        return (root / DAEMON_JSON).stat().st_mtime_ns <= started
    except OSError:
        return True


def _ask(docker: dict[str, Any], commands: Commands) -> None:
    client = commands.find("docker")
    if client is None:
        docker["api_error"] = "the engine runs, but its command line client is not installed"
        return
    # --all: Docker 29 lists an image without a tag, as one that was pulled by digest is, only then.
    images = "{{.Repository}}\t{{.Digest}}\t{{.ID}}"
    questions = (["info", "--format", "{{json .}}"], ["ps", "--quiet", "--no-trunc"], ["image", "ls", "--all", "--digests", "--no-trunc", "--format", images])
    children = [commands.start([client, *question], TIMEOUT_S, _ENVIRONMENT) for question in questions]
    info, running, listing = (child.finish() for child in children)
    try:
        docker.update(parse_info(_answer(info, "docker info")))
        docker["images"] = parse_images(_answer(listing, "docker image ls"))
        identifiers = _answer(running, "docker ps").split()
        if identifiers:
            inspected = commands.start([client, "inspect", "--type", "container", *identifiers], TIMEOUT_S, _ENVIRONMENT).finish()
            # A container that ended since it was listed is missing from the answer and makes the client exit with 1.
            gone = inspected.rc == 1 and b"No such container" in inspected.stderr
            docker["containers"] = parse_containers(inspected.text if gone else _answer(inspected, "docker inspect"))
    except EngineError as error:
        docker["api_error"] = str(error)


class EngineError(ValueError):
    """The engine did not answer, or not in the form that is read here."""


def _answer(result: Result, name: str) -> str:
    complaint = result.complaint(name)
    if complaint is not None:
        raise EngineError(complaint)
    return result.text


def _json(text: str, kind: type, name: str) -> Any:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise EngineError(f"{name} wrote something that is not JSON: {error}") from error
    if not isinstance(value, kind):
        raise EngineError(f"{name} wrote JSON of another form")
    return value


def parse_info(text: str) -> dict[str, Any]:
    """What ``docker info`` tells in its JSON, as keys of the facts. Raises EngineError, also for the engine's own error in it.

    An engine with CDI off lists no directories of specifications; one that does not know CDI lists nothing at all.
    """
    info = _json(text, dict, "docker info")
    errors = info.get("ServerErrors")
    if errors:
        raise EngineError(f"docker info: {errors[0] if isinstance(errors, list) else errors}")
    keys = {"root_dir": "DockerRootDir", "storage_driver": "Driver", "cgroup_driver": "CgroupDriver"}
    found: dict[str, Any] = {name: str(info[key]) if info.get(key) else None for name, key in keys.items()}
    version = _NUMBERS.match(str(info.get("ServerVersion") or ""))
    directories = info.get("CDISpecDirs")
    return {**found, "running_version": version.group() if version else None, "cdi_enabled": bool(directories) if isinstance(directories, list) else None}


def full_repository(name: str) -> str:
    """A repository with its registry: the engine prints those of Docker Hub without (``debian`` is ``docker.io/library/debian``)."""
    registry, slash, _path = name.partition("/")
    if slash and (registry == "localhost" or "." in registry or ":" in registry):
        return name
    return f"docker.io/{name}" if slash else f"docker.io/library/{name}"


def parse_images(listing: str) -> dict[str, str]:
    """Repository digests to image ids from lines of repository, digest and id; images without a digest (built here) are left out."""
    images = {}
    for line in listing.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[0] != "<none>" and fields[1].startswith("sha256:"):
            images[f"{full_repository(fields[0])}@{fields[1]}"] = fields[2]
    return dict(sorted(images.items()))


def parse_containers(text: str) -> list[dict[str, Any]]:
    """``docker.containers`` of the facts from the JSON of ``docker inspect``, sorted by name. Raises EngineError."""
    containers = []
    for container in _json(text, list, "docker inspect"):
        try:
            host, config = container["HostConfig"], container["Config"]
            containers.append(
                {
                    "id": container["Id"][:12],
                    "name": container["Name"].lstrip("/"),
                    "image": config["Image"],
                    "devices": _devices(host, config.get("Env") or []),
                }
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise EngineError(f"docker inspect wrote JSON of another form: {error!r}") from error
    return sorted(containers, key=lambda container: str(container["name"]))


def _devices(host: dict[str, Any], environment: list[str]) -> list[str]:
    devices = [device["PathOnHost"] for device in host.get("Devices") or []]
    for request in host.get("DeviceRequests") or []:
        identifiers = request.get("DeviceIDs") or []
        if request.get("Driver") == "cdi":
            devices.extend(identifiers)
        else:
            count = request.get("Count") or 0
            devices.append(f"--gpus=device={','.join(identifiers)}" if identifiers else f"--gpus={'all' if count < 0 else count}")
    if host.get("Runtime") == "nvidia":
        devices.extend(entry for entry in environment if entry.startswith("NVIDIA_VISIBLE_DEVICES=") and entry.partition("=")[2] not in _NO_DEVICES)
    return devices
