"""The LLVM values of one IR value: one per register of its layout, made when somebody asks; and their types."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

from ...ir.types import Element, Pointer, Tile
from ...layout import LinearLayout

#: Pointers to global memory: NVPTX and AMDGPU number its address space alike (LLVM, user guides of both back ends).
GLOBAL_POINTER = "ptr addrspace(1)"

_REGISTER = {
    "i1": "i1",
    "f16": "half",
    "bf16": "bfloat",
    "f32": "float",
    "f64": "double",
    "f8e4m3": "i8",
    "f8e5m2": "i8",
}


@lru_cache(maxsize=256)
def register_type(element: Element) -> str:
    """The LLVM type of one element in a register."""
    if isinstance(element, Pointer):
        return GLOBAL_POINTER
    return _REGISTER.get(element.code) or f"i{element.bits}"


@lru_cache(maxsize=256)
def memory_type(element: Element) -> str:
    """The LLVM type of one element in memory: booleans take a byte."""
    name = register_type(element)
    return "i8" if name == "i1" else name


#: Values that hang on each other deeper than this are made at once, so that asking never recurses far.
DEEPEST = 48


@lru_cache(maxsize=2048)
def canonical_registers(layout: LinearLayout) -> tuple[int, ...]:
    """For every register the first one that holds the same element."""
    first: dict[int, int] = {}
    return tuple(first.setdefault(flat, i) for i, flat in enumerate(layout.register_offsets()))


def canonical_of(type: Tile) -> tuple[int, ...]:
    """``canonical_registers`` of a tile's layout; a scalar is one register."""
    return canonical_registers(type.layout) if type.layout is not None else (0,)


@lru_cache(maxsize=2048)
def equal_registers(layout: LinearLayout, constancy: tuple[int, ...]) -> tuple[int, ...]:
    """For every register the first one that is sure to hold the same value, where aligned groups of ``constancy``
    elements along each dimension are equal.

    Powers of two: threads change a coordinate by XOR, so registers of one group are of one group in every thread.
    """
    first: dict[tuple[int, ...], int] = {}
    groups = (tuple(x // c for x, c in zip(at, constancy, strict=True)) for at in layout.register_coordinates())
    return tuple(first.setdefault(group, i) for i, group in enumerate(groups))


class Registers:
    """A sequence of LLVM value names. ``make`` computes one register at the place where the value is defined.

    Elements that no other code needs are never computed, and registers that hold copies share one name, as do those
    that are known to be ``equal`` (see :func:`equal_registers`).
    """

    __slots__ = ("type", "canonical", "depth", "_equal", "_names", "_make")

    def __init__(
        self,
        type: Tile,
        make: Callable[[int], str] | None,
        names: list[str | None],
        depth: int = 0,
        equal: tuple[int, ...] | None = None,
    ) -> None:
        self.type = type
        self.canonical = canonical_of(type)
        self.depth = depth
        self._equal = equal or self.canonical
        self._make = make
        self._names = names

    @classmethod
    def fixed(cls, type: Tile, names: Sequence[str | None]) -> Registers:
        """Registers that are there already; only canonical ones need a name."""
        return cls(type, None, list(names))

    @classmethod
    def lazy(
        cls, type: Tile, make: Callable[[int], str], depth: int, equal: tuple[int, ...] | None = None
    ) -> Registers:
        """Registers that ``make`` computes on demand, given the first index of those that are ``equal``."""
        made = cls(type, make, [None] * len(canonical_of(type)), depth, equal)
        if depth > DEEPEST:
            made.force()
            made.depth = 0
        return made

    def __len__(self) -> int:
        return len(self.canonical)

    def __getitem__(self, index: int) -> str:
        index = self._equal[index]
        name = self._names[index]
        if name is None:
            if self._make is None:
                raise IndexError(f"register {index} of {self.type} was never given a value")
            name = self._names[index] = self._make(index)
        return name

    def force(self) -> list[str]:
        """All registers, copies included."""
        return [self[i] for i in range(len(self.canonical))]

    def unique(self) -> list[int]:
        """The indices of registers that hold different elements."""
        return [i for i, c in enumerate(self.canonical) if i == c]
