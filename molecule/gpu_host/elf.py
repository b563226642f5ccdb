# SPDX-License-Identifier: GPL-3.0-or-later
# Copyright: (c) 2026, rackready contributors
"""A minimal shared object: enough for ldconfig and the loader to take it for a library, with no function in it.

Layout: one read-only segment that holds the ELF header, the program headers, the dynamic section, and its string, symbol and
hash tables (System V ABI, chapters 4 and 5).
"""

from __future__ import annotations

import struct

_MACHINES = {"amd64": 62, "x86_64": 62, "arm64": 183, "aarch64": 183}
_HEADER, _PROGRAM_HEADER, _SYMBOL = 64, 56, 24
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = 4, 5, 6, 10, 11, 14


def shared_object(soname: str, architecture: str = "amd64") -> bytes:
    """A 64-bit little-endian shared object with that SONAME and no symbols.

    :raises KeyError: the architecture is neither x86_64 nor aarch64, nor what Debian calls them.
    """
    strings = b"\0" + soname.encode() + b"\0"
    dynamic_at = _HEADER + 2 * _PROGRAM_HEADER
    dynamic_size = 7 * 16
    strings_at = dynamic_at + dynamic_size
    symbols_at = strings_at + len(strings) + -len(strings) % 8
    hash_at = symbols_at + _SYMBOL
    table = struct.pack("<4I", 1, 1, 0, 0)
    end = hash_at + len(table)
    entries = [(_DT_HASH, hash_at), (_DT_STRTAB, strings_at), (_DT_SYMTAB, symbols_at)]
    entries += [(_DT_STRSZ, len(strings)), (_DT_SYMENT, _SYMBOL), (_DT_SONAME, 1), (0, 0)]
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01" + b"\0" * 9, 3, _MACHINES[architecture], 1, 0, _HEADER, 0, 0, _HEADER, _PROGRAM_HEADER, 2, 64, 0, 0
    )
    # The loader writes into the dynamic section, so the segment is writable.
    load = struct.pack("<IIQQQQQQ", _PT_LOAD, 6, 0, 0, 0, end, end, 0x1000)
    dynamic = struct.pack("<IIQQQQQQ", _PT_DYNAMIC, 6, dynamic_at, dynamic_at, dynamic_at, dynamic_size, dynamic_size, 8)
    body = header + load + dynamic + b"".join(struct.pack("<QQ", *entry) for entry in entries) + strings
    return body + b"\0" * (symbols_at - len(body)) + b"\0" * _SYMBOL + table
