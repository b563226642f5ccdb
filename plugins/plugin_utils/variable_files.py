# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Files of variables that cannot be used: the lock above all, which people copy and merge. Pure, and one sentence for each."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

LOCK_FILE = "rackready_images.yml"
VAULT_REMEDY = "give the password of the vault (--ask-vault-pass or --vault-id)"
_WORDS_LENGTH = 200
_KINDS = {"str": "text", "int": "number", "float": "number", "bool": "truth value"}


def lock_remedy(path: str, pin: str) -> str:
    """What to do about a lock file that cannot be used. Ansible reads it for pin.yml too, so one that is no YAML has to go first."""
    return f"take it back from version control, or remove it and write it again (rm {shlex.quote(path)} && {pin})"


def inventory_options(sources: Iterable[str]) -> str:
    """The inventories of a run as options of a command, as short as a person would type them, each followed by a space."""
    named = [os.path.relpath(source) if _directory(source) is not None else source for source in sources]
    return "".join(f"-i {shlex.quote(name)} " for name in named)


def unreadable(error: BaseException, inventory: str = "") -> str:
    """Why Ansible cannot read the variables of a host, and what to do now. ``inventory`` is the run's own options, each followed by a space.

    Ansible's message does not always say which file it is about; the errors that it was made from do.
    """
    path, line = _place(error)
    words = _words(error, path)
    if path is None:
        place = "The variables of this host"
        remedy = VAULT_REMEDY if "vault" in words.lower() else "correct what the message names"
    else:
        place = f"{path}, line {line}," if line else path
        remedy = lock_remedy(path, f"ansible-playbook {inventory}playbooks/pin.yml") if Path(path).name == LOCK_FILE else "correct the file"
    return f"{place} cannot be read ({words}), so nothing is known of what this host shall be: {remedy}."


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _place(error: BaseException) -> tuple[str | None, int | None]:
    """File and line of an error of Ansible's, from the first of its causes that has them."""
    for cause in _chain(error):
        origin: Any = getattr(cause, "obj", None)
        if getattr(origin, "path", None):
            return str(origin.path), getattr(origin, "line_num", None)
    for cause in _chain(error):
        named = re.search(r"'(/[^']+)'", str(cause))
        if named:
            return named.group(1), None
    return None, None


def _words(error: BaseException, path: str | None) -> str:
    """The first line of a message, without what is said of the file already."""
    text = str(error).strip().partition("\n")[0].removeprefix("YAML parsing failed: ").rstrip(".:") or type(error).__name__
    other = re.search(r"expected dicts but got a 'dict' and a '(?:_AnsibleTagged)?(\w+)'", text)
    if other:
        text = f"it holds a {_KINDS.get(other.group(1).lower(), other.group(1).lower())} and not a mapping"
    elif path is not None:
        text = text.replace(f"'{path}'", "the file")
    return text if len(text) <= _WORDS_LENGTH else f"{text[: _WORDS_LENGTH - 1]}…"


def repeated_key(text: str) -> tuple[str, int] | None:
    """The first key that stands twice in one mapping, with the line of its second place; None also for a text that is no YAML.

    YAML's readers take the last one: after a merge that kept both sides, half of an older lock would count.
    """
    try:
        root = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError):
        return None
    waiting = [root] if root is not None else []
    known = set()  # an alias stands for a node that is somewhere else too, and that may even hold the alias
    while waiting:
        node = waiting.pop()
        if id(node) in known:
            continue
        known.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            seen = set()
            for key, value in node.value:
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        return str(key.value), key.start_mark.line + 1
                    seen.add(key.value)
                waiting.append(value)
    return None


def wrong_locks(sources: Iterable[str]) -> list[str]:
    """A sentence for each lock file of these inventories that Ansible reads and that is none: a key stands twice in it, or there is no lock."""
    found = []
    seen = set()
    for source in sources:
        directory = _directory(source)
        if directory is None or directory in seen:
            continue
        seen.add(directory)
        path = directory / "group_vars" / "all" / LOCK_FILE
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):  # absent, or Ansible could not read it either
            continue
        repeated = repeated_key(text)
        pin = f"ansible-playbook -i {shlex.quote(source)} playbooks/pin.yml"
        if repeated is not None:
            key, line = repeated
            found.append(f"{path}, line {line}, has {key} for the second time, so it is not clear what is locked: {lock_remedy(str(path), pin)}.")
        elif "rackready_lock" not in text and not text.startswith("$ANSIBLE_VAULT"):
            what = "has no rackready_lock in it" if text.strip() else "is empty"
            found.append(f"{path} {what}, so nothing is locked: {lock_remedy(str(path), pin)}.")
    return found


def _directory(source: str) -> Path | None:
    """Where an inventory lies; None for a list of hosts, which can be longer than any name of a file."""
    path = Path(source)
    try:
        return path if path.is_dir() else path.parent if path.exists() else None
    except OSError:
        return None
