# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The plan for people."""

from __future__ import annotations

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.rackready.gpu.plugins.plugin_utils import plan_text
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import load

from tests.unit.hosts import CONVERGED, facts_for
from tests.unit.plans import accept, apply_plan, plan_for

BARE = json.loads((Path(__file__).parents[3] / "fixtures" / "facts" / "h100-bare.json").read_text(encoding="utf-8"))


def test_a_host_that_holds_says_so() -> None:
    facts = apply_plan(BARE, plan_for(BARE))
    plan = plan_for(facts)
    lines = plan_text.lines(plan, facts, load())
    assert lines[1] == "release 2026.11-longterm: as planned, smoke test to run"
    done = accept(facts, plan)
    lines = plan_text.lines(plan_for(done), done, load())
    assert lines[1] == "release 2026.11-longterm: as planned"
    assert "  download: nothing" in lines
    assert [line for line in lines if "action" in line or "because" in line] == []
    assert plan_text.diff(plan_for(done))["before"] == plan_text.diff(plan_for(done))["after"] == ""


def test_refusals_come_first() -> None:
    facts = facts_for(gpus=7)
    lines = plan_text.lines(plan_for(facts), facts, load())
    assert lines[0].startswith("h100-01: 7 x H100 SXM5 80GB, 4 NVSwitches; Debian GNU/Linux 13 (trixie)")
    assert lines[1] == "release 2026.11-longterm: refused, nothing would be changed (1 reason)"
    assert lines[2].startswith("  REFUSED  7 of 8")


def test_an_area_is_told_by_its_headline_and_where_that_holds_by_what_differs_first() -> None:
    facts = apply_plan(BARE, plan_for(BARE))
    facts["units"]["nvidia-persistenced.service"]["active"] = "failed"
    facts["docker"]["images"] = {}
    rows = {row.area: row[1:] for row in plan_text.rows(plan_for(facts))}
    assert rows["nvidia_driver"] == ("units nvidia-persistenced.service enabled, failed", "enabled, active", 1)
    assert rows["pytorch_image"] == ("absent", "nvcr.io/nvidia/pytorch:26.07-py3", 1)
    assert rows["nvidia_fabric"] == ("580.178.04-1", "as planned", 0)
    assert rows["mig"] == ("8 x disabled", "as planned", 0)


def test_an_area_that_could_not_be_planned_says_so() -> None:
    plan = plan_for(facts_for(), rackready_lock=None)
    assert plan_text.rows(plan)[1] == ("nvidia_driver", "-", "not planned", 0)
    assert "  nvidia_driver: not planned" in plan_text.details(plan)
    assert plan_text.needs(plan, load()) == [
        "  reboot: not known",
        "  drain: not known",
        "  download: not known, as nvidia_driver, nvidia_fabric, nvidia_container_toolkit, pytorch_image could not be planned",
    ]


@pytest.mark.parametrize(("mib", "speed", "words"), [(8584, 1, "about 2 min at 1 "), (8584, 0.1, "about 13 min at 0.1 Gbit/s"), (1, 25, "about 1 min at 25 ")])
def test_a_download_takes_its_size_by_the_speed_of_the_catalog_in_whole_minutes(mib: int, speed: float, words: str) -> None:
    catalog = dataclasses.replace(load(), download={**load().download, "speed_gbit_s": speed})
    [line] = [line for line in plan_text.needs({**plan_for(BARE), "download_mib": mib}, catalog) if "download" in line]
    assert line.startswith(
        f"  download: {mib} MiB of image and at most about 620 MiB of packages (nvidia_driver, nvidia_fabric, docker, nvidia_container_toolkit)"
    )
    assert words in line


def test_reboot_and_drain_are_told_with_the_refusals_that_need_them() -> None:
    facts = facts_for(**{**CONVERGED, "driver": "570.133.20"})
    assert plan_text.needs(plan_for(facts), load())[:2] == ["  reboot: needed", "  drain: not needed"]


def test_where_nothing_was_planned_nothing_is_needed() -> None:
    facts = facts_for(gpus=0)
    plan = plan_for(facts)
    assert plan["areas"] == {}
    assert (plan_text.needs(plan, load()), plan_text.details(plan)) == ([], [])


@pytest.mark.parametrize("done", [False, True])
def test_f10_what_is_left_out_is_told_with_the_reason(done: bool) -> None:
    facts = facts_for(pci_id="10de:2331", nvswitches=0, gpus=4)
    asked: dict[str, Any] = {"gpu_expected": None}
    facts = apply_plan(facts, plan_for(facts, **asked)) if done else facts
    lines = plan_text.lines(plan_for(facts, **asked), facts, load())
    at = lines.index("  nvidia_fabric: not needed, as planned")
    assert lines[at + 1] == "      because there is no NVSwitch on the PCI bus and no GPU of an NVLink 5 board [ogkm-nvswitch]"
    assert lines[at + 2].startswith("  docker: ")


def test_the_diff_shows_only_what_differs() -> None:
    plan = plan_for(facts_for(**CONVERGED, fabric_state="In Progress"))
    diff = plan_text.diff(plan)
    assert "nvidia_fabric gpus 0000:1a:00.0: In Progress, N/A\n" in diff["before"]
    assert "nvidia_fabric gpus 0000:1a:00.0: Completed, Success\n" in diff["after"]
    assert "nvidia-fabricmanager" not in diff["before"]


def test_a_host_that_is_not_as_planned_at_the_end_says_where() -> None:
    facts = apply_plan(BARE, plan_for(BARE))
    facts["units"]["nvidia-persistenced.service"]["active"] = "failed"
    sentence = plan_text.difference(plan_for(facts), "-i inventory/site ")
    assert sentence == (
        "h100-01: the host differs from its plan in 1 area, nvidia_driver (units nvidia-persistenced.service is enabled, failed instead of enabled, active): "
        "run ansible-playbook -i inventory/site site.yml -l h100-01; if that has just run, its tasks above show the cause."
    )


STAMPS: dict[str, tuple[Any, str]] = {
    "no JSON": (
        {"error": "/var/lib/rackready/stamp.json: Expecting value: line 1 column 1 (char 0)"},
        "/var/lib/rackready/stamp.json: Expecting value",
    ),
    "an error that is no text": ({"error": {"a": [1]}}, "{'a': [1]}"),
    "empty": ({}, "it has no release, image_digest, driver, gpus, mig, tier, verdict"),
    "half": ({"release": 1, "image_digest": [], "driver": None, "gpus": {}, "mig": 7}, "it has no tier, verdict"),
}


@pytest.mark.parametrize(("stamp", "words"), STAMPS.values(), ids=list(STAMPS))
def test_a_stamp_that_cannot_be_read_is_said_to_be_so_and_the_host_is_tested_again(stamp: Any, words: str) -> None:
    facts = apply_plan(BARE, plan_for(BARE))
    facts["stamp"] = stamp
    plan = plan_for(facts)
    smoke = plan["areas"]["smoke_test"]
    assert (plan["converged"], plan["refusals"], smoke["converged"], smoke["actual"]) == (True, [], False, {"stamp": "unreadable", "verdict": None})
    text = "\n".join(plan_text.lines(plan, facts, load()))
    assert "smoke_test: unreadable stamp -> accepted, 1 action" in text
    assert f"because the stamp of the last test is unreadable ({words}" in text
    assert "not tested" not in text
    assert plan_text.diff(plan)["before"]


VALUES: tuple[Any, ...] = (None, 1, [], {"a": {}}, "x")


def test_a_stamp_whose_values_are_of_other_types_is_no_match_and_no_crash() -> None:
    facts = accept(apply_plan(BARE, plan_for(BARE)), plan_for(apply_plan(BARE, plan_for(BARE))))
    for name in facts["stamp"]:
        for value in VALUES:
            broken = copy.deepcopy(facts)
            broken["stamp"][name] = value
            plan = plan_for(broken)
            assert plan["areas"]["smoke_test"]["converged"] is (name == "time")
            assert plan_text.lines(plan, broken, load())
            assert plan_text.diff(plan) is not None


def test_every_area_that_differs_is_named_with_what_differs_there_first() -> None:
    facts = apply_plan(BARE, plan_for(BARE))
    assert plan_text.difference(plan_for(facts)) == ""
    facts["units"]["nvidia-fabricmanager.service"]["active"] = "failed"
    facts["docker"]["images"] = {}
    for spec in facts["cdi"]["specs"]:
        spec.update(devices=[], problems=["old"])
    plan = plan_for(facts)
    sentence = plan_text.difference(plan)
    named = [name for name, area in plan["areas"].items() if not area["converged"] and name != "smoke_test"]
    assert named == ["nvidia_fabric", "nvidia_container_toolkit", "pytorch_image"]
    assert sentence.startswith("h100-01: the host differs from its plan in 3 areas, nvidia_fabric (units nvidia-fabricmanager.service is enabled, failed")
    assert all(f"{name} (" in sentence for name in named)
    assert "and 1 more), pytorch_image (image is absent instead of sha256:" in sentence
    assert "\n" not in sentence


def test_a_refusal_comes_before_what_differs() -> None:
    plan = plan_for(facts_for(gpus=7))
    assert plan_text.difference(plan) == f"h100-01: {' '.join(plan['refusals'])}"


def test_what_sites_put_secrets_into_is_not_repeated_in_a_sentence_that_is_recorded() -> None:
    facts = apply_plan(BARE, plan_for(BARE))
    for options in ({"log-opts": {"splunk-token": "hunter2"}}, {"log-opts": "hunter2"}):
        sentence = plan_text.difference(plan_for(facts, docker_daemon_options=options))
        assert "in 1 area, docker (daemon_json log-opts differs): run ansible-playbook site.yml -l h100-01;" in sentence
