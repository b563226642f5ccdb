# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""The lab's certificate authority and the certificate of its services, made with openssl."""

from __future__ import annotations

import shutil

from .engine import Engine
from .names import SERVICES_ADDRESS, SERVICES_HOSTNAME, SERVICES_IMAGE
from .paths import Layout
from .rootfs import fresh

DAYS = 3650

# Names are checked by Python 3.13 strictly: key identifiers and a critical basicConstraints are needed.
SCRIPT = f"""
set -eu
umask 077
cd /out
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout ca.key -out ca.crt -days {DAYS} \\
  -subj '/O=rackready lab/CN=rackready lab CA' -addext keyUsage=critical,keyCertSign,cRLSign
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout server.key -out server.crt -days {DAYS} \\
  -CA ca.crt -CAkey ca.key -subj '/O=rackready lab/CN={SERVICES_HOSTNAME}' \\
  -addext basicConstraints=critical,CA:FALSE -addext keyUsage=critical,digitalSignature -addext extendedKeyUsage=serverAuth \\
  -addext subjectAltName=DNS:{SERVICES_HOSTNAME},IP:{SERVICES_ADDRESS}
chmod 644 ca.crt server.crt
"""


def present(layout: Layout) -> bool:
    return all((layout.tls / name).is_file() for name in ("ca.crt", "ca.key", "server.crt", "server.key"))


def make(layout: Layout, engine: Engine) -> None:
    new = fresh(layout.work / "tls")
    engine.tool(SERVICES_IMAGE, ["sh", "-c", SCRIPT], {new: "/out"})
    shutil.rmtree(layout.tls, ignore_errors=True)
    new.rename(layout.tls)
