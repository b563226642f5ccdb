# Copyright: (c) 2026, rackready contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Zstandard with the library that rpm and apt link themselves: newer RPM repositories are packed with it, and Python has it from 3.14 on only."""

from __future__ import annotations

import ctypes

LIMIT = 1024 * 1024 * 1024
_LIBRARY = "libzstd.so.1"


class ZstdError(Exception):
    """The data cannot be unpacked; the text says why."""


class _Buffer(ctypes.Structure):
    """ZSTD_inBuffer and ZSTD_outBuffer, which have the same layout."""

    _fields_ = [("data", ctypes.c_void_p), ("size", ctypes.c_size_t), ("position", ctypes.c_size_t)]


def decompress(data: bytes, library: str = _LIBRARY) -> bytes:
    """All frames in ``data``; raises ZstdError."""
    try:
        zstd = ctypes.CDLL(library)
    except OSError as error:
        raise ZstdError(f"it is packed with zstd, and {library} is not there to unpack it") from error
    zstd.ZSTD_createDStream.restype = ctypes.c_void_p
    zstd.ZSTD_decompressStream.restype = ctypes.c_size_t
    zstd.ZSTD_getErrorName.restype = ctypes.c_char_p
    stream = ctypes.c_void_p(zstd.ZSTD_createDStream())
    try:
        return _stream(zstd, stream, data)
    finally:
        zstd.ZSTD_freeDStream(stream)


def _stream(zstd: ctypes.CDLL, stream: ctypes.c_void_p, data: bytes) -> bytes:
    space = ctypes.create_string_buffer(1024 * 1024)
    source = _Buffer(ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p), len(data), 0)
    parts: list[bytes] = []
    total = 0
    while True:
        target = _Buffer(ctypes.cast(space, ctypes.c_void_p), len(space), 0)
        left = ctypes.c_size_t(zstd.ZSTD_decompressStream(stream, ctypes.byref(target), ctypes.byref(source)))
        if zstd.ZSTD_isError(left):
            raise ZstdError(str(zstd.ZSTD_getErrorName(left).decode("ascii", "replace")))
        parts.append(space.raw[: target.position])
        total += target.position
        if total > LIMIT:
            raise ZstdError(f"it unpacks to more than {LIMIT // 1024 // 1024} MiB")
        # A full target may leave more behind although the source was read to its end.
        if source.position == source.size and target.position < target.size:
            if left.value:
                raise ZstdError("it ends too early")
            return b"".join(parts)
