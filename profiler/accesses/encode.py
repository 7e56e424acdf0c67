"""Accesses as short JSON: tiles of addresses are mostly affine, and masks mostly boxes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from deuteron.compiler.targets.interpreter.numbers import Array

from .record import RecordedAccess, RecordedLaunch

Encoded = list[object]


def encoded(launch: RecordedLaunch, access: RecordedAccess) -> Encoded:
    """``[operation, program, array, base, strides, steps, mask, outside]``.

    ``base`` is the first element's distance from the array's start in bytes, or its address where ``array`` is -1.
    ``strides`` has the bytes from one index of the tile to the next, by dimension; where addresses are not affine it is
    0, and ``steps`` has the distances from element to element as value, count, value, count. ``mask`` is 0 where all
    elements are active; a list of one list of runs for each dimension where it is what the dimensions' masks have in
    common; else a list of runs. Runs are the lengths of off, on, off, on ... ``outside`` is 0 or runs.
    """
    shape = launch.operations[access.operation].shape
    start = launch.arrays[access.array].start if access.array >= 0 else 0
    distances = (access.addresses - np.uint64(start)).view(np.int64)
    strides = affine_strides(distances, shape)
    return [
        access.operation,
        access.program,
        access.array,
        int(distances[0]) if len(distances) else 0,
        0 if strides is None else strides,
        _steps(distances) if strides is None else 0,
        _mask(access.active, shape),
        runs(access.outside) if access.outside.any() else 0,
    ]


def affine_strides(distances: Array, shape: Sequence[int]) -> list[int] | None:
    """The stride of each dimension of ``shape`` if ``distances`` are linear in the indices, None if they are not."""
    tile = distances.reshape(shape)
    strides = []
    wanted = np.full(shape, tile.reshape(-1)[0])
    for axis, length in enumerate(shape):
        first = (0,) * axis
        rest = (0,) * (len(shape) - axis - 1)
        stride = int(tile[(*first, 1, *rest)]) - int(tile[(*first, 0, *rest)]) if length > 1 else 0
        if abs(stride) >= 1 << 53:
            return None
        along = [length if dim == axis else 1 for dim in range(len(shape))]
        wanted = wanted + (np.arange(length) * stride).reshape(along)
        strides.append(stride)
    return strides if np.array_equal(wanted, tile) else None


def runs(flags: Array) -> list[int]:
    """The lengths of off, on, off, on ... in ``flags``; the first may be 0."""
    edges = np.flatnonzero(np.diff(flags)) + 1
    bounds = np.concatenate([[0], edges, [len(flags)]])
    lengths = [int(n) for n in np.diff(bounds)]
    return [0, *lengths] if len(flags) and flags[0] else lengths


def _mask(active: Array, shape: Sequence[int]) -> object:
    if active.all():
        return 0
    tile = active.reshape(shape)
    others = [tuple(a for a in range(len(shape)) if a != axis) for axis in range(len(shape))]
    lines = [np.asarray(tile.any(axis=axes)) for axes in others]
    common = np.ones(shape, np.bool_)
    for axis, line in enumerate(lines):
        common &= line.reshape([len(line) if dim == axis else 1 for dim in range(len(shape))])
    return [runs(line) for line in lines] if len(shape) > 1 and np.array_equal(common, tile) else runs(active)


def _steps(distances: Array) -> list[int]:
    steps = np.diff(distances)
    bounds = np.concatenate([[0], np.flatnonzero(np.diff(steps)) + 1, [len(steps)]])
    return [int(n) for low, high in zip(bounds, bounds[1:], strict=False) for n in (steps[low], high - low)]
