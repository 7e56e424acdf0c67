"""Python of the running program that kernels use while they are compiled: functions of compile-time values, and what
those return. Kernels that are source text reach neither."""

from __future__ import annotations

import types
from collections.abc import Mapping, Sequence

from ..errors import CompilationError, UnknownName
from ..language.constexpr import unwrap
from ..language.dictionaries import mapping
from ..language.inline import ConstexprFunction
from ..language.named import with_items
from ..source.kernel import KernelSource
from ..source.namespace import LiveNamespace
from ..source.python_types import is_dtype

#: Whose objects have in kernels what the language says.
_OF_THE_LANGUAGE = ("builtins", __name__.partition(".")[0])


def evaluated(
    function: ConstexprFunction | types.MethodType, args: Sequence[object], kwargs: Mapping[str, object]
) -> object:
    """What the Python function returns, as kernels have it.

    Raises:
        CompilationError: it raised something, which is the cause; or it did what functions of the language refuse.
    """
    try:
        return known(function(*map(_handed, args), **{name: _handed(value) for name, value in kwargs.items()}))
    except CompilationError:
        raise
    except Exception as error:  # whatever the program's own Python raises
        raise CompilationError(f"{function.__name__}() raised {type(error).__name__}: {error}") from error


def is_programs(source: KernelSource, value: object) -> bool:
    """Whether a function of the running program has ``value``, an object of a class of Python's, before it: it may read
    attributes and call methods."""
    if not isinstance(source.namespace, LiveNamespace) or callable(value) or is_dtype(value):
        return False
    plain = isinstance(value, int | float | str | tuple)
    return not plain and type(value).__module__.partition(".")[0] not in _OF_THE_LANGUAGE


def attribute(value: object, name: str) -> object:
    """``value.name`` of an object of the program's; raises UnknownName, or CompilationError with what Python raised."""
    try:
        return known(getattr(value, name))
    except AttributeError as error:
        raise UnknownName(str(error)) from error
    except Exception as error:  # of a property
        raise CompilationError(f"{name} raised {type(error).__name__}: {error}") from error


def known(value: object) -> object:
    """A Python object as kernels have it: lists are tuples, and dictionaries those of the language."""
    value = unwrap(value)
    if isinstance(value, dict):
        return mapping({key: known(held) for key, held in value.items()})
    if isinstance(value, list):
        return tuple(map(known, value))
    return with_items(value, list(map(known, value))) if isinstance(value, tuple) else value


def _handed(value: object) -> object:
    """A value of a kernel as Python gets it, which takes numbers as plain ones; tiles, pointers and types are what they
    are."""
    if isinstance(value, mapping):
        return {key: _handed(held) for key, held in value.entries.items()}
    return with_items(value, list(map(_handed, value))) if isinstance(value, tuple) else value
