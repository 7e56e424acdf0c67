"""Layouts of tiles in shared memory: linear maps from the bits of an element offset to tile coordinates."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..hardware import VECTOR_BYTES
from .construct import row_major
from .f2 import LayoutError, LinearMap, combine, log2_exact
from .linear import Coordinates, flatten, unflatten

#: Bytes after which address bits are XORed into the number of a chunk (PTX ISA, "Tensor swizzling modes").
SWIZZLE_SPAN_BYTES = 128
_FORM = re.compile(r"#sh\[([0-9x]+);([0-9.,]*)\]")


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A tile of ``shape`` in shared memory: bit i of an element's offset stands for ``flat_offset[i]``.

    ``flat_offset`` holds row-major linear indices; the offset of an element is in elements, not bytes.
    """

    shape: Coordinates
    flat_offset: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> SharedLayout:
        """The layout of a token as ``str`` prints it; raises LayoutError for text that does not follow the grammar."""
        match = _FORM.fullmatch(text)
        if match is None:
            raise LayoutError(f"{text!r} is not a shared layout", hint="the form is #sh[16x8;0.1,0.2,0.4,1.0,...]")
        shape = tuple(map(int, match[1].split("x")))
        bases = [tuple(map(int, basis.split("."))) for basis in match[2].split(",")] if match[2] else []
        if any(len(basis) != len(shape) for basis in bases):
            raise LayoutError(f"{text!r} has a basis of another rank than its shape")
        return cls(shape, tuple(flatten(shape, basis) for basis in bases))

    def __str__(self) -> str:
        bases = ",".join(".".join(map(str, basis)) for basis in self.offset)
        return f"#sh[{'x'.join(map(str, self.shape))};{bases}]"

    @property
    def offset(self) -> tuple[Coordinates, ...]:
        """The tile coordinates of every offset bit."""
        return tuple(unflatten(self.shape, flat) for flat in self.flat_offset)

    @property
    def map(self) -> LinearMap:
        """Offset -> flat index."""
        return LinearMap(self.flat_offset, len(self.flat_offset))

    def inverse(self) -> LinearMap:
        """Flat index -> offset; raises LayoutError when two elements share an offset."""
        return _inverse(self)

    def apply(self, offset: int) -> Coordinates:
        """Coordinates of the element at an offset (in elements)."""
        return unflatten(self.shape, combine(self.flat_offset, offset))

    def offset_of(self, coordinates: Sequence[int]) -> int:
        """Offset (in elements) of the element at ``coordinates``."""
        return self.inverse()(flatten(self.shape, coordinates))

    def permute(self, order: Sequence[int]) -> SharedLayout:
        """The same memory seen as a tile with dimension i = old dimension ``order[i]``."""
        shape = tuple(self.shape[axis] for axis in order)
        return SharedLayout(
            shape,
            tuple(flatten(shape, [basis[axis] for axis in order]) for basis in self.offset),
        )

    def reshape(self, shape: Sequence[int]) -> SharedLayout:
        """The same memory seen as a tile of another shape of the same size, row-major."""
        return SharedLayout(tuple(shape), self.flat_offset)


@lru_cache(maxsize=1024)
def _inverse(layout: SharedLayout) -> LinearMap:
    return layout.map.pseudo_inverse()


def shared_linear(shape: Sequence[int], order: Sequence[int] | None = None) -> SharedLayout:
    """Unswizzled: elements in sequence along ``order`` (axes, fastest first; default row-major)."""
    return shared_swizzled(shape, order, vector=1, per_phase=1, max_phase=1)


def shared_swizzled(
    shape: Sequence[int],
    order: Sequence[int] | None = None,
    *,
    vector: int,
    per_phase: int,
    max_phase: int,
) -> SharedLayout:
    """XOR swizzle: group column / vector is XORed with (row / per_phase) % max_phase.

    Columns run along ``order[0]``, rows along ``order[1]``; default order is row-major. Raises LayoutError
    when the swizzle is wider than a row or a number is not a power of two.
    """
    sizes = tuple(shape)
    axes = row_major(len(sizes)) if order is None else tuple(order)
    for value, what in ((vector, "vector"), (per_phase, "per_phase"), (max_phase, "max_phase")):
        log2_exact(value, what)
    if max_phase > 1 and (len(sizes) < 2 or vector * max_phase > sizes[axes[0]]):
        raise LayoutError(f"a swizzle of {max_phase} phases of {vector} does not fit a row of {sizes}")
    return _swizzled(sizes, axes, sizes[axes[0]] if sizes else 1, vector, per_phase, max_phase)


def shared_tensor_core(
    shape: Sequence[int], element_bits: int, swizzle_bytes: int, order: Sequence[int] | None = None
) -> SharedLayout:
    """The swizzle of TMA boxes and wgmma matrix descriptors.

    Panels of ``swizzle_bytes`` (32, 64 or 128; 0: no swizzle and no panels) along ``order[0]``; inside a panel
    the 16-byte chunk number (address bits 4 and up) is XORed with address bits 7 and up. Panels follow each
    other, each with all rows. Source: PTX ISA, "Tensor swizzling modes" and "Shared Memory Matrix Layout".
    Raises LayoutError when a row is shorter than a panel.
    """
    sizes = tuple(shape)
    axes = row_major(len(sizes)) if order is None else tuple(order)
    if swizzle_bytes == 0:
        return shared_linear(sizes, axes)
    if swizzle_bytes not in (32, 64, 128):
        raise LayoutError(f"there is no {swizzle_bytes}-byte swizzle", hint="use 0, 32, 64 or 128")
    panel = swizzle_bytes * 8 // element_bits
    if len(sizes) < 2 or sizes[axes[0]] < panel:
        raise LayoutError(f"rows of {sizes} are shorter than a {swizzle_bytes}-byte swizzle panel")
    chunk = max(1, VECTOR_BYTES * 8 // element_bits)
    return _swizzled(sizes, axes, panel, chunk, SWIZZLE_SPAN_BYTES // swizzle_bytes, swizzle_bytes // VECTOR_BYTES)


@lru_cache(maxsize=1024)
def _swizzled(
    shape: Coordinates, order: Coordinates, panel: int, vector: int, per_phase: int, max_phase: int
) -> SharedLayout:
    if sorted(order) != list(range(len(shape))):
        raise LayoutError(f"order {order} does not list the axes of {shape}")
    if not shape:
        return SharedLayout((), ())
    columns: list[int] = []

    def add(axis: int, start: int, stop: int) -> None:
        while start < stop:
            coordinates = [0] * len(shape)
            coordinates[axis] = start
            if len(order) > 1 and axis == order[1]:
                coordinates[order[0]] = (start // per_phase) % max_phase * vector
            columns.append(flatten(shape, coordinates))
            start *= 2

    add(order[0], 1, panel)
    for axis in order[1:2]:
        add(axis, 1, shape[axis])
    add(order[0], panel, shape[order[0]])
    for axis in order[2:]:
        add(axis, 1, shape[axis])
    return SharedLayout(shape, tuple(columns))
