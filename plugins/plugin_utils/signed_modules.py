# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Kernel modules that the distribution built and signed itself: with Secure Boot they load without a key that somebody enrolls at the console. Pure.

They are planned where the host's package lists have them for the running kernel and of exactly the planned driver, with everything that goes with them. The
driver's version stays what the lock says: these modules never decide it, so all hosts of a release have the same one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ansible_collections.rackready.gpu.plugins.plugin_utils.planning import PIN_REMEDY, Context, Reason, in_branch, refusal


@dataclass(frozen=True)
class Choice:
    """What is installed instead of the packages of the driver's own repository; without ``packages`` that repository's are, and why is said."""

    packages: Mapping[str, str] = field(default_factory=dict)
    """In the order in which they are installed; the first one has the driver's version, the last one are the modules."""
    libraries: tuple[str, ...] = ()
    reasons: Sequence[Reason] = ()
    warnings: Sequence[str] = ()
    refusals: Sequence[str] = ()


def choose(context: Context, version: str) -> Choice:
    """The signed modules of a driver version for the running kernel. A driver that was built on the host stays: its key was enrolled."""
    found = context.facts["packages"].get("signed_modules")
    cell = context.catalog.signed_modules(context.distribution, context.driver_branch)
    built_here = [name for name in context.driver_packages if context.installed(name) is not None]
    if found is None or cell is None or context.driver_flavour not in cell or built_here:
        return Choice()
    kernel, offered = str(context.facts["kernel"]["release"]), found["packages"]
    names = [name.format(branch=context.driver_branch, kernel=kernel) for name in cell[context.driver_flavour]]
    chosen = {name: _version(context, name, offered.get(name, {}), version) for name in names}
    whole = {name: package for name, package in chosen.items() if package is not None}
    if len(whole) == len(names):
        rule = (
            f"Secure Boot is on and {context.known_distribution['name']} has signed the modules of {version} for the kernel {kernel}: no key must be enrolled"
        )
        return Choice(whole, in_branch(cell["libraries"], context.driver_branch), [Reason(rule, "gpu-operator-signed")])
    what, remedy = _why_not(context, version, names, offered, int(found["lists"]))
    there = [name for name in names if context.installed(name) is not None]
    if there:
        why = "the driver would not match them or would not load"
        return Choice(refusals=[refusal(f"{' '.join(there)} {'is' if len(there) == 1 else 'are'} installed and {what}", why, remedy)])
    return Choice(warnings=[f"{what[0].upper()}{what[1:]}; with them no key would have to be enrolled: {remedy}."])


def _version(context: Context, name: str, offered: Mapping[str, str], version: str) -> str | None:
    """The version of a package: what is installed and fits, else the newest that fits, so that a rebuild in the archive moves nothing."""
    there = context.installed(name)
    modules = name.startswith("linux-modules-")
    fits = context.facts["modules"]["nvidia"]["available"] == version if modules else there is not None and context.order.upstream(there) == version
    if there is not None and fits:
        return there
    fitting = [package for package, driver in offered.items() if driver == version]
    return context.order.newest(fitting) if fitting else None


def _why_not(context: Context, version: str, names: Sequence[str], offered: Mapping[str, Mapping[str, str]], lists: int) -> tuple[str, str]:
    """What of the signed modules is missing, and what to do about it."""
    kernel, distribution = context.facts["kernel"]["release"], context.known_distribution["name"]
    if not lists:
        return (
            f"whether {distribution} has modules for the kernel {kernel} that it signed itself is not known, as apt's lists on the host have nothing of its "
            "component restricted",
            "add restricted to /etc/apt, run apt-get update there and plan again",
        )
    modules = offered.get(names[-1], {})
    if not modules:
        return (
            f"{distribution} has no modules of branch {context.driver_branch} for the kernel {kernel} that it signed itself "
            f"({names[-1]} is not in apt's lists)",
            "run apt-get update on the host, or boot a kernel that has them, and plan again",
        )
    whole = [driver for driver in modules.values() if all(driver in offered.get(name, {}).values() for name in names)]
    if whole and version not in modules.values():
        newest = context.order.newest(whole)
        return (
            f"the modules for the kernel {kernel} that {distribution} signed itself are of the driver {newest} and {version} is planned",
            f'set nvidia_driver_version: "{newest}" and {PIN_REMEDY}',
        )
    missing = [name for name in names if version not in offered.get(name, {}).values()]
    return f"apt's lists on the host have no {' and no '.join(missing)} of the driver {version}", "run apt-get update on the host and plan again"
