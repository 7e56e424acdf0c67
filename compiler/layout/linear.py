"""Linear layouts: which element of a tile sits in which register of which lane of which warp.

A layout is a linear map over F2 from hardware bits (register, lane, warp, block) to tile coordinates, given by
the coordinates of every hardware bit; the element at any place is the XOR of the coordinates of its set bits.
Broadcasting is a bit with zero coordinates, swizzles and transposes are ordinary members. The idea is that of
"Linear Layouts: Robust Code Generation of Efficient Tensor Computation Using F2" (arXiv 2505.23819).

Sizes are powers of two, so XOR of coordinates is XOR of row-major linear indices ("flat" indices) and the class
keeps one int per hardware bit.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Literal, NamedTuple, get_args

from .f2 import Echelon, LayoutError, LinearMap, combine, log2_exact, span_of

Dimension = Literal["register", "lane", "warp", "block"]
DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
Coordinates = tuple[int, ...]


class HardwareIndex(NamedTuple):
    """Where an element lives: indices of register, lane, warp and block."""

    register: int
    lane: int
    warp: int
    block: int


def flatten(shape: Coordinates, coordinates: Sequence[int]) -> int:
    """Row-major linear index of ``coordinates``."""
    flat = 0
    for size, coordinate in zip(shape, coordinates, strict=True):
        flat = flat * size + coordinate
    return flat


def unflatten(shape: Coordinates, flat: int) -> Coordinates:
    """Coordinates of a row-major linear index."""
    coordinates = []
    for size in reversed(shape):
        coordinates.append(flat & (size - 1))
        flat //= size
    return tuple(reversed(coordinates))


@dataclass(frozen=True, slots=True, eq=False)
class LinearLayout:
    """A layout of a tile of ``shape`` (powers of two); build it with ``from_bases`` or a constructor function.

    ``flat_register``, ``flat_lane``, ``flat_warp``, ``flat_block``: one row-major linear index per hardware bit,
    lowest bit first. Equality is equality of shape and bases. Raises LayoutError for sizes that are not powers
    of two and for bases outside the tile.
    """

    shape: Coordinates
    flat_register: tuple[int, ...]
    flat_lane: tuple[int, ...]
    flat_warp: tuple[int, ...]
    flat_block: tuple[int, ...] = ()
    _hash: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        for size in self.shape:
            log2_exact(size, f"each size of the tile shape {self.shape}")
        size = prod(self.shape)
        key = (self.shape, self.flat_register, self.flat_lane, self.flat_warp, self.flat_block)
        for bases in key[1:]:
            if bases and not 0 <= min(bases) <= max(bases) < size:
                raise LayoutError(f"a basis of {bases} lies outside a tile of shape {self.shape}")
        object.__setattr__(self, "_hash", hash(key))

    @classmethod
    def from_bases(
        cls,
        shape: Sequence[int],
        register: Sequence[Sequence[int]] = (),
        lane: Sequence[Sequence[int]] = (),
        warp: Sequence[Sequence[int]] = (),
        block: Sequence[Sequence[int]] = (),
    ) -> LinearLayout:
        """A layout from coordinates: ``from_bases((2, 4), register=[(0, 1)], lane=[(0, 2), (1, 0)])``.

        Raises LayoutError for coordinates of the wrong rank or outside the tile.
        """
        sizes = tuple(shape)
        flats = []
        for bases in (register, lane, warp, block):
            for basis in bases:
                if len(basis) != len(sizes) or not all(0 <= c < n for c, n in zip(basis, sizes, strict=True)):
                    raise LayoutError(f"basis {tuple(basis)} lies outside a tile of shape {sizes}")
            flats.append(tuple(flatten(sizes, basis) for basis in bases))
        return cls(sizes, *flats)

    @classmethod
    def parse(cls, text: str) -> LinearLayout:
        """The layout of a token as ``str`` prints it; raises LayoutError for text that does not follow the grammar."""
        return parse_layout(text)

    def __str__(self) -> str:
        parts = ["x".join(map(str, self.shape))]
        for letter, bases in zip("rlwb", (self.register, self.lane, self.warp, self.block), strict=True):
            if bases:
                parts.append(f"{letter}={','.join(_format_basis(basis) for basis in bases)}")
        return f"#ll[{';'.join(parts)}]"

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, LinearLayout):
            return NotImplemented
        return (
            self._hash == other._hash
            and self.shape == other.shape
            and self.flat_register == other.flat_register
            and self.flat_lane == other.flat_lane
            and self.flat_warp == other.flat_warp
            and self.flat_block == other.flat_block
        )

    def __reduce__(self) -> tuple[object, ...]:
        bases = (self.flat_register, self.flat_lane, self.flat_warp, self.flat_block)
        return (LinearLayout, (self.shape, *bases))

    # Sizes

    @property
    def rank(self) -> int:
        """Number of tile dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of tile elements."""
        return prod(self.shape)

    @property
    def registers(self) -> int:
        """Elements that each thread holds, copies included."""
        return 1 << len(self.flat_register)

    @property
    def lanes(self) -> int:
        """Lanes of a warp (32 on a GPU)."""
        return 1 << len(self.flat_lane)

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return 1 << len(self.flat_warp)

    @property
    def blocks(self) -> int:
        """Blocks (CTAs) of the cluster that share the tile."""
        return 1 << len(self.flat_block)

    # Bases

    def flat_bases(self, dimension: Dimension) -> tuple[int, ...]:
        """The row-major linear indices of the bits of one hardware dimension."""
        match dimension:
            case "register":
                return self.flat_register
            case "lane":
                return self.flat_lane
            case "warp":
                return self.flat_warp
            case "block":
                return self.flat_block

    def bases(self, dimension: Dimension) -> tuple[Coordinates, ...]:
        """The tile coordinates of the bits of one hardware dimension."""
        return tuple(unflatten(self.shape, flat) for flat in self.flat_bases(dimension))

    @property
    def register(self) -> tuple[Coordinates, ...]:
        """Coordinates of every register bit."""
        return self.bases("register")

    @property
    def lane(self) -> tuple[Coordinates, ...]:
        """Coordinates of every lane bit."""
        return self.bases("lane")

    @property
    def warp(self) -> tuple[Coordinates, ...]:
        """Coordinates of every warp bit."""
        return self.bases("warp")

    @property
    def block(self) -> tuple[Coordinates, ...]:
        """Coordinates of every block bit."""
        return self.bases("block")

    @property
    def columns(self) -> tuple[int, ...]:
        """All flat bases: register bits, then lane, warp and block bits."""
        return self.flat_register + self.flat_lane + self.flat_warp + self.flat_block

    @property
    def map(self) -> LinearMap:
        """The layout as a matrix from hardware bits (register lowest) to the flat index."""
        return LinearMap(self.columns, self.size.bit_length() - 1)

    # Elements

    def apply_flat(self, register: int = 0, lane: int = 0, warp: int = 0, block: int = 0) -> int:
        """Row-major linear index of the element at a place."""
        return (
            combine(self.flat_register, register)
            ^ combine(self.flat_lane, lane)
            ^ combine(self.flat_warp, warp)
            ^ combine(self.flat_block, block)
        )

    def apply(self, register: int = 0, lane: int = 0, warp: int = 0, block: int = 0) -> Coordinates:
        """Tile coordinates of the element at a place."""
        return unflatten(self.shape, self.apply_flat(register, lane, warp, block))

    def register_coordinates(self) -> tuple[Coordinates, ...]:
        """Coordinates of every register of lane 0 of warp 0; XOR them with a thread's own coordinates."""
        return _register_coordinates(self.shape, self.flat_register)

    def register_offsets(self) -> tuple[int, ...]:
        """``register_coordinates`` as row-major linear indices."""
        return tuple(span_of(self.flat_register))

    def locate(self, coordinates: Sequence[int]) -> HardwareIndex:
        """One place that holds the element, low registers first; raises LayoutError when none does."""
        solution = Echelon(self.columns).solve(flatten(self.shape, coordinates))
        if solution is None:
            raise LayoutError(f"no thread holds element {tuple(coordinates)} of {self}")
        return self.place(solution)

    def place(self, bits: int) -> HardwareIndex:
        """Split an input of ``map`` (or an output of ``inverse``) into its four indices."""
        indices = []
        for bases in (self.flat_register, self.flat_lane, self.flat_warp, self.flat_block):
            indices.append(bits & ((1 << len(bases)) - 1))
            bits >>= len(bases)
        return HardwareIndex(*indices)

    # Properties of the map

    @property
    def is_injective(self) -> bool:
        """No element is held twice."""
        return self.map.is_injective

    @property
    def is_surjective(self) -> bool:
        """Every element of the tile is held somewhere."""
        return self.map.is_surjective

    def free_bits(self, dimension: Dimension) -> int:
        """Mask of broadcast bits: with these bits zero in all dimensions, every element is held exactly once.

        A bit is free when its basis is zero or a combination of earlier bits (register first, block last).
        """
        return _free_bits(self)[DIMENSIONS.index(dimension)]

    def inverse(self) -> LinearMap:
        """Flat index -> hardware bits (see ``place``), free bits zero; raises LayoutError unless surjective."""
        return _inverse(self)

    # Algebra

    def product(self, outer: LinearLayout) -> LinearLayout:
        """Tile this layout by ``outer``: this one takes the low hardware bits and the low coordinates.

        Raises LayoutError when the ranks differ.
        """
        if self.rank != outer.rank:
            raise LayoutError(f"cannot tile rank {self.rank} by rank {outer.rank}")
        shape = tuple(a * b for a, b in zip(self.shape, outer.shape, strict=True))
        bases = []
        for dimension in DIMENSIONS:
            low = self.bases(dimension)
            high = tuple(
                tuple(c * n for c, n in zip(basis, self.shape, strict=True)) for basis in outer.bases(dimension)
            )
            bases.append(tuple(flatten(shape, basis) for basis in low + high))
        return LinearLayout(shape, *bases)

    def left_divide(self, tile: LinearLayout) -> LinearLayout | None:
        """The layout q with ``tile.product(q) == self``, or None: is this layout made of such tiles?"""
        if self.rank != tile.rank or any(n % t for n, t in zip(self.shape, tile.shape, strict=True)):
            return None
        shape = tuple(n // t for n, t in zip(self.shape, tile.shape, strict=True))
        quotient = []
        for dimension in DIMENSIONS:
            bases, inner = self.bases(dimension), tile.bases(dimension)
            if bases[: len(inner)] != inner:
                return None
            rest = bases[len(inner) :]
            if any(c % t for basis in rest for c, t in zip(basis, tile.shape, strict=True)):
                return None
            quotient.append(
                tuple(flatten(shape, [c // t for c, t in zip(basis, tile.shape, strict=True)]) for basis in rest)
            )
        return LinearLayout(shape, *quotient)

    def divides(self, whole: LinearLayout) -> bool:
        """Whether ``whole`` is this layout tiled by some other."""
        return whole.left_divide(self) is not None

    def with_columns(self, shape: Coordinates, columns: tuple[int, ...]) -> LinearLayout:
        """The same hardware bits with other flat bases (in the order of ``columns``), for a tile of ``shape``."""
        bases = []
        start = 0
        for old in (self.flat_register, self.flat_lane, self.flat_warp, self.flat_block):
            bases.append(columns[start : start + len(old)])
            start += len(old)
        return LinearLayout(shape, *bases)


@lru_cache(maxsize=4096)
def _register_coordinates(shape: Coordinates, register: tuple[int, ...]) -> tuple[Coordinates, ...]:
    return tuple(unflatten(shape, flat) for flat in span_of(register))


@lru_cache(maxsize=4096)
def _inverse(layout: LinearLayout) -> LinearMap:
    if not layout.is_surjective:
        raise LayoutError(f"layout {layout} does not hold every element of its tile")
    return layout.map.pseudo_inverse()


@lru_cache(maxsize=4096)
def _free_bits(layout: LinearLayout) -> tuple[int, ...]:
    space = Echelon()
    return tuple(
        sum(0 if space.add(basis) else 1 << bit for bit, basis in enumerate(layout.flat_bases(dimension)))
        for dimension in DIMENSIONS
    )


# Text -------------------------------------------------------------------------------------------------------
#
# One token of IR text, without spaces or quotes:
#
#     layout  = "#ll[" shape section* "]"
#     shape   = [ number { "x" number } ]           tile sizes; nothing for a rank-0 tile
#     section = ";" ("r" | "l" | "w" | "b") "=" basis { "," basis }
#     basis   = "_" | number { "." number }         "_" is the zero vector: a broadcast bit
#
# Sections stand in the order r, l, w, b (register, lane, warp, block bits, lowest bit first); an empty one is left out.
# ``#ll[16x8;r=0.1,8.0;l=0.2,0.4,1.0,2.0,4.0;w=_]`` is an mma accumulator copied to two warps.

TOKEN_PATTERN = r"#ll\[[0-9x;=,._rlwb]*\]"
_FORM = re.compile(r"#ll\[([0-9x]*)(?:;r=([^;]+))?(?:;l=([^;]+))?(?:;w=([^;]+))?(?:;b=([^;]+))?\]")


def _format_basis(basis: Coordinates) -> str:
    return ".".join(map(str, basis)) if any(basis) else "_"


@lru_cache(maxsize=4096)
def parse_layout(text: str) -> LinearLayout:
    """The layout of a token; raises LayoutError for text that does not follow the grammar."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise LayoutError(f"{text!r} is not a layout", hint="the form is #ll[16x8;r=0.1,8.0;l=0.2,...;w=16.0]")
    try:
        shape = tuple(int(size) for size in match[1].split("x")) if match[1] else ()
        bases = [
            [_parse_basis(basis, len(shape)) for basis in section.split(",")] if section else []
            for section in match.groups()[1:]
        ]
    except ValueError:
        raise LayoutError(f"{text!r} has a malformed number") from None
    return LinearLayout.from_bases(shape, *bases)


def _parse_basis(text: str, rank: int) -> Coordinates:
    return (0,) * rank if text == "_" else tuple(int(part) for part in text.split("."))
