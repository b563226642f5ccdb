# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The stand-in nvidia-ctk: ``cdi generate``, ``cdi list``, ``--version``. The specification has the form of fixtures/h200/cdi.yaml."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from . import mig, nvml
from .smi_text import Gpu, View
from .state import Store

OUTPUT_VARIABLE = "NVIDIA_CTK_CDI_OUTPUT_FILE_PATH"
SPEC_DIRECTORIES = ("/etc/cdi", "/var/run/cdi")
LIBRARIES = ("libcuda", "libnvidia-ml", "libnvidia-cfg", "libnvidia-ptxjitcompiler", "libnvidia-nvvm", "libcudadebugger")
# What the stand-in nvidia-smi needs inside a container: its code, and the state that stands for the kernel.
OWN_DIRECTORIES = ("/opt/gpu-host-sim", "/run/gpu-host-sim")
# The hook of these faults is Python code that the mount of our own code brings along; while one of them is on, each container's Python finds it.
COMPUTING_FAULTS = {
    "payload-wrong": "a matrix product computed on a GPU (default: the last) has a wrong element",
    "payload-hang": "a matrix product on a GPU (default: the last) never returns",
    "payload-crash": "a process that computes on a GPU (default: the last) aborts",
    "payload-killed": "a process that computes on a GPU (default: the last) gets SIGKILL, as from the kernel when memory is short",
    "payload-half-line": "the first result that the process of a GPU (default: the last) prints stops in the middle of its line",
}
IN_CONTAINER = "/opt/gpu-host-sim/in_container"
_MOUNT_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


def device_node(path: str, root: Path = Path("/")) -> dict[str, Any]:
    """A device node of the specification, with the numbers that the host's node has; a zero number is left out, as nvidia-ctk does."""
    number = (root / path.lstrip("/")).stat()
    if not stat.S_ISCHR(number.st_mode):
        raise OSError(f"{path} is not a character device")
    numbers = {"major": os.major(number.st_rdev), "minor": os.minor(number.st_rdev)}
    return {"path": path, **{name: value for name, value in numbers.items() if value}, "fileMode": 438, "permissions": "rwm"}


def _edits(paths: list[str], root: Path) -> dict[str, Any]:
    return {"containerEdits": {"deviceNodes": [device_node(path, root) for path in paths]}}


def _mig_paths(gpu: Gpu, each: dict[str, Any]) -> list[str]:
    minor = gpu.board["minor"]
    caps = (mig.capability_minor(minor, each["gi"]), mig.capability_minor(minor, each["gi"], each["ci"]))
    return [f"/dev/nvidia{minor}", *(f"/dev/nvidia-caps/nvidia-cap{cap}" for cap in caps)]


def spec(view: View, root: Path = Path("/"), faults: Iterable[str] = ()) -> dict[str, Any]:
    """The CDI specification: each GPU by index and UUID, MIG devices as ``<gpu>:<mig>`` and by UUID, and ``all``."""
    devices: list[dict[str, Any]] = []
    every: list[str] = []
    for gpu in view.gpus:
        if gpu.mig_current:
            for each in gpu.devices:
                paths = _mig_paths(gpu, each)
                devices += [{"name": name, **_edits(paths, root)} for name in (f"{gpu.index}:{each['index']}", each["uuid"])]
                every += [path for path in paths if path not in every]
        else:
            path = f"/dev/nvidia{gpu.board['minor']}"
            devices += [{"name": name, **_edits([path], root)} for name in (str(gpu.index), gpu.board["uuid"])]
            every.append(path)
    if every:
        devices.append({"name": "all", **_edits(every, root)})

    def here(paths: list[str]) -> list[str]:
        return [path for path in paths if (root / path.lstrip("/")).exists()]

    common = here(["/dev/nvidia-modeset", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidiactl"])
    mounts = here(["/usr/bin/nvidia-smi", "/usr/bin/nvidia-persistenced", *_libraries(view.driver_version, root), *OWN_DIRECTORIES])
    return {
        "cdiVersion": "0.5.0",
        "kind": "nvidia.com/gpu",
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void", *([f"PYTHONPATH={IN_CONTAINER}"] if COMPUTING_FAULTS.keys() & set(faults) else [])],
            "deviceNodes": [device_node(path, root) for path in common],
            "mounts": [{"hostPath": path, "containerPath": path, "options": list(_MOUNT_OPTIONS)} for path in mounts],
        },
    }


def _libraries(version: str, root: Path) -> list[str]:
    found = []
    for directory in nvml.LIBRARY_DIRECTORIES:
        found += [f"/{directory}/{name}.so.{version}" for name in LIBRARIES if (root / directory / f"{name}.so.{version}").exists()]
    return found


_PLAIN = re.compile(r"[A-Za-z/.][A-Za-z0-9_./=:@-]*$")


def _scalar(value: object) -> str:
    # A version number must stay text: 0.5.0 is, 13.0 would not be.
    text = str(value)
    return text if isinstance(value, int) or _PLAIN.match(text) or text.count(".") == 2 else f'"{text}"'


def yaml(value: dict[str, Any], column: int = 0) -> str:
    """YAML of mappings, sequences of mappings or scalars, and scalars, laid out as nvidia-ctk does: indents are multiples of four."""
    inner = (column // 4 + 1) * 4
    text = ""
    for name, each in value.items():
        text += " " * column + f"{name}:"
        if isinstance(each, dict):
            text += "\n" + yaml(each, inner)
        elif isinstance(each, list):
            text += "\n" + "".join(_item(item, inner) for item in each)
        else:
            text += f" {_scalar(each)}\n"
    return text


def _item(item: object, column: int) -> str:
    if isinstance(item, dict):
        return " " * column + "- " + yaml(item, column + 2)[column + 2 :]
    return " " * column + f"- {_scalar(item)}\n"


def _log(level: str, message: str) -> None:
    print(f'level={level} msg="{message}"', file=sys.stderr)


def generate(output: str | None, store: Store) -> int:
    """``nvidia-ctk cdi generate [--output=PATH]``; without a path to standard output."""
    try:
        state, driver = nvml.attach(store)
        view = nvml.view(state, driver, store.root)
    except nvml.NvmlError as error:
        reason = {9: "ERROR_DRIVER_NOT_LOADED", 18: "ERROR_LIB_RM_VERSION_MISMATCH"}.get(error.code, "ERROR_LIBRARY_NOT_FOUND")
        _log("error", f"failed to generate CDI spec: failed to create device CDI specs: failed to initialize NVML: {reason}")
        return 1
    # nvidia-ctk creates the UVM nodes by itself.
    if "nvidia_uvm" not in state["modules"]:
        _log("warning", "Could not locate /dev/nvidia-uvm: pattern /dev/nvidia-uvm not found")
    document = "---\n" + yaml(spec(view, store.root, state["faults"]))
    if output in (None, ""):
        sys.stdout.write(document)
        return 0
    path = Path(str(output))
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(path.name + ".new")
    new.write_text(document, encoding="utf-8")
    new.replace(path)
    path.chmod(0o644)
    _log("info", f"Generated CDI spec with version 0.5.0 at {path}")
    return 0


def listed(directories: tuple[str, ...] = SPEC_DIRECTORIES) -> list[str]:
    """Qualified names of all devices in the specifications that nvidia-ctk wrote."""
    names: list[str] = []
    for directory in directories:
        for path in sorted(Path(directory).glob("*.yaml")):
            text = path.read_text(encoding="utf-8")
            kind = re.search(r"^kind: (\S+)$", text, re.MULTILINE)
            names += [f"{kind[1]}={name}" for name in re.findall(r'^\s+- name: "?([^"\n]+)"?$', text, re.MULTILINE)] if kind else []
    return sorted(dict.fromkeys(names))


def main(version: str, arguments: list[str]) -> int:
    """Entry point of the stand-in binary."""
    words = [word for word in arguments if word not in ("--quiet", "-q", "--debug", "-d")]
    if words[:1] in (["--version"], ["-v"]):
        print(f"NVIDIA Container Toolkit CLI version {version}\ncommit: stand-in of the rackready lab")
        return 0
    if words[:2] == ["cdi", "list"]:
        names = listed()
        _log("info", f"Found {len(names)} CDI devices")
        print("".join(name + "\n" for name in names), end="")
        return 0
    if words[:2] == ["cdi", "generate"]:
        output = os.environ.get(OUTPUT_VARIABLE)
        rest = words[2:]
        while rest:
            name, _sign, value = rest.pop(0).partition("=")
            if name not in ("--output", "-output", "-o", "--format", "--mode", "--device-name-strategy"):
                print(f"nvidia-ctk: the rackready lab's stand-in does not know {name}", file=sys.stderr)
                return 1
            value = value or (rest.pop(0) if rest else "")
            output = value if name in ("--output", "-output", "-o") else output
        return generate(output, Store())
    print(f"nvidia-ctk: the rackready lab's stand-in knows `cdi generate`, `cdi list` and `--version`, not {' '.join(words)!r}", file=sys.stderr)
    return 1
