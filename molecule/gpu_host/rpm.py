# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The source of a stand-in's .rpm: a specification file and a tree beside it, which rpmbuild makes the package of in the lab's services image."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from gpu_host.package import Package, Start, lay_out

_TAGS = {"depends": "Requires", "suggests": "Suggests", "provides": "Provides", "conflicts": "Conflicts", "replaces": "Obsoletes"}
# Nothing is compiled here, so nothing is to be stripped or asked what it depends on; packed quickly, since nobody downloads it from afar.
_HEAD = """\
%global _binary_payload w1.gzdio
%global debug_package %{nil}
%global __os_install_post %{nil}
%global _build_id_links none
%global _buildhost services.rackready.lab
%global use_source_date_epoch_as_buildtime 1
%global build_mtime_policy clamp_to_source_date_epoch
"""


def split(version: str) -> tuple[str, str, str]:
    """Epoch (empty if there is none), version and release of ``3:580.178.04-1.el9``."""
    epoch, _colon, rest = version.rpartition(":")
    upstream, _dash, release = rest.rpartition("-")
    return epoch, upstream, release


def nevra(package: Package) -> str:
    """As dnf writes it and module metadata lists it: ``nvidia-driver-cuda-3:580.178.04-1.el9.x86_64``, the epoch always there."""
    epoch, version, release = split(package.version)
    return f"{package.name}-{epoch or '0'}:{version}-{release}.{package.architecture}"


def stem(package: Package) -> str:
    """The name of the .rpm without its ending; there is no epoch in it."""
    _epoch, version, release = split(package.version)
    return f"{package.name}-{version}-{release}.{package.architecture}"


def relation(text: str) -> str:
    """``a = 1 | b`` as a specification has it: ``(a = 1 or b)``."""
    return f"({text.replace(' | ', ' or ')})" if " | " in text else text


def scripts(package: Package) -> dict[str, str]:
    """Scriptlets, name -> text; none that has nothing to do. What systemd's macros of EL 9 come to: presets decide, and nothing is started."""
    units = " ".join(package.units)
    preset = package.units and package.start is not Start.NEVER
    bodies = {
        "post": package.installed + (f"if [ $1 -eq 1 ]; then systemctl --no-reload preset {units} || :; fi\n" if preset else ""),
        "preun": package.leaving + (f"if [ $1 -eq 0 ]; then systemctl --no-reload disable --now {units} || :; fi\n" if units else ""),
        "postun": f"if [ $1 -ge 1 ]; then systemctl try-restart {units} || :; fi\n" if package.start is Start.BY_POLICY and units else "",
        "posttrans": f"systemctl daemon-reload || :\nsystemctl start {units} || :\n" if package.start is Start.AT_ONCE and units else "",
    }
    return {name: body for name, body in bodies.items() if body}


def spec(package: Package, tree: str, paths: Iterable[str], tail: str = "") -> str:
    """The specification file. TREE: where the package's root lies when it is built; PATHS: everything in it but folders; TAIL: what only one package has."""
    epoch, version, release = split(package.version)
    relations = "".join(f"{_TAGS[kind]}: {_plain(relation(each))}\n" for kind, them in package.relations.items() for each in them)
    scriptlets = "".join(f"%{name}\n{_plain(body)}" for name, body in scripts(package).items())
    paths = sorted(paths)
    listed = "".join(f'{"%config(noreplace) " * path.startswith("/etc/")}"{_plain(path)}"\n' for path in paths)
    return f"""\
{_HEAD}Name: {package.name}
{f"Epoch: {epoch}" + chr(10) if epoch else ""}Version: {version}
Release: {release}
Summary: stand-in of the rackready lab: {_plain(package.summary)}
License: GPL-3.0-or-later
{"BuildArch: noarch" + chr(10) if package.architecture == "noarch" else ""}AutoReqProv: no
{relations}
%description
Made by the rackready lab: it has the name, version and dependencies of the real package and none of its contents.

%install
{f'cp -a "{tree}/." %{{buildroot}}/' if paths else ""}

{scriptlets}
%files
%defattr(-,root,root)
{listed}
{tail}"""


def _plain(text: str) -> str:
    return text.replace("%", "%%")


def write_source(package: Package, folder: Path, built_at: str, tail: str = "") -> Path:
    """Write the package's source into a folder of its own below FOLDER, which rpmbuild will see as BUILT_AT. What is in ``root`` there already stays."""
    place = folder / stem(package)
    root = place / "root"
    root.mkdir(parents=True, exist_ok=True)
    lay_out(package, root)
    paths = [f"/{path.relative_to(root)}" for path in root.rglob("*") if path.is_symlink() or not path.is_dir()]
    (place / "package.spec").write_text(spec(package, f"{built_at}/{place.name}/root", paths, tail), encoding="utf-8")
    return place
