# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
from __future__ import annotations

from pathlib import Path

from lab.rootfs import Root, command, download
from lab.torch_image import REQUIREMENT, pip_command, prune


def test_pip_is_asked_for_the_cpu_build_by_name() -> None:
    """A bare version could be answered with a CUDA build of several GB."""
    argv = pip_command(Path("/there"))
    assert argv[-1] == REQUIREMENT == "torch==2.13.0+cpu"
    assert argv[argv.index("--python-version") + 1] == "3.11"
    assert "--only-binary=:all:" in argv
    assert not any(word.startswith("torch") for word in argv[:-1])


def test_prune_leaves_what_torch_runs_with(tmp_path: Path) -> None:
    keep = ["torch/__init__.py", "torch/bin/torch_shm_manager", "torch/lib/libtorch.so", "torch/distributed/tests/x.py", "sympy/core.py"]
    drop = ["torch/bin/test_api", "torch/bin/models/m.ptl", "torch/include/a.h", "torch/test/t.py", "sympy/tests/t.py", "bin/torchrun", "torch/lib/libx.a"]
    for name in [*keep, *drop]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    prune(tmp_path)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(keep)


def test_mmdebstrap_gets_packages_hooks_and_suite() -> None:
    argv = command(Root("trixie", ("systemd", "python3")), Path("/work/root.tar"), download(["docker.io"], Path("/work/a mirror")))
    assert argv[0] == "mmdebstrap"
    assert argv[-2:] == ["trixie", "/work/root.tar"]
    assert "--include=systemd,python3" in argv
    hooks = [word.removeprefix("--customize-hook=") for word in argv if word.startswith("--customize-hook=")]
    assert hooks[1].endswith("--no-install-recommends --download-only install docker.io")
    assert hooks[2].endswith("'/work/a mirror'/")
