"""Reductions, scans, histograms, dots, and functions of scalars mapped over tiles."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...ir.core import Block, Effect
from ...tile import reduction as r
from ...tile.map import MapElementwise
from ...tile.matmul import Dot
from .numbers import Array, as_tf32, dtype_of, rounded
from .program import Held, Program, evaluates


def _is_elementwise(block: Block) -> bool:
    return all(op.elementwise or op.effect is Effect.TERMINATOR for op in block.ops)


def _combine(block: Block, a: list[Array], b: list[Array], program: Program) -> list[Array]:
    """``block`` on every pair of elements: on whole arrays if it is elementwise, else pair by pair."""
    if _is_elementwise(block):
        made = program.block(block, [Held(x) for x in (*a, *b)])
        return [np.broadcast_to(held.array, a[0].shape) for held in made]
    out = [np.empty_like(x) for x in a]
    for index in np.ndindex(a[0].shape):
        made = program.block(block, [Held(np.asarray(x[index])) for x in (*a, *b)])
        for x, held in zip(out, made, strict=True):
            x[index] = held.array
    return out


@evaluates(r.Reduce)
def reduce(op: r.Reduce, program: Program) -> Sequence[Array]:
    """Neighbours are combined until one element is left; they stay in order."""
    parts = [np.moveaxis(program.get(v), op.axis, 0) for v in op.inputs]
    while len(parts[0]) > 1:
        parts = _combine(op.combine, [x[0::2] for x in parts], [x[1::2] for x in parts], program)
    return [np.asarray(x[0]) for x in parts]


@evaluates(r.Scan)
def scan(op: r.Scan, program: Program) -> Sequence[Array]:
    """Every element takes in the one 1, then 2, then 4, ... before it."""
    parts = [np.moveaxis(program.get(v), op.axis, 0) for v in op.inputs]
    if op.reverse:
        parts = [x[::-1] for x in parts]
    distance = 1
    while distance < len(parts[0]):
        made = _combine(op.combine, [x[:-distance] for x in parts], [x[distance:] for x in parts], program)
        heads = [x[:distance] for x in parts]
        parts = [np.concatenate(pair) for pair in zip(heads, made, strict=True)]
        distance *= 2
    if op.reverse:
        parts = [x[::-1] for x in parts]
    return [np.moveaxis(x, 0, op.axis) for x in parts]


@evaluates(Dot)
def dot(op: Dot, program: Program) -> Sequence[Array]:
    """Products are exact, their sum is taken in f64 and rounded to the accumulator once; integers wrap.

    Only precision "tf32" shortens f32 operands first; "tf32x3" counts as full f32.
    """
    a, b, acc = (program.get(v) for v in (op.a, op.b, op.acc))
    scalar = op.acc.type.scalar
    if not scalar.is_float:
        wide = dtype_of(scalar)
        return (np.asarray(a.astype(wide) @ b.astype(wide) + acc),)
    tf32 = op.precision == "tf32" and op.a.type.scalar.bits == 32
    wide_a, wide_b = (as_tf32(x) if tf32 else x.astype(np.float64) for x in (a, b))
    with np.errstate(all="ignore"):
        return (rounded(wide_a @ wide_b + acc.astype(np.float64), scalar),)


@evaluates(r.Histogram)
def histogram(op: r.Histogram, program: Program) -> Sequence[Array]:
    """Counts of the elements that are in range and not masked off."""
    x = program.get(op.x)
    counted = (x >= 0) & (x < op.bins)
    if op.mask is not None:
        counted &= program.get(op.mask)
    return (np.bincount(x[counted].astype(np.int64), minlength=op.bins).astype(np.int32),)


@evaluates(MapElementwise)
def map_elementwise(op: MapElementwise, program: Program) -> Sequence[Array]:
    """On whole arrays where the body is elementwise, else element by element."""
    inputs, shape = [program.get(v) for v in op.inputs], op.inputs[0].type.shape
    if _is_elementwise(op.body):
        made = program.block(op.body, [Held(x) for x in inputs])
        return [np.broadcast_to(held.array, shape) for held in made]
    out = [np.empty(shape, dtype_of(r.type.elem)) for r in op.results]
    for index in np.ndindex(shape):
        made = program.block(op.body, [Held(np.asarray(x[index])) for x in inputs])
        for x, held in zip(out, made, strict=True):
            x[index] = held.array
    return out
