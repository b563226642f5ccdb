# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""Reads records and renders them: a table for a fleet, a page (Markdown) for one host, JUnit XML for machines.

Records are read as they are, of any age: what one does not have is shown as a dash. Their shape is
plugins/plugin_utils/schemas/record.schema.json of the collection.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias
from xml.etree import ElementTree

from rich.table import Table
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
SCHEMA = 1
NONE = "-"
# A table is for finding the host to look at; its page has the whole sentence.
REASON_WIDTH = 120


class NoRecordError(Exception):
    """There is nothing to show; the text says where it was looked for."""


def newest_records(directory: Path, hosts: Sequence[str] = ()) -> tuple[list[Record], list[str]]:
    """The newest readable record a host, sorted by host, and a sentence for each host that has none or whose newest is damaged.

    Raises NoRecordError when the directory holds no record at all.
    """
    folders = sorted(path for path in directory.iterdir() if path.is_dir()) if directory.is_dir() else []
    found: dict[str, Record] = {}
    problems: list[str] = []
    for folder in folders:
        record, problem = _newest(folder)
        name = str(record["host"]) if record else folder.name
        if hosts and name not in hosts:
            continue
        if record:
            found[name] = record
        if problem:
            problems.append(f"{name}: {problem}")
    missing = [host for host in hosts if host not in found and not any(problem.startswith(f"{host}: ") for problem in problems)]
    problems.extend(f"{host}: no record in {directory}. Provision or plan it first." for host in missing)
    if not found and not problems:
        raise NoRecordError(f"no records in {directory}. Run a playbook first, or name their directory with --records.")
    return [found[name] for name in sorted(found)], problems


def _newest(folder: Path) -> tuple[Record | None, str | None]:
    record = _read(folder / "latest.json")
    if record:
        return record, None
    # A killed run or a copy that stopped half-way: the others are whole or not there.
    others = [record for path in folder.glob("*.json") if path.name != "latest.json" and (record := _read(path))]
    if not others:
        return None, f"no readable record in {folder}"
    newest = max(others, key=lambda other: str(other.get("finished_at")))
    return newest, f"{folder / 'latest.json'} is missing or damaged; shown is the record of {newest.get('finished_at')}"


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
    return str(len(seen)) if isinstance(seen, list) else NONE


def image_of(record: Record) -> str:
    """The image as it was asked for."""
    return str(dig(last_plan(record), "areas", "pytorch_image", "desired", "ref") or dig(record, "smoke_test", "image") or NONE)


def tier_of(record: Record) -> str:
    """The smoke test's tier."""
    return str(dig(last_plan(record), "areas", "smoke_test", "desired", "tier") or dig(record, "stamp", "tier") or NONE)


def table(records: Iterable[Record]) -> Table:
    """One row a host; long names and reasons are shortened."""
    shown = Table(show_edge=False, pad_edge=False)
    for column in ("host", "outcome", "release", "driver", "GPUs", "image", "tier", "time (UTC)", "reason"):
        shown.add_column(column, overflow="fold", no_wrap=column in ("host", "outcome"))
    for record in records:
        outcome = str(record.get("outcome"))
        cells = (
            str(record.get("release") or NONE),
            driver_of(record),
            gpus_of(record).replace("NVIDIA ", ""),
            image_of(record).rpartition("/")[2],
            tier_of(record),
            str(record.get("finished_at") or NONE)[:16].replace("T", " "),
            _shortened(str(record.get("reason") or NONE)),
        )
        # Text, not str: a reason with brackets is no markup.
        shown.add_row(Text(str(record["host"])), Text(outcome, style=COLOURS.get(outcome, "")), *(Text(cell) for cell in cells))
    return shown


def _shortened(text: str) -> str:
    return text if len(text) <= REASON_WIDTH else text[: REASON_WIDTH - 1] + "…"


# --- The page ---


def page(record: Record) -> str:
    """The record of one host for people, in Markdown."""
    parts = [_head(record), _installed(record), _changed(record), _checks(record), _not_exercised(record), _still_to_do(record)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _head(record: Record) -> str:
    lines = [f"# {_escape(record['host'])}: {record.get('outcome')}"]
    if record.get("reason"):
        lines.append(_escape(record["reason"]))
    if record.get("remedy"):
        lines.append(f"**Now:** {_escape(record['remedy'])}")
    rows = (
        ("Release", record.get("release")),
        ("Playbook", f"{record.get('playbook')}{' (check mode)' if record.get('check_mode') else ''}"),
        ("Time", f"{record.get('started_at')} to {record.get('finished_at')}"),
        ("Run", record.get("run_id")),
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
        return "## Checks\n\nNo smoke test ran in this run."
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
        for check in ran
    ]
    return "## Checks\n\n" + _markdown_table(("check", "GPU", "status", "value", "floor", "unit", "reason and remedy"), rows, keep_empty=True)


def _gpu(check: Mapping[str, Any]) -> Any:
    return dig(check, "gpu", "pci_bus_id") or dig(check, "gpu", "uuid")


def _figure(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _not_exercised(record: Record) -> str:
    skipped = [check for check in record.get("checks") or [] if check.get("status") in ("not_applicable", "could_not_run")]
    lines = [f"- {_escape(check.get('name'))} ({check.get('status')}): {_escape(check.get('reason') or 'no reason given')}" for check in skipped]
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
        cases = [_outcome_case(record), *(_check_case(record, check) for check in record.get("checks") or [])]
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
