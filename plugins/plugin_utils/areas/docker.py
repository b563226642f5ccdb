# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area docker: an engine that understands CDI, and its daemon.json merged, never overwritten."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import (
    PIN_REMEDY,
    AreaPlan,
    Context,
    FileSpec,
    Reason,
    docker_shipped,
    file_actions,
    files_state,
    names_only,
    package_actions,
    package_set,
    packages_state,
    refusal,
    unit_actions,
    units_state,
    unverified,
)
from ansible_collections.rackready.gpu.plugins.plugin_utils.variables import plain
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least

DAEMON_JSON = "/etc/docker/daemon.json"
OURS: Mapping[str, Any] = {"features": {"cdi": True}}


def plan(context: Context) -> AreaPlan:
    """Docker from where the catalog or the inventory says, new enough for the toolkit's CDI specification."""
    docker = context.facts["docker"]
    if docker["snap"]:
        return AreaPlan(
            refusals=[
                refusal(
                    "Docker is installed as a snap", "it reads another configuration and cannot see the GPUs' devices", "run snap remove docker, then run again"
                )
            ]
        )
    source, reason = _source(context)
    if not context.installable:
        return _names_only(context, reason)
    packages, specs, questions, refusals = _packages(context, source)
    refusals += _other_engine(context, source)
    existing, problem = _existing(context)
    if problem is not None:
        refusals.append(problem)
    if refusals:
        return AreaPlan(refusals=refusals)

    running = bool(docker["running"])
    # What is there wins over our default, what the inventory asks for wins over both.
    merged = merge(merge(OURS, existing), context.request.docker_daemon_options)
    differs = merged != existing
    text = json.dumps(merged, indent=2) + "\n" if differs else context.facts["files"].get(DAEMON_JSON, "")
    causes = _restart_causes(context, packages, existing, merged) if running else []
    unread = docker["configuration_read"] is False
    restart = bool(causes) or (unread and not docker["containers"] and docker["api_error"] is None)
    units = list(context.catalog.docker["units"])
    package_target, package_actual = packages_state(context, packages)
    file_target, file_actual = files_state(context, specs)
    engine = _engine(docker)
    new_enough = engine is not None and at_least(engine, context.docker_minimum)
    wanted_engine = f"{context.docker_minimum} or newer"
    area = AreaPlan(
        desired={
            "source": source,
            "files": [spec.as_dict() for spec in specs],
            **package_set(context, packages, []),
            "daemon_json": merged,
            "daemon_json_text": text,
            "restart": restart,
            "units": units,
            "minimum_version": context.docker_minimum,
        },
        target={
            "packages": package_target,
            "files": file_target,
            "engine": wanted_engine,
            "answers": True,
            "daemon_json": merged,
            "cdi": True,
            "units": dict.fromkeys(units, "enabled, active"),
        },
        actual={
            "packages": package_actual,
            "files": file_actual,
            "engine": wanted_engine if new_enough else engine,
            "answers": running and docker["api_error"] is None,
            "daemon_json": existing,
            "cdi": docker["cdi_enabled"] is not False,
            "units": units_state(context, units),
        },
        reasons=[
            reason,
            Reason(f"toolkit {context.toolkit_version} writes a CDI specification that Docker reads from {context.docker_minimum} on", "nct-docs"),
        ],
        packages=packages,
        files=specs,
        repositories=questions,
        archive_packages=[name for name in packages if context.installed(name) is None] if source == "distribution" else [],
    )
    if questions:
        entry = context.catalog.docker["docker"]
        origin = context.catalog.origin(entry["repository"], context.distribution, context.architecture) or {}
        area.warnings += unverified(f"That Docker serves {context.where}", {"source": entry["source"], **origin})
    area.actions = [
        *file_actions(context, specs),
        *([f"merge {_changed(existing, merged)} into {DAEMON_JSON}"] if differs else []),
        *package_actions(context, packages, []),
        *([f"upgrade Docker {docker['version']} to {wanted_engine}"] if docker["installed"] and not _serves(context) else []),
        *unit_actions(context, units),
        *(["restart docker.service"] if restart else []),
    ]
    _checks(context, area, merged, existing)
    area.warnings += _labelled(context, merged)
    _restart(context, area, causes, existing)
    if unread and not causes:
        area.warnings.append(
            f"Docker started before {DAEMON_JSON} was last written: what was changed there may not be in force until docker.service is restarted."
        )
    return area


def _names_only(context: Context, reason: Reason) -> AreaPlan:
    entry = context.catalog.docker["docker"]
    origin = context.catalog.origin(entry["repository"], context.distribution, context.architecture)
    if origin is None:
        return AreaPlan()  # what the host is refused for is said once, for all packages
    warnings = unverified(f"That Docker serves {context.where}", {"source": entry["source"], **origin})
    remove = list(entry["conflicts"][context.manager])
    return names_only(entry["packages"][context.manager], {"source": "docker", "remove": remove, "minimum_version": context.docker_minimum}, [reason], warnings)


def _engine(docker: Mapping[str, Any]) -> str | None:
    """The version that counts: of the engine that runs, which an upgrade may have left behind; else of the one that would start."""
    found: str | None = (docker["running_version"] if docker["running"] else None) or docker["version"]
    return found


def _serves(context: Context) -> bool:
    """Whether the installed engine is new enough."""
    version = context.facts["docker"]["version"]
    return version is not None and at_least(version, context.docker_minimum)


def _restart_causes(context: Context, packages: Mapping[str, str | None], existing: Mapping[str, Any], merged: Mapping[str, Any]) -> list[str]:
    """Why a running engine must be restarted, in words. Not by times of files: a clock can jump, and a reload reads the file too."""
    docker = context.facts["docker"]
    causes = []
    if merged != existing:
        causes.append(f"{_changed(existing, merged)} in {DAEMON_JSON}")
    elif docker["cdi_enabled"] is False:
        causes.append(f"features.cdi in {DAEMON_JSON}, which it has not read")
    upgraded = [name for name, version in packages.items() if version is not None and context.installed(name) not in (None, version)]
    if upgraded:
        causes.append(f"the upgrade of {', '.join(upgraded)}")
    elif not _serves(context):
        causes.append("the upgrade of the engine")
    elif not at_least(str(_engine(docker)), context.docker_minimum):
        causes.append(f"version {docker['version']}, which was installed while {docker['running_version']} ran on")
    return causes


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """``over`` on top of ``base``: mappings are merged, everything else is replaced; ``base``'s order of keys is kept."""
    merged = dict(base)
    for key, value in over.items():
        mine = merged.get(key)
        merged[key] = merge(mine, value) if isinstance(mine, Mapping) and isinstance(value, Mapping) else value
    return merged


def _source(context: Context) -> tuple[str, Reason]:
    main = context.catalog.docker["docker"]["main"]
    if context.request.docker_source is not None:
        return context.request.docker_source, Reason(f"docker_source is {context.request.docker_source}", "inventory")
    if context.installed(main) is not None:
        return "docker", Reason(f"{main} is installed", "host")
    shipped = context.catalog.docker["distribution"].get(context.distribution)
    if shipped is None:
        return "docker", Reason(f"the catalog knows no engine of {context.distribution}", "docker-docs")
    if docker_shipped(context.catalog, context.distribution, context.toolkit_version) is not None:
        return "distribution", Reason(f"{context.distribution} ships Docker {shipped['engine']}, which is new enough", shipped["source"][0])
    return "docker", Reason(f"{context.distribution} ships Docker {shipped['engine']}, older than {context.docker_minimum}", shipped["source"][0])


def _packages(context: Context, source: str) -> tuple[dict[str, str | None], list[FileSpec], list[dict[str, Any]], list[str]]:
    """Packages to versions, the files of the repository, the questions for it, and refusals."""
    if source == "distribution":
        shipped = docker_shipped(context.catalog, context.distribution, context.toolkit_version)
        if shipped is None:
            old = context.catalog.docker["distribution"].get(context.distribution)
            found = f"ships Docker {old['engine']}" if old else "is not known to ship Docker"
            return {}, [], [], [refusal(f"{context.distribution} {found}", f"the toolkit needs {context.docker_minimum}", "set docker_source: docker")]
        return dict.fromkeys(shipped["packages"]), [], [], []
    entry = context.catalog.docker["docker"]
    names = entry["packages"][context.manager]
    installed = {name: context.installed(name) for name in names}
    engine = context.facts["docker"]["version"]
    if all(installed.values()) and engine is not None and at_least(engine, context.docker_minimum):
        return dict.fromkeys(names), [], [], []  # it serves: no reason to touch the engine under its containers
    repository, locked = context.repository(entry["repository"]), context.locked_repository(entry["repository"])
    if repository is None or locked is None:
        return {}, [], [], [context.unlocked(entry["repository"], "Docker cannot be installed at a known version")]
    packages: dict[str, str | None] = {name: context.order.newest(locked["packages"][name]) if locked["packages"].get(name) else None for name in names}
    missing = [name for name, version in packages.items() if version is None]
    if missing:
        return {}, [], [], [refusal(f"The lock has no {' and no '.join(missing)}", "Docker cannot be installed at a known version", PIN_REMEDY)]
    return packages, repository.files(locked["key"]), [repository.question(packages)], []


def _other_engine(context: Context, source: str) -> list[str]:
    """Switching between Docker's and the distribution's packages removes the engine under its containers: never done silently."""
    entry = context.catalog.docker["docker"]
    foreign = [entry["main"]] if source == "distribution" else list(entry["conflicts"][context.manager])
    found = sorted(name for name in foreign if context.installed(name) is not None)
    if not found:
        return []
    planned = "Docker's own packages" if source == "docker" else f"the packages of {context.distribution}"
    # The other source is an answer only where it could serve.
    serves = source == "distribution" or docker_shipped(context.catalog, context.distribution, context.toolkit_version) is not None
    other = f" or set docker_source: {'docker' if source == 'distribution' else 'distribution'}" if serves else ""
    return [
        refusal(
            f"{', '.join(found)} {'is' if len(found) == 1 else 'are'} installed and {planned} are planned",
            "the two sets of packages exclude each other",
            f"remove {' '.join(found)}{other}, then run again",
        )
    ]


def _existing(context: Context) -> tuple[dict[str, Any], str | None]:
    """daemon.json as it is, or the refusal that it cannot be read."""
    why = context.facts["unread_files"].get(DAEMON_JSON)
    if why is not None:
        return {}, refusal(f"{DAEMON_JSON} is there and cannot be read ({why})", "nothing can be merged into it", "repair it or move it away, then run again")
    text = context.facts["files"].get(DAEMON_JSON, "")
    if not text.strip():
        return {}, None
    try:
        loaded = plain(json.loads(text))
    except (ValueError, RecursionError) as error:
        return {}, refusal(
            f"{DAEMON_JSON} is not JSON that can be used ({error})",
            "nothing can be merged into it and Docker will not start with it",
            "repair or remove the file",
        )
    if not isinstance(loaded, dict):
        return {}, refusal(f"{DAEMON_JSON} holds no JSON object", "nothing can be merged into it", "repair or remove the file")
    return loaded, None


def _changed(existing: Mapping[str, Any], merged: Mapping[str, Any]) -> str:
    return ", ".join(sorted(key for key in merged if merged[key] != existing.get(key)))


def _flags(key: str) -> tuple[str, ...]:
    """The command line flags that set a key of daemon.json: exec-opts is --exec-opt, insecure-registries is --insecure-registry."""
    return (f"--{key}", f"--{key[:-1]}" if key.endswith("s") else f"--{key}", f"--{key[:-3]}y" if key.endswith("ies") else f"--{key}")


def _checks(context: Context, area: AreaPlan, merged: Mapping[str, Any], existing: Mapping[str, Any]) -> None:
    features = merged["features"]
    if not isinstance(features, Mapping) or features.get("cdi") is not True:
        where = "docker_daemon_options" if "features" in context.request.docker_daemon_options else DAEMON_JSON
        area.refusals.append(
            refusal(
                f"{where} turns CDI off (features is {json.dumps(features)})", "containers would get no GPU", "remove that line or set features.cdi to true"
            )
        )
    installed = context.facts["docker"]["installed"]
    given = {str(flag).partition("=")[0] for flag in (context.facts["docker"]["unit_flags"] if installed else _coming_flags(context))}
    for key in merged:
        both = [flag for flag in _flags(key) if flag in given]
        if both and (not installed or merged[key] != existing.get(key)):
            area.refusals.append(
                refusal(
                    f"docker.service sets {both[0]} on its command line and {key} is to go into {DAEMON_JSON}",
                    "Docker does not start with both",
                    f"remove {both[0]} from the unit or its drop-in"
                    if installed
                    else f"leave {key} out of {'docker_daemon_options' if key in context.request.docker_daemon_options else DAEMON_JSON}, or put a drop-in for "
                    f"docker.service there that starts dockerd without {both[0]}",
                )
            )


def _labelled(context: Context, merged: Mapping[str, Any]) -> list[str]:
    """Docker gives containers an SELinux label only when it is told to; the policy then keeps their processes from device nodes, also from those of a CDI
    specification, unless its boolean allows them."""
    selinux = context.facts["selinux"]
    if merged.get("selinux-enabled") is not True or selinux["mode"] != "enforcing" or selinux["container_use_devices"]:
        return []
    return [
        f"Docker labels containers (selinux-enabled in {DAEMON_JSON}) and SELinux is enforcing: their processes may not open the GPUs' device nodes. Run "
        "setsebool -P container_use_devices 1, or leave selinux-enabled out."
    ]


def _coming_flags(context: Context) -> list[str]:
    """What the unit of the packages will set; nothing is known where a drop-in that is there already gives another command line."""
    drop_ins = [text for path, text in context.facts["files"].items() if path.startswith("/etc/systemd/system/docker.service.d/")]
    return [] if any("ExecStart=" in text for text in drop_ins) else list(context.catalog.docker["unit_flags"]["flags"])


def _restart(context: Context, area: AreaPlan, causes: list[str], existing: Mapping[str, Any]) -> None:
    """Refuse a restart that would stop containers, or that nobody knows to stop none."""
    docker = context.facts["docker"]
    containers = [container["name"] for container in docker["containers"]]
    needed = f"Docker must be restarted for {' and '.join(causes)}"
    if causes and docker["api_error"] is not None:
        area.refusals.append(
            refusal(
                f"{needed}, and it does not say which containers run ({docker['api_error']})",
                "some could stop",
                "look at journalctl -u docker.service and make it answer, or stop it yourself, then run again",
            )
        )
    elif causes and containers and not existing.get("live-restore"):
        names = ", ".join(containers[:5]) + (f" and {len(containers) - 5} more" if len(containers) > 5 else "")
        area.drain = True
        area.refusals.append(refusal(needed, f"the running containers would stop ({names})", "stop them first, then run again"))
