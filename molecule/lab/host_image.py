# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The image of a lab host: a distribution's root, and on top what makes it a server of this site."""

from __future__ import annotations

import hashlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path

from . import el_host, image_root, rootfs
from .distribution import Distribution
from .engine import Engine
from .errors import LabError
from .names import IMAGE, INPUTS_LABEL, LABEL, SERVICES_HOSTNAME, host_image, root_image
from .paths import Layout
from .services import import_image
from .steps import digest_of

# What /etc/os-release leads to: a file in place of that link would be in the way of the next one.
OS_RELEASE = "usr/lib/os-release"
ARCHIVE_KEY = "usr/share/keyrings/site-mirror.asc"
AUTHORITY = "usr/local/share/ca-certificates/site.crt"  # where Debian's tools look for it

# systemd asks for nothing else of a container's image; the units masked would act on the machine's kernel or lock the package manager at some moment.
PREPARE = """
set -eu
rm -f /etc/apt/sources.list /etc/apt/sources.list.d/* /etc/yum.repos.d/* /etc/ssh/ssh_host_*
tar -x -C / --no-same-owner
: >/etc/machine-id
if command -v update-ca-trust >/dev/null; then update-ca-trust; else update-ca-certificates >/dev/null; fi
systemctl --quiet mask apt-daily.timer apt-daily-upgrade.timer dnf-makecache.timer systemd-modules-load.service sys-kernel-debug.mount \\
  sys-kernel-tracing.mount dev-hugepages.mount getty.target systemd-tmpfiles-setup-dev-early.service
if [ -x /opt/gpu-host-sim/install ]; then /opt/gpu-host-sim/install; fi
"""


def root(distribution: Distribution) -> rootfs.Root:
    if distribution.suite is None:
        raise LabError(f"{distribution.key} has no root file system of its own; its entry in distributions.yml names one")
    return rootfs.Root(distribution.suite, distribution.packages)


def root_inputs(distribution: Distribution) -> str:
    if distribution.image is not None:
        return digest_of(distribution.image, image_root.script(distribution))
    return digest_of(root(distribution).inputs(), distribution.mirror)


def root_present(layout: Layout, engine: Engine, distribution: Distribution) -> bool:
    mirror = layout.mirror / distribution.key
    return mirror.is_dir() and any(mirror.iterdir()) and engine.label("image", root_image(distribution.key), INPUTS_LABEL) == root_inputs(distribution)


def make_root(layout: Layout, engine: Engine, distribution: Distribution) -> None:
    """The root's image, and the packages that its hosts may ask for, from the same look at the archive."""
    work = rootfs.fresh(layout.work / f"root-{distribution.key}")
    mirror = rootfs.fresh(work / "mirror")
    if distribution.image is not None:
        image_root.make(engine, distribution, mirror, root_inputs(distribution))
    else:
        tarball = work / "root.tar"
        rootfs.build(root(distribution), tarball, rootfs.download(distribution.mirror, mirror))
        import_image(engine, tarball, root_image(distribution.key), root_inputs(distribution))
    target = layout.mirror / distribution.key
    rootfs.fresh(target)
    target.rmdir()
    mirror.rename(target)
    rootfs.fresh(work)


def apt_sources(distribution: Distribution) -> str:
    """The site's mirror and nothing else: lab hosts need no way out."""
    return (
        "Types: deb\n"
        f"URIs: https://{SERVICES_HOSTNAME}/{distribution.archive_path}\n"
        f"Suites: {distribution.codename}\n"
        "Components: main\n"
        f"Signed-By: /{ARCHIVE_KEY}\n"
    )


# /proc/sys is read-only in a container: Docker cannot switch IPv6 off on its bridge there and refuses to make one unless told otherwise.
DOCKER_DROP_IN = "[Service]\nEnvironment=DOCKER_ALLOW_IPV6_ON_IPV4_INTERFACE=1\n"


def overlay(layout: Layout, distribution: Distribution) -> bytes:
    """A tar of what is laid over the root."""
    authority, key = (layout.tls / "ca.crt").read_bytes(), (layout.signing / "public.asc").read_bytes()
    files: dict[str, tuple[int, bytes]] = {
        AUTHORITY: (0o644, authority),
        "etc/systemd/system/docker.service.d/10-container.conf": (0o644, DOCKER_DROP_IN.encode()),
    }
    if distribution.package_manager == "dnf":
        files[el_host.AUTHORITY] = (0o644, authority)
        files.update(el_host.files(distribution, key, os_release(distribution.os_release)))
    else:
        files[ARCHIVE_KEY] = (0o644, key)
        files[f"etc/apt/sources.list.d/{distribution.vendor.lower()}.sources"] = (0o644, apt_sources(distribution).encode())
    if distribution.os_release:
        files[OS_RELEASE] = (0o644, os_release(distribution.os_release))
    for path in sorted(layout.gpu_host.rglob("*")) if layout.gpu_host.is_dir() else []:
        if path.is_file() and "__pycache__" not in path.parts:
            mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            files[f"opt/gpu-host-sim/{path.relative_to(layout.gpu_host)}"] = (mode, path.read_bytes())
    return tar_of(files)


def os_release(fields: Mapping[str, str]) -> bytes:
    return "".join(f'{name}="{value}"\n' for name, value in fields.items()).encode()


def tar_of(files: dict[str, tuple[int, bytes]]) -> bytes:
    """A tar of root's files: path -> (mode, contents)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, (mode, data) in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.mode, member.size = mode, len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def prepare(distribution: Distribution) -> str:
    stand_in_with_dnf = distribution.package_manager == "dnf" and distribution.os_release
    return PREPARE + (el_host.PREPARE_STAND_IN if stand_in_with_dnf else "")


def inputs(layout: Layout, distribution: Distribution, root_id: str) -> str:
    return digest_of(root_id, prepare(distribution), hashlib.sha256(overlay(layout, distribution)).hexdigest(), Path(__file__))


def present(engine: Engine, distribution: Distribution, wanted: str) -> bool:
    return engine.label("image", host_image(distribution.key), INPUTS_LABEL) == wanted


def make(layout: Layout, engine: Engine, distribution: Distribution, wanted: str) -> None:
    name = f"rackready-lab-make-{distribution.key}"
    engine.attempt("rm", "--force", "--volumes", name)
    try:
        engine.run(
            *[
                "run",
                "--interactive",
                "--network=none",
                f"--name={name}",
                f"--label={LABEL}=tool",
                root_image(distribution.root),
                "sh",
                "-c",
                prepare(distribution),
            ],
            stdin=overlay(layout, distribution),
        )
        engine.run(
            *["commit", f"--change=LABEL {LABEL}={IMAGE} {INPUTS_LABEL}={wanted}", '--change=CMD ["/lib/systemd/systemd"]'],
            *[name, host_image(distribution.key)],
        )
    finally:
        engine.attempt("rm", "--force", "--volumes", name)
