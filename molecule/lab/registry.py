# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Pushing an OCI image to the lab's registry, by the registry's HTTP API. No engine is involved, so none has to trust the lab."""

from __future__ import annotations

import http.client
import ssl
import urllib.parse
from pathlib import Path
from typing import Any

from .errors import LabError
from .names import REGISTRY_PORT, SERVICES_ADDRESS
from .oci import Blob, Blobs, Image


class Registry:
    def __init__(self, ca: Path, address: str = SERVICES_ADDRESS, port: int = REGISTRY_PORT) -> None:
        context = ssl.create_default_context(cafile=str(ca))
        self._connection = http.client.HTTPSConnection(address, port, context=context, timeout=120)
        self._where = f"{address}:{port}"

    def _request(self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
        try:
            self._connection.request(method, path, body=body, headers=headers or {})
            response = self._connection.getresponse()
            response.text = response.read().decode(errors="replace")  # type: ignore[attr-defined]
        except OSError as error:
            raise LabError(f"the lab's registry at {self._where} does not answer ({error}); see ./dev lab status") from error
        return response

    def _expect(self, status: int, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> http.client.HTTPResponse:
        response = self._request(method, path, body, headers)
        if response.status != status:
            raise LabError(f"the lab's registry answered {response.status} to {method} {path}: {response.text[:500]}")  # type: ignore[attr-defined]
        return response

    def push_blob(self, repository: str, blobs: Blobs, blob: Blob) -> None:
        if self._request("HEAD", f"/v2/{repository}/blobs/{blob.digest}").status == http.client.OK:
            return
        location = self._expect(202, "POST", f"/v2/{repository}/blobs/uploads/", headers={"Content-Length": "0"}).getheader("Location") or ""
        target = urllib.parse.urlsplit(location)
        query = f"{target.query}&{urllib.parse.urlencode({'digest': blob.digest})}"
        with blobs.path(blob).open("rb") as body:
            headers = {"Content-Length": str(blob.size), "Content-Type": "application/octet-stream"}
            self._expect(201, "PUT", f"{target.path}?{query}", body, headers)

    def push_manifest(self, repository: str, reference: str, blobs: Blobs, blob: Blob) -> None:
        self._expect(201, "PUT", f"/v2/{repository}/manifests/{reference}", blobs.path(blob).read_bytes(), {"Content-Type": blob.media_type})

    def push(self, repository: str, tag: str, blobs: Blobs, image: Image) -> None:
        """Layers first, the tag last: a push that was killed leaves no broken tag."""
        for blob in (*(layer.blob for layer in image.layers), image.config):
            self.push_blob(repository, blobs, blob)
        self.push_manifest(repository, image.manifest.digest, blobs, image.manifest)
        self.push_manifest(repository, tag, blobs, image.index)

    def digest(self, repository: str, tag: str) -> str | None:
        """What TAG names; None if there is no such tag."""
        response = self._request("HEAD", f"/v2/{repository}/manifests/{tag}", headers={"Accept": "application/vnd.oci.image.index.v1+json"})
        return response.getheader("Docker-Content-Digest") if response.status == http.client.OK else None
