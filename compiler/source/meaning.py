"""What a name stands for in a kernel, as text that is the same in every process."""

from __future__ import annotations

import types
from abc import abstractmethod
from collections.abc import Iterator

from ..errors import LaunchError
from ..ir.types import Pointer, Scalar
from ..language.aggregate import AggregateType
from ..language.constexpr import unwrap
from ..language.inline import Inlinable, LibraryFunction
from ..language.named import field_names
from .identity import class_content, class_text, float_text, identity
from .modules import LANGUAGE_TYPES, LanguageModule

#: Classes whose values are spelled in full, and differently, by ``repr``.
_SPELLED = frozenset({type(None), bool, int, str, Scalar, Pointer})


def functions_in(value: object) -> Iterator[Inlinable]:
    """The jit functions that a value is or contains: those of a tuple, of an aggregate and of what its fields are."""
    # A list and not recursion, and each aggregate once: those of those of two fields each are 2 to the n.
    waiting, seen = [unwrap(value)], set[AggregateType]()
    while waiting:
        value = waiting.pop()
        if isinstance(value, tuple):
            waiting += map(unwrap, reversed(value))
        elif isinstance(value, AggregateType):
            if value not in seen:
                seen.add(value)
                parts = [*value.methods.values(), *value.properties.values(), *value.fields.values()]
                waiting += map(unwrap, reversed(parts))
        elif isinstance(value, Inlinable) and not isinstance(value, LibraryFunction):
            yield value


class Meanings:
    """Tells values; the functions of the kernel language among them by numbers, which subclasses give."""

    def __init__(self) -> None:
        self.told: dict[AggregateType, int] = {}

    @abstractmethod
    def number(self, function: Inlinable) -> int:
        """The number of a function."""

    def meaning(self, value: object) -> str:
        """What a name stands for, the same in every process."""
        value = unwrap(value)
        if isinstance(value, Inlinable) and not isinstance(value, LibraryFunction):
            return f"function {self.number(value)}"
        if isinstance(value, LanguageModule):
            return f"module {value.name}"
        if isinstance(value, tuple):
            return f"{type(value).__name__} ({', '.join(map(self.meaning, value))}) of {', '.join(field_names(value))}"
        if isinstance(value, type) and (fields := field_names(value)):
            defaults = value.__dict__.get("_field_defaults", {})
            shown = ", ".join(f"{name} = {self.meaning(default)}" for name, default in defaults.items())
            return f"{value.__name__} of {', '.join(fields)} by default {shown}"
        if isinstance(value, AggregateType):
            return self.aggregate(value)
        if isinstance(value, LibraryFunction) or type(value) in _SPELLED:
            return f"{type(value).__name__} {value!r}"
        if type(value) is float:
            return f"float {value!r}" if value == value else f"float {float_text(value)}"
        if not callable(value):
            return identity(value, self._held)
        if isinstance(value, type) and value not in LANGUAGE_TYPES:
            return class_content(value, self._held)
        return f"{value.__module__}.{getattr(value, '__qualname__', value)}"

    def _held(self, value: object) -> str:
        """What a value holds means; raises LaunchError for Python's functions, many of which have one name."""
        value = unwrap(value)
        if isinstance(value, types.FunctionType | types.MethodType) or type(value).__name__ == "partial":
            raise LaunchError(f"a {class_text(type(value))} cannot be a compile-time value")
        return self.meaning(value)

    def aggregate(self, value: AggregateType) -> str:
        """What an aggregate has and can do; where it was told already its number, as aggregates of aggregates double
        with each level."""
        if value in self.told:
            return f"aggregate {value.__name__} number {self.told[value]}"
        self.told[value] = len(self.told)
        fields = ", ".join(f"{name}: {self.meaning(kind)}" for name, kind in value.fields.items())
        defaults = ", ".join(f"{name} = {self.meaning(default)}" for name, default in value.defaults.items())
        members = (*value.methods.items(), *value.properties.items())
        functions = ", ".join(f"{name} = {self.meaning(function)}" for name, function in members)
        return f"aggregate {value.__name__} of {fields} by default {defaults} with {functions}"
