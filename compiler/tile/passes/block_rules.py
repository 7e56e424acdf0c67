"""Identities on boxes of arrays."""

from __future__ import annotations

from .. import blocks as b
from .. import shape as s
from .registry import Replacement, Rewriter, rule

#: Matrices are what products take and what copy engines bring to them.
_FEWEST_AXES = 2


def _thin_axes(shape: tuple[int, ...]) -> int:
    """Leading axes of extent 1, of which the last two of the tile are none."""
    thick = next((axis for axis, extent in enumerate(shape) if extent != 1), len(shape))
    return max(0, min(thick, len(shape) - _FEWEST_AXES))


@rule(b.BlockLoad)
def thin_load(op: b.BlockLoad, new: Rewriter) -> Replacement:
    """block_load 1 x m x n -> reshape(block_load m x n): a box is one element thick along leading dimensions"""
    thin = _thin_axes(op.shape)
    if not thin:
        return None
    return new(s.Reshape(new(op.clone({}, shape=op.shape[thin:])), op.shape))


@rule(b.BlockStore)
def thin_store(op: b.BlockStore, new: Rewriter) -> Replacement:
    """block_store of 1 x m x n -> block_store of reshape to m x n"""
    shape = op.value.type.shape
    thin = _thin_axes(shape)
    if not thin:
        return None
    new.place(op.clone({op.value: new(s.Reshape(op.value, shape[thin:]))}))
    return ()
