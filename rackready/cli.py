# Copyright: (c) 2026, rackready contributors
# SPDX-License-Identifier: GPL-3.0-or-later
"""The command line `rackready`."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markdown import Markdown

from rackready import __version__, collection
from rackready.report import NoRecordError, all_good, junit, newest_records, overview, page

PIPE_WIDTH = 100
RECORDS = Path("records")
PLAN_EXIT_CODES = """\
exit status:
  0  every host is planned, or is as planned already
  1  at least one host is refused
  2  wrong usage, or an inventory, variables or facts that cannot be read
"""
REPORT_EXIT_CODES = """\
exit status:
  0  every host shown is accepted, simulated, converged or planned
  1  at least one host shown is rejected, incomplete, refused, failed, unreachable or interrupted
  2  wrong usage, no record, or a host whose records cannot be read
"""


def parser() -> argparse.ArgumentParser:
    """The command's arguments."""
    top = argparse.ArgumentParser(prog="rackready", description="Takes a bare GPU server to accepted, and says what was done and measured.")
    top.add_argument("--version", action="version", version=f"rackready {__version__}")
    commands = top.add_subparsers(dest="command", required=True)
    add_plan(commands)
    add_report(commands)
    return top


def add_plan(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The arguments of `rackready plan`."""
    plan = commands.add_parser(
        "plan",
        help="show what would be done to hosts, from facts that were saved",
        description="Show what would be done to hosts and why, without contacting any: from the facts in their newest records, or, before they are racked, "
        "from those of a host like them. Variables are read from the inventory as ansible-playbook does.",
        epilog=PLAN_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plan.add_argument("hosts", metavar="HOST", nargs="*", help="only these hosts or groups; default: all. Without -i: what to call the host")
    plan.add_argument("-i", "--inventory", metavar="INVENTORY", action="append", default=[], help="the inventory; may be given again")
    plan.add_argument("-e", "--extra-vars", metavar="VARS", action="append", default=[], help="more variables, name=value or @FILE; may be given again")
    plan.add_argument("--facts", metavar="FILE", type=Path, help="facts to plan all hosts from: what gpu_host_facts returned (JSON), or a record")
    plan.add_argument("--records", metavar="DIR", type=Path, default=Path("records"), help="the records directory; default: records")
    plan.add_argument("--vault-id", metavar="ID", action="append", default=[], help="as for ansible-playbook; may be given again")
    plan.add_argument("-J", "--ask-vault-pass", action="store_true", help="ask for the vault's password")
    plan.add_argument("--json", action="store_true", help="print the plans as one JSON list")
    plan.set_defaults(run=run_plan)


def add_report(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The arguments of `rackready report`."""
    report = commands.add_parser(
        "report",
        help="show the newest records",
        description="Show the newest record of each host: an overview, or a page (Markdown) for one named host.",
        epilog=REPORT_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    report.add_argument("hosts", metavar="HOST", nargs="*", help="only these hosts; default: all that have records")
    report.add_argument("--records", metavar="DIR", type=Path, default=RECORDS, help="the records directory; default: records")
    report.add_argument("--json", action="store_true", help="print the records as one JSON list")
    report.add_argument("--junit", metavar="FILE", type=Path, help="also write JUnit XML: a suite a host, a case a check")
    report.set_defaults(run=run_report)


def again(arguments: argparse.Namespace) -> str:
    """This command as it can be typed here: an environment made from a lock file has the checkout and no `rackready`."""
    command = "rackready" if shutil.which("rackready") else "python -m rackready.cli"
    records = "" if arguments.records == RECORDS else f" --records {shlex.quote(str(arguments.records))}"
    return f"{command} report{records}"


def run_plan(arguments: argparse.Namespace, console: Console) -> int:
    """Plans, prints and returns the exit status."""
    collection.make_importable()
    from rackready import plan  # noqa: PLC0415  # only now can it be imported

    return plan.run(arguments, console)


def run_report(arguments: argparse.Namespace, console: Console) -> int:
    """Prints what was asked for and returns the exit status."""
    found, problems = newest_records(arguments.records, arguments.hosts)
    records = [entry.record for entry in found]
    if arguments.junit:
        try:
            arguments.junit.write_bytes(junit(records))
        except OSError as error:
            raise OSError(f"cannot write the JUnit file {arguments.junit}: {error.strerror}") from error
    if arguments.json:
        # Not through rich: it would wrap and colour.
        console.file.write(json.dumps(records, ensure_ascii=False, indent=2) + "\n")
    elif len(arguments.hosts) == 1 and records:
        text = page(records[0], found[0].path)
        if console.is_terminal:
            console.print(Markdown(text))
        else:
            console.file.write(text)
    elif records:
        overview(found, console, again(arguments))
    for problem in problems:
        print(f"rackready: {problem}", file=sys.stderr)
    if problems:
        return 2
    return 0 if all_good(records) else 1


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    arguments = parser().parse_args(argv)
    # What Ansible's modules say of the libraries that they use is nothing that an operator can act on (cryptography 51 warns of DSA).
    warnings.filterwarnings("ignore", module=r"ansible\.")
    try:
        console = Console()
        # A file or a pipe has no width of its own.
        status: int = arguments.run(arguments, console if console.is_terminal or "COLUMNS" in os.environ else Console(width=PIPE_WIDTH))
        return status
    except (NoRecordError, OSError) as error:
        print(f"rackready: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
