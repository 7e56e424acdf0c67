"""Compile-time arguments: keys that tell apart what Python's ``==`` does not, and text for the disk cache."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ...errors import LaunchError
from ...ir.types import Pointer, Scalar
from ...language.aggregate import Aggregate, AggregateType
from ...language.constexpr import constexpr, unwrap
from ...language.inline import Inlinable
from ...language.named import field_names
from ...source.kernel import functions_in, source_of
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
    if value is None or isinstance(value, bool):
        return str(value)
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float):
        return f"float {float(value).hex()}"
    if isinstance(value, str):
        return repr(str(value))
    if isinstance(value, tuple | list):
        names = f"{', '.join(field_names(value))}: " if field_names(value) else ""
        return f"({names}{', '.join(constant_text(unwrap(v)) for v in value)})"
    if isinstance(value, Scalar | Pointer):
        return f"dtype {value}"
    if isinstance(value, Inlinable):
        return f"function {source_of(value).hash}"
    if isinstance(value, AggregateType):
        functions = (source_of(function).hash for function in functions_in(value))
        return f"aggregate {value.__name__} {list(value.fields.items())!r} ({', '.join(functions)})"
    if isinstance(value, Aggregate):
        held = (constant_text(unwrap(value.member(name))) for name in type(value).fields)
        return f"{constant_text(type(value))} of ({', '.join(held)})"
    return _foreign_text(value)


def _foreign_text(value: object) -> str:
    """NumPy scalars, dtypes of other libraries, and values of Python's that a kernel can compare and print."""
    if hasattr(value, "item") and not getattr(value, "shape", ()):
        return constant_text(value.item())
    name = getattr(value, "name", None) or getattr(value, "__name__", value)
    try:
        return f"dtype {canonical_dtype(name)}"
    except LaunchError:
        pass
    if _is_value(value):
        return f"{type(value).__module__}.{type(value).__qualname__} {value!r}"
    raise LaunchError(
        f"a {type(value).__module__}.{type(value).__qualname__} cannot be a compile-time value",
        hint="use numbers, strings, tuples, dtypes such as tl.float32, or jit functions",
    )


def _is_value(value: object) -> bool:
    """Whether it is what it says and nothing else, as members of an Enum and UUIDs are: it has a hash, an ``==`` and a
    text of its class's own, and is neither an array nor a function."""
    kind = type(value)
    own = kind.__repr__ is not object.__repr__ and kind.__eq__ is not object.__eq__
    enumerated = isinstance(value, Enum)
    is_array = hasattr(value, "shape") or hasattr(value, "data_ptr") or hasattr(value, "__array__")
    return (own or enumerated) and kind.__hash__ is not None and not is_array and not callable(value)
