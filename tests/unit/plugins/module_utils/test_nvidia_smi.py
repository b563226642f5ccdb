# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""nvidia-smi: recorded outputs, outputs of broken hosts, and arbitrary bytes."""

from __future__ import annotations

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Result
from ansible_collections.rackready.gpu.plugins.module_utils.nvidia_smi import GarbledOutput, Query, absent, parse_counters, parse_nvlink_errors, parse_query
from ansible_collections.rackready.gpu.plugins.module_utils.pci import normalize_bus_id
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import CONVERGED, FIXTURES, Answers, facts_for, smi_query

H200 = (FIXTURES / "h200" / "smi-q.xml").read_bytes()
# The tables of `nvidia-smi mig -lgi` and the indented lines of `-L`, as NVIDIA's MIG user guide prints them.
LGI = """\
+-------------------------------------------------------+
| GPU instances:                                        |
| GPU   Name             Profile  Instance   Placement  |
|                          ID       ID       Start:Size |
|=======================================================|
|   0  MIG 1g.10gb         19        9          2:1     |
+-------------------------------------------------------+
|   0  MIG 3g.40gb          9        2          4:4     |
+-------------------------------------------------------+
|   0  MIG 1g.10gb+me      20       11          0:1     |
+-------------------------------------------------------+
|   7  MIG 1g.10gb         19        9          2:1     |
+-------------------------------------------------------+
"""
LISTING = """\
GPU 0: NVIDIA H200 (UUID: GPU-11111111-2222-3333-4444-555555555555)
  MIG 1c.3g.40gb  Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)
  MIG 1g.10gb     Device  1: (UUID: MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d)
GPU 1: NVIDIA H200 (UUID: GPU-22222222-2222-3333-4444-555555555555)
  MIG 1g.10gb     Device  0: (UUID: MIG-99999999-3fda-56dd-84fc-0a0b96edc58d)
"""


def migged(devices: str) -> bytes:
    return H200.replace(b"<current_mig>Disabled", b"<current_mig>Enabled").replace(b"\t\t\tNone\n\t\t</mig_devices>", devices.encode() + b"</mig_devices>")


def device(index: int, gi: int, ci: int) -> str:
    return f"<mig_device><index>{index}</index><gpu_instance_id>{gi}</gpu_instance_id><compute_instance_id>{ci}</compute_instance_id></mig_device>"


def test_recorded_h200() -> None:
    assert parse_query(H200) == {
        "driver_version": "580.159.04",
        "cuda_version": "13.0",
        "gpus": [
            {
                "index": 0,
                "uuid": "GPU-11111111-2222-3333-4444-555555555555",
                "pci_bus_id": "0000:00:06.0",
                "name": "NVIDIA H200",
                "serial": "1650000000001",
                "memory_mib": 143771,
                "persistence": True,
                "compute_mode": "Default",
                "mig": {"current": "disabled", "pending": "disabled", "instances": []},
                "fabric": {"state": None, "status": None},
                "ecc": {"volatile_uncorrectable": 0, "aggregate_uncorrectable": 0},
                "remapped_rows": {"pending": False, "failure": False},
                "recovery_action": "None",
                "errors": [],
                "processes": [],
            }
        ],
    }


def test_recorded_h200_says_the_same_in_its_table() -> None:
    """The same card, asked with --query-gpu in the same minute."""
    lines = (FIXTURES / "h200" / "smi-more.txt").read_text().splitlines()
    start = lines.index("## query-gpu")
    row = dict(zip(lines[start + 1].split(", "), lines[start + 2].split(", "), strict=True))
    found = parse_query(H200)
    [gpu] = found["gpus"]
    assert (row["uuid"], row["name"], row["driver_version"]) == (gpu["uuid"], gpu["name"], found["driver_version"])
    assert normalize_bus_id(row["pci.bus_id"]) == gpu["pci_bus_id"]
    assert row["memory.total [MiB]"] == f"{gpu['memory_mib']} MiB"
    assert (row["mig.mode.current"].lower(), row["mig.mode.pending"].lower()) == (gpu["mig"]["current"], gpu["mig"]["pending"])
    assert (row["fabric.state"], row["fabric.status"]) == ("N/A", "N/A")
    assert gpu["fabric"] == {"state": None, "status": None}


def test_recorded_listing_of_a_board_without_mig_adds_nothing() -> None:
    smi = facts_for(**CONVERGED)["nvidia_smi"]
    listing = (FIXTURES / "nvidia-smi-550" / "h100" / "L.txt").read_text()
    assert [line.split("UUID: ")[1].rstrip(")") for line in listing.splitlines()] == [gpu["uuid"] for gpu in smi["gpus"]]
    assert parse_query(smi_query(smi), listing, "No MIG-enabled devices found.\n")["gpus"] == smi["gpus"]


def test_mig_devices_get_their_names_and_places_from_the_other_two_calls() -> None:
    [gpu] = parse_query(migged(device(0, 2, 0) + device(1, 9, 0)), LISTING, LGI)["gpus"]
    assert gpu["mig"] == {
        "current": "enabled",
        "pending": "disabled",
        "instances": [
            {"profile": "1c.3g.40gb", "gi": 2, "ci": 0, "placement_start": 4, "uuid": "MIG-c7384736-a75d-5afc-978f-d2f1294409fd"},
            {"profile": "1g.10gb", "gi": 9, "ci": 0, "placement_start": 2, "uuid": "MIG-a28ad590-3fda-56dd-84fc-0a0b96edc58d"},
            {"profile": "1g.10gb+me", "gi": 11, "ci": None, "placement_start": 0, "uuid": None},  # half made: no compute instance
        ],
    }


def test_mig_without_the_other_two_calls() -> None:
    [gpu] = parse_query(migged(device(0, 2, 0)))["gpus"]
    assert gpu["mig"]["instances"] == [{"profile": None, "gi": 2, "ci": 0, "placement_start": None, "uuid": None}]


def test_errors_processes_and_fabric() -> None:
    details = b"<pid>4711</pid><type>C</type><process_name>python3</process_name><used_memory>1024 MiB</used_memory>"
    process = b"<processes><process_info>" + details + b"</process_info></processes>"
    changed = (
        H200.replace(b"<dram_uncorrectable>0", b"<dram_uncorrectable>2", 1)
        .replace(b"<sram_uncorrectable_parity>0", b"<sram_uncorrectable_parity>1", 1)
        .replace(b"<remapped_row_pending>No", b"<remapped_row_pending>Yes")
        .replace(b"<state>N/A", b"<state>In Progress")
        .replace(b"<gpu_recovery_action>None", b"<gpu_recovery_action>Reset")
        .replace(b"<processes>\n\t\t</processes>", process)
    )
    [gpu] = parse_query(changed)["gpus"]
    assert gpu["ecc"] == {"volatile_uncorrectable": 3, "aggregate_uncorrectable": 0}
    assert gpu["remapped_rows"] == {"pending": True, "failure": False}
    assert gpu["fabric"] == {"state": "In Progress", "status": None}
    assert gpu["recovery_action"] == "Reset"
    assert gpu["processes"] == [{"pid": 4711, "name": "python3", "memory_mib": 1024}]


@pytest.mark.parametrize("words", ["GPU is lost", "[Unknown Error]", "ERR!", "[GPU requires reset]"])
def test_health_that_cannot_be_read_is_told_from_health_that_a_card_does_not_report(words: str) -> None:
    said = words.encode()
    changed = H200.replace(b"<remapped_row_pending>No", b"<remapped_row_pending>" + said).replace(b"<gpu_recovery_action>None", b"<gpu_recovery_action>" + said)
    [gpu] = parse_query(changed)["gpus"]
    assert gpu["errors"] == [f"remapped_row_pending: {words}", f"gpu_recovery_action: {words}"]
    assert (gpu["remapped_rows"]["pending"], gpu["recovery_action"]) == (None, None)
    [silent] = parse_query(H200.replace(b"<remapped_row_pending>No", b"<remapped_row_pending>N/A"))["gpus"]
    assert silent["errors"] == []


def test_card_without_ecc_remapping_mig_or_fabric() -> None:
    card = b'<gpu id="0000:03:00.0"><uuid>[Unknown Error]</uuid><mig_mode>N/A</mig_mode></gpu>'
    [gpu] = parse_query(b"<nvidia_smi_log><driver_version>535.1</driver_version>" + card + b"</nvidia_smi_log>")["gpus"]
    assert gpu["mig"] == {"current": "unsupported", "pending": "unsupported", "instances": []}
    assert gpu["ecc"] == {"volatile_uncorrectable": None, "aggregate_uncorrectable": None}
    assert gpu["remapped_rows"] == {"pending": None, "failure": None}
    assert [gpu[name] for name in ("uuid", "name", "memory_mib", "persistence", "recovery_action")] == [None] * 5


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "no element"),
        (b"Unable to determine the device handle for GPU0000:1A:00.0: Unknown Error\n", "syntax error"),
        (H200[: len(H200) // 2], "no element found|unclosed|mismatched"),
        (b"<html/>", "outermost element is html"),
        (b"<nvidia_smi_log/>", "no driver version"),
        (b"<nvidia_smi_log><driver_version>580</driver_version><gpu id='GPU is lost'/></nvidia_smi_log>", "GPU 0 is not a PCI address"),
        (migged("<mig_device/>"), "no GPU instance id"),
        (b"<?xml version='1.0' encoding='klingon'?><nvidia_smi_log/>", "klingon|encoding"),
    ],
)
def test_garbled(data: bytes, why: str) -> None:
    with pytest.raises(GarbledOutput, match=why):
        parse_query(data)


@pytest.mark.parametrize(
    ("printed", "error"),
    [
        (b"", "nvidia-smi wrote something that is not its XML (no element found: line 1, column 0): it wrote nothing"),
        (
            b"Unable to determine the device handle\nfor GPU0: Unknown Error\n",
            "nvidia-smi wrote something that is not its XML (syntax error: line 1, column 0): Unable to determine the device handle for GPU0: Unknown Error",
        ),
        (b"x" * 5000, f"nvidia-smi wrote something that is not its XML (syntax error: line 1, column 0): {'x' * 200}"),
    ],
)
def test_words_in_place_of_the_xml_are_passed_on(printed: bytes, error: str) -> None:
    facts = ask(("nvidia-smi -q -x", Result(0, printed, b"", 0.1)))
    assert (facts["state"], facts["error"]) == ("garbled", error)


def test_half_an_answer_is_not_quoted() -> None:
    facts = ask(("nvidia-smi -q -x", Result(0, H200[: len(H200) // 2], b"", 0.1)))
    assert facts["state"] == "garbled" and facts["gpus"] == []
    assert str(facts["error"]).startswith("nvidia-smi wrote something that is not its XML (") and str(facts["error"]).endswith(")")


@given(st.binary(), st.text(), st.text())
def test_arbitrary_bytes_are_garbled_and_nothing_else(data: bytes, listing: str, instances: str) -> None:
    with pytest.raises(GarbledOutput):
        parse_query(data, listing, instances)


@given(st.integers(0, len(H200) - 1), st.binary(max_size=30), st.integers(0, 2000), st.text(), st.text())
def test_damaged_output_is_read_or_garbled(at: int, inserted: bytes, removed: int, listing: str, instances: str) -> None:
    damaged = H200[:at] + inserted + H200[at + removed :]
    try:
        found = parse_query(damaged, listing + LISTING, instances + LGI)
    except GarbledOutput:
        return
    assert set(found) == {"driver_version", "cuda_version", "gpus"}


def ask(*answers: tuple[str, Result | str], loaded: bool = True) -> dict[str, object]:
    commands = Answers()
    for begin, answer in answers:
        commands[begin] = answer
    return Query(commands, 15, loaded).facts()


def test_not_installed() -> None:
    assert ask() == absent()
    assert absent()["state"] == "absent"


def test_output_before_a_failure_is_kept() -> None:
    found = ask(("nvidia-smi -q -x", Result(15, H200, b"GPU 0000:1B:00.0: GPU is lost. Reboot the system to recover this GPU\n", 1.5)))
    assert (found["state"], found["seconds"], found["driver_version"]) == ("failed", 1.5, "580.159.04")
    assert str(found["error"]).startswith("nvidia-smi exited 15: GPU 0000:1B:00.0: GPU is lost")


def test_hang_in_the_second_question_is_a_hang() -> None:
    query = Result(0, migged(device(0, 2, 0)), b"", 1.0)
    found = ask(
        ("nvidia-smi -q -x", query),
        ("nvidia-smi -L", LISTING),
        ("nvidia-smi mig -lgi", Result(None, b"", b"", 14.0, "did not end within 14 s and was given up")),
    )
    assert found["state"] == "hung"
    assert found["error"] == "nvidia-smi mig -lgi did not end within 14 s and was given up"


def test_enabled_gpu_without_instances_is_an_answer() -> None:
    nothing = Result(6, b"No GPU instances found: Not Found\n", b"", 0.1)
    found = ask(("nvidia-smi -q -x", Result(0, migged("None"), b"", 1.0)), ("nvidia-smi -L", LISTING), ("nvidia-smi mig -lgi", nothing))
    assert (found["state"], found["error"]) == ("ok", None)


def test_rendered_board_reads_back() -> None:
    smi = facts_for(**CONVERGED)["nvidia_smi"]
    assert parse_query(smi_query(smi))["gpus"] == smi["gpus"]


class TestCounters:
    BUS_ID = "0000:00:06.0"

    def test_recorded_h200(self) -> None:
        nothing = {"retirement_pending": None}
        flags = dict.fromkeys(("pending", "failure", "channel_repair_pending", "tpc_repair_pending", "unrepairable_memory"), False)
        times = dict.fromkeys(("sw_power_cap", "sync_boost", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown"), 0)
        ecc = dict.fromkeys(("volatile_uncorrectable", "volatile_correctable", "aggregate_uncorrectable", "aggregate_correctable"), 0)
        assert parse_counters(H200) == {
            self.BUS_ID: {
                "ecc": ecc,
                "rows": {"correctable": 0, "uncorrectable": 0, **flags, **nothing},
                "replays": 0,
                "link": {"generation": 5, "max_generation": 5, "width": 16, "max_width": 16},
                "throttle": {"mask": 0x1, "microseconds": times},
            }
        }

    @pytest.mark.parametrize(
        ("old", "new", "path", "value"),
        [
            (b"<replay_counter>0<", b"<replay_counter>17<", ("replays",), 17),
            (b"<replay_counter>0<", b"<replay_counter>N/A<", ("replays",), None),
            (b"<dram_correctable>0<", b"<dram_correctable>5<", ("ecc", "volatile_correctable"), 5),
            (b"<sram_uncorrectable_parity>0<", b"<sram_uncorrectable_parity>2<", ("ecc", "volatile_uncorrectable"), 2),
            (b"<remapped_row_corr>0<", b"<remapped_row_corr>3<", ("rows", "correctable"), 3),
            (b"<remapped_row_unc>0<", b"<remapped_row_unc>4<", ("rows", "uncorrectable"), 4),
            (b"<remapped_row_pending>No<", b"<remapped_row_pending>Yes<", ("rows", "pending"), True),
            (b"<remapped_row_failure>No<", b"<remapped_row_failure>Yes<", ("rows", "failure"), True),
            (b"<pending_retirement>N/A<", b"<pending_retirement>Yes<", ("rows", "retirement_pending"), True),
            (b"<channel_repair_pending>No<", b"<channel_repair_pending>Yes<", ("rows", "channel_repair_pending"), True),
            (b"<tpc_repair_pending>No<", b"<tpc_repair_pending>Yes<", ("rows", "tpc_repair_pending"), True),
            (b"<unrepairable_memory>No<", b"<unrepairable_memory>Yes<", ("rows", "unrepairable_memory"), True),
            (b"<current_link_gen>5<", b"<current_link_gen>1<", ("link", "generation"), 1),
            (b"<max_link_gen>5<", b"<max_link_gen>4<", ("link", "max_generation"), 4),
            (b"<current_link_width>16x<", b"<current_link_width>8x<", ("link", "width"), 8),
            (b"<max_link_width>16x<", b"<max_link_width>4x<", ("link", "max_width"), 4),
            (b"reason_hw_slowdown>Not Active<", b"reason_hw_slowdown>Active<", ("throttle", "mask"), 0x9),
            (b"reason_hw_thermal_slowdown>Not Active<", b"reason_hw_thermal_slowdown>Active<", ("throttle", "mask"), 0x41),
            (b"counters_hw_therm_slowdown>0 us<", b"counters_hw_therm_slowdown>1500 us<", ("throttle", "microseconds", "hw_thermal_slowdown"), 1500),
            (b"counters_hw_power_brake>0 us<", b"counters_hw_power_brake>7 us<", ("throttle", "microseconds", "hw_power_brake_slowdown"), 7),
        ],
    )
    def test_each_field_is_read_from_its_place(self, old: bytes, new: bytes, path: tuple[str, ...], value: object) -> None:
        assert old in H200
        found = parse_counters(H200.replace(old, new, 1))[self.BUS_ID]
        for step in path:
            found = found[step]
        assert found == value

    def test_the_names_of_older_drivers(self) -> None:
        older = H200.replace(b"clocks_event_reason", b"clocks_throttle_reason")
        throttle = parse_counters(older)[self.BUS_ID]["throttle"]
        assert throttle["mask"] == 0x1
        assert set(throttle["microseconds"].values()) == {None}

    def test_a_card_that_counts_nothing(self) -> None:
        card = b'<gpu id="0000:03:00.0"><uuid>x</uuid></gpu>'
        found = parse_counters(b"<nvidia_smi_log>" + card + b"</nvidia_smi_log>")["0000:03:00.0"]
        assert (found["replays"], found["throttle"]["mask"], set(found["ecc"].values()), set(found["rows"].values())) == (None, None, {None}, {None})

    def test_one_figure_for_all_memories_before_ampere(self) -> None:
        ecc = b"<ecc_errors><volatile><single_bit><total>6</total></single_bit><double_bit><total>2</total></double_bit></volatile></ecc_errors>"
        found = parse_counters(b'<nvidia_smi_log><gpu id="0000:03:00.0">' + ecc + b"</gpu></nvidia_smi_log>")["0000:03:00.0"]["ecc"]
        assert (found["volatile_correctable"], found["volatile_uncorrectable"], found["aggregate_correctable"]) == (6, 2, None)

    @pytest.mark.parametrize("data", [b"", b"words", H200[: len(H200) // 2], b"<nvidia_smi_log><gpu id='GPU is lost'/></nvidia_smi_log>"])
    def test_garbled(self, data: bytes) -> None:
        with pytest.raises(GarbledOutput):
            parse_counters(data)

    def test_links(self) -> None:
        listing = (
            "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-a)\n\t Link 0: Replay Errors: 0\n\t Link 0: Recovery Errors: 1\n\t Link 0: CRC Errors: 22\n\n"
            "\t Link 17: Replay Errors: 3\n\t Link 17: Effective BER: 15e-255\n\t Link 17: Tx packets: N/A\nGPU 1: NVIDIA H100 (UUID: GPU-b)\nodd\n"
        )
        assert parse_nvlink_errors(listing) == {
            "GPU-a": {0: {"Replay Errors": 0, "Recovery Errors": 1, "CRC Errors": 22}, 17: {"Replay Errors": 3}},
            "GPU-b": {},
        }
        assert parse_nvlink_errors("\t Link 0: Replay Errors: 0\n") == {}

    @given(st.text())
    def test_any_text_is_some_links_or_none(self, text: str) -> None:
        assert isinstance(parse_nvlink_errors(text), dict)
