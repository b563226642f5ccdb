# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import bounded
from ansible_collections.rackready.gpu.plugins.module_utils.kernel_log import KernelLog
from gpu_host.sim import cli, ctk, daemons, faults, smi, tree
from gpu_host.sim.kernel import Kernel


class Commands(list[list[str]]):
    """The commands that were run; what each prints is looked up by its first two words. Unless something else is said, the host has apt."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: dict[str, str] = {}
        self.manager = "/usr/bin/apt-get\n"
        self.seen: Callable[[list[str]], None] = lambda command: None

    def run(self, command: list[str]) -> str:
        if command[:2] == ["sh", "-c"] and "command -v apt-get" in command[2]:
            return self.manager
        self.append(command)
        self.seen(command)
        return self.answers.get(" ".join(command[:2]), "")


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
def machine(driver: Kernel, commands: Commands) -> faults.Machine:
    return faults.Machine(driver.store, commands.run)


def test_the_fabric_manager_wants_its_own_version_and_switches(driver: Kernel) -> None:
    state = driver.store.read()
    assert daemons.fabric_refusal(state, "580.178.04") is None
    refusal = daemons.fabric_refusal(state, "580.159.04") or ""
    assert refusal.startswith("fabric manager NVIDIA GPU driver interface version 580.159.04 don't match with driver version 580.178.04.")
    state["board"]["nvswitches"] = []
    assert "NV_WARN_NOTHING_TO_DO" in (daemons.fabric_refusal(state, "580.178.04") or "")
    assert "NV_WARN_NOTHING_TO_DO" in (daemons.fabric_refusal(None, "580.178.04") or "")


def test_a_gone_gpu_is_off_the_bus_and_comes_back(machine: faults.Machine) -> None:
    folder = machine.store.root / "sys/bus/pci/devices"
    faults.break_(machine, "gpu-gone", "3")
    assert not (folder / "0000:4b:00.0").exists()
    assert (machine.store.root / "dev/nvidia3").exists()
    faults.break_(machine, "gpu-gone", None)
    assert not (folder / "0000:cb:00.0").exists()
    assert faults.heal(machine, None) == ["gpu-gone"]
    assert (folder / "0000:4b:00.0").exists()
    assert machine.store.read()["faults"] == {}


def test_a_slow_link_and_a_hot_gpu_are_seen_where_they_are_on_a_real_host(machine: faults.Machine) -> None:
    speed = machine.store.root / "sys/bus/pci/devices/0000:4b:00.0/current_link_speed"
    faults.break_(machine, "pcie-slow", "3")
    assert speed.read_text(encoding="utf-8") == "8.0 GT/s PCIe\n"
    assert (speed.parent / "max_link_speed").read_text(encoding="utf-8") == "32.0 GT/s PCIe\n"
    faults.break_(machine, "gpu-hot", "0")
    faults.break_(machine, "gpu-hot", None)
    assert set(machine.store.read()["faults"]["gpu-hot"]) == {"0000:1a:00.0", "0000:cb:00.0"}
    assert faults.heal(machine, None) == ["gpu-hot", "pcie-slow"]
    assert speed.read_text(encoding="utf-8") == "32.0 GT/s PCIe\n"
    assert machine.store.read()["faults"] == {}


@pytest.mark.parametrize(("argument", "number"), [(None, 79), ("31", 31), ("999", 999)])
def test_an_xid_comes_again_and_again_in_the_kernels_log(machine: faults.Machine, commands: Commands, argument: str | None, number: int) -> None:
    root = machine.store.root
    tree.kernel_log(root)
    before = KernelLog(bounded.Commands(), root)
    faults.break_(machine, "xid", argument)
    assert commands[-1] == ["systemctl", "start", "gpu-host-sim-xid.service"]
    for _time in range(3):
        faults.say_xid(machine.store)
    before.close()
    [event] = before.new.of("xid", "0000:cb:00.0")
    assert (event.code, before.new.counts[event], before.problem, before.earlier.counts) == (number, 3, None, {})
    assert faults.heal(machine, "xid") == ["xid"]
    faults.say_xid(machine.store)
    assert KernelLog(bounded.Commands(), root).earlier.counts[event] == 3


def test_an_xid_has_a_number(machine: faults.Machine) -> None:
    with pytest.raises(faults.FaultError, match="not the number of an Xid"):
        faults.break_(machine, "xid", "bus")


def test_a_held_gpu_has_a_job_of_a_unit(machine: faults.Machine, commands: Commands, open_node: Callable[..., None]) -> None:
    open_node(4711, ["python3", "train.py"], "nvidia2")
    faults.break_(machine, "gpu-held", "2")
    unit = machine.store.root / "run/systemd/system/train-gpu2.service"
    assert "ExecStart=@/usr/bin/python3 python3 train.py" in unit.read_text()
    assert ["systemctl", "start", "train-gpu2.service"] in commands
    faults.heal(machine, "gpu-held")
    assert ["systemctl", "stop", "train-gpu2.service"] in commands
    assert not unit.exists()


def test_a_hang_is_noted_and_taken_back(machine: faults.Machine) -> None:
    faults.break_(machine, "smi-hang", None)
    assert machine.store.read()["faults"] == {"smi-hang": True}
    assert faults.heal(machine, "smi-hang") == ["smi-hang"]
    assert faults.heal(machine, None) == []


@pytest.mark.parametrize(("before", "broken", "healed"), [("completed", "in_progress", "completed"), ("none", "none", "none")])
def test_a_fabric_that_does_not_complete_is_only_where_there_is_one(machine: faults.Machine, before: str, broken: str, healed: str) -> None:
    with machine.store.change() as state:
        state["fabric"] = before
    faults.break_(machine, "fabric-not-completed", None)
    assert machine.store.read()["fabric"] == broken
    faults.heal(machine, None)
    assert machine.store.read()["fabric"] == healed


@pytest.mark.parametrize(("name", "argument", "words"), [("gpu-gon", None, "no fault 'gpu-gon'"), ("gpu-gone", "8", "no GPU 8"), ("gpu-gone", "x", "no GPU x")])
def test_faults_that_cannot_be(machine: faults.Machine, name: str, argument: str | None, words: str) -> None:
    with pytest.raises(faults.FaultError, match=words):
        faults.break_(machine, name, argument)


def test_help_lists_every_fault_with_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["break", "help"]) == 0
    listed = capsys.readouterr().out.splitlines()
    assert [line.partition("[")[0] for line in listed[::2]] == list(faults.FAULTS)
    assert [line.strip() for line in listed[1::2]] == [fault.text for fault in faults.FAULTS.values()]


def test_nothing_can_hold_a_gpu_without_a_driver(kernel: Kernel, commands: Commands) -> None:
    with pytest.raises(faults.FaultError, match="no driver is loaded"):
        faults.break_(faults.Machine(kernel.store, commands.run), "gpu-held", None)
    assert kernel.store.read()["faults"] == {}


def test_a_held_gpu_may_be_held_by_a_container(machine: faults.Machine, commands: Commands, open_node: Callable[..., None]) -> None:
    with pytest.raises(faults.FaultError, match="no image"):
        faults.break_(machine, "gpu-in-container", "2")
    commands.answers["docker image"] = "1419dabc38fe\n"
    open_node(4711, ["python3", "train.py"], "nvidia2")
    faults.break_(machine, "gpu-in-container", "2")
    started = commands[-1]
    assert started[:4] == ["docker", "run", "--detach", "--name"]
    assert "nvidia.com/gpu=2" in started and started[-2:] == ["1419dabc38fe", "train.py"]
    faults.heal(machine, None)
    assert commands[-1] == ["docker", "rm", "--force", "train-gpu2"]


def test_a_remap_that_is_pending_is_that_of_one_gpu(machine: faults.Machine) -> None:
    faults.break_(machine, "row-remap-pending", "3")
    rows = smi.run(["--query-remapped-rows=gpu_bus_id,remapped_rows.pending", "--format=csv,noheader"], machine.store)[1].splitlines()
    assert [row.split(",")[0] for row in rows if row.endswith("Yes")] == ["00000000:4B:00.0"]
    faults.heal(machine, None)
    assert "Yes" not in smi.run(["--query-remapped-rows=remapped_rows.pending", "--format=csv,noheader"], machine.store)[1]


@pytest.mark.parametrize(
    ("argument", "printed"), [(None, "<nvidia"), ("truncated", "<nvidia"), ("words", "Unable to determine the device handle for GPU0: Unknown Error\n")]
)
def test_garbled_output_is_half_an_answer_or_none(machine: faults.Machine, argument: str | None, printed: str) -> None:
    faults.break_(machine, "smi-garbled", argument)
    assert smi.garbled("<nvidia_smi_log/>"[:14], machine.store.read()["faults"]["smi-garbled"]) == printed
    faults.heal(machine, None)
    assert smi.garbled("<nvidia", None) == "<nvidia"


def test_a_slow_answer_takes_its_seconds(machine: faults.Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("gpu_host.sim.smi.time.sleep", slept.append)
    for argument in (None, "3"):
        faults.break_(machine, "smi-slow", argument)
        smi.hang_while_faulty(machine.store)
    faults.heal(machine, None)
    smi.hang_while_faulty(machine.store)
    assert slept == [8, 3, 0]


INSTALLED = """\
hi  libcuda1 580.178.04-1
ii  nvidia-driver-cuda 580.178.04-1
hi  nvidia-fabricmanager 580.178.04-1
rc  nvidia-open 580.178.04-1
ii  nvidia-container-toolkit 1.20.0-1
"""
KNOWN = """\
 nvidia-driver-cuda | 595.91.07-1 | https://172.30.86.2/cuda  Packages
 nvidia-driver-cuda | 580.178.04-1 | https://172.30.86.2/cuda  Packages
 nvidia-driver-cuda | 580.159.04-1 | https://172.30.86.2/cuda  Packages
"""


@pytest.mark.parametrize(("argument", "version"), [(None, "595.91.07-1"), ("580.159.04", "580.159.04-1")])
def test_an_upgrade_takes_all_of_the_driver_and_heals_to_what_was_there(
    machine: faults.Machine, commands: Commands, argument: str | None, version: str
) -> None:
    commands.answers = {"dpkg-query --show": INSTALLED, "apt-cache madison": KNOWN}
    faults.break_(machine, "driver-upgraded", argument)
    assert commands[-1][-2:] == [f"libcuda1={version}", f"nvidia-driver-cuda={version}"]
    with pytest.raises(faults.FaultError, match="heal it first"):
        faults.break_(machine, "driver-upgraded", None)
    faults.heal(machine, None)
    assert commands[-3][-2:] == ["libcuda1=580.178.04-1", "nvidia-driver-cuda=580.178.04-1"]
    assert commands[-2] == ["apt-mark", "hold", "libcuda1"]
    assert machine.store.read()["faults"] == {}


@pytest.mark.parametrize(
    ("there", "argument", "words"), [("", None, "is not installed"), (INSTALLED, "570.1", "no nvidia-driver-cuda 570.1; there are 595.91.07-1")]
)
def test_an_upgrade_that_cannot_be(machine: faults.Machine, commands: Commands, there: str, argument: str | None, words: str) -> None:
    commands.answers = {"dpkg-query --show": there, "apt-cache madison": KNOWN}
    with pytest.raises(faults.FaultError, match=words):
        faults.break_(machine, "driver-upgraded", argument)
    assert machine.store.read()["faults"] == {}


@pytest.mark.parametrize("fault", ["driver-upgraded", "fabric-manager-version"])
@pytest.mark.parametrize(("manager", "words"), [("/usr/bin/dnf\n", "this host has dnf"), ("", "this host has neither")])
def test_faults_of_another_version_need_apt_and_say_so(machine: faults.Machine, commands: Commands, fault: str, manager: str, words: str) -> None:
    commands.manager = manager
    with pytest.raises(
        faults.FaultError, match=f"the fault {fault} needs apt, which it is made with, and {words}; nothing was changed: choose a host with apt"
    ):
        faults.break_(machine, fault, None)
    assert machine.store.read()["faults"] == {} and commands == []


def test_a_fabric_manager_of_another_version_comes_alone_and_joins_no_gpu(machine: faults.Machine, commands: Commands) -> None:
    with machine.store.change() as state:
        state["fabric"] = "completed"
    commands.answers = {"dpkg-query --show": INSTALLED, "apt-cache madison": KNOWN.replace("driver-cuda", "fabricmanager")}
    faults.break_(machine, "fabric-manager-version", None)
    assert commands[-2][-1] == "nvidia-fabricmanager=595.91.07-1"
    assert commands[-1] == ["sh", "-c", "! systemctl restart nvidia-fabricmanager.service"]
    assert machine.store.read()["fabric"] == "in_progress"


SPEC = """\
containerEdits:
    deviceNodes:
        - path: /dev/nvidia-uvm
          major: 1
          minor: 3
        - path: /dev/nvidiactl
          major: 1
    mounts:
        - hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04
          containerPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04
"""


@pytest.mark.parametrize(
    ("argument", "changed"),
    [
        (None, SPEC.replace("major: 1\n          minor: 3", "major: 511\n          minor: 3")),
        ("files", SPEC.replace("hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.178.04", "hostPath: /usr/lib/x86_64-linux-gnu/libcuda.so.580.95.05")),
    ],
)
def test_a_stale_specification_has_numbers_or_files_of_the_past(machine: faults.Machine, commands: Commands, argument: str | None, changed: str) -> None:
    with pytest.raises(faults.FaultError, match="nothing that could be stale"):
        faults.break_(machine, "cdi-stale", argument)
    path = machine.store.root / faults.CDI_SPEC
    path.parent.mkdir(parents=True)
    path.write_text(SPEC)
    faults.break_(machine, "cdi-stale", argument)
    assert path.read_text() == changed
    faults.heal(machine, None)
    assert commands[-1] == ["systemctl", "restart", "nvidia-cdi-refresh.service"]


def test_a_runtime_with_small_shared_memory_leaves_daemon_json_as_it_was(machine: faults.Machine, commands: Commands) -> None:
    path = machine.store.root / faults.DAEMON_JSON
    path.parent.mkdir(parents=True)
    path.write_text('{"features": {"cdi": true}}')
    before = path.stat().st_mtime_ns
    commands.answers["docker info"] = "small-shm\n"
    faults.break_(machine, "shm-small", None)
    merged = json.loads(path.read_text())
    assert merged["features"] == {"cdi": True} and merged["default-runtime"] in merged["runtimes"]
    commands.answers["docker info"] = "runc\n"
    reloaded: list[str] = []
    commands.seen = lambda command: reloaded.append(json.loads(path.read_text())["default-runtime"]) if "reload" in command else None
    faults.heal(machine, None)
    assert reloaded == ["runc"], "what the file does not mention a reload leaves as it is"
    assert (path.read_text(), path.stat().st_mtime_ns) == ('{"features": {"cdi": true}}', before)


@pytest.mark.parametrize("name", sorted(ctk.COMPUTING_FAULTS))
def test_a_gpu_that_computes_badly_is_noted_by_its_number_and_brought_into_containers(machine: faults.Machine, commands: Commands, name: str) -> None:
    faults.break_(machine, name, "3")
    assert machine.store.read()["faults"] == {name: 3}
    assert commands == [["systemctl", "restart", "nvidia-cdi-refresh.service"]]
    faults.heal(machine, None)
    assert machine.store.read()["faults"] == {} and len(commands) == 2
