"""What functions of compile-time values depend on. In a running program they are Python, called as it is: what it reads
part of the identity of the kernels that call it, as far as that can be told."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ..errors import UnknownName
from ..language.builtin import is_builtin
from ..language.constexpr import unwrap
from ..language.inline import Inlinable
from .bytecode import globals_of
from .identity import class_text
from .meaning import Meanings
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
        return {*self.function.__code__.co_freevars, *globals_of(self.function.__code__)}


class PythonMeanings(Meanings):
    """Tells what Python code reads, too: there functions are what they do, wherever they are held, and those of
    libraries what they are called."""

    def __init__(self) -> None:
        super().__init__()
        #: What reads it, where that runs as Python.
        self._reader: types.FunctionType | None = None

    def meaning_in_python(self, value: object, reader: types.FunctionType) -> str:
        """What a name stands for in ``reader``, which runs as Python; raises LaunchError where that cannot be told."""
        self._reader = reader
        try:
            return self.meaning(value)
        finally:
            self._reader = None

    def meaning(self, value: object) -> str:
        """As the other meanings, and in Python also of functions."""
        value = unwrap(value)
        if self._reader is None or isinstance(value, Inlinable) or is_builtin(value):
            return super().meaning(value)
        return self._function(value, self._reader) or super().meaning(value)

    def _held(self, value: object) -> str:
        return super()._held(value) if self._reader is None else self.meaning(value)

    def _function(self, value: object, reader: types.FunctionType) -> str | None:
        """What is called as a function of Python's; None for the rest."""
        if isinstance(value, types.MethodType):
            return f"method {self.meaning(value.__func__)} of {self.meaning(value.__self__)}"
        if isinstance(value, functools.partial):
            return f"partial {self.meaning(value.func)} {self.meaning(value.args)} {self.meaning(value.keywords)}"
        if (called := _call_of(value)) is not None and _is_near(type(value), reader):
            held = getattr(value, "__dict__", None)
            return f"{class_text(type(value))} {self.meaning(compile_time(called))} {self.meaning(held)}"
        with suppress(TypeError):
            function = plain_function(value)
            if _is_near(function, reader) or _is_made(function):
                return self.meaning(compile_time(function))
        return None


def plain_function(value: object) -> types.FunctionType:
    """The function of Python's that is called, such as the one whose results functools.cache keeps; raises TypeError
    for what has none. A function that wraps another is one itself, and reads the other."""
    found = inspect.unwrap(value, stop=_is_plain) if callable(value) else value
    if not isinstance(found, types.FunctionType):
        raise TypeError(f"{value!r} is not a plain function")
    return found


def _is_plain(value: object) -> bool:
    return isinstance(value, types.FunctionType)


def depended_on(name: str, value: object, reader: types.FunctionType) -> object:
    """What ``reader``, which runs as Python, depends on where it reads ``value``: a plain function is what it does, a
    class what it holds and its functions, an object that and its own; what kernels have is what it is there."""
    if isinstance(value, types.MethodType) and _is_near(value.__func__, reader):
        return tuple(depended_on(name, part, reader) for part in (value.__func__, value.__self__))
    if _call_of(value) is not None and _is_near(type(value), reader):
        return (type(value), *_functions_of(type(value), reader), getattr(value, "__dict__", None))
    with suppress(TypeError):
        if not is_builtin(function := plain_function(value)):
            return compile_time(function)
    try:
        found = admit_value(name, value)
    except UnknownName:
        functions = tuple(_functions_of(value if isinstance(value, type) else type(value), reader))
        return (value, *functions) if functions else value
    return PythonModule(found.module, reader) if isinstance(found, HelperModule) else found


@dataclass(frozen=True, slots=True, repr=False)
class PythonModule(HelperModule):
    """A module that ``reader``, a function that runs as Python, uses: of the same package, or a file beside it, all
    that is read of it counts. Others are libraries, which count as what they are called."""

    reader: types.FunctionType

    def member(self, name: str) -> object:
        """As in kernels; what a library has beyond that raises UnknownName."""
        value = getattr(self.module, name, None)
        near = isinstance(value, types.ModuleType) or any(_is_near(part, self.reader) for part in (self.module, value))
        return depended_on(f"{self!r}.{name}", value, self.reader) if near else HelperModule.member(self, name)


def _functions_of(kind: type, reader: types.FunctionType) -> Iterator[Inlinable]:
    """The functions of a class and of those that it inherits from; not those of libraries."""
    for member in (member for base in kind.__mro__ for member in vars(base).values()):
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if isinstance(function, functools.cached_property):
            function = function.func
        if isinstance(function, Inlinable | type) or not _is_near(function, reader):
            continue
        if (found := plain_function(function)).__code__.co_filename != "<string>":  # as of what makes dataclasses
            yield compile_time(found)


def _call_of(value: object) -> types.FunctionType | None:
    """What runs where ``value``, an object of a class that is written in Python, is called; None of others."""
    called: object = None if isinstance(value, Inlinable | type) or not callable(value) else type(value).__call__
    return called if isinstance(called, types.FunctionType) else None


def _is_near(value: object, reader: types.FunctionType) -> bool:
    """Whether a module, function or class is of the package of ``reader``, or in a file beside it."""
    if isinstance(value, type):
        return _package(value.__module__) == _package(reader.__module__)
    beside = Path(reader.__code__.co_filename).parent
    if isinstance(value, types.ModuleType):
        file = getattr(value, "__file__", None) or ""
        return _package(value.__name__) == _package(reader.__module__) or (file != "" and Path(file).parent == beside)
    try:
        function = plain_function(value)
    except TypeError:
        return False
    file = function.__code__.co_filename
    return _package(function.__module__) == _package(reader.__module__) or Path(file).parent == beside


def _is_made(function: types.FunctionType) -> bool:
    """Whether a function was made by ``exec``, or in a prompt: it is no library's."""
    file = function.__code__.co_filename
    return file.startswith("<") and not file.startswith("<frozen")


def _package(module: str | None) -> str:
    return (module or "").partition(".")[0]
