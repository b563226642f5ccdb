# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for people."""

from __future__ import annotations

import json
from pathlib import Path

from ansible_collections.rackready.gpu.plugins.plugin_utils import plan_text
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load

from tests.unit.hosts import CONVERGED, facts_for
from tests.unit.plans import accept, apply_plan, plan_for

GOLDEN = Path(__file__).with_name("golden")
BARE = json.loads((Path(__file__).parents[3] / "fixtures" / "facts" / "h100-bare.json").read_text(encoding="utf-8"))


def test_the_plan_of_a_bare_h100_host_reads_like_this() -> None:
    """To accept a new text on purpose, write it into the file by hand."""
    text = "".join(f"{line}\n" for line in plan_text.lines(plan_for(BARE), BARE, load()))
    assert text == (GOLDEN / "plan-h100-bare.txt").read_text(encoding="utf-8")


def test_a_host_that_holds_says_so() -> None:
    facts = apply_plan(BARE, plan_for(BARE))
    plan = plan_for(facts)
    lines = plan_text.lines(plan, facts, load())
    assert lines[1] == "release 2026.11-longterm: as planned, smoke test to run"
    done = accept(facts, plan)
    lines = plan_text.lines(plan_for(done), done, load())
    assert lines[1] == "release 2026.11-longterm: as planned"
    assert [line for line in lines if line.startswith("  ") and line.endswith("actions")] == []
    assert plan_text.diff(plan_for(done))["before"] == plan_text.diff(plan_for(done))["after"] == ""


def test_refusals_come_first() -> None:
    facts = facts_for(gpus=7)
    lines = plan_text.lines(plan_for(facts), facts, load())
    assert lines[0].startswith("h100-01: 7 x H100 SXM5 80GB, 4 NVSwitches; Debian GNU/Linux 13 (trixie)")
    assert lines[1] == "release 2026.11-longterm: refused, nothing would be changed (1 reason)"
    assert lines[2].startswith("  REFUSED  7 of 8")


def test_the_diff_shows_only_what_differs() -> None:
    plan = plan_for(facts_for(**CONVERGED, fabric_state="In Progress"))
    diff = plan_text.diff(plan)
    assert "nvidia_fabric gpus 0000:1a:00.0: In Progress, N/A\n" in diff["before"]
    assert "nvidia_fabric gpus 0000:1a:00.0: Completed, Success\n" in diff["after"]
    assert "nvidia-fabricmanager" not in diff["before"]


def test_a_host_that_is_not_as_planned_at_the_end_says_where() -> None:
    facts = apply_plan(BARE, plan_for(BARE))
    facts["units"]["nvidia-persistenced.service"]["active"] = "failed"
    sentence = plan_text.not_converged(plan_for(facts))
    assert sentence == (
        "h100-01: the host is not as planned in nvidia_driver (units nvidia-persistenced.service is enabled, failed instead of enabled, active): "
        "run site.yml; if that has just run, its tasks above show the cause."
    )


def test_what_sites_put_secrets_into_is_not_repeated_in_a_sentence_that_is_recorded() -> None:
    facts = apply_plan(BARE, plan_for(BARE))
    for options in ({"log-opts": {"splunk-token": "hunter2"}}, {"log-opts": "hunter2"}):
        sentence = plan_text.not_converged(plan_for(facts, docker_daemon_options=options))
        assert "not as planned in docker (daemon_json log-opts differs): run site.yml" in sentence
