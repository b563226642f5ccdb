# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Runs in a container that is held while systemd reloads: ``hold SECONDS`` waits, ``call BACKEND`` uses each GPU anew. Standard library only, no torch.

A container that loses its GPUs keeps what it has open, so only a new process that opens the devices again shows it.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path


def open_nodes(root: Path = Path("/")) -> int:
    """Open the device node of each GPU; how many there are. OSError names the one that cannot be opened."""
    nodes = [path for path in sorted((root / "dev").glob("nvidia*")) if path.name[len("nvidia") :].isdigit()]
    for path in nodes:
        os.close(os.open(str(path), os.O_RDWR))
    return len(nodes)


def make_contexts(library: str = "libcuda.so.1") -> int:
    """Make a CUDA context on each device by the driver's own interface; how many there are. OSError says which call failed."""
    cuda = ctypes.CDLL(library)

    def call(name: str, *arguments: object) -> None:
        code = getattr(cuda, name)(*arguments)
        if code:
            raise OSError(f"{name} failed with CUDA error {code}")

    call("cuInit", 0)
    count = ctypes.c_int()
    call("cuDeviceGetCount", ctypes.byref(count))
    for index in range(count.value):
        device, context = ctypes.c_int(), ctypes.c_void_p()
        call("cuDeviceGet", ctypes.byref(device), index)
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        call("cuDevicePrimaryCtxRelease_v2", device)
    return count.value


def main(words: list[str]) -> int:
    if words[0] == "hold":
        time.sleep(float(words[1]))
        return 0
    try:
        found = make_contexts() if words[1] == "cuda" else open_nodes()
    except OSError as error:
        sys.stdout.write(f"{error}\n")
        return 1
    sys.stdout.write(f"used {found} GPUs\n")
    return 0 if found else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
