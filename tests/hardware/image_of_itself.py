#!/usr/bin/env python3
# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""This machine's own file system as an image, an OCI layout in a folder for ``tar -C FOLDER -c . | docker load``.

    python3 tests/hardware/image_of_itself.py FOLDER NAME:TAG PATH_OF_THE_IMAGE < LIST

LIST has tar's arguments for what goes in, one a line, below /. The layer is not compressed: ``docker import`` would spend eight minutes on that.
https://github.com/opencontainers/image-spec/blob/main/image-layout.md
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

CHUNK = 16 * 1024 * 1024


def blob(folder: Path, data: object) -> dict[str, object]:
    """Write JSON as a blob; digest and size as descriptors have them."""
    body = json.dumps(data).encode()
    digest = hashlib.sha256(body).hexdigest()
    (folder / digest).write_bytes(body)
    return {"digest": f"sha256:{digest}", "size": len(body)}


def layer(folder: Path, arguments: list[str]) -> dict[str, object]:
    """Write what tar packs as a blob."""
    digest, size, scratch = hashlib.sha256(), 0, folder / "layer"
    with subprocess.Popen(["tar", "-C", "/", "-c", "--one-file-system", *arguments], stdout=subprocess.PIPE) as tar, scratch.open("wb") as out:
        assert tar.stdout is not None
        while data := tar.stdout.read(CHUNK):
            digest.update(data)
            out.write(data)
            size += len(data)
    # 1: a file changed while it was read, such as a log.
    if tar.returncode > 1:
        raise SystemExit(f"tar ended with status {tar.returncode}")
    scratch.rename(folder / digest.hexdigest())
    return {"digest": f"sha256:{digest.hexdigest()}", "size": size}


def main(folder: str, name: str, path: str) -> None:
    place = Path(folder)
    blobs = place / "blobs/sha256"
    blobs.mkdir(parents=True)
    packed = layer(blobs, sys.stdin.read().splitlines())
    config = blob(
        blobs, {"architecture": "amd64", "os": "linux", "config": {"Env": [f"PATH={path}"]}, "rootfs": {"type": "layers", "diff_ids": [packed["digest"]]}}
    )
    kinds = "application/vnd.oci.image."
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{kinds}manifest.v1+json",
        "config": {"mediaType": f"{kinds}config.v1+json", **config},
        "layers": [{"mediaType": f"{kinds}layer.v1.tar", **packed}],
    }
    entry = {"mediaType": manifest["mediaType"], **blob(blobs, manifest), "annotations": {"io.containerd.image.name": f"docker.io/library/{name}"}}
    (place / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))
    (place / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


if __name__ == "__main__":
    main(*sys.argv[1:])
