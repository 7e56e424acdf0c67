"""``tl.constexpr_type``: what a value that is known while compiling answers when it is asked for its type."""

from __future__ import annotations

from ..errors import UnknownName
from ..ir.types import Tile
from .arithmetic import as_tensor
from .constexpr import unwrap
from .structure import Membered


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
        return as_tensor(self.value).type if isinstance(self.value, int | float) else None

    def member(self, name: str) -> object:
        """What the type of a tensor calls ``name``; raises UnknownName."""
        if self.type is None or name.startswith("_") or not hasattr(self.type, name):
            raise UnknownName(f"the type {self} has no attribute {name!r}")
        return getattr(self.type, name)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, constexpr_type):
            return type(self.value) is type(other.value) and self.value == other.value
        return self.type is not None and other in (self.type, self.type.elem)

    def __hash__(self) -> int:
        return hash((constexpr_type, self.value))

    def __repr__(self) -> str:
        return f"constexpr_type({self.value!r})"
