# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The stand-in's output against recordings of the real nvidia-smi."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.nvidia_smi import parse_counters, parse_nvlink_errors
from gpu_host.sim import board, mig, smi_text
from gpu_host.sim.smi_text import Process
from gpu_host.sim.state import fresh, mig_of

HERE = Path(__file__).parent
FIXTURES = HERE.parents[1] / "fixtures"
SIMULATED = FIXTURES / "nvidia-smi-550"
RECORDED_AT = datetime(2026, 12, 1, 2, 44, 59)


def view(name: str = "hgx-h100-8", version: str = "580.178.04", **changes: Any) -> smi_text.View:
    state = fresh(board.load({"board": name}), [])
    state.update({"persistence": True, **changes})
    return smi_text.view_of(state, version, changes.get("processes", {}), lambda node: True, RECORDED_AT)


def recorded(section: str) -> str:
    text = (FIXTURES / "h200/smi-more.txt").read_text(encoding="utf-8")
    return text.split(f"## {section}\n")[1].split("## ")[0].removesuffix("rc=0\n")


H200 = view("h200-1", "580.159.04")


def test_xml_is_the_recorded_document() -> None:
    assert smi_text.xml(H200) == (FIXTURES / "h200/smi-q.xml").read_text(encoding="utf-8")


def test_table_is_the_recorded_table() -> None:
    # Temperature and power went up a little between the two recordings.
    text = (HERE / "recorded/h200-smi.txt").read_text(encoding="utf-8")
    assert smi_text.table(H200) == text.replace("37C", "36C").replace("119W", "112W")


@pytest.mark.parametrize(
    ("section", "render"),
    [("-L", smi_text.listing), ("mig -lgip", smi_text.gpu_instance_profiles), ("mig -lgipp", smi_text.placements), ("vers", smi_text.versions)],
)
def test_lists_are_the_recorded_ones(section: str, render: Any) -> None:
    assert render(H200) == recorded(section)


@pytest.mark.parametrize(("name", "folder"), [("hgx-h100-8", "h100"), ("hgx-a100-8", "a100")])
def test_links_and_topology_are_those_of_the_board(name: str, folder: str) -> None:
    """As nvidia-smi 550 printed them on simulated boards of these kinds; model and UUIDs of its A100 are others."""
    board_view = view(name)
    links = (SIMULATED / folder / "nvlink.txt").read_text(encoding="utf-8")
    told = smi_text.nvlink_status(board_view)
    assert [line for line in told.splitlines() if line.startswith("\t")] == [line for line in links.splitlines() if line.startswith("\t")]
    assert smi_text.topology(board_view) == (SIMULATED / folder / "topo.txt").read_text(encoding="utf-8")


def test_one_card_of_a_virtual_machine_has_no_links() -> None:
    assert smi_text.topology(H200) == recorded("topo -m")
    assert smi_text.nvlink_status(H200) == recorded("nvlink -s")
    assert smi_text.nvlink_errors(H200) == ""


def test_errors_of_links_are_what_the_module_reads() -> None:
    told = parse_nvlink_errors(smi_text.nvlink_errors(view()))
    assert set(told) == {f"GPU-01000100-0000-0000-0000-{index:012d}" for index in range(8)}
    assert all(links == {link: {"Replay Errors": 0, "Recovery Errors": 0, "CRC Errors": 0} for link in range(18)} for links in told.values())


def test_a_hot_gpu_and_a_slow_link() -> None:
    bus_ids = ("0000:ca:00.0", "0000:cb:00.0")
    faults = {"gpu-hot": {bus_ids[0]: RECORDED_AT.timestamp() - 2.5}, "pcie-slow": [bus_ids[1]]}
    bent = view(faults=faults)
    told = parse_counters(smi_text.xml(bent).encode())
    sound = parse_counters(smi_text.xml(view()).encode())
    assert [bus_id for bus_id in told if told[bus_id] != sound[bus_id]] == list(bus_ids)
    assert told[bus_ids[0]]["throttle"]["mask"] == 0x48
    assert told[bus_ids[0]]["throttle"]["microseconds"]["hw_thermal_slowdown"] == 2_500_000
    assert told[bus_ids[1]]["link"] == {"generation": 3, "max_generation": 5, "width": 16, "max_width": 16}
    names = ["pcie.link.gen.current", "pcie.link.gen.max", "clocks_event_reasons.active"]
    rows = smi_text.query(bent, names, smi_text.GPU_FIELDS, noheader=True).splitlines()
    assert rows[-3:] == ["5, 5, 0x0000000000000001", "5, 5, 0x0000000000000048", "3, 5, 0x0000000000000001"]


def test_the_generation_of_a_link_is_that_of_the_board() -> None:
    told = parse_counters(smi_text.xml(view("hgx-a100-8")).encode())
    assert {(gpu["link"]["generation"], gpu["link"]["max_generation"]) for gpu in told.values()} == {(4, 4)}


@pytest.mark.parametrize(("section", "fields"), [("query-gpu", smi_text.GPU_FIELDS), ("remap", smi_text.REMAP_FIELDS)])
def test_queries_are_the_recorded_ones(section: str, fields: Any) -> None:
    text = recorded(section)
    names = [cell.split(" [")[0] for cell in text.splitlines()[0].split(", ")]
    assert smi_text.query(H200, names, fields) == text


def test_h100_query_is_the_recorded_one_but_for_the_memory() -> None:
    # The recording is of a simulated board with 81920 MiB; a real H100 SXM5 has 81559.
    text = (HERE / "recorded/h100-query-gpu.csv").read_text(encoding="utf-8")
    names = [cell.split(" [")[0] for cell in text.splitlines()[0].split(", ")]
    assert smi_text.query(view(version="550.163.01"), names, smi_text.GPU_FIELDS) == text.replace("81920", "81559")


def test_query_without_header_and_units() -> None:
    text = smi_text.query(H200, ["index", "memory.total"], smi_text.GPU_FIELDS, noheader=True, nounits=True)
    assert text == "0, 143771\n"


def test_query_of_an_unknown_field() -> None:
    with pytest.raises(smi_text.FieldError, match=r"memory\.totall"):
        smi_text.query(H200, ["memory.totall"], smi_text.GPU_FIELDS)


@pytest.mark.parametrize(("fabric", "state", "status"), [("none", "N/A", "N/A"), ("in_progress", "In Progress", "N/A"), ("completed", "Completed", "Success")])
def test_fabric(fabric: str, state: str, status: str) -> None:
    document = ElementTree.fromstring(smi_text.xml(view(fabric=fabric)))
    assert {(gpu.findtext("fabric/state"), gpu.findtext("fabric/status")) for gpu in document.findall("gpu")} == {(state, status)}


def test_a_process_is_in_the_table_the_document_and_the_query() -> None:
    busy = view(processes={3: (Process(4711, "python3"),)})
    assert "|    3   N/A  N/A             4711      C   python3                                524MiB |\n" in smi_text.table(busy)
    gpu = ElementTree.fromstring(smi_text.xml(busy)).findall("gpu")[3]
    assert gpu.findtext("processes/process_info/pid") == "4711"
    assert gpu.findtext("fb_memory_usage/used") == "524 MiB"
    apps = smi_text.query_apps(busy, ["pid", "used_memory", "gpu_bus_id"], noheader=True)
    assert apps == "4711, 524 MiB, 00000000:4B:00.0\n"


def test_every_line_of_the_tables_is_as_wide_as_its_edge() -> None:
    state = fresh(board.load({"board": "hgx-h100-8"}), [])
    held = mig_of(state, "0000:1a:00.0")
    held["current"] = True
    table = mig.TABLES["H100-80GB"]
    for name in ("3g.40gb", "1g.10gb+me", "2g.20gb", "1g.10gb"):
        profile = mig.find_profile(table, name)
        mig.create_compute_instance(profile, mig.create_instance(table, held["instances"], profile, None), None)
    split = smi_text.view_of(state, "580.178.04", {0: (Process(1, "x"),)}, lambda node: True, RECORDED_AT)
    for text in (smi_text.table(split), smi_text.gpu_instances(split), smi_text.compute_instances(split, None), smi_text.gpu_instance_profiles(split)):
        lines = [line for line in text.splitlines() if line.startswith(("|", "+"))]
        assert {len(line) for line in lines} == {len(lines[0])}


def test_mig_devices_in_the_document_and_the_list() -> None:
    state = fresh(board.load({"board": "hgx-h100-8"}), [])
    held = mig_of(state, "0000:1b:00.0")
    held.update(current=True, pending=True)
    profile = mig.find_profile(mig.TABLES["H100-80GB"], "3g.40gb")
    mig.create_compute_instance(profile, mig.create_instance(mig.TABLES["H100-80GB"], held["instances"], profile, 0), None)
    split = smi_text.view_of(state, "580.178.04", {}, lambda node: True, RECORDED_AT)
    gpu = ElementTree.fromstring(smi_text.xml(split)).findall("gpu")[1]
    device = gpu.find("mig_devices/mig_device")
    assert device is not None
    assert [device.findtext(name) for name in ("index", "gpu_instance_id", "compute_instance_id", "fb_memory_usage/total")] == ["0", "1", "0", "40448 MiB"]
    assert gpu.findtext("utilization/gpu_util") == "N/A"
    line = smi_text.listing(split).splitlines()[2]
    assert line == f"  MIG 3g.40gb     Device  0: (UUID: {mig.device_uuid(gpu.findtext('uuid') or '', 1, 0)})"


def test_a_container_sees_the_gpus_whose_nodes_it_has() -> None:
    state = fresh(board.load({"board": "hgx-h100-8"}), [])
    seen = smi_text.view_of(state, "580.178.04", {}, lambda node: node in ("nvidia2", "nvidia5"), RECORDED_AT)
    assert [(gpu.index, gpu.board["minor"]) for gpu in seen.gpus] == [(0, 2), (1, 5)]


def test_a_gpu_that_is_gone_moves_the_indices_of_the_others() -> None:
    state = fresh(board.load({"board": "hgx-h100-8"}), [])
    state["faults"]["gpu-gone"] = ["0000:1a:00.0"]
    left = smi_text.view_of(state, "580.178.04", {}, lambda node: True, RECORDED_AT)
    assert [gpu.index for gpu in left.gpus] == list(range(7))
    assert left.gpus[0].board["minor"] == 1
