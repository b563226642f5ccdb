# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""apt repositories, read over HTTP without apt: which versions of which packages they have.

Release names the index of each component and architecture with its size and SHA-256; every index is checked against them. The signature of Release is
not checked here (that takes a gpg, and is what apt does before it installs anything): this reads, it does not trust.
Format: https://wiki.debian.org/DebianRepository/Format
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import posixpath
from typing import Callable, Iterator, Mapping, NamedTuple, Sequence
from urllib.parse import urljoin

from ansible_collections.rackready.gpu.plugins.module_utils import deb_version

Fetch = Callable[[str], bytes]
"""Gets the body of an URL; raises FetchError."""

# Smallest first; the plain file is the last resort of old repositories.
COMPRESSIONS = (".xz", ".gz", "")


class FetchError(Exception):
    """An URL could not be read; the text says what happened, without the URL."""


class RepositoryError(Exception):
    """A repository could not be read; the text is a sentence with the URL, what happened and what to do."""


class Index(NamedTuple):
    """An index file as Release or repomd.xml lists it; ``size`` is None where none is listed."""

    path: str
    size: int | None
    digest: str
    algorithm: str = "sha256"


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """The paragraphs of a deb822 text; a folded field keeps its line breaks."""
    fields: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        if not line.strip():
            if fields:
                yield fields
            fields, name = {}, ""
        elif line[0] in " \t":
            if name:
                fields[name] += "\n" + line.strip()
        elif not line.startswith("#"):
            name, _colon, value = line.partition(":")
            fields[name] = value.strip()
    if fields:
        yield fields


def signed_text(text: str) -> str:
    """The text inside the signature of an InRelease file (RFC 4880, cleartext signature); any other text is returned as it is."""
    if not text.startswith("-----BEGIN PGP SIGNED MESSAGE-----"):
        return text
    body = text.split("\n\n", 1)[1] if "\n\n" in text else ""
    lines = body.split("\n-----BEGIN PGP SIGNATURE-----", 1)[0].split("\n")
    return "\n".join(line[2:] if line.startswith("- ") else line for line in lines) + "\n"


def indexes(release: str) -> dict[str, Index]:
    """Path to index file, from the SHA256 field of a Release text."""
    found: dict[str, Index] = {}
    for fields in stanzas(signed_text(release)):
        for line in fields.get("SHA256", "").splitlines():
            parts = line.split()
            if len(parts) == 3 and parts[1].isdigit():
                path = posixpath.normpath(parts[2])
                found[path] = Index(path, int(parts[1]), parts[0].lower())
        break
    return found


def package_versions(packages: str, wanted: Sequence[str], architecture: str) -> dict[str, list[str]]:
    """Versions of the wanted packages in the text of a Packages file, oldest first."""
    versions: dict[str, set[str]] = {}
    names = set(wanted)
    for fields in stanzas(packages):
        name = fields.get("Package", "")
        if name in names and fields.get("Architecture") in (architecture, "all") and fields.get("Version"):
            versions.setdefault(name, set()).add(fields["Version"])
    return {name: sorted(found, key=deb_version.sort_key) for name, found in versions.items()}


def read(fetch: Fetch, url: str, *, suites: Sequence[str], components: Sequence[str], architecture: str, wanted: Sequence[str]) -> dict[str, list[str]]:
    """Versions of the wanted packages in all suites and components; a suite that ends in / is flat. Raises RepositoryError."""
    found: dict[str, set[str]] = {}
    base = url.rstrip("/") + "/"
    for suite in suites:
        flat = suite.endswith("/")
        place = urljoin(base, suite.lstrip("/") if flat else f"dists/{suite}/")
        listed = _release(fetch, place)
        for directory in [""] if flat else [f"{component}/binary-{architecture}/" for component in components]:
            text = _packages(fetch, place, listed, f"{directory}Packages")
            for name, versions in package_versions(text, wanted, architecture).items():
                found.setdefault(name, set()).update(versions)
    return {name: sorted(versions, key=deb_version.sort_key) for name, versions in found.items()}


def _release(fetch: Fetch, place: str) -> dict[str, Index]:
    try:
        body = fetch(urljoin(place, "InRelease"))
    except FetchError as error:
        try:
            body = fetch(urljoin(place, "Release"))
        except FetchError:
            raise RepositoryError(f"{place}InRelease cannot be read ({error}): {reach(place)}") from error
    listed = indexes(body.decode("utf-8", errors="replace"))
    if not listed:
        raise RepositoryError(
            f"{place}InRelease is no Release file (it lists no index with a SHA-256): check that the address is an apt repository and no proxy answers for it."
        )
    return listed


def _packages(fetch: Fetch, place: str, listed: Mapping[str, Index], name: str) -> str:
    candidates = [listed[name + suffix] for suffix in COMPRESSIONS if name + suffix in listed]
    if not candidates:
        raise RepositoryError(f"{place} has no {name}: the repository does not serve this component or architecture.")
    trouble: list[str] = []
    for index in candidates:
        url = urljoin(place, index.path)
        try:
            body = fetch(url)
        except FetchError as error:
            trouble.append(f"{url} cannot be read ({error})")
            continue
        check(url, body, index, "Release")
        try:
            return _unpack(body, index.path).decode("utf-8", errors="replace")
        except (OSError, EOFError, lzma.LZMAError) as error:
            raise RepositoryError(f"{url} cannot be unpacked ({error}): tell who runs the repository.") from error
    raise RepositoryError(f"{'; '.join(trouble)}: {reach(place)}")


def check(url: str, body: bytes, index: Index, listed_in: str) -> None:
    """Raise RepositoryError unless a file is the one that the repository lists."""
    found = hashlib.new(index.algorithm, body).hexdigest()
    if found != index.digest or index.size not in (None, len(body)):
        size = "" if index.size is None else f"{index.size} bytes, "
        raise RepositoryError(
            f"{url} is not the file that {listed_in} lists ({len(body)} bytes, {index.algorithm} {found}, instead of {size}{index.digest}): "
            "the repository or a mirror of it is being updated or damaged; try again, then tell who runs it."
        )


def _unpack(body: bytes, path: str) -> bytes:
    if path.endswith(".xz"):
        return lzma.decompress(body)
    return gzip.decompress(body) if path.endswith(".gz") else body


def reach(place: str, mirror: str = "rackready_mirror") -> str:
    """What to do when an address does not answer."""
    return f"check that this machine reaches {place.split('/')[2]} (its proxy is asked only if http_proxy or https_proxy is set for the task), or set {mirror}."
