# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The lock: what a fleet asks for, turned into questions, and the answers turned into exact versions and digests. Pure; stack_sources does the asking."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog, Table
from ansible_collections.rackready.gpu.plugins.plugin_utils.managers import MANAGERS, VersionOrder
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import (
    Repository,
    VersionRule,
    docker_shipped,
    driver_rule,
    driver_stream,
    full_reference,
    in_branch,
    provisioned,
    repository,
    split_reference,
    toolkit_version,
)
from ansible_collections.rackready.gpu.plugins.plugin_utils.request import Request
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import branch

HEADER = """\
---
# Written by playbooks/pin.yml: what tags and version rules meant at that time. Do not edit; keep it under version control.
"""


@dataclass
class Need:
    """One repository of the fleet and the rules for its packages; several releases give several rules for one package."""

    repository: Repository
    rules: dict[str, set[VersionRule]] = field(default_factory=dict)
    required: set[str] = field(default_factory=set)
    """Packages without which a host cannot be; of the others (the other flavour's kernel modules, parts of fabrics) a plan that needs one refuses."""
    streams: set[str] = field(default_factory=set)
    """Module streams of which one has the packages that some host needs."""

    @property
    def order(self) -> VersionOrder:
        return MANAGERS[self.repository.manager].order


def _installable(catalog: Catalog) -> list[tuple[str, Table]]:
    return [(name, entry) for name, entry in catalog.distributions.items() if provisioned(entry)]


@dataclass
class Needs:
    """Everything that a fleet asks for. Repositories by their key in the lock, images by reference as asked for."""

    repositories: dict[str, Need] = field(default_factory=dict)
    images: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, host: str, request: Request, catalog: Catalog, cell: str) -> None:
        """Add what one host asks for; ``cell`` is its ``distribution/architecture``."""
        distribution, _slash, architecture = cell.partition("/")
        known = catalog.distributions.get(distribution)
        if known is None or architecture not in known["architectures"]:
            names = ", ".join(f"{name}/{arch}" for name, entry in _installable(catalog) for arch in entry["architectures"])
            self.problems.append(f"{host}: {cell} is not supported, so nothing can be locked for it: use one of {names}.")
            return
        release = catalog.releases[request.release]
        manager = known["package_manager"]
        if not provisioned(known):
            why = known["refused"]["what"] if "refused" in known else f"is installed with {manager}, which rackready cannot do yet"
            self.problems.append(f"{host}: {known['name']} {why}: nothing is locked for {cell}.")
            return
        rule = driver_rule(request, release)
        wanted_branch = branch(rule.exact) if rule.exact is not None else str(rule.branch)
        drivers = catalog.driver_cell(distribution, architecture, wanted_branch)
        if drivers is None:
            self.problems.append(f"{host}: the catalog has no driver packages of branch {wanted_branch} for {cell}: use another release or branch.")
            return
        wanted, required = _packages(request, catalog, distribution, drivers)
        for (name, package), package_rule in wanted.items():
            place = repository(catalog, request, name, distribution, architecture)
            if place is None:
                self.problems.append(f"{host}: the repository {name} has nothing known for {cell}, so {package} cannot be locked.")
                continue
            need = self.repositories.setdefault(f"{name}/{cell}", Need(place))
            if need.repository != place:
                self.problems.append(
                    f"{host}: {name} is at {place.url} here and at {need.repository.url} for another host: set one rackready_mirror for the fleet."
                )
            need.rules.setdefault(package, set()).add(package_rule)
            if (name, package) in required:
                need.required.add(package)
            if name == drivers["repository"]:
                need.streams |= _streams(drivers, wanted_branch)
        reference = full_reference(request.image_ref or str(release["image"]))
        taken = split_reference(reference)
        mirror = request.mirror_images.get(taken.registry, taken.registry)
        suffix = reference[len(taken.name) :]
        self.images[reference] = f"{mirror}/{taken.repository}{suffix}"

    def questions(self) -> dict[str, Any]:
        """Options for stack_sources. No version is demanded here: which one fits is decided from the answer."""
        return {
            "repositories": [
                {
                    **need.repository.question(dict.fromkeys(sorted(need.required)), sorted(need.streams)),
                    "optional": sorted(need.rules.keys() - need.required),
                    "name": key,
                    "key_url": need.repository.key_url,
                    "fingerprint": need.repository.fingerprint,
                }
                for key, need in sorted(self.repositories.items())
            ],
            "images": [{"ref": ref} for ref in sorted(set(self.images.values()))],
        }


def _packages(request: Request, catalog: Catalog, distribution: str, drivers: Table) -> tuple[dict[tuple[str, str], VersionRule], set[tuple[str, str]]]:
    """Packages, as (repository, name), with their rules, and those without which a host cannot be.

    Every flavour and fabric: which of them a host needs is known only once it stands in the rack.
    """
    release, manager = catalog.releases[request.release], catalog.distributions[distribution]["package_manager"]
    rule = driver_rule(request, release)
    wanted_branch = branch(rule.exact) if rule.exact is not None else str(rule.branch)
    flavour = request.driver_flavour or release["driver"].get("flavour") or "open"
    surely = {(drivers["repository"], name): rule for name in in_branch(drivers["flavours"].get(flavour, []), wanted_branch)}
    build = drivers.get("build", {"repository": None, "packages": []})
    surely |= {(build["repository"], name): VersionRule() for name in build["packages"]}
    toolkit = toolkit_version(request, release)
    surely |= {(catalog.toolkit["repository"], name): VersionRule(exact=toolkit) for name in catalog.toolkit["packages"][manager]}
    if request.docker_source == "docker" or docker_shipped(catalog, distribution, toolkit) is None:
        docker = catalog.docker["docker"]
        surely |= {(docker["repository"], name): VersionRule() for name in docker["packages"][manager]}
    wanted = {(drivers["repository"], name): rule for names in drivers["flavours"].values() for name in in_branch(names, wanted_branch)}
    fabrics = catalog.fabric_cell(distribution, drivers["repository"], wanted_branch)
    for part in sorted({part for fabric in catalog.fabrics.values() for part in fabric["parts"]} & set(fabrics["parts"] if fabrics else {})):
        entry = fabrics["parts"][part] if fabrics else {}
        if entry["version"] is not None:
            wanted[drivers["repository"], entry["name"].format(branch=wanted_branch)] = rule if entry["version"] == "driver" else VersionRule()
    return {**wanted, **surely}, set(surely)


def _streams(drivers: Table, wanted_branch: str) -> set[str]:
    """Module streams of all flavours of a branch, as dnf writes them."""
    streams = (driver_stream(drivers, flavour, wanted_branch) for flavour in drivers["flavours"])
    return {":".join(stream) for stream in streams if stream is not None}


def lock(needs: Needs, answers: Mapping[str, Any], written_at: str) -> tuple[dict[str, Any], list[str]]:
    """The lock, and problems: rules that no version fits. Raises nothing; a lock with problems must not be written."""
    problems: list[str] = []
    repositories: dict[str, Any] = {}
    told = {entry["name"]: entry for entry in answers["repositories"]}
    for key, need in sorted(needs.repositories.items()):
        answer = told[key]
        packages = {}
        for package in sorted(need.rules):
            versions, missing = _choose(need.rules[package], answer["packages"].get(package, []), need.order)
            if versions:
                packages[package] = versions
            for rule in missing:
                if package not in need.required:
                    continue
                has = answer["packages"].get(package) or []
                known = f"its newest is {has[-1]}" if has else "it has none"
                problems.append(f"{need.repository.url} has no {package} that is {rule} ({known}): check release and overrides, or the mirror.")
        repositories[key] = {"url": need.repository.url, "key": answer["key"], "key_sha256": answer["key_sha256"], "packages": packages}
    images = {}
    resolved = {entry["ref"]: entry for entry in answers["images"]}
    for asked, ref in sorted(needs.images.items()):
        entry = resolved[ref]
        images[asked] = {"index": entry["index"], "platforms": {name: entry["platforms"][name] for name in sorted(entry["platforms"])}}
    # written_at is last and required, so that a file of which the end is missing is never taken for a whole one.
    return {"schema": 1, "images": images, "repositories": repositories, "written_at": written_at}, problems


def _choose(rules: Iterable[VersionRule], versions: list[str], order: VersionOrder) -> tuple[list[str], list[VersionRule]]:
    """The newest version for each rule, and the rules that no version fits."""
    chosen, missing = [], []
    for rule in sorted(rules, key=str):
        newest = rule.newest_package(versions, order)
        if newest is None:
            missing.append(rule)
        else:
            chosen.append(newest)
    return [version for version in versions if version in chosen], missing


def same(old: Mapping[str, Any] | None, new: Mapping[str, Any]) -> bool:
    """Whether two locks say the same, the time of writing aside."""
    return old is not None and {**old, "written_at": ""} == {**new, "written_at": ""}


def render(content: Mapping[str, Any]) -> str:
    """The lock as the text of a variables file."""
    return HEADER + yaml.dump({"rackready_lock": dict(content)}, Dumper=_Dumper, sort_keys=False, width=200)


class _Dumper(yaml.SafeDumper):
    """Keys as readable blocks, no references between equal parts, lists indented as the linters of a site want them."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _text)
