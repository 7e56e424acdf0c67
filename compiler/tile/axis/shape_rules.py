"""Axis rules of the operations that make tiles, change their shape or move their elements."""

from __future__ import annotations

from collections.abc import Sequence

from .. import movement as m
from .. import shape as s
from .info import AxisInfo, power_of_two_in
from .rules import rule


@rule(s.Arange)
def arange(op: s.Arange) -> Sequence[AxisInfo]:
    """One contiguous run over the whole tile, which starts at ``start``."""
    size = op.end - op.start
    return (AxisInfo((size,), (power_of_two_in(op.start),), (1,), None, op.start >= 0),)


@rule(s.Splat)
def splat(op: s.Splat, x: AxisInfo) -> Sequence[AxisInfo]:
    """Constant along every dimension, with the scalar's divisibility."""
    if not op.shape:
        return (x,)
    ones = (1,) * len(op.shape)
    return (x._replace(contiguity=ones, divisibility=x.divisibility * len(op.shape), constancy=op.shape),)


@rule(s.ExpandDims)
def expand_dims(op: s.ExpandDims, x: AxisInfo) -> Sequence[AxisInfo]:
    """The new dimension has size 1: every value is a first one, so what divides all values divides there."""
    if not op.x.type.rank:
        return (x,)
    at, whole = op.axis, x.everywhere
    return (
        x._replace(
            contiguity=(*x.contiguity[:at], 1, *x.contiguity[at:]),
            divisibility=(*x.divisibility[:at], whole, *x.divisibility[at:]),
            constancy=(*x.constancy[:at], 1, *x.constancy[at:]),
        ),
    )


@rule(s.Broadcast)
def broadcast(op: s.Broadcast, x: AxisInfo) -> Sequence[AxisInfo]:
    """Constant along the stretched dimensions."""
    pairs = zip(op.x.type.shape, op.shape, x.constancy, strict=True)
    return (x._replace(constancy=tuple(n if have != n else c for have, n, c in pairs)),)


@rule(s.Permute)
def permute(op: s.Permute, x: AxisInfo) -> Sequence[AxisInfo]:
    """Facts move with their dimensions."""
    if not op.order:
        return (x,)
    return (
        x._replace(
            contiguity=tuple(x.contiguity[d] for d in op.order),
            divisibility=tuple(x.divisibility[d] for d in op.order),
            constancy=tuple(x.constancy[d] for d in op.order),
        ),
    )


@rule(s.Reshape)
def reshape(op: s.Reshape, x: AxisInfo) -> Sequence[AxisInfo]:
    """Facts move with dimensions that stay (apart from those of size 1), else with the last one as far as it goes."""
    old, new, whole = op.x.type.shape, op.shape, x.everywhere
    if not new:
        return (x._replace(contiguity=(1,), divisibility=(whole,), constancy=(1,)),)
    facts = [(1, whole, 1) for _ in new]
    kept_old = [d for d, n in enumerate(old) if n > 1]
    kept_new = [d for d, n in enumerate(new) if n > 1]
    if [old[d] for d in kept_old] == [new[d] for d in kept_new]:
        for a, b in zip(kept_old, kept_new, strict=True):
            facts[b] = (x.contiguity[a], x.divisibility[a], x.constancy[a])
    elif x.constancy == old:
        facts = [(1, whole, n) for n in new]
    elif kept_old and kept_new:
        # Groups along the last dimension are aligned runs of the row-major order.
        a, b = kept_old[-1], kept_new[-1]
        contiguity = min(x.contiguity[a], new[b])
        facts[b] = (contiguity, x.at(a, contiguity), min(x.constancy[a], new[b]))
    contiguities, divisibilities, constancies = zip(*facts, strict=True)
    return (x._replace(contiguity=contiguities, divisibility=divisibilities, constancy=constancies),)


@rule(s.Join)
def join(op: s.Join, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """What holds for both operands; nothing along the new dimension."""
    both = x.join(y)
    if not op.lhs.type.rank:
        return (both,)
    return (
        both._replace(
            contiguity=(*both.contiguity, 1),
            divisibility=(*both.divisibility, both.everywhere),
            constancy=(*both.constancy, 1),
        ),
    )


@rule(s.Split)
def split(op: s.Split, x: AxisInfo) -> Sequence[AxisInfo]:
    """Facts of the dimensions that stay."""
    if op.x.type.rank == 1:
        half = x._replace(contiguity=(1,), divisibility=(x.everywhere,), constancy=(1,))
    else:
        half = x._replace(
            contiguity=x.contiguity[:-1],
            divisibility=x.divisibility[:-1],
            constancy=x.constancy[:-1],
        )
    return (half, half)


@rule(m.Butterfly)
def butterfly(op: m.Butterfly, x: AxisInfo) -> Sequence[AxisInfo]:
    """Aligned groups change places as wholes, and runs that are no longer than the lowest bit of the distance."""
    at = op.axis
    run = min(x.contiguity[at], op.distance & -op.distance)
    return (
        x._replace(
            contiguity=(*x.contiguity[:at], run, *x.contiguity[at + 1 :]),
            divisibility=(*x.divisibility[:at], x.at(at, run), *x.divisibility[at + 1 :]),
        ),
    )


@rule(m.Gather)
def gather(op: m.Gather, src: AxisInfo, index: AxisInfo) -> Sequence[AxisInfo]:
    """Elements of ``src`` in any order."""
    ones = (1,) * op.index.type.rank
    return (src._replace(contiguity=ones, divisibility=(src.everywhere,) * len(ones), constancy=ones),)
