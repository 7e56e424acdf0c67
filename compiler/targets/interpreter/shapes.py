"""Operations that make tiles, change their shape or move their elements, and the ones that read the grid."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...tile import movement as m
from ...tile import program as p
from ...tile import shape as s
from .numbers import Array
from .program import Program, evaluates


@evaluates(p.ProgramId)
def program_id(op: p.ProgramId, program: Program) -> Sequence[Array]:
    return (np.asarray(program.program_id[op.axis], np.int32),)


@evaluates(p.NumPrograms)
def num_programs(op: p.NumPrograms, program: Program) -> Sequence[Array]:
    return (np.asarray(program.grid[op.axis], np.int32),)


@evaluates(s.Arange)
def arange(op: s.Arange, program: Program) -> Sequence[Array]:
    return (np.arange(op.start, op.end, dtype=np.int32),)


@evaluates(s.Splat)
def splat(op: s.Splat, program: Program) -> Sequence[Array]:
    return (np.broadcast_to(program.get(op.x), op.shape),)


@evaluates(s.ExpandDims)
def expand_dims(op: s.ExpandDims, program: Program) -> Sequence[Array]:
    return (np.expand_dims(program.get(op.x), op.axis),)


@evaluates(s.Broadcast)
def broadcast(op: s.Broadcast, program: Program) -> Sequence[Array]:
    return (np.broadcast_to(program.get(op.x), op.shape),)


@evaluates(s.Reshape)
def reshape(op: s.Reshape, program: Program) -> Sequence[Array]:
    return (program.get(op.x).reshape(op.shape),)


@evaluates(s.Permute)
def permute(op: s.Permute, program: Program) -> Sequence[Array]:
    return (program.get(op.x).transpose(op.order),)


@evaluates(s.Join)
def join(op: s.Join, program: Program) -> Sequence[Array]:
    return (np.stack([program.get(op.lhs), program.get(op.rhs)], axis=-1),)


@evaluates(s.Split)
def split(op: s.Split, program: Program) -> Sequence[Array]:
    x = program.get(op.x)
    return (np.asarray(x[..., 0]), np.asarray(x[..., 1]))


@evaluates(m.Butterfly)
def butterfly(op: m.Butterfly, program: Program) -> Sequence[Array]:
    """Pairs of elements change places."""
    x = program.get(op.x)
    return (np.take(x, np.arange(x.shape[op.axis]) ^ op.distance, axis=op.axis),)


@evaluates(m.Gather)
def gather(op: m.Gather, program: Program) -> Sequence[Array]:
    """NumPy's take_along_axis, with indices modulo the size."""
    src, index = program.get(op.src), program.get(op.index)
    return (np.take_along_axis(src, index & (src.shape[op.axis] - 1), op.axis),)
