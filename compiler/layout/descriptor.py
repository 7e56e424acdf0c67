"""How wgmma finds its operands in shared memory: matrix descriptors.

Source: PTX ISA, "Asynchronous warpgroup level matrix shared memory layout" and "Matrix descriptor". A matrix is made of
swizzle atoms of 8 rows of ``swizzle`` bytes. With K contiguous (*K-major*) the rows run along M or N; else they run
along K. Atoms that follow each other along the rows are ``stride`` bytes apart, those along the other axis ``leading``
bytes, which K-major operands do not use: one instruction's K is at most 32 bytes, less than a panel.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from .f2 import LayoutError
from .shared import SharedLayout, shared_linear, shared_tensor_core

#: Bytes of a row of a swizzle atom, the widest first: the more, the fewer bank conflicts.
SWIZZLES = (128, 64, 32)
#: Rows of a swizzle atom.
ATOM_ROWS = 8
#: Bits 62 and 63 of a descriptor.
_MODES = {128: 1, 64: 2, 32: 3}


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """A tile of shape (``outer``, ``k``) in elements of ``element_bytes``, as wgmma reads it."""

    swizzle: int
    k_major: bool
    outer: int
    k: int
    element_bytes: int

    @property
    def _panel(self) -> int:
        """Elements in one row of a swizzle atom."""
        return self.swizzle // self.element_bytes

    @property
    def bits(self) -> int:
        """The descriptor of address 0: strides and swizzle mode; the address / 16 is added into its low 14 bits."""
        stride = ATOM_ROWS * self.swizzle
        leading = 16 if self.k_major else self.k * self.swizzle
        return (_MODES[self.swizzle] << 62) | (stride >> 4) << 32 | (leading >> 4) << 16

    def offset(self, outer: int, k: int) -> int:
        """Bytes from the tile's start to the part that begins at row ``outer`` (a multiple of 8) and depth ``k``."""
        fast, slow, rows = (k, outer, self.outer) if self.k_major else (outer, k, self.k)
        panel, inside = divmod(fast, self._panel)
        return panel * rows * self.swizzle + slow * self.swizzle + inside * self.element_bytes


@lru_cache(maxsize=1024)
def matrix_descriptor(shared: SharedLayout, k_axis: int, element_bits: int) -> MatrixDescriptor | None:
    """The descriptor of a tile of rank 2 whose axis ``k_axis`` is summed over; None if wgmma cannot read the layout.

    Elements of 8 and 32 bits are read K-major only (PTX ISA, "wgmma.mma_async", imm-trans).
    """
    if len(shared.shape) != 2 or element_bits not in (8, 16, 32):
        return None
    for swizzle in SWIZZLES:
        for fast in (k_axis,) if element_bits != 16 else (k_axis, 1 - k_axis):
            if _is_swizzled(shared, fast, element_bits, swizzle):
                outer, k = shared.shape[1 - k_axis], shared.shape[k_axis]
                return MatrixDescriptor(swizzle, fast == k_axis, outer, k, element_bits // 8)
    return None


@lru_cache(maxsize=1024)
def swizzle_of(shared: SharedLayout, axis: int, element_bits: int) -> int | None:
    """The swizzle in bytes by which the copy engine moves a tile of rank 2 that is contiguous along ``axis``, 0 for one
    whose rows follow each other as they are; None if it lies in no such way."""
    if len(shared.shape) != 2:
        return None
    if shared == shared_linear(shared.shape, (axis, 1 - axis)):
        return 0
    return next((s for s in SWIZZLES if _is_swizzled(shared, axis, element_bits, s)), None)


def _is_swizzled(shared: SharedLayout, fast: int, element_bits: int, swizzle: int) -> bool:
    try:
        return shared_tensor_core(shared.shape, element_bits, swizzle, (fast, 1 - fast)) == shared
    except LayoutError:
        return False


def widest_swizzle(row_bytes: int) -> int:
    """The widest swizzle for rows of that many bytes; 0 below 32."""
    return next((s for s in SWIZZLES if s <= row_bytes), 0)
