# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Where the lab keeps its state: all of it under ``.lab/`` of the checkout."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Layout:
    checkout: Path

    @classmethod
    def of_this_file(cls) -> Layout:
        return cls(Path(__file__).resolve().parents[2])

    @property
    def code(self) -> Path:
        return self.checkout / "molecule" / "lab"

    @property
    def gpu_host(self) -> Path:
        return self.checkout / "molecule" / "gpu_host"

    @property
    def fleets(self) -> Path:
        return self.checkout / "molecule" / "fleets"

    @property
    def state(self) -> Path:
        return self.checkout / ".lab"

    @property
    def stamps(self) -> Path:
        return self.state / "stamps"

    @property
    def tls(self) -> Path:
        return self.state / "tls"

    @property
    def ssh(self) -> Path:
        return self.state / "ssh"

    @property
    def signing(self) -> Path:
        return self.state / "signing"

    @property
    def mirror(self) -> Path:
        """Packages of the distributions that hosts may ask for, as downloaded: one folder a distribution."""
        return self.state / "mirror"

    @property
    def served(self) -> Path:
        """The services container sees this folder: ``repo/`` is what nginx serves, ``registry/`` the registry's storage."""
        return self.state / "served"

    @property
    def images(self) -> Path:
        """OCI images made here, before they are pushed."""
        return self.state / "images"

    @property
    def work(self) -> Path:
        """Half-made things. Anything in it may be deleted while no lab command runs."""
        return self.state / "work"

    @property
    def lock_file(self) -> Path:
        return self.state / "lock"

    @property
    def fleet_file(self) -> Path:
        """The fleet that is up, by name."""
        return self.state / "fleet"
