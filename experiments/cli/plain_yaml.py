"""YAML texts of untrusted authors, read as plain data.

Nothing in the text is run, and reading it takes little memory and time.
"""

from typing import Any

import yaml

MAX_CONFIGURATION_CHARACTERS = 2**16  # ordinary configurations have some thousands
MAX_NESTING_LEVELS = 50  # levels of settings within settings
#: the loader in C is ten times as fast
BaseLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
YAML_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class PlainLoader(BaseLoader):
    """Loader for which a date is a text, as it is in the configuration files."""

    yaml_implicit_resolvers = {  # noqa: RUF012 (an attribute of the base class)
        character: [(tag, form) for tag, form in resolvers if not tag.endswith(":timestamp")]
        for character, resolvers in BaseLoader.yaml_implicit_resolvers.items()
    }


def read_plain(text: object) -> Any:
    """Return the content of a YAML text: numbers, texts, lists and maps. Interpolations stay texts.

    It is None if the text has other content: it is too long or too deeply nested, names a type of
    its content (``!!set``), or repeats a part by its name, which can grow without end.
    """
    if not isinstance(text, str) or len(text) > MAX_CONFIGURATION_CHARACTERS:
        return None
    try:
        if not _is_plain(text):
            return None
        content = yaml.load(text, Loader=PlainLoader)
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
    """Return whether a YAML text has neither aliases nor tags, and is not nested too deeply."""
    depth = 0
    for event in yaml.parse(text, Loader=PlainLoader):
        if isinstance(event, yaml.AliasEvent) or getattr(event, "tag", None) is not None:
            return False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MAX_NESTING_LEVELS:
            return False
    return True
