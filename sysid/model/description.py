"""Settings as JSON text that names public classes, and back."""

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

#: packages whose public classes a text may name
DESCRIBED_PACKAGES = ("sysid", "simulators")
#: roles of the classes that a text may name; making an object of one of them has no other effect
DESCRIBED_ROLES = (
    "Acceptance",
    "CoefficientDecay",
    "Criterion",
    "Estimator",
    "Insertion",
    "Kernel",
    "LinearPart",
    "MeanFunction",
    "Propagation",
    "Selection",
    "Training",
)
INTERPOLATION = "${"  # start of an interpolation, which no text of a description may contain


class OwnClassError(UserError):
    """A text names a class of the user that is not trusted or cannot be imported."""


def describe(settings: Any) -> str:
    """Return a dataclass instance as JSON text: its class and fields, with nested dataclasses.

    Fields with the metadata ``later`` are left out while they have their defaults.

    A class of the toolbox is named by its public name, ``sysid.ErrorThreshold``; any other class by
    its module and name.

    Raises
    ------
    TypeError
        The instance or a field is neither a dataclass, an enum member, a number, a text nor a
        sequence of these.

    Examples
    --------
    >>> from sysid import ErrorThreshold
    >>> describe(ErrorThreshold(0.1))
    '{"class": "sysid.ErrorThreshold", "error_threshold": 0.1}'
    """
    return json.dumps(_plain(settings))


def name_of(kind: type) -> str:
    """Return the public name of a class of the toolbox, or module and name of any other class."""
    if _is_of_toolbox(kind) and kind.__name__ in sysid.__all__:
        return f"sysid.{kind.__name__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def public_name(name: str) -> str | None:
    """Return the public name of a class of our packages; None if there is no such class.

    `name` is a dotted name that the class has or had. Only its package and its class are compared,
    because the module of a class may change.

    Examples
    --------
    >>> public_name("sysid.kernels.matern.Matern52")
    'sysid.Matern52'
    """
    package = name.partition(".")[0]
    class_name = name.rpartition(".")[2]
    if package not in DESCRIBED_PACKAGES:
        return None
    if class_name not in importlib.import_module(package).__all__:
        return None
    return f"{package}.{class_name}"


def _plain(value: Any) -> Any:
    """Return a value as dictionaries, lists, numbers and texts."""
    if is_dataclass(value) and not isinstance(value, type):
        content: dict[str, Any] = {"class": name_of(type(value))}
        for field in fields(value):
            of_field = getattr(value, field.name)
            is_left_out = field.metadata.get("later") and of_field == field.default
            if field.init and not is_left_out:
                content[field.name] = _plain(of_field)
        return content
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        _refuse_interpolation(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise UserTypeError(
        f"cannot describe {value!r}: expected a dataclass of numbers, texts, enum members and "
        "dataclasses; make the class a dataclass to keep it in a file"
    )


def _refuse_interpolation(text: str) -> None:
    """Raise UserError if a text contains the start of an interpolation."""
    if INTERPOLATION in text:
        raise UserError(
            f"expected a text without {INTERPOLATION!r}, got {text[:200]!r}: what a file describes "
            "is not resolved; write the value itself"
        )


def refuse_interpolations(settings: Any) -> None:
    """Refuse an object that no file could hold, because a text in it looks like an interpolation.

    Texts are searched in the fields of dataclasses and in lists, at every depth.

    Raises
    ------
    ValueError
        A text contains the start of an interpolation (``${``).
    """
    if isinstance(settings, str):
        _refuse_interpolation(settings)
    elif isinstance(settings, tuple | list):
        for entry in settings:
            refuse_interpolations(entry)
    elif is_dataclass(settings) and not isinstance(settings, type):
        for field in fields(settings):
            refuse_interpolations(getattr(settings, field.name))


def build(text: str, role: type[Role], *, trusted: Sequence[str] = ()) -> Role:
    """Build the instance that a text of `describe` stands for.

    Parameters
    ----------
    text : str
    role : type
        Class that the instance must belong to.
    trusted : sequence of str
        Dotted names of your own classes or modules that the text may name; they are imported here.
        A class whose module was imported before needs no trust.

    Raises
    ------
    OwnClassError
        The text names a class outside the toolbox that is not trusted, or that cannot be imported.
    ValueError, TypeError
        The text is none of `describe`, or of another role; its fields do not fit; it contains an
        interpolation (``${``); `trusted` is a text instead of a list.

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
    has_role = isinstance(content, dict) and issubclass(
        _class_of(str(content.get("class")), trusted, role), role
    )
    if not has_role:
        raise UserError(f"expected the description of a {role.__name__}, got {text[:200]}")
    built: Role = _rebuild(content, trusted, role)
    return built


def _rebuild(value: Any, trusted: Sequence[str], role: type) -> Any:
    """Invert `_plain`; dictionaries become dataclass instances."""
    if isinstance(value, list):
        return [_rebuild(item, trusted, role) for item in value]
    if isinstance(value, str):
        _refuse_interpolation(value)
    if not isinstance(value, dict):
        return value
    content = {}
    for name, item in value.items():
        _refuse_interpolation(name)
        if name != "class":
            content[name] = _rebuild(item, trusted, role)
    kind = _class_of(str(value.get("class")), trusted, role)
    return kind(**content)


def _class_of(name: str, trusted: Sequence[str], role: type) -> type:
    """Return the dataclass that a file names: a public one of the toolbox, or a trusted one.

    It has the given role, or one of `DESCRIBED_ROLES`.
    """
    if name.partition(".")[0] == "sysid":
        public = public_name(name)
        kind = getattr(sysid, public.removeprefix("sysid.")) if public else None
    else:
        kind = _import_own(name, trusted)
    if not (isinstance(kind, type) and is_dataclass(kind) and _has_role(kind, role)):
        raise UserError(
            f"expected the name of a dataclass that has a role in the toolbox, got {name!r}"
        )
    return kind


def _has_role(kind: type, role: type) -> bool:
    """Whether a class has a role, or one that every text may name."""
    described = [base for base in kind.__mro__ if base.__name__ in DESCRIBED_ROLES]
    return issubclass(kind, role) or any(map(_is_of_toolbox, described))


def _is_of_toolbox(kind: type) -> bool:
    """Whether a class is defined in this package."""
    return kind.__module__.partition(".")[0] == "sysid"


def _import_own(name: str, trusted: Sequence[str]) -> Any:
    """Return a class of the user whose module was imported or is trusted.

    A module that delays its imports until a name is used does not run them here.
    """
    module, _, attribute = name.rpartition(".")
    if module not in sys.modules:
        if name not in trusted and module not in trusted:
            raise OwnClassError(
                f"{name!r} is no class of the toolbox, and a file alone must not make it run: "
                f"import {module!r} before, or trust it (in Python trusted=[{name!r}], on the "
                f"command line +trusted=[{name}])"
            )
        try:
            importlib.import_module(module)
        except (ImportError, ValueError) as error:
            raise OwnClassError(
                f"cannot import {name!r} ({error}); put its module on the Python path"
            ) from error
    return vars(sys.modules[module]).get(attribute)
