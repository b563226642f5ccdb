# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The key that opens every lab host, and the hosts' own keys: made here, so that host key checking stays on."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from pathlib import Path

from .errors import LabError
from .fleet import Host
from .paths import Layout


def keygen(path: Path, comment: str) -> None:
    """An Ed25519 key pair at PATH and PATH.pub, unless both are there."""
    public = path.with_name(path.name + ".pub")
    if path.is_file() and public.is_file():
        return
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.unlink(missing_ok=True)
    result = subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        raise LabError(f"ssh-keygen could not make {path}: {result.stderr.strip()}")


def client_key(layout: Layout) -> Path:
    return layout.ssh / "id_ed25519"


def host_key(layout: Layout, host: str) -> Path:
    return layout.ssh / "hosts" / host / "ssh_host_ed25519_key"


def known_hosts_lines(keys: Iterable[tuple[Host, str]]) -> str:
    """known_hosts text from (host, text of its public key file), by name and address."""
    return "".join(f"{host.name},{host.address} {' '.join(public.split()[:2])}\n" for host, public in keys)


def config(layout: Layout, hosts: Iterable[Host]) -> str:
    """Configuration for `ssh -F .lab/ssh/config HOST`: for people, and for tests that look at a host without Ansible."""
    entries = "".join(f"Host {host.name}\n  HostName {host.address}\n\n" for host in hosts)
    return (
        f'{entries}Host *\n  User root\n  IdentityFile "{client_key(layout)}"\n  IdentitiesOnly yes\n'
        f'  UserKnownHostsFile "{layout.ssh / "known_hosts"}"\n  StrictHostKeyChecking yes\n'
    )


def make(layout: Layout, hosts: Iterable[Host]) -> None:
    hosts = list(hosts)
    layout.ssh.mkdir(parents=True, exist_ok=True, mode=0o700)
    keygen(client_key(layout), "rackready lab")
    lines = []
    for host in hosts:
        key = host_key(layout, host.name)
        keygen(key, host.name)
        lines.append((host, key.with_name(key.name + ".pub").read_text()))
    for name, text in (("known_hosts", known_hosts_lines(lines)), ("config", config(layout, hosts))):
        new = layout.ssh / f"{name}.new"
        new.write_text(text)
        new.rename(layout.ssh / name)
