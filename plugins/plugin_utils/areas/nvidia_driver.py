# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Area nvidia_driver: repository, pin, packages, kernel module and persistence daemon."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from ansible_collections.rackready.gpu.plugins.plugin_utils import el_kernels, signed_modules, versionlock
from ansible_collections.rackready.gpu.plugins.plugin_utils.catalog_loader import Table
from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import (
    PIN_REMEDY,
    AreaPlan,
    Context,
    FileSpec,
    Gpu,
    Reason,
    VersionRule,
    differing,
    file_actions,
    files_state,
    flavours_of,
    in_branch,
    names_only,
    package_actions,
    package_set,
    packages_state,
    refusal,
    unit_actions,
    units_state,
    unverified,
    who,
)
from ansible_collections.rackready.gpu.plugins.plugin_utils.releases import ended, instead, not_listed
from ansible_collections.rackready.gpu.plugins.plugin_utils.versions import at_least, branch

NOUVEAU = FileSpec(
    "/etc/modprobe.d/rackready-nouveau.conf",
    "# Managed by rackready (role nvidia_driver). nouveau and the NVIDIA driver cannot share a GPU.\nblacklist nouveau\noptions nouveau modeset=0\n",
)


def plan(context: Context) -> AreaPlan:
    """The driver that the release or the inventory names, exactly, and loaded."""
    cell, version = context.driver_cell, context.driver_version
    refusals, warnings = fits(context, version), _branch_warnings(context)
    if cell is None:
        return AreaPlan(refusals=[_no_cell(context), *refusals], warnings=warnings)
    if not context.driver_packages:
        return AreaPlan(refusals=[_no_flavour(context), *refusals], warnings=warnings)
    warnings += unverified(f"The list of driver packages for {context.manager}", cell)
    origin = context.catalog.origin(cell["repository"], context.distribution, context.architecture)
    warnings += unverified(f"The key of {cell['repository']} for {context.where}", {**context.catalog.repositories[cell["repository"]], **(origin or {})})
    if not context.installable:
        return replace(_names_only(context, cell, warnings), refusals=refusals)
    repository, locked = context.repository(cell["repository"]), context.locked_repository(cell["repository"])
    if repository is None or locked is None or version is None:
        return AreaPlan(refusals=[_unlocked(context, cell, locked), *refusals], warnings=warnings)
    rule = VersionRule(exact=version)
    signed = signed_modules.choose(context, version)
    driver: dict[str, str | None] = dict(signed.packages) or {
        name: rule.newest_package(locked["packages"].get(name, []), context.order) for name in context.driver_packages
    }
    for name in [name for name, found in driver.items() if found is None]:
        refusals.append(refusal(f"The lock has no {name} {version}", "the driver's packages would not match each other", PIN_REMEDY))
    build, build_files, build_questions, build_refusals = _build(context, cell)
    refusals += [*build_refusals, *signed.refusals, *_real_time(context)]
    if refusals:
        return AreaPlan(refusals=refusals, warnings=warnings)

    built = not signed.packages
    missing_headers = _headers(context, build) if built else []
    modules, units = list(context.catalog.drivers["modules"]), list(context.catalog.drivers["units"])
    load = FileSpec(
        "/etc/modules-load.d/rackready-nvidia.conf", "# Managed by rackready (role nvidia_driver).\n" + "".join(f"{module}\n" for module in modules)
    )
    pin = [_pin(cell["pin"], version, built)] if context.manager == "apt" else []
    # Of the driver's own repository a host with signed modules needs what its fabric takes.
    from_repository = built or context.fabric_kind is not None
    files = [*(repository.files(locked["key"]) if from_repository else []), *build_files, *pin, NOUVEAU, load]
    packages = {**build, **driver}
    ours = _driver_packages_there(context)
    hold = sorted({*driver, *ours})

    package_target, package_actual = packages_state(context, packages)
    file_target, file_actual = files_state(context, files)
    module = context.facts["modules"]["nvidia"]
    nouveau = bool(context.facts["modules"]["nouveau"]["loaded"])
    # A blacklist holds at the next boot only if the initramfs has it; until the driver is loaded an earlier run may have stopped before that.
    rebuild = context.file_state(NOUVEAU) != "as planned" or nouveau or not module["loaded"]
    initramfs = _initramfs_commands(context) if rebuild else []
    build_command = _build_command(context, driver) if built else []
    stream_desired, stream_target, stream_actual, stream_actions = _stream(context)
    area = AreaPlan(
        desired={
            "branch": branch(version),
            "version": version,
            "flavour": context.driver_flavour,
            "files": [spec.as_dict() for spec in files],
            **package_set(context, packages, hold, missing_headers, el_kernels.moved_on(context.facts["kernel"], context.order)),
            **stream_desired,
            "build_command": build_command,
            "initramfs_commands": initramfs,
            "modules": modules,
            "units": units,
            "unload": ["nouveau"] if nouveau else [],
        },
        target={
            "packages": package_target,
            "held": hold,
            **stream_target,
            "library": version,
            "files": file_target,
            "headers": built or bool(context.facts["kernel"]["headers"]),
            "modules": {name: _module_words(version, context.driver_flavour if name == "nvidia" else None) for name in modules},
            "nouveau": "not loaded",
            "units": dict.fromkeys(units, "enabled, active"),
        },
        actual={
            "packages": package_actual,
            "held": context.held(hold),
            **stream_actual,
            "library": context.facts["library_version"] or "absent",
            "files": file_actual,
            "headers": bool(context.facts["kernel"]["headers"]),
            "modules": {name: _loaded_words(context, name) for name in modules},
            "nouveau": "loaded" if nouveau else "not loaded",
            "units": units_state(context, units),
        },
        reasons=[*_reasons(context, version), *_stream_reasons(context), *signed.reasons],
        warnings=[*warnings, *(_key_to_enrol(context) if built else []), *signed.warnings],
        packages=packages,
        files=files,
        repositories=[repository.question({**_libraries(context, locked, rule), **driver}, _streams(context), locked), *build_questions] if built else [],
        # Headers and what matches them come and go together: they are asked for once.
        archive_packages=[*missing_headers[:1], *context.to_be_there([context.lock_package])],
    )
    if not built:  # from the distribution's archive, in exactly these versions
        area.archive_packages += [f"{name} = {package}" for name, package in signed.packages.items() if context.installed(name) != package]
    area.actions = [
        *file_actions(context, files),
        *stream_actions,
        *(["unload nouveau"] if nouveau else []),
        *(f"rebuild the initramfs{f' of {command[-1]}' if len(initramfs) > 1 else ''}" for command in initramfs),
        *(f"install {name}" for name in [*missing_headers, *context.to_be_there([context.lock_package])]),
        *package_actions(context, packages, hold),
        *([f"build the kernel modules for {context.facts['kernel']['release']}"] if build_command else []),
        *([] if area.target["modules"] == _actual(area)["modules"] else [f"load {', '.join(modules)} {version} ({context.driver_flavour})"]),
        *unit_actions(context, units),
    ]
    area.warnings += _next_kernel(context) if built else _next_signed_kernel(context, list(signed.packages)[-1])
    if module["loaded"]:
        _loaded_module(context, area, version)
        area.refusals += _upgraded_under_module(context, list(driver), version, ours)
    # The refusal of another loaded driver says already to remove it; afterwards the rest shows.
    area.refusals += _not_packaged(context) or (
        [] if area.reboot else _other_packages(context, list(driver), version, ours) or _broken_library(context, area, version, signed.libraries)
    )
    area.refusals += _locked_libraries(context, version, [name for name in ours if name not in packages])
    return area


def _build(context: Context, cell: Table) -> tuple[dict[str, str | None], list[FileSpec], list[dict[str, Any]], list[str]]:
    """What builds the kernel modules, where it is in a repository of its own: packages, files, the question for it, refusals. What is there already serves."""
    build = cell.get("build", {"repository": None, "packages": []})
    packages: dict[str, str | None] = dict.fromkeys(build["packages"])
    if not context.to_be_there(packages):
        return packages, [], [], []
    repository, locked = context.repository(build["repository"]), context.locked_repository(build["repository"])
    if repository is None or locked is None:
        return {}, [], [], [context.unlocked(build["repository"], "nothing would build the kernel modules")]
    return packages, repository.files(locked["key"]), [repository.question(packages, locked=locked)], []


def _headers(context: Context, build: Mapping[str, str | None]) -> list[str]:
    """What must be there before modules are built: the running kernel's headers, and with dnf what keeps dkms, which is yet to come, from taking a kernel."""
    kernel = str(context.facts["kernel"]["release"])
    headers = [] if context.facts["kernel"]["headers"] else [context.known_distribution["headers"].format(kernel=kernel)]
    matched = el_kernels.matched(kernel) if context.manager == "dnf" and context.to_be_there(build) else None
    return headers if matched is None or context.installed(f"kernel-devel-matched-{kernel}") is not None else [*headers, matched]


def _real_time(context: Context) -> list[str]:
    """NVIDIA's modules refuse to be built for such a kernel. Who made them work there all the same has them already."""
    kernel, module = str(context.facts["kernel"]["release"]), context.facts["modules"]["nvidia"]
    if not el_kernels.real_time(kernel) or module["loaded"] or module["available"] is not None:
        return []
    what = f"The host runs the real-time kernel {kernel}, for which NVIDIA's kernel modules refuse to be built (PREEMPT_RT)"
    return [refusal(what, "there would be no driver", "boot the ordinary kernel of the distribution and run again")]


def _initramfs_commands(context: Context) -> list[list[str]]:
    """What rebuilds the initramfs of every kernel that is installed, as any of them may boot next; one that a removed kernel left behind is no concern."""
    command = list(context.known_distribution["initramfs_command"])
    if "{kernel}" not in command:
        return [command]
    kernels = [context.facts["kernel"]["release"], *context.facts["kernel"]["others"]]
    return [[kernel if word == "{kernel}" else word for word in command] for kernel in kernels]


def _build_command(context: Context, driver: Mapping[str, str | None]) -> list[str]:
    """What builds the modules of packages that are there for a kernel that came after them. Packages that are yet to come build them themselves."""
    module = context.facts["modules"]["nvidia"]
    if module["loaded"] or module["available"] is not None or differing(context, driver) or context.installed("dkms") is None:
        return []
    return ["dkms", "autoinstall", "-k", str(context.facts["kernel"]["release"])]


def _key_to_enrol(context: Context) -> list[str]:
    """What Secure Boot asks for of modules that are built on the host."""
    enrolled = "the kernel loads the driver only after its signing key was enrolled at the console (mokutil)."
    if context.facts["kernel"]["secure_boot"] == "enabled":
        return [f"Secure Boot is on: {enrolled}"]
    if context.facts["kernel"]["secure_boot"] == "unknown" and not context.facts["modules"]["nvidia"]["loaded"]:
        return [f"Whether Secure Boot is on cannot be read: if it is, {enrolled}"]
    return []


def _next_kernel(context: Context) -> list[str]:
    """The newest kernel is the one that boots next; without its headers nothing builds the modules for it."""
    kernel = context.facts["kernel"]
    newest = context.order.newest([kernel["release"], *kernel["others"]])
    if kernel["others"].get(newest, True):
        return []
    return [
        f"The kernel {newest} is installed beside the running {kernel['release']} and its headers are not: the driver will be missing after the next boot. "
        f"Install {context.known_distribution['headers'].format(kernel=newest)} before it."
    ]


def _next_signed_kernel(context: Context, modules: str) -> list[str]:
    """The same where the modules are packages, each for one kernel."""
    kernel = context.facts["kernel"]
    newest = context.order.newest([kernel["release"], *kernel["others"]])
    package = f"{modules[: -len(kernel['release'])]}{newest}"
    if newest == kernel["release"] or context.installed(package) is not None:
        return []
    return [
        f"The kernel {newest} is installed beside the running {kernel['release']} and {package} is not: the driver will be missing after the next boot. "
        f"Run this again once {newest} runs."
    ]


def _libraries(context: Context, locked: Mapping[str, Any], rule: VersionRule) -> dict[str, str | None]:
    """What comes along with the driver's packages, as far as the lock has it: one that the repository has lost would stop the installation half-way."""
    names = in_branch(context.driver_cell.get("libraries", []), context.driver_branch) if context.driver_cell is not None else ()
    found = {name: rule.newest_package(locked["packages"].get(name, []), context.order) for name in names}
    return {name: version for name, version in found.items() if version is not None}


def _streams(context: Context) -> list[str]:
    return [":".join(context.driver_stream)] if context.driver_stream is not None else []


def _stream(context: Context) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[str]]:
    """dnf's module stream as desired, target and actual, and the actions: one that is enabled must be reset before another one can be."""
    if context.driver_stream is None:
        return {}, {}, {}, []
    module, stream = context.driver_stream
    enabled = context.facts["packages"]["streams"].get(module)
    reset = enabled is not None and enabled != stream
    actions = [
        *([f"reset the module stream {module}:{enabled}"] if reset else []),
        *([f"enable the module stream {module}:{stream}"] if enabled != stream else []),
    ]
    desired = {"stream": {"module": module, "name": f"{module}:{stream}", "reset": reset, "enable": enabled != stream}}
    return desired, {"stream": stream}, {"stream": enabled or "none"}, actions


def _stream_reasons(context: Context) -> list[Reason]:
    if context.driver_stream is None:
        return []
    where = f"{context.driver_flavour} kernel modules of branch {context.driver_branch}"
    return [Reason(f"dnf sees the packages of one module stream only, and {where} are in {':'.join(context.driver_stream)}", "dig-620")]


def _locked_libraries(context: Context, version: str, libraries: list[str]) -> list[str]:
    """Libraries that move with the driver's packages and that lines of others in versionlock's list keep elsewhere: dnf would find no solution."""
    found = versionlock.keeping(context.facts["files"], libraries, version) if context.manager == "dnf" else {}
    if not found:
        return []
    lines = ", ".join(sorted({line for lines in found.values() for line in lines}))
    return [
        refusal(
            f"Somebody locks {', '.join(found)} to other versions than {version} ({lines})",
            "dnf could not install the driver with its libraries",
            f"run {context.packaging.unhold} {' '.join(found)} if that is over, then run again",
        )
    ]


def _driver_packages_there(context: Context) -> dict[str, str]:
    """Installed packages that are built from a driver's sources, name to upstream version, those of the fabric's area left out.

    The pins' names also match packages with versions of their own (the container toolkit, Debian's helpers); a driver's version has a branch of three digits.
    """
    globs = [glob for glob in context.driver_cell["pin"]["globs"] if not glob.startswith("src:")] if context.driver_cell is not None else []
    fabric = {name for parts in context.fabric_parts.values() for name in parts}
    found = {name: context.order.upstream(entry["version"]) for name, entry in context.facts["packages"]["installed"].items()}
    return {
        name: version
        for name, version in found.items()
        if name not in fabric and re.fullmatch(r"\d{3}(\.\d+)+", version) and any(fnmatchcase(name.partition(":")[0], glob) for glob in globs)
    }


def _other_packages(context: Context, ours: Sequence[str], version: str, there: Mapping[str, str]) -> list[str]:
    """Packages that ours conflict with, or that would stay behind at another version: nothing is removed on the way, so the installation would stop.

    What has the version of the installed driver package moves together with it, as its packages name each other with their exact version.
    """
    flavours = context.driver_cell["flavours"] if context.driver_cell is not None else {}
    base = context.installed(ours[0])
    others = (name for names in flavours.values() for name in in_branch(names, context.driver_branch))
    flavour = [name for name in others if name not in ours and context.installed(name) is not None]
    moving = {version, context.order.upstream(base)} if base is not None else {version}
    strays = sorted(name for name, found in there.items() if name not in (*ours, *flavour) and found not in moving)
    if not flavour and (not strays or base is not None):
        return [_mixed(context, ours[0], version, strays)] if strays else []
    # Without the driver package of NVIDIA's repository these are another packaging of the driver; its kernel package may have the name of ours.
    alike = [name for name in ours if base is None and there.get(name, version) != version]
    foreign = sorted({*flavour, *strays, *alike})
    first = f"{foreign[0]} {context.installed(foreign[0])}"
    what = f"{first} is" if len(foreign) == 1 else f"{first} and {len(foreign) - 1} more packages of another driver are"
    return [
        refusal(
            f"{what} installed and {version} {context.driver_flavour} is planned",
            "the packages would conflict",
            f"run {context.packaging.removal(foreign, context.held(foreign))}, then run again",
        )
    ]


def _mixed(context: Context, base: str, version: str, strays: list[str]) -> str:
    found = ", ".join(f"{name} {context.installed(name)}" for name in strays)
    return refusal(
        f"{found} {'is' if len(strays) == 1 else 'are'} installed beside {base} {context.installed(base)}",
        "libraries and kernel module would not match",
        f"run {_move(context, strays, version)}, or remove {' '.join(strays)}, then run again",
    )


def _move(context: Context, names: list[str], version: str) -> str:
    """Commands that bring packages to a version, older or newer; dnf finds none that is not in the enabled stream."""
    stream = _stream(context)[0].get("stream", {"enable": False})
    switch = f"dnf module reset {stream['module']}, dnf module enable {stream['name']} and " if stream["enable"] else ""
    return f"{switch}{context.packaging.move} {context.packaging.revisions(names, version)}"


def _broken_library(context: Context, area: AreaPlan, version: str, signed: Sequence[str]) -> list[str]:
    """All packages are as planned and yet the libraries that programs find are not: no installation would change that."""
    found = context.facts["library_version"]
    if area.target["packages"] != _actual(area)["packages"] or found == version:
        return []
    own = in_branch(context.driver_cell["libraries"], context.driver_branch) if context.driver_cell is not None else ()
    libraries = " ".join(signed or own)
    state = f"the libraries that programs find are {found}" if found else "libcuda and libnvidia-ml are not found"
    return [
        refusal(
            f"The driver's packages are {version} and {state}",
            "no program could use a GPU",
            f"run {context.packaging.reinstall} {libraries} and ldconfig; if ldconfig -p still shows another version, remove its files; then run again",
        )
    ]


def _not_packaged(context: Context) -> list[str]:
    """A driver, or libraries of one, that no package brought: its files would lie under and over those of the packages."""
    library = context.facts["library_version"]
    there = {library, context.facts["modules"]["nvidia"]["version"]} - {None}
    packaged = {context.order.upstream(entry["version"]) for entry in context.facts["packages"]["installed"].values()}
    foreign = there - packaged
    # A module that runs on after its packages were replaced is no foreign one: it goes with the next boot.
    if not foreign or (library not in foreign and there & packaged):
        return []
    return [
        refusal(
            f"The driver {' and '.join(sorted(foreign))} is on the host and no installed package brought it",
            "the packages would mix with its files",
            "if it came from NVIDIA's .run file, run nvidia-uninstall; then reboot the host and run again",
        )
    ]


def _upgraded_under_module(context: Context, ours: Sequence[str], version: str, there: Mapping[str, str]) -> list[str]:
    """Newer packages under the planned, loaded module: an upgrade went past our holds. That older ones stayed behind is what an installation mends."""
    module, library = context.facts["modules"]["nvidia"]["version"], context.facts["library_version"]
    names = [name for name, found in there.items() if found == library]
    if module != version or library is None or ours[0] not in names or at_least(version, library):
        return []
    return [
        refusal(
            f"The driver's packages were upgraded to {library} and the loaded nvidia kernel module is {module}",
            "no program can use a GPU",
            f"run {_move(context, names, version)} to go back, or plan {library} and reboot the host; then run again",
        )
    ]


def _actual(area: AreaPlan) -> dict[str, Any]:
    return area.actual if isinstance(area.actual, dict) else {}


def _module_words(version: str | None, flavour: str | None) -> str:
    return " ".join(part for part in ("loaded", version, flavour) if part)


def _loaded_words(context: Context, name: str) -> str:
    module = context.facts["modules"].get(name) or {"loaded": False}
    if not module["loaded"]:
        return "not loaded"
    # Only the main module says which flavour it is; the others may leave even the version out.
    main = context.facts["modules"]["nvidia"]
    return _module_words(module["version"] or main["version"], module["flavour"] if name == "nvidia" else None)


def _pin(pin: Table, version: str, built: bool) -> FileSpec:
    """Everything built from the driver's sources stays at its version; above 1000 apt also goes back to it.

    The first record that names a version counts, so what must never be taken comes first; modules that the distribution signed come from just there.
    """
    globs = " ".join(pin["globs"])
    never = f"Package: {globs}\nPin: release {pin['never_from']}\nPin-Priority: -1\n\n" if built and "never_from" in pin else ""
    return FileSpec(
        "/etc/apt/preferences.d/rackready-nvidia.pref",
        f"Explanation: managed by rackready (role nvidia_driver)\n{never}Package: {globs}\nPin: version {version}-*\nPin-Priority: 1001\n",
    )


def _names_only(context: Context, cell: Table, warnings: list[str]) -> AreaPlan:
    """Names, and how they would be kept at their version."""
    branch_, flavour, pin = context.driver_branch, context.driver_flavour, cell["pin"]
    left_out = ("streams", "globs")
    words = {
        key: value.format(branch=branch_) if isinstance(value, str) else list(in_branch(value, branch_)) for key, value in pin.items() if key not in left_out
    }
    stream = {"stream": context.driver_stream[1]} if context.driver_stream is not None else {}
    desired = {"branch": branch_, "version": str(context.driver_rule), "flavour": flavour, "pin": {**words, **stream}}
    return names_only(context.driver_packages, desired, _reasons(context, None), warnings)


def _instead(context: Context, otherwise: str) -> str:
    """Another release is the answer only where the release is the question: what the inventory overrides stays as it is in every release."""
    overridden = context.request.driver_version is not None or context.request.driver_branch is not None
    return otherwise if overridden else instead(context, otherwise)


def _no_cell(context: Context) -> str:
    there = [name for name in context.catalog.drivers["branches"] if context.catalog.driver_cell(context.distribution, context.architecture, name) is not None]
    return refusal(
        f"The catalog has no driver packages of branch {context.driver_branch} for {context.where}",
        "no driver can be planned",
        _instead(context, f"use one of the branches {', '.join(there)}" if there else "use another distribution or architecture"),
    )


def _no_flavour(context: Context) -> str:
    return refusal(
        f"The catalog has no packages with {context.driver_flavour} kernel modules for {context.where}",
        "no driver can be planned",
        _instead(context, "use another distribution"),
    )


def _unlocked(context: Context, cell: Table, locked: Mapping[str, Any] | None) -> str:
    if locked is None:
        return context.unlocked(cell["repository"], "no exact driver version is known")
    name = context.driver_packages[0]
    known = ", ".join(locked["packages"].get(name, [])) or "none"
    return refusal(f"The lock has no {name} that is {context.driver_rule} (it has {known})", "no exact driver version is known", PIN_REMEDY)


def _reasons(context: Context, version: str | None) -> list[Reason]:
    newest = f"; {version} is the newest in the lock" if version is not None else ""
    if context.request.driver_version is not None:
        reasons = [Reason(f"driver {context.request.driver_version} is asked for by nvidia_driver_version", "inventory")]
    elif context.request.driver_branch not in (None, context.release["driver"]["branch"]):
        reasons = [Reason(f"branch {context.driver_rule.branch} is asked for by nvidia_driver_branch{newest}", "inventory")]
    else:
        reasons = [Reason(f"release {context.request.release} takes {context.driver_rule}{newest}", context.request.release)]
    if context.request.driver_flavour is not None:
        return [*reasons, Reason(f"{context.driver_flavour} kernel modules are asked for by nvidia_driver_flavour", "inventory")]
    names = sorted({architecture["name"] for gpu in context.gpus if (architecture := context.architecture_of(gpu)) is not None})
    return [*reasons, Reason(f"{context.driver_flavour} kernel modules fit {' and '.join(names) or 'every newer GPU'}", "nv-open-blog")]


def _branch_warnings(context: Context) -> list[str]:
    """What is said of the branch's support, by the date of the facts; and that nobody knows which kernel modules an unknown GPU takes."""
    branch_ = context.driver_branch
    known = context.catalog.drivers["branches"].get(branch_)
    if known is None:
        return []
    warnings = []
    since = ended(context, branch_)
    if since is not None:
        warnings.append(f"Driver branch {branch_} {since} and gets no fixes: {_supported(context)}.")
    elif known["status"] == "unclear":
        warnings.append(f"Whether driver branch {branch_} still gets fixes is not known.")
    warnings += unverified(f"What is known of driver branch {branch_}", known)
    strange = sorted({gpu.pci_id for gpu in context.gpus if gpu.slug is None})
    if strange and context.request.driver_flavour is None:
        warnings.append(
            f"Which kernel modules {', '.join(strange)} needs is not known, {context.driver_flavour} ones are planned: "
            "set nvidia_driver_flavour (open from Turing on, proprietary for older ones; Blackwell takes open ones only)."
        )
    for gpu in {gpu.pci_id: gpu for gpu in context.gpus if gpu.entry is not None}.values():
        warnings += _gpu_warnings(context, gpu)
    return warnings


def _supported(context: Context) -> str:
    """Where to go from a branch that has ended; that of the release may have ended too, and what the inventory overrides stays in every release."""
    own = str(context.release["driver"]["branch"])
    if ended(context, own) is None:
        return f"the release's branch is {own}"
    none = "no release of this version of rackready has a supported branch for this host, so look for a newer version of rackready"
    remedy = instead(context, none)
    overridden = context.request.driver_version is not None or context.request.driver_branch is not None
    return f"take nvidia_driver_branch and nvidia_driver_version out of the inventory and {remedy}" if overridden and remedy != none else remedy


def _gpu_warnings(context: Context, gpu: Gpu) -> list[str]:
    entry: Table = gpu.entry or {}
    warnings = unverified(f"What is known of {gpu.name}", entry)
    if "compute_capability" in entry.get("unverified", []):
        warnings.append(f"The compute capability {entry['compute_capability']} of {gpu.name} is not verified, and what code it runs follows from it.")
    architecture = context.architecture_of(gpu)
    unlisted = entry["first_driver"] is None and not entry.get("works_unlisted") and architecture is not None and "open" in architecture["flavours"]
    if unlisted or gpu.pci_id in entry.get("unlisted_pci_ids", []):
        warnings.append(f"No driver is known to list {gpu.name} ({gpu.pci_id}): whether it finds that GPU is seen once it is loaded.")
    return warnings


def fits(context: Context, version: str | None) -> list[str]:
    """Refusals: branch, flavour and GPUs that do not go together. Without a version the branch alone is looked at."""
    wanted, version = context.driver_branch, version or context.driver_rule.exact
    refusals = []
    known = context.catalog.drivers["branches"].get(wanted)
    if known is None:
        names = ", ".join(context.catalog.drivers["branches"])
        refusals.append(refusal(f"Driver branch {wanted} is not in the catalog", "nothing is known of it", f"use one of {names}"))
    elif context.driver_flavour not in known["flavours"]:
        refusals.append(
            refusal(
                f"Driver branch {wanted} has no {context.driver_flavour} kernel modules",
                "they cannot be installed",
                "set nvidia_driver_flavour: open" if "open" in context.flavours else _instead(context, "use an older branch"),
            )
        )
    kinds = {gpu.slug: gpu for gpu in context.gpus if gpu.slug is not None}
    if not context.flavours:
        refusals.append(_no_common_flavour(context, list(kinds)))
    for slug in kinds:
        refusals += _gpu_fits(context, slug, version)
    return refusals


def _no_common_flavour(context: Context, slugs: list[str]) -> str:
    only = {flavours_of(context.catalog, [slug])[0]: context.catalog.gpus[slug]["name"] for slug in slugs if len(flavours_of(context.catalog, [slug])) == 1}
    words = " and ".join(f"{name} only the {flavour} ones" for flavour, name in sorted(only.items()))
    return refusal(f"The GPUs of this host cannot share one driver (of the kernel modules {words} work)", "one of them would never be found", "split the host")


def _gpu_fits(context: Context, slug: str, version: str | None) -> list[str]:
    entry = context.catalog.gpus[slug]
    architecture = context.catalog.drivers["architectures"][entry["architecture"]]
    refusals = []
    if context.flavours and context.driver_flavour not in architecture["flavours"]:
        only = " or ".join(architecture["flavours"])
        asked = context.request.driver_flavour is not None
        refusals.append(
            refusal(
                f"{entry['name']} ({architecture['name']}) needs the {only} kernel modules",
                f"{context.driver_flavour} ones never find it",
                f"set nvidia_driver_flavour: {only}" if asked else _instead(context, f"set nvidia_driver_flavour: {only}"),
            )
        )
    problem = not_listed(context.catalog, slug, context.driver_branch, version)
    if problem is not None:
        what, why, remedy = problem
        refusals.append(refusal(what, why, _instead(context, remedy)))
    return refusals


def _loaded_module(context: Context, area: AreaPlan, version: str) -> None:
    """Refusals that a loaded module brings: another version, a driver that does not answer, a GPU in use."""
    module = context.facts["modules"]["nvidia"]
    smi = context.facts["nvidia_smi"]
    other = module["version"] not in (None, version) or module["flavour"] not in (None, context.driver_flavour)
    if other:
        area.reboot = True
        found = " ".join(part for part in (module["version"], module["flavour"]) if part)
        wanted = f"{version} {context.driver_flavour}"
        allowed = (
            "nvidia_driver_reboot_ok allows a reboot, but this version of rackready does not reboot hosts"
            if context.request.reboot_ok
            else "a reboot is needed"
        )
        area.refusals.append(
            refusal(
                f"The nvidia kernel module {found} is loaded and {wanted} is planned",
                f"{allowed}",
                "take the host out of service, remove the old driver, reboot it and run again",
            )
        )
    elif smi["state"] == "hung" or (smi["state"] in ("failed", "garbled") and context.facts["library_version"] in (None, version)):
        said = smi["error"] or smi["state"]
        area.refusals.append(
            refusal(
                f"nvidia-smi does not work although the driver {module['version']} is loaded ({said})",
                "the GPUs cannot be trusted",
                "look at dmesg for NVRM and Xid lines and reboot the host",
            )
        )
    lost = [gpu.pci_bus_id for gpu in context.gpus if gpu.smi is None] if context.smi_ok else []
    if lost and not other:
        area.refusals.append(
            refusal(
                f"{', '.join(lost)} {'is' if len(lost) == 1 else 'are'} on the PCI bus and nvidia-smi does not list {'it' if len(lost) == 1 else 'them'}",
                "the driver has given that GPU up" if len(lost) == 1 else "the driver has given those GPUs up",
                "look at dmesg for NVRM and Xid lines, power the host off and on, and send the card in if that does not help",
            )
        )
    target, actual = area.target, _actual(area)
    touches = target["packages"] != actual["packages"] or target["modules"] != actual["modules"]
    if touches and context.workloads:
        area.drain = True
        area.refusals.append(
            refusal(
                f"GPUs are in use by {who(context.workloads, context.facts['docker']['containers'])}",
                "the driver cannot be changed under them",
                "stop them or wait until they are done, then run again",
            )
        )
