# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""`rackready plan` as it is called: what it prints, its exit status, and that its plans are those of gpu_plan."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from tests.unit import plans, playbooks
from tests.unit.hosts import facts_for
from tests.unit.playbooks import ROOT, dump

SCHEMA = json.loads((ROOT / "plugins/plugin_utils/schemas/plan.schema.json").read_text(encoding="utf-8"))
LOCK = {"rackready_lock": plans.lock()}
# Nobody answers here: a host that was asked would fail the test.
NOWHERE = {"ansible_host": "192.0.2.1", "ansible_connection": "ssh"}


def rackready(directory: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "COLUMNS"))}
    return subprocess.run(
        [sys.executable, "-m", "rackready.cli", "plan", *arguments],
        cwd=directory,
        env={**clean, "PYTHONPATH": str(ROOT), "HOME": str(directory), **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def write(path: Path, content: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


HOSTS: dict[str, Any] = {
    "templated": {"form": "sxm5", "gpu_expected": {"model": "h100-{{ form }}-80gb", "count": "{{ ansible_facts.gpu_host.gpus | length }}"}},
    "torn": {},
    "misspelt": {"nvidia_driver_flavor": "open"},
    "file": {},
    "neighbour": {"smoke_test_tier": "{{ hostvars['file'].smoke_test_tier }}"},
}
GROUPS: dict[str, Any] = {
    "first": {"hosts": dict.fromkeys(["torn", "file"]), "vars": {"gpu_stack_release": "2026.11-longterm"}},
    "second": {"hosts": dict.fromkeys(["torn"]), "vars": {"gpu_stack_release": "2026.11-production"}},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An inventory with everything that decides about variables, and facts of a bare host."""
    directory = tmp_path_factory.mktemp("site")
    inventory = {"all": {"vars": {**NOWHERE, **LOCK, "extra": "nobody's"}, "hosts": HOSTS, "children": GROUPS}}
    (directory / "inventory").mkdir()
    (directory / "inventory/hosts.yml").write_text(yaml.safe_dump(inventory), encoding="utf-8")
    write(directory / "inventory/host_vars/file.yml", {"smoke_test_tier": "burn", "mig_layout": [{"gpus": [0], "instances": {"1g.10gb": 7}}]})
    write(directory / "facts.json", facts_for())
    return directory


def test_the_plans_are_those_that_gpu_plan_makes_of_the_same_facts_and_variables(site: Path) -> None:
    done = rackready(site, "-i", "inventory", "--facts", "facts.json", "--json", "-e", "smoke_test_degraded=reject")
    assert done.returncode == 1, done.stderr
    told = {plan["host"]: plan for plan in json.loads(done.stdout)}
    tasks = [
        {
            "name": "Take facts",
            "ansible.builtin.set_fact": {"gpu_host": f"{{{{ lookup('ansible.builtin.file', '{site}/facts.json') | from_json }}}}", "cacheable": True},
        },
        {"name": "Plan", "rackready.gpu.gpu_plan": {"refuse": False}, "register": "planned"},
        dump("planned.ansible_facts.gpu_plan", site),
    ]
    play = [{"name": "Plan", "hosts": "all", "gather_facts": False, "tasks": tasks}]
    inventory = {"vars": {**LOCK, "extra": "nobody's", "ansible_connection": "local"}, "hosts": HOSTS, "children": GROUPS}
    real = playbooks.run(site, inventory, play, "-e", "smoke_test_degraded=reject")
    assert real.returncode == 0, real.output
    assert sorted(told) == sorted(HOSTS)
    assert told == real.results
    for plan in told.values():
        jsonschema.Draft202012Validator(SCHEMA).validate(plan)
    assert {host: bool(plan["refusals"]) for host, plan in told.items()} == {
        "templated": False,
        "torn": True,
        "misspelt": True,
        "file": False,
        "neighbour": False,
    }
    assert told["templated"]["areas"]["smoke_test"]["desired"]["degraded"] == "reject"
    assert told["neighbour"]["areas"]["smoke_test"]["desired"]["tier"] == "burn"


def test_one_host_is_a_table_and_the_lines_of_the_playbook(site: Path) -> None:
    done = rackready(site, "-i", "inventory", "--facts", "facts.json", "file")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("file: 8 x H100 SXM5 80GB, 4 NVSwitches; ")
    assert "area                      now         planned" in done.stdout
    assert "    - wait until every GPU reports Completed, Success" in done.stdout
    assert "facts: facts.json, read from h100-01 at 2026-12-01 04:00:00 UTC" in done.stdout


def test_several_hosts_are_one_table_with_refusals_first_and_status_1(site: Path) -> None:
    done = rackready(site, "-i", "inventory", "--facts", "facts.json")
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout.count("actions\n") == 1
    assert done.stdout.rindex("REFUSED") < done.stdout.index("2026.11-longterm: 30 actions, then the smoke test")


def test_without_an_inventory_the_variables_are_those_of_a_file(tmp_path: Path) -> None:
    facts = str(write(tmp_path / "kept.json", {"ansible_facts": {"gpu_host": facts_for()}}))
    variables = write(tmp_path / "rack.yml", {**LOCK, "gpu_expected": plans.MODEL})
    done = rackready(tmp_path, "--facts", facts, "-e", f"@{variables}", "new-01", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    [plan] = json.loads(done.stdout)
    assert plan == {**json.loads(json.dumps(plans.plan_for(facts_for()))), "host": "new-01"}


def test_a_live_fleet_is_planned_from_its_newest_records_and_who_has_none_is_named(site: Path, tmp_path: Path) -> None:
    record = {"schema": 1, "host": "file", "run_id": "20261201T040506Z-0123abcd", "outcome": "planned", "facts": facts_for()}
    write(tmp_path / "records/file/latest.json", record)
    arguments = ["-i", str(site / "inventory"), "--records", str(tmp_path / "records")]
    done = rackready(tmp_path, *arguments, "file")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("file: 8 x H100")
    done = rackready(tmp_path, *arguments, "first")
    assert done.returncode == 2
    assert done.stdout.startswith("file: 8 x H100")
    assert done.stderr == f"rackready: torn: no record in {tmp_path}/records. Provision or plan it first.\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name the inventory with -i, or a facts file with --facts"),
        (["-i", "nowhere", "--facts", "facts.json"], "there is no inventory nowhere."),
        (["-i", "inventory", "--facts", "facts.json", "h100-99"], "h100-99 is no host and no group of the inventory inventory."),
        (["-i", "inventory", "--facts", "nothing.json"], "the facts file nothing.json cannot be read: No such file or directory."),
        (["-i", "inventory", "--facts", "inventory/hosts.yml"], "the facts file inventory/hosts.yml is no JSON"),
        (["--facts", "facts.json", "-e", "@nothing.yml"], "there is no file of variables nothing.yml."),
        (["-i", "torn", "--facts", "facts.json"], "torn/group_vars/all.yml, line 2, cannot be read"),
    ],
)
def test_what_cannot_be_read_is_one_sentence_and_status_2(site: Path, arguments: list[str], words: str) -> None:
    write(site / "torn/hosts.yml", {"all": {"hosts": {"h100-01": {}}}})
    (site / "torn/group_vars").mkdir(exist_ok=True)
    (site / "torn/group_vars/all.yml").write_text("rackready_lock: [\n", encoding="utf-8")
    done = rackready(site, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr
    assert done.stderr.splitlines()[-1].startswith("rackready: ")
    assert done.stderr.endswith(".\n")


def test_a_vault_is_opened_with_its_password(site: Path, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n", encoding="utf-8")
    vault = Path(sys.executable).with_name("ansible-vault")
    plain = write(tmp_path / "inventory/group_vars/all/vault.yml", {**LOCK, "gpu_expected": plans.MODEL})
    subprocess.run([str(vault), "encrypt", "--vault-id", str(tmp_path / "password"), str(plain)], check=True, capture_output=True, timeout=60)
    write(tmp_path / "inventory/hosts.yml", {"all": {"hosts": {"h100-01": {}}}})
    arguments = ["-i", "inventory", "--facts", str(site / "facts.json")]
    closed = rackready(tmp_path, *arguments)
    assert closed.returncode == 2
    assert "give the password of the vault (--ask-vault-pass or --vault-id)" in closed.stderr
    opened = rackready(tmp_path, *arguments, "--vault-id", "password")
    assert (opened.returncode, opened.stderr) == (0, "")
