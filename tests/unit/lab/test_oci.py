# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import gzip
import hashlib
import io
import json
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from lab.oci import INDEX, LAYER, MANIFEST, Blobs


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=5000))
def test_a_layer_is_named_by_its_packed_and_its_plain_bytes(tmp_path: Path, data: bytes) -> None:
    blobs = Blobs(tmp_path)
    layer = blobs.add_layer(io.BytesIO(data))
    packed = blobs.path(layer.blob).read_bytes()
    assert gzip.decompress(packed) == data
    assert layer.blob.digest == f"sha256:{hashlib.sha256(packed).hexdigest()}"
    assert layer.blob.size == len(packed)
    assert layer.diff_id == f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_index_leads_to_manifest_to_configuration_and_layers(tmp_path: Path) -> None:
    blobs = Blobs(tmp_path)
    layers = [blobs.add_layer(io.BytesIO(data)) for data in (b"lower", b"upper")]
    image = blobs.image(layers, {"A": "1"}, {"b": "2"}, ["python3"])

    index = json.loads(blobs.path(image.index).read_bytes())
    assert (index["mediaType"], len(index["manifests"])) == (INDEX, 1)
    assert index["manifests"][0]["platform"] == {"architecture": "amd64", "os": "linux"}
    assert index["manifests"][0]["digest"] == image.manifest.digest

    manifest = json.loads(blobs.path(image.manifest).read_bytes())
    assert manifest["mediaType"] == MANIFEST
    assert [layer["digest"] for layer in manifest["layers"]] == [layer.blob.digest for layer in layers]
    assert {layer["mediaType"] for layer in manifest["layers"]} == {LAYER}
    assert manifest["config"]["size"] == blobs.path(image.config).stat().st_size

    config = json.loads(blobs.path(image.config).read_bytes())
    assert config["rootfs"]["diff_ids"] == [layer.diff_id for layer in layers]
    assert config["config"] == {"Env": ["A=1"], "Cmd": ["python3"], "Labels": {"b": "2"}, "WorkingDir": "/"}


def test_the_same_contents_have_the_same_digest(tmp_path: Path) -> None:
    digests = set()
    for name in ("first", "second"):
        blobs = Blobs(tmp_path / name)
        digests.add(blobs.image([blobs.add_layer(io.BytesIO(b"root"))], {}, {}, []).index.digest)
    assert len(digests) == 1
