# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The Docker engine, through its command line."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from .errors import LabError
from .names import CONTAINERS, LABEL

# How engines say that they lack the capability themselves. Docker 20.10 has to be told to leave it out of ALL; Docker 26 knows by itself, and
# refuses to drop what it does not have.
NOT_PERMITTED = "operation not permitted"
NOT_AVAILABLE = "invalid capadd"


@dataclass(frozen=True)
class EngineKind:
    """What decides how a host with its own systemd can be started."""

    cgroup_version: int
    drop_sys_resource: bool  # whether a host must go without CAP_SYS_RESOURCE, and must be told so


class Engine:
    def run(self, *args: str, stdin: IO[bytes] | bytes | None = None, timeout: float = 600) -> str:
        """Standard output of ``docker ARGS``; a LabError with the engine's own words when it fails."""
        result = self.attempt(*args, stdin=stdin, timeout=timeout)
        if result.returncode != 0:
            raise LabError(f"docker {' '.join(args[:3])} ... failed with status {result.returncode}: {result.stderr.strip()[-2000:]}")
        return result.stdout

    def attempt(self, *args: str, stdin: IO[bytes] | bytes | None = None, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        given: dict[str, Any] = {"input": stdin} if isinstance(stdin, bytes) else {"stdin": stdin or subprocess.DEVNULL}
        try:
            result = subprocess.run(["docker", *args], capture_output=True, timeout=timeout, check=False, **given)
        except FileNotFoundError:
            raise LabError("docker was not found; install Docker (Debian and Ubuntu: docker.io, from Debian 13 on also docker-cli)") from None
        except subprocess.TimeoutExpired:
            raise LabError(f"docker {' '.join(args[:3])} ... did not end within {timeout:.0f} s; look at the engine's log, then run this again") from None
        return subprocess.CompletedProcess(result.args, result.returncode, result.stdout.decode(errors="replace"), result.stderr.decode(errors="replace"))

    def inspect(self, kind: str, name: str) -> dict[str, Any] | None:
        """What the engine knows of one object (container, image, network), None if there is none of that name."""
        result = self.attempt(kind, "inspect", name)
        if result.returncode == 0:
            found: dict[str, Any] = json.loads(result.stdout)[0]
            return found
        if "no such" in result.stderr.lower() or "not found" in result.stderr.lower():
            return None
        raise LabError(f"docker {kind} inspect {name} failed: {result.stderr.strip()}")

    def label(self, kind: str, name: str, label: str) -> str | None:
        """One label of an object; None when the object or the label is missing."""
        found = self.inspect(kind, name)
        if found is None:
            return None
        labels = (found["Config"] if kind in ("container", "image") else found).get("Labels") or {}
        value = labels.get(label)
        return None if value is None else str(value)

    def containers(self, *roles: str) -> list[str]:
        """Names of the lab's containers, running or not, of these roles (all, if none is named)."""
        listing = self.run("container", "ls", "--all", "--filter", f"label={LABEL}", "--format", '{{.Names}}\t{{.Label "' + LABEL + '"}}')
        found = [line.split("\t") for line in listing.splitlines()]
        return [name for name, role in found if role in (roles or CONTAINERS)]

    def ours(self, kind: str) -> list[str]:
        """Ids of the images or networks that carry the lab's label."""
        return list(dict.fromkeys(self.run(kind, "ls", "--quiet", "--filter", f"label={LABEL}").split()))

    def tool(self, image: str, command: Sequence[str], mounts: dict[Path, str], user: str | None = None) -> str:
        """Run COMMAND in a container of IMAGE that is removed afterwards, without a network; MOUNTS: folder here -> folder there."""
        options = [f"--volume={here}:{there}" for here, there in mounts.items()]
        if user is not None:
            options.append(f"--user={user}")
        return self.run("run", "--rm", "--network=none", f"--label={LABEL}=tool", *options, image, *command)

    def kind(self, image: str) -> EngineKind:
        """Asked, not guessed: the engine's own cgroup version, and whether a container with CAP_SYS_RESOURCE starts."""
        version = self.run("info", "--format", "{{.CgroupVersion}}").strip()
        trial = self.attempt("run", "--rm", "--network=none", f"--label={LABEL}=tool", "--cap-add=SYS_RESOURCE", image, "true")
        said = trial.stderr.lower()
        if trial.returncode != 0 and NOT_PERMITTED not in said and NOT_AVAILABLE not in said:
            raise LabError(f"a container of {image} does not start: {trial.stderr.strip()}")
        return EngineKind(cgroup_version=2 if version == "2" else 1, drop_sys_resource=trial.returncode != 0 and NOT_PERMITTED in said)
