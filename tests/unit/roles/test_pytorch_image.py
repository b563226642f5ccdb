# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the role pytorch_image says when the engine does not pull (E7): its task runs for real on a stand-in of docker, a host an answer."""

from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from tests.unit import playbooks

IMAGE = "registry.example/pytorch/pytorch@sha256:1d"
LOGIN = "run docker login registry.example on the host as root, wait until the limit is over, or use a mirror (rackready_mirror.images), then run again."
# By host: what docker complains about, and what the run says to do.
HOSTS = {
    "limited": ("Error response from daemon: toomanyrequests: You have reached your unauthenticated pull rate limit.", LOGIN),
    "private": ("Error response from daemon: pull access denied, repository does not exist or may require authorization", LOGIN),
    "full": ("failed to register layer: write /usr/lib/x: no space left on device", "mend what the engine says, then run again."),
    "pulls": ("", ""),
}
DOCKER = """#!/bin/sh
[ "$RACKREADY_SAYS" = "" ] || { echo "$RACKREADY_SAYS" >&2; exit 1; }
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> playbooks.Run:
    directory = tmp_path_factory.mktemp("pull")
    (directory / "bin").mkdir()
    (directory / "bin/docker").write_text(DOCKER, encoding="utf-8")
    (directory / "bin/docker").chmod(0o755)
    play: dict[str, Any] = {
        "hosts": "all",
        "gather_facts": False,
        "environment": {"RACKREADY_SAYS": "{{ says }}"},
        "vars": {
            "ansible_connection": "local",
            "ansible_python_interpreter": sys.executable,
            "ansible_async_dir": f"{directory}/async",
            "pytorch_image_desired": {"pull": IMAGE},
        },
        "tasks": [{"ansible.builtin.include_role": {"name": "rackready.gpu.pytorch_image"}}],
    }
    hosts = {name: {"says": says} for name, (says, _remedy) in HOSTS.items()}
    return playbooks.run(directory, {"hosts": hosts}, [play], PATH=f"{directory}/bin:{os.environ['PATH']}")


@pytest.mark.parametrize("name", [name for name in HOSTS if HOSTS[name][0]])
def test_the_words_of_the_engine_are_in_the_sentence_and_so_is_what_to_do(run: playbooks.Run, name: str) -> None:
    says, remedy = HOSTS[name]
    assert f"{name}: {IMAGE} was not pulled ({says}): {remedy}" in " ".join(run.output.split())


def test_an_image_that_is_pulled_is_a_change(run: playbooks.Run) -> None:
    line = next(line for line in run.output.splitlines() if line.startswith("pulls ") and "unreachable=" in line)
    assert "changed=1" in line and "failed=0" in line
