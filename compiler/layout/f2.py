"""Linear algebra over F2 on Python integers: a vector is an int, bit i is component i, addition is XOR."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..errors import IRError


class LayoutError(IRError):
    """A layout cannot be built, parsed or converted; the message shows the layout or the shape."""


def log2_exact(value: int, what: str) -> int:
    """The exponent of ``value``; raises LayoutError (naming ``what``) unless it is a power of two."""
    if value < 1 or value & (value - 1):
        raise LayoutError(f"{what} must be a power of two, not {value}")
    return value.bit_length() - 1


def span_of(bases: Iterable[int]) -> list[int]:
    """All XOR combinations, entry i combining the bases at the set bits of i."""
    combinations = [0]
    for basis in bases:
        combinations += [value ^ basis for value in combinations]
    return combinations


def combine(bases: Iterable[int], mask: int) -> int:
    """XOR of the bases at the set bits of ``mask``."""
    result = 0
    for basis in bases:
        if mask & 1:
            result ^= basis
        mask >>= 1
    return result


class Echelon:
    """A growing subspace that remembers how each of its vectors came from the vectors added.

    Combinations are masks over the positions of ``add`` calls, so a caller that adds columns in order of
    preference gets solutions in its preferred columns.
    """

    __slots__ = ("_count", "_rows")

    def __init__(self, vectors: Iterable[int] = ()) -> None:
        self._rows: dict[int, tuple[int, int]] = {}
        self._count = 0
        for vector in vectors:
            self.add(vector)

    def __len__(self) -> int:
        """The dimension."""
        return len(self._rows)

    def _reduce(self, vector: int) -> tuple[int, int]:
        rows = self._rows
        combination = 0
        while vector:
            row = rows.get(vector.bit_length())
            if row is None:
                break
            vector ^= row[0]
            combination ^= row[1]
        return vector, combination

    def add(self, vector: int) -> bool:
        """Add a vector; False when it was already in the subspace."""
        residue, combination = self._reduce(vector)
        position = self._count
        self._count += 1
        if not residue:
            return False
        self._rows[residue.bit_length()] = residue, combination | 1 << position
        return True

    def __contains__(self, vector: int) -> bool:
        return not self._reduce(vector)[0]

    def solve(self, vector: int) -> int | None:
        """A mask over the added vectors whose XOR is ``vector``; None outside the subspace."""
        residue, combination = self._reduce(vector)
        return None if residue else combination


def independent(vectors: Iterable[int], modulo: Iterable[int] = ()) -> list[int]:
    """The vectors that are not combinations of ``modulo`` and earlier ones."""
    echelon = Echelon(modulo)
    return [vector for vector in vectors if echelon.add(vector)]


def intersection(left: Iterable[int], right: Iterable[int]) -> list[int]:
    """A basis of the intersection of two spans."""
    members = independent(left)
    width = len(members)
    space = Echelon(members)
    outside: list[int] = []
    common = []
    for vector in independent(right):
        combination = space.solve(vector)
        if combination is None:
            space.add(vector)
            outside.append(vector)
        else:
            # vector = left part + earlier right vectors; moving the latter over gives a common vector.
            common.append(vector ^ combine(outside, combination >> width))
    return common


@dataclass(frozen=True, slots=True)
class LinearMap:
    """A matrix over F2 by columns: bit i of the input contributes ``columns[i]``, an ``out_bits`` wide int."""

    columns: tuple[int, ...]
    out_bits: int

    @classmethod
    def identity(cls, bits: int) -> LinearMap:
        """The map that changes nothing."""
        return cls(tuple(1 << bit for bit in range(bits)), bits)

    @property
    def in_bits(self) -> int:
        """Number of input bits."""
        return len(self.columns)

    def __call__(self, value: int) -> int:
        return combine(self.columns, value)

    @property
    def rank(self) -> int:
        """Dimension of the image."""
        return len(Echelon(self.columns))

    @property
    def is_injective(self) -> bool:
        """No two inputs share an output."""
        return self.rank == self.in_bits

    @property
    def is_surjective(self) -> bool:
        """Every output has an input."""
        return self.rank == self.out_bits

    def pseudo_inverse(self) -> LinearMap:
        """A map g with self(g(y)) = y, using low input bits first; raises LayoutError unless surjective."""
        space = Echelon(self.columns)
        columns = [space.solve(1 << bit) for bit in range(self.out_bits)]
        if any(column is None for column in columns):
            raise LayoutError(f"a map of rank {len(space)} onto {self.out_bits} bits has no inverse")
        return LinearMap(tuple(column or 0 for column in columns), self.in_bits)


@dataclass(frozen=True, slots=True)
class ShiftTerm:
    """One term ``(x & mask) << shift`` (``>> -shift`` when negative) of a linear function of x."""

    mask: int
    shift: int


def shift_terms(bases: tuple[int, ...]) -> tuple[ShiftTerm, ...]:
    """A linear function as the XOR of few masked shifts of its input: what an emitter wants to print."""
    masks: dict[int, int] = {}
    for position, basis in enumerate(bases):
        while basis:
            bit = basis.bit_length() - 1
            basis ^= 1 << bit
            masks[bit - position] = masks.get(bit - position, 0) | 1 << position
    return tuple(ShiftTerm(mask, shift) for shift, mask in sorted(masks.items()))
