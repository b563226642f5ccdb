# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""playbooks/verify_cluster.yml, run for real with stand-ins for what works on hosts: refusals, verdicts, exit status and records."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import make_check

from tests.unit.plugins.callback.conftest import ROOT, Project, project  # noqa: F401  # the fixture
from tests.unit.plugins.plugin_utils.test_cluster_choice import host as chosen
from tests.unit.plugins.plugin_utils.test_cluster_verdict import fleet

NAMES = ("gpu-01", "gpu-02", "gpu-03")
PLAYBOOK = "playbooks/verify_cluster.yml"
STAND_INS = ("gpu_host_facts", "gpu_plan", "gpu_cluster_network", "gpu_cluster_test")


def hosts(backend: str = "cpu") -> dict[str, Any]:
    """Variables of three sound hosts whose stand-ins say so."""
    found = {}
    for node, member in enumerate(fleet(3, backend=backend)):
        name = NAMES[node]
        known = chosen(name, 2, backend)
        assert known.plan is not None and known.network is not None
        for gpu, real in zip(known.plan["areas"]["smoke_test"]["desired"]["gpus"], member.gpus, strict=True):
            gpu.update(real)
        facts = {"schema": 1, "architecture": "x86_64", "stamp": {"verdict": "simulated", "time": "2026-12-01T10:00:00Z"}}
        report = {**member.report, "token": "token-1", "seconds": 30.0, "container_started": True}
        found[name] = {
            "stand_in": {
                "gpu_host_facts": [{"ansible_facts": {"gpu_host": facts}}],
                "gpu_plan": [{"ansible_facts": {"gpu_plan": {**known.plan, "release": "2026.11-longterm", "areas": known.plan["areas"]}}}],
                "gpu_cluster_network": [{"ansible_facts": {"gpu_cluster_network": dict(known.network)}}],
                "gpu_cluster_test": [{"ansible_facts": {"gpu_cluster_report": report}, "changed": False}],
            }
        }
    return found


def returned(all_hosts: dict[str, Any], name: str, module: str) -> Any:
    """What the stand-in of a module returns on a host, to be changed."""
    return all_hosts[name]["stand_in"][module][0]


@pytest.fixture
def site(project: Project) -> Project:  # noqa: F811
    """The checkout's own playbook and plugins, but for what works on hosts."""
    plugins = project.path / "collections/ansible_collections/rackready/gpu/plugins"
    stand_in = (plugins / "action/gpu_plan.py").read_text(encoding="utf-8")
    shutil.copytree(ROOT / "plugins", plugins, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in STAND_INS:
        (plugins / f"action/{name}.py").write_text(stand_in, encoding="utf-8")
    shutil.copytree(ROOT / "playbooks", project.path / "playbooks")
    return project


def outcomes(site: Project) -> dict[str, str]:
    return {name: site.latest(name)["outcome"] for name in NAMES}


def test_hosts_that_compute_together_end_well_with_the_result_in_every_record(site: Project) -> None:
    site.inventory(hosts())
    ran = site.run(playbook=PLAYBOOK)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert outcomes(site) == dict.fromkeys(NAMES, "simulated")
    schema = json.loads((Path(ROOT) / "plugins/plugin_utils/schemas/record.schema.json").read_text(encoding="utf-8"))
    record = site.latest("gpu-02")
    jsonschema.Draft202012Validator(schema).validate(record)
    assert record["reason"].startswith("together with gpu-01, gpu-03: 9 of 9 required checks ran, none failed")
    assert (record["cluster"]["hosts"], record["cluster"]["node"], record["cluster"]["address"]) == (list(NAMES), 1, "10.0.0.2")
    assert record["cluster"]["pairs"]["pairs"][0][0] == 0
    assert (record["verdict"], record["smoke_test"], record["checks"], record["changed"]) == (None, None, [], [])
    assert record["stamp"]["verdict"] == "simulated"


def test_the_slow_host_alone_is_rejected_and_the_run_fails(site: Project) -> None:
    known = hosts("cuda")
    for name in NAMES:
        for entry in returned(known, name, "gpu_cluster_test")["ansible_facts"]["gpu_cluster_report"]["pairs"]["pairs"]:
            entry[1] = 24.0 if "gpu-03" in (name, NAMES[entry[0]]) else 48.0
    site.inventory(known)
    ran = site.run(playbook=PLAYBOOK)
    assert ran.returncode == 2
    assert outcomes(site) == {"gpu-01": "accepted", "gpu-02": "accepted", "gpu-03": "rejected"}
    record = site.latest("gpu-03")
    assert "this host is slow: 24 GB/s" in record["reason"]
    assert "adapters" in record["remedy"]
    assert site.latest("gpu-01")["cluster"]["slow"] == ["gpu-03"]
    assert "gpu-03 in a test with 2 more: rejected: speed.hosts.pair.busbw failed: this host is slow" in ran.stdout


REFUSED: dict[str, Any] = {
    "no stamp": (
        lambda plan: plan["areas"]["smoke_test"].update(converged=False),
        "gpu-02 has no stamp of a successful smoke test of what is planned: run playbooks/verify.yml -l gpu-02 first.",
    ),
    "its own refusal": (lambda plan: plan.update(refusals=["There is no GPU."]), "There is no GPU."),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nothing_is_started_unless_all_can_take_part(site: Project, name: str) -> None:
    change, words = REFUSED[name]
    known = hosts()
    change(returned(known, "gpu-02", "gpu_plan")["ansible_facts"]["gpu_plan"])
    site.inventory(known)
    ran = site.run(playbook=PLAYBOOK)
    assert ran.returncode == 2
    assert outcomes(site) == dict.fromkeys(NAMES, "refused")
    assert words in site.latest("gpu-02")["reason"]
    assert site.latest("gpu-01")["reason"].startswith("nothing was started, because gpu-02 cannot take part: ")
    assert "TASK [Test all hosts together]" not in ran.stdout


def test_fewer_forks_than_hosts_are_refused_before_anything_is_started(site: Project) -> None:
    site.inventory(hosts())
    ran = site.run("-f", "2", playbook=PLAYBOOK)
    assert ran.returncode == 2
    assert site.latest("gpu-01")["reason"] == "3 hosts have to run at once, and Ansible works on 2 at a time: add -f 3."
    assert "Nothing was started." in site.latest("gpu-01")["remedy"]
    assert site.run("-f", "3", playbook=PLAYBOOK).returncode == 0


def test_one_host_is_no_cluster(site: Project) -> None:
    site.inventory(hosts())
    ran = site.run("-l", "gpu-02", playbook=PLAYBOOK)
    assert ran.returncode == 2
    assert "needs two or more" in site.latest("gpu-02")["reason"]


def test_a_host_that_fell_out_before_is_named_to_the_others(site: Project) -> None:
    known = hosts()
    returned(known, "gpu-03", "gpu_host_facts").update(failed=True, msg="no python")
    site.inventory(known)
    assert site.run(playbook=PLAYBOOK).returncode == 2
    assert outcomes(site) == {"gpu-01": "refused", "gpu-02": "refused", "gpu-03": "failed"}
    assert "gpu-03 could not be reached or read in this run" in site.latest("gpu-01")["reason"]


@pytest.mark.parametrize(
    ("change", "outcome", "words"),
    [
        ({"failed": True, "msg": "the connection was lost"}, "failed", "it fell out of the run before it reported"),
        ({"ansible_facts": {"gpu_cluster_report": {"token": "of yesterday", "checks": []}}}, "incomplete", "there is no report of this run"),
        ({"ansible_facts": {}}, "incomplete", "there is no report of this run"),
    ],
)
def test_without_the_report_of_one_nobody_is_accepted(site: Project, change: dict[str, Any], outcome: str, words: str) -> None:
    known = hosts()
    returned(known, "gpu-02", "gpu_cluster_test").update(change)
    site.inventory(known)
    assert site.run(playbook=PLAYBOOK).returncode == 2
    assert outcomes(site) == {"gpu-01": "incomplete", "gpu-02": outcome, "gpu-03": "incomplete"}
    assert "first that with gpu-02: gpu-02 told nothing of it" in site.latest("gpu-01")["reason"]
    if outcome == "incomplete":
        assert words in site.latest("gpu-02")["reason"]


def test_a_host_that_cannot_be_reached_by_the_others_is_incomplete_with_its_sentence(site: Project) -> None:
    words = "gpu-03 cannot reach gpu-01 at 10.0.0.1:29500 (connection refused, for 90 s): open the ports"
    known = hosts()
    for name in NAMES:
        report = returned(known, name, "gpu_cluster_test")["ansible_facts"]["gpu_cluster_report"]
        told = words if name == "gpu-03" else "gpu-03 did not come to gpu-01 at 10.0.0.1:29500 within 90 s"
        report.update(
            checks=[make_check("hosts_meeting", "could_not_run", told, remedy="do it")], pairs=None, all_reduce=None, pairs_reason="nothing was started"
        )
    site.inventory(known)
    assert site.run(playbook=PLAYBOOK).returncode == 2
    assert outcomes(site) == dict.fromkeys(NAMES, "incomplete")
    assert site.latest("gpu-03")["reason"].startswith(f"hosts_meeting could not run: {words}")
    assert site.latest("gpu-02")["reason"].startswith("hosts_meeting could not run: gpu-03 did not come")


def test_check_mode_refuses_as_well_and_judges_nothing(site: Project) -> None:
    site.inventory(hosts())
    ran = site.run("--check", playbook=PLAYBOOK)
    assert ran.returncode == 0, ran.stdout
    assert site.latest("gpu-01")["cluster"] is None
