# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Lab hosts: containers with their own systemd, SSH and, once the product installed it, Docker."""

from __future__ import annotations

import json
import subprocess
import time

from . import ssh
from .engine import Engine, EngineKind
from .errors import LabError
from .fleet import Host
from .host_image import OS_RELEASE, os_release, tar_of
from .names import CHECKOUT_LABEL, INPUTS_LABEL, LABEL, NETWORK, SERVICES_ADDRESS, SERVICES_HOSTNAME, host_image
from .paths import Layout
from .steps import digest_of

UP_WITHIN = 120  # seconds; measured: 1 to 5, 28 on an emulated machine


def start_options(kind: EngineKind) -> list[str]:
    """How a container with its own systemd and Docker is started.

    All capabilities but three, instead of --privileged: devices and the writable /proc/sys of the machine stay out of the host, and it can
    neither load modules into the machine's kernel nor set its clock. CAP_SYS_RESOURCE is left out where the engine itself lacks it.
    """
    dropped = ["SYS_MODULE", "SYS_TIME"] + (["SYS_RESOURCE"] if kind.drop_sys_resource else [])
    options = [
        *["--cap-add=ALL", *[f"--cap-drop={capability}" for capability in dropped]],
        *["--security-opt=seccomp=unconfined", "--security-opt=apparmor=unconfined", "--security-opt=label=disable"],
        *["--tmpfs=/run", "--tmpfs=/run/lock", "--tmpfs=/tmp:exec", "--volume=/var/lib/docker"],
    ]
    if kind.cgroup_version == 1:
        # Debian 13's systemd still runs on cgroup v1, if asked to.
        return [*options, "--cgroupns=host", "--volume=/sys/fs/cgroup:/sys/fs/cgroup:rw", "--env=SYSTEMD_CGROUP_ENABLE_LEGACY_FORCE=1"]
    return [*options, "--cgroupns=private"]


def start_command(kind: EngineKind) -> list[str]:
    if kind.cgroup_version == 1:
        return ["/lib/systemd/systemd", "systemd.unified_cgroup_hierarchy=0"]
    # Docker mounts the container's own cgroup tree read-only unless the container is privileged.
    return ["/bin/sh", "-c", "mount -o remount,rw /sys/fs/cgroup && exec /lib/systemd/systemd"]


def inputs(layout: Layout, host: Host, image_id: str, kind: EngineKind) -> str:
    key = ssh.host_key(layout, host.name)
    return digest_of(image_id, host.address, host.board, host.os_release, start_options(kind), start_command(kind), key, ssh.client_key(layout))


def state(engine: Engine, host: Host) -> tuple[str, str | None]:
    """(absent, running, exited ..., digest of the inputs that it was made from)."""
    found = engine.inspect("container", host.name)
    if found is None:
        return "absent", None
    labels = found["Config"].get("Labels") or {}
    if LABEL not in labels:
        raise LabError(f"there is a container {host.name} that the lab did not make; rename or remove it: docker rm -f {host.name}")
    return str(found["State"]["Status"]), labels.get(INPUTS_LABEL)


def remove(engine: Engine, name: str) -> None:
    # Connections that Ansible keeps open must see an end, or its next task waits on a host that is gone.
    engine.attempt("exec", name, "pkill", "sshd")
    engine.run("rm", "--force", "--volumes", name)


def create(layout: Layout, engine: Engine, host: Host, wanted: str, kind: EngineKind) -> None:
    if engine.inspect("container", host.name) is not None:
        remove(engine, host.name)
    engine.run(
        *["create", f"--name={host.name}", f"--hostname={host.name}", f"--label={LABEL}=host", "--restart=on-failure", "--stop-signal=SIGRTMIN+3"],
        *[f"--label={CHECKOUT_LABEL}={layout.checkout}", f"--label={INPUTS_LABEL}={wanted}"],
        *[f"--network={NETWORK}", f"--ip={host.address}", f"--add-host={SERVICES_HOSTNAME}:{SERVICES_ADDRESS}"],
        *[*start_options(kind), host_image(host.distribution), *start_command(kind)],
    )
    key = ssh.host_key(layout, host.name)
    client = ssh.client_key(layout)
    files = {
        "root/.ssh/authorized_keys": (0o600, client.with_name(client.name + ".pub").read_bytes()),
        f"etc/ssh/{key.name}": (0o600, key.read_bytes()),
        f"etc/ssh/{key.name}.pub": (0o644, key.with_name(key.name + ".pub").read_bytes()),
        "etc/gpu-host-sim/board.json": (0o644, json.dumps(host.board, indent=2).encode() + b"\n"),
    }
    if host.os_release:
        files[OS_RELEASE] = (0o644, os_release(host.os_release))
    engine.run("cp", "-", f"{host.name}:/", stdin=tar_of(files))
    engine.run("start", host.name)


def wait(layout: Layout, engine: Engine, host: Host) -> None:
    """Until systemd has started everything and SSH answers; a LabError that names failed units otherwise."""
    deadline = time.monotonic() + UP_WITHIN
    while True:
        said = engine.attempt("exec", host.name, "systemctl", "is-system-running").stdout.strip()
        if said == "running" and answers(layout, host):
            return
        if said == "degraded":
            failed = engine.attempt("exec", host.name, "systemctl", "--failed", "--plain", "--no-legend", "--no-pager").stdout
            units = [line.split()[0] for line in failed.splitlines() if line.strip()]
            words = engine.attempt("exec", host.name, "journalctl", "--no-pager", "--lines=15", *[f"--unit={unit}" for unit in units]).stdout
            raise LabError(f"{host.name} came up with failed units: {', '.join(units)}. Their last words:\n{words}")
        if time.monotonic() > deadline:
            raise LabError(f"{host.name} is not up after {UP_WITHIN} s (systemd says '{said or 'nothing'}'); look inside: docker exec -it {host.name} bash")
        time.sleep(0.3)


def wait_for_login(layout: Layout, host: Host) -> None:
    """Until SSH answers, whatever else a host that was kept is in; a LabError where it does not."""
    deadline = time.monotonic() + UP_WITHIN
    while not answers(layout, host):
        if time.monotonic() > deadline:
            raise LabError(f"{host.name} takes no login over SSH within {UP_WITHIN} s; look inside: docker exec -it {host.name} bash, then run this again")
        time.sleep(0.3)


def answers(layout: Layout, host: Host) -> bool:
    """A real login, with the checks that Ansible's connection has."""
    return (
        subprocess.run(
            [
                # ssh has no limit for what comes after the connection.
                *["timeout", "20", "ssh", "-F", "none", "-i", str(ssh.client_key(layout)), "-o", "IdentitiesOnly=yes", "-o", "BatchMode=yes"],
                *["-o", "ConnectTimeout=5"],
                *["-o", f"UserKnownHostsFile={layout.ssh / 'known_hosts'}", "-o", "StrictHostKeyChecking=yes", f"root@{host.address}", "true"],
            ],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
        ).returncode
        == 0
    )
