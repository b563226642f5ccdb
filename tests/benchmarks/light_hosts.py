# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Light hosts: copies of a converged lab host that are light enough for many of them to run on one machine. TEST DOUBLES.

Real in each: the file system of the converged host, SSH with a key of its own at an address of its own, Python, apt, the simulated PCI bus, and with that
everything that gpu_host_facts reads from files. Answered from a recording of the same run of the benchmark: the programs of PROGRAMS, which would need
systemd, a running engine, or time for many.
"""

from __future__ import annotations

import io
import json
import shutil
import socket
import tarfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab import ssh
from lab.engine import Engine
from lab.errors import LabError
from lab.host_image import tar_of
from lab.names import IMAGE, LABEL, NETWORK, SERVICES_ADDRESS, SERVICES_HOSTNAME
from lab.paths import Layout

PROGRAMS = ("docker", "dockerd", "modinfo", "nvidia-smi", "systemctl")
IMAGE_NAME = "rackready-lab/light-host:bench"
PREFIX = "light-"
FIRST_ADDRESS = 101  # of the lab's network; its fleets have lower ones
CODE = Path(__file__).resolve().parent / "light_host"
ON_HOST = "/tmp/light-host"
UP_WITHIN = 60  # seconds for all of them; measured: 15 for 40


@dataclass(frozen=True)
class LightHost:
    name: str
    address: str


def named(number: int) -> list[LightHost]:
    """That many light hosts; the lab's network has room for 150."""
    network = SERVICES_ADDRESS.rpartition(".")[0]
    return [LightHost(f"{PREFIX}{index + 1:02}", f"{network}.{FIRST_ADDRESS + index}") for index in range(number)]


def inventory(original: str, address: str, hosts: Sequence[LightHost], state: Path, folder: Path) -> str:
    """An inventory to use beside the lab's: the light hosts, and the converged host as it is recorded. YAML, since JSON is.

    All are in the lab's group of hosts of this kind, so that its variables hold for them. How they are reached is each host's own: a variable of their group
    would yield to the files of the lab's groups. Their patience is longer than usual, since all of them and the controller share one machine.
    """
    options = f"-F none -o IdentitiesOnly=yes -o StrictHostKeyChecking=yes -o 'UserKnownHostsFile=\"{folder / 'known_hosts'}\"'"
    recorded = {original: {"ansible_host": address, "ansible_python_interpreter": f"{ON_HOST}/python3", "lab_state": str(state)}}
    light = {host.name: {"ansible_host": host.address, "ansible_ssh_common_args": options, "ansible_timeout": 60, "lab_state": str(state)} for host in hosts}
    groups = {"h100_nodes": {"hosts": {**recorded, **light}}}
    return json.dumps({"all": {"children": {"lab_hosts": {"children": groups}}}}, indent=2) + "\n"


class LightHosts:
    """Makes them from one converged lab host and removes them. What they need of this machine lies in one folder of ``.lab/``."""

    def __init__(self, layout: Layout, engine: Engine, original: str, number: int) -> None:
        self.hosts = named(number)
        self.folder = layout.state / "bench"
        self.inventory = self.folder / "hosts.yml"
        self._layout, self._engine, self._original = layout, engine, original

    def remove(self) -> None:
        """Containers, image and folder, also those that a killed benchmark left."""
        names = [name for name in self._engine.containers("tool") if name.startswith(PREFIX)]
        if names:
            self._engine.run("rm", "--force", "--volumes", *names)
        if self._engine.inspect("image", IMAGE_NAME) is not None:
            self._engine.run("image", "rm", "--force", IMAGE_NAME)
        self._engine.attempt("exec", self._original, "rm", "-rf", ON_HOST)
        shutil.rmtree(self.folder, ignore_errors=True)

    def prepare(self) -> None:
        """Keys and inventory, and the recorders on the converged host, in memory: they are gone after a restart at the latest."""
        found = self._engine.inspect("container", self._original)
        if found is None:
            raise LabError(f"{self._original} is not there; run ./dev lab up")
        address = found["NetworkSettings"]["Networks"][NETWORK]["IPAddress"]
        self.folder.mkdir(parents=True)
        self.inventory.write_text(inventory(self._original, address, self.hosts, self._layout.state, self.folder))
        lines = []
        for host in self.hosts:
            key = self._key(host)
            ssh.keygen(key, host.name)
            lines.append(f"{host.address} {' '.join(key.with_name(key.name + '.pub').read_text().split()[:2])}\n")
        (self.folder / "known_hosts").write_text("".join(lines))
        recorder = (0o755, (CODE / "record").read_bytes())
        files = {"python3": (0o755, (CODE / "python3").read_bytes()), **{f"recorders/{program}": recorder for program in PROGRAMS}}
        self._engine.run("exec", self._original, "mkdir", "-p", f"{ON_HOST}/recorded")
        # Not by docker cp, which does not see what is mounted in a container.
        self._engine.run("exec", "--interactive", self._original, "tar", "-x", "-C", ON_HOST, stdin=tar_of(files))

    def start(self) -> None:
        """After the recording: the image, and a container for each light host. A LabError when one does not answer."""
        shared = self.folder / "shared"
        shutil.copytree(CODE, shared)
        (shared / "programs").write_text("\n".join(PROGRAMS) + "\n")
        self._fetch(ON_HOST, ["recorded"], shared)
        # Made at boot or later, in memory: a copy of the file system lacks it.
        self._fetch("/run", ["cdi", "gpu-host-sim/state.json"], shared / "run")
        self._engine.run("commit", f"--change=LABEL {LABEL}={IMAGE}", self._original, IMAGE_NAME)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(self._start, self.hosts))
        deadline = time.monotonic() + UP_WITHIN
        for host in self.hosts:
            while not answers(host.address):
                if time.monotonic() > deadline:
                    said = self._engine.attempt("logs", "--tail=15", host.name)
                    raise LabError(f"{host.name} does not answer at {host.address} after {UP_WITHIN} s. Its last words:\n{said.stdout}{said.stderr}")
                time.sleep(0.2)

    def _key(self, host: LightHost) -> Path:
        return self.folder / "keys" / host.name / "ssh_host_ed25519_key"

    def _fetch(self, directory: str, names: list[str], target: Path) -> None:
        archive = self._engine.run("exec", self._original, "tar", "-c", "-C", directory, *names).encode()
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            tar.extractall(target, filter="data")

    def _start(self, host: LightHost) -> None:
        self._engine.run(
            *["run", "--detach", f"--name={host.name}", f"--hostname={host.name}", f"--label={LABEL}=tool", f"--network={NETWORK}", f"--ip={host.address}"],
            # To mount the simulated devices, as a lab host does; nothing else of what it may.
            *["--cap-add=SYS_ADMIN", "--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined", "--security-opt=label=disable"],
            *["--tmpfs=/run", "--tmpfs=/tmp:exec", f"--add-host={SERVICES_HOSTNAME}:{SERVICES_ADDRESS}"],
            *[f"--volume={self.folder / 'shared'}:/opt/light-host:ro", f"--volume={self._key(host).parent}:/etc/light-host:ro"],
            *[IMAGE_NAME, "/opt/light-host/systemd"],
        )


def answers(address: str) -> bool:
    """Whether an SSH server greets there."""
    try:
        with socket.create_connection((address, 22), timeout=2) as connection:
            return connection.recv(4) == b"SSH-"
    except OSError:
        return False
