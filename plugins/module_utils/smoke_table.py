# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The result of a smoke test for a terminal or a journal: verdict, what went wrong and what to do about it, then one line for each kind of check."""

from __future__ import annotations

from typing import Any, Mapping, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils.verdict import COULD_NOT_RUN, DEGRADED, FAIL, NO_RESULT, NOT_APPLICABLE, STATUSES, Check

WORDS = {status: status.replace("_", " ") for status in STATUSES}
# More of one kind help nobody at a terminal; the JSON has all of them.
AT_MOST = 12
GPUS_AT_MOST = 3


def render(host: str, result: Mapping[str, Any]) -> str:
    """The text, ended by a line break. ``result``: what the smoke test returned."""
    checks: Sequence[Check] = result["checks"]
    lines = [f"{host}: {result['verdict'].upper()} (tier {result['tier']}, {result['seconds']:.0f} s)", result["reason"]]
    if result["remedy"]:
        lines.append(f"What to do: {result['remedy']}")
    for status in (FAIL, COULD_NOT_RUN, DEGRADED):
        lines += _section(WORDS[status].upper(), [check for check in checks if check["status"] == status and check["required"]])
    told = [check for check in checks if check["status"] in (FAIL, COULD_NOT_RUN, DEGRADED) and not check["required"]]
    lines += _section("ADVICE, WHICH DECIDES NOTHING", told)
    lines += _table(checks)
    excused = _names([check for check in checks if check["status"] == NOT_APPLICABLE])
    if excused:
        lines += ["", f"Not applicable to this host: {', '.join(excused)}"]
    lines += ["", *(f"Not exercised: {sentence}" for sentence in result["not_exercised"])] if result["not_exercised"] else []
    return "".join(f"{line}\n" for line in lines)


def _names(checks: Sequence[Check]) -> list[str]:
    return list(dict.fromkeys(check["name"] for check in checks))


def _section(title: str, checks: Sequence[Check]) -> list[str]:
    """What has this status, the same of several GPUs in one entry. A check that only lacks a result is the consequence of another."""
    groups: dict[tuple[str, str], list[Check]] = {}
    for check in checks:
        if check["reason"] != NO_RESULT:
            # A figure's reason has its value in it, which differs from GPU to GPU: of those that do not fail the first is told.
            reason = (check["reason"] or "") if check["status"] == FAIL else ""
            groups.setdefault((check["name"], reason), []).append(check)
    if not groups:
        return []
    lines = ["", title]
    for alike in list(groups.values())[:AT_MOST]:
        first = alike[0]
        lines.append(f"  {first['name']}{_of_gpus(alike)}: {first['reason'] or 'no reason given'}")
        if first["remedy"]:
            lines.append(f"    What to do: {first['remedy']}")
    if len(groups) > AT_MOST:
        lines.append(f"  and {len(groups) - AT_MOST} more: --json has all of them")
    return lines


def _of_gpus(checks: Sequence[Check]) -> str:
    names = list(dict.fromkeys(check["gpu"]["pci_bus_id"] for check in checks if check["gpu"]))
    if not names:
        return ""
    more = f" and {len(names) - GPUS_AT_MOST} more" if len(names) > GPUS_AT_MOST else ""
    return f" on GPU {', '.join(names[:GPUS_AT_MOST])}{more}"


def _table(checks: Sequence[Check]) -> list[str]:
    """A line for each name, in the order of the checks; what was only excused has none."""
    rows = [("CHECK", "RESULT", "VALUE", "FLOOR")]
    for name in _names(checks):
        alike = [check for check in checks if check["name"] == name and check["status"] != NOT_APPLICABLE]
        if alike:
            rows.append((name, _result(alike), _range(alike, "value"), _range(alike, "floor")))
    if len(rows) == 1:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["", *("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows)]


def _result(checks: Sequence[Check]) -> str:
    """The statuses, the worst first, with their numbers where there are several checks: ``1 fail, 7 pass``."""
    counts = {word: sum(_word(check) == word for check in checks) for word in dict.fromkeys(map(_word, sorted(checks, key=_badness)))}
    text = ", ".join(f"{count} {word}" for word, count in counts.items()) if len(checks) > 1 else next(iter(counts))
    return text if any(check["required"] for check in checks) else f"{text} (advice)"


def _word(check: Check) -> str:
    return "no result" if check["reason"] == NO_RESULT else WORDS[check["status"]]


def _badness(check: Check) -> int:
    return (FAIL, COULD_NOT_RUN, DEGRADED).index(check["status"]) if check["status"] in (FAIL, COULD_NOT_RUN, DEGRADED) else len(STATUSES)


def _range(checks: Sequence[Check], key: str) -> str:
    """From the least to the greatest number, with the unit: ``662.1 to 668.4 TFLOP/s``. What is no number has no place in a table, and no floor either."""
    judged = [check for check in checks if _number(check["value"]) is not None]
    numbers = [number for number in (_number(check["value"] if key == "value" else check["floor"]) for check in judged) if number is not None]
    if not numbers:
        return ""
    least, greatest = _digits(min(numbers)), _digits(max(numbers))
    unit = next((check["unit"] for check in judged if check["unit"]), None)
    return f"{least}{f' to {greatest}' if greatest != least else ''}{f' {unit}' if unit else ''}"


def _number(told: Any) -> float | None:
    """A value or a floor as a number: of a figure its median, of pairs the slowest, of what they are judged by the least that it may be."""
    if isinstance(told, Mapping):
        told = next((told[key] for key in ("median", "slowest", "floor") if key in told), None)
    return told if isinstance(told, (int, float)) and not isinstance(told, bool) else None


def _digits(number: float) -> str:
    return f"{number:.4g}" if abs(number) < 1000 else f"{number:.0f}"
