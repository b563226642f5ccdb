# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Image registries, asked for manifests only: what a tag means, which platforms it has, how large they are.

Every manifest is hashed here and compared with the digest that it was asked by or that the registry says.
Protocol: https://github.com/opencontainers/distribution-spec/blob/main/spec.md and https://distribution.github.io/distribution/spec/auth/token/
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Callable, Mapping, NamedTuple
from urllib.parse import urlencode

from ansible_collections.rackready.gpu.plugins.module_utils.repository import reach

INDEX_TYPES = ("application/vnd.oci.image.index.v1+json", "application/vnd.docker.distribution.manifest.list.v2+json")
MANIFEST_TYPES = ("application/vnd.oci.image.manifest.v1+json", "application/vnd.docker.distribution.manifest.v2+json")
ACCEPT = ", ".join(INDEX_TYPES + MANIFEST_TYPES)

# The registry behind docker.io has another name.
HOSTS = {"docker.io": "registry-1.docker.io"}


class Response(NamedTuple):
    """An HTTP answer: status, headers with lower-case names, body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


Ask = Callable[[str, Mapping[str, str]], Response]
"""GET with request headers. Answers of every status are returned; raises AskError when there was no answer."""


class AskError(Exception):
    """No answer; the text says what happened, without the URL."""


class RegistryError(Exception):
    """An image cannot be used; the text is a sentence with the URL, what happened and what to do."""


class Reference(NamedTuple):
    """An image reference taken apart."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None


class Image(NamedTuple):
    """What a reference means now: the digest of what it names, and digest and compressed size of each Linux platform."""

    digest: str
    platforms: Mapping[str, Mapping[str, Any]]


def parse_reference(text: str) -> Reference:
    """Take a reference apart; without a registry it is docker.io's. Raises ValueError."""
    rest, _at, digest = text.partition("@")
    head, colon, tag = rest.rpartition(":")
    if not colon or "/" in tag:
        head, tag = rest, ""
    first, slash, path = head.partition("/")
    if not slash or not ("." in first or ":" in first or first == "localhost"):
        first, path = "docker.io", head if slash else f"library/{head}"
    if not path or not (tag or digest) or (digest and not re.match(r"^sha256:[0-9a-f]{64}$", digest)):
        raise ValueError(f"{text!r} is not a full image reference such as nvcr.io/nvidia/pytorch:26.07-py3")
    return Reference(first, path, tag or None, digest or None)


class Registry:
    """One registry; keeps the anonymous tokens that it was given."""

    def __init__(self, ask: Ask, insecure: bool = False) -> None:
        self._ask = ask
        self._scheme = "http" if insecure else "https"
        self._tokens: dict[str, str] = {}

    def resolve(self, reference: Reference, expected: str | None = None) -> Image:
        """What the reference means; with ``expected`` that digest is asked for and must be there. Raises RegistryError."""
        wanted = expected or reference.digest
        url, body, digest = self._manifest(reference, wanted or str(reference.tag), wanted)
        manifest = _json(url, body)
        kind = str(manifest.get("mediaType") or "")
        if kind in INDEX_TYPES or "manifests" in manifest:
            platforms = self._platforms(reference, url, manifest)
        elif kind in MANIFEST_TYPES or "layers" in manifest:
            platforms = {self._platform_of(reference, url, manifest): {"digest": digest, "size_bytes": _size(manifest)}}
        else:
            raise RegistryError(f"{url} is of type {kind or 'unknown'}, which is no image: check the reference.")
        if not platforms:
            raise RegistryError(f"{url} has no Linux image: check the reference.")
        return Image(digest, platforms)

    def _platforms(self, reference: Reference, url: str, index: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        platforms: dict[str, dict[str, Any]] = {}
        for entry in index.get("manifests") or []:
            platform = entry.get("platform") or {}
            name = f"{platform.get('os')}/{platform.get('architecture')}"
            if name not in ("linux/amd64", "linux/arm64") or name in platforms:
                continue  # attestations and platforms that no GPU server has
            digest = str(entry.get("digest"))
            inner_url, body, _digest = self._manifest(reference, digest, digest)
            platforms[name] = {"digest": digest, "size_bytes": _size(_json(inner_url, body))}
        return platforms

    def _platform_of(self, reference: Reference, url: str, manifest: Mapping[str, Any]) -> str:
        """A single manifest does not say its platform; its configuration does."""
        digest = str((manifest.get("config") or {}).get("digest"))
        config_url = f"{self._base(reference)}/blobs/{digest}"
        body = self._get(reference, config_url, "*/*").body
        _check(config_url, body, digest)
        config = _json(config_url, body)
        return f"{config.get('os')}/{config.get('architecture')}"

    def _base(self, reference: Reference) -> str:
        return f"{self._scheme}://{HOSTS.get(reference.registry, reference.registry)}/v2/{reference.repository}"

    def _manifest(self, reference: Reference, name: str, expected: str | None) -> tuple[str, bytes, str]:
        url = f"{self._base(reference)}/manifests/{name}"
        response = self._get(reference, url, ACCEPT)
        digest = f"sha256:{hashlib.sha256(response.body).hexdigest()}"
        _check(url, response.body, expected or response.headers.get("docker-content-digest") or digest)
        return url, response.body, digest

    def _get(self, reference: Reference, url: str, accept: str) -> Response:
        headers = {"Accept": accept}
        token = self._tokens.get(reference.repository)
        if token:
            headers["Authorization"] = f"Bearer {token}"
        response = self._try(url, headers)
        if response.status == 401 and not token:
            self._tokens[reference.repository] = self._token(reference, url, response)
            headers["Authorization"] = f"Bearer {self._tokens[reference.repository]}"
            response = self._try(url, headers)
        if response.status == 200:
            return response
        raise RegistryError(_status_sentence(url, response))

    def _try(self, url: str, headers: Mapping[str, str]) -> Response:
        try:
            return self._ask(url, headers)
        except AskError as error:
            raise RegistryError(f"{url} cannot be read ({error}): {reach(url, 'rackready_mirror.images')}") from error

    def _token(self, reference: Reference, url: str, response: Response) -> str:
        """An anonymous token for pulling, from where the challenge says."""
        challenge = response.headers.get("www-authenticate", "")
        fields = dict(re.findall(r'(\w+)="([^"]*)"', challenge))
        if not challenge.lower().startswith("bearer ") or "realm" not in fields:
            raise RegistryError(
                f"{url} wants a login ({challenge or 'without saying which'}), but only anonymous pulls are asked for: "
                "use a mirror that allows them (rackready_mirror.images)."
            )
        query = {"scope": fields.get("scope") or f"repository:{reference.repository}:pull"}
        if "service" in fields:
            query["service"] = fields["service"]
        realm = f"{fields['realm']}?{urlencode(query)}"
        answer = self._try(realm, {"Accept": "application/json"})
        if answer.status != 200:
            raise RegistryError(_status_sentence(realm, answer))
        content = _json(realm, answer.body)
        token = content.get("token") or content.get("access_token")
        if not token:
            raise RegistryError(f"{realm} gave no token: check whether the image may be pulled without a login.")
        return str(token)


def _size(manifest: Mapping[str, Any]) -> int:
    """Bytes that a pull transfers: layers and configuration."""
    layers = [*(manifest.get("layers") or []), manifest.get("config") or {}]
    return sum(int(layer.get("size") or 0) for layer in layers)


def _check(url: str, body: bytes, digest: str) -> None:
    found = f"sha256:{hashlib.sha256(body).hexdigest()}"
    if found != digest:
        raise RegistryError(
            f"{url} has the digest {found} instead of {digest}: something between here and the registry changed it, or the registry is damaged; do not use it."
        )


def _json(url: str, body: bytes) -> dict[str, Any]:
    try:
        content = json.loads(body.decode("utf-8"))
    except ValueError as error:
        raise RegistryError(f"{url} did not answer with JSON ({error}): check that the address is a registry and no proxy answers for it.") from error
    if not isinstance(content, dict):
        raise RegistryError(f"{url} did not answer with a JSON object: check that the address is a registry.")
    return content


_LOCKED_AND_GONE = (
    "this registry does not have the image that is locked, as it was removed there or the lock was written for another registry or mirror: run "
    "playbooks/pin.yml, which locks what its tag means now, or have that image put back"
)
_NO_SUCH_TAG = "there is no such image: check its name and tag (pytorch_image_ref), or with a mirror (rackready_mirror.images) whether that has it"


def _status_sentence(url: str, response: Response) -> str:
    what = {
        401: "the registry wants a login, and some want one for an image that does not exist: check the name, then use a public image or a mirror that "
        "allows anonymous pulls (rackready_mirror.images)",
        403: "the registry forbids it: use a public image or a mirror that allows anonymous pulls (rackready_mirror.images)",
        404: _LOCKED_AND_GONE if "@sha256:" in url.replace("/manifests/", "@") else _NO_SUCH_TAG,
        429: "the registry limits anonymous pulls and the limit is reached: wait, or use a mirror",
    }.get(response.status, "try again, then ask who runs the registry")
    said = response.body[:200].decode("utf-8", errors="replace").strip()
    return f"{url} answered {response.status}{f' ({said})' if said else ''}, {what}."
