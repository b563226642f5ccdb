# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where records lie, and writing them so that a reader sees a whole record or none."""

from __future__ import annotations

import errno
import itertools
import json
import os
import pwd
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LATEST = "latest.json"
PRIVATE = 0o600
# Characters that are written to see whether a record and its copy can be; those of an eight-GPU host have fewer.
TRIAL_LENGTH = 1 << 19


@dataclass
class Destination:
    """Where the records of a run go; without a project nobody writes any."""

    project: Path | None = None
    inventories: tuple[Path, ...] = ()


# Of the run in this process. The callback that writes the records fills it in when a playbook begins; Ansible forks its workers later, so actions see it.
RUN = Destination()


def project_directory(playbook: Path | None, current: Path) -> Path:
    """The project that a playbook belongs to: the nearest folder above it with a galaxy.yml, else the current directory.

    A collection that was installed (some folder above is called ansible_collections) is nobody's project.
    """
    if playbook is not None:
        for folder in playbook.resolve().parents:
            if folder.name == "ansible_collections":
                break
            if (folder / "galaxy.yml").is_file() and "ansible_collections" not in folder.parts:
                return folder
    return current


def playbook_name(playbook: Path | None, project: Path) -> str:
    """The playbook as somebody in the project names it: playbooks/verify.yml; its whole path when it lies elsewhere."""
    if playbook is None:
        return ""
    resolved, root = playbook.resolve(), project.resolve()
    return str(resolved.relative_to(root)) if resolved.is_relative_to(root) else str(resolved)


def records_directory(configured: str | None, project: Path) -> Path:
    """rackready_records_dir where it is set (a relative one lies in the project), else records/ of the project."""
    return project / Path(configured).expanduser() if configured else project / "records"


def _in_inventory(directory: Path, inventories: Iterable[Path]) -> str | None:
    """Ansible reads every file of an inventory directory as inventory."""
    resolved = directory.resolve()
    for inventory in inventories:
        if _is_directory(inventory) and (resolved == inventory.resolve() or inventory.resolve() in resolved.parents):
            return f"it lies inside the inventory {inventory}"
    return None


def problem_with(directory: Path, inventories: Iterable[Path]) -> str | None:
    """Why no record can be written to this directory, before the run has taken its time; None when nothing speaks against it."""
    inside = _in_inventory(directory, inventories)
    if inside is not None:
        return inside
    resolved = directory.resolve()
    existing = next(folder for folder in (resolved, *resolved.parents) if folder.exists())
    if not existing.is_dir():
        return f"{existing} is not a directory"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} is not writable"
    return None


def refusal(host: str, configured: str | None, destination: Destination) -> str | None:
    """Why nothing may be changed on a host: what is done there could not be recorded. None where a record can be written, which is tried, or nobody writes any.

    ``configured`` is the host's rackready_records_dir. Permissions and free space that are only asked for are wrong for root, quotas and network file systems.
    """
    if destination.project is None:
        return None
    directory = records_directory(configured, destination.project)
    why, remedy = _in_inventory(directory, destination.inventories), ""
    if why is None:
        try:
            _try_to_write(directory / folder_of(host))
            return None
        except OSError as error:
            why, remedy = f"{error.filename or directory}: {error.strerror or error}", _remedies(directory).get(error.errno or 0, "")
    return (
        f"No record can be written to {directory} on the controller by the user {_user()} ({why}), so nobody could tell afterwards what was done: "
        f"{remedy}set rackready_records_dir to a directory that can be written, then run again."
    )


def _remedies(directory: Path) -> dict[int, str]:
    """By error number: what to do, before the remedy that always helps."""
    owner, room = f"give it to that user (chown -R {_user()} {directory}), or ", f"make room there (df -h {directory}), or "
    return {errno.EACCES: owner, errno.EPERM: owner, errno.ENOSPC: room, errno.EDQUOT: room, errno.EROFS: "mount its file system writable, or "}


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _try_to_write(folder: Path) -> None:
    """Raises OSError where a record could not be written now."""
    folder.mkdir(parents=True, exist_ok=True)
    trial = folder / f".trial-{os.getpid()}.tmp"
    try:
        _write_private(trial, " " * TRIAL_LENGTH)
    finally:
        with suppress(OSError):
            trial.unlink()


def _is_directory(path: Path) -> bool:
    """Also of a list of hosts in place of a path, which can be longer than any name of a file."""
    try:
        return path.is_dir()
    except OSError:
        return False


def folder_of(host: str) -> str:
    """A host's folder name: the host's own name, made safe where it could lead out of the records directory."""
    safe = host.replace("%", "%25").replace("/", "%2F").replace("\0", "%00")
    return safe.replace(".", "%2E") if safe in (".", "..") else safe


def write_record(directory: Path, stamp: str, record: Mapping[str, Any], written: Path | None = None) -> Path:
    """Writes <directory>/<host>/<stamp>.json and latest.json (each appears whole, by rename, for its owner alone); returns the first one's path.

    stamp: the run's UTC time, 20261201T040506Z; a second record of that host and time gets -2, and so on. written: this run's earlier record
    of that host, which is replaced. Raises OSError.
    """
    folder = directory / folder_of(str(record["host"]))
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, ensure_ascii=False, indent=2, allow_nan=False) + "\n"
    path = written or _reserved(folder, stamp)
    temporary, latest = _temporary(path), folder / f".{LATEST}.{path.stem}.tmp"
    try:
        _write_private(temporary, text)
        temporary.replace(path)
        _write_private(latest, text)
        latest.replace(folder / LATEST)
    except OSError:
        for unfinished in (temporary, latest):
            with suppress(OSError):
                unfinished.unlink()
        raise
    return path


def _write_private(path: Path, text: str) -> None:
    """Nobody else may read a record: it names everything that is on a host."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        os.fchmod(descriptor, PRIVATE)  # a leftover of that name may have had another mode
        stream.write(text)
        stream.flush()
        os.fsync(descriptor)


def _temporary(path: Path) -> Path:
    return path.with_name(f".{path.name}.tmp")


def _reserved(folder: Path, stamp: str) -> Path:
    """A path that no other run has or gets: whoever creates the temporary file owns the name, and keeps it until the record is there."""
    for number in itertools.count(1):
        path = folder / (f"{stamp}.json" if number == 1 else f"{stamp}-{number}.json")
        try:
            _temporary(path).touch(PRIVATE, exist_ok=False)
        except FileExistsError:
            continue
        if not path.exists():
            return path
        _temporary(path).unlink()
    raise AssertionError("unreachable: the count has no end")
