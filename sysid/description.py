"""Settings objects as JSON and back: the dotted class name and its fields, nothing is pickled."""

import importlib
import json
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar

Role = TypeVar("Role")


def describe(settings: Any) -> str:
    """JSON text of a dataclass instance: its class and fields, nested dataclasses included.

    Raises
    ------
    TypeError
        If it, or a field, is neither a dataclass, an enum member, a number, a text nor a sequence of these.

    Examples
    --------
    >>> from sysid.insertion import ErrorThreshold
    >>> describe(ErrorThreshold(0.1))
    '{"class": "sysid.insertion.error.ErrorThreshold", "error_threshold": 0.1}'
    """
    return json.dumps(_plain(settings))


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        kind = type(value)
        content = {field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.init}
        return {"class": f"{kind.__module__}.{kind.__qualname__}", **content}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(
        f"cannot describe {value!r}: expected a dataclass of numbers, texts, enum members and dataclasses; "
        "make the class a dataclass to keep it in a file"
    )


def build(text: str, role: type[Role]) -> Role:
    """Instance that `describe` described; it must be of the given role.

    Raises
    ------
    ValueError
        Not such a text, a class that cannot be imported, or one of another role.

    Examples
    --------
    >>> from sysid.insertion import ErrorThreshold, Insertion
    >>> build(describe(ErrorThreshold(0.1)), Insertion)
    ErrorThreshold(error_threshold=0.1)
    """
    content = json.loads(text)
    if not isinstance(content, dict) or not issubclass(_imported(str(content.get("class"))), role):
        raise ValueError(f"expected the description of a {role.__name__}, got {text}")
    built: Role = _built(content)
    return built


def _built(value: Any) -> Any:
    if isinstance(value, list):
        return [_built(item) for item in value]
    if not isinstance(value, dict):
        return value
    content = {name: _built(item) for name, item in value.items() if name != "class"}
    return _imported(str(value.get("class")))(**content)


def _imported(name: str) -> type:
    """Class of a dotted name; only dataclasses come back."""
    module, _, attribute = name.rpartition(".")
    try:
        kind = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(
            f"cannot import {name!r} ({error}); put the module that defines it on the Python path"
        ) from error
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise ValueError(f"expected the dotted name of a dataclass, got {name!r}")
    return kind
