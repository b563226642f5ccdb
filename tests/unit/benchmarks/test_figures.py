# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
from __future__ import annotations

from typing import Any

import pytest

from tests.benchmarks import figures
from tests.benchmarks.figures import Cost


def costs(of: Any) -> dict[int, Cost]:
    return {hosts: Cost(1, of(hosts), of(hosts), of(hosts)) for hosts in (1, 8, 40)}


def test_what_a_run_costs_by_itself_does_not_hide_behind_its_hosts() -> None:
    linear = costs(lambda hosts: 10 + 2 * hosts)
    assert figures.growth(linear, "wall_s") < 1
    assert figures.further_host(linear, "wall_s", 8, 40) == figures.further_host(linear, "wall_s", 1, 8) == 2


def test_a_linear_cost_is_called_linear_with_its_numbers() -> None:
    wall, cpu, memory = figures.sentences(costs(lambda hosts: 0.5 * hosts))
    assert wall == (
        "wall time is linear in hosts: 0.50 s a host with 40 hosts, 0.50 with 8 (x 1.00); each further host from 8 to 40 costs 0.50 s, from 1 to 8 0.50"
    )
    assert cpu.startswith("CPU time of the controller is linear in hosts")
    assert "0.5 MiB a host" in memory


def test_a_cost_that_grows_with_the_square_of_the_hosts_is_called_not_linear() -> None:
    for sentence in figures.sentences(costs(lambda hosts: 3 + hosts + 0.05 * hosts**2)):
        assert " is NOT linear in hosts: " in sentence


def test_the_median_is_taken_of_each_figure_and_the_most_of_the_executions() -> None:
    assert figures.median([Cost(1, 3, 1, 50), Cost(2, 1, 2, 70), Cost(1, 2, 9, 60)]) == Cost(2, 2, 2, 60)


def test_ratios_are_those_to_the_plain_role() -> None:
    assert figures.ratios(Cost(1, 1, 2, 30), Cost(13, 4, 4, 40)) == "0.25  0.50  0.75"


CONVERGED = {"outcome": "simulated", "reason": "nothing to do: the host is as planned, and its last smoke test matches the plan", "changed": []}
COUNTED = {"executions": 1, "changed": 0}


def test_a_run_counts_when_every_host_was_found_converged() -> None:
    assert figures.problems(["a", "b"], {"a": COUNTED, "b": COUNTED}, {"a": CONVERGED, "b": CONVERGED}) == []
    assert figures.problems(["a"], {"a": COUNTED}, None) == []


@pytest.mark.parametrize(
    ("counted", "records", "problem"),
    [
        ({}, {"a": CONVERGED}, "a was not reached"),
        ({"a": {"executions": 1, "changed": 2}}, {"a": CONVERGED}, "a: 2 tasks changed something"),
        ({"a": COUNTED}, {}, "a has no record"),
        ({"a": COUNTED}, {"a": {**CONVERGED, "outcome": "planned", "reason": "to do: docker"}}, "a was not found converged: planned, to do: docker"),
        ({"a": COUNTED}, {"a": {**CONVERGED, "reason": "86 of 86 checks ran"}}, "a was not found converged: simulated, 86 of 86 checks ran"),
    ],
)
def test_a_run_with_a_host_that_is_not_converged_does_not_count(counted: Any, records: Any, problem: str) -> None:
    assert figures.problems(["a"], counted, records) == [problem]


@pytest.mark.parametrize(
    ("installed", "engine"),
    [({"docker-ce": {}, "docker-ce-cli": {}}, "docker-ce"), ({"docker.io": {}}, "docker.io")],
)
def test_the_plain_role_installs_the_engine_that_is_there(installed: dict[str, Any], engine: str) -> None:
    assert figures.engine_packages(installed)["engine_package"] == engine
