"""Names that NetCDF can store."""

import unicodedata

#: Largest name of a variable or group in UTF-8 [bytes]. NetCDF and file systems allow 255, but a
#: file that is named after a signal also has an ending.
MAX_NAME_BYTES = 200


def obstacle_to_name(name: str) -> str:
    """Return why NetCDF cannot store something under a name; empty if it can.

    >>> obstacle_to_name("%open")
    "NetCDF lets a name begin with a letter, a digit or an underscore, not with '%'"
    """
    first = name[0]
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
