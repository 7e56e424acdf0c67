"""Functions of compile-time values of the running program, as what they are told apart by. They are called as Python:
nothing is made of their text, and they need none."""

from __future__ import annotations

import ast
import types
from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial

from ..errors import CompilationError, UnsupportedSyntax
from ..python_text import text_of
from .bytecode import attributes_of, code_text, is_code_of
from .dependencies import CompileTimeNamespace, depended_on, plain_function
from .parsing import definition_of, undecorated
from .reading import Reading


class PythonSource(Reading):
    """One function that runs as Python; of one that wraps another the wrapper, which reads the other."""

    namespace: CompileTimeNamespace

    def __init__(self, function: types.FunctionType) -> None:
        self.name = function.__name__
        self.function = function
        self.namespace = CompileTimeNamespace(function)

    @property
    def runs(self) -> bool:
        return True

    @cached_property
    def text(self) -> str:
        """Its ``def``, which is the same for every version of Python, if that is what runs. Of a lambda, of what
        ``exec`` made and where the file has changed since, its code."""
        definition = self._definition()
        code = self.function.__code__
        return code_text(code) if definition is None else ast.unparse(definition)

    def _definition(self) -> ast.FunctionDef | None:
        code = self.function.__code__
        if code.co_name == "<lambda>":
            return None
        try:
            found = definition_of(text_of(self.function))
        except (OSError, CompilationError):
            return None
        made = None if found is None else undecorated(found)
        return made if made is not None and is_code_of(code, made) else None

    @cached_property
    def free_names(self) -> set[str]:
        """The globals and variables of enclosing functions that the code reads, in functions inside it, too."""
        return self.namespace.names

    @cached_property
    def attributes(self) -> dict[str, set[str]]:
        """What the code reads of every such name, and of what that has."""
        return attributes_of(self.function.__code__)

    def default_values(self) -> Iterator[tuple[str, Callable[[], object]]]:
        """As they were when the function was defined."""
        code, values = self.function.__code__, self.function.__defaults__ or ()
        names = code.co_varnames[: code.co_argcount]
        given = dict(zip(names[len(names) - len(values) :], values, strict=True)) | (self.function.__kwdefaults__ or {})
        for name, value in given.items():
            yield name, partial(depended_on, name, value, self.function)


def python_source(function: Callable[..., object]) -> PythonSource:
    """What ``function`` is told apart by, of one whose results functools keeps that function; one object for each.

    Raises:
        UnsupportedSyntax: it is not written in Python.
    """
    try:
        return _python_source(plain_function(function))
    except TypeError as error:
        raise UnsupportedSyntax(str(error)) from None


@cache
def _python_source(function: types.FunctionType) -> PythonSource:
    return PythonSource(function)
