# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fingerprint and armor of OpenPGP public keys, without gpg (RFC 4880, sections 4.2, 6.2 and 12.2)."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re

BEGIN = "-----BEGIN PGP PUBLIC KEY BLOCK-----"
END = "-----END PGP PUBLIC KEY BLOCK-----"


def armor(content: bytes) -> str:
    """The key in ASCII armor with a newline at its end; raises ValueError when the content is no public key."""
    text = content.decode("ascii", errors="replace")
    match = re.search(f"{BEGIN}.*?{END}", text, re.DOTALL)
    if match is not None:
        fingerprint(match.group())  # raises for a damaged one
        return match.group().replace("\r\n", "\n") + "\n"
    _fingerprint(content)
    body = base64.b64encode(content).decode("ascii")
    lines = [body[start : start + 64] for start in range(0, len(body), 64)]
    return "\n".join([BEGIN, "", *lines, f"={_crc24(content)}", END]) + "\n"


def fingerprint(armored: str) -> str:
    """The version 4 fingerprint, 40 upper-case digits, of the first key in an armored block; raises ValueError."""
    body = armored.replace("\r\n", "\n").split(BEGIN, 1)[-1].split(END, 1)[0]
    encoded = body.split("\n\n", 1)[-1] if "\n\n" in body else body
    lines = [line.strip() for line in encoded.splitlines()]
    try:
        content = base64.b64decode("".join(line for line in lines if line and not line.startswith("=")), validate=True)
    except binascii.Error as error:
        raise ValueError(f"the armor of the public key is damaged ({error})") from error
    return _fingerprint(content)


def _fingerprint(content: bytes) -> str:
    tag, body = _packet(content)
    if tag != 6 or not body or body[0] != 4:
        raise ValueError("the file does not begin with an OpenPGP public key of version 4")
    return hashlib.sha1(b"\x99" + len(body).to_bytes(2, "big") + body).hexdigest().upper()


def _packet(content: bytes) -> tuple[int, bytes]:
    """Tag and body of the first packet, in the old or the new format of its header."""
    if len(content) < 3 or not content[0] & 0x80:
        raise ValueError("the file is no OpenPGP data")
    first = content[0]
    if first & 0x40:
        tag, octet = first & 0x3F, content[1]
        if octet < 192:
            length, start = octet, 2
        elif octet < 224:
            length, start = ((octet - 192) << 8) + content[2] + 192, 3
        else:
            length, start = int.from_bytes(content[2:6], "big"), 6
    else:
        tag, size = (first >> 2) & 0x0F, 1 << (first & 0x03)
        if size == 8:
            raise ValueError("the OpenPGP data has no length")
        length, start = int.from_bytes(content[1 : 1 + size], "big"), 1 + size
    body = content[start : start + length]
    if len(body) != length:
        raise ValueError("the OpenPGP data ends too early")
    return tag, body


def _crc24(content: bytes) -> str:
    """Checksum of RFC 4880, section 6.1."""
    crc = 0xB704CE
    for octet in content:
        crc ^= octet << 16
        for _bit in range(8):
            crc <<= 1
            if crc & 0x1000000:
                crc ^= 0x1864CFB
    return base64.b64encode((crc & 0xFFFFFF).to_bytes(3, "big")).decode("ascii")
