# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smoke test of a provisioned host by itself, without Ansible: the command ``rackready-verify``. The plan's request lies on the host.

Its exit statuses are a contract with Slurm's prologs, monitoring and the timer's unit: see ``EXIT_STATUSES``. What it prints with ``--json`` and leaves in
``LAST`` is plugin_utils/schemas/verify.schema.json.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Any, Mapping, NoReturn, Sequence

from ansible_collections.rackready.gpu.plugins.module_utils import facts, smoke_machine, smoke_table, smoke_test, smoke_tiers, stamp, verdict, whole_file
from ansible_collections.rackready.gpu.plugins.module_utils.bounded import SEARCH_PATH
from ansible_collections.rackready.gpu.plugins.module_utils.smoke_request import Request, RequestError, request_of
from ansible_collections.rackready.gpu.plugins.module_utils.units import UnitsError

SCHEMA = 1
REQUEST = Path("/etc/rackready/verify.json")
LAST = "last-verify.json"
# Seconds that nvidia-smi may take, as in gpu_smoke_test.
SMI_TIMEOUT_S = 15
ENDINGS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)

ACCEPTED, REJECTED, INCOMPLETE, NOT_TESTED, UNUSABLE = 0, 1, 2, 3, 64
EXIT_STATUSES = """\
exit status:
  0   accepted (on a simulated host: simulated)
  1   rejected: a required check failed
  2   incomplete: a required check could not run, or the host could not be read
  3   not tested, and nothing was touched: the GPUs are in use, or another smoke test runs
  64  called wrongly or not as root, or the request of this host cannot be used
  129, 130, 143  ended by a signal, and its container with it
"""
REMEDY = "run site.yml for this host, which writes it"
MISTAKE = "that is a mistake in rackready, or the request was changed by hand; run site.yml for this host, and report it if it stays"


class Parser(argparse.ArgumentParser):
    """As argparse's, but a wrong call must not look like a test that was incomplete, which is 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(UNUSABLE, f"{self.format_usage()}{self.prog}: {message}\n")


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Options of the command line: ``tier`` (None: the planned one) and ``json``."""
    parser = Parser(
        prog="rackready-verify",
        description=f"Test the GPUs of this host as planned ({REQUEST}) and give a verdict. Nothing is started while a GPU is in use. "
        f"The result is kept in {stamp.STATE_DIR / LAST}.",
        epilog=EXIT_STATUSES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--tier", choices=smoke_tiers.TIERS, help="how thorough the test is; without it as planned")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str]) -> int:
    """Test this host, tell the result, and give the exit status."""
    options = parse(arguments)
    # A prolog of Slurm has none.
    os.environ.setdefault("PATH", SEARCH_PATH)
    for number in ENDINGS:
        signal.signal(number, ended_from_outside)
    code, result = outcome(options.tier)
    told = {"schema": SCHEMA, "host": os.uname().nodename, "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "exit_status": code, **result}
    # What tested nothing does not hide what was found before.
    if code in (ACCEPTED, REJECTED, INCOMPLETE):
        keep(told)
    if options.json:
        tell(json.dumps(told, indent=2) + "\n")
    elif code == UNUSABLE:
        sys.stderr.write(f"rackready-verify: {told['reason']}\n")
    else:
        tell(smoke_table.render(told["host"], told).encode("ascii", "backslashreplace").decode("ascii"))
    return code


def tell(text: str) -> None:
    """Print it. Where nobody reads it any more (a pager that was left, a full disk) the exit status must still be that of the test."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        sys.stderr.write(f"rackready-verify: the result could not be printed: {error.strerror}\n")
        # Python writes once more when it ends, and would end with a status of its own.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def ended_from_outside(number: int, frame: object) -> None:
    """Leave by an exception, so that the container is ended on the way out. A second signal must not break that off."""
    for other in ENDINGS:
        signal.signal(other, signal.SIG_IGN)
    raise SystemExit(128 + number)


def outcome(tier: str | None) -> tuple[int, dict[str, Any]]:
    """Exit status and result (the return values of gpu_smoke_test) of a test in this tier, or in the planned one."""
    try:
        if os.geteuid() != 0:
            raise RequestError(f"rackready-verify runs as user {os.geteuid()} and needs root, since who holds a GPU is hidden from others")
        request = read_request(tier)
    except RequestError as error:
        return UNUSABLE, nothing(str(error), None)
    # The result is kept on the host, so it reaches somebody also where nobody listens.
    machine = smoke_machine.real_machine(lambda: facts.gather(SMI_TIMEOUT_S), SMI_TIMEOUT_S)._replace(heard=lambda: True)
    try:
        result = smoke_test.run_test(request, machine)
    except (UnitsError, OSError) as error:
        return INCOMPLETE, nothing(f"the smoke test could not be made: {error}", request)
    except Exception as error:
        # Python's own exit status would be 1, and a mistake of ours must not reject a host.
        traceback.print_exc()
        return INCOMPLETE, nothing(f"the smoke test broke off with {type(error).__name__}: {error}: {MISTAKE}", request)
    return exit_status(result), {key: value for key, value in result.items() if key not in ("changed", "diff")}


def read_request(tier: str | None) -> Request:
    """What the plan asks of this host, in this tier or the planned one; RequestError where that cannot be used."""
    try:
        request = request_of(json.loads(REQUEST.read_text(encoding="utf-8")))
        request.validate()
        request = request.in_tier(tier or request.tier)
        request.validate()
    except OSError as error:
        raise RequestError(f"the request of this host cannot be read ({REQUEST}: {error.strerror}): {REMEDY}") from error
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the request of this host cannot be used ({REQUEST}: {error}): {REMEDY}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise RequestError(f"the request of this host is none of this version ({REQUEST}: {type(error).__name__} {error}): {REMEDY}") from error
    return request


def nothing(reason: str, request: Request | None) -> dict[str, Any]:
    """The result of a test that could not be made, with every key of one that was."""
    return {
        "verdict": verdict.INCOMPLETE,
        "reason": reason,
        "remedy": None,
        "checks": [],
        "seconds": 0.0,
        "image": request.image if request else None,
        "backend": request.backend if request else None,
        "tier": request.tier if request else None,
        "torch": None,
        "topology": None,
        "not_exercised": [],
        "retries": [],
        "container_started": False,
        "containers_removed": [],
        # Read now: the test may have begun, and withdrawn it.
        "stamp": stamp.read(),
    }


def exit_status(result: Mapping[str, Any]) -> int:
    """The exit status of a result of the smoke test."""
    if result["verdict"] in (verdict.ACCEPTED, verdict.SIMULATED):
        return ACCEPTED
    if result["verdict"] == verdict.REJECTED:
        return REJECTED
    # What only lacks a result is the consequence of what kept the test from being made.
    unrun = [check for check in result["checks"] if check["required"] and check["status"] == verdict.COULD_NOT_RUN]
    kept = {check["name"] for check in unrun if check["reason"] != verdict.NO_RESULT}
    return NOT_TESTED if kept == {"gpu_idle"} and not result["container_started"] else INCOMPLETE


def keep(told: Mapping[str, Any]) -> None:
    """Leave the result on the host for whoever asks later; that it cannot be left changes nothing about it."""
    try:
        whole_file.write(stamp.STATE_DIR / LAST, (json.dumps(told, indent=2) + "\n").encode("utf-8"), 0o644)
    except OSError as error:
        sys.stderr.write(f"rackready-verify: the result could not be kept in {stamp.STATE_DIR / LAST}: {error}\n")
