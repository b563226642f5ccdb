# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whether a container keeps its GPUs when systemd reloads, which a package's installation makes it do at any time.

systemd writes the device rules of a container's control group anew; a container whose GPUs it was not told of loses them then, with "unknown error" in
whatever runs next in it. So a container of ours is held, systemd is told to reload, and each GPU is used once more in it.
"""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.holders import container_words
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_run import Container, Run, engine_options, kill_container
from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, FAIL, NOT_APPLICABLE, PASS, Check, make_check

NAME = "daemon_reload"
PROBE = "smoke_probe.py"
PROBE_IN_CONTAINER = f"/rackready/{PROBE}"
# Starting the container, using the GPUs in it, and reloading: seconds that each may take, and what all of it takes at worst.
START_S = 15
CALL_S = 20
RELOAD_S = 15
AT_WORST_S = START_S + CALL_S + RELOAD_S + CALL_S
# What it takes on a sound host.
USUALLY_S = 20
SOURCE = "a CUDA call in a held container, before and after `systemctl daemon-reload`"
REMEDY = (
    "give containers GPUs by CDI (--device nvidia.com/gpu=...) with the current container toolkit, or set native.cgroupdriver=cgroupfs in daemon.json; "
    "after an upgrade of runc or the toolkit restart the engine"
)


def hold_command(container: Container, name: str, seconds: int, engine: str = "docker") -> list[str]:
    """The container of the test, with nothing in it but a wait that ends by itself."""
    options = engine_options(container, name)
    return [engine, "run", "--detach", *options, "--entrypoint", "python3", container.image, PROBE_IN_CONTAINER, "hold", str(seconds)]


def survives(run: Run, container: Container, facts: Mapping[str, Any], excused: Mapping[str, str], left: float) -> Check:
    """Hold a container, reload, use its GPUs again. ``left``: seconds that this may take."""
    if NAME in excused:
        return make_check(NAME, NOT_APPLICABLE, excused[NAME])
    others = [entry["id"] for entry in facts["docker"]["containers"] if entry["devices"]]
    if others:
        words = ", ".join(container_words(identifier, facts["docker"]["containers"]) for identifier in others[:4])
        reason = f"systemd was not told to reload: {words} could lose its GPUs"
        return make_check(NAME, COULD_NOT_RUN, reason, remedy="test again when no other container has GPUs", source=SOURCE)
    if left < USUALLY_S:
        return make_check(NAME, COULD_NOT_RUN, f"only {left:.0f} s were left for it", remedy="give the test more time (timeout)", source=SOURCE)
    name = f"{container.name}-held"
    limit = min(float(left), float(AT_WORST_S))
    try:
        return _tried(run, container, name, limit)
    finally:
        kill_container(run, name)


def _tried(run: Run, container: Container, name: str, limit: float) -> Check:
    share = limit / AT_WORST_S
    steps: Sequence[tuple[str, list[str], float, str]] = (
        ("the container could not be held", hold_command(container, name, int(limit) + 10), START_S, COULD_NOT_RUN),
        ("the GPUs could not be used in the held container", _call(name, container.backend), CALL_S, COULD_NOT_RUN),
        ("systemd did not reload", ["systemctl", "daemon-reload"], RELOAD_S, COULD_NOT_RUN),
        ("after `systemctl daemon-reload` the container has lost its GPUs", _call(name, container.backend), CALL_S, FAIL),
    )
    said = ""
    for what, command, seconds, status in steps:
        code, out, err = run(command, seconds * share)
        said = (out.strip() or err.strip())[-300:]
        if code != 0:
            # Out of time is no loss that was seen.
            return make_check(
                NAME, COULD_NOT_RUN if code is None else status, f"{what}: {err.strip()[-300:] or said or f'exit status {code}'}", remedy=REMEDY, source=SOURCE
            )
    return make_check(NAME, PASS, value=said, source=SOURCE)


def _call(name: str, backend: str, engine: str = "docker") -> list[str]:
    return [engine, "exec", name, "python3", PROBE_IN_CONTAINER, "call", backend]
