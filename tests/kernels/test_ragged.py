"""Slices of arrays behind one descriptor, against NumPy; what is around a slice must stay as it is."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import CompilationError, LaunchError
from deuteron.tools.ragged_tma import atomic_add_ragged, create_ragged_descriptor, load_ragged, store_ragged
from deuteron.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def move(x, y, bounds, row, column, DIM: tl.constexpr, RANK: tl.constexpr, ADD: tl.constexpr):
    """The block at (row, column) of a slice of ``x`` goes to the same place of a slice of ``y``."""
    pid = tl.program_id(0)
    x_off, x_size = tl.load(bounds + 4 * pid), tl.load(bounds + 4 * pid + 1)
    y_off, y_size = tl.load(bounds + 4 * pid + 2), tl.load(bounds + 4 * pid + 3)
    if RANK == 2:
        at = [row, column]
    elif DIM == 0:
        at = [row, 0, column]
    else:
        at = [0, row, column]
    data = load_ragged(x, x_off, x_size, at, ragged_dim=DIM)
    if ADD:
        atomic_add_ragged(y, y_off, y_size, at, data, ragged_dim=DIM)
    else:
        store_ragged(y, y_off, y_size, at, data, ragged_dim=DIM)


def expected(x: np.ndarray, y: np.ndarray, bounds: Any, at: tuple[int, ...], block: Any, dim: int, add: bool) -> Any:
    made = y.copy()
    for x_off, x_size, y_off, y_size in bounds:
        for index in np.ndindex(*block):
            place = [p + i for p, i in zip(at, index, strict=True)]
            source, target = [*place], [*place]
            source[dim] += x_off
            target[dim] += y_off
            value = x[tuple(source)] if _inside(place, x, dim, x_off, x_size) else x.dtype.type(0)
            if _inside(place, y, dim, y_off, y_size):
                made[tuple(target)] = made[tuple(target)] + value if add else value
    return made


def _inside(place: list[int], array: np.ndarray, dim: int, offset: int, size: int) -> bool:
    """Whether a place in a slice is one of the array's, too."""
    limits = [*array.shape]
    limits[dim] = min(size, array.shape[dim] - offset)
    return all(0 <= p < n for p, n in zip(place, limits, strict=True))


SHAPES = {2: ((40, 24), (8, 16)), 3: ((12, 10, 24), (4, 8, 16))}


@pytest.mark.parametrize(
    ("rank", "dim", "dtype", "add", "at"),
    [
        (2, 0, np.float32, False, (0, 0)),
        (2, 0, np.float32, True, (-2, 8)),
        (2, 0, ml_dtypes.bfloat16, False, (3, 16)),
        (3, 0, np.int32, False, (-2, 8)),
        (3, 1, np.float16, False, (0, 0)),
        (3, 1, np.float32, True, (1, 16)),
    ],
    ids=str,
)
def test_slices_are_read_and_written_alone(launch, rng, rank, dim, dtype, add, at):
    shape, block = SHAPES[rank]
    x, y = (rng.integers(-40, 40, shape).astype(dtype) for _ in range(2))
    rows = shape[dim]
    x_sizes, y_sizes = [5, 1, 8], [3, 8, 0] if dim == 0 and rank == 2 else [3, 2, 0]
    y_offsets = np.cumsum([0, *y_sizes[:-1]])
    # The last slice of x reaches beyond the array, which ends there all the same.
    bounds = np.array([*zip([4, 0, rows - 3], x_sizes, y_offsets, y_sizes, strict=True)], np.int32)
    place = {2: at, 3: (at[0], 0, at[1]) if dim == 0 else (0, *at)}[rank]
    got = launch(
        move, (3,), *(create_ragged_descriptor(a, block, dim) for a in (x, y)), bounds, *at, DIM=dim, RANK=rank, ADD=add
    )[1].base
    np.testing.assert_array_equal(got, expected(x, y, bounds.tolist(), place, block, dim, add))


def test_the_descriptor_has_tritons_form(rng):
    made = create_ragged_descriptor(rng.standard_normal((6, 4, 8)).astype(np.float32), [2, 4, 8], ragged_dim=-2)
    assert made.block_shape == [1, 1, 2, 4, 8] and made.shape[2:] == [6, 4, 8] and made.strides[2:] == [32, 8, 1]


@pytest.mark.parametrize(
    ("shape", "dim", "message"),
    [
        ((8,), 0, "of an array of 1 dim"),
        ((2,) * 3 + (8,), 0, "of 4 dim"),
        ((8, 8), 1, "ragged_dim is 1"),
        ((8, 8), -3, "-3"),
    ],
)
def test_arrays_without_a_ragged_descriptor(shape, dim, message):
    with pytest.raises(LaunchError, match=message):
        create_ragged_descriptor(np.zeros(shape, np.float32), [8 if n == 8 else 1 for n in shape], dim)


def test_other_descriptors_and_dimensions_are_refused():
    x = np.zeros((8, 16), np.float32)
    bounds, ragged = np.zeros(4, np.int32), create_ragged_descriptor(x, [4, 16])
    plain = TensorDescriptor.from_tensor(x, [4, 16])
    for descriptor, dim, message in (
        (plain, 0, "no ragged descriptor"),
        (ragged, 1, "ragged_dim is 1, of an array of 2"),
    ):
        with pytest.raises(CompilationError, match=message):
            move[(1,)](descriptor, descriptor, bounds, 0, 0, DIM=dim, RANK=2, ADD=False)
    with pytest.raises(CompilationError, match="has 3 entries for 2 dimensions"):
        move[(1,)](ragged, ragged, bounds, 0, 0, DIM=0, RANK=3, ADD=False)
