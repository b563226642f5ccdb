# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""site.yml and the playbooks that it imports, run for real on stand-ins of the modules: which of them run for a host in which state."""

from __future__ import annotations

import shutil
from typing import Any

import pytest
import yaml

from tests.unit.plugins.callback.conftest import ROOT, Project, project  # noqa: F401  # the fixture

STAMP = {"verdict": "simulated", "time": "2026-12-01T10:00:00Z"}
DIFFERS = "gpu-01: the host differs from its plan in 2 areas, docker (engine is absent instead of 29), mig (not planned): run site.yml."
PROVED = {"msg": "tested", "verdict": "simulated", "checks": [], "changed": True}


def host(converged: bool = True, stamp_holds: bool = True) -> dict[str, Any]:
    """Variables of a host whose stand-ins say this."""
    plan = {"converged": converged, "refusals": [], "areas": {"smoke_test": {"converged": stamp_holds, "desired": {}}}}
    facts = {"schema": 1, "stamp": STAMP}
    return {
        "stand_in": {
            "gpu_host_facts": [{"ansible_facts": {"gpu_host": facts}}],
            "gpu_plan": [{"ansible_facts": {"gpu_plan": plan}, "text": ["to do"], "difference": "" if converged else DIFFERS}],
            "gpu_smoke_test": [PROVED],
        }
    }


@pytest.fixture
def site(project: Project) -> Project:  # noqa: F811
    """The checkout's own playbooks beside the stand-ins."""
    shutil.copy(ROOT / "site.yml", project.path)
    shutil.copytree(ROOT / "playbooks", project.path / "playbooks")
    project.role("smoke_test", "- name: Test\n  rackready.gpu.gpu_smoke_test:\n")
    return project


ALONE = {"ok": 2, "skipped": 2}


def tasks(site: Project, name: str) -> dict[str, int]:
    found: dict[str, int] = site.latest(name)["tasks"]
    return {kind: count for kind, count in found.items() if count}


def test_a_converged_host_costs_one_detect_and_one_plan_and_two_skipped_tasks(site: Project) -> None:
    names = ["gpu-01", "gpu-02", "gpu-03"]
    site.inventory({name: host() for name in names})
    ran = site.run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for name in names:
        assert tasks(site, name) == ALONE
        assert site.latest(name)["outcome"] == "simulated"


def test_hosts_that_are_left_alone_do_not_end_the_run_of_the_others(site: Project) -> None:
    site.inventory({"gpu-01": host(), "gpu-02": host(stamp_holds=False), "gpu-03": host()})
    ran = site.run()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert tasks(site, "gpu-01") == tasks(site, "gpu-03") == ALONE
    assert site.latest("gpu-02")["verdict"] == "simulated"
    assert site.latest("gpu-01")["verdict"] is None


def test_verify_on_its_own_tests_also_a_host_whose_stamp_holds(site: Project) -> None:
    site.inventory({"gpu-01": host()})
    ran = site.run(playbook="playbooks/verify.yml")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert site.latest("gpu-01")["verdict"] == "simulated"


def test_verify_on_a_host_that_differs_says_one_sentence_and_does_not_print_the_plan(site: Project) -> None:
    site.inventory({"gpu-01": host(converged=False)})
    ran = site.run(playbook="playbooks/verify.yml")
    assert ran.returncode == 2
    said = ran.stdout[ran.stdout.index("FAILED!") :]
    assert DIFFERS in said
    assert "smoke_test" not in said
    record = site.latest("gpu-01")
    assert (record["outcome"], record["plan"]["converged"], record["verdict"]) == ("failed", False, None)
    assert record["reason"] == f"Stop where the host differs from its plan: {DIFFERS}"


@pytest.mark.parametrize(
    ("playbook", "task", "words"),
    [
        (
            "site.yml",
            "Apply the plan",
            "gpu-01: this run has made no plan, as it began at a later task (--start-at-task), and each task rests on those before it",
        ),
        ("playbooks/plan.yml", "Show the plan", "gpu-01: this run has made no plan, as it began at a later task (--start-at-task): run the whole playbook"),
        ("site.yml", "Install Docker", "Nothing ran, as no task fits --start-at-task 'Install Docker'."),
    ],
)
def test_a_run_that_begins_later_says_what_it_lacks_and_fails(site: Project, playbook: str, task: str, words: str) -> None:
    site.inventory({"gpu-01": host(converged=False)})
    ran = site.run("--start-at-task", task, playbook=playbook)
    assert ran.returncode == 2
    assert words in " ".join((ran.stdout + ran.stderr).split())


def plan_tasks(value: Any) -> list[dict[str, Any]]:
    """The tasks of a playbook or task file that make a plan."""
    if isinstance(value, list):
        return [task for entry in value for task in plan_tasks(entry)]
    if not isinstance(value, dict):
        return []
    mine = [value] if "rackready.gpu.gpu_plan" in value else []
    return mine + plan_tasks([entry for entry in value.values() if isinstance(entry, list)])


def test_no_playbook_fails_in_the_task_that_plans_which_would_print_the_plan() -> None:
    found = [task for path in sorted((ROOT / "playbooks").rglob("*.yml")) for task in plan_tasks(yaml.safe_load(path.read_text(encoding="utf-8")))]
    assert len(found) == 6
    assert [task for task in found if task["rackready.gpu.gpu_plan"].get("refuse") is not False] == []


def test_a_forced_test_runs_in_site_too(site: Project) -> None:
    site.inventory({"gpu-01": host()})
    text = (site.path / "site.yml").read_text().replace("smoke_test_force: false", "smoke_test_force: true")
    ran = site.run(playbook=site.playbook(text, "forced.yml").name)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert site.latest("gpu-01")["verdict"] == "simulated"


@pytest.mark.parametrize("check", [(), ("--check",)])
def test_a_host_that_differs_is_shown_its_plan(site: Project, check: tuple[str, ...]) -> None:
    for role in ("preflight", "host_tuning", "nvidia_driver", "nvidia_fabric", "mig", "docker", "nvidia_container_toolkit", "pytorch_image"):
        site.role(role, "- name: Nothing\n  ansible.builtin.meta: noop\n")
    site.inventory({"gpu-01": host(converged=False), "gpu-02": host()})
    ran = site.run(*check)
    assert "to do" in ran.stdout
    assert site.latest("gpu-01")["tasks"]["ok"] > 2
    assert tasks(site, "gpu-02") == ALONE


def test_an_installed_collection_s_playbook_finds_its_tasks(site: Project) -> None:
    shutil.copytree(ROOT / "playbooks", site.path / "collections/ansible_collections/rackready/gpu/playbooks")
    shutil.rmtree(site.path / "playbooks")
    site.inventory({"gpu-01": host(stamp_holds=False)})
    ran = site.run(playbook="rackready.gpu.verify")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert site.latest("gpu-01")["verdict"] == "simulated"
