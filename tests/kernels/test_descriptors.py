"""Tensor descriptors, made by the host or by the kernel: random blocks against NumPy, and the kernels that use them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.tools.tensor_descriptor import TensorDescriptor

Launch = Callable[..., list[Any]]


@triton.jit
def copy_block(source, out, offsets, SIZE: tl.constexpr, SHAPE: tl.constexpr):
    """``source``: a descriptor of any rank; its block goes to ``out`` as one line."""
    at = ()
    for d in tl.static_range(len(source.block_shape)):
        at = at + (tl.load(offsets + d),)
    tl.static_assert(source.block_shape == SHAPE)
    block = source.load(at)
    tl.store(out + tl.arange(0, SIZE), tl.reshape(block, (SIZE,)))


@triton.jit
def copy_described(
    x, out, offsets, shape, strides, RANK: tl.constexpr, BLOCK: tl.constexpr, SIZE: tl.constexpr, PAD: tl.constexpr
):
    sizes = ()
    steps = ()
    for d in tl.static_range(RANK):
        sizes = sizes + (tl.load(shape + d),)
        if d + 1 < RANK:
            steps = steps + (tl.load(strides + d),)
    desc = tl.make_tensor_descriptor(x, sizes, steps + (1,), BLOCK, padding_option=PAD)
    copy_block(desc, out, offsets, SIZE, BLOCK)


def random_array(rng: np.random.Generator, rank: int, dtype: Any) -> np.ndarray:
    """An array whose rows begin at multiples of 16 bytes; rows and planes have gaps between them."""
    item = np.dtype(dtype).itemsize
    shape = [int(rng.integers(1, 7)) for _ in range(rank - 1)] + [int(rng.integers(1, 60))]
    room = [n + int(rng.integers(0, 3)) for n in shape[:-1]] + [-(-shape[-1] * item // 16) * 16 // item]
    whole = rng.integers(-50, 50, room).astype(dtype)
    return whole[tuple(slice(n) for n in shape)]


def box_of(array: np.ndarray, offsets: list[int], block: list[int], padding: float) -> np.ndarray:
    made = np.full(block, padding, np.float64).astype(array.dtype)
    for index in np.ndindex(*block):
        place = tuple(o + i for o, i in zip(offsets, index, strict=True))
        if all(0 <= p < n for p, n in zip(place, array.shape, strict=True)):
            made[index] = array[place]
    return made


def tf32(x: np.ndarray) -> np.ndarray:
    """The nearest number with 11 significant bits, by float64: the even one of two."""
    exponent = np.frexp(np.where(np.isfinite(x), x, 1).astype(np.float64))[1]
    unit = np.ldexp(1.0, np.maximum(exponent, -125) - 11)
    return np.where(np.isfinite(x), np.rint(x / unit) * unit, x).astype(np.float32)


@triton.jit
def load_and_gather(source, row, rows, out, N: tl.constexpr):
    block = source.load([0, 0])
    tl.store(out + tl.arange(0, 4)[:, None] * N + tl.arange(0, N)[None, :], block)
    gathered = row.gather(tl.load(rows + tl.arange(0, 8)), 0)
    tl.store(out + 4 * N + tl.arange(0, 8)[:, None] * N + tl.arange(0, N)[None, :], gathered)


def test_loads_round_to_tf32(launch: Launch, rng):
    x = rng.integers(0, 2**32, (4, 32), dtype=np.uint32).view(np.float32)
    x[0, :8] = [np.inf, -np.inf, np.nan, 0.0, -0.0, 1 + 2**-11, 1 + 3 * 2**-11, 2**-149]
    rounded = [TensorDescriptor.from_tensor(x, block, round_f32_to_tf32=True) for block in ([4, 32], [1, 32])]
    rows = np.array([3, 2, 1, 0, 0, 1, 2, 3], np.int32)
    made = launch(load_and_gather, (1,), *rounded, rows, np.zeros((12, 32), np.float32), N=32)[-1]
    np.testing.assert_array_equal(made, tf32(np.concatenate([x, x[rows]])))
    assert not (made[:4] == x).all()


@pytest.mark.parametrize("host", [True, False], ids=["host", "device"])
@pytest.mark.parametrize(
    "rank, dtype",
    [(1, np.float32), (2, np.float16), (3, np.int8), (4, ml_dtypes.bfloat16), (5, np.float32), (2, np.float64)],
    ids=str,
)
def test_any_block(launch: Launch, rank: int, dtype: Any, host: bool):
    rng = np.random.default_rng(rank)
    array = random_array(rng, rank, dtype)
    wide = 16 // np.dtype(dtype).itemsize
    block = [int(rng.choice([1, 2, 4])) for _ in range(rank - 1)] + [wide * int(rng.choice([1, 2]))]
    offsets = [int(rng.integers(-b, n + 1)) for b, n in zip(block, array.shape, strict=True)]
    padding = "zero" if np.dtype(dtype).kind == "i" else str(rng.choice(["zero", "nan"]))
    size = int(np.prod(block))
    out, at = np.ones(size, dtype), np.array(offsets, np.int32)
    whole = array.base if array.base is not None else array
    strides = [s // array.itemsize for s in array.strides]
    if host:
        described = TensorDescriptor(whole, array.shape, strides, block, padding)
        given = [described, out, at]
        got = launch(copy_block, (1,), *given, SIZE=size, SHAPE=tuple(block))[1]
    else:
        lists = np.array(array.shape, np.int32), np.array(strides, np.int64)
        got = launch(
            copy_described, (1,), whole, out, at, *lists, RANK=rank, BLOCK=tuple(block), SIZE=size, PAD=padding
        )[1]
    expected = box_of(array, offsets, block, np.nan if padding == "nan" else 0).reshape(-1)
    np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64))


@triton.jit
def described(pointer_or_descriptor, shape, strides, block):
    if isinstance(pointer_or_descriptor, tl.tensor_descriptor):
        return pointer_or_descriptor
    else:  # noqa: RET505 -- as libraries write it: one side is compiled
        return tl.make_tensor_descriptor(pointer_or_descriptor, shape, strides, block)


@triton.jit
def persistent_matmul(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr):
    a = described(a, [M, K], [K, 1], [BM, BK])
    b = described(b, [N, K], [K, 1], [BN, BK])
    c = described(c, [M, N], [N, 1], [BM, BN])
    tiles_n = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * tiles_n, PROGRAMS, flatten=True):
        m, n = tile // tiles_n * BM, tile % tiles_n * BN
        acc = tl.zeros((BM, BN), dtype=tl.float32)
        for k in range(tl.cdiv(K, BK)):
            x = a.load([m, k * BK])
            y = tl.load_tensor_descriptor(b, [n, k * BK])
            acc = tl.dot(x, y.T, acc, input_precision="ieee")
        if tile % 2 == 0:
            c.store([m, n], acc.to(c.dtype))
        else:
            tl.store_tensor_descriptor(c, [m, n], acc)


@pytest.mark.parametrize("host", ["abc", "ac", ""])
def test_persistent_matmul(launch: Launch, normal, close, host: str):
    m, n, k = 40, 24, 36
    arrays = {"a": normal(m, k), "b": normal(n, k), "c": np.ones((m, n), np.float32)}
    given = [TensorDescriptor.from_tensor(x, [16, 16]) if name in host else x for name, x in arrays.items()]
    c = launch(persistent_matmul, (3,), *given, m, n, k, BM=16, BN=16, BK=16, PROGRAMS=3)[2]
    got = c.base if isinstance(c, TensorDescriptor) else c
    close(got, arrays["a"].astype(np.float64) @ arrays["b"].T, 1e-4)


@triton.jit
def doubled(desc, out, row_from_end):
    tl.static_assert(desc.dtype == tl.float16)
    tl.static_assert(desc.block_shape == [2, 16])
    tl.static_assert(desc.block_type.shape == desc.type.block_type.shape)
    again = tl.make_tensor_descriptor(out, desc.shape, [desc.strides[0], 1], desc.block_shape)
    row = desc.shape[0] - row_from_end
    again.store([row, 0], desc.load([row, 0]) * 2)


def test_what_descriptors_tell(launch: Launch, normal):
    x = normal(9, 24).astype(np.float16)
    out = np.zeros_like(x)
    got = launch(doubled, (1,), TensorDescriptor.from_tensor(x, [2, 16]), out, 1)[1]
    expected = np.zeros_like(x)
    expected[8, :16] = x[8, :16] * 2
    np.testing.assert_array_equal(got, expected)


@triton.jit
def either(a, b, out, which, rounds):
    chosen = a if which == 0 else b
    acc = tl.zeros(chosen.block_shape, tl.float32)
    for i in range(rounds):
        acc += chosen.load([i, 0])
        if i == which:
            chosen = b
    out.store([0, 0], acc)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_descriptors_in_branches_and_loops(launch: Launch, normal, which: int):
    a, b = normal(6, 8), normal(9, 8)
    given = [TensorDescriptor.from_tensor(x, [4, 4]) for x in (a, b, np.zeros((4, 4), np.float32))]
    got = launch(either, (1,), *given, which, 7)[2].base
    acc = np.zeros((4, 4), np.float32)
    chosen = a if which == 0 else b
    for i in range(7):
        acc = acc + box_of(chosen, [i, 0], [4, 4], 0)
        chosen = b if i == which else chosen
    np.testing.assert_array_equal(got, acc)


@triton.jit
def gated(x, gate, up, scale, out, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Of each matrix of a batch (x gate^T) (x up^T) and a tile's sums of scale: boxes are one matrix thick."""
    m, n, batch = tl.program_id(0) * BM, tl.program_id(1) * BN, tl.program_id(2)
    left = tl.zeros((BM, BN), tl.float32)
    right = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        rows = x.load([batch, m, k]).reshape([BM, BK])
        left = tl.dot(rows, gate.load([n, k]).T, left)
        right = tl.dot(rows, tl.trans(up.load([n, k])), right)
    scales = tl.reshape(scale.load([batch, m, n]), [BM, BN]).to(tl.float32)
    total = tl.sum(scales, axis=1, keep_dims=True)
    out.store([batch, m, n], tl.reshape(left * right + total, [1, BM, BN]).to(out.dtype))


@pytest.mark.parametrize("columns", [48, 40, 35], ids=["whole tiles", "whole vectors", "an end inside a vector"])
def test_boxes_that_are_one_matrix_thick(launch: Launch, rng, columns: int):
    """In the last case the promise that a vector ends where the array does is broken, and the launch compiles again."""
    batches, m, k, room = 2, 40, 56, 48
    x = rng.integers(-3, 4, (batches, m, k)).astype(np.float16)
    gate, up = (rng.integers(-2, 3, (columns, k)).astype(np.float16) for _ in range(2))
    scale = rng.integers(-9, 10, (batches, m, room)).astype(np.float16)
    out = np.full((batches, m, room), 77, np.float32)
    described = [
        TensorDescriptor.from_tensor(x, [1, 16, 32]),
        *(TensorDescriptor.from_tensor(w, [16, 32]) for w in (gate, up)),
        *(TensorDescriptor(a, (batches, m, columns), [m * room, room, 1], [1, 16, 16]) for a in (scale, out)),
    ]
    grid = (-(-m // 16), -(-columns // 16), batches)
    got = launch(gated, grid, *described, k, BM=16, BN=16, BK=32, num_warps=1)[4].base
    expected = np.full(out.shape, 77.0)
    wide = x.astype(np.float64)
    expected[..., :columns] = (wide @ gate.T.astype(np.float64)) * (wide @ up.T)
    for tile in (slice(n, min(n + 16, columns)) for n in range(0, columns, 16)):
        expected[..., tile] += scale[..., tile].sum(-1, keepdims=True)
    np.testing.assert_array_equal(got, expected)
