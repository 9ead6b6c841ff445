"""What an HDF5 file refers to, found in its bytes before HDF5 reads it.

HDF5 can take the content of a file from elsewhere: from other files of any format (external
data), from other HDF5 files (external links, virtual data sets), and many times from one place of
the file itself (texts). It opens these files and multiplies these texts without a question. NetCDF
needs none of this: a file that does it is refused.

The structures are recognised by their signatures and forms anywhere in the file, so that nothing
depends on how HDF5 reaches them. The forms are those of the HDF5 file format specification, 4.0.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from sysid.errors import UserError

#: first bytes of an HDF5 file
HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"

#: first bytes of the classic formats of NetCDF, which refer to nothing
CLASSIC_SIGNATURE = b"CDF"

#: version of HDF5's superblock -> position of the address to which all addresses refer [byte]
BASE_ADDRESS_POSITIONS = {
    0: 24,
    1: 28,
    2: 12,
    3: 12,
}

#: signature and version of a local heap; only lists of external files and groups of old formats
#: have one
LOCAL_HEAP = b"HEAP\0"

#: version of a list of external files
EXTERNAL_FILES_VERSION = 1

#: length of such a list up to the end of the address of its heap
EXTERNAL_FILES_BYTES = 16

FRACTAL_HEAP = b"FRHP\0"  # signature and version of a heap that holds the links of a group
FRACTAL_HEAP_BYTES = 142  # length of its head without filters
GLOBAL_HEAP = b"GCOL\x01"  # signature and version of a collection of texts
GLOBAL_HEAP_HEAD_BYTES = 16  # length of the head of a collection, and of that of each object
MIN_TEXTS = 10_000  # number of texts that a file of any length may have
SHARED_MESSAGES = b"SMTB"  # signature of a table of attributes that several groups share

EXTERNAL_LINK = 64  # type of a link to another file
VIRTUAL_LAYOUT = 3  # class of the layout of a virtual data set
FIRST_VIRTUAL_VERSION = 4  # first version of the layout message that can be virtual

#: size of the blocks in which a file is searched [byte]
SEARCH_BLOCK_BYTES = 2**22

#: longest reference that is searched: length, address and index of a text [byte]
REFERENCE_BYTES = 12

#: how often the texts of a file may be as long as the file: those that were replaced remain in it
MAX_TEXT_RATIO = 2


Content = mmap.mmap | bytes  # the bytes of a file


def find_reference(path: str | os.PathLike[str], allowed_bytes: int) -> str:
    """Describe what a NetCDF file refers to and NetCDF does not need; empty if there is nothing.

    Parameters
    ----------
    path
        The file; it is not changed.
    allowed_bytes
        Length that the texts of a file of any size may have in memory.

    Raises
    ------
    OSError
        The file cannot be read.
    ValueError
        The file has another format.
    """
    if not Path(path).stat().st_size:
        return ""
    with _mapped(path) as content:
        if content[: len(CLASSIC_SIGNATURE)] == CLASSIC_SIGNATURE:
            return ""
        if content[: len(HDF5_SIGNATURE)] != HDF5_SIGNATURE or not _has_base_address_zero(content):
            raise UserError("it does not begin as a NetCDF 4 file does")
        if _has_external_data(content):
            return "data in another file (external storage)"
        if _has_external_link(content):
            return "a group or variable in another file (external link)"
        if _has_virtual_data(content):
            return "data of another file (virtual data set)"
        if _has_hidden_links(content):
            return "links that are compressed"
        if content.find(SHARED_MESSAGES) >= 0 and _has_extension(content):
            return "attributes that several groups share"
        n_bytes = _count_text_bytes(content)
        if n_bytes > max(allowed_bytes, MAX_TEXT_RATIO * len(content)):
            return f"the same text many times, {n_bytes} bytes in all"
    return ""


@contextmanager
def _mapped(path: str | os.PathLike[str]) -> Iterator[Content]:
    """Map a file into memory, or read it where the file system cannot map files."""
    with open(path, "rb") as file:
        try:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except OSError:
            yield file.read()
            return
        with mapped:
            yield mapped


def _has_base_address_zero(content: Content) -> bool:
    """Return whether all addresses of an HDF5 file count from its first byte."""
    position = BASE_ADDRESS_POSITIONS.get(content[8])
    return position is not None and not any(content[position : position + 8])


def _has_extension(content: Content) -> bool:
    """Return whether the superblock of a file has an extension, which shared attributes need."""
    return content[8] in (2, 3) and content[20:28] != b"\xff" * 8


def _positions(content: Content, signature: bytes) -> Iterator[int]:
    """Yield all positions of a signature in a file."""
    position = content.find(signature)
    while position >= 0:
        yield position
        position = content.find(signature, position + 1)


def _has_external_data(content: Content) -> bool:
    """Return whether a list of external files refers to one of the local heaps of a file.

    The list has its version, three reserved bytes, its length, its used length and the address.
    """
    heaps = np.array(list(_positions(content, LOCAL_HEAP)), dtype=np.int64)
    if not len(heaps):
        return False
    for _, block in _blocks(content, EXTERNAL_FILES_BYTES - 1):
        n = len(block) - EXTERNAL_FILES_BYTES + 1
        is_list = block[:n] == EXTERNAL_FILES_VERSION
        is_list &= (block[6 : n + 6] | block[7 : n + 7]) != 0
        is_list &= (block[14 : n + 14] | block[15 : n + 15]) == 0  # an address has 48 bits
        at = np.flatnonzero(is_list)
        if np.isin(_addresses_at(block, at + 8), heaps).any():
            return True
    return False


def _has_external_link(content: Content) -> bool:
    """Return whether a file has a message of a link to another file."""
    zeros = _Zeros(content)
    for begin, block in _blocks(content, 2):
        is_found = (block[:-2] == 1) & (block[1:-1] & 0xE8 == 0x08) & (block[2:] == EXTERNAL_LINK)
        found = np.flatnonzero(is_found).tolist()
        if any(_is_external_link(content, begin + i, zeros) for i in found):
            return True
    return False


class _Zeros:
    """The bytes of a file that are zero, searched from its beginning to its end only once."""

    def __init__(self, content: Content) -> None:
        self._content = content
        self._begin = 0  # the bytes from here to `_zero` are not zero
        self._zero = 0

    def is_free(self, begin: int, end: int) -> bool:
        """Return whether no byte from `begin` to before `end` is zero."""
        if begin < self._begin:
            if self._content.find(b"\0", begin, min(self._begin, end)) >= 0:
                return False
            begin = self._begin
        if begin > self._zero or self._zero == 0:
            zero = self._content.find(b"\0", begin)
            self._begin = begin
            self._zero = len(self._content) if zero < 0 else zero
        return end <= self._zero


def _is_external_link(content: Content, position: int, zeros: _Zeros) -> bool:
    """Return whether the bytes at a position have the form of the message of an external link.

    HDF5 accepts more bytes behind the names.
    """
    flags = content[position + 1]
    has_order = bool(flags & 0x04)
    has_character_set = bool(flags & 0x10)
    at = position + 3 + 8 * has_order + has_character_set
    n_bytes_of_length = 1 << (flags & 0x03)
    name_length = int.from_bytes(content[at : at + n_bytes_of_length], "little")
    at += n_bytes_of_length
    name_end = at + name_length
    if not 0 < name_length <= len(content) - at or not zeros.is_free(at, name_end):
        return False
    at = name_end
    length = int.from_bytes(content[at : at + 2], "little")
    value = content[at + 2 : at + 2 + length]
    if len(value) != length or not value or value[0]:
        return False
    file_name, separator, others = value[1:].partition(b"\0")
    object_name = others.partition(b"\0")[0]
    try:
        is_text = object_name.decode().isprintable()
    except UnicodeDecodeError:
        return False
    return bool(file_name and separator and is_text)


def _has_virtual_data(content: Content) -> bool:
    """Return whether a file has the layout of a virtual data set, which names other files."""
    for begin, block in _blocks(content, 1):
        is_version = (block[:-1] >= FIRST_VIRTUAL_VERSION) & (block[:-1] < 16)
        is_found = is_version & (block[1:] == VIRTUAL_LAYOUT)
        for i in np.flatnonzero(is_found):
            position = begin + int(i) + 2
            address = int.from_bytes(content[position : position + 8], "little")
            if content[address : address + len(GLOBAL_HEAP)] == GLOBAL_HEAP:
                return True
    return False


def _has_hidden_links(content: Content) -> bool:
    """Return whether the links of a group lie in a heap with filters, which would hide them."""
    for position in _positions(content, FRACTAL_HEAP):
        head = content[position : position + FRACTAL_HEAP_BYTES]
        if len(head) < FRACTAL_HEAP_BYTES:
            continue
        filters_length, flags = struct.unpack_from("<HB", head, 7)
        width, first_size, largest_size = struct.unpack_from("<HQQ", head, 110)
        sizes = (width, first_size, largest_size)
        is_heap = flags < 4 and all(size and not size & (size - 1) for size in sizes)
        if is_heap and filters_length:
            return True
    return False


def _count_text_bytes(content: Content) -> int:
    """Return the length of all texts of a file, counted as often as they are referenced."""
    lengths = _lengths_of_texts(content)
    if not lengths:
        return 0
    addresses = np.unique([address for address, _ in lengths])
    n_bytes = 0
    for _, block in _blocks(content, REFERENCE_BYTES - 1):
        n = len(block) - REFERENCE_BYTES + 1
        # The address has at most 48 bits, and the index 16, of which one is set.
        is_found = (block[6 : n + 6] | block[7 : n + 7] | block[10 : n + 10] | block[11:]) == 0
        is_found &= (block[8 : n + 8] | block[9 : n + 9]) != 0
        at = np.flatnonzero(is_found)
        at = at[np.isin(_addresses_at(block, at), addresses)]
        indices = sum(block[at + 8 + i].astype(np.int64) << 8 * i for i in range(2))
        references = np.column_stack([_addresses_at(block, at), indices])
        different, counts = np.unique(references, axis=0, return_counts=True)
        for (address, index), count in zip(different.tolist(), counts.tolist(), strict=True):
            n_bytes += count * lengths.get((address, index), 0)
    return n_bytes


def _addresses_at(block: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Return the addresses (n,) of 48 bits at positions (n,) of a block."""
    addresses = np.zeros(len(at), dtype=np.int64)
    for i in range(6):
        addresses += block[at + i].astype(np.int64) << 8 * i
    return addresses


def _lengths_of_texts(content: Content) -> dict[tuple[int, int], int]:
    """Return the lengths of the texts of a file, by the address of their collection and index.

    Raises
    ------
    ValueError
        The file has more texts than fit into it, because its collections overlap each other.
    """
    lengths = {}
    n_left = MIN_TEXTS + len(content) // GLOBAL_HEAP_HEAD_BYTES
    for address in _positions(content, GLOBAL_HEAP):
        collection_size = int.from_bytes(content[address + 8 : address + 16], "little")
        end = min(address + collection_size, len(content))
        position = address + GLOBAL_HEAP_HEAD_BYTES
        while position + GLOBAL_HEAP_HEAD_BYTES <= end:
            n_left -= 1
            if n_left < 0:
                raise UserError("its collections of texts overlap each other")
            index, _, length = struct.unpack_from("<HHxxxxQ", content, position)
            if index == 0:  # the free space at the end of the collection
                break
            lengths[address, index] = length
            position += GLOBAL_HEAP_HEAD_BYTES + (length + 7) // 8 * 8
    return lengths


def _blocks(content: Content, overlap: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the position and the bytes of blocks of a file; each one overlaps the next one."""
    for begin in range(0, max(len(content) - overlap, 0), SEARCH_BLOCK_BYTES):
        block = content[begin : begin + SEARCH_BLOCK_BYTES + overlap]
        yield begin, np.frombuffer(block, np.uint8)
