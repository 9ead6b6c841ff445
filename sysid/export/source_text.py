"""Source text of functions, for files that have to do without the module that defines them."""

from __future__ import annotations

import ast
import builtins
import inspect
import math
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

MODULES = {np: "import numpy as np", math: "import math"}
Plain = bool | int | float | str | None


class SourceError(ValueError):
    """The text of a function cannot stand alone."""


@dataclass
class SourceText:
    """Texts of functions and of everything that they need, in the order of definition, each once.

    Functions are told apart by their names, which they keep. Functions of `math` become those of NumPy, so that a
    formula of numbers also takes arrays.
    """

    imports: set[str] = field(default_factory=set)  # lines
    reserved: frozenset[str] = frozenset()  # names that the file has for something else
    functions: set[str] = field(default_factory=set)  # names from numpy
    definitions: dict[str, str] = field(default_factory=dict)
    _owners: dict[str, Any] = field(default_factory=dict)

    def import_lines(self) -> list[str]:
        """Imports of everything that was taken in."""
        named = [f"from numpy import {', '.join(sorted(self.functions))}"] if self.functions else []
        return [*sorted(self.imports), *named]

    def add(self, function: Callable[..., Any]) -> str:
        """Take in a function, without decorators, annotations and comments; returns its name.

        Raises
        ------
        SourceError
            Its text is not to be had, it needs something that is no function, module `numpy` or `math`, or plain
            value, or another of the same name is there already.
        """
        plain = _plain(function)
        if not isinstance(plain, FunctionType):
            raise SourceError(f"{function!r} is not a Python function")
        if self._is_new(plain.__name__, plain):
            text = _stripped(_parsed(plain))
            self._needs(text, plain)
            self.definitions[plain.__name__] = ast.unparse(text)
        return plain.__name__

    def add_call(self, instance: Any) -> str:
        """Take in the class of a dataclass instance, with its values and its `__call__`; returns the class name.

        Raises
        ------
        SourceError
            As `add`; a value that is not plain.
        """
        kind = type(instance)
        lines = [f"class {kind.__name__}:", f'    """Mean function {kind.__name__}."""', ""]
        for setting in fields(instance):
            lines.append(f"    {setting.name} = {_literal(getattr(instance, setting.name), setting.name)}")
        for name in self._methods(kind, "__call__", []):
            text = _stripped(_parsed(inspect.getattr_static(kind, name)))
            self._needs(text, inspect.getattr_static(kind, name))
            lines += ["", textwrap.indent(ast.unparse(text), "    ")]
        name = kind.__name__
        if self._is_new(name, instance):
            self.definitions[name] = "\n".join(lines)
        return name

    def _is_new(self, name: str, owner: Any) -> bool:
        if name in self.reserved or (name in self._owners and self._owners[name] != owner):
            raise SourceError(f"two different things are called {name}: rename one")
        is_new = name not in self._owners
        self._owners[name] = owner
        return is_new

    def _methods(self, kind: type, name: str, found: list[str]) -> list[str]:
        """Methods that a method calls on itself, it first."""
        method = inspect.getattr_static(kind, name, None)
        if not isinstance(method, FunctionType):
            raise SourceError(f"{kind.__name__}.{name} is not a plain method")
        found.append(name)
        values = {setting.name for setting in fields(kind)}
        for node in ast.walk(_parsed(method)):
            is_own = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
            if is_own and node.attr not in values and node.attr not in found:  # type: ignore[attr-defined]
                self._methods(kind, node.attr, found)  # type: ignore[attr-defined]
        return found

    def _needs(self, text: ast.FunctionDef, function: FunctionType) -> None:
        if function.__code__.co_freevars:
            raise SourceError(f"{function.__name__} needs the variables {function.__code__.co_freevars} around it")
        bound = {node.arg for node in ast.walk(text) if isinstance(node, ast.arg)}
        names = [node for node in ast.walk(text) if isinstance(node, ast.Name)]
        bound |= {node.id for node in names if not isinstance(node.ctx, ast.Load)}
        for name in sorted({node.id for node in names} - bound):
            if name in function.__globals__:
                self._need(name, function.__globals__[name], function.__name__)
            elif name not in vars(builtins):
                raise SourceError(f"{function.__name__} needs {name!r}, which is not defined")

    def _need(self, name: str, value: Any, owner: str) -> None:
        if isinstance(value, ModuleType) and value in MODULES:
            self.imports.add(MODULES[value] if name in ("np", "math") else f"import {value.__name__} as {name}")
        elif vars(math).get(name) is value and name in vars(np):
            self.functions.add(name)
        elif isinstance(value, FunctionType | Dispatcher):
            if self.add(value) != name:
                raise SourceError(f"{owner} calls {_plain(value).__name__} under the name {name}: use its own")
        elif isinstance(value, Plain):
            if self._is_new(name, value):
                self.definitions[name] = f"{name} = {_literal(value, name)}"
        else:
            raise SourceError(f"{owner} needs {name!r} ({type(value).__name__}), which cannot be written into a file")


def _plain(function: Any) -> Any:
    """Function that numba compiled, as it is written."""
    return function.py_func if isinstance(function, Dispatcher) else function


def _parsed(function: FunctionType) -> ast.FunctionDef:
    try:
        text = textwrap.dedent(inspect.getsource(function))
        definition = ast.parse(text).body[0]
    except (OSError, TypeError, SyntaxError) as error:
        raise SourceError(
            f"the source text of {function.__qualname__} is not to be had ({error}): define it in a file"
        ) from error
    if not isinstance(definition, ast.FunctionDef):
        raise SourceError(f"{function.__qualname__} is not defined by a `def` of its own")
    return definition


def _stripped(definition: ast.FunctionDef) -> ast.FunctionDef:
    """Without decorators and annotations, which may name what is not there."""
    definition.decorator_list, definition.returns = [], None
    for node in ast.walk(definition):
        if isinstance(node, ast.arg):
            node.annotation = None
    return definition


def _literal(value: Any, name: str) -> str:
    if isinstance(value, tuple | list):
        items = [_literal(item, name) for item in value]
        return f"({', '.join(items)}{',' if len(items) == 1 else ''})"
    if not isinstance(value, Plain) or (isinstance(value, float) and not math.isfinite(value)):
        raise SourceError(f"{name}={value!r} is no number, text or list of them")
    return repr(float(value) if isinstance(value, float) else value)
