# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The image of the lab's smoke test: Debian's Python 3.11 and the CPU build of PyTorch. A real image with a real PyTorch."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from . import rootfs
from .errors import LabError
from .names import LABEL, TORCH_REPOSITORY, TORCH_TAG, TORCH_VERSION
from .oci import Blobs
from .paths import Layout
from .registry import Registry

REQUIREMENT = f"torch=={TORCH_VERSION}+cpu"  # the local version: no index can answer with a CUDA build of several GB
PYTHON = "3.11"
ROOT = rootfs.Root(suite="bookworm", packages=("libstdc++6", "python3"), variant="essential")  # bookworm has that Python
SITE_PACKAGES = f"usr/local/lib/python{PYTHON}/dist-packages"
CPU_INDEX = "https://download.pytorch.org/whl/cpu"

# pip's own start-up script would name the Python that pip ran with.
TORCHRUN = """#!/usr/bin/python3
import sys

from torch.distributed.run import main

sys.exit(main())
"""

# Header files, tests and tools of the build: 200 of 750 MB.
UNNEEDED = ("bin", "share", "torch/include", "torch/test", "torch/share", "functorch", "isympy.py")
NEEDED_PROGRAM = "torch_shm_manager"


def pip_command(target: Path, more: Sequence[str] = ()) -> list[str]:
    return [
        sys.executable,
        *["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile", "--no-warn-conflicts"],
        *["--python-version", PYTHON, "--platform", "manylinux_2_28_x86_64", "--only-binary=:all:"],
        *["--target", str(target), *more, REQUIREMENT],
    ]


def install(target: Path) -> None:
    """pip's own configuration is asked first: a site's mirror or wheels at hand beat the public index."""
    words = []
    for more in ([], ["--extra-index-url", CPU_INDEX]):
        result = subprocess.run(pip_command(rootfs.fresh(target), more), stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if result.returncode == 0:
            return
        words.append((result.stderr.strip().splitlines() or ["no message"])[-1])
    raise LabError(
        f"{REQUIREMENT} for Python {PYTHON} is not to be had: pip as configured here says '{words[0]}', and with {CPU_INDEX} '{words[1]}'. "
        "Point pip at an index or folder that has this wheel (PIP_INDEX_URL or PIP_FIND_LINKS), then run this again."
    )


def prune(target: Path) -> None:
    """Remove what neither ``import torch`` nor torchrun needs."""
    doomed = [target / name for name in UNNEEDED]
    doomed += [path for path in (target / "torch" / "bin").glob("*") if path.name != NEEDED_PROGRAM]
    doomed += [path for path in target.rglob("tests") if path.relative_to(target).parts[0] != "torch"]
    doomed += target.rglob("*.a")
    for path in doomed:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def make(layout: Layout) -> None:
    """Build the image and push it to the lab's registry."""
    work = rootfs.fresh(layout.work / "pytorch")
    tree = work / "tree"
    install(tree / SITE_PACKAGES)
    prune(tree / SITE_PACKAGES)
    torchrun = tree / "usr/local/bin/torchrun"
    torchrun.parent.mkdir(parents=True)
    torchrun.write_text(TORCHRUN)
    torchrun.chmod(0o755)
    # Compiled once here, by the image's own Python, and not by every process of every smoke test. A few files are for newer ones and fail.
    hooks = [
        f"sync-in {shlex.quote(str(tree))} /",
        f'chroot "$1" python3 -m compileall -q --invalidation-mode unchecked-hash /{SITE_PACKAGES} >/dev/null || true',
    ]
    tarball = work / "root.tar"
    rootfs.build(ROOT, tarball, hooks)

    blobs = Blobs(work / "blobs")
    with tarball.open("rb") as tar:
        layer = blobs.add_layer(tar)
    environment = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "PYTORCH_VERSION": TORCH_VERSION}
    image = blobs.image([layer], environment, {LABEL: "pytorch"}, ["python3"])
    Registry(layout.tls / "ca.crt").push(TORCH_REPOSITORY, TORCH_TAG, blobs, image)
    shutil.rmtree(work)


def present(layout: Layout) -> bool:
    """Whether the registry's storage has the tag (asked on disk: the registry need not run)."""
    return (layout.served / "registry/docker/registry/v2/repositories" / TORCH_REPOSITORY / "_manifests/tags" / TORCH_TAG / "current/link").is_file()
