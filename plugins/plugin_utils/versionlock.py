# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Lines of dnf's versionlock: the ones that keep our packages at their version, and the ones of others that would keep dnf from installing it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

FILE = "/etc/dnf/plugins/versionlock.list"
BEGIN, END = "# BEGIN rackready ", "# END rackready "
"""The marks around the lines of one of our roles; the role writes them (package_set)."""


def line(name: str, version: str) -> str:
    """As ``dnf versionlock add`` writes it: always with an epoch, for every architecture."""
    return f"{name}-{version if ':' in version else f'0:{version}'}.*"


def blocking(files: Mapping[str, str], excludes: Sequence[str], wanted: Mapping[str, str]) -> dict[str, list[str]]:
    """Packages that dnf would not install at their wanted version, to the lines of others and the excludes of dnf.conf that keep it from that.

    The versions of several lines for one package are all allowed, and the one that we write allows ours: only a line that excludes it (``!``) is in the way.
    """
    lines = list(foreign(files))
    found = {}
    for name, version in wanted.items():
        forms = _forms(name, version)
        against = [pattern for pattern in lines if pattern.startswith("!") and any(fnmatchcase(form, pattern[1:]) for form in (name, *forms))]
        against += [pattern for pattern in excludes if any(fnmatchcase(form, pattern) for form in (name, *forms))]
        if against:
            found[name] = against
    return found


def keeping(files: Mapping[str, str], names: Iterable[str], version: str) -> dict[str, list[str]]:
    """Packages of which lines of others allow other versions than the wanted upstream one only, to those lines."""
    found = {}
    for name in names:
        about = [pattern for pattern in foreign(files) if _is_about(pattern, name)]
        if about and not any(re.search(rf"[-:]{re.escape(version)}(-|$)", pattern) for pattern in about):
            found[name] = about
    return found


def foreign(files: Mapping[str, str]) -> Iterator[str]:
    """The lines outside of our marks."""
    ours = False
    for text in files.get(FILE, "").splitlines():
        if text.startswith((BEGIN, END)):
            ours = text.startswith(BEGIN)
        elif not ours and text.strip() and not text.startswith("#"):
            yield text.strip()


def _is_about(pattern: str, name: str) -> bool:
    """Whether a line locks versions of a package: its part before version and release matches the name, and there is such a part."""
    parts = re.fullmatch(r"(?P<name>[^!].*?)-(?:[0-9*]+:)?[^-]+-[^-]+", pattern)
    return parts is not None and fnmatchcase(name, parts["name"])


def _forms(name: str, version: str) -> tuple[str, ...]:
    full = version if ":" in version else f"0:{version}"
    return (f"{name}-{version}", f"{name}-{full}", line(name, version))
