# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Who the GPU of a rank is, and what the torch in the image was built for."""

from __future__ import annotations

import ctypes
import re
from typing import Any, Callable

from .report import words_of

# CUdevice_attribute (cuda.h): what torch's properties do not tell.
COMPUTE_MODE, ECC_ENABLED, MULTICAST = 20, 32, 132
COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive process"}


def driver_library() -> Any:
    """The driver's own interface, as this process loaded it; None where it is not there, or only its name is."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
    return cuda if hasattr(cuda, "cuDeviceGet") else None


def identity_from_libcuda(index: int) -> dict[str, str]:
    """UUID and PCI bus id by the driver's own interface, for a torch whose device properties do not carry them (they came after 2.1).

    Only after CUDA was initialised in this process. Empty where the library or the call is not there.
    """
    found: dict[str, str] = {}
    cuda, device = driver_library(), ctypes.c_int()
    if cuda is None or cuda.cuDeviceGet(ctypes.byref(device), ctypes.c_int(index)) != 0:
        return found
    text = ctypes.create_string_buffer(64)
    if cuda.cuDeviceGetPCIBusId(text, ctypes.c_int(64), device) == 0:
        found["pci_bus_id"] = text.value.decode().lower()
    raw = (ctypes.c_ubyte * 16)()
    if cuda.cuDeviceGetUuid(ctypes.byref(raw), device) == 0:
        digits = bytes(raw).hex()
        found["uuid"] = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    return found


def driver_facts(index: int) -> dict[str, Any]:
    """What only the driver tells: compute mode, whether ECC is on, whether it offers NVLink multicast, the CUDA version that it speaks. None where it does not.

    Only after CUDA was initialised in this process.
    """
    found: dict[str, Any] = {"compute_mode": None, "ecc": None, "multicast": None, "driver_cuda": None}
    cuda, device, number = driver_library(), ctypes.c_int(), ctypes.c_int()
    if cuda is None or cuda.cuDeviceGet(ctypes.byref(device), ctypes.c_int(index)) != 0:
        return found
    attributes: dict[str, tuple[int, Callable[[int], Any]]] = {
        "compute_mode": (COMPUTE_MODE, lambda value: COMPUTE_MODES.get(value, str(value))),
        "ecc": (ECC_ENABLED, bool),
        "multicast": (MULTICAST, bool),
    }
    for name, (attribute, meaning) in attributes.items():
        if cuda.cuDeviceGetAttribute(ctypes.byref(number), ctypes.c_int(attribute), device) == 0:
            found[name] = meaning(number.value)
    if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
        found["driver_cuda"] = f"{number.value // 1000}.{number.value % 1000 // 10}"
    return found


def cuda_identity(torch: Any, index: int) -> dict[str, Any]:
    """Who the device ``index`` is: uuid (``GPU-...``), pci_bus_id (``0000:1a:00.0``), name, capability, memory in MiB, driver_facts. Unknown ones are None."""
    properties = torch.cuda.get_device_properties(index)
    named: dict[str, Any] = {"uuid": None, "pci_bus_id": None}
    if hasattr(properties, "uuid"):
        named["uuid"] = str(properties.uuid)
    if all(hasattr(properties, key) for key in ("pci_domain_id", "pci_bus_id", "pci_device_id")):
        named["pci_bus_id"] = f"{properties.pci_domain_id:04x}:{properties.pci_bus_id:02x}:{properties.pci_device_id:02x}.0"
    if not all(named.values()):
        for key, value in identity_from_libcuda(index).items():
            named[key] = named[key] or value
    if named["uuid"] and not str(named["uuid"]).startswith(("GPU-", "MIG-")):
        named["uuid"] = "GPU-" + str(named["uuid"])
    return {
        **named,
        "name": properties.name,
        "compute_capability": f"{properties.major}.{properties.minor}",
        "memory_mib": properties.total_memory // 2**20,
        "multiprocessors": getattr(properties, "multi_processor_count", None),
        "device_count": torch.cuda.device_count(),
        **driver_facts(index),
    }


def built_for(architectures: list[str], capability: tuple[int, int]) -> bool:
    """Whether torch's list of architectures has code for a chip: machine code of its major version up to its minor one, or PTX up to it.

    ``sm_90a`` and ``compute_90a`` are for exactly that chip, those with an ``f`` for its major version.
    """
    for name in architectures:
        match = re.fullmatch(r"(sm|compute)_(\d+)(\d)([af]?)", name)
        if match is None:
            continue
        kind, only = match.group(1), match.group(4)
        chip = (int(match.group(2)), int(match.group(3)))
        if chip == capability or (chip < capability and only != "a" and (chip[0] == capability[0] or (kind == "compute" and not only))):
            return True
    return False


def architectures_of(torch: Any) -> list[str]:
    """What torch's kernels were built for. Its public function says nothing where CUDA does not work, so the build's own words are read first."""
    try:
        flags = torch._C._cuda_getArchFlags()
    except AttributeError:
        flags = None
    return str(flags).split() if flags else list(torch.cuda.get_arch_list())


def describe_torch(torch: Any) -> dict[str, Any]:
    """Versions of what computes: torch, its CUDA and NCCL, and the architectures that its kernels were built for."""
    found: dict[str, Any] = {"torch": str(torch.__version__), "cuda": torch.version.cuda, "nccl": None, "arch_list": []}
    if torch.version.cuda:
        try:
            found["arch_list"] = architectures_of(torch)
            found["nccl"] = ".".join(str(n) for n in torch.cuda.nccl.version())
        except Exception as error:
            found["error"] = words_of(error)
    return found
