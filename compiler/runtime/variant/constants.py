"""Compile-time arguments: keys that tell apart what Python's ``==`` does not, and text for the disk cache."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...errors import LaunchError
from ...ir.types import Pointer, Scalar
from ...language.aggregate import Aggregate, AggregateType
from ...language.builtin import is_builtin
from ...language.constexpr import constexpr, unwrap
from ...language.inline import Inlinable
from ...language.named import field_names
from ...source.identity import class_text, float_text, identity
from ...source.kernel import digest, reading_of
from ...source.meaning import functions_in
from ...source.python_types import is_dtype
from ..arrays.dtypes import canonical_dtype

_PLAIN = (type(None), bool, int, float, str, Scalar, Pointer, constexpr)


@dataclass(frozen=True, slots=True)
class ConstantKey:
    """Identity of a compile-time value. ``text`` separates 1, True and 1.0, and 0.0 from -0.0, and is the same in
    every process; ``value`` is what the kernel sees and takes no part in comparisons."""

    text: str
    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConstantKey) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    @staticmethod
    def accepts(kind: type) -> bool:
        """Whether values of this class are compile-time values when passed without ``tl.constexpr``."""
        names = [base.__name__ for base in kind.__mro__]
        return issubclass(kind, (*_PLAIN, Inlinable, type)) or "dtype" in names


def constant_key(value: object) -> ConstantKey:
    """The key of a compile-time value; raises LaunchError for what kernels cannot use."""
    plain = unwrap(value)
    return ConstantKey(constant_text(plain), plain)


def launch_key(value: object) -> object:
    """What tells compile-time values apart within a process, as :func:`constant_key` does, in 0.1 us instead of 1.2 for
    what launches pass most; a number, and a text, is itself.

    Raises:
        LaunchError: kernels cannot use the value.
    """
    kind = value.__class__
    if kind is int or kind is str:
        return value
    if kind is bool or value is None:
        return kind, value
    if kind is float and value and value == value:  # not 0.0, which is equal to -0.0, nor NaN, which is to nothing
        return kind, value
    if kind is Scalar:
        return kind, value.name  # type: ignore[attr-defined]
    return constant_key(value)


def constant_text(value: object) -> str:
    """A text that differs for different compile-time values and is the same in every process.

    Raises:
        LaunchError: the value is of a kind that cannot be a compile-time value.
    """
    kind = type(value)
    if value is None or kind is bool:
        return str(value)
    if kind is int:
        return str(value)
    if isinstance(value, float) and kind is float:
        return f"float {float_text(value)}"
    if kind is str:
        return repr(value)
    if isinstance(value, tuple) and (kind is tuple or field_names(value)):
        names = f"{', '.join(field_names(value))}: " if field_names(value) else ""
        return f"({names}{', '.join(constant_text(unwrap(v)) for v in value)})"
    if isinstance(value, Scalar | Pointer):
        return f"dtype {value.code}"
    if isinstance(value, Inlinable):
        return f"function {digest(reading_of(value))}"
    if callable(value) and is_builtin(value):
        return f"builtin {value.__module__}.{getattr(value, '__qualname__', value)}"
    if isinstance(value, AggregateType):
        return _aggregate_text(value)
    if isinstance(value, Aggregate):
        held = (constant_text(unwrap(value.member(name))) for name in type(value).fields)
        return f"{constant_text(type(value))} of ({', '.join(held)})"
    return _foreign_text(value)


def _aggregate_text(kind: AggregateType) -> str:
    fields = ", ".join(f"{name}: {_kind_text(held)}" for name, held in kind.fields.items())
    defaults = ", ".join(f"{name} = {constant_text(unwrap(held))}" for name, held in kind.defaults.items())
    members = ", ".join((*kind.methods, *kind.properties))
    functions = ", ".join(digest(reading_of(function)) for function in functions_in(kind))
    return f"aggregate {kind.__name__} of {fields} by default {defaults} with {members} ({functions})"


def _kind_text(kind: object) -> str:
    """What a field of an aggregate is annotated with."""
    own = isinstance(kind, type) and not isinstance(kind, AggregateType)
    return class_text(kind) if own else constant_text(kind)  # type: ignore[arg-type]


def _foreign_text(value: object) -> str:
    """NumPy scalars, dtypes of other libraries, and values of a program's own classes that a kernel can compare and
    print."""
    if isinstance(value, type):
        return f"class {class_text(value)} dtype {canonical_dtype(value.__name__)}"
    if _is_value(value):
        return identity(value, lambda part: constant_text(unwrap(part)))
    raise LaunchError(
        f"a {class_text(type(value))} cannot be a compile-time value",
        hint="use numbers, strings, tuples, dtypes such as tl.float32, or jit functions",
    )


def _is_value(value: object) -> bool:
    """Whether it is a list or a dtype, has one number, or has ``==`` and a hash as values have; and is no function."""
    kind = type(value)
    if kind is list or is_dtype(value):
        return True
    if hasattr(value, "__array__") or hasattr(value, "data_ptr"):
        return getattr(value, "shape", None) in ((), [])
    own = kind.__eq__ is not object.__eq__ or isinstance(value, Enum)
    return own and kind.__hash__ is not None and not callable(value)
