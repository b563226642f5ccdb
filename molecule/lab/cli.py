# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The command line: ``./dev lab COMMAND``."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from types import FrameType

from rich.console import Console

from . import fleet
from .down import down
from .engine import Engine
from .errors import LabError
from .faults import inject
from .paths import Layout
from .status import status
from .up import reset, up

LOCK_WITHIN = 900  # seconds; a cold ``up`` of another process takes less


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="./dev lab", description="Simulated GPU hosts, a signed package repository and an image registry on this machine.")
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("up", help="build what is missing or has changed, and start it")
    one.add_argument("fleet", nargs="?", default=fleet.DEFAULT, help="a file of molecule/fleets, without .yml (default: %(default)s)")
    one = commands.add_parser("down", help="remove all that the lab made, and nothing else")
    one.add_argument("--keep-images", action="store_true", help="only containers and network: the next up takes seconds")
    one = commands.add_parser("reset", help="make one host bare again")
    one.add_argument("host")
    one = commands.add_parser("break", help="break something in a host's simulated hardware")
    one.add_argument("host")
    one.add_argument("fault")
    one = commands.add_parser("heal", help="heal one fault of a host, or all")
    one.add_argument("host")
    one.add_argument("fault", nargs="?")
    commands.add_parser("status", help="show what is up")
    return parser


@contextlib.contextmanager
def locked(layout: Layout) -> Iterator[None]:
    """One command at a time: two would build the same things."""
    layout.state.mkdir(exist_ok=True)
    with layout.lock_file.open("a") as lock:
        deadline = time.monotonic() + LOCK_WITHIN
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise LabError(f"another lab command has been running for {LOCK_WITHIN} s; end it, then run this again") from None
                time.sleep(0.5)
        yield


def terminate(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    layout, engine, console = Layout.of_this_file(), Engine(), Console(highlight=False)
    os.umask(0o022)
    signal.signal(signal.SIGTERM, terminate)

    def say(line: str) -> None:
        print(line, flush=True)

    started = time.monotonic()
    try:
        if arguments.command == "status":
            return 0 if status(layout, engine, console) else 1
        if arguments.command in ("break", "heal"):
            inject(engine, arguments.command, arguments.host, arguments.fault, say)
            return 0
        with locked(layout):
            if arguments.command == "up":
                say(f"lab up, fleet {arguments.fleet}")
                up(layout, engine, arguments.fleet, say)
            elif arguments.command == "down":
                down(layout, engine, arguments.keep_images, say)
            else:
                reset(layout, engine, arguments.host, say)
        say(f"lab {arguments.command} took {time.monotonic() - started:.1f} s")
    except LabError as error:
        print(f"lab: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"lab: interrupted; run ./dev lab {arguments.command} again to go on from here", file=sys.stderr)
        return 130
    return 0
