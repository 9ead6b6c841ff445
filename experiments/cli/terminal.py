"""Texts for a terminal: a file of somebody else may hold characters that act on it."""

import logging
import unicodedata

ALLOWED_CONTROLS = "\n\t"  # control characters that a text may have
#: kinds of characters that act on a terminal or hide a text: controls, marks of the direction of
#: writing, parts of pairs, and separators of lines (categories of Unicode)
ACTING_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def printable(text: str) -> str:
    r"""Return a text in which characters that act on a terminal are replaced by their codes.

    >>> printable("größe\x1b[2J")
    'größe\\x1b[2J'
    """
    return text if text.isprintable() else "".join(map(_printable_character, text))


def _printable_character(character: str) -> str:
    """Return a character, or its code if it acts on a terminal."""
    is_acting = unicodedata.category(character) in ACTING_CATEGORIES
    if not is_acting or character in ALLOWED_CONTROLS:
        return character
    return character.encode("unicode_escape").decode()


class PrintableMessages(logging.Filter):
    """Filter that lets every message pass, as printable text."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Replace the message of a record by its printable text."""
        record.msg = printable(record.getMessage())
        record.args = None
        return True


PRINTABLE_MESSAGES = PrintableMessages()  # a handler takes the same filter only once
