# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Repositories and images together: what they have, and one sentence for everything that is missing."""

from __future__ import annotations

import hashlib
from typing import Any, Mapping, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils import pgp_key, registry, repository, rpm_repository, rpm_version


def look(
    host: str, repositories: Sequence[Mapping[str, Any]], images: Sequence[Mapping[str, Any]], fetch: repository.Fetch, ask: registry.Ask
) -> dict[str, Any]:
    """Look at everything, whatever fails on the way; returns ``problems``, ``repositories`` and ``images`` as stack_sources does.

    Each problem begins with ``host``, who looked, and is one line whatever a server answered.
    """
    problems: list[str] = []
    found_repositories = [_repository(entry, fetch, problems) for entry in repositories]
    _missing_packages(repositories, found_repositories, problems)
    found_images = [image for entry in images if (image := _image(entry, ask, problems)) is not None]
    return {
        "problems": [f"{host}: {' '.join(problem.split())}" for problem in problems],
        "repositories": [{key: value for key, value in found.items() if key not in ("read", "streams")} for found in found_repositories],
        "images": found_images,
    }


def _repository(entry: Mapping[str, Any], fetch: repository.Fetch, problems: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": entry["name"], "url": entry["url"], "packages": {}, "key": None, "key_sha256": None, "read": False, "streams": None}
    try:
        found["packages"], found["streams"] = _packages(entry, fetch)
        found["read"] = True
    except repository.RepositoryError as error:
        problems.append(str(error))
    if entry.get("key_url"):
        _key(entry, fetch, found, problems)
    return found


def _packages(entry: Mapping[str, Any], fetch: repository.Fetch) -> tuple[dict[str, list[str]], list[str] | None]:
    """Versions of the packages, and the module streams of an RPM repository that has any."""
    wanted = [*(entry.get("packages") or {}), *(entry.get("optional") or [])]
    if entry.get("type") == "rpm":
        rpms = rpm_repository.read(fetch, entry["url"], architecture=entry["architecture"], wanted=wanted, streams=entry.get("streams") or [])
        return rpms.packages, rpms.streams or None
    debs = repository.read(
        fetch,
        entry["url"],
        suites=entry["suites"],
        components=entry.get("components") or [],
        architecture=entry.get("architecture") or "amd64",
        wanted=wanted,
    )
    return debs, None


def _key(entry: Mapping[str, Any], fetch: repository.Fetch, found: dict[str, Any], problems: list[str]) -> None:
    url = entry["key_url"]
    try:
        armored = pgp_key.armor(fetch(url))
    except repository.FetchError as error:
        problems.append(f"{url}, the key of {entry['name']}, cannot be read ({error}): {repository.reach(url)}")
        return
    except ValueError as error:
        problems.append(f"{url} is not the key of {entry['name']} ({error}): check the address and that no proxy answers for it.")
        return
    wanted = entry.get("fingerprint")
    actual = pgp_key.fingerprint(armored)
    if wanted and actual != wanted.upper():
        problems.append(f"{url} has the fingerprint {actual} instead of {wanted}: the key was changed; do not use it before the vendor has announced that.")
        return
    found["key"] = armored
    found["key_sha256"] = hashlib.sha256(armored.encode("utf-8")).hexdigest()


def _missing_packages(asked: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]], problems: list[str]) -> None:
    """A package must be in one of the entries of its source; sources that could not be read have a problem already."""
    for name in dict.fromkeys(str(entry["name"]) for entry in asked):
        mine = [entry for entry in found if entry["name"] == name]
        if not all(entry["read"] for entry in mine):
            continue
        hint = next((str(entry["hint"]) for entry in asked if entry["name"] == name and entry.get("hint")), None)
        where = " and ".join(dict.fromkeys(str(entry["url"]) for entry in mine))
        streams = _lacking_streams([entry for entry in asked if entry["name"] == name], mine)
        wanted = {package: version for entry in asked if entry["name"] == name for package, version in (entry.get("packages") or {}).items()}
        for package, version in wanted.items():
            versions = [known for entry in mine for known in entry["packages"].get(package, [])]
            if not versions:
                remedy = hint or "it left the repository or has another name there; check the release and run playbooks/pin.yml"
                problems.append(f"{where} has no package {package}{streams}: {remedy}.")
            elif version is not None and not any(_same(version, known, asked, name) for known in versions):
                remedy = hint or "it left the repository; run playbooks/pin.yml or use a mirror that keeps it (rackready_mirror.packages)"
                problems.append(f"{where} has no {package} {version} (its newest is {versions[-1]}): {remedy}.")


def _same(version: str, known: str, asked: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether two versions are one. rpm has several ways to write one (its separators are all alike), dpkg would look for exactly what is asked for."""
    if version == known:
        return True
    rpm = any(entry["name"] == name and entry.get("type") == "rpm" for entry in asked)
    return rpm and rpm_version.compare(version, known) == 0


def _lacking_streams(asked: Sequence[Mapping[str, Any]], found: Sequence[Mapping[str, Any]]) -> str:
    """In words, which module streams a source with streams lacks: the packages may be there and yet dnf would not see them."""
    there = {stream for entry in found for stream in entry["streams"] or []}
    lacking = sorted({stream for entry in asked for stream in entry.get("streams") or []} - there) if there else []
    if not lacking:
        return ""
    modules = {stream.partition(":")[0] for stream in lacking}
    known = ", ".join(sorted(stream for stream in there if stream.partition(":")[0] in modules)) or "none of it"
    return f" and no module stream {' or '.join(lacking)} (it has {known})"


def _image(entry: Mapping[str, Any], ask: registry.Ask, problems: list[str]) -> dict[str, Any] | None:
    try:
        reference = registry.parse_reference(entry["ref"])
        image = registry.Registry(ask, bool(entry.get("insecure"))).resolve(reference, entry.get("digest"))
    except ValueError as error:
        problems.append(f"{error}: correct pytorch_image_ref.")
        return None
    except registry.RegistryError as error:
        problems.append(str(error))
        return None
    return {"ref": entry["ref"], "index": image.digest, "platforms": {name: dict(platform) for name, platform in image.platforms.items()}}
