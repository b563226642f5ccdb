# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The planner: facts, request, lock and catalog in, plan out. A pure function; ``areas/`` has one for each area."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils import apt_sources, el_kernels, room, versionlock, yum_sources
from ansible_collections.rackready.gpu.plugins.plugin_utils.areas import (
    docker,
    host_tuning,
    mig,
    nvidia_container_toolkit,
    nvidia_driver,
    nvidia_fabric,
    pytorch_image,
    smoke_test,
    verify_tool,
)
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Catalog
from ansible_collections.rackready.gpu.plugins.plugin_utils.managers import MANAGERS
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import PIN_REMEDY, AreaPlan, Context, Facts, Gpu, differing, provisioned, refusal
from ansible_collections.rackready.gpu.plugins.plugin_utils.request import Request

SCHEMA = 1

# What package_set has ansible.builtin.apt write for the time of an installation, so that no service starts before its configuration is there.
POLICY_RC_D = "/usr/sbin/policy-rc.d"
LEFT_BY_APT_MODULE = "#!/bin/sh\nexit 101\n"

# Kernel drivers of GPUs that are ours to plan: nouveau is unloaded.
OUR_KERNEL_DRIVERS = ("nvidia", "nouveau")
# What gives devices to virtual machines, beside vfio-pci and its variants, such as nvgrace-gpu-vfio-pci for the GPUs of Grace.
PASSTHROUGH = ("pci-stub", "pciback", "xen-pciback")

# Their roles reload systemd, or install packages and enable units, which does so.
RELOADING = ("nvidia_driver", "nvidia_fabric", "docker", "nvidia_container_toolkit")

AREAS: Mapping[str, Callable[[Context], AreaPlan]] = {
    "host_tuning": host_tuning.plan,
    "nvidia_driver": nvidia_driver.plan,
    "nvidia_fabric": nvidia_fabric.plan,
    "docker": docker.plan,
    "nvidia_container_toolkit": nvidia_container_toolkit.plan,
    "mig": mig.plan,
    "pytorch_image": pytorch_image.plan,
    "verify_tool": verify_tool.plan,
    "smoke_test": smoke_test.plan,
}


def make_plan(host: str, facts: Facts, request: Request, catalog: Catalog) -> dict[str, Any]:
    """The plan of one host, JSON-ready. Impossible requests are ``refusals``; then ``areas`` holds what could be planned all the same."""
    context = Context(facts, request, request.lock, catalog)
    refusals, warnings = _host(context)
    planned = {} if refusals else {name: plan(context) for name, plan in AREAS.items()}
    if not refusals:
        refusals = _machine(context, planned) if context.installable else [_not_installable(context)]
    for area in planned.values():
        refusals += area.refusals
        warnings += area.warnings
    if planned and context.installable and context.manager == "dnf":
        warnings += _twice(context, planned)
    sources = _sources(context, planned)
    unasked = [name for area in planned.values() if not area.converged for name in area.archive_packages]
    if unasked and not any(entry["name"] == context.distribution for entry in sources["repositories"]):
        warnings.append(_unasked(context, unasked))
    done = bool(planned) and all(area.converged for name, area in planned.items() if name != "smoke_test")
    image = planned.get("pytorch_image")
    return {
        "schema": SCHEMA,
        "release": request.release,
        "host": host,
        "converged": done and not refusals,
        "reboot": any(area.reboot for area in planned.values()),
        "drain": any(area.drain for area in planned.values()),
        "warnings": _once(warnings),
        "refusals": _once(refusals),
        "download_mib": image.desired["size_mib"] if image and image.desired and not image.converged else None,
        "areas": {name: area.as_dict() for name, area in planned.items()},
        "sources": sources,
    }


def _once(sentences: list[str]) -> list[str]:
    return list(dict.fromkeys(sentences))


def _host(context: Context) -> tuple[list[str], list[str]]:
    """Refusals that leave nothing to plan (wrong distribution, wrong GPUs), and warnings about the machine."""
    refusals: list[str] = []
    facts, catalog = context.facts, context.catalog
    for entry in catalog.unsupported.values():
        if entry["kernel_word"] in facts["kernel"]["release"].split("-"):
            what = f"This is a {entry['name']} (kernel {facts['kernel']['release']})"
            return [refusal(what, entry["why"], "take it out of the inventory")], []
    known = catalog.distributions.get(context.distribution)
    if known is None:
        names = ", ".join(entry["name"] for entry in catalog.distributions.values() if provisioned(entry))
        refusals.append(
            refusal(
                f"{facts['distribution']['name']} ({context.distribution}) is not a supported distribution",
                "no package of it is known",
                f"install one of {names}",
            )
        )
    elif context.architecture not in known["architectures"]:
        # What a machine is cannot be changed, what is installed on it can.
        others = [entry["name"] for entry in catalog.distributions.values() if provisioned(entry) and context.architecture in entry["architectures"]]
        remedy = f"install one of {', '.join(others)}" if others else f"use a machine with {' or '.join(known['architectures'])}"
        refusals.append(refusal(f"{known['name']} on {context.architecture} is not supported", "no repository for it is known", remedy))
    refusals += _gpus(context)
    strange = sorted({gpu.pci_id for gpu in context.gpus if gpu.slug is None})
    warnings = [
        f"The catalog does not know the GPU {pci_id}: it is planned as a recent one, its capability is read from the driver and no floor is known."
        for pci_id in strange
    ]
    if facts["files"].get(POLICY_RC_D) == LEFT_BY_APT_MODULE:
        warnings.append(
            f"{POLICY_RC_D} keeps packages from starting their services. An installation that was cut off leaves it like this: remove it unless somebody "
            "wants it there."
        )
    if context.gpus and context.request.expected is None:
        warnings.append(f"gpu_expected is not set, so nobody notices a missing card: write what was bought ({len(context.gpus)} GPUs are on the bus).")
    return refusals, warnings


def _unasked(context: Context, names: list[str]) -> str:
    """The warning that packages of the distribution are not looked for beforehand. dnf changes nothing when it does not find one, apt neither."""
    what = f"whether {', '.join(dict.fromkeys(names))} can be installed is not known beforehand"
    if context.manager == "dnf":
        return f"/etc/yum.repos.d has repositories that cannot be asked for their packages (lists of mirrors, certificates): {what}."
    return f"/etc/apt has no HTTP source of {context.distribution}: {what}."


def _not_installable(context: Context) -> str:
    """The catalog knows the packages of more distributions than the roles can install on."""
    known = context.known_distribution
    in_the_plan = "what would be installed is in the plan"
    if "refused" in known:
        return refusal(f"{known['name']} {known['refused']['what']}", known["refused"]["why"], f"{known['refused']['remedy']}; {in_the_plan}")
    managers = " or ".join(MANAGERS)
    return refusal(
        f"{known['name']} is installed with {context.manager}, whose packages the catalog knows",
        f"this version of rackready cannot provision it yet, as it installs with {managers} only",
        f"use a distribution with {managers}; {in_the_plan}",
    )


def _gpus(context: Context) -> list[str]:
    gpus, expected = context.gpus, context.request.expected
    if not gpus:
        why = "there is nothing to provision"
        return [
            refusal(
                "There is no NVIDIA GPU on the PCI bus",
                why,
                "check that the cards are seated and powered, then look at the BIOS (above-4G decoding) and rescan the bus",
            )
        ]
    refusals = _given_away(gpus)
    if expected is None:
        return refusals
    name = context.catalog.gpus[expected.model]["name"]
    right = [gpu.pci_bus_id for gpu in gpus if gpu.slug == expected.model]
    wrong = [f"{gpu.name} at {gpu.pci_bus_id}" for gpu in gpus if gpu.slug != expected.model]
    present = f"present: {', '.join(right)}" if right else "none is present"
    if wrong:
        refusals.append(
            refusal(
                f"gpu_expected says {expected.count} x {name} and the host has {'; '.join(wrong)}",
                "this is another machine than the inventory says",
                "correct gpu_expected, or the inventory",
            )
        )
    elif len(right) < expected.count:
        gone = expected.count - len(right)
        refusals.append(
            refusal(
                f"{len(right)} of {expected.count} {name} are on the PCI bus ({gone} missing; {present})",
                "the host is incomplete",
                "power it off fully and reseat the missing card; if it stays away, send it in. If this is how the host shall be, set gpu_expected.count",
            )
        )
    elif len(right) > expected.count:
        more = len(right) - expected.count
        refusals.append(
            refusal(
                f"{len(right)} {name} are on the PCI bus, {more} more than gpu_expected says ({present})",
                "this is another machine than the inventory says",
                "correct gpu_expected.count",
            )
        )
    return refusals


def _given_away(gpus: Sequence[Gpu]) -> list[str]:
    """GPUs that another kernel driver has. Nothing takes them from it: with most such drivers a virtual machine is what uses them."""
    foreign = [gpu for gpu in gpus if gpu.kernel_driver not in (None, *OUR_KERNEL_DRIVERS)]
    if not foreign:
        return []
    names = sorted({str(gpu.kernel_driver) for gpu in foreign})
    to_guests = all("vfio" in name or name in PASSTHROUGH for name in names)
    if len(foreign) < len(gpus):
        what = f"GPUs are bound to {' and '.join(names)} ({', '.join(gpu.pci_bus_id for gpu in foreign)})"
        remedy = "unbind them, or give all GPUs of the host away" if to_guests else "unbind them"
        return [refusal(what, "the driver cannot use them", remedy)]
    what = f"All {len(gpus)} GPUs are bound to {' and '.join(names)}"
    if to_guests:
        return [refusal(what, "they belong to virtual machines and not to this host", "provision the virtual machines instead, or unbind the GPUs")]
    return [refusal(what, "the driver cannot use them", "unbind the GPUs")]


def _machine(context: Context, planned: Mapping[str, AreaPlan]) -> list[str]:
    """Refusals about the package manager and what others put on the host; a converged area is not asked, it touches nothing."""
    touched = [area for area in planned.values() if not area.converged]
    if not touched:
        return []
    packages = context.facts["packages"]
    reloading = [name for name, area in planned.items() if not area.converged and (area.reloads or name in RELOADING)]
    written = {spec.path for area in planned.values() for spec in area.files}
    refusals = [sentence for area in touched for sentence in (*_unread(context, area), *_packages(context, area))]
    losing = _would_lose_gpus(context) if reloading else []
    if losing:
        planned[reloading[0]].drain = True
        refusals.append(
            refusal(
                f"{', '.join(losing[:5])}{f' and {len(losing) - 5} more' if len(losing) > 5 else ''} got GPUs by --gpus or the nvidia runtime and not by CDI",
                f"systemd, which a change of {', '.join(reloading)} reloads, would take the GPUs away while they run",
                "stop those containers, or start them anew with --device nvidia.com/gpu=all, then run again",
            )
        )
    if context.manager == "dnf":
        refusals += _excluded(context, touched)
    # apt reads all sources at once: with one that it refuses, no area can install anything.
    elif any(area.packages for area in touched):
        refusals += [sentence for area in planned.values() for sentence in _foreign_sources(context, area, written)]
    installing = [name for name, area in planned.items() if not area.converged and differing(context, area.packages)]
    writing = {path for area in touched for path in _written_by(context, area)}
    refusals += room.refusals(context.facts["disk"], installing, writing, context.catalog.room, context.manager)
    if packages["broken"]:
        refusals.append(refusal(*context.packaging.broken))
    if packages["busy"]:
        refusals.append(
            refusal(f"The package manager is busy: {packages['busy']}", "packages cannot be installed now", "wait until it is done, then run again")
        )
    return refusals


def _written_by(context: Context, area: AreaPlan) -> Iterator[str]:
    """Directories that an area writes to beside what its packages bring."""
    actual = area.actual if isinstance(area.actual, Mapping) else {}
    paths = [spec.path for spec in area.files if context.file_state(spec) != "as planned"]
    states = actual.get("files") or {}
    paths += [path for path, state in area.target.get("files", {}).items() if states.get(path) != state]
    if actual.get("daemon_json") != area.target.get("daemon_json"):
        paths.append(docker.DAEMON_JSON)
    if actual.get("held") != area.target.get("held") and area.desired.get("lock"):
        paths.append(versionlock.FILE)
    yield from {path.rpartition("/")[0] for path in paths}
    if actual.get("units") != area.target.get("units"):
        yield "/etc/systemd/system"
    if area.desired.get("initramfs_commands"):
        yield "/boot"
    if area.desired.get("build_command"):
        yield from ("/usr/lib/modules", "/var/lib/dkms")
    if "pull" in area.desired:
        yield str(context.facts["docker"]["root_dir"] or "/var/lib/docker")


def _would_lose_gpus(context: Context) -> list[str]:
    """Running containers whose GPUs systemd does not know of: it writes the device rules of their cgroups anew when it is reloaded (rules.yml)."""
    docker = context.facts["docker"]
    if docker["cgroup_driver"] != "systemd":
        return []
    return [
        container["name"]
        for container in docker["containers"]
        if any(device.startswith(("--gpus=", "NVIDIA_VISIBLE_DEVICES=")) for device in container["devices"])
        and not any(device.startswith("/dev/nvidia") for device in container["devices"])
    ]


def _unread(context: Context, area: AreaPlan) -> list[str]:
    """A file that could not be read is not overwritten: nobody knows what would be lost."""
    unread = context.facts["unread_files"]
    return [
        refusal(f"{spec.path} is there and cannot be read ({unread[spec.path]})", "it is not overwritten", "repair it or move it away, then run again")
        for spec in area.files
        if spec.path in unread
    ]


def _foreign_sources(context: Context, area: AreaPlan, written: set[str]) -> list[str]:
    """Somebody else's source for a repository that we add or have added: with both files every apt command fails."""
    return [
        refusal(
            f"{path} has the package repository {question['url']} already",
            "apt would refuse to work with two sources of it that have different keys",
            f"remove it from {path} (ours takes its place), then run again",
        )
        for question in area.repositories
        for path in apt_sources.elsewhere(context.facts["files"], question["url"], question["suites"], question["architecture"], written)
    ]


def _twice(context: Context, planned: Mapping[str, AreaPlan]) -> list[str]:
    """Somebody else's file for a repository of ours. dnf works with both, but what that file does not check is then not checked."""
    written = {spec.path for area in planned.values() for spec in area.files}
    places = (context.facts["files"], context.release_of_distribution, context.architecture)
    return [
        f"{path} has the package repository {question['url']} too: dnf takes packages by either file, so remove it there (ours takes its place)."
        for area in planned.values()
        for question in area.repositories
        for path in yum_sources.elsewhere(places[0], question["url"], places[1], places[2], written)
    ]


def _packages(context: Context, area: AreaPlan) -> list[str]:
    """Packages that the package manager would not move: newer ones, and ones that somebody else holds."""
    order, manager = context.order, context.packaging
    moving = {name: (now, str(version)) for name, version in differing(context, area.packages).items() if (now := context.installed(name)) is not None}
    refusals = []
    newer = {name: (now, version) for name, (now, version) in moving.items() if order.compare(now, version) > 0}
    if newer:
        now, version = next(iter(newer.values()))
        variable = {context.driver_version: "nvidia_driver_version", context.toolkit_version: "nvidia_container_toolkit_version"}.get(order.upstream(version))
        newer_one = f'set {variable}: "{order.upstream(now)}" and {PIN_REMEDY}' if variable else PIN_REMEDY
        found = ", ".join(f"{name} {there}" for name, (there, _planned) in newer.items())
        refusals.append(
            refusal(
                f"{found} {'is' if len(newer) == 1 else 'are'} installed, newer than the planned {version}",
                manager.at_a_downgrade,
                f"{newer_one}, or remove {' '.join(newer)}",
            )
        )
    foreign = context.held([name for name in moving if name not in newer and name not in area.desired.get("hold", [])])
    if foreign:
        moves = ", ".join(f"{name} at {moving[name][0]} (planned: {moving[name][1]})" for name in foreign)
        refusals.append(
            refusal(
                f"Somebody holds {moves} with {manager.hold}",
                f"{'it is' if len(foreign) == 1 else 'they are'} not changed",
                f"run {manager.unhold} {' '.join(foreign)} if that is over, then run again",
            )
        )
    return refusals


def _excluded(context: Context, touched: list[AreaPlan]) -> list[str]:
    """Packages that dnf is told not to see: it would find no solution, or none with the planned version."""
    wanted = {name: version or "any" for area in touched for name, version in differing(context, area.packages).items()}
    # What provides the headers of a kernel is a package of another name.
    named = {"kernel-devel-uname-r": el_kernels.devel(str(context.facts["kernel"]["release"]))}
    before = (package for area in touched for package in area.desired.get("before", {"packages": []})["packages"])
    archive = [*before, *(package for area in touched for package in area.archive_packages)]
    wanted.update({named.get(name := _name_and_version(package)[0], name): "any" for package in archive})
    found = versionlock.blocking(context.facts["files"], context.facts["packages"]["excludes"], wanted)
    if not found:
        return []
    words = ", ".join(sorted({word for words in found.values() for word in words}))
    return [
        refusal(
            f"dnf is told not to see {', '.join(found)} ({words})",
            "it cannot install what is planned",
            f"take that out of excludepkgs in /etc/dnf/dnf.conf or of {versionlock.FILE}, then run again",
        )
    ]


def _sources(context: Context, planned: Mapping[str, AreaPlan]) -> dict[str, Any]:
    """What must be reachable from the host before anything changes: options for stack_sources. Nothing to fetch, nothing to ask."""
    repositories: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for area in planned.values():
        if area.converged:
            continue
        images += area.images
        for question in area.repositories:
            # The driver's area, whose packages may have streams, asks first.
            same = next((entry for entry in repositories if entry["name"] == question["name"]), None)
            if same is None:
                repositories.append({**question, "packages": dict(question["packages"])})
            else:
                same["packages"].update(question["packages"])
    return {"repositories": [*repositories, *_archive(context, planned)], "images": images}


def _archive(context: Context, planned: Mapping[str, AreaPlan]) -> list[dict[str, Any]]:
    """The distribution's own repositories as the host has them, for packages that must come from there: one source with several addresses."""
    names = [name for area in planned.values() if not area.converged for name in area.archive_packages]
    if not names:
        return []
    known = context.known_distribution
    kernel = context.facts["kernel"]["release"]
    headers = any(name == known["headers"].format(kernel=kernel) or name == el_kernels.matched(kernel) for name in names)
    common = {"architecture": known["architectures"][context.architecture], "packages": dict(map(_name_and_version, names))}
    if context.manager == "dnf":
        hint = el_kernels.moved_on(context.facts["kernel"], context.order) if headers else "enable the repository of the distribution that has it"
        own = yum_sources.of_host(context.facts["files"], context.release_of_distribution, context.architecture) or []
        return [{"name": context.distribution, "url": source.urls[0], "type": "rpm", "streams": [], **common, "hint": hint} for source in own]
    hint = f"the archive has moved on from the running kernel {kernel} or a suite is missing in /etc/apt; install and boot the newest kernel first"
    hint = hint if headers else "run apt-get update on the host, add the missing suite or component to /etc/apt, and plan again"
    return [
        {
            "name": context.distribution,
            "url": source.uri,
            "suites": list(source.suites),
            "components": list(source.components),
            **common,
            "hint": hint,
        }
        for source in apt_sources.of_distribution(context.facts["files"], known["codename"])
    ]


def _name_and_version(package: str) -> tuple[str, str | None]:
    """A package as dnf takes it, apart: ``name = version``, or the name alone."""
    name, _equals, version = package.partition(" = ")
    return name, version or None
