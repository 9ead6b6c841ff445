"""The configuration that a file states, read as plain data.

A stranger may have written it: nothing of it runs, and it cannot take much memory or time.
"""

from typing import Any

import yaml

from experiments.cli.build import with_present_names

MOST_CHARACTERS = 2**16  # of a configuration that is read; ordinary ones have some thousands
MOST_LEVELS = 50  # of settings within settings
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the same in C, ten times as fast
DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_configuration(text: object) -> dict[str, Any] | None:
    """Read the settings that a text states; interpolations stay texts.

    Classes of the toolbox have the names that they have today.

    Parameters
    ----------
    text
        Attribute ``configuration`` of a file.

    Returns
    -------
    dict or None
        None: the text is no configuration. It is too long or too deep, states no settings by name,
        asks for objects other than numbers, texts, lists and maps, or repeats a part by its name,
        which can grow without end.
    """
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        return None
    try:
        if not _is_plain(text):
            return None
        found = yaml.load(text, Loader=LOADER)
        text_of(found)  # refuses whole numbers of too many digits
    except (yaml.YAMLError, ValueError, ArithmeticError, RecursionError):
        return None
    return with_present_names(found) if isinstance(found, dict) else None


def text_of(value: Any) -> str:
    """Text of a setting, the same for equal ones: keys are sorted.

    >>> text_of({"b": 1, "a": None})
    'a: null\\nb: 1'
    """
    return str(yaml.dump(value, Dumper=DUMPER)).removesuffix("...\n").strip()


def state_alike(one: object, other: object, key: str) -> bool:
    """Return whether the texts of two configurations state the same under a key.

    They do not if one of them cannot be read, or does not state it.
    """
    first = read_configuration(one)
    second = read_configuration(other)
    if first is None or second is None or key not in first or key not in second:
        return False
    return text_of(first[key]) == text_of(second[key])


def _is_plain(text: str) -> bool:
    """Return whether a text repeats no part by its name, and is not too deep."""
    depth = 0
    for event in yaml.parse(text, Loader=LOADER):
        if isinstance(event, yaml.AliasEvent):
            return False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_LEVELS:
            return False
    return True
