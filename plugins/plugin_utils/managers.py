# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The package managers that the roles work with: how their versions are ordered, how they take packages, and which commands a remedy names. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from ansible_collections.rackready.gpu.plugins.module_utils import deb_version, rpm_version


class VersionOrder(Protocol):
    """What the modules deb_version and rpm_version have in common."""

    def upstream(self, version: str) -> str: ...

    def compare(self, left: str, right: str) -> int: ...

    def newest(self, versions: Iterable[str]) -> str: ...


@dataclass(frozen=True)
class Manager:
    """A package manager. In forms ``{name}`` and ``{version}`` are a package and its version, in commands names of packages follow."""

    name: str
    order: VersionOrder
    exact: str
    """A package at one version, as it is installed."""
    any_revision: str
    """A package at an upstream version, whichever revision of the packaging."""
    move: str
    """Installs the named versions, older ones and held ones too."""
    remove: str
    remove_held: str
    reinstall: str
    hold: str
    unhold: str
    at_a_downgrade: str
    broken: tuple[str, str, str]
    """The refusal of a state that nothing can be installed on: what, why and remedy."""
    sources: str
    """Where the repositories of the host are written down."""
    asks: str
    """What its own sentences call a repository there that can be asked."""

    def spec(self, name: str, version: str | None) -> str:
        """A package as it is installed: at its version, or at any."""
        return name if version is None else self.exact.format(name=name, version=version)

    def revisions(self, names: Iterable[str], version: str) -> str:
        """Packages at an upstream version, for a command."""
        return " ".join(self.any_revision.format(name=name, version=version) for name in names)

    def removal(self, names: Sequence[str], held: Sequence[str]) -> str:
        """The command that removes packages, of which some may be held."""
        return f"{self.remove_held if held else self.remove} {' '.join(names)}"


MANAGERS: Mapping[str, Manager] = {
    "apt": Manager(
        name="apt",
        order=deb_version,
        exact="{name}={version}",
        any_revision="{name}={version}-*",
        move="apt-get install --allow-downgrades --allow-change-held-packages",
        remove="apt-get remove",
        remove_held="apt-get remove --allow-change-held-packages",
        reinstall="apt-get install --reinstall",
        hold="apt-mark hold",
        unhold="apt-mark unhold",
        at_a_downgrade="apt would stop at the downgrade",
        broken=("dpkg has half-installed packages", "nothing can be installed on top of them", "run dpkg --audit and dpkg --configure -a on the host"),
        sources="/etc/apt",
        asks="HTTP source",
    ),
    "dnf": Manager(
        name="dnf",
        order=rpm_version,
        exact="{name}-{version}",
        any_revision="{name}-{version}",
        # The locks of versionlock only keep dnf from taking another version; removing and reinstalling go past them.
        move="dnf --disableplugin=versionlock install",
        remove="dnf remove",
        remove_held="dnf remove",
        reinstall="dnf reinstall",
        hold="dnf versionlock add",
        unhold="dnf versionlock delete",
        at_a_downgrade="dnf would leave it as it is",
        broken=(
            "rpm does not answer, or has a package in two versions as an installation that was cut off leaves it",
            "nothing can be installed on top of that",
            "run rpm --query --all and dnf check on the host and repair what they say",
        ),
        sources="/etc/yum.repos.d",
        asks="repository with a plain address",
    ),
}
