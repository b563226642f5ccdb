# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who holds a GPU."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.holders import char_device, container_of, device_nodes, holders, unit_of
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.hosts import CONVERGED, Host, Tree

OUTER = "a" * 64
INNER = "b" * 64
NULL_NODES = [{"path": "/dev/nvidia0", "major": 1, "minor": 3}]  # the lab's nodes are null devices


def by_process(found: list[dict[str, Any]]) -> dict[int, list[str]]:
    processes: dict[int, list[str]] = {}
    for holder in found:
        processes.setdefault(holder["pid"], []).append(holder["device"])
    return processes


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return Host().tree(tmp_path)


def test_open_null_device_is_no_holder_of_a_node_with_its_number(tree: Tree) -> None:
    tree.process(10, "/bin/cat", {3: "/dev/null"})
    tree.process(11, "/bin/cat", {3: "/dev/nvidia0"})
    assert by_process(holders(tree.root, NULL_NODES)) == {11: ["/dev/nvidia0"]}


def test_links_that_are_no_nodes(tree: Tree) -> None:
    tree.process(10, "/bin/cat", {3: "/home/u/nvidia0", 4: "socket:[1]", 5: "/srv/dev/nvidia0/a/b", 6: "pipe:[/dev/nvidia0]", 7: "/dev/nvme0"})
    assert holders(tree.root, NULL_NODES) == []


def test_nodes_seen_from_a_chroot_and_deleted_nodes(tree: Tree) -> None:
    tree.process(10, "/bin/a", {3: "/srv/chroot/dev/nvidia-caps/nvidia-cap1", 4: "/dev/nvidia0 (deleted)", 5: "/dev/nvidia0"})
    assert by_process(holders(tree.root, NULL_NODES)) == {10: ["/dev/nvidia-caps/nvidia-cap1", "/dev/nvidia0"]}


def test_node_under_another_name_is_known_by_its_number(tree: Tree) -> None:
    number = char_device(Path("/dev/tty"))
    assert number is not None
    nodes = [{"path": "/dev/nvidia0", "major": number[0], "minor": number[1]}]
    tree.process(10, "/bin/a", {3: "/dev/tty"})
    tree.process(11, "/bin/a", {3: "/dev/null"})
    tree.process(12, "/bin/a", {3: "/dev/is/not/there"})
    assert by_process(holders(tree.root, nodes)) == {10: ["/dev/nvidia0"]}


def test_our_own_question_is_left_out_with_its_process_group(tree: Tree) -> None:
    tree.process(10, "/usr/bin/nvidia-smi -q -x", {3: "/dev/nvidia0"})
    tree.process(11, "/usr/bin/nvidia-modprobe", {3: "/dev/nvidia0"})
    tree.write("/proc/11/stat", "11 (nvidia (modprobe) 7) S 10 10 10 0 -1\n")
    tree.process(12, "/usr/bin/nvidia-smi dmon", {3: "/dev/nvidia0"})
    assert by_process(holders(tree.root, NULL_NODES, frozenset([10]))) == {12: ["/dev/nvidia0"]}


@pytest.mark.parametrize(
    ("command", "role"),
    [
        ("/usr/bin/nvidia-persistenced --user nvpd", "service"),
        ("/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg", "service"),
        ("/usr/bin/nvidia-imex", "service"),
        ("/usr/bin/nv-hostengine -n --service-account nvidia-dcgm", "service"),
        ("/opt/nvidia/nvlsm/sbin/nvlsm", "service"),
        ("python3 nvidia-persistenced.py", "workload"),
        ("/usr/bin/nvidia-smi -q", "workload"),
    ],
)
def test_roles(tree: Tree, command: str, role: str) -> None:
    tree.process(10, command, {3: "/dev/nvidia0"})
    [holder] = holders(tree.root, NULL_NODES)
    assert (holder["command"], holder["role"]) == (command, role)


def test_long_command_lines_and_none(tree: Tree) -> None:
    tree.process(10, "python3 " + "x" * 500, {3: "/dev/nvidia0"})
    tree.process(11, "worker", {3: "/dev/nvidia0"})
    tree.write("/proc/11/cmdline", "")
    commands = [holder["command"] for holder in holders(tree.root, NULL_NODES)]
    assert commands == [("python3 " + "x" * 500)[:200], "[worker]"]


def wedge(tree: Tree, pid: int) -> None:
    """Make the command line of a process one whose reading never ends."""
    path = tree.root / f"proc/{pid}/cmdline"
    path.unlink()
    os.mkfifo(path)


def test_a_wedged_holder_is_named_without_its_command_line(tree: Tree) -> None:
    tree.process(10, "python3 train.py", {3: "/dev/nvidia0"}, "0::/system.slice/train.service\n")
    tree.process(11, "/usr/bin/nvidia-persistenced --user nvpd", {3: "/dev/nvidia0"})
    tree.process(12, "python3 other.py", {3: "/dev/nvidia0"})
    for pid in (10, 11):
        wedge(tree, pid)
    started = time.monotonic()
    found = {holder["pid"]: (holder["command"], holder["role"], holder["unit"]) for holder in holders(tree.root, NULL_NODES)}
    assert time.monotonic() - started < 10
    assert found[10] == ("python3 (its command line cannot be read)", "workload", "train.service")
    assert found[11] == ("nvidia-persiste (its command line cannot be read)", "service", None)
    assert found[12][0] == "python3 other.py"


def test_many_wedged_holders_do_not_add_up(tree: Tree) -> None:
    """64 ranks of a job hang together, as they do. All of them are named, and the facts do not take a minute."""
    for pid in range(100, 164):
        tree.process(pid, "python3 train.py", {3: "/dev/nvidia0"})
    asked: list[float] = []

    def silent(path: Path, limit_bytes: int, timeout: float) -> bytes | None:
        asked.append(timeout)
        return None

    found = holders(tree.root, NULL_NODES, read=silent)
    assert [holder["pid"] for holder in found] == list(range(100, 164))
    assert {holder["command"] for holder in found} == {"python3 (its command line cannot be read)"}
    assert len(asked) < 64
    assert max(asked) <= 1


def test_nothing_but_the_child_opens_a_command_line(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    tree.process(10, "python3 train.py", {3: "/dev/nvidia0"})
    opened: list[str] = []
    real = Path.open

    def watched(self: Path, *arguments: Any, **options: Any) -> Any:
        opened.append(self.name)
        return real(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", watched)
    [holder] = holders(tree.root, NULL_NODES)
    assert holder["command"] == "python3 train.py"
    assert opened
    assert not {"cmdline", "environ", "maps", "smaps", "mem", "wchan", "stack"} & set(opened)


def test_host_that_is_itself_a_container(tree: Tree) -> None:
    tree.write("/proc/1/cgroup", f"5:devices:/docker/{OUTER}\n1:name=systemd:/docker/{OUTER}/init.scope\n")
    tree.process(10, "/bin/a", {3: "/dev/nvidia0"}, f"5:devices:/docker/{OUTER}\n1:name=systemd:/docker/{OUTER}/system.slice/job.service\n")
    tree.process(11, "/bin/a", {3: "/dev/nvidia0"}, f"5:devices:/docker/{OUTER}/docker/{INNER}\n1:name=systemd:/docker/{OUTER}/docker/{INNER}\n")
    found = [(holder["unit"], holder["container"]) for holder in holders(tree.root, NULL_NODES)]
    assert found == [("job.service", None), (None, INNER[:12])]


@pytest.mark.parametrize(
    ("cgroup", "container", "unit"),
    [
        ("0::/user.slice/user-0.slice/session-3.scope\n", None, "session-3.scope"),
        ("0::/user.slice/user-1.slice/user@1.service/app.slice/run-7.scope\n", None, "run-7.scope"),
        (f"0::/system.slice/docker-{INNER}.scope\n", INNER[:12], None),
        (f"0::/machine.slice/libpod-{INNER}.scope/container\n", INNER[:12], None),
        (f"0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-{INNER}.scope\n", INNER[:12], None),
        (f"12:devices:/docker/{INNER}\n3:cpu,cpuacct:/docker/{INNER}\n", INNER[:12], None),
        ("12:devices:/system.slice\n1:name=systemd:/system.slice/slurmd.service\n", None, "slurmd.service"),
        ("0::/\n", None, None),
        ("", None, None),
    ],
)
def test_control_groups(cgroup: str, container: str | None, unit: str | None) -> None:
    assert (container_of(cgroup), unit_of(cgroup)) == (container, unit)


@given(st.text())
def test_arbitrary_control_groups(text: str) -> None:
    container = container_of(text)
    assert container is None or len(container) == 12
    unit = unit_of(text)
    assert unit is None or unit.endswith((".service", ".scope"))


def test_processes_that_go_away_are_passed_over(tree: Tree) -> None:
    (tree.root / "proc/77").mkdir()
    tree.process(10, "/bin/a", {3: "/dev/nvidia0"})
    (tree.root / "proc/10/cgroup").unlink()
    [holder] = holders(tree.root, NULL_NODES)
    assert (holder["pid"], holder["unit"]) == (10, None)


def test_real_process_with_the_null_device_open() -> None:
    """This very process has /dev/null open under that name, and its number is that of the node."""
    with Path("/dev/null").open("rb"):
        assert not [holder for holder in holders(Path("/"), NULL_NODES) if holder["pid"] == os.getpid()]


def test_nodes_are_character_devices_only(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/nvidia0").write_text("")
    assert device_nodes(tmp_path) == []
    assert char_device(Path("/dev/null")) == (1, 3)
    tree = Host(**CONVERGED).tree(tmp_path / "host")
    assert {"path": "/dev/nvidia-caps/nvidia-cap1", "major": 508, "minor": 1} in device_nodes(tree.root, tree.number_of)
