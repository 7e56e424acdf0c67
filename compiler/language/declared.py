"""What the class body of an aggregate declares: its fields, and functions of kernels as its methods."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .context import active, current
from .inline import ConstexprFunction, Inlinable
from .structure import Structure

#: Names that a field cannot have, as the compiler asks every structure for them.
_RESERVED = frozenset({"parts", "with_parts", "form", "member"})


class PlainMethod(Inlinable):
    """A method without decorator."""

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.__name__ = function.__name__

    def python(self) -> types.FunctionType:
        """The function; there always is one."""
        return self.function

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call it, as a part of the kernel that runs, or as Python outside of kernels."""
        return self.function(*args, **kwargs) if (context := active()) is None else context.call(self, args, kwargs)


class Initializer(Inlinable):
    """What fills the fields of a new instance: ``body``, a class's ``__init__``. It gives back its first argument."""

    def __init__(self, body: Inlinable) -> None:
        self.body = body

    def python(self) -> types.FunctionType | None:
        """The Python function of the body."""
        return self.body.python()


class BoundMethod(Inlinable):
    """A method with the instance that it was taken from, its first argument."""

    def __init__(self, function: Inlinable, owner: Structure) -> None:
        self.function, self.owner = function, owner
        self.unused = function.unused

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Call it; outside kernels not what is decorated with ``@jit``."""
        if isinstance(self.function, ConstexprFunction | PlainMethod) and active() is None:
            return self.function(self.owner, *args, **kwargs)
        return current().call(self.function, (self.owner, *args), kwargs)


@dataclass(frozen=True, slots=True)
class Declared:
    """What an aggregate's class body says, by name, with what its base classes say."""

    fields: Mapping[str, object]
    defaults: Mapping[str, object]
    methods: Mapping[str, Inlinable]
    properties: Mapping[str, Inlinable]


def function_of(place: str, value: object) -> Inlinable | None:
    """An entry of a class body as a function of kernels; None for what is none. Raises TypeError."""
    if isinstance(value, classmethod):
        raise TypeError(f"{place}: aggregates have no class methods; use @staticmethod")
    if isinstance(value, staticmethod):
        value = value.__func__
    if isinstance(value, property):
        value = value.fget
    if isinstance(value, types.FunctionType):
        return None if value.__name__ == "__annotate__" else PlainMethod(value)
    return value if isinstance(value, Inlinable) else None


def fields_of(cls: type, own: Sequence[str], inherited: Mapping[str, object], is_text: bool) -> dict[str, object]:
    """What the fields of a class are annotated with; raises TypeError for those that it cannot have."""
    names = [*inherited, *own]
    if taken := [name for name in names if name in _RESERVED or name.startswith("_")]:
        raise TypeError(f"the aggregate {cls.__name__} cannot have a field {taken[0]!r}: choose another name")
    if is_text:
        return {**inherited, **inspect.get_annotations(cls)}
    try:
        found = typing.get_type_hints(cls)  # executes annotations that are strings: those of the program alone
    except NameError as error:
        raise TypeError(f"an annotation of the aggregate {cls.__name__} cannot be resolved: {error}") from error
    return {name: found[name] for name in names}
