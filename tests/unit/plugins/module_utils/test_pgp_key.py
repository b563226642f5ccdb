# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Fingerprints and armor, against what gpg printed for the same keys."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from ansible_collections.rackready.gpu.plugins.module_utils import pgp_key

KEYS = Path(__file__).parents[3] / "fixtures" / "keys"
FINGERPRINTS = {"ed25519.asc": "AD0C892BAF2835ECA0241FF33AD60AF0057889CC", "rsa2048.asc": "BAC08DCD1C4351CDF20CECB0ED418A44AE84A649"}


def binary(armored: str) -> bytes:
    lines = armored.split("\n\n", 1)[1].splitlines()
    return base64.b64decode("".join(line for line in lines if not line.startswith(("=", "-"))))


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_fingerprint(name: str) -> None:
    text = (KEYS / name).read_text(encoding="ascii")
    assert pgp_key.fingerprint(text) == FINGERPRINTS[name]
    assert pgp_key.armor(text.replace("\n", "\r\n").encode()) == text


@pytest.mark.parametrize("name", FINGERPRINTS)
def test_a_binary_key_is_armored_as_gpg_does(name: str) -> None:
    text = (KEYS / name).read_text(encoding="ascii")
    assert pgp_key.armor(binary(text)) == text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"<html>Login</html>", "no OpenPGP data"),
        (b"", "no OpenPGP data"),
        (b"\x99\x01\x00\x04short", "ends too early"),
        (b"\xc2\x03\x04\x00\x00", "does not begin with an OpenPGP public key"),
        (b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n???\n-----END PGP PUBLIC KEY BLOCK-----", "damaged"),
    ],
)
def test_what_is_no_key_is_refused(content: bytes, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        pgp_key.armor(content)
