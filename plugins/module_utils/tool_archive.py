# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A program in one file out of our own modules: an executable zip that Python runs, with whatever its entry point imports of them.

The same sources give the same bytes, on the controller that plans and on the host that writes: nothing is compressed, as that differs between versions of
zlib, and times, modes and order are fixed.
"""

from __future__ import annotations

import io
import re
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import Iterator

# The distribution's own Python and nothing that a login adds to it: on GPU hosts the first python3 of root's PATH is often one of conda.
INTERPRETER = "#!/usr/bin/python3 -I\n"
PACKAGE = "ansible_collections.rackready.gpu.plugins.module_utils"
MAIN = """\
# Managed by rackready: made of {package}.
import sys

from {package}.{entry} import main

sys.exit(main(sys.argv[1:]))
"""
_TIME = (1980, 1, 1, 0, 0, 0)
_FOLDER = Path(__file__).parent
# Not read as a syntax tree, which takes half a second of every run of the planner.
_IMPORT = re.compile(r"^[ \t]*from +(\S+) +import +(\([^)]*\)|.+)$", re.MULTILINE)


def build(entry: str) -> bytes:
    """The program whose ``main(arguments)`` is that of our module ``entry``; what it returns is the exit status."""
    folder = PACKAGE.replace(".", "/")
    files = {f"{folder}/{name}": data for name, data in sources(entry).items()}
    parts = folder.split("/")
    for depth in range(1, len(parts) + 1):
        files.setdefault("/".join([*parts[:depth], "__init__.py"]), b"")
    files["__main__.py"] = MAIN.format(package=PACKAGE, entry=entry).encode("utf-8")
    buffer = io.BytesIO()
    buffer.write(INTERPRETER.encode("utf-8"))
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(files):
            member = zipfile.ZipInfo(name, _TIME)
            member.create_system = 3  # Unix, also where it is built on another system
            member.external_attr = 0o644 << 16
            archive.writestr(member, files[name])
    return buffer.getvalue()


def sources(entry: str) -> dict[str, bytes]:
    """The files of our modules that ``entry`` needs, itself included: path below module_utils to text. OSError where one cannot be read."""
    modules = {entry: _module(entry)}
    todo = [entry]
    while todo:
        name = todo.pop()
        path, data = modules[name]
        inside = name.rpartition(".")[0]
        # A package is loaded before what is in it.
        for wanted in {inside, *_imports(data.decode("utf-8"), name if path.endswith("/__init__.py") else inside)} - {""} - set(modules):
            # What is imported from a module may be a module or anything in it.
            with suppress(OSError):
                modules[wanted] = _module(wanted)
                todo.append(wanted)
    return dict(modules.values())


def _imports(text: str, package: str) -> Iterator[str]:
    """What may be a module of ours among the imports of a file in ``package``: names below module_utils, dotted."""
    for origin, names in _IMPORT.findall(text):
        if origin.startswith("."):
            where = ".".join(part for part in (package, origin[1:]) if part)
        elif origin == PACKAGE or origin.startswith(f"{PACKAGE}."):
            where = origin[len(PACKAGE) + 1 :]
        else:
            continue
        yield where
        for entry in re.sub("#.*", "", names).strip("()\n ").split(","):
            name = entry.split(" as ")[0].strip()
            yield f"{where}.{name}" if where else name


def _module(name: str) -> tuple[str, bytes]:
    """Path and text of a module or package of ours."""
    path = name.replace(".", "/")
    try:
        return f"{path}.py", _read(f"{path}.py")
    except OSError:
        return f"{path}/__init__.py", _read(f"{path}/__init__.py")


def _read(path: str) -> bytes:
    """A file beside this one, from wherever this one was loaded: a checkout, an installed collection, or the archive that Ansible sends."""
    loader = __spec__.loader if __spec__ else None
    data = loader.get_data(str(_FOLDER / path)) if loader is not None and hasattr(loader, "get_data") else None
    if not isinstance(data, bytes):
        raise OSError(f"{path} cannot be read from where rackready was loaded ({_FOLDER})")
    return data
