"""The payload's own tests, run where it runs in earnest: inside the image, with its PyTorch."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import tarfile
from io import BytesIO
from pathlib import Path

from lab.play import ROOT
from testinfra.host import Host

TESTS = ("tests/unit/plugins/module_utils/test_smoke_payload_torch.py", "tests/unit/plugins/module_utils/test_smoke_payload.py")
# Pure Python, so that those of this environment serve the image's Python too.
PYTEST = ("pytest", "_pytest", "py", "pluggy", "iniconfig", "packaging", "pygments")


def archive() -> bytes:
    """The tree that the tests need, and pytest beside it under site/."""
    buffer = BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for part in ("collections", "galaxy.yml", "meta", "plugins", "pyproject.toml", "tests/fixtures", "tests/unit"):
            tar.add(ROOT / part, part)
        for name in PYTEST:
            spec = importlib.util.find_spec(name)
            assert spec is not None and spec.origin is not None
            origin = Path(spec.origin)
            tar.add(*((origin.parent, f"site/{name}") if origin.name == "__init__.py" else (origin, f"site/{origin.name}")))
    return buffer.getvalue()


def test_payload_with_the_image_s_pytorch(host: Host) -> None:
    stamp = json.loads(host.file("/var/lib/rackready/stamp.json").content_string)
    images = host.check_output("docker image ls --digests --format '{{.Repository}}@{{.Digest}}'").splitlines()
    image = next(line for line in images if line.endswith(stamp["image_digest"]))
    ssh = ["ssh", "-F", str(ROOT / ".lab/ssh/config"), "h100-01"]
    subprocess.run([*ssh, "rm -rf /run/payload && mkdir /run/payload && tar -x -C /run/payload"], input=archive(), check=True)
    inside = f"docker run --rm --network none --tmpfs /tmp -v /run/payload:/src:ro -w /src -e PYTHONPATH=/src/site --entrypoint python3 {image}"
    # The conftest of the unit tests is about what the image does not have.
    ran = host.run(f"{inside} -m pytest -q -p no:cacheprovider --noconftest {' '.join(TESTS)}")
    host.check_output("rm -rf /run/payload")
    assert ran.rc == 0, ran.stdout
    assert " passed" in ran.stdout and "skipped" not in ran.stdout, ran.stdout
