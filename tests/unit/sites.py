# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Package repositories and a registry for tests: real files behind a real HTTP server on this machine."""

from __future__ import annotations

import datetime
import gzip
import hashlib
import json
import lzma
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

Reply = tuple[int, dict[str, str], bytes]

OCI_INDEX = "application/vnd.oci.image.index.v1+json"
OCI_MANIFEST = "application/vnd.oci.image.manifest.v1+json"
DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
DOCKER_MANIFEST = "application/vnd.docker.distribution.manifest.v2+json"


class Site:
    """Paths and what they answer. A value may be bytes, a reply, or a function of the request's headers."""

    def __init__(self) -> None:
        self.paths: dict[str, bytes | Reply | Callable[[dict[str, str]], Reply]] = {}
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.address = ""

    @property
    def host(self) -> str:
        return self.address.partition("://")[2]

    def answer(self, path: str, headers: dict[str, str]) -> Reply:
        self.requests.append((path, headers))
        found = self.paths.get(path, self.paths.get(path.partition("?")[0]))
        if found is None:
            return 404, {}, b"no such page"
        if isinstance(found, bytes):
            return 200, {}, found
        return found(headers) if callable(found) else found


@contextmanager
def served(site: Site, certificate: Path | None = None) -> Iterator[Site]:
    """Serve a site on a free port of the loopback; with a certificate (PEM, key inside) over TLS."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = site.answer(self.path, {name.lower(): value for name, value in self.headers.items()})
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if certificate is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    site.address = f"{'https' if certificate else 'http'}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield site
    finally:
        server.shutdown()
        server.server_close()


def packages_text(packages: dict[str, list[str]], architecture: str = "amd64") -> str:
    return "".join(
        f"Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nDescription: a package\n with a second line\n .\n and a third\n\n"
        for name, versions in packages.items()
        for version in versions
    )


def put_repository(
    site: Site, base: str, packages: dict[str, list[str]], *, directory: str = "", endings: tuple[str, ...] = ("", ".gz", ".xz"), signed: bool = True
) -> None:
    """Put a repository at a path: flat without a directory, else below it as ``main/binary-amd64/`` is."""
    text = packages_text(packages).encode()
    files = {"": text, ".gz": gzip.compress(text), ".xz": lzma.compress(text)}
    sums = ""
    for ending in endings:
        site.paths[f"{base}{directory}Packages{ending}"] = files[ending]
        sums += f" {hashlib.sha256(files[ending]).hexdigest()} {len(files[ending])} {directory or './'}Packages{ending}\n"
    release = f"Origin: tests\nMD5Sum:\n 0123 1 Packages\nSHA256:\n{sums}Date: Tue, 01 Dec 2026 04:00:00 UTC\n"
    if signed:
        site.paths[f"{base}InRelease"] = (
            f"-----BEGIN PGP SIGNED MESSAGE-----\nHash: SHA512\n\n{release}-----BEGIN PGP SIGNATURE-----\n\nabc\n-----END PGP SIGNATURE-----\n".encode()
        )
    else:
        site.paths[f"{base}Release"] = release.encode()


def package_xml(name: str, written: str, architecture: str = "x86_64", provides: dict[str, str] | None = None) -> str:
    """A package of an RPM repository's list; its version is ``[epoch:]version-release``."""
    epoch, _colon, rest = written.rpartition(":")
    version, _dash, release = rest.partition("-")
    number = f'epoch="{epoch or 0}" ver="{version}" rel="{release}"'
    entries = [f'<rpm:entry name="{name}" flags="EQ" {number}/>', '<rpm:entry name="something(x86-64)"/>']
    entries += [f'<rpm:entry name="{other}" flags="EQ" epoch="0" ver="{value}"/>' for other, value in (provides or {}).items()]
    return (
        f'<package type="rpm"><name>{name}</name><arch>{architecture}</arch><version {number}/><location href="{name}.rpm"/>'
        f"<format><rpm:license>x</rpm:license><rpm:provides>{''.join(entries)}</rpm:provides></format></package>"
    )


def primary_xml(packages: dict[str, list[str]], *more: str) -> str:
    """The list of packages of an RPM repository, with more of them as ``package_xml`` makes them."""
    entries = [package_xml(name, version) for name, versions in packages.items() for version in versions]
    return (
        '<?xml version="1.0" encoding="UTF-8"?>\n<metadata xmlns="http://linux.duke.edu/metadata/common" '
        f'xmlns:rpm="http://linux.duke.edu/metadata/rpm" packages="{len(entries)}">{"".join([*entries, *more])}</metadata>\n'
    )


def modules_yaml(streams: dict[str, dict[str, list[str]]], module: str = "nvidia-driver") -> str:
    """Streams of one module to their packages, as libmodulemd writes them; the newest versions come first there too."""
    documents = []
    for stream, packages in streams.items():
        rpms = "".join(f"    - {name}-{version if ':' in version else '0:' + version}.x86_64\n" for name, versions in packages.items() for version in versions)
        documents.append(
            f"---\ndocument: modulemd\nversion: 2\ndata:\n  name: {module}\n  stream: {stream}\n  version: 20261201\n  context: 1d2\n  arch: x86_64\n"
            f"  summary: Driver\n  profiles:\n    default:\n      rpms:\n      - nvidia-driver\n  artifacts:\n    rpms:\n{rpms}  buildopts:\n    - none\n...\n"
        )
    return "".join(documents) + f"---\ndocument: modulemd-defaults\nversion: 1\ndata:\n  module: {module}\n  stream: latest-dkms\n...\n"


def put_rpm_repository(site: Site, base: str, primary: str, *, modules: str | None = None, ending: str = ".gz", checksum: str = "sha256") -> None:
    """Put an RPM repository with this list of packages, and with module streams, at a path."""
    pack: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}
    records = ""
    for kind, text in (("primary", primary), ("modules", modules)):
        if text is None:
            continue
        name = f"repodata/{kind}.{'xml' if kind == 'primary' else 'yaml'}{ending}"
        body = pack[ending](text.encode())
        site.paths[f"{base}{name}"] = body
        records += (
            f'<data type="{kind}"><checksum type="{checksum}">{hashlib.new(checksum, body).hexdigest()}</checksum><location href="{name}"/>'
            f"<timestamp>1764547200</timestamp><size>{len(body)}</size></data>"
        )
    site.paths[f"{base}repodata/repomd.xml"] = (
        f'<?xml version="1.0" encoding="UTF-8"?>\n<repomd xmlns="http://linux.duke.edu/metadata/repo"><revision>1</revision>{records}</repomd>\n'.encode()
    )


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"


def put_image(
    site: Site, repository: str, tag: str, *, architectures: tuple[str, ...] = ("amd64", "arm64"), docker: bool = False, single: bool = False
) -> dict[str, Any]:
    """Put an image into a registry; returns its digest and those of its platforms, with their sizes."""
    entries, platforms = [], {}
    for number, architecture in enumerate(architectures):
        config = json.dumps({"os": "linux", "architecture": architecture}).encode()
        manifest = json.dumps(
            {
                "schemaVersion": 2,
                "mediaType": DOCKER_MANIFEST if docker else OCI_MANIFEST,
                "config": {"digest": digest_of(config), "size": len(config)},
                "layers": [{"digest": "sha256:" + "0" * 64, "size": 1000 + number}, {"digest": "sha256:" + "1" * 64, "size": 2000}],
            }
        ).encode()
        _put_manifest(site, repository, digest_of(manifest), manifest)
        site.paths[f"/v2/{repository}/blobs/{digest_of(config)}"] = config
        platforms[f"linux/{architecture}"] = {"digest": digest_of(manifest), "size_bytes": 3000 + number + len(config)}
        entries.append({"digest": digest_of(manifest), "size": len(manifest), "platform": {"os": "linux", "architecture": architecture}})
        top = manifest
    if not single:
        entries.append({"digest": "sha256:" + "2" * 64, "size": 1, "platform": {"os": "unknown", "architecture": "unknown"}})
        top = json.dumps({"schemaVersion": 2, "mediaType": DOCKER_LIST if docker else OCI_INDEX, "manifests": entries}).encode()
        _put_manifest(site, repository, digest_of(top), top)
    _put_manifest(site, repository, tag, top)
    return {"index": digest_of(top), "platforms": platforms}


def _put_manifest(site: Site, repository: str, name: str, body: bytes) -> None:
    kind = json.loads(body)["mediaType"]
    site.paths[f"/v2/{repository}/manifests/{name}"] = (200, {"Content-Type": kind, "Docker-Content-Digest": digest_of(body)}, body)


def ask_for_token(site: Site, repository: str) -> None:
    """From now on every manifest and blob of a repository needs the token that ``/token`` gives away."""
    challenge = f'Bearer realm="{site.address}/token",service="tests",scope="repository:{repository}:pull"'

    def guarded(reply: bytes | Reply) -> Callable[[dict[str, str]], Reply]:
        good: Reply = (200, {}, reply) if isinstance(reply, bytes) else reply
        return lambda headers: good if headers.get("authorization") == "Bearer let-me-in" else (401, {"WWW-Authenticate": challenge}, b"")

    for path, reply in list(site.paths.items()):
        if path.startswith(f"/v2/{repository}/") and not callable(reply):
            site.paths[path] = guarded(reply)
    site.paths["/token"] = json.dumps({"token": "let-me-in"}).encode()


def make_certificates(directory: Path) -> tuple[Path, Path]:
    """A certificate authority of our own and a server certificate for 127.0.0.1 by it: (authority, server with its key)."""
    now = datetime.datetime.now(datetime.UTC)
    authority_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "rackready tests")])
    server_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])

    def certificate(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: tuple[x509.ExtensionType, bool]) -> bytes:
        builder = x509.CertificateBuilder().subject_name(subject).issuer_name(authority_name).public_key(key.public_key())
        builder = (
            builder.serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    usage = x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=True,
        crl_sign=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    identifier = x509.SubjectKeyIdentifier.from_public_key(authority_key.public_key())
    authority = directory / "authority.pem"
    authority.write_bytes(
        certificate(authority_name, authority_key, (x509.BasicConstraints(ca=True, path_length=None), True), (usage, True), (identifier, False))
    )
    private = server_key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    names = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
    known = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    server = directory / "server.pem"
    server.write_bytes(certificate(server_name, server_key, (names, False), (known, False)) + private)
    return authority, server
