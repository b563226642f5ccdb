# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Counters, links, clocks and the kernel's log around the work: only what is new counts, and silence is no pass."""

from __future__ import annotations

from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_window
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_window import (
    Event,
    Events,
    Reading,
    Slot,
    Snapshot,
    Window,
    event_of,
    judge,
    said_before,
    severity,
)
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import Check
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import BUS_IDS
from tests.unit.smoke_fakes import counters, gpus, links, snapshot, uuid_of, window

XID = "NVRM: Xid (PCI:0000:1b:00): {}, pid='<unknown>', name=<unknown>, {}"
SXID = "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): {}, {}, Link 46 MC TS crumbstore MCTO (First)"


def logged(*lines: str) -> Events:
    events = Events()
    for line in lines:
        events.take(line)
    return events


def after(part: str, change: dict[str, Any], of: int = 1) -> Window:
    """A window at whose end the second GPU's counters differ."""
    end = snapshot()
    said = counters()
    said[part] = {**said[part], **change} if isinstance(said[part], dict) else change["value"]
    return window(after=end._replace(gpus={**end.gpus, BUS_IDS[of]: said}))


def named(seen: Window, name: str, loaded: bool = True) -> list[Check]:
    return [check for check in judge(seen, gpus(2), loaded) if check["name"] == name]


def status_of(seen: Window, name: str, loaded: bool = True) -> list[str]:
    return [check["status"] for check in named(seen, name, loaded)]


class TestNothing:
    def test_a_window_in_which_nothing_happened(self) -> None:
        checks = judge(window(), gpus(2))
        assert {(check["status"], check["reason"], check["remedy"]) for check in checks} == {("pass", None, None)}
        assert {(check["name"], check["gpu"]["pci_bus_id"] if check["gpu"] else None) for check in checks} == {
            *((name, bus_id) for name in smoke_window.OF_EACH_GPU for bus_id in BUS_IDS[:2]),
            ("window.sxid", None),
        }

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_without_an_answer_of_nvidia_smi_nothing_is_known(self, when: str) -> None:
        silent = Snapshot({}, "nvidia-smi did not end within 15 s", {}, "nvidia-smi nvlink -e did not end within 15 s")
        changes: dict[str, Any] = {when: silent}
        seen = window(**changes)
        for name in ("window.ecc", "window.row_remap", "window.replay", "window.throttle", "window.nvlink"):
            assert [(check["status"], check["gpu"]) for check in named(seen, name)] == [("could_not_run", gpu.gpu) for gpu in gpus(2)], name
            assert "did not end within 15 s" in str(named(seen, name)[0]["reason"])
            assert status_of(window(before=silent, after=silent), name) == ["could_not_run"] * 2, name
        assert status_of(seen, "window.xid") == ["pass"] * 2

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_gpu_that_it_does_not_list_alone_is_not_known(self, when: str) -> None:
        one = snapshot()
        changes: dict[str, Any] = {when: one._replace(gpus={BUS_IDS[0]: counters()}, nvlinks={uuid_of(0): links()})}
        seen = window(**changes)
        for name in ("window.ecc", "window.row_remap", "window.replay", "window.throttle", "window.nvlink"):
            assert status_of(seen, name) == ["pass", "could_not_run"], name
        assert named(seen, "window.ecc")[1]["reason"] == f"nvidia-smi did not list the GPU {when} the test"
        assert named(seen, "window.nvlink")[1]["reason"] == "nvidia-smi did not list the GPU's links"


class TestMemory:
    @pytest.mark.parametrize(
        ("change", "status", "words"),
        [
            ({"volatile_uncorrectable": 2}, "fail", "2 uncorrectable memory errors during the test"),
            ({"aggregate_uncorrectable": 4}, "fail", "1 uncorrectable memory errors during the test"),
            ({"volatile_correctable": 1}, "degraded", "1 correctable memory errors during the test"),
            ({"aggregate_correctable": 12}, "degraded", "3 correctable memory errors during the test"),
            ({"volatile_uncorrectable": 1, "volatile_correctable": 5}, "fail", "1 uncorrectable memory errors during the test; 5 correctable"),
            ({"aggregate_uncorrectable": 2}, "could_not_run", "went back from 3 to 2"),
            ({"aggregate_uncorrectable": None}, "degraded", "nvidia-smi does not report on this GPU: aggregate_uncorrectable"),
        ],
    )
    def test_only_new_errors_count(self, change: dict[str, Any], status: str, words: str) -> None:
        checks = named(after("ecc", change), "window.ecc")
        assert [check["status"] for check in checks] == ["pass", status]
        assert words in str(checks[1]["reason"])
        assert checks[1]["gpu"] == gpus(2)[1].gpu

    @pytest.mark.parametrize(
        ("change", "status", "words"),
        [
            ({"correctable": 2}, "fail", "1 rows of its memory were remapped for correctable errors"),
            ({"uncorrectable": 1}, "fail", "1 rows of its memory were remapped for uncorrectable errors"),
            ({"pending": True}, "fail", "waits for a reset to be remapped"),
            ({"failure": True}, "fail", "could not be remapped"),
            ({"retirement_pending": True}, "fail", "to be retired"),
            ({"channel_repair_pending": True}, "fail", "a channel of its memory"),
            ({"tpc_repair_pending": True}, "fail", "a part of the chip"),
            ({"unrepairable_memory": True}, "fail", "cannot be repaired"),
            ({"correctable": 0}, "could_not_run", "went back"),
            ({"correctable": None}, "degraded", "does not report on this GPU: correctable"),
        ],
    )
    def test_rows(self, change: dict[str, Any], status: str, words: str) -> None:
        checks = named(after("rows", change), "window.row_remap")
        assert [check["status"] for check in checks] == ["pass", status]
        assert words in str(checks[1]["reason"])
        assert checks[1]["remedy"]

    @pytest.mark.parametrize("name", ["pending", "failure", "unrepairable_memory"])
    def test_what_waits_counts_also_where_it_waited_before(self, name: str) -> None:
        seen = after("rows", {name: True})
        assert status_of(seen._replace(before=seen.after), "window.row_remap") == ["pass", "fail"]

    def test_old_errors_are_not_held_against_a_card(self) -> None:
        seen = after("ecc", {"volatile_uncorrectable": 7})
        assert status_of(seen._replace(before=seen.after), "window.ecc") == ["pass", "pass"]


class TestReplays:
    @pytest.mark.parametrize(
        ("new", "seconds", "status"),
        [
            (0, 60, "pass"),
            (1, 60, "degraded"),
            (8, 60, "degraded"),
            (9, 60, "fail"),
            (9, 30, "fail"),
            (8, 1, "degraded"),
            (16, 120, "degraded"),
            (17, 120, "fail"),
        ],
    )
    def test_a_few_are_said_many_fail(self, new: int, seconds: float, status: str) -> None:
        seen = after("replays", {"value": 4 + new})._replace(seconds=seconds)
        assert status_of(seen, "window.replay") == ["pass", status]
        if new:
            assert named(seen, "window.replay")[1]["reason"] == f"{new} packets of its PCIe link were sent again within {seconds} s"

    def test_not_reported_or_reset(self) -> None:
        unknown = after("replays", {"value": None})
        # Where one of the two is not known, nothing can be said to have come.
        for seen in (unknown, unknown._replace(before=unknown.after, after=unknown.before)):
            checks = named(seen, "window.replay")
            assert [(check["status"], check["reason"]) for check in checks] == [
                ("pass", None),
                ("degraded", "nvidia-smi does not report on this GPU: replays"),
            ]
        assert status_of(after("replays", {"value": 3}), "window.replay") == ["pass", "could_not_run"]


def nvlinks(change: dict[int, dict[str, int]] | None, of: int = 1) -> Window:
    """A window at whose end links of the second GPU differ (None: it has none at all)."""
    end = snapshot()
    now = {} if change is None else {**links(), **{link: {**links()[link], **counts} for link, counts in change.items()}}
    return window(after=end._replace(nvlinks={**end.nvlinks, uuid_of(of): now}))


class TestNvlink:
    @pytest.mark.parametrize(
        ("change", "status", "words"),
        [
            ({3: {"Replay Errors": 1}}, "fail", "NVLink 3: 1 new Replay Errors"),
            ({3: {"Recovery Errors": 2}}, "fail", "NVLink 3: 2 new Recovery Errors"),
            ({3: {"CRC Errors": 3}}, "degraded", "NVLink 3: 1 new CRC Errors"),
            ({3: {"CRC Errors": 2 + 5999}}, "degraded", "5999 new CRC Errors"),
            ({3: {"CRC Errors": 2 + 6000}}, "fail", "6000 new CRC Errors"),
            ({3: {"CRC Errors": 1}}, "could_not_run", "went back from 2 to 1"),
        ],
    )
    def test_new_errors_of_a_link(self, change: dict[int, dict[str, int]], status: str, words: str) -> None:
        checks = named(nvlinks(change), "window.nvlink")
        assert [check["status"] for check in checks] == ["pass", status]
        assert words in str(checks[1]["reason"])
        [(name, count)] = change[3].items()
        new = count - links()[3][name]
        assert checks[1]["value"] == {"links": 18, "new": {f"3: {name}": new} if new > 0 else {}}

    @pytest.mark.parametrize(("new", "status"), [(99, "degraded"), (100, "fail")])
    def test_a_test_of_less_than_a_second_counts_as_one_of_a_second(self, new: int, status: str) -> None:
        assert status_of(nvlinks({3: {"CRC Errors": 2 + new}})._replace(seconds=0.5), "window.nvlink") == ["pass", status]

    def test_a_link_that_went_down(self) -> None:
        end = snapshot()
        left = {link: counts for link, counts in links().items() if link != 7}
        checks = named(window(after=end._replace(nvlinks={**end.nvlinks, uuid_of(1): left})), "window.nvlink")
        assert (checks[1]["status"], checks[1]["reason"]) == ("fail", "NVLink 7 went down during the test")
        assert status_of(nvlinks(None), "window.nvlink") == ["pass", "fail"]

    def test_counters_of_another_kind_are_named(self) -> None:
        both = {uuid_of(index): {0: {"Effective Errors": 3}} for index in range(2)}
        seen = window(before=snapshot()._replace(nvlinks=both), after=snapshot()._replace(nvlinks=both))
        checks = named(seen, "window.nvlink")
        assert {(check["status"], check["reason"]) for check in checks} == {("degraded", "nvidia-smi reports no errors of NVLink 0")}

    def test_a_counter_that_is_reported_once_only_is_named(self) -> None:
        less = snapshot()._replace(nvlinks={uuid_of(index): {0: {"Replay Errors": 0}} for index in range(2)})
        more = snapshot()._replace(nvlinks={uuid_of(index): {0: {"Replay Errors": 0, "CRC Errors": 0}} for index in range(2)})
        assert status_of(window(before=more, after=less), "window.nvlink") == ["degraded"] * 2
        assert status_of(window(before=less, after=more), "window.nvlink") == ["degraded"] * 2

    @pytest.mark.parametrize("when", ["before", "after"])
    def test_a_listing_that_broke_off_or_is_empty_once_only_is_no_pass(self, when: str) -> None:
        broken: dict[str, Any] = {when: snapshot()._replace(nvlink_problem="nvidia-smi nvlink -e exited 6")}
        empty: dict[str, Any] = {when: snapshot()._replace(nvlinks={})}
        for changes, reason in ((broken, "nvidia-smi nvlink -e exited 6"), (empty, "nvidia-smi did not list the GPU's links")):
            checks = named(window(**changes), "window.nvlink")
            assert [(check["status"], check["reason"]) for check in checks] == [("could_not_run", reason)] * 2

    def test_links_that_came_up_during_the_test_are_no_error(self) -> None:
        late = snapshot()._replace(nvlinks={uuid_of(0): {}, uuid_of(1): {}})
        checks = named(window(before=late), "window.nvlink")
        assert {(check["status"], check["reason"], check["value"]["links"]) for check in checks} == {("pass", None, 18)}

    def test_a_host_and_a_gpu_without_links(self) -> None:
        none = snapshot()._replace(nvlinks={})
        checks = named(window(before=none, after=none), "window.nvlink")
        assert [(check["gpu"], check["value"]) for check in checks] == [(gpu.gpu, {"links": 0}) for gpu in gpus(2)]
        assert {(check["status"], check["reason"]) for check in checks} == {("pass", "nvidia-smi reports no NVLink on this host")}
        bare = snapshot()._replace(nvlinks={uuid_of(0): {}, uuid_of(1): {}})
        checks = named(window(before=bare, after=bare), "window.nvlink")
        assert [(check["gpu"], check["value"]) for check in checks] == [(gpu.gpu, {"links": 0}) for gpu in gpus(2)]
        assert {(check["status"], check["reason"]) for check in checks} == {("pass", "nvidia-smi reports no NVLink on this GPU")}


def throttled(masks: list[int | None], **microseconds: Any) -> Window:
    """A window in which the second GPU ran under these reasons, and at whose end it had counted so much more time."""
    seen = after("throttle", {"microseconds": {**counters()["throttle"]["microseconds"], **microseconds}})
    return seen._replace(readings={**seen.readings, BUS_IDS[1]: [Reading("copy.host_to_device", mask, 5, 16) for mask in masks]})


class TestThrottle:
    @pytest.mark.parametrize(
        ("masks", "microseconds", "status", "words"),
        [
            ([0x4], {}, "pass", ""),
            ([0x4], {"sw_power_cap": 60_000_000}, "pass", ""),
            ([0x1, 0x2, 0x10, 0x100], {}, "pass", ""),
            ([], {"hw_thermal_slowdown": 600_000}, "fail", "hw_thermal_slowdown for 0.6 s of 60 s"),
            ([], {"hw_thermal_slowdown": 599_000}, "degraded", "hw_thermal_slowdown for 0.6 s of 60 s"),
            ([], {"sw_thermal_slowdown": 30_000_000}, "fail", "sw_thermal_slowdown for 30.0 s"),
            ([], {"hw_power_brake_slowdown": 30_000_000}, "fail", "hw_power_brake_slowdown for 30.0 s"),
            ([], {"hw_power_brake_slowdown": 1}, "degraded", "hw_power_brake_slowdown for 0.0 s"),
            ([0x4 | 0x8], {}, "degraded", "hw_slowdown while it worked, without heat or a power brake"),
            ([0x8 | 0x40], {"hw_thermal_slowdown": 30_000_000}, "fail", "hw_thermal_slowdown for 30.0 s"),
            ([0x8], {"hw_thermal_slowdown": 30_000_000}, "fail", "hw_thermal_slowdown for 30.0 s"),
            # What was seen and not counted is no pass either.
            ([0x40], {}, "degraded", "hw_thermal_slowdown while it worked, of which no time was counted"),
            ([0x8 | 0x40], {}, "degraded", "hw_thermal_slowdown while it worked, of which no time was counted"),
            ([0x20 | 0x80], {"hw_power_brake_slowdown": 30_000_000}, "fail", "hw_power_brake_slowdown for 30.0 s of 60 s; sw_thermal_slowdown while it worked"),
        ],
    )
    def test_counted_time_decides(self, masks: list[int | None], microseconds: dict[str, int], status: str, words: str) -> None:
        checks = named(throttled(masks, **microseconds), "window.throttle")
        assert [check["status"] for check in checks] == ["pass", status]
        assert str(checks[1]["reason"] or "").startswith(words)
        # One word for one thing: a slowdown whose reason is known is not said to be without one.
        assert ("hw_slowdown while" in str(checks[1]["reason"])) == words.startswith("hw_slowdown")

    @pytest.mark.parametrize(
        ("masks", "status", "words"),
        [
            ([0x4 | 0x40], "fail", "hw_thermal_slowdown while it worked"),
            ([0x4, 0x20], "fail", "sw_thermal_slowdown while it worked"),
            ([0x80 | 0x8], "fail", "hw_power_brake_slowdown while it worked"),
            ([0x20 | 0x80 | 0x4], "fail", "sw_thermal_slowdown, hw_power_brake_slowdown while it worked"),
            ([0x8], "degraded", "hw_slowdown"),
            ([0x4], "pass", "None"),
            ([None], "degraded", "does not report why this GPU's clocks are held back"),
            ([], "degraded", "does not report why this GPU's clocks are held back"),
        ],
    )
    def test_where_no_time_is_counted_a_reading_decides_as_a_mask(self, masks: list[int | None], status: str, words: str) -> None:
        silent = dict.fromkeys(counters()["throttle"]["microseconds"])
        checks = named(throttled(masks, **silent), "window.throttle")
        assert [check["status"] for check in checks] == ["pass", status]
        assert words in str(checks[1]["reason"])

    def test_only_time_that_was_counted_before_and_after_can_have_come(self) -> None:
        hot = throttled([], hw_thermal_slowdown=30_000_000)
        assert status_of(hot._replace(before=hot.after), "window.throttle") == ["pass", "pass"]
        silent = throttled([], hw_thermal_slowdown=None)
        assert status_of(hot._replace(before=silent.after), "window.throttle") == ["pass", "pass"]

    @pytest.mark.parametrize(("microseconds", "status"), [(9_999, "degraded"), (10_000, "fail")])
    def test_a_test_of_less_than_a_second_counts_as_one_of_a_second(self, microseconds: int, status: str) -> None:
        seen = throttled([], hw_thermal_slowdown=microseconds)._replace(seconds=0.0)
        assert status_of(seen, "window.throttle") == ["pass", status]

    @pytest.mark.parametrize(("masks", "seen", "mask"), [([], [], "0x0"), ([0x4], ["sw_power_cap"], "0x4"), ([0x4, 0x1], ["gpu_idle", "sw_power_cap"], "0x5")])
    def test_what_was_seen_is_told_by_name(self, masks: list[int | None], seen: list[str], mask: str) -> None:
        value = named(throttled(masks), "window.throttle")[1]["value"]
        assert (value["seen"], value["mask"]) == (seen, mask)


SLOT = Slot(5, 16)


def linked(readings: list[Reading], slot: Slot = SLOT, **told: Any) -> Window:
    """A window in which the second GPU's link ran so, in such a slot."""
    first = snapshot()
    said = counters()
    said["link"].update(told)
    before = first._replace(gpus={**first.gpus, BUS_IDS[1]: said})
    seen = window(before=before)
    return seen._replace(readings={**seen.readings, BUS_IDS[1]: readings}, slots={**seen.slots, BUS_IDS[1]: slot})


COPY = "copy.device_to_host"


class TestLink:
    def test_generations_by_their_rates(self) -> None:
        assert smoke_window.PCIE_GENERATIONS == {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}

    @pytest.mark.parametrize(
        ("readings", "slot", "status", "words"),
        [
            ([Reading(COPY, None, 5, 16)], Slot(5, 16), "pass", ""),
            ([Reading(COPY, None, 1, 16), Reading(COPY, None, 5, 16)], Slot(5, 16), "pass", ""),
            ([Reading(COPY, None, 5, 8), Reading(COPY, None, 5, 16)], Slot(5, 16), "pass", ""),
            ([Reading(COPY, None, None, 16), Reading(COPY, None, 5, None)], Slot(5, 16), "pass", ""),
            ([Reading(COPY, None, 4, 16)], Slot(4, 16), "pass", ""),
            ([Reading(COPY, None, 5, 8)], Slot(5, 8), "pass", ""),
            ([Reading(COPY, None, 4, 16)], Slot(5, 16), "fail", "runs at generation 4, card and slot can do 5"),
            ([Reading(COPY, None, 5, 8)], Slot(5, 16), "fail", "has 8 lanes, card and slot can do 16"),
            ([Reading(COPY, None, 5, 8)], Slot(None, None), "fail", "has 8 lanes"),
            ([Reading(COPY, None, 4, 16)], Slot(None, None), "fail", "generation 4"),
            ([Reading(COPY, None, 1, 1)], Slot(5, 16), "fail", "runs at generation 1, card and slot can do 5; its PCIe link has 1 lanes"),
            # Idle, a link is slow by design.
            ([Reading("matmul.bf16", None, 5, 16)], Slot(5, 16), "could_not_run", "was not read while it copied"),
            ([Reading(None, None, 5, 16)], Slot(5, 16), "could_not_run", "was not read while it copied"),
            ([], Slot(5, 16), "could_not_run", "was not read while it copied"),
            ([Reading(COPY, None, None, 16)], Slot(5, 16), "could_not_run", "was not read"),
            ([Reading(COPY, None, 5, None)], Slot(5, 16), "could_not_run", "was not read"),
        ],
    )
    def test_generation_and_width_under_load(self, readings: list[Reading], slot: Slot, status: str, words: str) -> None:
        checks = named(linked(readings, slot), "pcie_link")
        assert [check["status"] for check in checks] == ["pass", status]
        assert words in str(checks[1]["reason"] or "")
        assert (checks[1]["gpu"], checks[1]["source"]) == (gpus(2)[1].gpu, "sysfs and nvidia-smi while it copied")

    def test_an_idle_link_counts_where_nothing_could_load_it(self) -> None:
        checks = named(linked([Reading(None, None, 5, 16)]), "pcie_link", loaded=False)
        assert [(check["status"], check["source"]) for check in checks] == [("pass", "sysfs and nvidia-smi")] * 2
        assert status_of(linked([Reading(None, None, 3, 16)]), "pcie_link", loaded=False) == ["pass", "fail"]
        assert status_of(linked([]), "pcie_link", loaded=False) == ["pass", "could_not_run"]
        assert named(linked([]), "pcie_link", loaded=False)[1]["reason"] == "its PCIe link could not be read"

    @pytest.mark.parametrize(
        ("told", "slot"), [({"max_generation": None}, Slot(None, 16)), ({"max_width": None}, Slot(5, None)), ({"max_width": 0}, Slot(5, None))]
    )
    def test_what_nobody_can_compare_with_is_named(self, told: dict[str, Any], slot: Slot) -> None:
        checks = named(linked([Reading(COPY, None, 5, 16)], slot, **told), "pcie_link")
        assert (checks[1]["status"], checks[1]["reason"]) == ("degraded", "what its PCIe link could do at most is not reported")

    def test_the_lower_of_card_and_slot_counts(self) -> None:
        assert status_of(linked([Reading(COPY, None, 4, 16)], Slot(5, 16), max_generation=4), "pcie_link") == ["pass", "pass"]
        assert named(linked([Reading(COPY, None, 4, 16)], Slot(4, 16)), "pcie_link")[1]["floor"] == {"generation": 4, "width": 16}

    def test_a_host_whose_slots_are_all_wired_with_fewer_lanes_is_not_turned_away(self) -> None:
        readings = {BUS_IDS[index]: [Reading(COPY, None, 5, 8)] for index in range(2)}
        unsaid = {BUS_IDS[index]: Slot() for index in range(2)}
        checks = named(window(readings=readings, slots=unsaid), "pcie_link")
        assert {check["status"] for check in checks} == {"degraded"}
        assert "all GPUs of this host have so many, so it may be wired like that" in str(checks[0]["reason"])
        # A port that says that it has more lanes is not wired like that.
        assert status_of(window(readings=readings), "pcie_link") == ["fail", "fail"]

    def test_one_gpu_alone_has_nobody_to_compare_its_width_with(self) -> None:
        seen = window(1, readings={BUS_IDS[0]: [Reading(COPY, None, 5, 8)]}, slots={BUS_IDS[0]: Slot()})
        [check] = [check for check in judge(seen, gpus(1)) if check["name"] == "pcie_link"]
        assert check["status"] == "fail"


# Of NVIDIA's Xid catalog: whose immediate action is about the application alone, what may be ignored, and what names itself fatal or not.
APPLICATION = "8 11 13 25 31 32 37 43 44 45 60 66 67 68 69 80 82 83 84 86 88 89 96 97 98 99 100 101 102 103 104 105 139 141 142"
NOTED = "39 40 41 70 71 72 75 76 77 85 92 93 106 107 121 126 127 128 129 130 131 132 133 134 135 152 153 154 160 161 162 163 164"
BY_THEIR_WORDS = "144 145 146 147 148 149 150"


def numbers(text: str) -> set[int]:
    return set(map(int, text.split()))


def test_every_xid_of_the_catalog_has_its_class() -> None:
    said = {code: severity(Event("xid", BUS_IDS[0], code, None)) for code in range(400)}
    assert {code for code, status in said.items() if status == "degraded"} == numbers(APPLICATION) | numbers(NOTED)
    harmless = {code for code in range(400) if severity(Event("xid", BUS_IDS[0], code, False)) == "degraded"}
    assert harmless == numbers(APPLICATION) | numbers(NOTED) | numbers(BY_THEIR_WORDS)
    for code in (48, 61, 62, 63, 64, 74, 79, 94, 95, 119, 120, 136, 140, 143, 151, 171, 172):
        assert said[code] == "fail"
    words = {code: named(window(new=logged(XID.format(code, "words"))), "window.xid")[1]["reason"] for code in numbers(APPLICATION) | numbers(NOTED)}
    assert {code for code, reason in words.items() if "which an application causes as a rule" in str(reason)} == numbers(APPLICATION)


class TestKernelLog:
    @pytest.mark.parametrize(
        ("line", "event"),
        [
            ("NVRM: Xid (PCI:0000:9b:00): 119, pid=1234, name=nvidia-smi, Timeout after 6s of waiting for RPC", ("xid", "0000:9b:00.0", 119, None)),
            ("[...] NVRM: Xid (0000:03:00): 14, Channel 00000001", ("xid", "0000:03:00.0", 14, None)),
            ("NVRM: Xid (PCI:0000:05:00.0): 79, GPU has fallen off the bus.", ("xid", "0000:05:00.0", 79, None)),
            ("NVRM: Xid (PCI:0018:01:00): 145, RLW_REMAP Nonfatal XC1 i0 Link 08", ("xid", "0018:01:00.0", 145, False)),
            ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 03", ("xid", "0018:01:00.0", 149, True)),
            ("NVRM: Xid (????): 79", ("", None, 0, None)),
            ("NVRM: Xid (PCI:zz:00): 79, x", ("", None, 0, None)),
            (SXID.format(28006, "Non-fatal"), ("sxid", "0000:c1:00.0", 28006, False)),
            (SXID.format(24007, "Fatal"), ("sxid", "0000:c1:00.0", 24007, True)),
            ("nvidia-nvswitch0: SXid (PCI:0000:c3:00.0): 12033, Severity 1 Engine instance 00", ("sxid", "0000:c3:00.0", 12033, None)),
            ("NVRM: loading NVIDIA UNIX Open Kernel Module", ("", None, 0, None)),
            ("", ("", None, 0, None)),
        ],
    )
    def test_lines(self, line: str, event: tuple[str, str | None, int, bool | None]) -> None:
        assert event_of(line) == (Event(*event) if event[0] else None)

    @pytest.mark.parametrize(
        ("code", "text", "status"),
        [
            *((code, "x", "degraded") for code in (13, 31, 43, 45, 32, 68, 69)),
            *((code, "x", "fail") for code in (46, 48, 62, 63, 64, 74, 79, 94, 95, 109, 119, 120, 136, 140, 143, 156, 158, 171, 172, 999)),
            *((code, "x", "degraded") for code in (92, 121, 154)),
            (145, "RLW_REMAP Nonfatal XC1", "degraded"),
            (145, "RLW_REMAP Fatal XC1", "fail"),
            (145, "x", "fail"),
            (144, "Non-fatal", "degraded"),
            (150, "Nonfatal", "degraded"),
            # Of the others no word in the text decides.
            (79, "Nonfatal", "fail"),
            (151, "Nonfatal", "fail"),
        ],
    )
    def test_xids_of_applications_turn_no_card_away_and_unknown_ones_do(self, code: int, text: str, status: str) -> None:
        seen = window(new=logged(XID.format(code, text)))
        checks = named(seen, "window.xid")
        assert [(check["status"], check["gpu"]) for check in checks] == [("pass", gpus(1)[0].gpu), (status, gpus(2)[1].gpu)]
        assert str(checks[1]["reason"]).count(f"Xid {code} during the test") == 1
        assert ("which an application causes as a rule" in str(checks[1]["reason"])) == (status == "degraded" and code in smoke_window.APPLICATION_XIDS)

    def test_a_flood_hides_nothing_and_keeps_little(self) -> None:
        events = logged(*[XID.format(31, f"Ch {number:08x}") for number in range(20000)], XID.format(79, "GPU has fallen off the bus."))
        assert len(events.counts) == len(events.texts) == 2
        check = named(window(new=events), "window.xid")[1]
        assert check["status"] == "fail"
        assert str(check["reason"]).startswith("Xid 79 during the test (NVRM: Xid (PCI:0000:1b:00): 79")
        assert "Xid 31 x20000 during the test, which an application causes" in str(check["reason"])

    def test_what_was_there_before_is_listed_and_does_not_count(self) -> None:
        earlier = logged(XID.format(79, "GPU has fallen off the bus."), XID.format(31, "x"), XID.format(31, "y"))
        checks = named(window(earlier=earlier), "window.xid")
        assert [check["status"] for check in checks] == ["pass", "pass"]
        assert checks[1]["reason"] == "before the test, since the log begins: Xid 31 x2, Xid 79"
        assert checks[1]["value"] == {"new": {}, "earlier": "Xid 31 x2, Xid 79"}
        assert (checks[0]["reason"], checks[0]["value"]) == (None, {"new": {}, "earlier": None})
        again = named(window(earlier=earlier, new=logged(XID.format(48, "x"))), "window.xid")[1]
        assert str(again["reason"]).startswith("Xid 48 during the test") and "before the test" not in str(again["reason"])

    def test_one_of_a_gpu_that_nobody_expects_counts(self) -> None:
        seen = window(new=logged("NVRM: Xid (PCI:0000:99:00): 79, x", "NVRM: Xid (PCI:::): 79, x"))
        checks = named(seen, "window.xid")
        assert [check["status"] for check in checks] == ["pass", "pass", "fail"]
        assert checks[2]["gpu"] is None
        assert "Xid 79, Xid 79 of 0000:99:00.0, an unknown device during the test" in str(checks[2]["reason"])

    def test_a_log_that_cannot_be_read_is_no_pass_and_hides_no_failure(self) -> None:
        blind = window(log_problem="/dev/kmsg: Operation not permitted, and there is no journal")
        assert status_of(blind, "window.xid") == ["could_not_run"] * 2
        assert status_of(blind, "window.sxid") == ["could_not_run"]
        assert named(blind, "window.xid")[0]["remedy"] == "read it with `dmesg` or `journalctl -k` on the host"
        both = blind._replace(new=logged(XID.format(79, "x"), XID.format(13, "x")))
        assert status_of(both, "window.xid") == ["could_not_run", "fail"]
        assert named(both, "window.xid")[1]["remedy"] == smoke_window.DMESG
        assert status_of(blind._replace(new=logged(XID.format(13, "x"))), "window.xid") == ["could_not_run", "could_not_run"]

    @pytest.mark.parametrize(("fatal", "status"), [("Fatal", "fail"), ("Non-fatal", "degraded"), ("Severity 1", "fail")])
    def test_switches(self, fatal: str, status: str) -> None:
        [check] = named(window(new=logged(SXID.format(24007, fatal))), "window.sxid")
        assert (check["status"], check["gpu"]) == (status, None)
        assert str(check["reason"]).startswith("SXid 24007 of 0000:c1:00.0 during the test (nvidia-nvswitch3")
        # The numbers of a switch have nothing to do with those of a GPU.
        [low] = named(window(new=logged(SXID.format(31, fatal))), "window.sxid")
        assert low["status"] == status and "application" not in str(low["reason"])
        [old] = named(window(earlier=logged(SXID.format(24007, fatal))), "window.sxid")
        assert (old["status"], old["reason"]) == ("pass", "before the test, since the log begins: SXid 24007")

    def test_a_switch_is_no_gpu_also_where_both_are_unknown_devices(self) -> None:
        seen = window(new=logged(SXID.format(24007, "Non-fatal")))
        assert status_of(seen, "window.xid") == ["pass", "pass"]
        seen = window(new=logged("NVRM: Xid (PCI:::): 79, x", "nvidia-nvswitch3: SXid (PCI:::): 24007, Non-fatal"))
        [*_, of_gpu], [of_switch] = named(seen, "window.xid"), named(seen, "window.sxid")
        assert (of_gpu["status"], list(of_gpu["value"]["new"])) == ("fail", ["NVRM: Xid (PCI:::): 79, x"])
        assert (of_switch["status"], list(of_switch["value"]["new"])) == ("degraded", ["nvidia-nvswitch3: SXid (PCI:::): 24007, Non-fatal"])

    def test_words_about_peer_memory_are_kept_few(self) -> None:
        events = logged(*[f"nvidia_peermem: disagrees about version of symbol ib_{number}" for number in range(100)], "nv_peer_mem: Unknown symbol x", "peer")
        assert len(events.of_peer_memory) == smoke_window.KEPT_LINES == 20
        assert logged(XID.format(79, "x"), "nv_peer_mem: Unknown symbol x").of_peer_memory == ["nv_peer_mem: Unknown symbol x"]

    def test_where_nothing_was_started_the_log_is_advice(self) -> None:
        check = said_before(logged(XID.format(119, "Timeout after 6s of waiting for RPC")))
        assert (check["status"], check["required"]) == ("degraded", False)
        assert "Xid (PCI:0000:1b:00): 119" in str(check["reason"])
        nothing = said_before(Events())
        assert (nothing["status"], nothing["reason"], nothing["remedy"]) == ("pass", None, None)

    def test_four_events_of_before_are_said_and_all_are_kept(self) -> None:
        lines = [XID.format(code, "x") for code in (48, 63, 64, 79, 95)]
        check = said_before(logged(*lines, lines[0]))
        assert (check["reason"], check["value"]) == ("; ".join(lines[:4]), {line: 2 if line == lines[0] else 1 for line in lines})

    @given(st.text(max_size=120))
    def test_any_line_is_taken(self, line: str) -> None:
        events = logged(line)
        assert sum(events.counts.values()) <= 1
        for event in events.counts:
            assert severity(event) in ("fail", "degraded")
