"""Settings as plain text that names public classes, and back."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, TypeVar

import sysid
from sysid.errors import UserError, UserTypeError

Role = TypeVar("Role")

PACKAGES = ("sysid", "simulators")  # with public names


class OwnClassError(UserError):
    """A text names a class of the user's own that nobody trusts, or that cannot be imported."""


def describe(settings: Any) -> str:
    """JSON text of a dataclass instance: its class and fields, nested dataclasses included.

    A class that the toolbox ships has its public name, ``sysid.ErrorThreshold``; any other one its
    module and name.

    Raises
    ------
    TypeError
        If it, or a field, is neither a dataclass, an enum member, a number, a text nor a sequence
        of these.

    Examples
    --------
    >>> from sysid import ErrorThreshold
    >>> describe(ErrorThreshold(0.1))
    '{"class": "sysid.ErrorThreshold", "error_threshold": 0.1}'
    """
    return json.dumps(_plain(settings))


def name_of(kind: type) -> str:
    """Public name of a class of the toolbox, module and name of any other."""
    is_public = _is_ours(kind) and kind.__name__ in sysid.__all__
    return f"sysid.{kind.__name__}" if is_public else f"{kind.__module__}.{kind.__qualname__}"


def public_name(name: str) -> str | None:
    """Public name of a class of our packages by a dotted name that it has or had; None: there is no
    such class.

    Only the package and the class count: the module that a class lies in may change.

    Examples
    --------
    >>> public_name("sysid.kernels.matern.Matern52")
    'sysid.Matern52'
    """
    package = name.partition(".")[0]
    last = name.rpartition(".")[2]
    is_ours = package in PACKAGES and last in importlib.import_module(package).__all__
    return f"{package}.{last}" if is_ours else None


def _plain(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        content = {
            field.name: _plain(getattr(value, field.name)) for field in fields(value) if field.init
        }
        return {"class": name_of(type(value)), **content}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UserTypeError(
        f"cannot describe {value!r}: expected a dataclass of numbers, texts, enum members and dataclasses; "
        "make the class a dataclass to keep it in a file"
    )


def build(text: str, role: type[Role], *, trusted: Sequence[str] = ()) -> Role:
    """Instance that `describe` described; it must be of the given role.

    Parameters
    ----------
    text : str
    role : type
    trusted : sequence of str
        Dotted names of classes, or of modules, of one's own that the text may name; they are
        imported here. A class whose module was imported before needs no trust.

    Raises
    ------
    OwnClassError
        The text names a class that the toolbox does not ship and nobody trusts, or that cannot be
        imported.
    ValueError, TypeError
        Not such a text, one of another role, fields that do not fit; `trusted` is one text instead
        of a list.

    Examples
    --------
    >>> from sysid import ErrorThreshold, Insertion
    >>> build(describe(ErrorThreshold(0.1)), Insertion)
    ErrorThreshold(error_threshold=0.1)
    """
    if isinstance(trusted, str):
        raise UserTypeError(
            f"trusted must be a list of modules and classes, [{trusted!r}], got {trusted!r}"
        )
    content = json.loads(text)
    if not isinstance(content, dict) or not issubclass(
        _class_of(str(content.get("class")), trusted), role
    ):
        raise UserError(f"expected the description of a {role.__name__}, got {text[:200]}")
    built: Role = _rebuild(content, trusted)
    return built


def _rebuild(value: Any, trusted: Sequence[str]) -> Any:
    if isinstance(value, list):
        return [_rebuild(item, trusted) for item in value]
    if not isinstance(value, dict):
        return value
    content = {name: _rebuild(item, trusted) for name, item in value.items() if name != "class"}
    return _class_of(str(value.get("class")), trusted)(**content)


def _class_of(name: str, trusted: Sequence[str]) -> type:
    """Dataclass of a name in a file: a public one of the toolbox, or a trusted one of the user's
    own.
    """
    if name.partition(".")[0] == "sysid":
        public = public_name(name)
        kind = getattr(sysid, public.removeprefix("sysid.")) if public else None
    else:
        kind = _import_own(name, trusted)
    if not (isinstance(kind, type) and is_dataclass(kind) and any(map(_is_ours, kind.__mro__))):
        raise UserError(
            f"expected the name of a dataclass that has a role in the toolbox, got {name!r}"
        )
    return kind


def _is_ours(kind: type) -> bool:
    return kind.__module__.partition(".")[0] == "sysid"


def _import_own(name: str, trusted: Sequence[str]) -> Any:
    """Class of one's own, whose module was imported or is trusted; nothing else is imported."""
    module, _, attribute = name.rpartition(".")
    if module not in sys.modules:
        if name not in trusted and module not in trusted:
            raise OwnClassError(
                f"{name!r} is no class of the toolbox, and the file alone does not make it run: import {module!r} "
                f"before, or trust it (in Python trusted=[{name!r}], on the command line +trusted=[{name}])"
            )
        try:
            importlib.import_module(module)
        except (ImportError, ValueError) as error:
            raise OwnClassError(
                f"cannot import {name!r} ({error}); put its module on the Python path"
            ) from error
    return vars(sys.modules[module]).get(
        attribute
    )  # a module that loads its parts when they are asked for loads none
