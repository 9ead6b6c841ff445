"""YAML texts of untrusted authors, read as plain data.

Nothing in the text is run, and reading it takes little memory and time.
"""

from typing import Any

import yaml

MAX_CONFIGURATION_CHARACTERS = 2**16  # ordinary configurations have some thousands
MAX_NESTING_LEVELS = 50  # levels of settings within settings
YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the loader in C is ten times as fast
YAML_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def read_plain(text: object) -> Any:
    """Return the content of a YAML text: numbers, texts, lists and maps. Interpolations stay texts.

    It is None if the text has other content: it is too long or too deeply nested, contains other
    objects, or repeats a part by its name, which can grow without end.
    """
    if not isinstance(text, str) or len(text) > MAX_CONFIGURATION_CHARACTERS:
        return None
    try:
        if not _is_plain(text):
            return None
        content = yaml.load(text, Loader=YAML_LOADER)
        text_of(content)  # raises ValueError for integers with too many digits
    except (yaml.YAMLError, ValueError, ArithmeticError, RecursionError):
        return None
    return content


def text_of(value: Any) -> str:
    """Return the text of a setting, which is the same for equal ones: keys are sorted.

    >>> text_of({"b": 1, "a": None})
    'a: null\\nb: 1'
    """
    return str(yaml.dump(value, Dumper=YAML_DUMPER)).removesuffix("...\n").strip()


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
