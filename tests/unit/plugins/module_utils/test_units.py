# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""systemd units and the engine's flags."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.units import engine_flags, parse_show, unit_state
from hypothesis import given
from hypothesis import strategies as st

# As systemd 252 writes it for Debian's docker.io and for a unit that is not there.
SHOW = """\
Environment=FOO=bar
EnvironmentFiles=/etc/default/docker (ignore_errors=yes)
EnvironmentFiles=/etc/default/more (ignore_errors=no)
ExecStart={ path=/usr/sbin/dockerd ; argv[]=/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock $DOCKER_OPTS --label a=${FOO} -D ; \
ignore_errors=no ; start_time=[n/a] ; stop_time=[n/a] ; pid=0 ; code=(null) ; status=0/0 }
Id=docker.service
LoadState=loaded
ActiveState=active
UnitFileState=enabled

Id=nvidia-imex.service
LoadState=not-found
ActiveState=inactive
UnitFileState=

Id=nvidia-persistenced.service
LoadState=masked
ActiveState=inactive
UnitFileState=masked
"""


def test_show() -> None:
    units = parse_show(SHOW)
    assert {name: unit_state(properties) for name, properties in units.items()} == {
        "docker.service": {"load": "loaded", "active": "active", "enabled": "enabled"},
        "nvidia-imex.service": {"load": "not-found", "active": "inactive", "enabled": "not-found"},
        "nvidia-persistenced.service": {"load": "masked", "active": "inactive", "enabled": "masked"},
    }


def test_flags_of_the_unit_its_drop_ins_and_its_environment_files(tmp_path: Path) -> None:
    (tmp_path / "etc/default").mkdir(parents=True)
    (tmp_path / "etc/default/docker").write_text('# DOCKER_OPTS=--dns 8.8.8.8\nDOCKER_OPTS="--data-root /data -s overlay2 --log-opt max-size=10m"\n')
    assert engine_flags(parse_show(SHOW)["docker.service"], tmp_path) == [
        "--host=fd://",
        "--containerd=/run/containerd/containerd.sock",
        "--data-root=/data",
        "--storage-driver=overlay2",
        "--log-opt=max-size=10m",
        "--label=a=bar",
        "--debug",
    ]


@pytest.mark.parametrize(
    "exec_start", ["", "{ path=/usr/sbin/dockerd ; argv[]=/usr/sbin/dockerd ; ignore_errors=no }", "{ argv[]=/usr/sbin/dockerd }", "rubbish"]
)
def test_no_flags(tmp_path: Path, exec_start: str) -> None:
    assert engine_flags({"ExecStart": exec_start}, tmp_path) == []


@given(st.text(), st.text(), st.text())
def test_arbitrary_properties(text: str, environment: str, command: str) -> None:
    parse_show(text)
    flags = engine_flags({"ExecStart": f"{{ argv[]={command} ; pid=0 }}", "Environment": environment}, Path("/nonexistent"))
    assert all(flag.startswith("-") for flag in flags)
