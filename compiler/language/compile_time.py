"""``tl.constexpr_type``: what a value that is known while compiling answers when it is asked for its type."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import UnknownName
from ..ir.types import Tile
from .arithmetic import as_tensor
from .builtin import builtin
from .constexpr import unwrap
from .named import field_names
from .structure import Membered
from .tensor import tensor


@builtin
def unwrap_if_constexpr(value: object) -> object:
    """The plain value of a constexpr; anything else as it is. Libraries call it in kernels under the name that it has
    in Triton's core, where some operations do not take a constexpr."""
    return value


class tuple_type:  # noqa: N801 -- the language's own name
    """The type of a tuple: those of its elements in order, ``fields`` their names in a NamedTuple. Equal to the type of
    every tuple whose elements have types equal to these."""

    __slots__ = ("fields", "types")

    def __init__(self, types: Sequence[object], fields: Sequence[str] | None = None) -> None:
        self.types, self.fields = tuple(types), tuple(fields or ())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, tuple_type) and self.types == other.types and self.fields == other.fields

    def __hash__(self) -> int:
        return hash((tuple_type, len(self.types), self.fields))

    def __repr__(self) -> str:
        return f"tuple_type({list(self.types)!r})"


def type_of(value: object) -> object:
    """The type of a value of a kernel: a tensor's, that of a compile-time value, a tuple's of both."""
    if isinstance(value, tensor):
        return value.type
    if isinstance(value, tuple) and not _is_known(value):
        return tuple_type([type_of(item) for item in value], field_names(value))
    return constexpr_type(value)


def _is_known(value: object) -> bool:
    return all(map(_is_known, value)) if isinstance(value, tuple) else not isinstance(value, tensor)


class constexpr_type(Membered):  # noqa: N801 -- the language's own name
    """The type of a compile-time ``value``. It answers what the type of a tensor with that value would, and is equal
    to that type, as an argument that is 1 is known here and a tensor elsewhere."""

    __slots__ = ("value",)

    kind = "constexpr_type"

    def __init__(self, value: object) -> None:
        self.value = unwrap(value)

    @property
    def type(self) -> Tile | None:
        """The type of a tensor that holds the value; None where no tensor can."""
        return as_tensor(self.value).value.type if isinstance(self.value, int | float) else None

    def member(self, name: str) -> object:
        """What the type of a tensor calls ``name``; raises UnknownName."""
        if self.type is None or name.startswith("_") or not hasattr(self.type, name):
            raise UnknownName(f"the type {self} has no attribute {name!r}")
        return getattr(self.type, name)

    def __getattr__(self, name: str) -> object:
        try:
            return self.member(name)
        except UnknownName as error:
            raise AttributeError(error.message) from None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, constexpr_type):
            return type(self.value) is type(other.value) and self.value == other.value
        if isinstance(other, tuple_type):
            return isinstance(self.value, tuple) and other == tuple_type(
                [constexpr_type(item) for item in self.value], field_names(self.value)
            )
        return self.type is not None and other in (self.type, self.type.elem)

    def __hash__(self) -> int:
        return hash((constexpr_type, self.value))

    def __repr__(self) -> str:
        return f"constexpr_type({self.value!r})"
