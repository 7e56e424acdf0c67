"""What the values of the language answer to: their attributes."""

from __future__ import annotations

from ..errors import UnknownName
from ..ir.questions import PointerQuestions, ScalarQuestions, TileQuestions
from ..ir.types import Pointer, Scalar, Tile
from ..language import arithmetic
from ..language.aggregate import AggregateType
from ..language.builtin import builtin
from ..language.compile_time import type_of
from ..language.members import OPERATORS
from ..language.named import field_names, is_named_tuple
from ..language.structure import Membered
from ..language.tensor import tensor
from ..language.typed import Typed
from ..printable import shown
from ..source.modules import LanguageModule, suggest
from ..source.namespace import HelperModule
from ..source.python_types import QUESTIONS, DtypeLimits, is_dtype

_TYPE_ATTRIBUTES = {
    name
    for questions in (ScalarQuestions, PointerQuestions, TileQuestions)
    for name in dir(questions)
    if not name.startswith("_")
} | {"name", "shape", "numel"}


def read_attribute(value: object, name: str) -> object:
    """``value.name`` for the few kinds of values that have attributes in the language; raises UnknownName."""
    if isinstance(value, LanguageModule | HelperModule | Membered | DtypeLimits):
        return value.member(name)
    if is_dtype(value) and name in QUESTIONS:
        return getattr(value, name)
    if isinstance(value, AggregateType):
        return value.function(name)
    if isinstance(value, tensor):
        if name in OPERATORS or (not name.startswith("_") and hasattr(tensor, name)):
            return getattr(value, name)
        known = [n for n in dir(tensor) if not n.startswith("_")]
        raise UnknownName(f"a tensor has no attribute {name!r}", hint=suggest(name, known))
    if isinstance(value, Scalar | Pointer | Tile):
        return _of_type(value, name)
    if isinstance(value, type) and not is_named_tuple(value) and not name.startswith("_") and hasattr(value, name):
        return getattr(value, name)  # tl.PropagateNan.ALL
    return _of_constant(value, name)


def _of_type(kind: Scalar | Pointer | Tile, name: str) -> object:
    if isinstance(kind, Tile) and name in ("scalar", "numel"):
        return kind.elem if name == "scalar" else kind.size
    if name not in _TYPE_ATTRIBUTES:
        raise _unknown(kind, name)
    if hasattr(kind, name):
        return getattr(kind, name)
    raise UnknownName(f"the type {kind if isinstance(kind, Tile) else kind.code} has no attribute {name!r}")


def _of_constant(value: object, name: str) -> object:
    if isinstance(value, tuple) and name in field_names(value):
        return value[field_names(value).index(name)]
    if name == "type" and isinstance(value, Typed):
        return value.type
    if name == "type" and isinstance(value, int | float | str | tuple):
        return type_of(value)
    if name == "value" and _may_be_constexpr(value):
        return value  # constexpr.value
    if name == "bit_length" and isinstance(value, int):
        return builtin(lambda: value.bit_length())
    if isinstance(value, int | float) and not name.startswith("_") and hasattr(tensor, name):
        # A number that specialisation or a literal made of what is a tensor elsewhere: it can do what a tensor can.
        return getattr(arithmetic.as_tensor(value), name)
    raise _unknown(value, name)


def _may_be_constexpr(value: object) -> bool:
    if isinstance(value, tuple):
        return not any(isinstance(element, tensor) for element in value)
    return isinstance(value, int | float | str | None)


def _unknown(value: object, name: str) -> UnknownName:
    hint = "tuples and lists do not change: write x = x + (item,)" if name == "append" else None
    return UnknownName(f"{described(value)} has no attribute {name!r} in the kernel language", hint=hint)


def described(value: object) -> str:
    """How messages call a value."""
    return f"a tuple of {len(value)}" if isinstance(value, tuple) else shown(value)
