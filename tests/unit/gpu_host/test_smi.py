# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The stand-in nvidia-smi as a command on a simulated machine."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from gpu_host.sim import nvml, smi
from gpu_host.sim.kernel import Kernel


@pytest.fixture(autouse=True)
def _as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi, "_as_root", lambda: True)


def run(kernel: Kernel, line: str) -> tuple[int, str]:
    return smi.run(line.split(), kernel.store)


def test_no_driver(kernel: Kernel) -> None:
    with pytest.raises(nvml.NvmlError, match="couldn't communicate with the NVIDIA driver") as caught:
        run(kernel, "-L")
    assert caught.value.code == 9


def test_library_of_another_version(driver: Kernel) -> None:
    link = driver.root / "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
    link.unlink()
    link.symlink_to("libnvidia-ml.so.595.91.07")
    with pytest.raises(nvml.NvmlError, match=r"Driver/library version mismatch\nNVML library version: 595\.91\n") as caught:
        run(driver, "")
    assert caught.value.code == 18


@pytest.mark.parametrize("which", ["1", "0000:1b:00.0", "00000000:1B:00.0", "GPU-01000100-0000-0000-0000-000000000001"])
def test_one_gpu_by_any_of_its_names(driver: Kernel, which: str) -> None:
    assert run(driver, f"-i {which} --query-gpu=pci.bus_id --format=csv,noheader") == (0, "00000000:1B:00.0\n")


@pytest.mark.parametrize("line", ["-z", "--query-gpu=name", "-q", "-mig 2", "-i"])
def test_what_is_not_imitated_is_refused(driver: Kernel, line: str) -> None:
    with pytest.raises(smi.UsageError):
        run(driver, line)


def test_links_and_topology(driver: Kernel) -> None:
    status, told = run(driver, "nvlink -e -i 7")
    assert (status, len(told.splitlines())) == (0, 1 + 18 * 3)
    assert run(driver, "nvlink --status")[1].count("26.562 GB/s") == 8 * 18
    status, told = run(driver, "topo -m")
    assert (status, told.splitlines()[8].split("\t")[:2]) == (0, ["GPU7", "NV18"])


def test_a_layout_from_nothing_and_back(driver: Kernel) -> None:
    assert run(driver, "mig -lgi") == (0, "No MIG-enabled devices found.\n")
    assert run(driver, "-i 0 -mig 1") == (0, "Enabled MIG Mode for GPU 00000000:1A:00.0\nAll done.\n")
    assert run(driver, "mig -lgi") == (6, "No GPU instances found: Not Found\n")
    status, text = run(driver, "mig -i 0000:1a:00.0 -cgi 3g.40gb:0,1g.10gb:4 -C")
    assert (status, text.splitlines()) == (
        0,
        [
            "Successfully created GPU instance ID  1 on GPU  0 using profile MIG 3g.40gb (ID  9)",
            "Successfully created compute instance ID  0 on GPU  0 GPU instance ID  1 using profile MIG 3g.40gb (ID  2)",
            "Successfully created GPU instance ID 11 on GPU  0 using profile MIG 1g.10gb (ID 19)",
            "Successfully created compute instance ID  0 on GPU  0 GPU instance ID 11 using profile MIG 1g.10gb (ID  0)",
        ],
    )
    # GPU instance 11, compute instance 0 of GPU 0: 3 + 11 * 9 and one more.
    assert {"nvidia-cap102", "nvidia-cap103"} <= {path.name for path in (driver.root / "dev/nvidia-caps").iterdir()}
    assert run(driver, "mig -i 0 -dgi -gi 1")[0] == 19
    assert run(driver, "mig -i 0 -dci -gi 1") == (0, "Successfully destroyed compute instance ID  0 from GPU  0 GPU instance ID  1\n")
    assert run(driver, "mig -i 0 -dgi -gi 1") == (0, "Successfully destroyed GPU instance ID  1 from GPU  0\n")
    assert run(driver, "-i 0 -mig 0")[1].startswith("Warning: MIG mode is in pending disable state for GPU 00000000:1A:00.0:In use by another client\n")
    assert run(driver, "mig -dci")[0] == run(driver, "mig -dgi")[0] == 0
    assert run(driver, "-i 0 -mig 0")[1].startswith("Disabled MIG Mode")
    assert not [path for path in (driver.root / "dev/nvidia-caps").iterdir() if path.name not in ("nvidia-cap1", "nvidia-cap2")]


def test_what_does_not_fit_keeps_what_was_made_before(driver: Kernel) -> None:
    run(driver, "-i 0 -mig 1")
    status, text = run(driver, "mig -i 0 -cgi 19,19,14,9")
    assert status == 19
    assert text.endswith(
        "Unable to create a GPU instance on GPU  0 using profile 9: Insufficient Resources\nFailed to create GPU instances: Insufficient Resources\n"
    )
    assert run(driver, "mig -i 0 -lgi")[1].count("MIG ") == 3


def test_a_busy_gpu_keeps_its_mode_and_the_mode_stays_pending(driver: Kernel, open_node: Callable[..., None]) -> None:
    open_node(4711, ["python3", "train.py"], "nvidia0")
    open_node(100, ["/usr/bin/python3", "/usr/bin/nvidia-persistenced"], "nvidia0", "nvidia1")
    _status, text = run(driver, "-i 0,1 -mig 1")
    assert "pending enable state for GPU 00000000:1A:00.0:In use by another client" in text
    assert "Enabled MIG Mode for GPU 00000000:1B:00.0" in text
    assert run(driver, "-i 0,1 --query-gpu=mig.mode.current,mig.mode.pending --format=csv,noheader")[1] == "Disabled, Enabled\nEnabled, Enabled\n"


def test_a_reset_is_refused_while_any_process_has_the_gpu_open(driver: Kernel, open_node: Callable[..., None]) -> None:
    open_node(100, ["/usr/bin/python3", "/usr/bin/nvidia-persistenced"], "nvidia0")
    status, text = run(driver, "-i 0 --gpu-reset")
    assert status == 1
    assert "GPU 00000000:1A:00.0: In use by another client" in text
    assert run(driver, "-i 1 --gpu-reset")[0] == 0


def test_persistence_mode(driver: Kernel) -> None:
    run(driver, "-pm 1")
    assert run(driver, "-i 0 --query-gpu=persistence_mode --format=csv,noheader") == (0, "Enabled\n")
