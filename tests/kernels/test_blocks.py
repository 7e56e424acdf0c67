"""Block pointers: random arrays, offsets and checks against NumPy, and block pointers as values of control flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl

Launch = Callable[..., list[Any]]

DTYPES = [
    *(np.float16, np.float32, np.float64, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn),
    *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint32, np.bool_),
]


@triton.jit
def copy1(x, y, start, M, sm, om, B0: tl.constexpr, CHECK: tl.constexpr, PAD: tl.constexpr):
    p = tl.make_block_ptr(x + start, (M,), (sm,), (om,), (B0,), (0,))
    q = tl.make_block_ptr(y, (B0,), (1,), (0,), (B0,), (0,))
    tl.store(q, tl.load(p, boundary_check=CHECK, padding_option=PAD))


@triton.jit
def copy2(
    x, y, start, M, N, sm, sn, om, on, B0: tl.constexpr, B1: tl.constexpr, CHECK: tl.constexpr, PAD: tl.constexpr
):
    p = tl.make_block_ptr(x + start, (M, N), (sm, sn), (om, on), (B0, B1), (1, 0))
    q = tl.make_block_ptr(y, (B0, B1), (B1, 1), (0, 0), (B0, B1), (1, 0))
    tl.store(q, tl.load(p, boundary_check=CHECK, padding_option=PAD))


@triton.jit
def copy3(
    x, y, start, L, M, N, sl, sm, sn, ol, om, on,
    B0: tl.constexpr, B1: tl.constexpr, B2: tl.constexpr, CHECK: tl.constexpr, PAD: tl.constexpr,
):  # fmt: skip
    p = tl.make_block_ptr(x + start, (L, M, N), (sl, sm, sn), (ol, om, on), (B0, B1, B2), (2, 1, 0))
    q = tl.make_block_ptr(y, (B0, B1, B2), (B1 * B2, B2, 1), (0, 0, 0), (B0, B1, B2), (2, 1, 0))
    tl.store(q, tl.load(p, boundary_check=CHECK, padding_option=PAD))


@triton.jit
def fill2(x, start, M, N, sm, sn, om, on, B0: tl.constexpr, B1: tl.constexpr, CHECK: tl.constexpr):
    p = tl.make_block_ptr(x + start, (M, N), (sm, sn), (0, 0), (B0, B1), (0, 1))
    p = tl.advance(p, (om, on))
    value = tl.arange(0, B0)[:, None] * B1 + tl.arange(0, B1)[None, :]
    tl.store(p, value.to(p.type.element_ty), boundary_check=CHECK)


@dataclass
class Case:
    """A box of an array inside a buffer. Along unchecked dimensions it lies within the array, as authors promise."""

    buffer: np.ndarray
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offsets: tuple[int, ...]
    block: tuple[int, ...]
    checked: tuple[int, ...]

    @staticmethod
    def random(rng: np.random.Generator, rank: int, dtype: Any) -> Case:
        checked = tuple(d for d in range(rank) if rng.random() < 0.7)
        block = tuple(int(rng.choice([1, 2, 4, 8, 16, 32])) for _ in range(rank))
        shape, offsets = [], []
        for d, size in enumerate(block):
            if d in checked:
                shape.append(int(rng.integers(0, 40)))
                offsets.append(int(rng.integers(-size - 2, shape[-1] + 3)))
            else:
                shape.append(size + int(rng.integers(0, 20)))
                offsets.append(int(rng.integers(0, shape[-1] - size + 1)))
        strides, span = [0] * rank, int(rng.choice([1, 1, 1, 2, 3]))
        for d in rng.permutation(rank):
            strides[d] = span
            span *= max(shape[d], 1)
            span += int(rng.integers(0, 3)) * int(rng.choice([1, 16]))
        start = int(rng.choice([0, 1, 16]))
        buffer = rng.integers(-100, 100, span + start + 1).astype(dtype)
        return Case(buffer, start, tuple(shape), tuple(strides), tuple(offsets), block, checked)

    def places(self) -> tuple[np.ndarray, np.ndarray]:
        """Index in the buffer of each element of the box, and whether the array has it."""
        inside, place = np.ones(self.block, bool), np.full(self.block, self.start, np.int64)
        for d, offset in enumerate(self.offsets):
            index = np.indices(self.block)[d] + offset
            place += index * self.strides[d]
            if d in self.checked:
                inside &= (index >= 0) & (index < self.shape[d])
        return place, inside

    def expected(self, padding: float) -> np.ndarray:
        place, inside = self.places()
        made = np.full(self.block, padding, np.float64).astype(self.buffer.dtype)
        made[inside] = self.buffer[place[inside]]
        return made


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
def test_any_box_of_two_dimensions(launch: Launch, dtype: Any):
    rng = np.random.default_rng(DTYPES.index(dtype))
    for _ in range(4):
        case = Case.random(rng, 2, dtype)
        integers = np.dtype(dtype).kind in "iub"
        padding = str(rng.choice(["", "zero"] if integers else ["", "zero", "nan"]))
        numbers = (case.start, *case.shape, *case.strides, *case.offsets, *case.block)
        out = np.ones(case.block, dtype)
        got = launch(copy2, (1,), case.buffer, out, *numbers, CHECK=case.checked, PAD=padding)[1]
        expected = case.expected(np.nan if padding == "nan" else 0)
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64), str(case))


@pytest.mark.parametrize("rank", [1, 3])
def test_any_box_of_other_ranks(launch: Launch, rank: int):
    rng = np.random.default_rng(rank)
    for _ in range(4):
        case = Case.random(rng, rank, np.float32)
        out = np.ones(case.block, np.float32)
        arguments = [case.buffer, out, case.start, *case.shape, *case.strides, *case.offsets, *case.block]
        kernel = copy1 if rank == 1 else copy3
        got = launch(kernel, (1,), *arguments, CHECK=case.checked, PAD="nan")[1]
        np.testing.assert_array_equal(got, case.expected(np.nan), str(case))


def test_any_box_is_stored(launch: Launch):
    rng = np.random.default_rng(11)
    for dtype in (np.float32, ml_dtypes.bfloat16, np.int8, np.bool_):
        case = Case.random(rng, 2, dtype)
        place, inside = case.places()
        numbers = (case.start, *case.shape, *case.strides, *case.offsets, *case.block)
        (got, *_) = launch(fill2, (1,), case.buffer, *numbers, CHECK=case.checked)
        expected = case.buffer.copy()
        values = np.arange(place.size).reshape(case.block).astype(dtype)
        expected[place[inside]] = values[inside]
        np.testing.assert_array_equal(got.astype(np.float64), expected.astype(np.float64), str(case))


@pytest.mark.parametrize("offset", [-(2**31), 2**31 - 1, 2**31 - 8])
def test_offsets_at_the_ends_of_their_range(launch: Launch, offset: int):
    x, y = np.ones(64, np.float32), np.ones(16, np.float32)
    got = launch(copy1, (1,), x, y, 0, 64, 1, offset, 16, CHECK=(0,), PAD="")[1]
    assert not got.any()


@triton.jit
def read_at(x, y, n, OFFSET: tl.constexpr, B: tl.constexpr):
    p = tl.make_block_ptr(x, (n,), (1,), (OFFSET,), (B,), (0,))
    tl.store(y + tl.arange(0, B), tl.load(p, boundary_check=(0,)))


@pytest.mark.parametrize("size", [-(2**31), -3, 0, 5, 64])
@pytest.mark.parametrize("offset", [-(2**31), -3, 0, 3, 2**31 - 8])
def test_offsets_known_at_compile_time(launch: Launch, offset: int, size: int):
    x, y = np.arange(1, 65, dtype=np.float32), np.ones(16, np.float32)
    got = launch(read_at, (1,), x, y, size, OFFSET=offset, B=16)[1]
    np.testing.assert_array_equal(got, [i + 1 if 0 <= i < size else 0 for i in range(offset, offset + 16)])


def test_sizes_and_strides_of_64_bits(launch: Launch):
    x, y = np.arange(64, dtype=np.float32), np.zeros((4, 16), np.float32)
    got = launch(copy2, (1,), x, y, 0, 2**40, 2**33, 0, 1, 2**20, 8, 4, 16, CHECK=(0, 1), PAD="")[1]
    np.testing.assert_array_equal(got, np.tile(np.arange(8, 24), (4, 1)))


@triton.jit
def quotient_block(x, y, n, divisor, B: tl.constexpr):
    start = tl.num_programs(0) * 8 // divisor
    p = tl.make_block_ptr(x, (n,), (1,), (start,), (B,), (0,))
    tl.store(y + tl.arange(0, B), tl.load(p, boundary_check=(0,), padding_option="zero"))


@pytest.mark.parametrize("divisor", [2, -2])
def test_a_block_at_a_quotient_by_an_argument(launch, divisor) -> None:
    """An argument may be negative, and then the block begins before the array."""
    x, start = np.arange(1, 65, dtype=np.float32), 8 // divisor
    got = launch(quotient_block, (1,), x, np.zeros(16, np.float32), 64, divisor, B=16)[1]
    np.testing.assert_array_equal(got, [i + 1 if i >= 0 else 0 for i in range(start, start + 16)])


@triton.jit
def computed_start_block(x, y, n, a, b, REST: tl.constexpr, FORM: tl.constexpr, B: tl.constexpr):
    place = tl.num_programs(0) * 8
    if FORM == "difference":
        divisor = a - b
    elif FORM == "min":
        divisor = tl.minimum(a - b, 3)
    elif FORM == "max":
        divisor = tl.maximum(a - b, 1)
    elif FORM == "cdiv":
        divisor = tl.cdiv(a - b, 2)
    else:  # the rows of a group of tiles
        divisor = min(a - place // 8 * 4, 4)
    start = place % divisor if REST else place // divisor
    p = tl.make_block_ptr(x + 16, (n,), (1,), (start,), (B,), (0,))
    tl.store(y + tl.arange(0, B), tl.load(p, boundary_check=(0,), padding_option="zero"))


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("b", [3, 9], ids=["positive", "negative"])
@pytest.mark.parametrize("form", ["difference", "min", "max", "cdiv", "group"])
def test_a_block_at_a_quotient_by_a_computed_number(launch, form, b, rest) -> None:
    """What a kernel computes may be negative, too. Before the array stands what must not be read."""
    a = 5 if form != "group" else 8 - b
    left = a - b
    divisor = {
        "difference": left,
        "min": min(left, 3),
        "max": max(left, 1),
        "cdiv": int((left + 1) / 2),
        "group": min(a - 4, 4),
    }[form]
    start = 8 - int(8 / divisor) * divisor if rest else int(8 / divisor)
    x = np.concatenate([np.full(16, -1), np.arange(1, 65)]).astype(np.float32)
    got = launch(computed_start_block, (1,), x, np.zeros(16, np.float32), 64, a, b, REST=rest, FORM=form, B=16)[1]
    np.testing.assert_array_equal(got, [i + 1 if i >= 0 else 0 for i in range(start, start + 16)])
