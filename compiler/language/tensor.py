"""The values that kernels compute with."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, SupportsIndex, overload

from ..errors import TypeMismatch
from ..ir.core import Op, Value
from ..ir.types import Element, Tile
from .context import current

if TYPE_CHECKING:
    from typing import Self

    from .members import Members
else:
    Members = object

#: What an operand may be: a tensor, or a number known at compile time.
Number = int | float | bool


class Shape(tuple[int, ...]):
    """A shape as kernels see it: equal to the list of its sizes, and lengthened by lists, too, also where a kernel runs
    as Python."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return tuple.__eq__(self, tuple(other) if isinstance(other, list) else other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = tuple.__hash__

    def __add__(self, other: Sequence[int]) -> Shape:  # type: ignore[override] # a tuple's would take tuples alone
        return Shape((*self, *other)) if isinstance(other, tuple | list) else NotImplemented

    def __radd__(self, other: Sequence[int]) -> Shape:
        return Shape((*other, *self)) if isinstance(other, tuple | list) else NotImplemented

    @overload
    def __getitem__(self, place: SupportsIndex) -> int: ...
    @overload
    def __getitem__(self, place: slice) -> Shape: ...
    def __getitem__(self, place: SupportsIndex | slice) -> int | Shape:
        found = tuple.__getitem__(self, place)
        return Shape(found) if isinstance(found, tuple) else found


@lru_cache(maxsize=4096)
def shape_of(sizes: tuple[int, ...]) -> Shape:
    """``sizes`` as a Shape of plain integers: kernels that run as Python have some of a class of their own."""
    return Shape(map(int, sizes))


class tensor(Members):  # noqa: N801 -- the language's own name
    """A scalar or tile in a kernel. Operators broadcast and promote as ``language/promotion.py`` says.

    ``shape`` is a tuple of ints (empty for a scalar), ``dtype`` the element type, ``type`` both of them, or of a scalar
    the element type. Most functions of the language are methods too (``x.to(...)``, ``x.sum(axis=0)``); ``members.py``
    attaches them.
    """

    __slots__ = ("value",)
    __array_ufunc__ = None  # NumPy must leave operators to this class

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def type(self) -> Tile | Element:
        """Of a tile element type and shape, of a scalar its element type."""
        made = self.value.type
        return made if made.shape else made.elem

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions, empty for a scalar; equal to a list of them too."""
        return shape_of(self.value.type.shape)

    @property
    def dtype(self) -> Element:
        """The element type, a pointer type for tiles of pointers."""
        return self.value.type.elem

    @property
    def numel(self) -> int:
        """Number of elements, 1 for a scalar."""
        return self.value.type.size

    @property
    def handle(self) -> Value:
        """The IR value (Triton's name)."""
        return self.value

    def __repr__(self) -> str:
        """The type; in an eager kernel, where a debugger may ask, the elements too."""
        shown = current().show(self.value)
        return f"tensor<{self.value.type}>" if shown is None else f"tensor({shown}, {self.value.type})"

    def __str__(self) -> str:
        """As :meth:`__repr__`, but a type as Triton prints it: ``int32[constexpr[128]]``."""
        if current().show(self.value) is not None:
            return repr(self)
        return f"{self.dtype.name}[{', '.join(f'constexpr[{size}]' for size in self.shape)}]"

    def __bool__(self) -> bool:
        """A condition: a scalar, or a tile of one element."""
        return bool(current().read(self.value) if self.numel == 1 else self._number())

    def __index__(self) -> int:
        return int(self._number())

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._number())

    __hash__ = object.__hash__

    def _number(self) -> Number:
        if self.shape:
            raise TypeMismatch(f"expected a scalar, got {self.value.type}")
        return current().read(self.value)

    def __iter__(self) -> Self:
        raise TypeMismatch("a tensor cannot be iterated", hint="loop over tl.static_range instead")


Operand = tensor | int | float | bool


def emit(op: Op) -> tensor:
    """Emit an operation with one result."""
    return tensor(current().builder.emit(op).result)


def emit_all(op: Op) -> tuple[tensor, ...]:
    """Emit an operation; all its results."""
    return tuple(tensor(r) for r in current().builder.emit(op).results)
