# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All facts of a host in one go: what takes long is started first, read last, and bounded."""

from __future__ import annotations

import os
import platform
import time
from pathlib import Path
from typing import Any, Callable

from ansible_collections.rackready.gpu.plugins.module_utils import apt_lists, cdi, container, holders, host, kernel_modules, nvidia_smi, packages, pci, units
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import Commands
from ansible_collections.rackready.gpu.plugins.module_utils.reading import digests, read_line, watched_files

SCHEMA = 1


def gather(
    smi_timeout: float,
    root: Path = Path("/"),
    commands: Commands | None = None,
    number_of: Callable[[Path], holders.Number | None] = holders.char_device,
    system: Callable[[], os.uname_result] = os.uname,
) -> dict[str, Any]:
    """The facts (plugins/plugin_utils/schemas/facts.schema.json). Changes nothing, and takes at most a little longer than ``smi_timeout`` seconds.

    Raises units.UnitsError when systemd does not answer, and OSError when a file system does not.
    """
    commands = commands or Commands()
    collected_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    uname = system()
    init = read_line(root / "proc/1/comm")
    distribution, family = host.distribution(root)

    smi = nvidia_smi.Query(commands, smi_timeout, kernel_modules.loaded(root, "nvidia"))
    unit_query = units.Query(root, commands, init)
    module_query = kernel_modules.Query(root, commands)
    package_query = packages.Query(root, commands, family, uname.release, uname.machine)

    files, unread_files = watched_files(root)
    nodes = holders.device_nodes(root, number_of)
    # Without nodes there is nothing to hold, and looking at every open file of a busy host takes its time.
    held = holders.holders(root, nodes, frozenset([smi.pid] if smi.pid else [])) if nodes else []
    facts: dict[str, Any] = {
        "schema": SCHEMA,
        "collected_at": collected_at,
        "hostname": uname.nodename,
        "machine_id": read_line(root / "etc/machine-id"),
        "boot_id": read_line(root / "proc/sys/kernel/random/boot_id"),
        "distribution": distribution,
        "architecture": uname.machine,
        "python": platform.python_version(),
        "init": init,
        "kernel": host.kernel(root, uname.release),
        "selinux": host.selinux(root),
        "cpus": host.cpus(root),
        "memory_mib": host.memory_mib(root),
        **pci.scan(root),
        "packages": package_query.facts(),
        "files": files,
        "unread_files": unread_files,
        "digests": digests(root),
        "cdi": {"specs": cdi.specs(root, number_of)},
        "device_nodes": nodes,
        "library_version": kernel_modules.library_version(root),
        "holders": held,
        "stamp": host.stamp(root),
    }
    unit_facts = unit_query.facts()
    engine_flags = unit_facts.pop("engine_flags")
    facts.update(unit_facts)
    engine_active = facts["units"].get("docker.service", {}).get("active") == "active"
    facts["docker"] = container.facts(root, commands, engine_active, engine_flags)
    facts["disk"] = host.disk(root, facts["docker"]["root_dir"])
    facts["modules"] = module_query.facts()
    if distribution["id"] == "ubuntu" and facts["kernel"]["secure_boot"] == "enabled":
        facts["packages"]["signed_modules"] = apt_lists.signed_modules(root, uname.release, uname.machine)
    facts["nvidia_smi"] = smi.facts()
    return facts
