# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The services container: package repositories over HTTPS and the image registry."""

from __future__ import annotations

import time
from pathlib import Path

from . import rootfs
from .engine import Engine
from .errors import LabError
from .names import CHECKOUT_LABEL, IMAGE, INPUTS_LABEL, LABEL, NETWORK, REGISTRY_PORT, SERVICES, SERVICES_ADDRESS, SERVICES_HOSTNAME, SERVICES_IMAGE
from .paths import Layout
from .steps import digest_of

# apt-utils, createrepo-c, gnupg, openssl and rpm build, index, sign and certify in this image, so that the machine itself needs none of them.
ROOT = rootfs.Root(
    suite="trixie",
    packages=("apt-utils", "ca-certificates", "createrepo-c", "curl", "docker-registry", "gnupg", "nginx-light", "openssl", "rpm"),
)
UP_WITHIN = 60  # seconds; measured: 1, 11 on an emulated machine


def make_image(layout: Layout, engine: Engine) -> None:
    work = rootfs.fresh(layout.work / "services")
    rootfs.build(ROOT, work / "root.tar")
    import_image(engine, work / "root.tar", SERVICES_IMAGE, ROOT.inputs())
    rootfs.fresh(work)


def import_image(engine: Engine, tarball: Path, name: str, inputs: str) -> None:
    engine.run("import", f"--change=LABEL {LABEL}={IMAGE} {INPUTS_LABEL}={inputs}", str(tarball), name)


def image_present(engine: Engine, name: str, inputs: str) -> bool:
    return engine.label("image", name, INPUTS_LABEL) == inputs


def container_inputs(layout: Layout, image_id: str) -> str:
    return digest_of(image_id, str(layout.checkout), layout.code / "services", layout.tls / "server.crt")


def running(engine: Engine, inputs: str) -> bool:
    found = engine.inspect("container", SERVICES)
    return found is not None and found["State"]["Running"] and found["Config"]["Labels"].get(INPUTS_LABEL) == inputs and healthy(engine)


def healthy(engine: Engine) -> bool:
    """Both servers answer over TLS by their name, with the certificate that the lab's authority signed."""
    urls = f"https://{SERVICES_HOSTNAME}/healthy https://{SERVICES_HOSTNAME}:{REGISTRY_PORT}/v2/"
    probe = f"for url in {urls}; do curl -sSf --max-time 5 --cacert /etc/lab-tls/ca.crt $url || exit 1; done"
    return engine.attempt("exec", SERVICES, "sh", "-c", probe).returncode == 0


def start(layout: Layout, engine: Engine, inputs: str) -> None:
    for folder in ("repo", "registry"):
        (layout.served / folder).mkdir(parents=True, exist_ok=True)
    engine.attempt("rm", "--force", "--volumes", SERVICES)
    engine.run(
        *["run", "--detach", "--init", f"--name={SERVICES}", f"--hostname={SERVICES_HOSTNAME}", f"--label={LABEL}=services"],
        *[f"--label={CHECKOUT_LABEL}={layout.checkout}", f"--label={INPUTS_LABEL}={inputs}"],
        *[f"--network={NETWORK}", f"--ip={SERVICES_ADDRESS}", f"--network-alias={SERVICES_HOSTNAME}"],
        *[f"--volume={layout.served}:/srv/lab", f"--volume={layout.code / 'services'}:/etc/lab:ro"],
        *[f"--volume={layout.tls / name}:/etc/lab-tls/{name}:ro" for name in ("ca.crt", "server.crt", "server.key")],
        *[SERVICES_IMAGE, "/etc/lab/start"],
    )
    deadline = time.monotonic() + UP_WITHIN
    while not healthy(engine):
        if time.monotonic() > deadline:
            logs = engine.attempt("logs", "--tail=20", SERVICES)
            raise LabError(f"{SERVICES} does not answer {UP_WITHIN} s after its start; its last words:\n{logs.stdout}{logs.stderr}")
        time.sleep(0.3)
