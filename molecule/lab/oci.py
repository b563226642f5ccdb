# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Making an OCI image: an index, one manifest, a configuration and layers, as files named by their digest."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

INDEX = "application/vnd.oci.image.index.v1+json"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"

CHUNK = 1 << 20
# Fixed, so that the same contents have the same digest whenever they are built.
CREATED = "2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class Blob:
    media_type: str
    digest: str
    size: int  # bytes

    def descriptor(self) -> dict[str, Any]:
        return {"mediaType": self.media_type, "digest": self.digest, "size": self.size}


@dataclass(frozen=True)
class Layer:
    blob: Blob
    diff_id: str  # digest of the uncompressed tar


@dataclass(frozen=True)
class Image:
    index: Blob
    manifest: Blob
    config: Blob
    layers: tuple[Layer, ...]


class Blobs:
    """A folder of files named by their sha256."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def path(self, blob: Blob) -> Path:
        return self.folder / blob.digest.removeprefix("sha256:")

    def add_json(self, media_type: str, value: dict[str, Any]) -> Blob:
        data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        blob = Blob(media_type, f"sha256:{hashlib.sha256(data).hexdigest()}", len(data))
        self.path(blob).write_bytes(data)
        return blob

    def add_layer(self, tar: BinaryIO) -> Layer:
        """Compress a tar stream into a layer."""
        plain, packed, size = hashlib.sha256(), hashlib.sha256(), 0
        # gzip without time stamp or name; level 1, since the layer is read again on this machine in a moment.
        compressor = zlib.compressobj(level=1, wbits=31)
        part = self.folder / "layer.part"
        with part.open("wb") as out:
            while True:
                chunk = tar.read(CHUNK)
                plain.update(chunk)
                data = compressor.compress(chunk) if chunk else compressor.flush()
                packed.update(data)
                size += out.write(data)
                if not chunk:
                    break
        blob = Blob(LAYER, f"sha256:{packed.hexdigest()}", size)
        part.rename(self.path(blob))
        return Layer(blob, f"sha256:{plain.hexdigest()}")

    def image(self, layers: Sequence[Layer], environment: dict[str, str], labels: dict[str, str], command: Sequence[str]) -> Image:
        """A linux/amd64 image of LAYERS, lowest first, behind an index as published images have one."""
        config = self.add_json(
            CONFIG,
            {
                "architecture": "amd64",
                "os": "linux",
                "created": CREATED,
                "config": {"Env": [f"{name}={value}" for name, value in environment.items()], "Cmd": list(command), "Labels": labels, "WorkingDir": "/"},
                "rootfs": {"type": "layers", "diff_ids": [layer.diff_id for layer in layers]},
                "history": [{"created": CREATED, "created_by": "rackready lab"} for _ in layers],
            },
        )
        manifest = self.add_json(
            MANIFEST,
            {"schemaVersion": 2, "mediaType": MANIFEST, "config": config.descriptor(), "layers": [layer.blob.descriptor() for layer in layers]},
        )
        index = self.add_json(
            INDEX,
            {
                "schemaVersion": 2,
                "mediaType": INDEX,
                "manifests": [{**manifest.descriptor(), "platform": {"architecture": "amd64", "os": "linux"}}],
            },
        )
        return Image(index, manifest, config, tuple(layers))
