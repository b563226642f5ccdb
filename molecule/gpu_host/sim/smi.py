# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The stand-in nvidia-smi: options, changes and exit statuses. What it prints is in smi_text.

An option that is not imitated ends with status 2 and says so; it is never ignored.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from . import mig, nvml, tree
from . import smi_text as text
from .board import sysfs_bus_id
from .state import NotBootedError, State, Store, mig_of


class UsageError(Exception):
    """nvidia-smi's own complaint about its arguments, exit status 2."""


_VALUED = {"-i": "id", "--id": "id", "-mig": "mig", "--multi-instance-gpu": "mig", "-pm": "persistence", "--persistence-mode": "persistence"}
_VALUED |= {
    "--query-gpu": "query_gpu",
    "--query-remapped-rows": "query_remap",
    "--query-compute-apps": "query_apps",
    "--format": "format",
    "-f": "file",
    "--filename": "file",
}
_FLAGS = {
    "-L": "list",
    "--list-gpus": "list",
    "-q": "query",
    "--query": "query",
    "-x": "xml",
    "--xml-format": "xml",
    "--version": "version",
    "-r": "reset",
    "--gpu-reset": "reset",
}
_MIG_VALUED = {
    "-i": "id",
    "--id": "id",
    "-cgi": "cgi",
    "--create-gpu-instance": "cgi",
    "-gi": "gi",
    "--gpu-instance-id": "gi",
    "-ci": "ci",
    "--compute-instance-id": "ci",
}
_MIG_FLAGS = {"-lgip": "lgip", "--list-gpu-instance-profiles": "lgip", "-lgipp": "lgipp", "--list-gpu-instance-possible-placements": "lgipp"}
_MIG_FLAGS |= {
    "-lgi": "lgi",
    "--list-gpu-instances": "lgi",
    "-lci": "lci",
    "--list-compute-instances": "lci",
    "-C": "default_ci",
    "--default-compute-instance": "default_ci",
}
_MIG_FLAGS |= {"-dgi": "dgi", "--destroy-gpu-instance": "dgi", "-dci": "dci", "--destroy-compute-instance": "dci"}


_NVLINK_FLAGS = {"-s": "status", "--status": "status", "-e": "errors", "--errorcounters": "errors"}


def _parse(arguments: list[str], valued: dict[str, str], flags: dict[str, str], optional: dict[str, str]) -> dict[str, str]:
    """Options by name; ``-i 0``, ``--id=0`` and ``-i=0`` are the same. ``optional`` ones may go without a value."""
    found: dict[str, str] = {}
    words = list(arguments)
    while words:
        word, _sign, value = words.pop(0).partition("=")
        if word in flags:
            found[flags[word]] = "yes"
        elif word in valued:
            if not value:
                if not words:
                    raise UsageError(f'Option "{word}" requires an argument.')
                value = words.pop(0)
            found[valued[word]] = value
        elif word in optional:
            if not value and words and not words[0].startswith("-"):
                value = words.pop(0)
            found[optional[word]] = value
        else:
            raise UsageError(f"Option \"{word}\" is not recognized. Please run 'nvidia-smi -h'. (This nvidia-smi is the rackready lab's stand-in.)")
    return found


def _at(gpu: text.Gpu, bus_id: str) -> bool:
    return bool(gpu.board["pci_bus_id"] == sysfs_bus_id(bus_id))


def _only(view: text.View, asked: str | None) -> text.View:
    """The view of the GPUs asked for by index, UUID, serial number or bus id, separated by commas."""
    if asked is None:
        return view
    chosen: list[text.Gpu] = []
    for word in asked.split(","):
        matching = [gpu for gpu in view.gpus if word in (str(gpu.index), *(gpu.board[name] for name in ("uuid", "serial"))) or _at(gpu, word)]
        if not matching:
            raise nvml.NvmlError(6, "No devices were found\n")
        chosen += matching
    return text.View(view.driver_version, view.cuda_version, tuple(chosen), view.now)


def hang_while_faulty(store: Store) -> None:
    """Never return while the fault smi-hang is there. SIGTERM does nothing, as with a process that waits in the driver. With smi-slow wait so long."""
    try:
        faults = store.read()["faults"]
        time.sleep(faults.get("smi-slow", 0))
        if "smi-hang" not in faults:
            return
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        while "smi-hang" in store.read()["faults"]:
            time.sleep(1)
    except NotBootedError:
        return


def garbled(output: str, how: str | None) -> str:
    """What is printed in place of the output while the fault smi-garbled is there: half of it, or other words."""
    return {"truncated": output[: len(output) // 2], "words": "Unable to determine the device handle for GPU0: Unknown Error\n"}.get(how or "", output)


def run(arguments: list[str], store: Store) -> tuple[int, str]:
    """Run nvidia-smi: exit status and output."""
    command = _COMMANDS.get(arguments[0]) if arguments else None
    if command:
        return command(arguments[1:], store)
    options = _parse(arguments, _VALUED, _FLAGS, {})
    state, driver = nvml.attach(store)
    view = _only(nvml.view(state, driver, store.root), options.get("id"))
    if not view.gpus:
        return 6, "No devices were found\n"
    if "mig" in options:
        return _mig_mode(view, options["mig"], store)
    if "persistence" in options:
        return _persistence(view, options["persistence"], store)
    if "reset" in options:
        return _reset(view, store)
    return 0, _show(view, options)


def _topo(arguments: list[str], store: Store) -> tuple[int, str]:
    if "matrix" not in _parse(arguments, {}, {"-m": "matrix", "--matrix": "matrix"}, {}):
        raise UsageError("The rackready lab's stand-in knows topo only with -m.")
    return 0, text.topology(nvml.view(*nvml.attach(store), store.root))


def _nvlink(arguments: list[str], store: Store) -> tuple[int, str]:
    options = _parse(arguments, {"-i": "id", "--id": "id"}, _NVLINK_FLAGS, {})
    view = _only(nvml.view(*nvml.attach(store), store.root), options.get("id"))
    if "status" in options:
        return 0, text.nvlink_status(view)
    if "errors" in options:
        return 0, text.nvlink_errors(view)
    raise UsageError("The rackready lab's stand-in knows nvlink only with -s or -e.")


def _show(view: text.View, options: dict[str, str]) -> str:
    format_words = {word.strip() for word in options.get("format", "").split(",")}
    style: dict[str, Any] = {"noheader": "noheader" in format_words, "nounits": "nounits" in format_words}
    for name, fields in (("query_gpu", text.GPU_FIELDS), ("query_remap", text.REMAP_FIELDS), ("query_apps", None)):
        if name in options:
            if "csv" not in format_words:
                raise UsageError('"--format=" switch is missing. (e.g. --format=csv)')
            names = [word.strip() for word in options[name].split(",")]
            return text.query_apps(view, names, **style) if fields is None else text.query(view, names, fields, **style)
    if "list" in options:
        return text.listing(view)
    if "version" in options:
        return text.versions(view)
    if "query" in options:
        if "xml" not in options:
            raise UsageError("The rackready lab's stand-in knows -q only with -x.")
        return text.xml(view)
    return text.table(view)


def _as_root() -> bool:
    return os.geteuid() == 0


def _in_use(gpu: text.Gpu) -> bool:
    return bool(gpu.processes)


_BUSY_MODE = (
    "{0} is currently being used by one or more other processes (e.g. CUDA application or a monitoring application such as another instance of "
    "nvidia-smi). Please first kill all processes using the device and retry the command or reboot the system to make MIG mode effective."
)


def _mig_mode(view: text.View, asked: str, store: Store) -> tuple[int, str]:
    if asked not in ("0", "1"):
        raise UsageError(f'Invalid argument for "-mig": {asked}')
    on = asked == "1"
    verb, done = ("enable", "Enabled") if on else ("disable", "Disabled")
    lines = []
    for gpu in view.gpus:
        if not gpu.table:
            return 3, f"Unable to {verb} MIG Mode for GPU {gpu.bus_id}: Not Supported\nTreating as warning and moving on.\nAll done.\n"
        if not _as_root():
            return 4, f"Unable to {verb} MIG Mode for GPU {gpu.bus_id}: Insufficient Permissions\nTerminating early due to previous errors.\n"
    with store.change() as state:
        for gpu in view.gpus:
            held = mig_of(state, gpu.board["pci_bus_id"])
            held["pending"] = on
            if held["current"] != on and (_in_use(gpu) or held["instances"]):
                lines += [f"Warning: MIG mode is in pending {verb} state for GPU {gpu.bus_id}:In use by another client", _BUSY_MODE.format(gpu.bus_id)]
            else:
                held["current"] = on
                lines.append(f"{done} MIG Mode for GPU {gpu.bus_id}")
        tree.render(state, store.root)
    return 0, "".join(line + "\n" for line in [*lines, "All done."])


def _persistence(view: text.View, asked: str, store: Store) -> tuple[int, str]:
    on = {"0": False, "DISABLED": False, "1": True, "ENABLED": True}.get(asked)
    if on is None:
        raise UsageError(f'Invalid argument for "-pm": {asked}')
    word = "Enabled" if on else "Disabled"
    with store.change() as state:
        same = state["persistence"] == on
        state["persistence"] = on
    line = "Persistence mode is already {0} for GPU {1}." if same else "{0} persistence mode for GPU {1}."
    return 0, "".join(line.format(word, gpu.bus_id) + "\n" for gpu in view.gpus) + "All done.\n"


_BUSY_RESET = """\
The following GPUs could not be reset:
  GPU {0}: In use by another client

1 device is currently being used by one or more other processes (e.g., Fabric Manager, CUDA application, graphics application such as an X server, or a \
monitoring application such as another instance of nvidia-smi). Please first kill all processes using this device and all compute applications running in \
the system.
"""


def _reset(view: text.View, store: Store) -> tuple[int, str]:
    open_nodes = {node for holder in tree.holders(store.root) for node in holder["nodes"]}
    for gpu in view.gpus:
        if f"nvidia{gpu.board['minor']}" in open_nodes:
            return 1, _BUSY_RESET.format(gpu.bus_id)
    with store.change() as state:
        for gpu in view.gpus:
            held = mig_of(state, gpu.board["pci_bus_id"])
            held.update(current=held["pending"], instances=[])
        tree.render(state, store.root)
    return 0, "".join(f"GPU {gpu.bus_id} was successfully reset.\n" for gpu in view.gpus) + "All done.\n"


# nvidia-smi mig


def _mig_command(arguments: list[str], store: Store) -> tuple[int, str]:
    options = _parse(arguments, _MIG_VALUED, _MIG_FLAGS, {"-cci": "cci", "--create-compute-instance": "cci"})
    state, driver = nvml.attach(store)
    view = _only(nvml.view(state, driver, store.root), options.get("id"))
    if "lgip" in options or "lgipp" in options:
        printed = text.gpu_instance_profiles(view) if "lgip" in options else text.placements(view)
        return (0, printed) if any(gpu.table for gpu in view.gpus) else (6, "No MIG-supported devices found.\n")
    enabled = text.View(view.driver_version, view.cuda_version, tuple(gpu for gpu in view.gpus if gpu.mig_current), view.now)
    if not enabled.gpus:
        return 0, "No MIG-enabled devices found.\n"
    wanted = {int(word) for word in options["gi"].split(",")} if "gi" in options else None
    if "lgi" in options:
        return (0, text.gpu_instances(enabled)) if text.gpu_instances(enabled) else (6, "No GPU instances found: Not Found\n")
    if "lci" in options:
        printed = text.compute_instances(enabled, wanted)
        return (0, printed) if printed else (6, "No compute instances found: Not Found\n")
    if not _as_root():
        return 4, "Insufficient Permissions\n"
    with store.change() as state:
        if "cgi" in options:
            status, lines = _create(state, enabled, options["cgi"].split(","), "default_ci" in options)
        elif "cci" in options:
            status, lines = _create_compute(state, enabled, wanted, options["cci"])
        elif "dci" in options:
            cis = {int(word) for word in options["ci"].split(",")} if "ci" in options else None
            open_nodes = {node for holder in tree.holders(store.root) for node in holder["nodes"]}
            status, lines = _destroy_compute(_chosen(state, enabled, wanted), cis, open_nodes)
        elif "dgi" in options:
            status, lines = _destroy(state, enabled, wanted)
        else:
            raise UsageError("nvidia-smi mig: nothing to do")
        tree.render(state, store.root)
    return status, "".join(line + "\n" for line in lines)


_CODES = {"Insufficient Resources": 19, "Invalid Argument": 2, "In use by another client": 19, "Not Found": 6}


def _create(state: State, view: text.View, asked: list[str], with_compute: bool) -> tuple[int, list[str]]:
    lines: list[str] = []
    for gpu in view.gpus:
        held = mig_of(state, gpu.board["pci_bus_id"])
        for word in asked:
            name, _sign, start = word.partition(":")
            try:
                if start and not start.isdigit():
                    raise mig.MigError("Invalid Argument")
                profile = mig.find_profile(gpu.table, name)
                if _in_use(gpu) and not held["instances"]:
                    raise mig.MigError("In use by another client")
                made = mig.create_instance(gpu.table, held["instances"], profile, int(start) if start else None)
            except mig.MigError as error:
                lines += [f"Unable to create a GPU instance on GPU {gpu.index:>2} using profile {name}: {error}", f"Failed to create GPU instances: {error}"]
                return _CODES[str(error)], lines
            lines.append(
                f"Successfully created GPU instance ID {made['gi']:>2} on GPU {gpu.index:>2} using profile MIG {profile.name} (ID {profile.profile_id:>2})"
            )
            if with_compute:
                lines.append(_compute_line(gpu, profile, made, mig.create_compute_instance(profile, made, None)))
    return 0, lines


def _compute_line(gpu: text.Gpu, profile: mig.Profile, instance: dict[str, Any], ci: dict[str, Any]) -> str:
    name = mig.ci_name(profile, ci["profile"])
    where = f"on GPU {gpu.index:>2} GPU instance ID {instance['gi']:>2}"
    return f"Successfully created compute instance ID {ci['ci']:>2} {where} using profile MIG {name} (ID {ci['profile']:>2})"


def _chosen(state: State, view: text.View, wanted: set[int] | None) -> list[tuple[text.Gpu, dict[str, Any]]]:
    return [
        (gpu, instance) for gpu in view.gpus for instance in mig_of(state, gpu.board["pci_bus_id"])["instances"] if wanted is None or instance["gi"] in wanted
    ]


def _create_compute(state: State, view: text.View, wanted: set[int] | None, asked: str) -> tuple[int, list[str]]:
    lines: list[str] = []
    chosen = _chosen(state, view, wanted)
    if not chosen:
        return 6, ["No GPU instances found: Not Found"]
    for gpu, instance in chosen:
        profile = mig.by_id(gpu.table, instance["profile"])
        for word in asked.split(",") if asked else [None]:
            try:
                lines.append(_compute_line(gpu, profile, instance, mig.create_compute_instance(profile, instance, word)))
            except mig.MigError as error:
                where = f"GPU {gpu.index:>2} GPU instance ID {instance['gi']:>2}"
                lines += [f"Unable to create a compute instance on {where} using profile {word}: {error}", f"Failed to create compute instances: {error}"]
                return _CODES[str(error)], lines
    return 0, lines


def _destroy_compute(chosen: list[tuple[text.Gpu, dict[str, Any]]], cis: set[int] | None, open_nodes: set[str]) -> tuple[int, list[str]]:
    lines: list[str] = []
    for gpu, instance in chosen:
        for ci in [each for each in instance["cis"] if cis is None or each["ci"] in cis]:
            what = f"compute instance ID {ci['ci']:>2} from GPU {gpu.index:>2} GPU instance ID {instance['gi']:>2}"
            if f"nvidia-caps/nvidia-cap{mig.capability_minor(gpu.board['minor'], instance['gi'], ci['ci'])}" in open_nodes:
                return 19, [*lines, f"Unable to destroy {what}: In use by another client", "Failed to destroy compute instances: In use by another client"]
            instance["cis"].remove(ci)
            lines.append(f"Successfully destroyed {what}")
    return (0, lines) if lines else (6, ["No compute instances found: Not Found"])


def _destroy(state: State, view: text.View, wanted: set[int] | None) -> tuple[int, list[str]]:
    lines: list[str] = []
    for gpu, instance in _chosen(state, view, wanted):
        if instance["cis"]:
            lines.append(f"Unable to destroy GPU instance ID {instance['gi']:>2} from GPU {gpu.index:>2}: In use by another client")
            return 19, [*lines, "Failed to destroy GPU instances: In use by another client"]
        mig_of(state, gpu.board["pci_bus_id"])["instances"].remove(instance)
        lines.append(f"Successfully destroyed GPU instance ID {instance['gi']:>2} from GPU {gpu.index:>2}")
    return (0, lines) if lines else (6, ["No GPU instances found: Not Found"])


def main(arguments: list[str]) -> int:
    """Entry point of the stand-in binary."""
    store = Store()
    if arguments in (["-h"], ["--help"]):
        print("NVIDIA System Management Interface: the rackready lab's stand-in; see molecule/gpu_host/README.md")
        return 0
    hang_while_faulty(store)
    try:
        status, output = run(arguments, store)
        output = garbled(output, store.read()["faults"].get("smi-garbled"))
    except nvml.NvmlError as error:
        status, output = error.code, str(error)
    except text.FieldError as error:
        status, output = 2, f'Field "{error}" is not a valid field to query.\n\n'
    except UsageError as error:
        status, output = 2, f"{error}\n"
    file = next((word.partition("=")[2] for word in arguments if word.startswith("--filename=")), None)
    if file and status == 0:
        Path(file).write_text(output, encoding="utf-8")
    else:
        sys.stdout.write(output)
    return status


_COMMANDS = {"mig": _mig_command, "nvlink": _nvlink, "topo": _topo}
