# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The MIG difference becomes commands; the board at the other end is a double that keeps the state of one GPU and refuses what nvidia-smi refuses."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.mig import LOCK, GpuInstance, GpuState, MigError, apply, commands_for, locked, states
from ansible_collections.rackready.gpu.plugins.module_utils.nvidia_smi import absent

BUS = "0000:1a:00.0"
HELP = Path(__file__).resolve().parents[3] / "fixtures/h200/mig-help.txt"


class Board:
    """A test double of one GPU behind nvidia-smi: mode, GPU instances by id, and the compute instances of each."""

    def __init__(self, mode: str = "disabled", instances: list[tuple[str, int]] | None = None, reset_needed: bool = False) -> None:
        self.current = self.pending = mode
        self.reset_needed = reset_needed
        self.instances = dict(enumerate(instances or [], start=1))
        self.compute = {number: [0] for number in self.instances}
        self.commands: list[str] = []

    def read(self) -> dict[str, Any]:
        listed: list[dict[str, Any]] = []
        nothing: list[int | None] = [None]
        for number, (profile, start) in self.instances.items():
            for ci in self.compute[number] or nothing:
                listed.append({"profile": profile, "gi": number, "ci": ci, "placement_start": start, "uuid": None if ci is None else f"MIG-{number}-{ci}"})
        return {**absent(), "state": "ok", "gpus": [{"pci_bus_id": BUS, "mig": {"current": self.current, "pending": self.pending, "instances": listed}}]}

    def run(self, command: list[str]) -> None:
        self.commands.append(" ".join(command))
        if "-mig" in command:
            self.pending = "enabled" if command[-1] == "1" else "disabled"
            self.current = self.current if self.reset_needed else self.pending
        elif "-cgi" in command:
            for each in command[command.index("-cgi") + 1].split(","):
                profile, start = each.split(":")
                number = max(self.instances, default=0) + 1
                self.instances[number], self.compute[number] = (profile, int(start)), [0]
        else:
            number = int(command[-1])
            if "-dci" in command:
                if not self.compute[number]:
                    raise MigError("No compute instances found: Not Found")
                self.compute[number] = []
            elif "-cci" in command:
                self.compute[number] = [0]
            elif "-dgi" in command:
                if self.compute[number]:
                    raise MigError("In use by another client")
                del self.instances[number], self.compute[number]

    def apply(self, gpus: list[dict[str, Any]], check_mode: bool = False) -> dict[str, Any]:
        return apply(gpus, self.read, self.run, check_mode)


def layout(*places: tuple[str, int], mode: str = "enabled") -> list[dict[str, Any]]:
    return [{"pci_bus_id": BUS, "mode": mode, "instances": [{"profile": profile, "start": start} for profile, start in places]}]


def test_the_placement_in_a_profile_tuple_is_what_nvidia_smi_documents() -> None:
    words = " ".join(HELP.read_text().split())
    assert (
        "A profile tuple consists of a profile name or ID and an optional placement specifier, which consists of a colon and a placement start index" in words
    )
    for option in ("-cgi", "-dgi", "-cci", "-dci", "-gi", "-C", "-i"):
        assert f"[{option} |" in words


def test_a_bare_gpu_gets_mode_and_all_instances_in_one_command() -> None:
    board = Board()
    result = board.apply(layout(("1g.10gb", 0), ("1g.10gb", 1)))
    assert result["actions"] == [f"nvidia-smi -i {BUS} -mig 1", f"nvidia-smi mig -i {BUS} -cgi 1g.10gb:0,1g.10gb:1 -C"] == board.commands
    assert result["changed"]


def test_an_instance_in_its_place_is_never_touched() -> None:
    board = Board("enabled", [("3g.40gb", 0), ("1g.10gb", 4)])
    board.apply(layout(("3g.40gb", 0), ("3g.40gb", 4)))
    assert board.commands == [f"nvidia-smi mig -dci -i {BUS} -gi 2", f"nvidia-smi mig -dgi -i {BUS} -gi 2", f"nvidia-smi mig -i {BUS} -cgi 3g.40gb:4 -C"]


def test_the_layout_that_is_there_changes_nothing() -> None:
    board = Board("enabled", [("3g.40gb", 0), ("3g.40gb", 4)])
    result = board.apply(layout(("3g.40gb", 0), ("3g.40gb", 4)))
    assert (result["changed"], result["actions"], board.commands) == (False, [], [])
    assert result["diff"]["before"] == result["diff"]["after"] == {BUS: "MIG enabled 3g.40gb@0 3g.40gb@4"}


def test_switching_off_removes_the_instances_first() -> None:
    board = Board("enabled", [("7g.80gb", 0)])
    board.apply(layout(mode="disabled"))
    assert [option for command in board.commands for option in command.split() if option in ("-dci", "-dgi", "-mig")] == ["-dci", "-dgi", "-mig"]


@pytest.mark.parametrize("wanted", [(("7g.80gb", 0),), (("3g.40gb", 0), ("3g.40gb", 4)), ()])
@pytest.mark.parametrize("before", [[("7g.80gb", 0)], [("3g.40gb", 0), ("1g.10gb", 4)], []])
def test_a_run_that_was_killed_between_any_two_commands_is_finished_by_the_next(before: list[tuple[str, int]], wanted: tuple[tuple[str, int], ...]) -> None:
    planned = len(Board("enabled", list(before)).apply(layout(*wanted), check_mode=True)["actions"])
    for survived in range(planned):
        board = Board("enabled", list(before))
        for command in board.apply(layout(*wanted), check_mode=True)["actions"][:survived]:
            board.run(command.split())
        board.apply(layout(*wanted))
        assert board.apply(layout(*wanted))["changed"] is False


def test_a_compute_instance_that_is_missing_is_made_and_its_gpu_instance_stays() -> None:
    board = Board("enabled", [("3g.40gb", 0)])
    board.compute[1] = []
    board.apply(layout(("3g.40gb", 0)))
    assert board.commands == [f"nvidia-smi mig -cci -i {BUS} -gi 1"]


def test_several_compute_instances_are_not_the_one_that_was_planned() -> None:
    board = Board("enabled", [("3g.40gb", 0)])
    board.compute[1] = [0, 1]
    board.apply(layout(("3g.40gb", 0)))
    assert board.commands == [f"nvidia-smi mig -dci -i {BUS} -gi 1", f"nvidia-smi mig -cci -i {BUS} -gi 1"]


def test_check_mode_names_the_commands_and_runs_none() -> None:
    board = Board()
    result = board.apply(layout(("7g.80gb", 0)), check_mode=True)
    assert result["changed"] and len(result["actions"]) == 2
    assert board.commands == []


@pytest.mark.parametrize("places", [(), (("7g.80gb", 0),)])
def test_a_mode_that_waits_for_a_reset_is_an_error_that_says_so(places: tuple[tuple[str, int], ...]) -> None:
    board = Board(reset_needed=True)
    with pytest.raises(MigError, match="keeps MIG disabled until it is reset"):
        board.apply(layout(*places))
    assert board.commands == [f"nvidia-smi -i {BUS} -mig 1"], "nothing is created on a GPU whose mode waits"


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(MigError, match=r"GPU 0000:ff:00\.0 is in the plan"):
        Board().apply([{"pci_bus_id": "0000:ff:00.0", "mode": "enabled", "instances": []}])


def test_a_gpu_that_is_lost_during_the_change_is_named() -> None:
    board = Board()
    answers = iter([board.read(), {**board.read(), "gpus": []}])
    with pytest.raises(MigError, match=f"does not list GPU {BUS} any more"):
        apply(layout(), lambda: next(answers), board.run, False)


def test_a_state_that_differs_after_the_change_is_an_error() -> None:
    board = Board("enabled")
    with pytest.raises(MigError, match=r"holds MIG enabled after the change, planned was MIG enabled 7g\.80gb@0"):
        apply(layout(("7g.80gb", 0)), board.read, lambda command: None, False)


@pytest.mark.parametrize("state", ["hung", "failed", "garbled", "absent"])
def test_without_an_answer_of_nvidia_smi_nothing_is_done(state: str) -> None:
    board = Board()
    with pytest.raises(MigError, match=f"cannot be asked for the MIG layout \\({state}"):
        apply(layout(), lambda: {**absent(), "state": state}, board.run, False)
    assert board.commands == []


def test_an_instance_without_a_place_is_an_error_and_not_a_guess() -> None:
    board = Board("enabled", [("3g.40gb", 0)])
    answer = board.read()
    answer["gpus"][0]["mig"]["instances"][0]["placement_start"] = None
    with pytest.raises(MigError, match="does not say profile, id and place"):
        states(answer)


def test_a_gpu_without_mig_is_left_alone_when_mig_is_off() -> None:
    board = Board("unsupported")
    assert board.apply(layout(mode="disabled"))["changed"] is False
    with pytest.raises(MigError, match="does not support MIG"):
        board.apply(layout(mode="enabled"))


def test_a_pending_enable_is_taken_back_when_mig_is_to_be_off() -> None:
    assert commands_for(BUS, "disabled", [], GpuState("disabled", "enabled", ())) == [["nvidia-smi", "-i", BUS, "-mig", "0"]]


def test_instances_are_counted_once_however_many_compute_instances_they_have() -> None:
    board = Board("enabled", [("3g.40gb", 4)])
    board.compute[1] = [0, 1, 2]
    assert states(board.read())[BUS].instances == (GpuInstance("3g.40gb", 4, 1, (0, 1, 2)),)


def test_m6_the_names_of_the_instances_come_back_as_the_card_gave_them() -> None:
    board = Board()
    assert board.apply(layout(("1g.10gb", 4), ("3g.40gb", 0)), check_mode=True)["instances"] == []
    made = [
        {"pci_bus_id": BUS, "profile": "3g.40gb", "start": 0, "uuid": "MIG-1-0"},
        {"pci_bus_id": BUS, "profile": "1g.10gb", "start": 4, "uuid": "MIG-2-0"},
    ]
    assert board.apply(layout(("1g.10gb", 4), ("3g.40gb", 0)))["instances"] == made
    assert board.apply(layout(("1g.10gb", 4), ("3g.40gb", 0)))["instances"] == made
    board.compute[2] = []
    assert board.apply(layout(("1g.10gb", 4), ("3g.40gb", 0)), check_mode=True)["instances"] == made[:1], "what has no name can be given to nobody"
    assert board.apply(layout(mode="disabled"))["instances"] == []


def test_g5_a_profile_that_the_card_does_not_have_ends_in_its_own_words_and_makes_nothing() -> None:
    """Names and places come from the catalog. Of a card that has other ones nvidia-smi's refusal is what the operator reads; the card is not asked before."""
    board = Board("enabled")

    def run(command: list[str]) -> None:
        if "-cgi" in command:
            raise MigError("nvidia-smi mig exited 6: Unable to create a GPU instance on GPU 0 using profile 1g.18gb: Not Found")
        board.run(command)

    with pytest.raises(MigError, match=r"using profile 1g\.18gb: Not Found"):
        apply(layout(("1g.18gb", 0)), board.read, run, False)
    assert (board.instances, board.commands) == ({}, [])


def test_g11_g6_only_nvidia_smi_is_run_and_no_service_is_stopped_or_started() -> None:
    """A change of the layout leaves daemons as they are: one that was off stays off. One that holds a GPU is named, not stopped (see the module's errors)."""
    board = Board("enabled", [("3g.40gb", 0), ("1g.10gb", 4)])
    board.apply(layout(("7g.80gb", 0)))
    board.apply(layout(mode="disabled"))
    assert board.commands and {command.split()[0] for command in board.commands} == {"nvidia-smi"}


def test_m8_a_second_run_waits_and_then_says_who_holds_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUDO_USER", "ada")
    with (
        locked(tmp_path / "state", 5),
        pytest.raises(MigError, match=rf"being changed by ada, pid {os.getpid()}, since .*Z \(.*/state/mig\.lock\), and that was not over in 0 s"),
        locked(tmp_path / "state", 0.01),
    ):
        raise AssertionError("two runs have the lock")


def test_m8_a_second_run_goes_on_when_the_first_is_done(tmp_path: Path) -> None:
    order: list[str] = []
    inside = threading.Event()

    def first() -> None:
        with locked(tmp_path, 5):
            inside.set()
            time.sleep(0.2)
            order.append("first")

    thread = threading.Thread(target=first)
    thread.start()
    inside.wait(5)
    with locked(tmp_path, 30):
        order.append("second")
    thread.join()
    assert order == ["first", "second"]
    assert (tmp_path / LOCK).read_text() == "", "nobody is named once the layout is free"


def test_m8_a_run_that_failed_gives_the_lock_back(tmp_path: Path) -> None:
    with pytest.raises(MigError, match="refused"), locked(tmp_path, 5):
        raise MigError("nvidia-smi refused")
    with locked(tmp_path, 0):
        pass
