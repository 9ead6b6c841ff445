"""Names that NetCDF can store, and paths that its library can open."""

import os
import sys
import unicodedata

#: Largest name of a variable or group in UTF-8 [bytes]. NetCDF and file systems allow 255, but a
#: file that is named after a signal also has an ending.
MAX_NAME_BYTES = 200


def obstacle_to_name(name: str) -> str:
    """Return why NetCDF cannot store something under a name; empty if it can.

    >>> obstacle_to_name("%open")
    "NetCDF lets a name begin with a letter, a digit or an underscore, not with '%'"
    """
    first = name[:1]
    if not first:
        return "a name has at least one character"
    if first.isascii() and not first.isalnum() and first != "_":
        return (
            f"NetCDF lets a name begin with a letter, a digit or an underscore, not with {first!r}"
        )
    if not name.isprintable() or name != name.strip():
        return "NetCDF takes printable characters only, and no blank at the end"
    n_bytes = len(name.encode())
    if n_bytes > MAX_NAME_BYTES:
        return f"it takes {n_bytes} bytes in UTF-8, and NetCDF and file systems at most 255"
    joined = unicodedata.normalize("NFC", name)
    if joined != name:
        return (
            f"NetCDF would store {name!a} as {joined!a}, with accents and letters in one character"
        )
    return ""


def obstacle_to_path(path: str | os.PathLike[str]) -> str:
    """Return why the NetCDF library cannot open a file of this path; empty if it can.

    The library encodes a path strictly, in the encoding of the locale.

    >>> obstacle_to_path("outputs/r/model.nc")
    ''
    """
    text = os.fspath(path)
    encoding = sys.getfilesystemencoding()
    try:
        text.encode(encoding)
    except UnicodeEncodeError as error:
        return (
            f"NetCDF cannot open a path with {text[error.start]!a} in this locale ({encoding}); "
            "set LC_ALL=C.UTF-8, or take another name"
        )
    return ""
