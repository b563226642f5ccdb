# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Records are kept for years, sent to suppliers and pasted into tickets: what a site keeps secret must not be in them.

Hidden is what sites put secrets into, by place and by form: the values of the tests' environment and of daemon.json, the user part of addresses, and whatever
follows a name that says password, secret, token or key. Names stay, so that a record shows what was set. Everything here may be applied again.
"""

from __future__ import annotations

import json
import math
import re
import shlex
from collections.abc import Mapping
from typing import Any

MASK = "********"
DAEMON_JSON = "/etc/docker/daemon.json"

_WORDS = r"(?:password|passwd|passphrase|secret|token|api[_-]?key|credentials?|private[_-]?key)"
_SECRET_NAME = re.compile(_WORDS + "$", re.IGNORECASE)
_SECRET_WORD = re.compile(_WORDS, re.IGNORECASE)
# user:password@, and a token alone; up to the last @ before the path, for a password may hold one.
_URL_USER = re.compile(r"""(?<=://)[^/\s"'<>]*@""")
_ASSIGNED = (
    re.compile(_WORDS + r"""\s*=\s*["']?(?P<value>[^\s"',;&]+)""", re.IGNORECASE),
    re.compile(_WORDS + r"""["']\s*:\s*["'](?P<value>[^"']+)""", re.IGNORECASE),
    re.compile(r"--[\w-]*" + _WORDS + r"\s+(?P<value>[^\s-]\S*)", re.IGNORECASE),
)
# Environments: every value. Of the engine's configuration: every text; its numbers and switches are no secrets, and its paths are in the facts.
_ENVIRONMENTS = frozenset({"env", "smoke_test_env"})
_ENGINE = frozenset({"daemon_json", "docker_daemon_options"})
_ENGINE_TEXT = frozenset({"daemon_json_text", DAEMON_JSON})
_DROP_IN = re.compile(r"/(?:etc|usr/lib)/systemd/system/.+\.d/.+\.conf")


def to_plain(value: object, name: str = "") -> Any:
    """value in JSON's own types only: text that UTF-8 can hold, no NaN, and no secrets. ``name`` is the key that it stands under."""
    if name in _ENVIRONMENTS or name in _ENGINE:
        return _masked(value, everything=name in _ENVIRONMENTS)
    if isinstance(value, Mapping):
        return {plain_text(str(key)): to_plain(item, str(key)) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [to_plain(item, name) for item in value]
    if isinstance(value, str) and name in _ENGINE_TEXT:
        return _engine_text(value)
    if isinstance(value, str) and _DROP_IN.fullmatch(name):
        return plain_text(_drop_in(value))
    return _scalar(value, name)


def _scalar(value: object, name: str) -> bool | int | float | str | None:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return MASK if _SECRET_NAME.search(name) else plain_text(str(value))


def _masked(value: object, everything: bool) -> Any:
    """The same names with masked values; not everything: numbers, true, false and null stay."""
    if isinstance(value, Mapping):
        return {plain_text(str(key)): _masked(item, everything) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked(item, everything) for item in value]
    if value is None or (not everything and isinstance(value, bool | int | float)):
        return _scalar(value, "")
    return MASK


def _engine_text(text: str) -> str:
    try:
        return json.dumps(_masked(json.loads(text), everything=False), indent=2) + "\n"
    except (ValueError, RecursionError):
        return MASK


def _drop_in(text: str) -> str:
    """A systemd drop-in without the values of its Environment= lines."""
    lines = text.replace("\\\n", " ").splitlines(keepends=True) if "Environment" in text else [text]
    return "".join(_environment_line(line) for line in lines)


def _environment_line(line: str) -> str:
    key, equals, rest = line.partition("=")
    if not equals or key.strip() != "Environment" or not rest.strip():
        return line
    end = line[len(line.rstrip("\r\n")) :]
    try:
        return "Environment=" + " ".join(f"{entry.partition('=')[0]}={MASK}" for entry in shlex.split(rest)) + end
    except ValueError:
        return f"Environment={MASK}{end}"


def plain_text(text: str) -> str:
    """Text that UTF-8 can hold, without what looks like a secret in it."""
    # str.__str__ of a subclass may return the subclass; encoding gives plain text and shows bytes that were never UTF-8 as such.
    plain = text.encode("utf-8", "surrogateescape" if _escaped(text) else "replace").decode("utf-8", "replace")
    if "://" in plain:
        plain = _URL_USER.sub(f"{MASK}@", plain)
    if _SECRET_WORD.search(plain):
        for form in _ASSIGNED:
            plain = form.sub(_without_value, plain)
    return plain


def _without_value(match: re.Match[str]) -> str:
    whole = match.group()
    return whole[: match.start("value") - match.start()] + MASK + whole[match.end("value") - match.start() :]


def _escaped(text: str) -> bool:
    # Only these surrogates stand for bytes; any other is refused by the handler.
    return not any("\ud800" <= char <= "\udfff" and not "\udc80" <= char <= "\udcff" for char in text)
