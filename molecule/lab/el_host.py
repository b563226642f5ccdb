# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""What is laid over the root of a host with dnf; over a stand-in's root also what makes it look like EL 9."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from gpu_host import enterprise_linux, rpm

from . import dnf_repository
from .distribution import Distribution
from .names import SERVICES_HOSTNAME

AUTHORITY = "etc/pki/ca-trust/source/anchors/site.crt"  # where EL's own tool looks for it
BASE = "tmp/base"  # sources of the packages that the database of a stand-in starts with

# EL 9's, as its package dnf-data has it.
DNF_CONF = "[main]\ngpgcheck=1\ninstallonly_limit=3\nclean_requirements_on_remove=True\nbest=True\nskip_if_unavailable=False\n"
# Debian's rpm keeps its database in the user's home, and Debian's loader does not look into lib64.
STAND_IN = {
    "etc/dnf/dnf.conf": DNF_CONF,
    "etc/rpm/macros": "%_dbpath /var/lib/rpm\n",
    "etc/ld.so.conf.d/lib64.conf": "/usr/lib64\n",
}
# From here on the only package database is rpm's: Debian's, and the programs that EL does not have on a server, are in nobody's way.
PREPARE_STAND_IN = f"""
for spec in /{BASE}/*/package.spec; do
  rpmbuild -bb --quiet --define '_topdir /{BASE}/build' --define '_rpmdir /{BASE}/rpms' "$spec"
done
rpm --install /{BASE}/rpms/*/*.rpm
rm -rf /{BASE} /etc/debian_version /etc/apt /etc/dpkg /var/lib/apt /var/lib/dpkg /var/cache/apt /usr/lib/apt /usr/lib/dpkg \\
  /usr/bin/apt* /usr/bin/dpkg* /usr/sbin/dpkg* /usr/bin/deb-systemd-* /usr/sbin/update-initramfs* /usr/bin/rpmbuild /usr/bin/rpmsign
"""


def repo_file(distribution: Distribution) -> str:
    """The site's mirror and nothing else: lab hosts need no way out."""
    found = dnf_repository.repositories(distribution)
    return "\n".join(
        f"[{name}]\nname={distribution.vendor} {distribution.version} - {name}\n"
        f"baseurl=https://{SERVICES_HOSTNAME}/{found[name].path}/\nenabled=1\ngpgcheck=1\ngpgkey=file:///{key_file(distribution)}\n"
        for name in (enterprise_linux.BASEOS, enterprise_linux.APPSTREAM)
    )


def key_file(distribution: Distribution) -> str:
    return f"etc/pki/rpm-gpg/RPM-GPG-KEY-{distribution.vendor}-{distribution.version}"


def files(distribution: Distribution, public_key: bytes, os_release: bytes) -> dict[str, tuple[int, bytes]]:
    """Path -> (mode, contents)."""
    found = {
        key_file(distribution): (0o644, public_key),
        f"etc/yum.repos.d/{distribution.vendor.lower()}.repo": (0o644, repo_file(distribution).encode()),
    }
    if distribution.os_release:
        found.update({path: (0o644, text.encode()) for path, text in STAND_IN.items()})
        found.update(base(distribution, os_release))
    return found


def base(distribution: Distribution, os_release: bytes) -> dict[str, tuple[int, bytes]]:
    """The sources of the packages that the database starts with."""
    with tempfile.TemporaryDirectory(prefix="base-") as scratch:
        folder = Path(scratch)
        version, name = distribution.os_release["VERSION_ID"], distribution.os_release["NAME"]
        for package, tail in enterprise_linux.base(version, name, os_release, os.uname().release):
            rpm.write_source(package, folder, f"/{BASE}", tail)
        return {f"{BASE}/{path.relative_to(folder)}": (0o644, path.read_bytes()) for path in sorted(folder.rglob("*")) if path.is_file()}
