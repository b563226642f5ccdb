# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""A .deb of a stand-in: its control file, its maintainer scripts, and dpkg-deb."""

from __future__ import annotations

import os
import subprocess
import tempfile
import textwrap
from collections.abc import Callable
from pathlib import Path

from gpu_host.package import TIME, Package, Start, lay_out

_FIELDS = {"depends": "Depends", "suggests": "Suggests", "provides": "Provides", "conflicts": "Conflicts", "replaces": "Replaces"}
_SIGNS = {"=": "=", ">=": ">=", "<": "<<"}
_RELOAD = "if [ -d /run/systemd/system ]; then systemctl --system daemon-reload >/dev/null || true; fi\n"


def file_name(package: Package) -> str:
    return f"{package.name}_{package.version}_{package.architecture}.deb"


def control(package: Package) -> str:
    """The control file."""
    fields = {
        "Package": package.name,
        "Version": package.version,
        "Architecture": package.architecture,
        "Maintainer": "rackready lab <lab@rackready.invalid>",
        "Section": "utils",
        "Priority": "optional",
        **({"Multi-Arch": "same"} if package.has_libraries else {}),
        **{_FIELDS[kind]: ", ".join(relation(each) for each in them) for kind, them in package.relations.items() if them},
        "Description": f"stand-in of the rackready lab: {package.summary}",
    }
    text = "".join(f"{name}: {value}\n" for name, value in fields.items())
    return text + " Made by the rackready lab: it has the name, version and dependencies of the real package and none of its contents.\n"


def relation(text: str) -> str:
    """``name = version | other`` as the control file has it: ``name (= version) | other``."""
    choices = []
    for choice in text.split(" | "):
        words = choice.split()
        choices.append(words[0] if len(words) == 1 else f"{words[0]} ({_SIGNS[words[1]]} {words[2]})")
    return " | ".join(choices)


def scripts(package: Package) -> dict[str, str]:
    """Maintainer scripts, name -> text; none that has nothing to do."""
    start = {Start.BY_POLICY: _start_by_policy, Start.NEVER: _reload, Start.AT_ONCE: _start_at_once}[package.start]
    stop = _stop_and_disable if package.start is Start.AT_ONCE else _stop
    bodies = {
        "postinst": _guard("configure", package.installed) + (start(package.units) if package.units else ""),
        "prerm": package.leaving + (_guard("remove", stop(package.units)) if package.units else ""),
        "postrm": _forget(package.units) if package.units and package.start is not Start.AT_ONCE else "",
    }
    return {name: f"#!/bin/sh\nset -e\n{body}" for name, body in bodies.items() if body}


def _guard(action: str, body: str) -> str:
    return f'if [ "$1" = {action} ]; then\n{textwrap.indent(body, "  ")}fi\n' if body else ""


def _start_by_policy(units: tuple[str, ...]) -> str:
    """As debhelper's scripts: policy-rc.d decides about starting."""
    text = "".join(
        f"""\
deb-systemd-helper unmask {unit} >/dev/null || true
if deb-systemd-helper --quiet was-enabled {unit}; then
  deb-systemd-helper enable {unit} >/dev/null || true
else
  deb-systemd-helper update-state {unit} >/dev/null || true
fi
if [ -d /run/systemd/system ]; then
  systemctl --system daemon-reload >/dev/null || true
  if [ -n "$2" ]; then action=restart; else action=start; fi
  deb-systemd-invoke "$action" {unit} >/dev/null || true
fi
"""
        for unit in units
    )
    return _guard("configure", text)


def _reload(_units: tuple[str, ...]) -> str:
    return _RELOAD


def _start_at_once(units: tuple[str, ...]) -> str:
    """As NVIDIA's toolkit: systemctl and not deb-systemd-invoke, so policy-rc.d is not asked, and only where systemd runs."""
    enable = "".join(f'systemctl enable --now {unit} || echo "Warning: Failed to enable {unit}" >&2\n' for unit in units)
    return f"""\
if [ "$1" = configure ] && command -v systemctl >/dev/null 2>&1; then
  case "$(systemctl is-system-running 2>/dev/null || true)" in
    running|degraded)
      systemctl daemon-reload || true
{textwrap.indent(enable, "      ")}      ;;
  esac
fi
"""


def _stop(units: tuple[str, ...]) -> str:
    return "if [ -d /run/systemd/system ]; then\n" + "".join(f"  deb-systemd-invoke stop {unit} >/dev/null || true\n" for unit in units) + "fi\n"


def _stop_and_disable(units: tuple[str, ...]) -> str:
    return f"if [ -d /run/systemd/system ]; then\n  systemctl disable --now {' '.join(units)} || true\nfi\n"


def _forget(units: tuple[str, ...]) -> str:
    purge = "".join(f"  deb-systemd-helper purge {unit} >/dev/null || true\n  deb-systemd-helper unmask {unit} >/dev/null || true\n" for unit in units)
    return f'if [ "$1" = purge ] && [ -x /usr/bin/deb-systemd-helper ]; then\n{purge}fi\n{_RELOAD}'


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env={**os.environ, "SOURCE_DATE_EPOCH": TIME})


def build(package: Package, folder: Path, run: Callable[[list[str]], None] = _run) -> Path:
    """Build the package into FOLDER.

    :raises subprocess.CalledProcessError: dpkg-deb failed.
    """
    out = folder / file_name(package)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="stand-in-") as scratch:
        directory = Path(scratch) / "root"
        meta = directory / "DEBIAN"
        meta.mkdir(parents=True)
        (meta / "control").write_text(control(package), encoding="utf-8")
        if package.configuration:
            (meta / "conffiles").write_text("".join(path + "\n" for path in package.configuration), encoding="utf-8")
        for name, script in scripts(package).items():
            (meta / name).write_text(script, encoding="utf-8")
            (meta / name).chmod(0o755)
        if package.has_libraries:
            (meta / "triggers").write_text("activate-noawait ldconfig\n", encoding="utf-8")
        lay_out(package, directory)
        run(["dpkg-deb", "--root-owner-group", "-Zgzip", "-z1", "--build", str(directory), str(out)])
    return out
