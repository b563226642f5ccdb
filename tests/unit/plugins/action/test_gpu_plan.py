# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""gpu_plan, run by ansible-playbook."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.unit import plans
from tests.unit.hosts import facts_for
from tests.unit.plans import apply_plan, plan_for
from tests.unit.playbooks import ROOT, Run, dump, run

LOCAL = {"ansible_connection": "local"}


def playbook(directory: Path, **options: Any) -> list[dict[str, Any]]:
    return [
        {
            "name": "Plan",
            "hosts": "all",
            "gather_facts": False,
            "tasks": [
                {
                    "name": "Take facts",
                    "ansible.builtin.set_fact": {"gpu_host": "{{ lookup('ansible.builtin.file', facts_file) | from_json }}", "cacheable": True},
                    "when": "facts_file is defined",
                },
                {"name": "Plan", "rackready.gpu.gpu_plan": options, "register": "planned", "ignore_errors": True},
                dump("{'planned': planned, 'fact': ansible_facts.gpu_plan | default(none)}", directory),
            ],
        }
    ]


def facts_file(directory: Path, name: str, facts: dict[str, Any]) -> str:
    path = directory / f"facts-{name}.json"
    path.write_text(json.dumps(facts), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Four hosts at once: bare, misspelt, without facts, incomplete."""
    directory = tmp_path_factory.mktemp("fleet")
    bare = facts_file(directory, "bare", facts_for())
    hosts = {
        "h100-01": {"facts_file": bare, "form": "sxm5", "gpu_expected": {"model": "h100-{{ form }}-80gb", "count": 8}},
        "h100-02": {"facts_file": bare, "nvidia_driver_flavor": "open", "smoke_test_tier": "slow"},
        "h100-03": {},
        "h100-04": {
            "facts_file": facts_file(directory, "seven", facts_for(gpus=7)),
            "gpu_expected": plans.MODEL,
            "broken_of_somebody_else": "{{ nothing.here }}",
        },
    }
    return run(directory, {"vars": {**LOCAL, "rackready_lock": plans.lock()}, "hosts": hosts}, playbook(directory))


def test_a_plan_is_a_fact_with_text_and_changes_nothing(fleet: Run) -> None:
    result = fleet.results["h100-01"]
    assert result["fact"] == json.loads(json.dumps(plan_for(facts_for())))
    assert result["planned"]["changed"] is False
    assert result["planned"]["failed"] is False
    assert result["planned"]["text"][0].startswith("h100-01: 8 x H100 SXM5 80GB")
    assert "nvidia_driver packages nvidia-driver-cuda: absent" in result["planned"]["diff"]["before"]


def test_variables_that_are_wrong_fail_with_all_sentences_and_a_plan_that_says_so(fleet: Run) -> None:
    result = fleet.results["h100-02"]
    assert result["planned"]["failed"]
    assert (
        "h100-02: nvidia_driver_flavor is not a variable of rackready, so it would have no effect; did you mean nvidia_driver_flavour?"
        in result["planned"]["msg"]
    )
    assert 'h100-02: smoke_test_tier is "slow", but must be one of quick, accept, burn.' in result["planned"]["msg"]
    # Ansible keeps no facts of a task that failed; the record reads the plan from the result.
    plan = result["planned"]["ansible_facts"]["gpu_plan"]
    assert len(plan["refusals"]) == 2
    assert plan["areas"] == {}


# A variable that cannot be used, and words of the sentence about it.
BAD: dict[str, tuple[str, Any, str]] = {
    "template of somebody else": ("docker_daemon_options", {"log-opts": {"tag": "{{.Name}}"}}, "!unsafe"),
    "undefined": ("pytorch_image_ref", "{{ nobody.defined.this }}", "'nobody' is undefined"),
    "undefined inside": ("mig_layout", [{"gpus": "all", "instances": {"1g.10gb": "{{ how_many }}"}}], "'how_many' is undefined"),
    "undefined attribute": ("smoke_test_env", {"A": "{{ inventory_hostname.x.y }}"}, "cannot be used"),
    "refers to itself": ("gpu_stack_release", "{{ gpu_stack_release }}", "cannot be used"),
    "filter that fails": ("gpu_expected", {"model": "h100-sxm5-80gb", "count": "{{ 1 / 0 }}"}, "cannot be used"),
    "filter that is unknown": ("smoke_test_tier", "{{ 'quick' | no_such_filter }}", "no_such_filter"),
    "lookup that fails": ("rackready_mirror", {"images": "{{ lookup('ansible.builtin.file', '/nonexistent') }}"}, "cannot be used"),
    "too deep": ("docker_daemon_options", "{{ ('{\"a\":' * 200 + '1' + '}' * 200) | from_json }}", "nested more than 50 levels deep"),
    "much too deep": ("docker_daemon_options", "{{ ('[' * 100000) | from_json }}", "cannot be used"),
    "no number": ("docker_daemon_options", {"shutdown-timeout": float("nan")}, "nan is no number"),
    "bytes": ("docker_daemon_options", {"tlscert": b"\xff\x00"}, "cannot be used"),
    "date": ("nvidia_driver_version", datetime.date(2026, 12, 1), 'is "2026-12-01", but does not look like a driver version'),
    "date in a mapping": ("gpu_expected", {"model": datetime.date(2026, 12, 1), "count": 8}, 'gpu_expected.model is "2026-12-01"'),
    "count with a point": ("mig_layout", [{"gpus": "all", "instances": {"1g.10gb": 1.0}}], "1g.10gb is 1.0, but must be a whole number"),
    "expected with a point": ("gpu_expected", {"model": "h100-sxm5-80gb", "count": 8.0}, "must be a whole number"),
    "null": ("gpu_stack_release", None, "gpu_stack_release is null, but must be text"),
}


def test_whatever_is_wrong_with_a_variable_is_a_refusal_that_names_host_and_variable(tmp_path: Path) -> None:
    facts = facts_file(tmp_path, "bare", facts_for())
    hosts = {f"bad-{number:02d}": {"facts_file": facts, name: value} for number, (name, value, _words) in enumerate(BAD.values())}
    done = run(tmp_path, {"vars": {**LOCAL, "rackready_lock": plans.lock()}, "hosts": hosts}, playbook(tmp_path))
    for (kind, (name, _value, words)), host in zip(BAD.items(), hosts, strict=True):
        planned = done.results[host]["planned"]
        assert planned["failed"], kind
        refusals = planned["ansible_facts"]["gpu_plan"]["refusals"]
        assert len(refusals) == 1, (kind, refusals)
        assert refusals[0].startswith(name), (kind, refusals)
        assert words in refusals[0], (kind, refusals)
        assert planned["msg"] == f"{host}: {refusals[0]}", kind
        assert refusals[0].endswith("."), kind
        assert "\n" not in refusals[0], kind


def test_a_variable_in_a_vault_without_its_password_is_a_refusal_that_names_it(tmp_path: Path) -> None:
    groups: dict[str, Any] = {name: {"hosts": {"h100-01": None}} for name in ("canary", "h100_nodes")}
    for name in groups:  # two values, and neither can be compared
        path = tmp_path / "inventory" / "group_vars" / f"{name}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"smoke_test_env: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  {name.encode().hex()}\n", encoding="utf-8")
    hosts = {"h100-01": {"facts_file": facts_file(tmp_path, "bare", facts_for())}}
    done = run(tmp_path, {"vars": {**LOCAL, "rackready_lock": plans.lock()}, "hosts": hosts, "children": groups}, playbook(tmp_path))
    contradiction, sentence = refusals_of(done, "h100-01")
    assert contradiction.startswith("smoke_test_env is one value in the group h100_nodes and one value in the group canary, and none")
    assert sentence.startswith("smoke_test_env cannot be used (")
    assert sentence.endswith("no vault secrets found): give the password of the vault (--ask-vault-pass or --vault-id).")


def test_a_date_and_an_unsafe_text_arrive_as_they_are_written(tmp_path: Path) -> None:
    options = {"labels": [datetime.date(2026, 12, 1)], "log-opts": {"tag": "{{ '{{.Name}}' }}"}}
    hosts = {"h100-01": {"facts_file": facts_file(tmp_path, "bare", facts_for()), "docker_daemon_options": options}}
    done = run(tmp_path, {"vars": {**LOCAL, "rackready_lock": plans.lock()}, "hosts": hosts}, playbook(tmp_path))
    merged = done.results["h100-01"]["fact"]["areas"]["docker"]["desired"]["daemon_json"]
    assert (merged["labels"], merged["log-opts"]) == (["2026-12-01"], {"tag": "{{.Name}}"})


def test_without_facts_it_says_what_to_run(fleet: Run) -> None:
    result = fleet.results["h100-03"]
    assert "h100-03: there are no facts of this host to plan from: run the whole playbook, or" in result["planned"]["msg"]


def test_refusals_fail_with_their_host_and_the_plan(fleet: Run) -> None:
    result = fleet.results["h100-04"]
    assert result["planned"]["failed"]
    assert result["planned"]["msg"].startswith("h100-04: 7 of 8 H100 SXM5 80GB are on the PCI bus (1 missing; present: 0000:1a:00.0")
    assert result["planned"]["ansible_facts"]["gpu_plan"]["refusals"]
    assert "text" not in result["planned"]


def test_a_failed_plan_which_ansible_prints_holds_no_secret(tmp_path: Path) -> None:
    hosts = {"h100-01": {"facts_file": facts_file(tmp_path, "bare", facts_for())}}
    secret = {"docker_daemon_options": {"log-opts": {"splunk-token": "s3cr3t"}}, "smoke_test_env": {"HF_TOKEN": "s3cr3t"}}
    variables = {**LOCAL, "rackready_lock": plans.lock(), **secret}
    wanted = run(tmp_path, {"vars": variables, "hosts": hosts}, playbook(tmp_path, refuse=True)).results["h100-01"]["planned"]
    assert "s3cr3t" in wanted["ansible_facts"]["gpu_plan"]["areas"]["docker"]["desired"]["daemon_json_text"]
    hosts["h100-01"]["facts_file"] = facts_file(tmp_path, "broken", facts_for(broken=True))
    done = run(tmp_path, {"vars": variables, "hosts": hosts}, playbook(tmp_path, refuse=True))
    assert done.results["h100-01"]["planned"]["failed"]
    assert "areas" in done.output
    assert "s3cr3t" not in json.dumps(done.results) + done.output


def test_check_mode_counts_what_is_not_as_planned_as_changed(tmp_path: Path) -> None:
    bare = facts_for()
    hosts = {
        "h100-01": {"facts_file": facts_file(tmp_path, "bare", bare)},
        "h100-02": {"facts_file": facts_file(tmp_path, "done", apply_plan(bare, plan_for(bare)))},
    }
    done = run(
        tmp_path,
        {"vars": {**LOCAL, "rackready_lock": plans.lock(), "gpu_expected": plans.MODEL}, "hosts": hosts},
        playbook(tmp_path, refuse=False),
        "--check",
        "--diff",
    )
    assert {host: result["planned"]["changed"] for host, result in done.results.items()} == {"h100-01": True, "h100-02": False}
    assert "-nvidia_driver packages nvidia-driver-cuda: absent" in done.output
    assert "+nvidia_driver packages nvidia-driver-cuda: 580.178.04-1" in done.output


def test_what_differs_is_one_sentence_that_names_the_command(tmp_path: Path) -> None:
    bare = facts_for()
    there = apply_plan(bare, plan_for(bare))
    broken = apply_plan(bare, plan_for(bare))
    broken["units"]["docker.service"]["active"] = "failed"
    hosts = {"h100-01": {"facts_file": facts_file(tmp_path, "there", there)}, "h100-02": {"facts_file": facts_file(tmp_path, "broken", broken)}}
    done = run(tmp_path, {"vars": {**LOCAL, "rackready_lock": plans.lock(), "gpu_expected": plans.MODEL}, "hosts": hosts}, playbook(tmp_path))
    assert done.results["h100-01"]["planned"]["difference"] == ""
    assert done.results["h100-02"]["planned"]["difference"] == (
        "h100-02: the host differs from its plan in 1 area, docker (units docker.service is enabled, failed instead of enabled, active): "
        "run ansible-playbook -i inventory site.yml -l h100-02; if that has just run, its tasks above show the cause."
    )


@pytest.mark.parametrize("check", [(), ("--check",)], ids=["run", "check"])
def test_a_host_whose_record_cannot_be_written_is_refused_before_anything_changes(tmp_path: Path, check: tuple[str, ...]) -> None:
    bare, way = facts_for(), tmp_path / "in-the-way"
    way.touch()
    hosts = {
        "h100-01": {"facts_file": facts_file(tmp_path, "bare", bare), "rackready_records_dir": "{{ playbook_dir }}/in-the-way"},
        "h100-02": {"facts_file": facts_file(tmp_path, "done", apply_plan(bare, plan_for(bare))), "rackready_records_dir": str(way)},
        "h100-03": {"facts_file": facts_file(tmp_path, "bare", bare), "rackready_records_dir": str(tmp_path / "records")},
    }
    inventory = {"vars": {**LOCAL, "rackready_lock": plans.lock()}, "hosts": hosts}
    done = run(tmp_path, inventory, playbook(tmp_path), *check, ANSIBLE_CALLBACKS_ENABLED="rackready.gpu.record")
    for name in ("h100-01", "h100-02"):
        [sentence] = refusals_of(done, name)
        assert sentence.startswith(f"No record can be written to {way} on the controller by the user ")
        assert done.results[name]["planned"]["msg"] == f"{name}: {sentence}"
        assert done.results[name]["planned"]["ansible_facts"]["gpu_plan"]["converged"] is False
    assert done.results["h100-03"]["fact"]["refusals"] == []
    assert (tmp_path / "records/h100-03/latest.json").is_file()
    assert done.returncode == 2
    # Where nobody writes records, none is missed.
    assert run(tmp_path, inventory, playbook(tmp_path), *check).results["h100-01"]["fact"]["refusals"] == []


RELEASE = "2026.11-longterm"
OTHER = "2026.11-other"  # no release of the catalog: what is told is the contradiction, not the name
A100 = {"count": 8, "model": "a100-sxm4-80gb"}


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Hosts in groups that contradict each other, or do not."""
    directory = tmp_path_factory.mktemp("grouped")
    facts = facts_file(directory, "bare", facts_for())
    names = ["both", "host-var", "host-file", "priority", "child", "agree", "expected", "overridden", "file-wins", "deep"]
    members = {
        "h100_nodes": ["both", "host-var", "host-file", "agree", "priority"],
        "canary": ["both", "host-var", "host-file", "deep"],
        "last_word": ["priority"],
        "same": ["agree"],
        "a100_nodes": ["expected"],
        "rented": ["expected"],
        "inline": ["overridden"],
        "from_file": ["file-wins"],
    }
    values: dict[str, dict[str, Any]] = {
        "h100_nodes": {"gpu_stack_release": RELEASE},
        "canary": {"gpu_stack_release": "{{ other }}"},
        "last_word": {"gpu_stack_release": OTHER, "ansible_group_priority": 5},
        "same": {"gpu_stack_release": "{{ 'LONGTERM' | lower | replace('longterm', '2026.11-longterm') }}"},
        "a100_nodes": {"gpu_expected": A100},
        "rented": {},
        "inline": {"smoke_test_tier": "burn"},
        "from_file": {},
    }
    children: dict[str, Any] = {name: {"hosts": dict.fromkeys(members[name]), "vars": values[name]} for name in members}
    children["site"] = {
        "vars": {"gpu_stack_release": OTHER},
        "children": {"racks": {"vars": {"gpu_stack_release": RELEASE}, "hosts": {"child": None, "deep": None}}},
    }
    hosts: dict[str, Any] = {name: {"facts_file": facts} for name in names}
    hosts["host-var"]["gpu_stack_release"] = RELEASE
    files = {
        "group_vars/all/main.yml": "smoke_test_tier: accept\n",
        "group_vars/rented.yml": "gpu_expected: {model: h100-sxm5-80gb, count: 8}\n",
        "group_vars/from_file.yml": "smoke_test_tier: burn\n",
        "host_vars/host-file.yml": f"gpu_stack_release: {RELEASE}\n",
    }
    for name, text in files.items():
        path = directory / "inventory" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    inventory = {"vars": {**LOCAL, "other": OTHER, "rackready_lock": plans.lock()}, "hosts": hosts, "children": children}
    return run(directory, inventory, playbook(directory))


def refusals_of(done: Run, host: str) -> list[str]:
    found: list[str] = done.results[host]["planned"]["ansible_facts"]["gpu_plan"]["refusals"]
    return found


def test_groups_that_contradict_each_other_are_refused(grouped: Run) -> None:
    [sentence] = refusals_of(grouped, "both")
    assert sentence.startswith(
        f'gpu_stack_release is "{RELEASE}" in the group h100_nodes and "{OTHER}" in the group canary, and none of these groups is part of another'
    )
    assert grouped.results["both"]["planned"]["msg"] == f"both: {sentence}"
    # canary lies less deep than racks, so its name is not what Ansible goes by; what the operator sees is the same.
    [sentence] = refusals_of(grouped, "deep")
    assert "Ansible would silently take that of racks" in sentence
    [sentence] = refusals_of(grouped, "expected")
    assert f"gpu_expected is {json.dumps(plans.MODEL)} in the group rented and {json.dumps(A100)} in the group a100_nodes" in sentence


def test_a_group_of_the_inventory_file_that_a_file_of_a_parent_overrides_is_refused(grouped: Run) -> None:
    [sentence] = refusals_of(grouped, "overridden")
    assert sentence.startswith('smoke_test_tier is "burn" in the group inline and "accept" in the group all above it')
    assert sentence.endswith("set it in group_vars/inline.yml instead.")


@pytest.mark.parametrize("host", ["host-var", "host-file", "child", "agree", "file-wins"])
def test_a_value_that_somebody_has_decided_is_no_contradiction(grouped: Run, host: str) -> None:
    assert refusals_of(grouped, host) == []


def test_an_explicit_priority_decides(grouped: Run) -> None:
    [sentence] = refusals_of(grouped, "priority")
    assert sentence.startswith(f'gpu_stack_release is "{OTHER}", but must be one of ')
    assert RELEASE in sentence


def test_an_extra_variable_decides(tmp_path: Path) -> None:
    hosts = {"h100-01": {"facts_file": facts_file(tmp_path, "bare", facts_for())}}
    groups = {name: {"hosts": dict.fromkeys(hosts), "vars": {"gpu_stack_release": value}} for name, value in (("canary", OTHER), ("h100_nodes", RELEASE))}
    inventory = {"vars": {**LOCAL, "rackready_lock": plans.lock()}, "hosts": hosts, "children": groups}
    done = run(tmp_path, inventory, playbook(tmp_path), "-e", f"gpu_stack_release={RELEASE}")
    assert refusals_of(done, "h100-01") == []


def test_a_lock_file_with_a_key_twice_is_refused(tmp_path: Path) -> None:
    lock = tmp_path / "inventory" / "group_vars" / "all" / "rackready_images.yml"
    lock.parent.mkdir(parents=True)
    text = json.dumps({"rackready_lock": plans.lock()})
    lock.write_text(f"{text[:-1]},\n{text[1:]}", encoding="utf-8")
    done = run(tmp_path, {"vars": LOCAL, "hosts": {"h100-01": {"facts_file": facts_file(tmp_path, "bare", facts_for())}}}, playbook(tmp_path))
    [sentence] = refusals_of(done, "h100-01")
    assert sentence.startswith(f"{lock}, line 2, has rackready_lock for the second time, so it is not clear what is locked: ")


def test_the_catalog_is_read_before_a_process_for_each_host_is_forked() -> None:
    action = "ansible_collections.rackready.gpu.plugins.action.gpu_plan"
    code = f"import {action} as action; print(action.catalog_loader.load.cache_info().currsize)"
    told = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "collections")}, capture_output=True, text=True, check=True)
    assert told.stdout == "1\n"
