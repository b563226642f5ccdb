# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads records and renders them: an overview of a fleet, a page (Markdown) for one host, JUnit XML for machines.

Records are read as they are, of any age: what one does not have is shown as a dash. Their shape is
plugins/plugin_utils/schemas/record.schema.json of the collection.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from xml.etree import ElementTree

from rich.console import Console
from rich.text import Text

Record: TypeAlias = Mapping[str, Any]

COLOURS = {
    "accepted": "green",
    "simulated": "cyan",
    "converged": "blue",
    "planned": "blue",
    "incomplete": "yellow",
    "interrupted": "yellow",
    "refused": "magenta",
    "rejected": "bold red",
    "failed": "red",
    "unreachable": "red",
}
GOOD = frozenset({"accepted", "simulated", "converged", "planned"})
MEANING = {
    "accepted": "every required check passed on the GPUs",
    "simulated": "every required check passed on a simulated host, whose CPU did the arithmetic; no GPU was tested",
    "converged": "installed as planned, not tested yet",
    "planned": "there is something to do, and nothing was changed",
    "incomplete": "a required check could not run, so nothing is proved",
    "interrupted": "the run was stopped before the host was done",
    "refused": "the plan or the preflight said no before anything was changed",
    "rejected": "a required check failed: the host must not be used",
    "failed": "a step failed, or the host is not as planned at the end",
    "unreachable": "there was no connection to the host",
}
SCHEMA = 1
NONE = "-"
# An overview is for finding the host to look at; its page has the whole sentence.
REASON_WIDTH = 300
GPUS_WIDTH = 16
GAP = "  "


class Found(NamedTuple):
    """A record and the file that it was read from."""

    record: Record
    path: Path


class NoRecordError(Exception):
    """There is nothing to show; the text says where it was looked for."""


def newest_records(directory: Path, hosts: Sequence[str] = ()) -> tuple[list[Found], list[str]]:
    """The newest readable record a host, sorted by host, and a sentence for each host that has none or whose newest is damaged.

    Raises NoRecordError when the directory holds no record at all.
    """
    folders = sorted(path for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []
    found: dict[str, Found] = {}
    problems: list[str] = []
    for folder in folders:
        newest, problem = _newest(folder)
        name = str(newest.record["host"]) if newest else folder.name
        if hosts and name not in hosts:
            continue
        if newest:
            found[name] = newest
        if problem:
            problems.append(f"{name}: {problem}")
    missing = [host for host in hosts if host not in found and not any(problem.startswith(f"{host}: ") for problem in problems)]
    problems.extend(f"{host}: no record in {directory}. Provision or plan it first." for host in missing)
    if not found and not problems:
        raise NoRecordError(f"no records in {directory}. Run a playbook first, or name their directory with --records.")
    return [found[name] for name in sorted(found)], problems


def _newest(folder: Path) -> tuple[Found | None, str | None]:
    latest = folder / "latest.json"
    record = _read(latest)
    if record:
        return Found(record, _lasting(folder, record) or latest), None
    # A killed run or a copy that stopped half-way: the others are whole or not there.
    others = [Found(record, path) for path in folder.glob("*.json") if path != latest and (record := _read(path))]
    if not others:
        return None, f"no readable record in {folder}"
    newest = max(others, key=lambda other: str(other.record.get("finished_at")))
    return newest, f"{latest} is missing or damaged; shown is the record of {newest.record.get('finished_at')}"


def _lasting(folder: Path, record: Record) -> Path | None:
    """The file of this record that later runs leave alone, which latest.json is not."""
    started = str(record.get("run_id")).partition("-")[0]
    candidates = sorted(folder.glob(f"{started}*.json")) if started.isalnum() else []
    return next((path for path in candidates if (_read(path) or {}).get("run_id") == record.get("run_id")), None)


def _read(path: Path) -> Record | None:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) and isinstance(record.get("host"), str) and record.get("schema") == SCHEMA else None


def all_good(records: Iterable[Record]) -> bool:
    """Whether no host needs anybody: each is accepted, simulated, converged or planned."""
    return all(record.get("outcome") in GOOD for record in records)


def dig(value: Any, *path: str) -> Any:
    """value[a][b]...; None where a step is missing."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def last_plan(record: Record) -> Mapping[str, Any]:
    """The newest plan in a record, {} when it has none."""
    plan = record.get("plan_after") or record.get("plan")
    return plan if isinstance(plan, Mapping) else {}


def driver_of(record: Record) -> str:
    """The driver version that the host runs, else the planned one."""
    planned = dig(last_plan(record), "areas", "nvidia_driver", "desired", "version")
    running = dig(record, "facts", "nvidia_smi", "driver_version") or dig(record, "facts", "modules", "nvidia", "version")
    return str(running or (f"({planned})" if planned else NONE))


def gpus_of(record: Record) -> str:
    """Number and names of the GPUs: by the driver where it runs, else the number by PCI."""
    named = dig(record, "facts", "nvidia_smi", "gpus") or []
    names = Counter(str(gpu.get("name")) for gpu in named if isinstance(gpu, Mapping))
    if names:
        return ", ".join(f"{count}x {name}" for name, count in sorted(names.items()))
    seen = dig(record, "facts", "gpus")
    return f"{len(seen)} on the PCI bus" if isinstance(seen, list) else NONE


def image_of(record: Record) -> str:
    """The image as it was asked for."""
    return str(dig(last_plan(record), "areas", "pytorch_image", "desired", "ref") or dig(record, "smoke_test", "image") or NONE)


def tier_of(record: Record) -> str:
    """The smoke test's tier."""
    return str(dig(last_plan(record), "areas", "smoke_test", "desired", "tier") or dig(record, "stamp", "tier") or NONE)


def overview(found: Sequence[Found], console: Console, command: str) -> None:
    """Prints one line a host with the reason, the remedy and the record's path under it, then what the outcomes mean. Fits the console's width.

    ``command`` is what was called, to be called again for one host.
    """
    columns = [_columns(entry.record) for entry in found]
    header = ("host", "outcome", "release", "time (UTC)", "GPUs")
    widths = [max(len(cell) for cell in column) for column in zip(header, *columns, strict=True)][:4]
    left = console.width - sum(widths) - len(GAP) * len(widths)
    console.print(Text(_row(header, widths), style="bold"))
    for entry, cells in zip(found, columns, strict=True):
        record, outcome = entry.record, cells[1]
        line = Text(_row((*cells[:4], _cut(cells[4], max(GPUS_WIDTH, left))), widths))
        line.stylize(COLOURS.get(outcome, ""), widths[0] + len(GAP), widths[0] + len(GAP) + len(outcome))
        console.print(line)
        for name, text in (("why", record.get("reason")), ("do now", record.get("remedy"))):
            if text:
                for part in _detail(name, str(text), console.width):
                    console.print(part)
        # Never wrapped: a path is for copying.
        console.print(Text(f"  {'record':6}  {entry.path}"), no_wrap=True, overflow="ignore", crop=False, soft_wrap=True)
    console.print()
    for outcome in dict.fromkeys(cells[1] for cells in columns):
        console.print(Text.assemble((outcome, COLOURS.get(outcome, "")), f": {MEANING.get(outcome, 'not known to this version')}"))
    console.print(Text(f"All about one host: {command} {found[0].record['host']}"), soft_wrap=True)


def _columns(record: Record) -> tuple[str, str, str, str, str]:
    time = str(record.get("finished_at") or NONE)[:16].replace("T", " ")
    return str(record["host"]), str(record.get("outcome")), str(record.get("release") or NONE), time, gpus_of(record).replace("NVIDIA ", "")


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    return GAP.join([*(cell.ljust(width) for cell, width in zip(cells, widths, strict=False)), cells[-1]])


def _detail(name: str, text: str, width: int) -> Iterable[Text]:
    """A sentence under its host; the lines that it goes on in are indented as it is. Text, not str: a reason with brackets is no markup."""
    parts = textwrap.wrap(_cut(" ".join(text.split()), REASON_WIDTH), max(20, width - 10), break_on_hyphens=False)
    return [Text(f"  {name if number == 0 else '':6}  {part}") for number, part in enumerate(parts)]


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


# --- The page ---


def page(record: Record, path: Path | None = None) -> str:
    """The record of one host for people, in Markdown. ``path``: where it lies."""
    parts = [_head(record, path), _installed(record), _changed(record), _checks(record), _together(record), _not_exercised(record), _still_to_do(record)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(record: Record, path: Path | None) -> str:
    outcome = str(record.get("outcome"))
    lines = [f"# {_escape(record['host'])}: {outcome}"]
    if outcome in MEANING:
        lines.append(f"{outcome.capitalize()}: {MEANING[outcome]}.")
    if record.get("reason"):
        lines.append(_escape(record["reason"]))
    if record.get("remedy"):
        lines.append(f"**Now:** {_escape(record['remedy'])}")
    rows = (
        ("Release", record.get("release")),
        ("Playbook", f"{record.get('playbook')}{' (check mode)' if record.get('check_mode') else ''}"),
        ("Time", f"{record.get('started_at')} to {record.get('finished_at')}"),
        ("Run", record.get("run_id")),
        ("Record", path),
        ("Made by", f"rackready {dig(record, 'versions', 'rackready')}, ansible-core {dig(record, 'versions', 'ansible')}"),
    )
    return "\n\n".join([*lines, _markdown_table(("", ""), rows)])


def _installed(record: Record) -> str:
    facts, plan = record.get("facts"), last_plan(record)
    mig = dig(plan, "areas", "mig", "desired", "gpus")
    layouts = Counter(_layout(gpu) for gpu in mig if isinstance(gpu, Mapping)) if isinstance(mig, list) else {}
    rows = (
        ("Distribution", dig(facts, "distribution", "name")),
        ("Kernel", dig(facts, "kernel", "release")),
        ("GPUs", gpus_of(record)),
        ("Driver", " ".join(part for part in (driver_of(record), dig(facts, "modules", "nvidia", "flavour")) if part)),
        ("Fabric manager", _package(facts, "nvidia-fabricmanager")),
        ("Container engine", dig(facts, "docker", "version")),
        ("Container toolkit", _package(facts, "nvidia-container-toolkit")),
        ("MIG", ", ".join(f"{count} GPUs {layout}" for layout, count in layouts.items()) or None),
        ("Image", image_of(record)),
        ("Image digest", dig(plan, "areas", "pytorch_image", "desired", "digest")),
        ("Smoke test", tier_of(record)),
        ("Stamp", dig(record, "stamp", "time")),
    )
    return "## Installed\n\n" + _markdown_table(("", ""), rows) if facts or plan else ""


def _layout(gpu: Mapping[str, Any]) -> str:
    profiles = Counter(str(instance.get("profile")) for instance in gpu.get("instances") or [] if isinstance(instance, Mapping))
    return f"{gpu.get('mode')}" + (f" ({', '.join(f'{count}x {profile}' for profile, count in profiles.items())})" if profiles else "")


def _package(facts: Any, name: str) -> str | None:
    package = dig(facts, "packages", "installed", name)
    return f"{package.get('version')}{' (held)' if package.get('held') else ''}" if isinstance(package, Mapping) else None


def _changed(record: Record) -> str:
    entries = record.get("changed") or []
    if not entries:
        return "## Changed\n\nNothing." if record.get("plan") else ""
    title = "## Would change" if record.get("check_mode") else "## Changed"
    lines = []
    for entry in entries:
        role = f"{entry['role']}: " if entry.get("role") else ""
        actions = f" ({'; '.join(entry['actions'])})" if entry.get("actions") else ""
        lines.append(f"- {_escape(role + str(entry.get('task')) + actions)}")
    return f"{title}\n\n" + "\n".join(lines)


def _checks(record: Record) -> str:
    ran = [check for check in record.get("checks") or [] if check.get("status") != "not_applicable"]
    if not ran:
        return "" if record.get("cluster") else "## Checks\n\nNo smoke test ran in this run."
    again = [f"Run again after {retry.get('seconds')} s: {_escape(retry.get('reason'))}" for retry in dig(record, "smoke_test", "retries") or []]
    return "\n\n".join(["## Checks", *again, _check_table(ran)])


def _together(record: Record) -> str:
    """What a test together with other hosts found."""
    ran = [check for check in dig(record, "cluster", "checks") or [] if check.get("status") != "not_applicable"]
    if not ran:
        return ""
    hosts = ", ".join(str(name) for name in dig(record, "cluster", "hosts") or [])
    return "\n\n".join([f"## Checks of {hosts} together", _check_table(ran)])


def _check_table(checks: Iterable[Mapping[str, Any]]) -> str:
    rows = [
        (
            check.get("name"),
            _gpu(check),
            check.get("status"),
            _figure(check.get("value")),
            _figure(check.get("floor")),
            check.get("unit"),
            " Now: ".join(str(check[key]) for key in ("reason", "remedy") if check.get(key)),
        )
        for check in checks
    ]
    return _markdown_table(("check", "GPU", "status", "value", "floor", "unit", "reason and remedy"), rows, keep_empty=True)


def _gpu(check: Mapping[str, Any]) -> Any:
    return dig(check, "gpu", "pci_bus_id") or dig(check, "gpu", "uuid")


def _figure(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, Mapping):
        # A measurement with its samples and conditions, or a floor with its source: the record has all of it.
        number = next((value[key] for key in ("median", "best", "floor") if isinstance(value.get(key), (int, float))), None)
        value = value if number is None else float(number)
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _not_exercised(record: Record) -> str:
    every = [*(record.get("checks") or []), *(dig(record, "cluster", "checks") or [])]
    skipped = [check for check in every if check.get("status") in ("not_applicable", "could_not_run")]
    lines = [f"- {_escape(check.get('name'))} ({check.get('status')}): {_escape(check.get('reason') or 'no reason given')}" for check in skipped]
    lines.extend(f"- {_escape(sentence)}" for sentence in dig(record, "smoke_test", "not_exercised") or [])
    if record.get("outcome") == "simulated":
        lines.append("- the GPUs: this is a simulated host, the arithmetic ran on its CPU")
    return "## Not exercised\n\n" + "\n".join(lines) if lines else ""


def _still_to_do(record: Record) -> str:
    plan = last_plan(record)
    lines = [f"- {_escape(sentence)}" for sentence in (*(plan.get("refusals") or []), *(plan.get("warnings") or []))]
    areas = plan.get("areas")
    for name, area in areas.items() if isinstance(areas, Mapping) else ():
        if isinstance(area, Mapping) and not area.get("converged") and not (name == "smoke_test" and record.get("verdict")):
            lines.extend(f"- {name}: {_escape(action)}" for action in area.get("actions") or ["differs"])
    return "## Refusals, warnings and what is still to do\n\n" + "\n".join(lines) if lines else ""


def _markdown_table(header: Sequence[str], rows: Iterable[Sequence[Any]], keep_empty: bool = False) -> str:
    """Rows whose second cell is empty are left out unless keep_empty."""
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for row in rows:
        if keep_empty or row[1] not in (None, "", NONE):
            lines.append(f"| {' | '.join(_cell(cell) for cell in row)} |")
    return "\n".join(lines)


def _cell(value: Any) -> str:
    return "" if value is None else _escape(value).replace("|", "\\|")


def _escape(value: Any) -> str:
    """One line of text in which a host's own words cannot become markup."""
    return re.sub(r"([\\`<\[*])", r"\\\1", " ".join(str(value).split()))


# --- JUnit ---


def junit(records: Iterable[Record]) -> bytes:
    """JUnit XML: a suite a host, a case a check and one called outcome, so that a host without checks cannot look green."""
    root = ElementTree.Element("testsuites", name="rackready")
    for record in records:
        cases = [_outcome_case(record), *(_check_case(record, check) for check in [*(record.get("checks") or []), *(dig(record, "cluster", "checks") or [])])]
        count = Counter(child.tag for case in cases for child in case)
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            name=_xml(record["host"]),
            timestamp=_xml(record.get("finished_at")).rstrip("Z"),
            tests=str(len(cases)),
            failures=str(count["failure"]),
            errors=str(count["error"]),
            skipped=str(count["skipped"]),
        )
        suite.extend(cases)
    document: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def _outcome_case(record: Record) -> ElementTree.Element:
    case = ElementTree.Element("testcase", classname=_xml(record["host"]), name="outcome")
    outcome = str(record.get("outcome"))
    if outcome not in GOOD:
        message = ElementTree.SubElement(case, "failure", type=_xml(outcome), message=_xml(record.get("reason")))
        message.text = _xml(record.get("remedy"))
    return case


def _check_case(record: Record, check: Mapping[str, Any]) -> ElementTree.Element:
    gpu = _gpu(check)
    name = f"{check.get('name')} [{gpu}]" if gpu else str(check.get("name"))
    case = ElementTree.Element("testcase", classname=_xml(record["host"]), name=_xml(name), time=f"{float(check.get('duration_s') or 0):.3f}")
    status = str(check.get("status"))
    figures = f"value {_figure(check.get('value'))}, floor {_figure(check.get('floor'))} {check.get('unit') or ''}".rstrip()
    # A check that is not required cannot fail the host; JUnit has no word for that but its output.
    tag = {"fail": "failure", "could_not_run": "error", "not_applicable": "skipped"}.get(status)
    if tag and (check.get("required", True) or tag == "skipped"):
        message = ElementTree.SubElement(case, tag, message=_xml(check.get("reason") or status))
        if tag != "skipped":
            message.set("type", status)
            message.text = _xml(" ".join(part for part in (figures, str(check.get("remedy") or "")) if part))
    else:
        ElementTree.SubElement(case, "system-out").text = _xml(f"{status}: {figures}")
    return case


def _xml(value: Any) -> str:
    # XML 1.0 has no way to write the other control characters.
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", "" if value is None else str(value))
