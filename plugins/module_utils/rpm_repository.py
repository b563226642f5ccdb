# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""RPM repositories, read over HTTP without dnf: which versions of which packages they have, and in which module streams.

repomd.xml names the list of packages (``primary``) and, where a repository has module streams, their list (``modules``), with checksums; both are checked
against them. Signatures are not checked here (that takes a gpg, and is what dnf does before it installs anything): this reads, it does not trust.
Formats: https://rpm-software-management.github.io/createrepo_c/ and https://github.com/fedora-modularity/libmodulemd
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zlib
from typing import Iterator, NamedTuple, Sequence
from urllib.parse import urljoin
from xml.etree import ElementTree

from ansible_collections.rackready.gpu.plugins.module_utils import rpm_version
from ansible_collections.rackready.gpu.plugins.module_utils.repository import Fetch, FetchError, Index, RepositoryError, check, reach
from ansible_collections.rackready.gpu.plugins.module_utils.zstd import ZstdError, decompress

_REPO = "{http://linux.duke.edu/metadata/repo}"
_COMMON = "{http://linux.duke.edu/metadata/common}"
_RPM = "{http://linux.duke.edu/metadata/rpm}"
# Others are not trusted to say that a file is whole.
_CHECKSUMS = ("sha256", "sha512", "sha384", "sha224")


class Found(NamedTuple):
    """Versions of packages, oldest first, and the module streams that the repository has (``nvidia-driver:580-open``)."""

    packages: dict[str, list[str]]
    streams: list[str]


def read(fetch: Fetch, url: str, *, architecture: str, wanted: Sequence[str], streams: Sequence[str] = ()) -> Found:
    """Versions of the wanted packages. Of a package that any module has only those of ``streams`` count, as for dnf. Raises RepositoryError."""
    base = url.rstrip("/") + "/"
    listed = _records(fetch, base)
    if "primary" not in listed:
        raise RepositoryError(
            f"{base}repodata/repomd.xml lists no packages (primary, with a SHA-2 checksum): check that the address is an RPM repository and that no proxy "
            "answers for it."
        )
    packages = _package_versions(_get(fetch, base, listed["primary"]), base, wanted, architecture)
    if not streams or "modules" not in listed:
        return Found(packages, [])
    artifacts = parse_modules(_get(fetch, base, listed["modules"]).decode("utf-8", errors="replace"))
    modular = {name for packages_ in artifacts.values() for name, _version in packages_}
    asked = {package for stream in streams for package in artifacts.get(stream, ())}
    kept = {name: [version for version in versions if name not in modular or (name, version) in asked] for name, versions in packages.items()}
    return Found({name: versions for name, versions in kept.items() if versions}, sorted(artifacts))


def _records(fetch: Fetch, base: str) -> dict[str, Index]:
    url = urljoin(base, "repodata/repomd.xml")
    try:
        body = fetch(url)
    except FetchError as error:
        raise RepositoryError(f"{url} cannot be read ({error}): {reach(base)}") from error
    try:
        return parse_repomd(body)
    except ElementTree.ParseError as error:
        raise RepositoryError(f"{url} is no repomd.xml ({error}): check that the address is an RPM repository and that no proxy answers for it.") from error


def parse_repomd(body: bytes) -> dict[str, Index]:
    """Records by their type (primary, modules, ...); one without a checksum that can be trusted is left out. Raises ElementTree.ParseError."""
    records = {}
    for data in ElementTree.fromstring(body).iter(f"{_REPO}data"):
        location, checksum = data.find(f"{_REPO}location"), data.find(f"{_REPO}checksum")
        if location is None or checksum is None or checksum.get("type") not in _CHECKSUMS:
            continue
        size = data.findtext(f"{_REPO}size") or ""
        digest = (checksum.text or "").strip().lower()
        records[str(data.get("type"))] = Index(str(location.get("href")), int(size) if size.isdigit() else None, digest, str(checksum.get("type")))
    return records


def _get(fetch: Fetch, base: str, record: Index) -> bytes:
    url = urljoin(base, record.path)
    try:
        body = fetch(url)
    except FetchError as error:
        raise RepositoryError(f"{url} cannot be read ({error}): {reach(base)}") from error
    check(url, body, record, "repomd.xml")
    try:
        return _unpack(body, record.path)
    except (OSError, EOFError, zlib.error, lzma.LZMAError, ZstdError) as error:
        raise RepositoryError(f"{url} cannot be unpacked ({error}): tell who runs the repository.") from error


def _unpack(body: bytes, path: str) -> bytes:
    if path.endswith(".zst"):
        return decompress(body)
    if path.endswith(".xz"):
        return lzma.decompress(body)
    return gzip.decompress(body) if path.endswith(".gz") else body


def _package_versions(primary: bytes, base: str, wanted: Sequence[str], architecture: str) -> dict[str, list[str]]:
    try:
        return package_versions(primary, wanted, architecture)
    except (ElementTree.ParseError, ValueError) as error:
        raise RepositoryError(f"The list of packages of {base} cannot be read ({error}): tell who runs the repository.") from error


def package_versions(primary: bytes, wanted: Sequence[str], architecture: str) -> dict[str, list[str]]:
    """Versions of the wanted packages in primary.xml, oldest first. A name that no package has stands for what packages provide under it in one version."""
    names = set(wanted)
    found: dict[str, set[str]] = {}
    provided: dict[str, set[str]] = {}
    # One package at a time: the list of a whole distribution would take a gigabyte as a tree.
    packages = (element for _event, element in ElementTree.iterparse(io.BytesIO(primary)) if element.tag == f"{_COMMON}package")
    for package in packages:
        if package.get("type") == "rpm" and package.findtext(f"{_COMMON}arch") in (architecture, "noarch"):
            name, version = package.findtext(f"{_COMMON}name"), package.find(f"{_COMMON}version")
            if name in names and version is not None:
                found.setdefault(name, set()).add(_version(version))
            for entry in package.iterfind(f"{_COMMON}format/{_RPM}provides/{_RPM}entry"):
                if entry.get("name") in names and entry.get("flags") == "EQ":
                    provided.setdefault(str(entry.get("name")), set()).add(_version(entry))
        package.clear()
    return {name: sorted(versions, key=rpm_version.sort_key) for name, versions in {**provided, **found}.items()}


def _version(element: ElementTree.Element) -> str:
    return rpm_version.join(element.get("epoch"), str(element.get("ver")), element.get("rel"))


def parse_modules(text: str) -> dict[str, set[tuple[str, str]]]:
    """``module:stream`` to the packages (name, version) that it has, from modules.yaml.

    The Python of a host often has no PyYAML, and only three things of the file matter: the name and the stream of a document and the list under
    ``artifacts``, which have their places by their indentation (libmodulemd writes the file).
    """
    streams: dict[str, set[tuple[str, str]]] = {}
    for document in re.split(r"^---.*$", text, flags=re.MULTILINE):
        name, stream = _field(document, "name"), _field(document, "stream")
        if name and stream and re.search(r"^document: *modulemd *$", document, re.MULTILINE):
            streams.setdefault(f"{name}:{stream}", set()).update(_artifacts(document))
    return streams


def _field(document: str, name: str) -> str:
    match = re.search(rf'^  {name}: *("?)([^"\n#]*)\1 *$', document, re.MULTILINE)
    return match[2].strip().strip("'") if match else ""


def _artifacts(document: str) -> Iterator[tuple[str, str]]:
    inside = False
    for line in document.splitlines():
        text = line.strip()
        if not inside:
            inside = line.rstrip() == "  artifacts:"
        elif text.startswith("- "):
            match = re.fullmatch(r"(?P<name>.+)-(?:(?P<epoch>[0-9]+):)?(?P<version>[^-]+)-(?P<release>[^-]+)\.[^.-]+", text[2:].strip().strip("'\""))
            if match:
                yield match["name"], rpm_version.join(match["epoch"], match["version"], match["release"])
        elif text and not line.startswith("   "):
            return  # the next key of the document's data
