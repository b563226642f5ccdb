# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The files with which a host tests itself: what systemd thinks of its units, and that the service may do what the command does."""

from __future__ import annotations

import configparser
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_alone, smoke_test, smoke_tiers, stamp, verify_tool
from ansible_collections.rackready.gpu.plugins.module_utils.verify_tool import REQUEST, SERVICE, TIMER, TOOL, UNITS

NEEDS_SYSTEMD = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")


def unit(name: str, timer: str = "off") -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, comment_prefixes=("#",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    [text] = [file.data.decode("utf-8") for file in verify_tool.units(timer) if file.path == f"{UNITS}/{name}"]
    parser.read_string(text)
    return parser


@NEEDS_SYSTEMD
@pytest.mark.parametrize("timer", ["off", "daily", "Mon..Fri 04:00", "Sat *-*-01,15 23:59"])
def test_systemd_finds_nothing_wrong_with_them(tmp_path: Path, timer: str) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n", encoding="utf-8")
    tool.chmod(0o755)
    paths = []
    for file in verify_tool.units(timer):
        path = tmp_path / Path(file.path).name
        path.write_text(file.data.decode("utf-8").replace(TOOL, str(tool)), encoding="utf-8")
        paths.append(str(path))
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", *paths], capture_output=True, text=True, check=False, timeout=60)
    # Of the machine that runs the tests other units may have warnings.
    assert not [line for line in ran.stderr.splitlines() if "rackready" in line], ran.stderr
    assert ran.returncode == 0, ran.stderr


def test_the_service_runs_the_quick_test_and_a_host_in_use_is_no_failure_of_it() -> None:
    service = unit(SERVICE)["Service"]
    assert service["ExecStart"] == f"{TOOL} --tier quick"
    assert service["SuccessExitStatus"] == str(smoke_alone.NOT_TESTED)


@pytest.mark.parametrize("backend", ["cuda", "cpu"])
def test_the_test_ends_by_itself_before_systemd_ends_it(backend: str) -> None:
    assert unit(SERVICE)["Service"]["TimeoutStartSec"] == "15min"
    assert smoke_tiers.limit_s("quick", 16, backend) + smoke_test.FABRIC_WAIT_S < 15 * 60


def test_asked_to_end_only_the_command_gets_the_signal_so_that_it_can_end_its_container() -> None:
    assert unit(SERVICE)["Service"]["KillMode"] == "mixed"


def test_it_may_write_its_state_and_nothing_else() -> None:
    service = unit(SERVICE)["Service"]
    assert service["ProtectSystem"] == "strict"
    assert f"/var/lib/{service['StateDirectory']}" == str(stamp.STATE_DIR)
    # The payload lies there too, and not in /tmp, which the engine would see another one of.
    assert service["PrivateTmp"] == "yes"


@pytest.mark.parametrize(
    "option",
    [
        "PrivateDevices",  # /dev/nvidia*, /dev/kmsg
        "DevicePolicy",
        "ProtectClock",  # implies a device policy
        "ProtectKernelLogs",  # /dev/kmsg
        "ProtectKernelModules",  # nvidia-modprobe
        "ProtectProc",  # who holds a GPU
        "ProcSubset",
        "CapabilityBoundingSet",
        "User",
        "DynamicUser",
        "PrivateNetwork",
        "PrivateUsers",
        "RestrictAddressFamilies",
        "InaccessiblePaths",  # the engine's socket
        "MemoryDenyWriteExecute",  # the driver's libraries
        "SystemCallFilter",
        "NoNewPrivileges",  # SELinux
    ],
)
def test_nothing_keeps_it_from_what_it_looks_at(option: str) -> None:
    assert option not in unit(SERVICE)["Service"]


def test_the_service_starts_after_what_it_asks_and_only_by_its_timer() -> None:
    service = unit(SERVICE)
    assert {"docker.service", "nvidia-persistenced.service", "nvidia-fabricmanager.service"} <= set(service["Unit"]["After"].split())
    assert "Install" not in service


@pytest.mark.parametrize(("timer", "when"), [("off", "daily"), ("daily", "daily"), ("Sat 03:30", "Sat 03:30")])
def test_the_timer_says_when_and_spreads_a_fleet(timer: str, when: str) -> None:
    parsed = unit(TIMER, timer)
    assert parsed["Timer"]["OnCalendar"] == when
    assert parsed["Timer"]["RandomizedDelaySec"] == "1h"
    assert parsed["Install"]["WantedBy"] == "timers.target"


def test_the_request_is_one_text_whatever_the_order_of_its_keys() -> None:
    first, second = (verify_tool.request_file(asked).data for asked in ({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"d": 3, "c": 2}, "a": 1}))
    assert first == second
    assert json.loads(first) == {"a": 1, "b": {"c": 2, "d": 3}}


def test_the_command_is_written_last_and_only_root_reads_the_request() -> None:
    files = verify_tool.files({}, "off")
    assert [file.path for file in files] == [REQUEST, f"{UNITS}/{SERVICE}", f"{UNITS}/{TIMER}", TOOL]
    assert [file.mode for file in files] == ["0600", "0644", "0644", "0755"]


@pytest.mark.parametrize("timer", ["off", "daily"])
def test_g4_the_unit_has_a_limit_and_no_boot_waits_for_it(timer: str) -> None:
    """A oneshot unit has no limit unless it says one. It is started by its timer alone: no target wants or requires it, and it comes before nothing."""
    service = unit(SERVICE, timer)
    assert (service["Service"]["Type"], service["Service"]["TimeoutStartSec"]) == ("oneshot", "15min")
    assert "Install" not in service
    assert not {"Before", "RequiredBy", "Wants", "Requires"} & set(service["Unit"])
    assert dict(unit(TIMER, timer)["Install"]) == {"WantedBy": "timers.target"}
    assert "OnBootSec" not in unit(TIMER, timer)["Timer"]
