# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The real machine's side of a test: the topology that is kept, and advice that is given where there is time."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import smoke_machine
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Result
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_machine import advise, source_of, topology

from tests.unit.hosts import CONVERGED, FIXTURES, Answers, facts_for
from tests.unit.smoke_fakes import window
from tests.unit.smoke_hosts import WORLD, request


def with_smi(answer: Result | None) -> Answers:
    commands = Answers()
    if answer is not None:
        commands["nvidia-smi"] = answer
    return commands


TOPO = FIXTURES / "nvidia-smi-550/h100/topo.txt"


def test_the_topology_is_kept_without_what_is_for_a_terminal() -> None:
    told = topology(with_smi(Result(0, TOPO.read_bytes(), b"", 0.1)), 15)
    assert told is not None
    assert told.startswith("\tGPU0\tGPU1\t")
    assert "\x1b" not in told
    assert "GPU7\tNV18" in told


@pytest.mark.parametrize("answer", [None, Result(9, b"words", b"", 0.1), Result(None, b"", b"", 15.0, "did not end within 15 s")])
def test_a_topology_that_is_not_told_is_none(answer: Result | None) -> None:
    assert topology(with_smi(answer), 15) is None


def test_advice_is_about_paths_between_gpus_and_what_the_site_names(tmp_path: Path) -> None:
    facts = facts_for(**{**CONVERGED, "gpus": WORLD, "command_line": "quiet amd_iommu=on"})
    asked = request(data_paths=[str(tmp_path)])
    told = advise(asked, facts, window(WORLD), Answers())
    assert [(check["name"], check["required"]) for check in told if check["name"] != "peer_memory"] == [("pcie_path", False), ("data_path", False)]
    assert "the IOMMU translates" in str(told[0]["reason"])
    # Without time nothing is read, and one GPU has no way to another.
    assert [check["name"] for check in advise(asked, facts, window(WORLD), None) if check["name"] != "peer_memory"] == ["pcie_path"]
    alone = asked._replace(gpus=asked.gpus[:1])
    assert [check["name"] for check in advise(alone, facts, window(1), None) if check["name"] != "peer_memory"] == []


def test_the_text_of_a_module_is_that_of_its_file() -> None:
    assert source_of(smoke_machine) == Path(smoke_machine.__file__).read_text(encoding="utf-8")
