"""The facts about one value."""

from __future__ import annotations

from typing import NamedTuple

from ...ir.types import Pointer, Scalar, Tile

#: Largest divisibility that is tracked; zero is divisible by it.
LARGEST = 1 << 30


class AxisInfo(NamedTuple):
    """Facts about one value, one entry per dimension (one for a scalar); the package docstring defines them.

    ``constant``: the integer that every element equals, if known. ``nonnegative``: no element is below zero. ``unit``:
    what contiguous values go up by, 1 for integers and the bytes of an element for pointers.
    """

    contiguity: tuple[int, ...]
    divisibility: tuple[int, ...]
    constancy: tuple[int, ...]
    constant: int | None = None
    nonnegative: bool = False
    unit: int = 1

    def at(self, dim: int, step: int) -> int:
        """A power of two that divides every value whose index along ``dim`` is a multiple of ``step``."""
        divisibility = self.divisibility[dim]
        if step >= self.contiguity[dim]:
            return divisibility
        return min(divisibility, step * self.unit)

    @property
    def everywhere(self) -> int:
        """A power of two that divides every value."""
        return max(self.at(d, 1) for d in range(len(self.divisibility)))

    def aligned(self, dim: int) -> int:
        """Elements along ``dim`` in one vector access: contiguous, and starting at a multiple of the vector's size."""
        return min(self.contiguity[dim], max(1, self.divisibility[dim] // self.unit))

    def join(self, other: AxisInfo) -> AxisInfo:
        """What holds whichever of the two values is meant."""
        if self == other:
            return self
        contiguity = tuple(map(min, self.contiguity, other.contiguity))
        return AxisInfo(
            contiguity,
            tuple(min(self.at(d, c), other.at(d, c)) for d, c in enumerate(contiguity)),
            tuple(map(min, self.constancy, other.constancy)),
            self.constant if self.constant == other.constant else None,
            self.nonnegative and other.nonnegative,
            self.unit,
        )


def unknown(type: Tile) -> AxisInfo:
    """Facts that hold for every value of ``type``."""
    ones = (1,) * max(1, type.rank)
    elem = type.elem
    unsigned = isinstance(elem, Scalar) and elem.kind in ("uint", "bool")
    return AxisInfo(ones, ones, ones, None, unsigned, unit_of(type))


def constant_info(value: int, type: Tile) -> AxisInfo:
    """The facts of a tile filled with ``value``."""
    dims = type.shape or (1,)
    ones, divisor = (1,) * len(dims), (power_of_two_in(value),) * len(dims)
    return AxisInfo(ones, divisor, dims, value, value >= 0, unit_of(type))


def unit_of(type: Tile) -> int:
    """Bytes between neighbours for pointers, 1 for numbers."""
    return type.elem.pointee.bytes if isinstance(type.elem, Pointer) else 1


def power_of_two_in(value: int) -> int:
    """The largest power of two (up to LARGEST) that divides ``value``."""
    return min(value & -value, LARGEST) if value else LARGEST
