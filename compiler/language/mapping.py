"""Functions of scalars, written in the language, applied to every element of tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import TypeMismatch
from ..ir.core import Block
from ..ir.types import Tile
from ..tile.map import MapElementwise
from .arithmetic import as_tensor, broadcast_all
from .builtin import builtin
from .context import current
from .shapes import join, reshape, shape_tuple, split
from .tensor import Operand, emit_all, tensor


@builtin
def map_elementwise(scalar_fn: object, *args: Operand, pack: int = 1) -> Any:
    """The jit function ``scalar_fn`` of the elements of ``args``, which broadcast to one shape.

    ``scalar_fn`` takes a scalar for every operand and returns one, or a tuple of them: so the result is a tensor of the
    common shape, or a tuple of such. Its branches and loops are those of single elements. It computes with scalars
    only: no tiles, no memory. With ``pack``, a power of two, it takes as many neighbours along the last dimension at
    once, ``f(a0, a1, ..., b0, b1, ...)``, and returns all results of the first kind, then those of the second.

    Raises TypeMismatch where shapes do not broadcast, for scalars alone, for a ``pack`` that does not divide the last
    dimension, and where ``scalar_fn`` does something else or returns other than ``pack`` results of each kind.
    """
    tiles = broadcast_all(*map(as_tensor, args))
    if not tiles or not tiles[0].shape:
        raise TypeMismatch("map_elementwise needs a tile", hint="call the function itself with scalars")
    (count,) = shape_tuple(pack, "pack")
    last = tiles[0].shape[-1]
    if count <= 0 or count & (count - 1) or last % count:
        raise TypeMismatch(f"pack is {count}, for {last} elements", hint="it is a power of two, and at most as many")
    body = Block()
    parts = [part for x in tiles for part in _unpacked(x, count)]
    scalars = [body.add_argument(Tile(x.dtype)) for x in parts]
    current().region(scalar_fn, scalars, body)
    results = emit_all(MapElementwise(tuple(x.value for x in parts), body))
    if len(results) % count:
        raise TypeMismatch(f"the function returns {len(results)} results, which is no multiple of pack, {count}")
    whole = tuple(_packed(results[i : i + count], tiles[0].shape) for i in range(0, len(results), count))
    return whole[0] if len(whole) == 1 else whole


def _unpacked(x: tensor, count: int) -> list[tensor]:
    """``x`` as ``count`` tiles, of which tile i holds every element i of ``count`` neighbours."""
    if count == 1:
        return [x]
    pairs = reshape(x, (*x.shape[:-1], x.shape[-1] // 2, 2))
    even, odd = split(pairs)
    return [part for both in zip(_unpacked(even, count // 2), _unpacked(odd, count // 2), strict=True) for part in both]


def _packed(parts: Sequence[tensor], shape: tuple[int, ...]) -> tensor:
    """The inverse of :func:`_unpacked`, into a tile of ``shape``."""
    if len(parts) == 1:
        return parts[0]
    half = (*shape[:-1], shape[-1] // 2)
    even, odd = _packed(parts[0::2], half), _packed(parts[1::2], half)
    if even.dtype != odd.dtype:
        raise TypeMismatch(f"packed results are of one type, got {even.dtype.code} and {odd.dtype.code}")
    return reshape(join(even, odd), shape)
