"""Scans on the simulator: every shape, axis and number of warps, either way round, of combinations that do not commute;
against NumPy, exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deuteron.compiler.gpu.asynchronous import Roles
from deuteron.compiler.gpu.layouts.coalesce import Access, merge
from deuteron.compiler.gpu.layouts.scan import scan_layout
from deuteron.compiler.gpu.ops import ConvertLayout
from deuteron.compiler.layout import contiguous_registers
from deuteron.compiler.tile.reduction import Scan

Arrays = tuple[npt.NDArray[np.generic], ...]

#: Two values a place, of which the first ones multiply and the second ones follow each other.
AFFINE = """
def k(x_ptr, y_ptr, p_ptr, q_ptr):
    i = tl.reshape(tl.arange(0, {size}), {shape})
    p, q = tl.associative_scan((tl.load(x_ptr + i), tl.load(y_ptr + i)), {axis}, after, reverse={reverse})
    tl.store(p_ptr + i, p)
    tl.store(q_ptr + i, q)

@triton.jit
def after(a, b, c, d):
    return a * c, b * c + d
"""
#: Sums that begin again where a flag is set, of operands of different widths.
SEGMENTED = """
def k(x_ptr, y_ptr, p_ptr, q_ptr):
    i = tl.reshape(tl.arange(0, {size}), {shape})
    p, q = tl.associative_scan((tl.load(x_ptr + i), tl.load(y_ptr + i)), {axis}, segmented, reverse={reverse})
    tl.store(p_ptr + i, p)
    tl.store(q_ptr + i, q)

@triton.jit
def segmented(a, f, b, g):
    return tl.where(g != 0, b, a + b), f | g
"""
#: The last number that is not zero.
LAST = """
def k(x_ptr, p_ptr):
    i = tl.reshape(tl.arange(0, {size}), {shape})
    tl.store(p_ptr + i, tl.associative_scan(tl.load(x_ptr + i), {axis}, last, reverse={reverse}))

@triton.jit
def last(a, b):
    return tl.where(b != 0, b, a)
"""
SUM = """
def k(x_ptr, p_ptr):
    i = tl.reshape(tl.arange(0, {size}), {shape})
    tl.store(p_ptr + i, tl.cumsum(tl.load(x_ptr + i), {axis}, reverse={reverse}))
"""

TYPES = {"i8": np.int8, "i32": np.int32, "i64": np.int64, "fp16": np.float16, "fp32": np.float32, "fp64": np.float64}
KERNELS: dict[str, tuple[str, tuple[str, ...], Callable[[Arrays, Arrays], Arrays]]] = {
    "affine": (AFFINE, ("i32", "i32"), lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])),
    "affine of words": (AFFINE, ("i64", "i64"), lambda a, b: (a[0] * b[0], a[1] * b[0] + b[1])),
    "segmented": (SEGMENTED, ("fp64", "i8"), lambda a, b: (np.where(b[1], b[0], a[0] + b[0]), a[1] | b[1])),
    "segmented integers": (SEGMENTED, ("i32", "i32"), lambda a, b: (np.where(b[1], b[0], a[0] + b[0]), a[1] | b[1])),
    "last of bytes": (LAST, ("i8",), lambda a, b: (np.where(b[0], b[0], a[0]),)),
    "last of halves": (LAST, ("fp16",), lambda a, b: (np.where(b[0], b[0], a[0]),)),
    "sum": (SUM, ("i32",), lambda a, b: (a[0] + b[0],)),
}


def _scanned(
    inputs: Arrays, axis: int, reverse: bool, combine: Callable[[Arrays, Arrays], Arrays]
) -> list[npt.NDArray[np.generic]]:
    """One after the other."""
    ways = [np.flip(np.moveaxis(x, axis, 0), 0) if reverse else np.moveaxis(x, axis, 0) for x in inputs]
    made = [tuple(x[0] for x in ways)]
    for place in range(1, len(ways[0])):
        made.append(combine(made[-1], tuple(x[place] for x in ways)))
    stacked = [np.stack(parts).astype(x.dtype) for parts, x in zip(zip(*made, strict=True), inputs, strict=True)]
    return [np.moveaxis(np.flip(x, 0) if reverse else x, 0, axis) for x in stacked]


def _inputs(types: Sequence[str], shape: tuple[int, ...], seed: int) -> Arrays:
    """Of the last ones, which flags may be, most are zero."""
    rng = np.random.default_rng(seed)
    made = [rng.integers(-9, 9, shape) for _ in types]
    made[-1] = made[-1] * (rng.random(shape) < 8 / shape[0]) if types[-1] != "i32" or len(types) == 1 else made[-1]
    return tuple(x.astype(TYPES[kind]) for x, kind in zip(made, types, strict=True))


def _check(from_text, simulated, name: str, shape: tuple[int, ...], axis: int, warps: int, reverse: bool):
    text, types, combine = KERNELS[name]
    pointers = ("x_ptr", "y_ptr", "p_ptr", "q_ptr") if len(types) == 2 else ("x_ptr", "p_ptr")
    signature = {p: f"*{kind}:16" for p, kind in zip(pointers, (*types, *types), strict=True)}
    filled = text.format(size=prod(shape), shape=shape, axis=axis, reverse=reverse)
    sample = from_text(filled, signature, {}, warps)
    inputs = _inputs(types, shape, seed=axis + warps)
    outputs = [np.zeros_like(x) for x in inputs]
    with np.errstate(over="ignore"):
        simulated(sample, (1,), [*inputs, *outputs])
        wanted = _scanned(inputs, axis, reverse, combine)
    for got, want in zip(outputs, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
    return sample


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", list(KERNELS))
@pytest.mark.parametrize(
    "shape, axis, warps",
    [
        ((256,), 0, 2),
        ((256,), 0, 16),  # more warps than a lane each has an element for
        ((2048,), 0, 4),  # a warp has several parts, and lanes read several totals
        ((4096,), 0, 32),
        ((4, 512), 1, 8),
        ((512, 4), 0, 8),
        ((256, 2), 0, 4),
        ((1024, 1), 0, 16),
        ((2, 256, 2), 1, 8),
        ((2, 2, 512), 2, 16),
    ],
)
def test_warps_share_out_what_they_scan(from_text, simulated, name, shape, axis, warps, reverse) -> None:
    sample = _check(from_text, simulated, name, shape, axis, warps, reverse)
    (scan,) = (op for op in sample.gpu().walk() if isinstance(op, Scan))
    layout = scan.results[0].type.layout
    assert any(basis[axis] for basis in layout.warp) and layout.registers < prod(shape) // 32


LOADED = """
def k(x_ptr, p_ptr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(p_ptr + i, tl.cumsum(tl.load(x_ptr + i).to(tl.float32), 1).to(p_ptr.dtype.element_ty))
"""


@pytest.mark.parametrize(("dtype", "neighbours"), [("fp16", 8), ("fp32", 4)])
@pytest.mark.parametrize(("shape", "warps"), [((1, 4096), 8), ((4, 1024), 8), ((16, 256), 4), ((32, 64), 4)])
def test_tiles_are_scanned_as_they_are_loaded(
    from_text, simulated, rng, dtype: str, neighbours: int, shape: tuple[int, int], warps: int
) -> None:
    """And results are stored as they were scanned: nothing but totals goes through shared memory."""
    signature = dict.fromkeys(("x_ptr", "p_ptr"), f"*{dtype}:16")
    sample = from_text(LOADED, signature, {"M": shape[0], "N": shape[1]}, warps)
    function = sample.gpu()
    (scan,) = (op for op in function.walk() if isinstance(op, Scan))
    assert not any(isinstance(op, ConvertLayout) for op in function.walk())
    assert contiguous_registers(scan.results[0].type.layout, 1) == neighbours
    x = rng.integers(0, 2, shape).astype(TYPES[dtype])
    p = np.zeros_like(x)
    simulated(sample, (1,), [x, p])
    np.testing.assert_array_equal(p, np.cumsum(x.astype(np.float32), 1).astype(x.dtype))


def test_lanes_scan_what_is_gathered() -> None:
    """Of tiles that are reduced they would share out the rows."""
    assert merge([Access((1, 0), 1, True)], (64, 32), 4, scanned=(1,)) == scan_layout((64, 32), 1, 4)


def test_scans_of_any_shape(from_text, simulated) -> None:
    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data: st.DataObject) -> None:
        rank = data.draw(st.integers(1, 3))
        bits = [data.draw(st.integers(0, 11))]
        while len(bits) < rank:
            bits.append(data.draw(st.integers(0, min(4, 12 - sum(bits)))))
        shape = tuple(1 << bit for bit in data.draw(st.permutations(bits)))
        warps = 1 << data.draw(st.integers(0, 5))
        name, reverse = data.draw(st.sampled_from(list(KERNELS))), data.draw(st.booleans())
        _check(from_text, simulated, name, shape, data.draw(st.integers(0, rank - 1)), warps, reverse)

    check()


BESIDE_A_PRODUCT = """
def k(a, b, x, p, c, K, s):
    r, i = tl.arange(0, 64), tl.arange(0, 512)
    acc, total = tl.zeros((64, 64), tl.float32), tl.zeros((512,), tl.float32)
    for start in range(0, K, 64):
        k = start + tl.arange(0, 64)
        acc = tl.dot(tl.load(a + r[:, None] * s + k[None, :]), tl.load(b + k[:, None] * s + r[None, :]), acc)
        total = tl.cumsum(total + tl.load(x + start + i), 0)
    tl.store(c + r[:, None] * s + r[None, :], acc)
    tl.store(p + i, total)
"""


def test_consumers_scan_between_products(from_text, simulated, rng) -> None:
    """Those warps alone meet, and what they tell each other in the next turn waits until it was read in this one."""
    signature = {**dict.fromkeys(("a", "b"), "*fp16:16"), **dict.fromkeys(("x", "p", "c"), "*fp32:16")}
    sample = from_text(BESIDE_A_PRODUCT, {**signature, "K": "i32:16", "s": "i32:16"}, {}, 4)
    (roles,) = (op for op in sample.gpu().walk() if isinstance(op, Roles))
    assert any(isinstance(op, Scan) for op in roles.consumer.walk())
    a, b = (rng.integers(-3, 4, (256, 256)).astype(np.float16) for _ in range(2))
    x = rng.integers(-3, 4, 1024).astype(np.float32)
    p, c = np.zeros(512, np.float32), np.zeros((256, 256), np.float32)
    simulated(sample, (1,), [a, b, x, p, c, 192, 256])
    total = np.zeros(512)
    for start in range(0, 192, 64):
        total = np.cumsum(total + x[start : start + 512])
    np.testing.assert_array_equal(p, total)
    np.testing.assert_array_equal(c[:64, :64], a[:64, :192].astype(np.float64) @ b[:192, :64])
