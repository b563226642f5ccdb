"""The MIG difference becomes commands; the nvidia-smi at the end is a double that keeps the state of one board."""

from __future__ import annotations

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.mig import GpuInstance, GpuState, MigError, apply, commands_for, parse_instances, parse_modes

BUS = "0000:1a:00.0"

# The row is as an A100 printed it (observed in a public repository); the frame is the one of `mig -lgip` in the recordings.
LGI = """\
+---------------------------------------------------------+
| GPU instances:                                          |
| GPU   Name               Profile  Instance   Placement  |
|                            ID       ID       Start:Size |
|=========================================================|
|   0  MIG 4g.20gb            5        1          0:4     |
+---------------------------------------------------------+
|   0  MIG 1g.5gb+me         20       13          4:1     |
+---------------------------------------------------------+
"""


class Board:
    """A test double of nvidia-smi for one GPU: enough of it to follow mode, creation and destruction."""

    def __init__(self, mode: str = "Disabled", instances: list[tuple[str, int]] | None = None, reset_needed: bool = False) -> None:
        self.current = self.pending = mode
        self.reset_needed = reset_needed
        self.instances = dict(enumerate(instances or [], start=1))
        self.commands: list[str] = []

    def __call__(self, command: list[str]) -> tuple[int, str, str]:
        text = " ".join(command)
        if "--query-gpu" in text:
            return 0, f"00000000:1A:00.0, {self.current}, {self.pending}\n", ""
        if "-lgi" in command:
            rows = "".join(f"|   0  MIG {profile}   19   {number}   {start}:1     |\n" for number, (profile, start) in self.instances.items())
            return (0, rows, "") if rows else (6, "No GPU instances found: Not Found\n", "")
        self.commands.append(text)
        if "-mig" in command:
            self.pending = "Enabled" if command[-1] == "1" else "Disabled"
            self.current = self.current if self.reset_needed else self.pending
        elif "-dgi" in command:
            del self.instances[int(command[-1])]
        elif "-cgi" in command:
            for each in command[command.index("-cgi") + 1].split(","):
                profile, start = each.split(":")
                self.instances[max(self.instances, default=0) + 1] = (profile, int(start))
        return 0, "", ""


def layout(*places: tuple[str, int], mode: str = "enabled") -> list[dict[str, object]]:
    return [{"pci_bus_id": BUS, "mode": mode, "instances": [{"profile": profile, "start": start} for profile, start in places]}]


def test_rows_of_the_instance_table_are_read() -> None:
    assert parse_instances(LGI) == (GpuInstance("4g.20gb", 0, 1), GpuInstance("1g.5gb+me", 4, 13))


@pytest.mark.parametrize("words", ["No GPU instances found: Not Found", "No MIG-enabled devices found."])
def test_both_ways_to_say_no_instances(words: str) -> None:
    assert parse_instances(words) == ()


@pytest.mark.parametrize("text", ["", "Unable to determine the device handle", "|   0  MIG"])
def test_anything_else_is_an_error_and_not_an_empty_list(text: str) -> None:
    with pytest.raises(MigError, match="not a list of GPU instances"):
        parse_instances(text)


def test_modes_are_keyed_by_the_bus_id_of_sysfs() -> None:
    assert parse_modes("00000000:1A:00.0, Disabled, Enabled\n00000000:1B:00.0, [N/A], [N/A]\n") == {
        BUS: ("disabled", "enabled"),
        "0000:1b:00.0": ("unsupported", "unsupported"),
    }


def test_a_bare_gpu_gets_mode_and_all_instances_in_one_command() -> None:
    board = Board()
    result = apply(layout(("1g.10gb", 0), ("1g.10gb", 1)), board, check_mode=False)
    assert result["actions"] == [f"nvidia-smi -i {BUS} -mig 1", f"nvidia-smi mig -i {BUS} -cgi 1g.10gb:0,1g.10gb:1 -C"] == board.commands
    assert result["changed"]


def test_an_instance_in_its_place_is_never_touched() -> None:
    board = Board("Enabled", [("3g.40gb", 0), ("1g.10gb", 4)])
    apply(layout(("3g.40gb", 0), ("3g.40gb", 4)), board, check_mode=False)
    assert board.commands == [f"nvidia-smi mig -dci -i {BUS} -gi 2", f"nvidia-smi mig -dgi -i {BUS} -gi 2", f"nvidia-smi mig -i {BUS} -cgi 3g.40gb:4 -C"]


def test_the_layout_that_is_there_changes_nothing() -> None:
    board = Board("Enabled", [("3g.40gb", 0), ("3g.40gb", 4)])
    result = apply(layout(("3g.40gb", 0), ("3g.40gb", 4)), board, check_mode=False)
    assert result == {"changed": False, "actions": [], "diff": {"before": result["diff"]["after"], "after": result["diff"]["after"]}}
    assert board.commands == []


def test_switching_off_removes_the_instances_first() -> None:
    board = Board("Enabled", [("7g.80gb", 0)])
    apply(layout(mode="disabled"), board, check_mode=False)
    assert [command.split()[2] if command.split()[1] == "mig" else command.split()[3] for command in board.commands] == ["-dci", "-dgi", "-mig"]


def test_check_mode_names_the_commands_and_runs_none() -> None:
    board = Board()
    result = apply(layout(("7g.80gb", 0)), board, check_mode=True)
    assert result["changed"] and len(result["actions"]) == 2
    assert board.commands == []


def test_a_mode_that_waits_for_a_reset_is_an_error_that_says_so() -> None:
    with pytest.raises(MigError, match="keeps MIG disabled until it is reset"):
        apply(layout(mode="enabled"), Board(reset_needed=True), check_mode=False)


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(MigError, match=r"GPU 0000:ff:00\.0 is in the plan"):
        apply([{"pci_bus_id": "0000:ff:00.0", "mode": "enabled", "instances": []}], Board(), check_mode=False)


def test_a_refusal_carries_the_words_of_nvidia_smi() -> None:
    def refuse(command: list[str]) -> tuple[int, str, str]:
        return (0, "00000000:1A:00.0, Disabled, Disabled\n", "") if "--query-gpu" in " ".join(command) else (19, "", "In use by another client")

    with pytest.raises(MigError, match="exit status 19: In use by another client"):
        apply(layout(), refuse, check_mode=False)


def test_a_state_that_differs_after_the_change_is_an_error() -> None:
    class Deaf(Board):
        def __call__(self, command: list[str]) -> tuple[int, str, str]:
            return super().__call__(command) if "-cgi" not in command else (0, "", "")

    with pytest.raises(MigError, match=r"holds MIG enabled after the change, planned was MIG enabled 7g\.80gb@0"):
        apply(layout(("7g.80gb", 0)), Deaf(), check_mode=False)


def test_a_gpu_without_mig_is_left_alone_when_mig_is_off() -> None:
    def smi(command: list[str]) -> tuple[int, str, str]:
        assert "--query-gpu" in " ".join(command)
        return 0, "00000000:1A:00.0, [N/A], [N/A]\n", ""

    assert apply(layout(mode="disabled"), smi, check_mode=False)["changed"] is False
    with pytest.raises(MigError, match="does not support MIG"):
        apply(layout(mode="enabled"), smi, check_mode=False)


def test_a_pending_enable_is_taken_back_when_mig_is_to_be_off() -> None:
    assert commands_for(BUS, "disabled", [], GpuState("disabled", "enabled", ())) == [["nvidia-smi", "-i", BUS, "-mig", "0"]]
