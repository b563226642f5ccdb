# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""Command line of the simulated GPU host: boot, break, heal, status, and what the stand-in packages and units call."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from . import faults, tree
from .board import HOME, BoardError
from .kernel import Kernel
from .state import NotBootedError, Store


def _status() -> str:
    state = Store().read()
    return json.dumps(
        {
            "board": state["board"]["name"],
            "gpus": [gpu["pci_bus_id"] for gpu in state["board"]["gpus"]],
            "modules": state["modules"],
            "fabric": state["fabric"],
            "persistence": state["persistence"],
            "mig": {bus_id: held for bus_id, held in state["mig"].items() if held["current"] or held["pending"]},
            "faults": state["faults"],
            "holders": tree.holders(),
        },
        indent=2,
    )


def _dkms_autoinstall(kernel: Kernel, release: str | None) -> list[str]:
    """Build every driver whose source is installed, as dkms does after new kernel headers."""
    said = []
    for source in sorted(Path("/usr/src").glob("nvidia-*/gpu-host-sim.json")):
        info = json.loads(source.read_text(encoding="utf-8"))
        said.append(kernel.dkms_build(info["version"], info["flavour"], release))
    return said


def main(arguments: list[str]) -> int:
    """Entry point of gpu-host-sim."""
    parser = argparse.ArgumentParser(prog="gpu-host-sim", description="The simulated GPU host of the rackready lab (a test double).")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("boot", help="mount the simulated trees and load the driver that is installed")
    commands.add_parser("status", help="the machine as JSON")
    commands.add_parser("say-xid", help="one line in the kernel's log, for the fault xid")
    breaking = commands.add_parser("break", help="make a fault")
    breaking.add_argument("fault", help="name, or name:argument; help lists all")
    breaking.add_argument("argument", nargs="?")
    healing = commands.add_parser("heal", help="take one fault back, or all")
    healing.add_argument("fault", nargs="?")
    for name in ("dkms-build", "dkms-remove"):
        dkms = commands.add_parser(name)
        dkms.add_argument("version")
        dkms.add_argument("flavour", choices=["open", "proprietary"])
    commands.add_parser("dkms-autoinstall").add_argument("release", nargs="?")
    options = parser.parse_args(arguments)
    try:
        return _run(options)
    except (NotBootedError, BoardError, faults.FaultError) as error:
        print(f"gpu-host-sim: {error}", file=sys.stderr)
        return 1
    except subprocess.CalledProcessError as error:
        print(f"gpu-host-sim: `{' '.join(error.cmd)}` failed with exit status {error.returncode}; the container needs CAP_SYS_ADMIN", file=sys.stderr)
        return 1


def _install_if_needed() -> None:
    """Put the stand-ins of kmod's tools in place when the image was built without running ``install``."""
    if Path("/usr/sbin/modprobe").resolve() != HOME / "bin/kmod":
        subprocess.run([str(HOME / "install")], check=True)


def _run(options: argparse.Namespace) -> int:
    kernel = Kernel()
    lines: list[str] = []
    if options.command == "boot":
        _install_if_needed()
        lines = kernel.boot()
    elif options.command == "status":
        lines = [_status()]
    elif options.command == "break":
        name, _colon, argument = options.fault.partition(":")
        if name == "help":
            print("\n".join(f"{each.name}{each.argument.replace('[', '[:', 1)}\n    {each.text}" for each in faults.FAULTS.values()))
            return 0
        faults.break_(faults.machine(), name, options.argument or argument or None)
    elif options.command == "say-xid":
        faults.say_xid(Store())
    elif options.command == "heal":
        lines = [f"healed {name}" for name in faults.heal(faults.machine(), options.fault)]
    elif options.command == "dkms-build":
        lines = [kernel.dkms_build(options.version, options.flavour)]
    elif options.command == "dkms-remove":
        kernel.dkms_remove(options.version, options.flavour)
    else:
        lines = _dkms_autoinstall(kernel, options.release)
    for line in lines:
        print(line)
    return 0
