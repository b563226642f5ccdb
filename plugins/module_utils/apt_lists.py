# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kernel modules that Ubuntu built and signed itself, and the driver's packages that go with them, as apt's lists on the host have them.

A package of modules is for one kernel and has its version; which driver the modules are of stands in its dependency on nvidia-kernel-common. The lists are
read as files: apt, which checked them when it fetched them, is not run and nothing is fetched. Names and dependencies:
https://docs.nvidia.com/datacenter/cloud-native/gpu-operator/latest/install-precompiled-signed-drivers.html
"""

from __future__ import annotations

import gzip
import lzma
import re
from pathlib import Path
from typing import Any

from ansible_collections.rackready.gpu.plugins.module_utils import deb_version

LISTS = "var/lib/apt/lists"
# Uncompressed, the largest one of Ubuntu 24.04 has some 30 MB.
LIST_LIMIT = 256 * 1024 * 1024
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_VERSION = re.compile(r"^Version: ((?:[0-9]+:)?[0-9][^\s:]*)$", re.MULTILINE)
_DRIVER = re.compile(r"^Depends: .*?\bnvidia-kernel-common-\S+ \(>= ([0-9][0-9.]*)\)", re.MULTILINE)


def signed_modules(root: Path, kernel_release: str, architecture: str) -> dict[str, Any]:
    """``packages.signed_modules`` of the facts. ``lists`` counts the lists of the component ``restricted`` that could be read."""
    packages: dict[str, dict[str, str]] = {}
    read = 0
    debian = _ARCHITECTURES.get(architecture, architecture)
    for path in sorted((root / LISTS).glob(f"*_restricted_binary-{debian}_Packages*")):
        data = _content(path)
        if data is not None:
            read += 1
            for name, version, driver in parse(data, kernel_release):
                packages.setdefault(name, {})[version] = driver
    return {"lists": read, "packages": {name: dict(sorted(versions.items())) for name, versions in sorted(packages.items())}}


def _content(path: Path) -> bytes | None:
    """A list uncompressed; None where it cannot be read. apt can also keep them as lz4 and zstd, for which Python has nothing."""
    openers = {".gz": gzip.open, ".xz": lzma.open, "": open}
    opener: Any = openers.get(path.suffix if path.suffix in (".gz", ".xz", ".lz4", ".zst") else "")
    if opener is None:
        return None
    try:
        with opener(path, "rb") as stream:
            data: bytes = stream.read(LIST_LIMIT)
    except (OSError, EOFError, lzma.LZMAError):
        return None
    return data


def parse(data: bytes, kernel_release: str) -> list[tuple[str, str, str]]:
    """(package, its version, the driver's version) of what belongs to signed modules in a Packages file; modules of other kernels are left out.

    The file has some ten thousand paragraphs of modules for other kernels, so only the ones with a wanted name are looked into.
    """
    kernel = re.escape(kernel_release).encode()
    names = re.compile(rb"^Package: (linux-modules-nvidia-[0-9]+-server(?:-open)?-%b|(?:lib)?nvidia-[a-z-]+-[0-9]+-server(?:-open)?)$" % kernel, re.MULTILINE)
    found = []
    for match in names.finditer(data):
        end = data.find(b"\n\n", match.end())
        paragraph = data[match.end() : end if end >= 0 else len(data)].decode("utf-8", "replace")
        name, version, driver = match.group(1).decode(), _VERSION.search(paragraph), _DRIVER.search(paragraph)
        if version is not None and not name.startswith("linux-modules-"):
            found.append((name, version.group(1), deb_version.upstream(version.group(1))))
        elif version is not None and driver is not None:
            found.append((name, version.group(1), driver.group(1)))
    return found
