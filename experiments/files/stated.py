"""The configuration that a file states, read as plain data.

The file may come from an untrusted author: nothing in the text is run, and reading it takes little
memory and time.
"""

from typing import Any

import yaml

from experiments.cli.build import with_present_names

MAX_CONFIGURATION_CHARACTERS = 2**16  # ordinary configurations have some thousands
MAX_NESTING_LEVELS = 50  # levels of settings within settings
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the loader in C is ten times as fast
YAML_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_configuration(text: object) -> dict[str, Any] | None:
    """Return the settings that a text states, with the present names of the toolbox's classes.

    Interpolations stay texts.

    Parameters
    ----------
    text
        Attribute ``configuration`` of a file.

    Returns
    -------
    dict or None
        None if the text is no configuration: it is too long or too deeply nested, is no map,
        contains objects other than numbers, texts, lists and maps, or repeats a part by its name,
        which can grow without end.
    """
    if not isinstance(text, str) or len(text) > MAX_CONFIGURATION_CHARACTERS:
        return None
    try:
        if not _is_plain(text):
            return None
        settings = yaml.load(text, Loader=YAML_LOADER)
        text_of(settings)  # raises ValueError for integers with too many digits
    except (yaml.YAMLError, ValueError, ArithmeticError, RecursionError):
        return None
    return with_present_names(settings) if isinstance(settings, dict) else None


def text_of(value: Any) -> str:
    """Return the text of a setting, which is the same for equal ones: keys are sorted.

    >>> text_of({"b": 1, "a": None})
    'a: null\\nb: 1'
    """
    return str(yaml.dump(value, Dumper=YAML_DUMPER)).removesuffix("...\n").strip()


def state_alike(one: object, other: object, key: str) -> bool:
    """Return whether the texts of two configurations state the same value of a key.

    They do not if one of them cannot be read, or does not have the key.
    """
    first = read_configuration(one)
    second = read_configuration(other)
    if first is None or second is None or key not in first or key not in second:
        return False
    return text_of(first[key]) == text_of(second[key])


def _is_plain(text: str) -> bool:
    """Return whether a YAML text has no aliases and is not nested too deeply."""
    depth = 0
    for event in yaml.parse(text, Loader=YAML_LOADER):
        if isinstance(event, yaml.AliasEvent):
            return False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_NESTING_LEVELS:
            return False
    return True
