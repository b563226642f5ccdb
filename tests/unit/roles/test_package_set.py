# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role package_set says when dnf cannot install what the packages are built with: its tasks run for real, with what dnf answered as data."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.unit import playbooks

HEADERS = ["kernel-devel-uname-r = 5.14.0-570.el9.x86_64", "kernel-devel-matched = 5.14.0-570.el9"]
GONE = "kernel-devel-5.14.0-570.el9 is not in any enabled repository any more; reboot the host"
# What ansible.builtin.dnf returns with dnf 4.
ANSWERS: dict[str, dict[str, Any]] = {
    "gone": {"msg": "Failed to install some of the specified packages", "failures": [f"No package {HEADERS[0]} available."], "rc": 1},
    "unsolved": {
        "msg": "Depsolve Error occurred:\n Problem: package kernel-devel-matched-5.14.0-570.el9.x86_64 from appstream requires kernel-core = 5.14.0-570.el9, "
        "but none of the providers can be installed\n  - conflicting requests\n"
        + "  - package kernel-core-5.14.0-611.el9.x86_64 from baseos is filtered out by exclude filtering\n"
        * 40,
        "failures": [],
        "rc": 1,
    },
    "offline": {"msg": "Failed to download metadata for repo 'baseos': Cannot download repomd.xml: All mirrors were tried", "rc": 1},
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> playbooks.Run:
    play = {
        "hosts": "all",
        "gather_facts": False,
        "vars": {"ansible_connection": "local", "ansible_python_interpreter": sys.executable},
        "tasks": [
            {
                "ansible.builtin.include_role": {"name": "rackready.gpu.package_set", "tasks_from": "dnf_refused"},
                "vars": {
                    "package_set_for": "nvidia_driver",
                    "package_set_manager": "dnf",
                    "package_set_before": {"packages": HEADERS, "otherwise": GONE},
                    "__package_set_built_with": "{{ answer }}",
                },
            }
        ],
    }
    hosts = {name: {"answer": answer} for name, answer in ANSWERS.items()}
    return playbooks.run(tmp_path_factory.mktemp("before"), {"hosts": hosts}, [play])


@pytest.mark.parametrize("name", ANSWERS)
def test_what_dnf_cannot_install_ends_in_a_sentence(run: playbooks.Run, name: str) -> None:
    said = " ".join(run.output.split())
    begin = f"{name}: dnf cannot install {' and '.join(HEADERS)} ({' '.join(ANSWERS[name]['msg'].split())[:60]}"
    sentence = said[said.index(begin) :].partition(". ")[0] if begin in said else ""
    assert sentence.startswith(begin), said
    assert (GONE in said[said.index(begin) :][:900]) is (name != "offline")
    assert ("mend what dnf says and run again." in said[said.index(begin) :][:900]) is (name == "offline")


def test_what_dnf_says_of_every_other_kernel_is_left_out(run: playbooks.Run) -> None:
    assert " ".join(run.output.split()).count("filtered out by exclude filtering") <= 3
