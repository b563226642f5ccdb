# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from gpu_host.sim import board, ctk, mig, smi_text
from gpu_host.sim.state import fresh, mig_of

RECORDED = Path(__file__).parents[2] / "fixtures/h200/cdi.yaml"


@pytest.fixture(autouse=True)
def _nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    def node(path: str, root: Path) -> dict[str, Any]:
        return {"path": path, "major": 1, "minor": 3, "fileMode": 438, "permissions": "rwm"}

    monkeypatch.setattr(ctk, "device_node", node)


def spec(state: dict[str, Any], root: Path) -> dict[str, Any]:
    return ctk.spec(smi_text.view_of(state, "580.178.04", {}, lambda name: True, datetime(2026, 12, 1)), root)


def test_the_emitter_writes_the_recorded_layout() -> None:
    text = RECORDED.read_text(encoding="utf-8")
    document = yaml.safe_load(text)
    assert yaml.safe_load(ctk.yaml(document)) == document
    devices = {name: document[name] for name in ("cdiVersion", "kind", "devices")}
    assert text.startswith("---\n" + ctk.yaml(devices))


def test_each_gpu_has_an_index_and_a_uuid_and_all_has_every_node(tmp_path: Path) -> None:
    document = spec(fresh(board.load({"board": "hgx-h100-8", "gpus": 2}), []), tmp_path)
    assert [device["name"] for device in document["devices"]] == [
        *("0", "GPU-01000100-0000-0000-0000-000000000000", "1", "GPU-01000100-0000-0000-0000-000000000001", "all")
    ]
    assert [node["path"] for node in document["devices"][-1]["containerEdits"]["deviceNodes"]] == ["/dev/nvidia0", "/dev/nvidia1"]


def test_a_split_gpu_is_listed_by_its_parts(tmp_path: Path) -> None:
    state = fresh(board.load({"board": "hgx-h100-8", "gpus": 1}), [])
    held = mig_of(state, "0000:1a:00.0")
    held["current"] = True
    profile = mig.find_profile(mig.TABLES["H100-80GB"], "3g.40gb")
    mig.create_compute_instance(profile, mig.create_instance(mig.TABLES["H100-80GB"], held["instances"], profile, None), None)
    document = spec(state, tmp_path)
    assert [device["name"] for device in document["devices"]] == ["0:0", mig.device_uuid("GPU-01000100-0000-0000-0000-000000000000", 2, 0), "all"]
    paths = [node["path"] for node in document["devices"][0]["containerEdits"]["deviceNodes"]]
    assert paths == ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap21", "/dev/nvidia-caps/nvidia-cap22"]


def test_the_library_and_the_state_are_mounted_read_only(tmp_path: Path) -> None:
    for path in ("usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04", "usr/bin/nvidia-smi", "run/gpu-host-sim/state.json"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    document = spec(fresh(board.load({"board": "hgx-h100-8"}), []), tmp_path)
    mounts = {mount["hostPath"]: mount["options"] for mount in document["containerEdits"]["mounts"]}
    assert list(mounts) == ["/usr/bin/nvidia-smi", "/usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04", "/run/gpu-host-sim"]
    assert all("ro" in options for options in mounts.values())


def test_the_list_gives_qualified_names(tmp_path: Path) -> None:
    (tmp_path / "nvidia.yaml").write_text("---\n" + ctk.yaml(spec(fresh(board.load({"board": "hgx-h100-8", "gpus": 1}), []), tmp_path)))
    assert ctk.listed((str(tmp_path),)) == ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-01000100-0000-0000-0000-000000000000", "nvidia.com/gpu=all"]


def test_containers_get_the_hook_of_a_fault_only_while_it_is_there(tmp_path: Path) -> None:
    view = smi_text.view_of(fresh(board.load({"board": "hgx-h100-8"}), []), "580.178.04", {}, lambda name: True, datetime(2026, 12, 1))
    assert ctk.spec(view, tmp_path, ["smi-slow"])["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void"]
    for name in ctk.COMPUTING_FAULTS:
        assert ctk.spec(view, tmp_path, ["smi-slow", name])["containerEdits"]["env"] == ["NVIDIA_VISIBLE_DEVICES=void", f"PYTHONPATH={ctk.IN_CONTAINER}"]
