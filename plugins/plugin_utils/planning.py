# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the areas of a plan are made of: their inputs (Context), their result (AreaPlan) and a few shapes that several of them use.

Everything here is pure: no I/O, no clock, no host. The same inputs give the same plan.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils.holders import container_words
from ansible_collections.rackready.gpu.plugins.plugin_utils import versionlock
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog, Table
from ansible_collections.rackready.gpu.plugins.plugin_utils.managers import MANAGERS, Manager, VersionOrder
from ansible_collections.rackready.gpu.plugins.plugin_utils.request import Request
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least, branch

Facts = Mapping[str, Any]

UNKNOWN = "unknown"
UNREADABLE = "unreadable"
PLATFORMS = {"x86_64": "linux/amd64", "aarch64": "linux/arm64"}
PIN_REMEDY = "run playbooks/pin.yml"


def provisioned(distribution: Table) -> bool:
    """Whether hosts of a distribution are provisioned; of others whose packages are known only the names are planned."""
    return distribution["package_manager"] in MANAGERS and "refused" not in distribution


def refusal(what: str, why: str, remedy: str) -> str:
    """A refusal as one sentence and what to do about it."""
    return f"{what}, so {why}: {remedy}."


@dataclass(frozen=True)
class Reason:
    """Why something was decided: the rule in words and the key of its source."""

    rule: str
    source: str

    def as_dict(self) -> dict[str, str]:
        return {"rule": self.rule, "source": self.source}


@dataclass(frozen=True)
class FileSpec:
    """A file that a role writes whole."""

    path: str
    content: str
    mode: str = "0644"

    def as_dict(self) -> dict[str, str]:
        return {"path": self.path, "content": self.content, "mode": self.mode}


@dataclass
class AreaPlan:
    """The plan of one area. ``target`` and ``actual`` describe the same observable state; the area holds when they are equal.

    An area that could not be planned has no ``desired``, and never holds.
    """

    desired: dict[str, Any] = field(default_factory=dict)
    target: dict[str, Any] = field(default_factory=dict)
    actual: dict[str, Any] | str = field(default_factory=dict)
    reasons: list[Reason] = field(default_factory=list)
    actions: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    packages: Mapping[str, str | None] = field(default_factory=dict)
    files: Sequence[FileSpec] = field(default_factory=list)
    repositories: list[dict[str, Any]] = field(default_factory=list)
    images: list[dict[str, Any]] = field(default_factory=list)
    archive_packages: list[str] = field(default_factory=list)
    """Packages that come from the distribution's own archive and are not installed yet."""
    reboot: bool = False
    drain: bool = False
    reloads: bool = False
    """Bringing it about makes systemd reload, on this host as it is now."""

    @property
    def converged(self) -> bool:
        return bool(self.desired) and self.target == self.actual

    def as_dict(self) -> dict[str, Any]:
        return {
            "desired": self.desired,
            "target": self.target,
            "actual": self.actual,
            "converged": self.converged,
            "reasons": [reason.as_dict() for reason in self.reasons],
            "actions": [] if self.converged else list(self.actions),
        }


@dataclass(frozen=True)
class Gpu:
    """A GPU on the bus with what the catalog and, once it answers, nvidia-smi know of it."""

    pci_bus_id: str
    pci_id: str
    kernel_driver: str | None
    slug: str | None
    entry: Table | None
    smi: Mapping[str, Any] | None

    @property
    def name(self) -> str:
        if self.entry is not None:
            return str(self.entry["name"])
        return str(self.smi["name"]) if self.smi else f"a GPU that the catalog does not know ({self.pci_id})"


@dataclass(frozen=True)
class Context:
    """The inputs of every area, and what follows from them at once."""

    facts: Facts
    request: Request
    lock: Mapping[str, Any] | None
    catalog: Catalog

    # --- the machine

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs on the PCI bus, in bus order."""
        told = {gpu["pci_bus_id"]: gpu for gpu in self.facts["nvidia_smi"]["gpus"]} if self.smi_ok else {}
        found = []
        for gpu in sorted(self.facts["gpus"], key=lambda entry: str(entry["pci_bus_id"])):
            slug = self.catalog.gpu_by_pci_id(gpu["pci_id"])
            entry = self.catalog.gpus[slug] if slug else None
            found.append(Gpu(gpu["pci_bus_id"], gpu["pci_id"], gpu["driver"], slug, entry, told.get(gpu["pci_bus_id"])))
        return tuple(found)

    @cached_property
    def smi_ok(self) -> bool:
        return bool(self.facts["nvidia_smi"]["state"] == "ok")

    @cached_property
    def workloads(self) -> tuple[Mapping[str, Any], ...]:
        """Who holds a GPU and is no NVIDIA service."""
        return tuple(holder for holder in self.facts["holders"] if holder["role"] == "workload")

    def architecture_of(self, gpu: Gpu) -> Table | None:
        return self.catalog.drivers["architectures"][gpu.entry["architecture"]] if gpu.entry else None

    # --- the distribution and its repositories

    @property
    def distribution(self) -> str:
        return str(self.facts["distribution"]["key"])

    @property
    def architecture(self) -> str:
        return str(self.facts["architecture"])

    @property
    def known_distribution(self) -> Table:
        found: Table = self.catalog.distributions[self.distribution]
        return found

    @cached_property
    def manager(self) -> str:
        return str(self.known_distribution["package_manager"])

    @cached_property
    def installable(self) -> bool:
        """Whether the roles can install packages on this host."""
        return provisioned(self.known_distribution)

    @property
    def packaging(self) -> Manager:
        """How the package manager of an installable host is spoken to and of."""
        return MANAGERS[self.manager]

    @property
    def order(self) -> VersionOrder:
        """How package versions are ordered on an installable host."""
        return self.packaging.order

    @property
    def release_of_distribution(self) -> str:
        """What dnf calls $releasever: the number of the release without its minor one."""
        return self.distribution.rpartition("-")[2]

    @property
    def where(self) -> str:
        """Distribution and architecture in words."""
        return f"{self.known_distribution['name']} on {self.architecture}"

    @property
    def platform(self) -> str:
        """What registries call the architecture."""
        return PLATFORMS.get(self.architecture, f"linux/{self.architecture}")

    @property
    def release(self) -> Table:
        found: Table = self.catalog.releases[self.request.release]
        return found

    def repository(self, name: str) -> Repository | None:
        """A repository as this host must see it (mirror applied), or None when it has nothing for the distribution and architecture."""
        return repository(self.catalog, self.request, name, self.distribution, self.architecture)

    def locked_repository(self, name: str) -> Mapping[str, Any] | None:
        """What the lock says of a repository as this host sees it; None when it has nothing, or is about another address."""
        entry, here = self._lock_entry(name), self.repository(name)
        return entry if entry is not None and here is not None and entry["url"] == here.url else None

    def _lock_entry(self, name: str) -> Mapping[str, Any] | None:
        return ((self.lock or {}).get("repositories") or {}).get(f"{name}/{self.distribution}/{self.architecture}")

    def unlocked(self, name: str, why: str) -> str:
        """The refusal that the lock has nothing for a repository of this host."""
        entry = self._lock_entry(name)
        if entry is None:
            # pin.yml does not read the hosts: without this it would write the same lock again.
            cell = f"{self.distribution}/{self.architecture}"
            remedy = PIN_REMEDY if cell in self.request.pin_for else f"add {cell} to rackready_pin_for in the inventory, then {PIN_REMEDY}"
            return refusal(f"The lock has no packages of {name} for {self.distribution} on {self.architecture}", why, remedy)
        here = self.repository(name)
        address = here.url if here else "another address"
        return refusal(f"The lock was written for {name} at {entry['url']} and this host uses {address}", "its key and versions may be other ones", PIN_REMEDY)

    # --- versions that several areas need

    @cached_property
    def driver_rule(self) -> VersionRule:
        return driver_rule(self.request, self.release)

    @cached_property
    def driver_branch(self) -> str:
        """The branch that is wanted, by number."""
        rule = self.driver_rule
        return branch(rule.exact) if rule.exact is not None else str(rule.branch)

    @cached_property
    def driver_cell(self) -> Table | None:
        """Where that branch is packaged for this distribution and architecture; None: the facts do not say."""
        return self.catalog.driver_cell(self.distribution, self.architecture, self.driver_branch)

    @cached_property
    def driver_version(self) -> str | None:
        """The driver's exact version, or None when the lock has none that fits."""
        cell = self.driver_cell
        if cell is None or not self.installable or not self.driver_packages:
            return None
        locked = self.locked_repository(cell["repository"])
        return None if locked is None else self.driver_rule.choose(locked["packages"].get(self.driver_packages[0], []), self.order)

    @cached_property
    def flavours(self) -> tuple[str, ...]:
        """The flavours that every known GPU of the host can take, the preferred one first."""
        return flavours_of(self.catalog, {gpu.slug for gpu in self.gpus})

    @cached_property
    def driver_flavour(self) -> str:
        """The flavour that the inventory asks for, else the release's, else the preferred one of those that fit."""
        asked = self.request.driver_flavour or self.release["driver"].get("flavour")
        return str(asked) if asked is not None else self.flavours[0] if self.flavours else "open"

    @cached_property
    def driver_packages(self) -> tuple[str, ...]:
        """The packages of the flavour; none where the facts give none."""
        return in_branch(self.driver_cell["flavours"].get(self.driver_flavour, []), self.driver_branch) if self.driver_cell is not None else ()

    @cached_property
    def driver_stream(self) -> tuple[str, str] | None:
        """dnf's module and the stream of it that has the flavour of the branch; None where the packages have no streams."""
        return driver_stream(self.driver_cell, self.driver_flavour, self.driver_branch) if self.driver_cell is not None else None

    @cached_property
    def toolkit_version(self) -> str:
        return toolkit_version(self.request, self.release)

    @cached_property
    def docker_minimum(self) -> str:
        """The oldest engine that understands the toolkit's CDI specification."""
        return docker_minimum(self.catalog, self.toolkit_version)

    @cached_property
    def fabric_kind(self) -> str | None:
        """imex, nvlink5, nvswitch or None: from the model of the GPUs and from NVSwitches on the bus, never from InfiniBand devices."""
        kinds = {gpu.entry["fabric"] for gpu in self.gpus if gpu.entry is not None}
        return next((kind for kind in ("imex", "nvlink5") if kind in kinds), "nvswitch" if self.facts["nvswitches"] else None)

    @cached_property
    def fabric_cell(self) -> Table | None:
        """Where the fabric's packages are that go with the driver; None: the facts do not say."""
        cell = self.driver_cell
        return self.catalog.fabric_cell(self.distribution, cell["repository"], self.driver_branch) if cell is not None else None

    @cached_property
    def fabric_parts(self) -> Mapping[str, Mapping[str, Table]]:
        """Each kind of fabric with its packages by name; a kind that is not packaged whole is left out."""
        known = self.fabric_cell["parts"] if self.fabric_cell is not None else {}
        return {
            kind: {known[part]["name"].format(branch=self.driver_branch): known[part] for part in fabric["parts"]}
            for kind, fabric in self.catalog.fabrics.items()
            if all(part in known for part in fabric["parts"])
        }

    @cached_property
    def image(self) -> str:
        """The image reference as asked for, with its registry written out."""
        return full_reference(self.request.image_ref or str(self.release["image"]))

    # --- what is on the host

    def installed(self, name: str) -> str | None:
        """The installed version of a package."""
        entry = self.facts["packages"]["installed"].get(name)
        return str(entry["version"]) if entry else None

    @property
    def lock_package(self) -> str | None:
        """The package without which dnf holds nothing; None where nothing of the kind is needed."""
        return self.known_distribution.get("lock_package")

    def to_be_there(self, names: Iterable[str | None]) -> list[str]:
        """Those of some packages of the distribution that are not installed."""
        return [name for name in names if name is not None and self.installed(name) is None]

    def held(self, names: Sequence[str]) -> list[str]:
        return sorted(name for name in names if (self.facts["packages"]["installed"].get(name) or {}).get("held"))

    def file_state(self, spec: FileSpec) -> str:
        content = self.facts["files"].get(spec.path)
        return "absent" if content is None else "as planned" if content == spec.content else "different"

    def unit(self, name: str) -> Mapping[str, str]:
        found: Mapping[str, str] = self.facts["units"].get(name) or {"load": "not-found", "active": "inactive", "enabled": "not-found"}
        return found


def in_branch(names: Sequence[str], branch: str) -> tuple[str, ...]:
    """Names of packages, the branch written into those that carry it."""
    return tuple(name.format(branch=branch) for name in names)


def driver_stream(cell: Table, flavour: str, branch: str) -> tuple[str, str] | None:
    """dnf's module and the stream of it that has a flavour of a driver branch; None where the packages have no streams."""
    pin = cell.get("pin", {})
    return (pin["module"], pin["streams"][flavour].format(branch=branch)) if flavour in pin.get("streams", {}) else None


def flavours_of(catalog: Catalog, slugs: Iterable[str | None]) -> tuple[str, ...]:
    """The flavours that all of these GPUs can take, the preferred one first; one that the catalog does not know takes any."""
    allowed = [catalog.drivers["architectures"][catalog.gpus[slug]["architecture"]]["flavours"] for slug in slugs if slug is not None]
    return tuple(flavour for flavour in ("open", "proprietary") if all(flavour in flavours for flavours in allowed))


@dataclass(frozen=True)
class VersionRule:
    """Which versions fit: one exact version, or a branch and a floor."""

    exact: str | None = None
    branch: str | None = None
    at_least: str | None = None

    def fits(self, version: str) -> bool:
        if self.exact is not None:
            return at_least(version, self.exact) and at_least(self.exact, version)
        if self.branch is not None and branch(version) != self.branch:
            return False
        return self.at_least is None or at_least(version, self.at_least)

    def choose(self, versions: Sequence[str], order: VersionOrder) -> str | None:
        """The upstream part of the newest package version that fits, or None."""
        newest = self.newest_package(versions, order)
        return order.upstream(newest) if newest is not None else None

    def newest_package(self, versions: Sequence[str], order: VersionOrder) -> str | None:
        """The newest package version whose upstream part fits, or None."""
        fitting = [version for version in versions if self.fits(order.upstream(version))]
        return order.newest(fitting) if fitting else None

    def __str__(self) -> str:
        if self.exact is not None:
            return self.exact
        floor = f"{self.at_least} or newer" if self.at_least is not None else "any version"
        return floor if self.branch is None else f"{floor} of branch {self.branch}"


def driver_rule(request: Request, release: Table) -> VersionRule:
    """Which driver versions a request allows."""
    if request.driver_version is not None:
        return VersionRule(exact=request.driver_version)
    if request.driver_branch is not None and request.driver_branch != release["driver"]["branch"]:
        return VersionRule(branch=request.driver_branch)
    return VersionRule(branch=str(release["driver"]["branch"]), at_least=release["driver"]["at_least"])


def toolkit_version(request: Request, release: Table) -> str:
    """The container toolkit's exact version: the inventory's, else the release's."""
    return request.toolkit_version or str(release["container_toolkit"]["version"])


def docker_minimum(catalog: Catalog, toolkit: str) -> str:
    """The oldest engine that understands the CDI specification of this version of the toolkit."""
    floors: Mapping[str, str] = catalog.toolkit["docker_minimum_from"]
    fitting = [engine for since, engine in floors.items() if at_least(toolkit, since)]
    return fitting[-1] if fitting else str(catalog.docker["cdi"]["feature_since"])


def docker_shipped(catalog: Catalog, distribution: str, toolkit: str) -> Table | None:
    """The distribution's own engine, None when it has none that is new enough for this version of the toolkit."""
    shipped: Table | None = catalog.docker["distribution"].get(distribution)
    return shipped if shipped is not None and at_least(shipped["engine"], docker_minimum(catalog, toolkit)) else None


@dataclass(frozen=True)
class Repository:
    """A package repository for one distribution and architecture. ``suites`` and ``components`` are of apt's, ``signature`` and ``only`` of dnf's."""

    name: str
    manager: str
    url: str
    architecture: str
    key_url: str
    fingerprint: str | None
    suites: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    signature: str | None = None
    only: tuple[str, ...] = ()

    def question(self, packages: Mapping[str, str | None], streams: Sequence[str] = (), locked: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """An entry of stack_sources' ``repositories`` option; with what the lock has of the repository its key must still be the one that is there."""
        places: dict[str, Any] = {"suites": list(self.suites), "components": list(self.components)}
        if self.manager == "dnf":
            places = {"type": "rpm", "streams": list(streams)}
        key = {"key_url": self.key_url, "key_sha256": locked["key_sha256"]} if locked is not None else {}
        return {"name": self.name, "url": self.url, **places, "architecture": self.architecture, "packages": dict(packages), **key}

    def files(self, key: str) -> list[FileSpec]:
        """What makes the package manager of a host use the repository, with the key of the lock."""
        return self._yum_files(key) if self.manager == "dnf" else [self._sources_file(key)]

    def _sources_file(self, key: str) -> FileSpec:
        """The deb822 sources file, with the key inside: no keyring file can be missing, old or used by another repository."""
        lines = [
            "# Managed by rackready; the key is the one in the lock file.",
            "Types: deb",
            f"URIs: {self.url}",
            f"Suites: {' '.join(self.suites)}",
        ]
        if self.components:
            lines.append(f"Components: {' '.join(self.components)}")
        lines.append(f"Architectures: {self.architecture}")
        lines.append("Signed-By:")
        lines += [f" {line.rstrip()}" if line.strip() else " ." for line in key.strip().splitlines()]
        return FileSpec(f"/etc/apt/sources.list.d/rackready-{self.name}.sources", "\n".join(lines) + "\n")

    def _yum_files(self, key: str) -> list[FileSpec]:
        """The key and the .repo file, which can name its key as a file only. What the vendor does not sign is not checked, what it does sign must be right."""
        key_file = FileSpec(f"/etc/pki/rpm-gpg/RPM-GPG-KEY-rackready-{self.name}", key.strip() + "\n")
        lines = [
            "# Managed by rackready; the key is the one in the lock file.",
            f"[rackready-{self.name}]",
            f"name={self.name} (rackready)",
            f"baseurl={self.url}",
            "enabled=1",
            f"gpgcheck={int(self.signature == 'packages')}",
            f"repo_gpgcheck={int(self.signature == 'metadata')}",
            f"gpgkey=file://{key_file.path}",
            *([f"includepkgs={','.join(self.only)}"] if self.only else []),
        ]
        return [key_file, FileSpec(f"/etc/yum.repos.d/rackready-{self.name}.repo", "\n".join(lines) + "\n")]


def repository(catalog: Catalog, request: Request, name: str, distribution: str, architecture: str) -> Repository | None:
    """A repository for a distribution and architecture, with the request's mirror applied."""
    origin = catalog.origin(name, distribution, architecture)
    if origin is None or "path" not in origin:  # one that another package manager reads has no path
        return None
    mirror = request.mirror_packages.get(name)
    base = (mirror or str(catalog.repositories[name]["base"])).rstrip("/")
    known = catalog.distributions[distribution]
    return Repository(
        name=name,
        manager=str(known["package_manager"]),
        url=f"{base}/{origin['path']}/",
        suites=tuple(origin.get("suites", ())),
        components=tuple(origin.get("components", ())),
        architecture=known["architectures"][architecture],
        key_url=f"{base}/{origin['key']}",
        fingerprint=None if mirror else str(origin["fingerprint"]),
        signature=catalog.repositories[name].get("rpm_signature"),
        only=tuple(catalog.repositories[name].get("only", ())),
    )


def full_reference(reference: str) -> str:
    """An image reference with its registry: docker.io is what a reference without one means."""
    first, slash, _rest = reference.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        return reference
    return f"docker.io/{reference}" if slash else f"docker.io/library/{reference}"


@dataclass(frozen=True)
class Reference:
    """An image reference taken apart; ``name`` is registry and repository."""

    name: str
    tag: str | None
    digest: str | None

    @property
    def registry(self) -> str:
        return self.name.partition("/")[0]

    @property
    def repository(self) -> str:
        return self.name.partition("/")[2]

    @property
    def tagged(self) -> str:
        """The reference without its digest."""
        return self.name if self.tag is None else f"{self.name}:{self.tag}"


def split_reference(reference: str) -> Reference:
    """Take a full reference apart."""
    rest, _at, digest = reference.partition("@")
    head, colon, tag = rest.rpartition(":")
    if colon and "/" not in tag:
        return Reference(head, tag, digest or None)
    return Reference(rest, None, digest or None)


def units_state(context: Context, names: Sequence[str]) -> dict[str, str]:
    """Each unit as ``enabled, active`` or what is different."""
    return {name: unit_words(context.unit(name)) for name in names}


def unit_words(unit: Mapping[str, str]) -> str:
    """A unit in words. A static one cannot be enabled, something else starts it: Ubuntu's nvidia-persistenced is started by a udev rule of its package."""
    if unit["load"] != "loaded":
        return str(unit["load"])
    return f"{'enabled' if unit['enabled'] == 'static' else unit['enabled']}, {unit['active']}"


def unit_actions(context: Context, names: Sequence[str], wanted: str = "enabled, active") -> list[str]:
    """What must be done to units that are not as wanted; a masked one is unmasked first, which the plan says before anything is done."""
    actions = []
    for name in names:
        unit = context.unit(name)
        if unit_words(unit) == wanted:
            continue
        # Also ``masked-runtime``, until the next boot.
        if any(unit[key].startswith("masked") for key in ("load", "enabled")):
            actions.append(f"unmask {name}")
        actions.append(f"enable and start {name}")
    return actions


def differing(context: Context, packages: Mapping[str, str | None]) -> dict[str, str | None]:
    """The packages that are not installed, or not at their planned version."""
    return {name: version for name, version in packages.items() if context.installed(name) is None or version not in (None, context.installed(name))}


def package_actions(context: Context, packages: Mapping[str, str | None], hold: Sequence[str]) -> list[str]:
    """Install what differs, in one transaction, and hold it."""
    missing = [context.packaging.spec(name, version) for name, version in differing(context, packages).items()]
    actions = [f"install {' '.join(missing)}"] if missing else []
    free = sorted(set(hold) - set(context.held(hold)))
    return [*actions, f"hold {' '.join(free)}"] if free else actions


def package_set(context: Context, packages: Mapping[str, str | None], hold: Sequence[str], before: Sequence[str] = (), otherwise: str = "") -> dict[str, Any]:
    """What the role package_set reads: packages as the package manager takes them, and what holds them.

    ``before`` must be there when the others are installed: apt configures it in time, rpm orders a transaction only by what packages require, so dnf installs
    it in one of its own. ``otherwise`` says what it means when that cannot be done.

    apt holds what is installed. dnf's versionlock also says beforehand which versions may be installed, so of what an area does not install itself (libraries
    that come along) only what is already at the planned upstream version is locked: the old lock of another would stop the transaction.
    """
    install = [context.packaging.spec(name, version) for name, version in packages.items()]
    if context.manager != "dnf":
        return {"manager": context.manager, "install": [*before, *install], "hold": list(hold)}
    planned = {context.order.upstream(version) for name in hold if (version := packages.get(name)) is not None}
    versions = {name: packages.get(name) or context.installed(name) for name in hold}
    lines = [versionlock.line(name, version) for name, version in versions.items() if version is not None and context.order.upstream(version) in planned]
    first = {"before": {"packages": list(before), "otherwise": otherwise}} if before else {}
    return {"manager": "dnf", **first, "install": install, "hold": list(hold), "lock": {"package": context.lock_package, "lines": lines}}


def packages_state(context: Context, packages: Mapping[str, str | None]) -> tuple[dict[str, str | None], dict[str, str | None]]:
    """(target, actual) versions; a package without a wanted version only has to be there."""
    actual = {name: context.installed(name) for name in packages}
    target = {name: actual[name] if version is None and actual[name] is not None else version or "any" for name, version in packages.items()}
    return target, actual


def names_only(packages: Sequence[str], desired: Mapping[str, Any], reasons: list[Reason], warnings: list[str]) -> AreaPlan:
    """An area on a host whose package manager the roles cannot work with: what it would be, and nobody looks whether it is."""
    return AreaPlan(
        desired={**desired, "install": list(packages)},
        target={"packages": dict.fromkeys(packages, "any")},
        actual=UNKNOWN,
        reasons=reasons,
        warnings=warnings,
        actions=[f"install {' '.join(packages)}"],
    )


def file_actions(context: Context, specs: Sequence[FileSpec]) -> list[str]:
    return [f"write {spec.path}" for spec in specs if context.file_state(spec) != "as planned"]


def files_state(context: Context, specs: Sequence[FileSpec]) -> tuple[dict[str, str], dict[str, str]]:
    """(target, actual) state of files that roles write whole."""
    return {spec.path: "as planned" for spec in specs}, {spec.path: context.file_state(spec) for spec in specs}


def who(holders: Sequence[Mapping[str, Any]], containers: Sequence[Mapping[str, Any]]) -> str:
    """Holders of GPUs in words, at most five."""
    seen: dict[int, str] = {}
    for holder in holders:
        place = container_words(holder["container"], containers) if holder.get("container") else holder.get("unit")
        seen.setdefault(int(holder["pid"]), f"{holder['command']} (pid {holder['pid']}{f', {place}' if place else ''})")
    names = list(seen.values())
    return "; ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def unverified(what: str, entry: Table) -> list[str]:
    """The warning that a plan rests on an unverified fact."""
    sources = ", ".join(entry.get("source", []))
    return [] if entry.get("verified", True) else [f"{what} is not verified (source: {sources})."]
