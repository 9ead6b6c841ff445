"""Bytes of an HDF5 file that say nothing about its content: padding, and the times of its root group.

The layout is that of the HDF5 File Format Specification, sections II (superblock) and IV.A
(object headers, version 2).
"""

from __future__ import annotations

from typing import NamedTuple

MASK = 0xFFFFFFFF  # 32 bits
TIMES_STORED = 0x20  # flag of an object header: four times of 4 bytes follow
PHASES_STORED = 0x10  # flag of an object header: two numbers of 2 bytes follow
END = {0: 40, 1: 44, 2: 28, 3: 28}  # where a superblock states the end of the file, by its version
ROOT = {0: 64, 1: 68, 2: 36, 3: 36}  # where it states the address of the root group


class Header(NamedTuple):
    """Places of the parts of an object header in a file."""

    start: int
    times: int
    checksum: int


def normalised(content: memoryview) -> bytes:
    """The file without padding at its end and with the times of its root group set to zero.

    HDF5 grows a file in memory in steps of 64 kB, and notes when the root group was made, changed and
    read, in seconds. Without them the same content gives the same bytes, and a file cut short is always
    noticed. A file of an unknown layout stays as it is.
    """
    version = content[8]
    if version not in END:
        return bytes(content)
    file = bytearray(content[: _number(content, END[version], 8)])
    header = _header(file, _number(file, ROOT[version], 8))
    if header is not None:
        file[header.times : header.times + 16] = bytes(16)
        checksum = lookup3(bytes(file[header.start : header.checksum]))
        file[header.checksum : header.checksum + 4] = checksum.to_bytes(4, "little")
    return bytes(file)


def _header(file: bytearray, start: int) -> Header | None:
    """Object header of version 2 that stores times and whose checksum is the expected one, or None."""
    flags = file[start + 5] if file[start : start + 5] == b"OHDR\x02" else 0
    if not flags & TIMES_STORED:
        return None
    times = start + 6
    size = times + 16 + (4 if flags & PHASES_STORED else 0)
    width = 1 << (flags & 3)
    checksum = size + width + _number(file, size, width)
    if lookup3(bytes(file[start:checksum])) != _number(file, checksum, 4):
        return None
    return Header(start, times, checksum)


def _number(file: bytearray | memoryview, place: int, width: int) -> int:
    return int.from_bytes(file[place : place + width], "little")


def lookup3(data: bytes) -> int:
    """Hash of 32 bits by which HDF5 protects its metadata: B. Jenkins, lookup3, `hashlittle` from 0.

    >>> hex(lookup3(b"Four score and seven years ago"))
    '0x17770551'
    """
    a = b = c = (0xDEADBEEF + len(data)) & MASK
    if not data:
        return c
    last = (len(data) - 1) // 12 * 12
    for place in range(0, last, 12):
        a, b, c = _mix(*_added(data[place : place + 12], a, b, c))
    return _final(*_added(data[last:], a, b, c))


def _added(block: bytes, a: int, b: int, c: int) -> tuple[int, int, int]:
    words = (int.from_bytes(block[place : place + 4], "little") for place in (0, 4, 8))
    x, y, z = ((value + word) & MASK for value, word in zip((a, b, c), words, strict=True))
    return x, y, z


def _rotated(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (32 - bits))) & MASK


def _mix(a: int, b: int, c: int) -> tuple[int, int, int]:
    for bits in (4, 6, 8, 16, 19, 4):  # each round the three words change places
        a = ((a - c) & MASK) ^ _rotated(c, bits)
        c = (c + b) & MASK
        a, b, c = b, c, a
    return a, b, c


def _final(a: int, b: int, c: int) -> int:
    for bits in (14, 11, 25, 16, 4, 14, 24):
        c = ((c ^ b) - _rotated(b, bits)) & MASK
        a, b, c = b, c, a
    return b
