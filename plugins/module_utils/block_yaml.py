# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A reader for the part of YAML that machines write as CDI specifications: block mappings, block sequences and one-line scalars.

The Python of a host often has no PyYAML. What is outside of that part (anchors, tags, flow collections with content, block and folded scalars, tabs, several
documents, keys that are no text, line breaks other than LF and CRLF) is refused with the line number instead of being guessed at. JSON is not read here.
"""

from __future__ import annotations

import re
from typing import Any, Tuple

DEPTH_LIMIT = 50
_QUOTED = re.compile(r"\"(?:[^\"\\]|\\.)*\"|'(?:[^']|'')*'")
_INDICATORS = "[]{}&*!|>%@`,#\"'"
# YAML takes some of these as line breaks, skips the byte order mark, and forbids the rest.
_NO_TEXT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ufeff]")
_NO_TEXT_KEYS = ("true", "false", "yes", "no", "on", "off", "null")
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,18})")
_SIMPLE_ESCAPES = {"n": "\n", "t": "\t", '"': '"', "\\": "\\", "/": "/", "0": "\0", "r": "\r", "e": "\x1b"}
_WORDS = {"": None, "~": None, "null": None, "true": True, "false": False}

_Line = Tuple[int, int, str]  # number, indentation, text


class NotBlockYaml(ValueError):
    """The text is not YAML of the part that is read here; the message names the line."""


def read_block_yaml(text: str) -> Any:
    """The one document in ``text`` as dicts, lists, strings, integers, booleans and None. Raises NotBlockYaml, and nothing else."""
    lines = _lines(text)
    if not lines:
        return None
    value, rest = _block(lines, 0, lines[0][1], 0)
    if rest != len(lines):
        raise NotBlockYaml(f"line {lines[rest][0]}: unexpected indentation")
    return value


def _lines(text: str) -> list[_Line]:
    lines: list[_Line] = []
    for number, raw in enumerate(text.split("\n"), 1):
        line = (raw[:-1] if raw.endswith("\r") else raw).rstrip(" ")
        content = line.lstrip(" ")
        if _NO_TEXT.search(content):
            raise NotBlockYaml(f"line {number}: a character that is no text")
        if not content or content.startswith("#"):
            continue
        if content == "---" and not lines:
            continue
        if content in ("---", "...") or content.startswith(("--- ", "%")):
            raise NotBlockYaml(f"line {number}: more than one document, or a directive")
        if "\t" in content:
            raise NotBlockYaml(f"line {number}: a tab")
        lines.append((number, len(line) - len(content), content))
    return lines


def _block(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Any, int]:
    """The value that starts at line ``at``, and the line after it."""
    number, _indent, content = lines[at]
    if depth > DEPTH_LIMIT:
        raise NotBlockYaml(f"line {number}: nested deeper than {DEPTH_LIMIT}")
    if content == "-" or content.startswith("- "):
        return _sequence(lines, at, indent, depth)
    if _split_key(content) is not None:
        return _mapping(lines, at, indent, depth)
    return _scalar(content, number), at + 1


def _sequence(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[list[Any], int]:
    items: list[Any] = []
    while at < len(lines) and lines[at][1] == indent and (lines[at][2] == "-" or lines[at][2].startswith("- ")):
        number, _indent, content = lines[at]
        inner = content[1:].lstrip(" ")
        if inner and not inner.startswith("#"):
            # "- key: value": the rest of the line is the first line of a block of its own, indented to where it stands.
            inner_indent = indent + len(content) - len(inner)
            lines[at] = (number, inner_indent, inner)
            item, at = _block(lines, at, inner_indent, depth + 1)
        elif at + 1 < len(lines) and lines[at + 1][1] > indent:
            item, at = _block(lines, at + 1, lines[at + 1][1], depth + 1)
        else:
            item, at = None, at + 1
        items.append(item)
    return items, at


def _mapping(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Any, int]:
    mapping = {}
    while at < len(lines) and lines[at][1] == indent:
        number, _indent, content = lines[at]
        parts = _split_key(content)
        if parts is None:
            break
        key, value = _key(parts[0], number), parts[1]
        if key in mapping:
            raise NotBlockYaml(f"line {number}: {key} is there twice")
        if value and not value.startswith("#"):
            mapping[key], at = _scalar(value, number), at + 1
        elif at + 1 < len(lines) and (lines[at + 1][1] > indent or (lines[at + 1][1] == indent and lines[at + 1][2].startswith("-"))):
            mapping[key], at = _block(lines, at + 1, lines[at + 1][1], depth + 1)
        else:
            mapping[key], at = None, at + 1
    return mapping, at


def _split_key(content: str) -> tuple[str, str] | None:
    """Key and value of ``key: value`` as written; None where the line is no such pair."""
    quoted = _QUOTED.match(content)
    if quoted:
        key, rest = quoted.group(), content[quoted.end() :].lstrip(" ")
        return (key, rest[1:].lstrip(" ")) if rest == ":" or rest.startswith(": ") else None
    key, colon, value = content.partition(": ")
    if not colon:
        key, value = (content[:-1], "") if content.endswith(":") else ("", "")
    if not key.strip(" ") or key[0] in _INDICATORS or " #" in key or key.startswith("? "):
        return None
    return key.rstrip(" "), value.strip(" ")


def _key(text: str, number: int) -> str:
    """YAML reads plain keys such as 0, 0x10, 1.5, .inf, ~ and yes as numbers and words: quoted they are text."""
    if text[0] not in "\"'" and (not text[0].isalpha() or text.lower() in _NO_TEXT_KEYS):
        raise NotBlockYaml(f"line {number}: the key {text[:40]} is no text")
    return str(_scalar(text, number))


def _scalar(text: str, number: int) -> Any:
    if text[0] == '"':
        return _double_quoted(text, number)
    if text[0] == "'":
        match = re.fullmatch(r"'((?:[^']|'')*)'(?: +#.*)?", text)
        if match is None:
            raise NotBlockYaml(f"line {number}: a quote that is not closed on its line")
        return match.group(1).replace("''", "'")
    plain = re.split(" +#", text, maxsplit=1)[0]
    if plain in ("[]", "{}"):
        return [] if plain == "[]" else {}
    if text[0] in "[{&*!|>%@`,]}" or text in ("-", "?") or text.startswith(("- ", "? ")):
        raise NotBlockYaml(f"line {number}: {text[:40]!r} is not read here")
    if re.search(":(?: |$)", plain):
        raise NotBlockYaml(f"line {number}: a mapping inside a value")
    if plain.lower() in _WORDS:
        return _WORDS[plain.lower()]
    return int(plain) if _INTEGER.fullmatch(plain) else plain


def _double_quoted(text: str, number: int) -> str:
    match = re.fullmatch(r'"((?:[^"\\]|\\.)*)"(?: +#.*)?', text)
    if match is None:
        raise NotBlockYaml(f"line {number}: a quote that is not closed on its line")

    def plain(escape: re.Match[str]) -> str:
        if escape.group(1) not in _SIMPLE_ESCAPES:
            raise NotBlockYaml(f"line {number}: the escape {escape.group()} is not read here")
        return _SIMPLE_ESCAPES[escape.group(1)]

    return re.sub(r"\\(.)", plain, match.group(1))
