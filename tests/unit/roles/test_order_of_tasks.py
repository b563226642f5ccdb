# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What people met elsewhere and what the order and the options of the roles' tasks keep away, read from the tasks: a unit test cannot run apt and systemd.

That the tasks do what they say is seen in the lab (``molecule/default/tests/test_converged.py``, ``molecule/killed``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.unit.playbooks import ROOT

FILES = sorted([*ROOT.glob("roles/*/tasks/*.yml"), *ROOT.glob("playbooks/**/*.yml"), ROOT / "site.yml"])


def tasks(value: Any) -> Iterator[dict[str, Any]]:
    """All tasks below, in their order, those of blocks and plays included."""
    for entry in value if isinstance(value, list) else []:
        yield entry
        for key in ("pre_tasks", "tasks", "post_tasks", "block", "rescue", "always"):
            yield from tasks(entry.get(key))


def of(path: str) -> list[dict[str, Any]]:
    return list(tasks(yaml.safe_load((ROOT / path).read_text(encoding="utf-8"))))


EVERY = [(path.relative_to(ROOT).as_posix(), task) for path in FILES for task in of(path.relative_to(ROOT).as_posix())]


def with_module(*names: str) -> list[tuple[str, dict[str, Any]]]:
    return [(path, task) for path, task in EVERY if any(f"ansible.builtin.{name}" in task for name in names)]


def test_a1_all_packages_of_an_area_are_one_transaction() -> None:
    for manager in ("apt", "dnf"):
        [task] = [task for task in of(f"roles/package_set/tasks/{manager}.yml") if f"ansible.builtin.{manager}" in task]
        assert task[f"ansible.builtin.{manager}"]["name"] == "{{ package_set_packages }}"
        assert "loop" not in task


def test_a2_sources_and_pins_are_there_before_anything_is_installed() -> None:
    names = [next((key for key in task if "." in key), "") for task in of("roles/package_set/tasks/main.yml")]
    assert names == ["ansible.builtin.include_tasks", "ansible.builtin.copy", "ansible.builtin.include_tasks"]
    first, files, install = of("roles/package_set/tasks/main.yml")
    assert first["ansible.builtin.include_tasks"] == "dnf_before.yml", "what comes before comes from the distribution, and not from the driver's repository"
    assert files["loop"] == "{{ package_set_files }}"
    assert install["ansible.builtin.include_tasks"] == "{{ package_set_manager }}.yml"


def test_a3_repositories_and_registry_are_asked_before_the_first_role_changes_something() -> None:
    roles = [task["ansible.builtin.include_role"]["name"] for task in of("playbooks/tasks/apply.yml") if "ansible.builtin.include_role" in task]
    assert roles[0] == "rackready.gpu.preflight"
    assert [next(key for key in task if "." in key) for task in of("roles/preflight/tasks/main.yml")] == ["rackready.gpu.stack_sources"]


def test_a11_nothing_asks_anybody_anything() -> None:
    """No .run file is executed (its installer can ask), and dnf is answered beforehand; Ansible's apt and dnf modules ask nobody."""
    commands = [task["ansible.builtin.command"]["argv"] for _path, task in with_module("command")]
    assert commands
    assert [command for command in commands if ".run" in str(command)] == []
    assert [command for command in commands if command[0] == "dnf" and "--assumeyes" not in command] == []
    assert with_module("shell", "raw", "script", "expect", "pause") == []


def test_b2_no_task_reboots_the_host_it_runs_on_or_any_other() -> None:
    """A host that needs a reboot is refused with that sentence (A9); the run ends there, over ssh and with a local connection alike."""
    assert with_module("reboot") == []
    assert [path for path, task in with_module("command") if re.search(r"reboot|shutdown|telinit|kexec", str(task["ansible.builtin.command"]))] == []


def test_b3_no_transaction_may_bring_a_kernel() -> None:
    """With dnf kernels are excluded. With apt no package of ours depends on one, and nothing is removed on the way."""
    found = [task["ansible.builtin.dnf"] for _path, task in with_module("dnf") if "package_set_lock" not in str(task["ansible.builtin.dnf"]["name"])]
    assert len(found) == 2
    assert {options.get("exclude") for options in found} == {"{{ __package_set_kernels }}"}
    kernels = yaml.safe_load((ROOT / "roles/package_set/vars/main.yml").read_text(encoding="utf-8"))["__package_set_kernels"]
    assert "kernel-core" in kernels
    [(_path, apt)] = with_module("apt")
    assert (apt["ansible.builtin.apt"]["install_recommends"], apt["ansible.builtin.apt"]["fail_on_autoremove"]) == (False, True)


def test_b6_no_play_takes_facts_of_a_host_from_a_cache() -> None:
    """Facts come from ``gpu_host_facts`` in the same run, again after the driver is loaded and at the end; a stale name in a cache means nothing."""
    plays = [(path, entry) for path, entry in EVERY if "hosts" in entry]
    assert len(plays) >= 4
    assert [path for path, play in plays if play.get("gather_facts") is not False] == []
    names = [key for task in of("playbooks/tasks/apply.yml") for key in task if key in ("rackready.gpu.gpu_host_facts", "rackready.gpu.gpu_plan")]
    assert names == ["rackready.gpu.gpu_host_facts", "rackready.gpu.gpu_plan"] * 2


def test_d7_i3_every_unit_that_a_role_enables_is_unmasked_by_the_same_task() -> None:
    enabled = [
        (path, task["ansible.builtin.systemd_service"]) for path, task in with_module("systemd_service") if "enabled" in task["ansible.builtin.systemd_service"]
    ]
    assert {path.split("/")[1] for path, _options in enabled} >= {"nvidia_driver", "nvidia_fabric", "docker", "nvidia_container_toolkit"}
    assert [path for path, options in enabled if options.get("masked") is not False] == []


def test_d8_f3_packages_do_not_start_services_before_they_are_configured() -> None:
    [(_path, apt)] = with_module("apt")
    assert apt["ansible.builtin.apt"]["policy_rc_d"] == 101
    order = [next(key for key in task if "." in key).rpartition(".")[2] for task in of("roles/docker/tasks/main.yml")]
    assert order == ["include_role", "file", "copy", "systemd_service"]


def test_f1_the_daemon_json_that_was_there_is_kept_beside_the_merged_one() -> None:
    [copy] = [task["ansible.builtin.copy"] for task in of("roles/docker/tasks/main.yml") if "ansible.builtin.copy" in task]
    assert (copy["dest"], copy["backup"]) == ("/etc/docker/daemon.json", True)


@pytest.mark.parametrize("when", ["nvidia_container_toolkit.converged and ansible_facts.gpu_plan.areas.mig.converged"])
def test_f5_m7_the_cdi_specification_is_written_after_every_change_of_mig(when: str) -> None:
    found = of("playbooks/tasks/apply.yml")
    roles = [task["ansible.builtin.include_role"]["name"].rpartition(".")[2] for task in found if "ansible.builtin.include_role" in task]
    assert roles.index("mig") < roles.index("nvidia_container_toolkit")
    [toolkit] = [task for task in found if task.get("ansible.builtin.include_role", {}).get("name") == "rackready.gpu.nvidia_container_toolkit"]
    assert toolkit["when"] == f"not (ansible_facts.gpu_plan.areas.{when})"
    restarts = [task["ansible.builtin.systemd_service"] for task in of("roles/nvidia_container_toolkit/tasks/main.yml") if "systemd_service" in str(task)]
    assert {"name": "nvidia-cdi-refresh.service", "state": "restarted"} in restarts


def test_f8_nothing_needs_a_docker_sdk_on_the_host() -> None:
    assert [path for path, task in EVERY if any(key.startswith("community.") for key in task)] == []
    modules = [*ROOT.glob("plugins/modules/*.py"), *ROOT.glob("plugins/module_utils/**/*.py")]
    assert len(modules) > 40
    assert [path.name for path in modules if re.search(r"^\s*(import|from) (docker|requests)\b", path.read_text(encoding="utf-8"), re.MULTILINE)] == []


def test_g1_g9_no_task_resets_a_gpu_or_unloads_its_driver() -> None:
    """What a reset needs (holders stopped, nvidia_drm unloaded, all of it restored) is left to the operator, in a refusal with the command."""
    commands = [str(task["ansible.builtin.command"]) for _path, task in with_module("command")]
    assert [command for command in commands if "gpu-reset" in command or "rmmod" in command] == []
    removed = [command for command in commands if "--remove" in command]
    assert removed == [str({"argv": "{{ ['modprobe', '--remove'] + nvidia_driver_desired.unload }}"})], "and unload is nouveau alone, as the plan has it"


def test_m12_the_layout_is_planned_again_with_the_new_driver_and_the_host_is_tested_after_it() -> None:
    found = of("playbooks/tasks/apply.yml")
    names = [str(task["name"]) for task in found]
    assert names.index("Install the driver") < names.index("Plan again") < names.index("Partition the GPUs") < names.index("Compare with the plan")
    site = [str(task["name"]) for task in of("site.yml")]
    assert site.index("Bring the hosts to the planned state") < site.index("Prove that they compute")
