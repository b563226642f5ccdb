# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Looking at GPUs while they work: what is asked when, and what is kept. nvidia-smi answers with the recording of an H200."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import kernel_log
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Child, Result
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_gpus import ExpectedGpu
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_watch import LINK_S, SAMPLE_S, Watch
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_window import Reading, Slot, judge

from tests.unit.hosts import Answer, Answers

RECORDED = (Path(__file__).parents[4] / "tests/fixtures/h200/smi-q.xml").read_text(encoding="utf-8")
BUS_ID = "0000:00:06.0"
UUID = "GPU-11111111-2222-3333-4444-555555555555"
H200 = ExpectedGpu(BUS_ID, "10de:2335", UUID, "NVIDIA H200", "9.0", "h200-sxm-141gb", 141)
NVLINK = f"GPU 0: NVIDIA H200 (UUID: {UUID})\n\t Link 0: Replay Errors: 0\n\t Link 0: Recovery Errors: 0\n\t Link 0: CRC Errors: 3\n\n"


class Tool(Answers):
    """Answers, counting the questions; a sample may be still under way."""

    def __init__(self, xml: str = RECORDED, nvlink: str = NVLINK) -> None:
        super().__init__()
        self["nvidia-smi -q -x"] = xml
        self["nvidia-smi nvlink -e"] = nvlink
        self.asked: list[str] = []
        self.slow = False

    def start(self, argv: list[str], timeout: float, env: dict[str, str] | None = None) -> Child:
        self.asked.append(" ".join(argv[1:]))
        child = super().start(argv, timeout, env)
        return Slow(child.finish()) if self.slow else child


class Slow(Answer):
    given_up = False

    @property
    def over(self) -> bool:
        return False

    def give_up(self) -> None:
        Slow.given_up = True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def machine(tmp_path: Path, speed: str = "32.0 GT/s PCIe", width: int = 16, port: str | None = "16.0 GT/s PCIe") -> Path:
    """A root with the GPU below a port, as sysfs has it, and an empty kernel log."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/kmsg").write_text("")
    above = tmp_path / "sys/devices/pci0000:00/0000:00:01.0"
    device = above / BUS_ID
    device.mkdir(parents=True)
    for name, text in (("current_link_speed", speed), ("current_link_width", str(width))):
        (device / name).write_text(text + "\n")
    if port:
        (above / "max_link_speed").write_text(port + "\n")
        (above / "max_link_width").write_text("8\n")
    bus = tmp_path / "sys/bus/pci/devices"
    bus.mkdir(parents=True)
    (bus / BUS_ID).symlink_to(f"../../../../sys/devices/pci0000:00/0000:00:01.0/{BUS_ID}")
    return tmp_path


def watch(root: Path, tool: Tool | None = None) -> tuple[Watch, Tool, Clock]:
    clock, tool = Clock(), tool or Tool()
    return Watch([H200], 15, tool, root, clock), tool, clock


def test_a_window_of_a_recorded_gpu(tmp_path: Path) -> None:
    watched, tool, clock = watch(machine(tmp_path))
    clock.now += LINK_S
    watched.tick({0: "copy.host_to_device"})
    clock.now += 50
    window = watched.finish(ask=True)
    assert window.seconds == pytest.approx(50 + LINK_S)
    assert window.slots == {BUS_ID: Slot(4, 8)}
    assert window.before == window.after
    assert window.after.gpus[BUS_ID]["link"] == {"generation": 5, "max_generation": 5, "width": 16, "max_width": 16}
    assert window.after.nvlinks == {UUID: {0: {"Replay Errors": 0, "Recovery Errors": 0, "CRC Errors": 3}}}
    assert Reading("copy.host_to_device", None, 5, 16) in window.readings[BUS_ID]
    assert (window.log_problem, tool.asked.count("nvlink -e")) == (None, 2)
    assert {check["status"] for check in judge(window, [H200])} == {"pass"}


def test_the_link_is_read_while_it_copies_and_not_all_the_time(tmp_path: Path) -> None:
    root = machine(tmp_path, "2.5 GT/s PCIe")
    watched, _tool, clock = watch(root)
    speed = root / "sys/bus/pci/devices" / BUS_ID / "current_link_speed"
    watched.tick({0: "copy.host_to_device"})
    clock.now += LINK_S
    watched.tick({0: "matmul.bf16"})
    assert watched.finish(ask=False).readings[BUS_ID] == [Reading(None, None, 1, 16)]
    watched, _tool, clock = watch(root)
    speed.write_text("32.0 GT/s PCIe\n")
    clock.now += LINK_S
    watched.tick({0: "copy.device_to_host"})
    clock.now += LINK_S / 2
    speed.write_text("5.0 GT/s PCIe\n")
    watched.tick({0: "copy.device_to_host"})
    assert watched.finish(ask=False).readings[BUS_ID] == [Reading("copy.device_to_host", None, 5, 16), Reading(None, None, 2, 16)]


def test_nvidia_smi_is_asked_now_and_then_and_never_waited_for(tmp_path: Path) -> None:
    watched, tool, clock = watch(machine(tmp_path))
    first = len(tool.asked)
    watched.tick({0: "matmul.bf16"})
    assert len(tool.asked) == first
    clock.now += SAMPLE_S
    watched.tick({0: "matmul.bf16"})
    assert tool.asked[first:] == ["-q -x"]
    watched.tick({0: "copy.host_to_device"})
    # What it ran under is what it did when it was asked.
    assert Reading("matmul.bf16", 0x1, 5, 16) in watched.finish(ask=False).readings[BUS_ID]
    tool.slow, Slow.given_up = True, False
    watched, tool, clock = watch(tmp_path, tool)
    clock.now += SAMPLE_S
    for _tick in range(3):
        watched.tick({0: None})
        clock.now += SAMPLE_S
    assert tool.asked[-2:] == ["nvlink -e", "-q -x"]
    watched.finish(ask=False)
    assert Slow.given_up


def test_it_is_asked_again_and_again_and_what_is_alike_is_kept_once(tmp_path: Path) -> None:
    watched, tool, clock = watch(machine(tmp_path))
    first = len(tool.asked)
    for _turn in range(3):
        clock.now += SAMPLE_S
        watched.tick({0: "copy.host_to_device"})
        watched.tick({0: "copy.host_to_device"})
    assert tool.asked[first:] == ["-q -x"] * 3
    readings = watched.finish(ask=False).readings[BUS_ID]
    assert len(readings) == len(set(readings))
    assert {reading.stage for reading in readings} == {"copy.host_to_device", None}


def test_what_nvidia_smi_says_with_an_error_is_no_reading(tmp_path: Path) -> None:
    tool = Tool()
    tool["nvidia-smi -q -x"] = Result(9, RECORDED.encode(), b"no driver", 0.1)
    watched, _tool, clock = watch(machine(tmp_path), tool)
    clock.now += SAMPLE_S
    watched.tick({0: None})
    watched.tick({0: None})
    window = watched.finish(ask=True)
    assert [reading.mask for reading in window.readings[BUS_ID]] == [None]
    assert (window.before.gpus, window.after.gpus) == ({}, {})


def test_the_kernels_log_is_looked_at_each_time_and_quickly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not read for long the kernel overwrites."""
    watched, _tool, _clock = watch(machine(tmp_path))
    looks: list[float] = []
    monkeypatch.setattr(kernel_log.KernelLog, "look", lambda self, seconds=9.9: looks.append(seconds))
    watched.tick({0: None})
    watched.tick({0: "matmul.bf16"})
    assert looks == [0.2, 0.2]


def test_without_time_left_nothing_is_asked_at_the_end(tmp_path: Path) -> None:
    watched, tool, _clock = watch(machine(tmp_path))
    before = len(tool.asked)
    window = watched.finish(ask=False)
    assert len(tool.asked) == before
    assert window.after.problem == window.after.nvlink_problem == "there was no time left to ask nvidia-smi"


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Result(None, b"", b"", 15.0, "did not end within 15 s and was given up"), "nvidia-smi did not end within 15 s and was given up"),
        (Result(9, b"", b"no driver", 0.1), "nvidia-smi exited 9: no driver"),
        ("not xml", "nvidia-smi wrote something that is not its XML"),
    ],
)
def test_what_nvidia_smi_does_instead_of_answering(tmp_path: Path, answer: Result | str, words: str) -> None:
    tool = Tool()
    tool["nvidia-smi -q -x"] = answer
    watched, _tool, clock = watch(machine(tmp_path), tool)
    clock.now += SAMPLE_S
    watched.tick({0: None})
    watched.tick({0: None})
    window = watched.finish(ask=True)
    assert str(window.before.problem).startswith(words) and window.after.gpus == {}
    assert [reading.mask for reading in window.readings[BUS_ID]] == [None]


def test_links_that_cannot_be_asked_for(tmp_path: Path) -> None:
    tool = Tool()
    tool["nvidia-smi nvlink -e"] = Result(3, b"", b"not supported", 0.1)
    window = watch(machine(tmp_path), tool)[0].finish(ask=True)
    assert window.before.nvlink_problem == "nvidia-smi nvlink -e exited 3: not supported"


def test_a_host_without_nvidia_smi(tmp_path: Path) -> None:
    clock = Clock()
    watched = Watch([H200], 15, Answers(), machine(tmp_path), clock)
    clock.now += SAMPLE_S
    watched.tick({0: "copy.host_to_device"})
    assert watched.finish(ask=True).after.problem == "nvidia-smi is not installed"


def test_a_gpu_that_hangs_on_no_port_and_tells_no_link(tmp_path: Path) -> None:
    root = machine(tmp_path, port=None)
    window = watch(root)[0].finish(ask=True)
    assert window.slots == {BUS_ID: Slot(None, None)}


def test_what_the_kernel_says_meanwhile(tmp_path: Path) -> None:
    watched, _tool, _clock = watch(machine(tmp_path))
    with (tmp_path / "dev/kmsg").open("a") as log:
        log.write("3,1,1,-;NVRM: Xid (PCI:0000:00:06): 79, x\n")
    watched.tick({})
    with (tmp_path / "dev/kmsg").open("a") as log:
        log.write("3,2,1,-;NVRM: Xid (PCI:0000:00:06): 48, x\n")
    window = watched.finish(ask=False)
    assert sorted(event.code for event in window.new.counts) == [48, 79]
