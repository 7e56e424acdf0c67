"""What functions of compile-time values depend on. In a running program they are Python, called as it is: what it reads
part of the identity of the kernels that call it, as far as that can be told."""

from __future__ import annotations

import dis
import inspect
import types
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import UnknownName
from ..language.builtin import is_builtin
from ..language.inline import Inlinable
from .namespace import HelperModule, LiveNamespace, admit_value, compile_time


class CompileTimeNamespace(LiveNamespace):
    """What a function of compile-time values, which runs as Python, depends on."""

    def lookup(self, name: str) -> object:
        """A value, a module, a class with its functions, or a function; plain functions are such functions, too.

        Raises KeyError where Python has no such global or closure variable.
        """
        return depended_on(name, self.raw(name), self.function)

    @cached_property
    def names(self) -> set[str]:
        """The globals and variables of enclosing functions that the code reads, in functions inside it, too."""
        return {*self.function.__code__.co_freevars, *_globals_of(self.function.__code__)}


def _globals_of(code: types.CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _globals_of(constant)


def depended_on(name: str, value: object, reader: types.FunctionType) -> object:
    """What ``reader``, which runs as Python, depends on where it reads ``value``: a plain function is its text, a class
    what it holds and the functions that it has; what kernels have is what it is there, and the rest what it is."""
    plain = inspect.unwrap(value) if callable(value) else value  # such as one whose results functools.cache keeps
    if isinstance(plain, types.FunctionType) and not is_builtin(plain):
        return compile_time(plain)
    try:
        found = admit_value(name, value)
    except UnknownName:
        return (value, *_functions_of(value, reader)) if isinstance(value, type) else value
    return PythonModule(found.module, reader) if isinstance(found, HelperModule) else found


@dataclass(frozen=True, slots=True, repr=False)
class PythonModule(HelperModule):
    """A module that ``reader``, a function that runs as Python, uses: of the same package, or a file beside it, its
    plain functions and classes count, too. Others are libraries, which count as what they are called."""

    reader: types.FunctionType

    def member(self, name: str) -> object:
        """As in kernels; what a library has beyond that raises UnknownName."""
        value = getattr(self.module, name, None)
        near = isinstance(value, types.ModuleType) or _is_near(value, self.reader)
        return depended_on(f"{self!r}.{name}", value, self.reader) if near else HelperModule.member(self, name)


def _functions_of(kind: type, reader: types.FunctionType) -> Iterator[Inlinable]:
    """The functions of a class that have a text; not those of libraries."""
    for member in vars(kind).values():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, types.FunctionType) and _is_near(function, reader):
            yield compile_time(function)


def _is_near(value: object, reader: types.FunctionType) -> bool:
    """Whether a function or class is of the package of ``reader``, or in a file beside it, and not made by ``exec``, as
    those of dataclasses are."""
    if isinstance(value, type):
        return _package(value) == _package(reader)
    if not isinstance(value := inspect.unwrap(value), types.FunctionType):  # type: ignore[arg-type]
        return False
    file, beside = value.__code__.co_filename, reader.__code__.co_filename
    written = file != "<string>" and value.__name__ != "<lambda>"
    return written and (_package(value) == _package(reader) or Path(file).parent == Path(beside).parent)


def _package(value: types.FunctionType | type) -> str:
    return (value.__module__ or "").partition(".")[0]
