# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The callback under the real ansible-playbook; only the watched modules are stand-ins (stand_in.py)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from .conftest import ROOT, Project

SCHEMA = json.loads((ROOT / "plugins/plugin_utils/schemas/record.schema.json").read_text(encoding="utf-8"))

JOURNEY = """\
- name: Journey
  hosts: all
  gather_facts: false
  tasks:
    - {name: Read the host, rackready.gpu.gpu_host_facts: {call: 0}}
    - {name: Plan, rackready.gpu.gpu_plan: {call: 0}}
    - name: Apply
      ansible.builtin.include_role:
        name: rackready.gpu.docker
    - {name: Read the host again, rackready.gpu.gpu_host_facts: {call: 1}}
    - {name: Plan again, rackready.gpu.gpu_plan: {call: 1}}
    - {name: Prove, rackready.gpu.gpu_smoke_test: {}}
"""
APPLY = """\
- name: Write the configuration
  ansible.builtin.copy:
    content: "{{ inventory_hostname }}"
    dest: "{{ playbook_dir }}/{{ inventory_hostname }}.json"
    mode: "0644"
"""
PLAN_ONLY = """\
- name: Plan
  hosts: all
  gather_facts: false
  tasks:
    - {name: Read the host, rackready.gpu.gpu_host_facts: {}}
    - {name: Plan, rackready.gpu.gpu_plan: {}}
"""
CHECK = {"name": "gpu_count", "status": "pass", "required": True, "value": 8, "floor": 8, "unit": "GPUs", "reason": None, "remedy": None, "gpu": None}
STAMP = {"release": "2026.11-longterm", "verdict": "accepted", "time": "2026-12-01T04:00:00Z"}


def facts(**values: Any) -> dict[str, Any]:
    return {"changed": False, "ansible_facts": {"gpu_host": {"hostname": "h", "stamp": None, **values}}}


def plan(converged: bool, proved: bool = False, **values: Any) -> dict[str, Any]:
    areas = {"docker": {"converged": converged}, "smoke_test": {"converged": proved}}
    content = {"release": "2026.11-longterm", "converged": converged, "refusals": [], "areas": areas, **values}
    return {"changed": False, "ansible_facts": {"gpu_plan": content}}


def verdict(value: str = "accepted", **values: Any) -> dict[str, Any]:
    return {
        "changed": True,
        "verdict": value,
        "reason": "all required checks passed",
        "remedy": None,
        "checks": [CHECK],
        "stamp": STAMP,
        "seconds": 4.5,
        **values,
    }


def good_host(**modules: Any) -> dict[str, Any]:
    return {"stand_in": {"gpu_host_facts": [facts()], "gpu_plan": [plan(False), plan(True)], "gpu_smoke_test": [verdict()], **modules}}


def checked(record: dict[str, Any]) -> dict[str, Any]:
    jsonschema.Draft202012Validator(SCHEMA).validate(record)
    return record


def summary(out: str) -> list[str]:
    """The lines that the callback printed after the recap."""
    return [line for line in out.rsplit("PLAY RECAP", maxsplit=1)[-1].splitlines()[1:] if line and ": ok=" not in line]


def wait_for(path: Path, process: subprocess.Popen[str]) -> None:
    limit = time.monotonic() + 60
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < limit, f"{path} never appeared"
        time.sleep(0.05)


def test_accepted_host(project: Project) -> None:
    project.role("docker", APPLY)
    project.inventory({"h100-01": good_host()})
    project.playbook(JOURNEY)
    done = project.run()
    assert done.returncode == 0, done.stdout + done.stderr
    assert "[WARNING]" not in done.stderr
    record = checked(project.latest("h100-01"))
    assert (record["outcome"], record["verdict"], record["release"]) == ("accepted", "accepted", "2026.11-longterm")
    assert record["reason"] == "all required checks passed"
    assert record["plan"]["converged"] is False
    assert record["plan_after"]["converged"] is True
    assert record["checks"] == [CHECK]
    assert record["stamp"] == STAMP
    assert record["smoke_test"] == {"seconds": 4.5}
    assert [(entry["role"], entry["task"]) for entry in record["changed"]] == [("docker", "Write the configuration"), (None, "Prove")]
    # ansible-core 2.21 no longer returns the arguments, so the words come from the result there.
    assert [words.split()[0] for words in record["changed"][0]["actions"]] == [f"dest={project.path}/h100-01.json"]
    assert record["tasks"] == {"ok": 7, "changed": 2, "failed": 0, "skipped": 0, "ignored": 0, "rescued": 0}
    files = sorted(path.name for path in (project.records / "h100-01").iterdir())
    assert files == [f"{record['run_id'].split('-')[0]}.json", "latest.json"]
    assert (project.records / "h100-01" / files[0]).read_bytes() == (project.records / "h100-01/latest.json").read_bytes()
    assert summary(done.stdout) == [f"h100-01  accepted  all required checks passed  records/h100-01/{files[0]}"]
    assert record["versions"]["rackready"] == "0.1.0"


def test_host_that_needs_nothing_keeps_its_stamp_verdict(project: Project) -> None:
    stamped = good_host(gpu_host_facts=[facts(stamp=STAMP)], gpu_plan=[plan(True, proved=True)])
    project.inventory({"h100-01": stamped})
    project.playbook(PLAN_ONLY)
    assert project.run().returncode == 0
    record = checked(project.latest("h100-01"))
    reason = "nothing to do: the host is as planned, and its last smoke test (stamp of 2026-12-01T04:00:00Z) matches the plan"
    assert (record["outcome"], record["reason"]) == ("accepted", reason)
    assert record["verdict"] is None


@pytest.mark.parametrize("check", [[], ["--check"]], ids=["plan.yml", "check mode"])
def test_planned_host(project: Project, check: list[str]) -> None:
    project.inventory({"h100-01": good_host()})
    project.playbook(PLAN_ONLY, "plan.yml")
    assert project.run(*check, playbook="plan.yml").returncode == 0
    record = checked(project.latest("h100-01"))
    assert (record["outcome"], record["reason"], record["check_mode"]) == ("planned", "to do: docker", bool(check))
    assert re.fullmatch(r"Apply it: ansible-playbook -i \S+ site\.yml -l h100-01", record["remedy"])
    assert record["changed"] == []


def test_refused_host(project: Project) -> None:
    sentence = "h100-01: 7 GPUs found, 8 expected. Reseat the missing one."
    refusing = {**plan(False, refusals=[sentence]), "failed": True, "msg": sentence}
    project.inventory({"h100-01": good_host(gpu_plan=[refusing]), "h100-02": good_host()})
    project.role("docker", APPLY)
    project.playbook(JOURNEY)
    done = project.run()
    assert done.returncode == 2
    record = checked(project.latest("h100-01"))
    assert (record["outcome"], record["reason"], record["changed"]) == ("refused", sentence, [])
    assert record["failed_task"]["action"] == "rackready.gpu.gpu_plan"
    assert project.latest("h100-02")["outcome"] == "accepted"
    lines = summary(done.stdout)
    assert [line.split()[:2] for line in lines] == [["h100-01", "refused"], ["h100-02", "accepted"]]
    assert len({line.index("records/") for line in lines}) == 1, "the columns are aligned"


def test_unreachable_sources_refuse_before_anything_changed(project: Project) -> None:
    missing = {"failed": True, "msg": "https://mirror.example/cuda: 404", "problems": ["https://mirror.example/cuda: 404"]}
    project.inventory({"h100-01": good_host(stack_sources=[missing])})
    project.playbook(PLAN_ONLY + "    - rackready.gpu.stack_sources: {}\n")
    assert project.run().returncode == 2
    record = checked(project.latest("h100-01"))
    assert (record["outcome"], record["reason"]) == ("refused", "https://mirror.example/cuda: 404")


def test_failed_role_task(project: Project) -> None:
    project.role("docker", "- name: Restart the engine\n  ansible.builtin.command: {argv: [sh, -c, 'echo engine says no >&2; exit 3']}\n")
    project.inventory({"h100-01": good_host()})
    project.playbook(JOURNEY)
    assert project.run().returncode == 2
    record = checked(project.latest("h100-01"))
    assert record["outcome"] == "failed"
    # The words in the middle differ between versions of Ansible.
    assert re.fullmatch(r"docker: Restart the engine: .*non-zero return code: engine says no", record["reason"])
    assert record["failed_task"]["role"] == "docker"
    assert re.search(r"ansible-playbook -i \S+ site\.yml -l h100-01", record["remedy"])


def test_rejected_host_keeps_its_checks(project: Project) -> None:
    bad = verdict("rejected", failed=True, msg="h100-01 is rejected", reason="gpu_count: 7 of 8", remedy="Reseat GPU 3.", stamp=None)
    project.role("docker", APPLY)
    project.inventory({"h100-01": good_host(gpu_smoke_test=[bad])})
    project.playbook(JOURNEY)
    assert project.run().returncode == 2
    record = checked(project.latest("h100-01"))
    assert (record["outcome"], record["verdict"], record["reason"], record["remedy"]) == ("rejected", "rejected", "gpu_count: 7 of 8", "Reseat GPU 3.")
    assert record["checks"] == [CHECK]
    assert record["stamp"] is None


def test_final_plan_that_differs_is_no_success(project: Project) -> None:
    project.role("docker", APPLY)
    project.inventory({"h100-01": good_host(gpu_plan=[plan(False), plan(False)])})
    project.playbook(JOURNEY)
    project.run()
    record = checked(project.latest("h100-01"))
    assert (record["outcome"], record["reason"]) == ("failed", "at the end these areas differ from the plan: docker")


def test_unreachable_host(project: Project) -> None:
    nobody_listens = {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9}
    project.role("docker", APPLY.replace("ansible.builtin.copy", "ansible.builtin.file").replace("content:", "state: touch #"))
    project.inventory({"h100-01": {**good_host(), **nobody_listens}, "h100-02": good_host()})
    project.playbook(JOURNEY)
    assert project.run().returncode == 4
    record = checked(project.latest("h100-01"))
    assert record["outcome"] == "unreachable"
    assert "ssh" in record["reason"].lower()
    assert record["tasks"]["failed"] == 1
    assert project.latest("h100-02")["outcome"] == "accepted"


HANDLED = """\
    - name: Outer
      block:
        - name: Direct
          ansible.builtin.fail: {{msg: direct}}
      rescue:
        - ansible.builtin.debug: {{msg: rescued}}
    - name: Nested
      block:
        - name: Inner
          block:
            - ansible.builtin.include_role: {{name: rackready.gpu.{role}}}
      rescue:
        - ansible.builtin.debug: {{msg: rescued}}
    - name: Ignored
      ansible.builtin.fail: {{msg: ignored}}
      ignore_errors: true
"""


def test_rescued_and_ignored_failures_are_none(project: Project) -> None:
    project.role("docker", "- name: In a role\n  ansible.builtin.fail: {msg: in a role}\n")
    project.inventory({"h100-01": good_host(gpu_plan=[plan(False)])})
    project.playbook(PLAN_ONLY + HANDLED.format(role="docker"))
    assert project.run().returncode == 0
    record = checked(project.latest("h100-01"))
    assert (record["outcome"], record["failed_task"]) == ("planned", None)
    assert (record["tasks"]["failed"], record["tasks"]["rescued"], record["tasks"]["ignored"]) == (0, 2, 1)


@pytest.mark.parametrize("section", ["rescue", "always"])
def test_failures_beside_the_rescued_part_count(project: Project, section: str) -> None:
    project.inventory({"h100-01": good_host()})
    other = "rescue: [{ansible.builtin.debug: {}}]" if section == "always" else "always: [{ansible.builtin.debug: {}}]"
    project.playbook(
        PLAN_ONLY
        + f"    - block: [{{name: First, ansible.builtin.fail: {{msg: first}}}}]\n      {section}: [{{name: Second, ansible.builtin.fail: {{msg: second}}}}]\n"
        + f"      {other}\n"
    )
    assert project.run().returncode == 2
    record = checked(project.latest("h100-01"))
    assert (record["outcome"], record["reason"]) == ("failed", "Second: second")


def test_one_failure_that_stops_all_hosts(project: Project) -> None:
    broken = good_host(gpu_smoke_test=[{"failed": True, "msg": "no engine"}])
    project.inventory({"h100-01": broken, "h100-02": good_host()})
    project.role("docker", "- ansible.builtin.fail: {msg: broken}\n  when: inventory_hostname == 'h100-01'\n  name: Break\n")
    project.playbook(JOURNEY.replace("gather_facts: false", "gather_facts: false\n  any_errors_fatal: true"))
    assert project.run().returncode == 2
    assert project.latest("h100-01")["outcome"] == "failed"
    stopped = checked(project.latest("h100-02"))
    assert (stopped["outcome"], stopped["reason"]) == ("interrupted", "the play was stopped for all hosts because h100-01 failed at 'Break'")


SLEEPY = """\
    - name: Wait long
      ansible.builtin.command: {{argv: [sh, -c, "touch {marker}; exec sleep 20"]}}
"""


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 99), (signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP)])
def test_interrupted_run(project: Project, number: signal.Signals, status: int) -> None:
    marker = project.path / "started"
    project.inventory({"h100-01": good_host()})
    project.playbook(PLAN_ONLY + SLEEPY.format(marker=marker))
    inherited = signal.signal(number, signal.SIG_DFL)  # under nohup the run would rightly ignore it
    try:
        process = project.start()
    finally:
        signal.signal(number, inherited)
    wait_for(marker, process)
    process.send_signal(number)
    if number == signal.SIGINT:
        process.send_signal(number)  # people press twice
    out, err = process.communicate(timeout=60)
    # ansible-playbook ends as it does without the callback; a second Ctrl-C kills it.
    assert process.returncode in ((status, -signal.SIGINT) if number == signal.SIGINT else (status,)), out + err
    record = checked(project.latest("h100-01"))
    assert record["outcome"] == "interrupted"
    assert record["reason"] == f"the run was stopped by {number.name} while 'Wait long' ran: what that task has done is unknown"
    assert len([line for line in err.splitlines() if line.startswith("h100-01  interrupted  ")]) == 1
    assert len(list((project.records / "h100-01").iterdir())) == 2


def test_killed_run_leaves_no_record_and_no_harm(project: Project) -> None:
    marker = project.path / "started"
    project.inventory({"h100-01": good_host()})
    project.playbook(PLAN_ONLY + SLEEPY.format(marker=marker))
    process = project.start()
    wait_for(marker, process)
    process.kill()
    process.communicate(timeout=60)
    assert not project.records.exists()
    # What a run leaves that was killed in the middle of writing.
    (project.records / "h100-01").mkdir(parents=True)
    for name in (".20261201T040506Z.json.tmp", ".latest.json.20261201T040506Z.tmp"):
        (project.records / "h100-01" / name).write_text('{"schema": 1, "ho', encoding="utf-8")
    project.playbook(PLAN_ONLY)
    assert project.run().returncode == 0
    assert checked(project.latest("h100-01"))["outcome"] == "planned"


def test_error_of_ansible_itself(project: Project) -> None:
    project.inventory({"h100-01": good_host()})
    (project.path / "broken.yml").write_text("- this: is\n  no: task\n", encoding="utf-8")
    project.playbook(PLAN_ONLY + "    - ansible.builtin.include_tasks: broken.yml\n")
    done = project.run()
    assert done.returncode not in (0, 2), "Ansible stopped by itself"
    record = checked(project.latest("h100-01"))
    assert record["outcome"] == "interrupted"
    assert record["reason"].startswith("ansible-playbook stopped with an error of its own")


def test_runs_at_once_get_a_record_each(project: Project) -> None:
    project.inventory({"h100-01": good_host()})
    project.playbook(PLAN_ONLY)
    processes = [project.start() for _ in range(3)]
    for process in processes:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, out + err
    files = [path for path in (project.records / "h100-01").glob("*.json") if path.name != "latest.json"]
    records = [checked(json.loads(path.read_text(encoding="utf-8"))) for path in files]
    assert len({record["run_id"] for record in records}) == 3
    assert project.latest("h100-01") in records


def test_two_playbooks_of_one_run_make_one_record(project: Project) -> None:
    project.role("docker", APPLY)
    project.inventory({"h100-01": good_host()})
    project.playbook(PLAN_ONLY, "plan.yml")
    project.playbook(JOURNEY)
    assert project.run("site.yml", playbook="plan.yml").returncode == 0
    assert len(list((project.records / "h100-01").iterdir())) == 2
    record = checked(project.latest("h100-01"))
    assert (record["outcome"], record["playbook"]) == ("accepted", "site.yml")


def test_unwritable_directory_is_said_and_changes_nothing_else(project: Project) -> None:
    project.records.write_text("a file is in the way", encoding="utf-8")
    project.role("docker", "- ansible.builtin.fail: {msg: no}\n  name: Fail\n")
    project.inventory({"h100-01": good_host(), "h100-02": good_host()})
    project.playbook(JOURNEY)
    done = project.run()
    assert done.returncode == 2
    said = " ".join((done.stdout + done.stderr).split())
    assert "is not a directory" in said
    assert "No record was written of h100-01, h100-02" in said
    assert [line.split()[:2] for line in summary(done.stdout)] == [["h100-01", "failed"], ["h100-02", "failed"]]
    assert project.records.read_text(encoding="utf-8") == "a file is in the way"


@pytest.mark.parametrize(("hosts", "status"), [(("h100-01",), 2), (("h100-01", "h100-02"), 4)], ids=["all well", "one unreachable"])
def test_a_record_that_cannot_be_written_at_the_end_makes_the_run_a_failed_one(project: Project, hosts: tuple[str, ...], status: int) -> None:
    # In the middle of the run, as a disk that fills up: at the start there was nothing to object.
    project.role("docker", "- {name: Be in the way, ansible.builtin.copy: {content: '', dest: '{{ playbook_dir }}/records', mode: '0644'}}\n")
    gone = {"h100-02": {"ansible_connection": "ssh", "ansible_host": "127.0.0.1", "ansible_port": 9, "ansible_ssh_timeout": 2}}
    project.inventory({name: {**good_host(), **gone.get(name, {})} for name in hosts})
    project.playbook(JOURNEY.replace("tasks:\n", "tasks:\n    - {name: Knock, ansible.builtin.command: {cmd: 'true'}}\n"))
    done = project.run()
    assert done.returncode == status, done.stdout + done.stderr
    assert "failed=0" in done.stdout
    assert "No record was written of h100-01: " in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert summary(done.stdout)[0].split()[:2] == ["h100-01", "accepted"]


SELECTIONS = {
    "tags": ("--tags", "driver"),
    "skipped tags": ("--skip-tags", "all"),
    "a task that is not there": ("--start-at-task", "Install Docker"),
}


@pytest.mark.parametrize("arguments", SELECTIONS.values(), ids=list(SELECTIONS))
@pytest.mark.parametrize(
    "text", [PLAN_ONLY, "- {name: Pin, hosts: all, gather_facts: false, tasks: [{name: Lock, rackready.gpu.stack_pin: {}}]}\n"], ids=["plan", "pin"]
)
def test_a_run_that_leaves_out_every_task_says_so_and_fails(project: Project, arguments: tuple[str, str], text: str) -> None:
    project.inventory({"h100-01": good_host()})
    project.playbook(text)
    done = project.run(*arguments)
    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert f"Nothing ran, as no task fits {arguments[0]} " in said
    assert arguments[1] in said
    assert "choose hosts with -l" in said
    assert not project.records.exists()


def test_tags_that_leave_a_task_to_run_and_plays_of_others_are_nobody_s_business(project: Project) -> None:
    project.inventory({"h100-01": good_host()})
    project.playbook(PLAN_ONLY.replace("rackready.gpu.gpu_plan: {}", "rackready.gpu.gpu_plan: {}, tags: [plan]"))
    done = project.run("--tags", "plan")
    assert (done.returncode, "Nothing ran" in done.stderr) == (0, False)
    project.playbook("- {name: Theirs, hosts: all, gather_facts: false, tasks: [{name: Nothing, ansible.builtin.debug: {msg: ''}}]}\n")
    done = project.run("--tags", "plan")
    assert (done.returncode, "Nothing ran" in done.stderr) == (0, False)


def test_records_directory_inside_an_inventory_is_refused(project: Project) -> None:
    project.inventory({"h100-01": {**good_host(), "rackready_records_dir": "inventory/records"}})
    (project.path / "inventory").mkdir()
    (project.path / "hosts.yml").rename(project.path / "inventory/hosts.yml")
    project.playbook(PLAN_ONLY)
    done = project.run("-i", "inventory")
    assert not (project.path / "inventory/records").exists()
    assert "lies inside the inventory" in " ".join((done.stdout + done.stderr).split())


def test_records_directory_is_templated(project: Project) -> None:
    place = project.path / "élsewhere"
    project.inventory({"h100-01": {**good_host(), "site": "élsewhere", "rackready_records_dir": "{{ playbook_dir }}/{{ site }}"}})
    project.playbook(PLAN_ONLY)
    assert project.run().returncode == 0
    assert project.latest("h100-01", place)["outcome"] == "planned"
    assert not project.records.exists()


def test_text_of_all_kinds(project: Project) -> None:
    odd = "Größe 漢字 \U0001f680 \x07 {{ not_a_template }}"
    project.inventory({"hôte-01": {**good_host(gpu_host_facts=[facts(note=odd, big=2**70)]), "word": "tagged"}})
    # A templated value carries Ansible's tags, and this one comes from the inventory (trusted) and a file (origin).
    project.playbook(PLAN_ONLY + f"    - name: Fail with {{{{ word }}}}\n      ansible.builtin.fail: {{msg: '{{{{ word }}}} {odd[:8]}'}}\n")
    assert project.run().returncode == 2
    record = checked(project.latest("hôte-01"))
    assert record["facts"]["note"] == odd
    assert record["facts"]["big"] == 2**70
    assert record["reason"] == "Fail with tagged: tagged Größe 漢字"


def test_no_log_results_stay_hidden(project: Project) -> None:
    secret = "hunter2-correct-horse"
    project.role(
        "docker",
        "- name: Write a secret\n  no_log: true\n"
        f"  ansible.builtin.copy: {{content: {secret}, dest: '{{{{ playbook_dir }}}}/{secret}', mode: '0600'}}\n"
        f"- name: Fail with a secret\n  no_log: true\n  ansible.builtin.command: {{argv: [sh, -c, 'echo {secret}; exit 1']}}\n",
    )
    project.inventory({"h100-01": good_host()})
    project.playbook(JOURNEY)
    assert project.run().returncode == 2
    record = checked(project.latest("h100-01"))
    assert secret not in json.dumps(record)
    # A command that failed may have changed something before.
    assert [entry["task"] for entry in record["changed"]] == ["Write a secret", "Fail with a secret"]
    assert {action for entry in record["changed"] for action in entry["actions"]} == {"the output is hidden by no_log"}
    assert record["reason"] == "docker: Fail with a secret: the output is hidden by no_log"


def test_only_our_hosts_have_records(project: Project) -> None:
    project.inventory({"localhost": {"stand_in": {"stack_sources": [{"changed": False}], "gpu_host_facts": [facts()]}}, "web": good_host()})
    project.playbook(
        "- hosts: localhost\n  gather_facts: false\n  tasks: [{rackready.gpu.stack_sources: {}}]\n"
        "- hosts: web\n  gather_facts: false\n  tasks: [{ansible.builtin.ping: {}}, {rackready.gpu.gpu_host_facts: {}}]\n"
    )
    done = project.run()
    assert done.returncode == 0
    assert summary(done.stdout) == []
    assert not project.records.exists()


def test_a_hundred_hosts(project: Project) -> None:
    names = [f"h100-{number:03}" for number in range(100)]
    project.inventory({name: good_host() for name in names})
    project.playbook(PLAN_ONLY)
    done = project.run("-f", "10")
    assert done.returncode == 0, done.stderr
    assert [line.split()[0] for line in summary(done.stdout)] == names
    runs = {checked(project.latest(name))["run_id"] for name in names}
    assert len(runs) == 1


def test_the_callback_is_documented() -> None:
    environment = {**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "LC_ALL": "C.UTF-8"}
    command = [str(Path(sys.executable).with_name("ansible-doc")), "-t", "callback", "--json", "rackready.gpu.record"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["rackready.gpu.record"]["doc"]["type"] == "aggregate"


LOCK = "group_vars/all/rackready_images.yml"
PIN = "- hosts: all\n  gather_facts: false\n  tasks: [{name: Lock, rackready.gpu.stack_pin: {}, run_once: true, delegate_to: localhost}]\n"
# What people and accidents make of the lock file, and words of the sentence about it.
BROKEN = {
    "torn in a list": ("rackready_lock:\n  images: {a: [1, 2", f"{LOCK}, line 3, cannot be read ("),
    "torn in a text": ('rackready_lock:\n  written_at: "2026-12', f"{LOCK}, line 2, cannot be read ("),
    "conflict": ("rackready_lock:\n<<<<<<< HEAD\n  schema: 1\n=======\n  schema: 1\n>>>>>>> mine\n", f"{LOCK}, line "),
    "tabs": ("rackready_lock:\n\tschema: 1\n", f"{LOCK}, line 2, cannot be read ("),
    "a list": ("- rackready_lock\n", "cannot be read (it holds a list and not a mapping)"),
    "a text": ("404 page not found\n", "cannot be read (it holds a text and not a mapping)"),
}


def broken(project: Project, text: str, file: str = LOCK) -> None:
    path = project.path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


@pytest.mark.parametrize(("text", "words"), BROKEN.values(), ids=list(BROKEN))
@pytest.mark.parametrize("arguments", [(), ("--check",)], ids=["run", "check"])
def test_a_lock_that_ansible_cannot_read_is_one_sentence_and_a_record_for_each_host(
    project: Project, text: str, words: str, arguments: tuple[str, ...]
) -> None:
    project.inventory({"h100-01": good_host(), "h100-02": good_host()})
    project.playbook(PLAN_ONLY)
    broken(project, text)
    done = project.run(*arguments)
    assert done.returncode != 0
    assert "Traceback" not in done.stdout + done.stderr
    [sentence] = [line for line in done.stderr.splitlines() if line.startswith("h100-01, h100-02: ")]
    assert words in sentence
    assert str(project.path / LOCK) in sentence
    remedy = (
        f"take it back from version control, or remove it and write it again (rm {project.path / LOCK} && ansible-playbook -i hosts.yml playbooks/pin.yml)."
    )
    assert sentence.endswith(remedy)
    for host in ("h100-01", "h100-02"):
        record = checked(project.latest(host))
        assert (record["outcome"], record["changed"], record["facts"]) == ("refused", [], None)
        assert record["reason"] == sentence.removeprefix("h100-01, h100-02: ")
        assert record["remedy"] == f"Nothing was changed. Do what each sentence says, then: ansible-playbook -i hosts.yml site.yml -l {host}"


def test_a_playbook_of_the_collection_whose_tasks_are_included_is_recorded_too(project: Project) -> None:
    project.inventory({"h100-01": good_host()})
    playbooks = project.path / "collections/ansible_collections/rackready/gpu/playbooks"
    playbooks.mkdir()
    included = "- {hosts: all, gather_facts: false, tasks: [{name: Prove, ansible.builtin.include_tasks: tasks/prove.yml}]}\n"
    project.playbook(included, str((playbooks / "verify.yml").relative_to(project.path)))
    broken(project, "rackready_lock: {")
    done = project.run(playbook=str(playbooks / "verify.yml"))
    assert done.returncode != 0
    assert checked(project.latest("h100-01"))["outcome"] == "refused"


def test_pin_is_told_what_to_remove_and_leaves_no_record(project: Project) -> None:
    project.inventory({"h100-01": good_host()})
    project.playbook(PIN)
    broken(project, "rackready_lock: {")
    done = project.run()
    assert done.returncode != 0
    assert f"remove it and write it again (rm {project.path / LOCK} && ansible-playbook -i hosts.yml playbooks/pin.yml)." in done.stderr
    assert not project.records.exists()
    (project.path / LOCK).unlink()
    assert project.run().returncode == 2, "the stand-in has no result, but it was asked"


def test_any_file_of_variables_that_ansible_cannot_read_is_named_for_the_hosts_that_it_concerns(project: Project) -> None:
    project.inventory({"h100-01": good_host(), "h100-02": good_host()})
    project.playbook(PLAN_ONLY)
    broken(project, "gpu_expected: {model: h100-sxm5-80gb, count: 8\n", "host_vars/h100-02.yml")
    done = project.run()
    assert done.returncode != 0
    record = checked(project.latest("h100-02"))
    assert record["outcome"] == "refused"
    assert f"{project.path}/host_vars/h100-02.yml, line 2, cannot be read (" in record["reason"]
    assert record["reason"].endswith(", so nothing is known of what this host shall be: correct the file.")
    assert f"h100-02: {record['reason']}" in done.stderr


def test_variables_in_a_vault_without_its_password_say_what_to_give(project: Project) -> None:
    project.inventory({"h100-01": good_host()})
    project.playbook(PLAN_ONLY)
    broken(project, "$ANSIBLE_VAULT;1.1;AES256\n3636\n", "group_vars/all/main.yml")
    assert project.run().returncode != 0
    record = checked(project.latest("h100-01"))
    assert record["outcome"] == "refused"
    assert record["reason"].startswith("The variables of this host cannot be read (Attempting to decrypt but no vault secrets found), so nothing is known")
    assert record["reason"].endswith("give the password of the vault (--ask-vault-pass or --vault-id).")


def test_the_records_directory_of_the_command_line_counts_also_then(project: Project) -> None:
    project.inventory({"h100-01": good_host()})
    project.playbook(PLAN_ONLY)
    broken(project, "- a\n")
    project.run("-e", "rackready_records_dir=elsewhere")
    assert project.latest("h100-01", project.path / "elsewhere")["outcome"] == "refused"


def test_other_peoples_plays_are_left_alone_then(project: Project) -> None:
    project.inventory({"h100-01": good_host()})
    project.playbook("- {hosts: all, gather_facts: false, tasks: [{name: Ping, ansible.builtin.ping: {}}]}\n")
    broken(project, "- a\n")
    done = project.run()
    assert done.returncode != 0
    assert "h100-01: " not in done.stderr
    assert not project.records.exists()
