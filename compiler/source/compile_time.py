"""Functions of compile-time values of the running program, and their text."""

from __future__ import annotations

import functools
import hashlib
import inspect
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from ..errors import CompilationError, KernelMismatch
from ..language.builtin import is_builtin
from ..language.inline import ConstexprFunction
from .dependencies import plain_function
from .kernel import KernelSource, Sourced, digest, reading_of
from .reading import Reading

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class CompileTimeFunction(ConstexprFunction, Sourced):
    """A function of compile-time values: kernels call it while they are compiled, as Python does."""

    #: Not with another text, which kernels read instead.
    _replaced = False

    @functools.cached_property
    def source(self) -> KernelSource:
        """Its text; raises CompilationError where it cannot be read."""
        return KernelSource.from_function(self.function)

    @property
    def runs(self) -> bool:
        return not self._replaced

    @property
    def src(self) -> str:
        """The source text as it was written, without decorators; raises CompilationError where it cannot be read."""
        return self.source.written

    @property
    def cache_key(self) -> str:
        """A digest of what it does, of all that it reaches and of the line that it begins in, as kernels have it.

        Raises:
            KernelMismatch: it reads what no kernel may use, so that nothing can be said of what it computes.
        """
        reading = reading_of(self)
        for path in _paths(reading):
            self._check(path, reading)
        first_line = self.source.first_line if self._replaced else inspect.unwrap(self.function).__code__.co_firstlineno
        return hashlib.sha256(f"{digest(reading)} {first_line}".encode()).hexdigest()

    def _check(self, path: str, reading: Reading) -> None:
        first, *rest = path.split(".")
        try:
            value = reading.namespace.lookup(first)
            for member in rest:
                if not hasattr(value, "member"):
                    return  # a value's own attribute
                value = value.member(member)
        except KeyError:
            return  # one of Python's, or an error that a compilation will locate
        except CompilationError as error:
            raise KernelMismatch(f"{self.__name__} has no key: {error.message}", hint=error.hint) from error

    def _unsafe_update_src(self, text: str) -> None:
        """Give the function another text; its globals and closure stay. Triton's name: kernels that were compiled with
        the earlier text keep it."""
        self.__dict__["source"] = KernelSource.from_replaced_text(text, plain_function(self.function))
        self._replaced = True


def _paths(reading: Reading) -> Iterator[str]:
    """The names that a function reads of what is around it, and what it reads of those."""
    outside = reading.free_names - reading.local_names
    yield from sorted(outside)
    for path, members in reading.attributes.items():
        if path.partition(".")[0] in outside:
            yield from (f"{path}.{member}" for member in sorted(members))


def constexpr_function(function: FunctionT) -> FunctionT:
    """Decorator for helpers that compute compile-time values, such as block sizes, from compile-time values.

    Kernels call it as the Python that it is, with plain values for ``tl.constexpr`` ones; tiles and pointers have no
    elements yet. What it depends on is read off it, and off the functions that it calls. Where a kernel is source text
    nothing is executed: there it consists of what the kernel language has. ``@tl.constexpr`` does the
    same. A function of the language, such as ``tl.core.get_int_dtype``, stays what it is: it takes compile-time values
    already.
    """
    if is_builtin(function):
        return function
    return cast(FunctionT, CompileTimeFunction(cast(types.FunctionType, function)))
