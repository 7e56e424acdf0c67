"""What a kernel assigns to a name has a type of its own, and is known while compiling. Triton 3.8 has the same."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import CompilationError


@triton.jit
def two():
    return 2.0


@triton.jit
def scaled(x, s):
    return x * s


@triton.jit
def types(x8, x16, N: tl.constexpr, C: tl.constexpr):
    a, b = tl.load(x8 + tl.arange(0, N)), tl.load(x16 + tl.arange(0, N))
    n, s = 3, 0.5
    tl.static_assert((a * n).dtype == tl.int32 and (a * 3).dtype == tl.int8)
    tl.static_assert((b * s).dtype == tl.float32 and (b * 0.5).dtype == tl.float16)
    tl.static_assert((a * -n).dtype == tl.int32 and (a * (n + 1)).dtype == tl.int32 and (a * ~n).dtype == tl.int32)
    tl.static_assert((a * (1 + n)).dtype == tl.int32 and (b * (1 - s)).dtype == tl.float32 and 20 // -n == -6)
    tl.static_assert((b * n).dtype == tl.float16 and (a * s).dtype == tl.float32)
    tl.static_assert(tl.maximum(a, n).dtype == tl.int32 and tl.where(a > 0, b, s).dtype == tl.float32)
    pair = (1, 0.5)
    tl.static_assert((a * pair[0]).dtype == tl.int32 and (b * pair[1]).dtype == tl.float32)
    c, d = C, C * 2
    tl.static_assert((a * c).dtype == tl.int32 and (a * d).dtype == tl.int32 and (a * (C * 2)).dtype == tl.int8)
    e: tl.constexpr = C * 2
    f: int = 3
    tl.static_assert((a * e).dtype == tl.int8 and (a * f).dtype == tl.int32)
    g = tl.constexpr(3)
    h: tl.constexpr = tl.constexpr(3)
    tl.static_assert((a * g).dtype == tl.int32 and (a * h).dtype == tl.int8)
    listed = [0.5, 3, (1, 2)]
    tl.static_assert((a * listed[1]).dtype == tl.int32 and (b * listed[0]).dtype == tl.float32)
    tl.static_assert((a * listed[2][0]).dtype == tl.int32 and (a * [1, 2][0]).dtype == tl.int8)
    n += 1
    tl.static_assert((a * n).dtype == tl.int32 and n == 4)
    tl.static_assert((b * two()).dtype == tl.float16 and (b * scaled(2.0, 1.0)).dtype == tl.float16)
    tl.static_assert(scaled(b, 0.5).dtype == tl.float16 and scaled(b, s).dtype == tl.float32)
    if (w := 0.25) > 0:
        tl.static_assert((b * w).dtype == tl.float32)
    for j in tl.static_range(2):
        k = j
        tl.static_assert((a * j).dtype == tl.int8 and (a * k).dtype == tl.int32)
    z = a.shape[0]
    tl.static_assert((a * z).dtype == tl.int32 and (a * a.shape[0]).dtype == tl.int8)
    infinity = float("inf")
    tl.static_assert((b * infinity).dtype == tl.float32 and (b * float("inf")).dtype == tl.float16)
    tiny, wide, widest = 1e-40, 1 << 31, 1 << 63
    tl.static_assert(
        (b * tiny).dtype == tl.float64 and (a * wide).dtype == tl.uint32 and (a * widest).dtype == tl.uint64
    )


@triton.jit
def annotated(x, o):
    i = tl.arange(0, 4)
    y: tl.int32 = tl.load(x + i)
    z: tl.int8 = 300
    t: tl.float32 = 0
    t += 1
    tl.static_assert(y.dtype == tl.float32 and z.type == tl.int32 and t.type == tl.int32)
    tl.store(o + i, y + z)


@triton.jit
def either_number(n):
    if n > 0:
        return 3
    else:  # noqa: RET505 -- which Triton tells from what stands behind an if
        return 4


@triton.jit
def one_number(n):
    if n > 0:
        return 3
    else:  # noqa: RET505 -- which Triton tells from what stands behind an if
        return 3


@triton.jit
def known_number(C: tl.constexpr):
    if C > 3:
        return 3
    else:  # noqa: RET505 -- which Triton tells from what stands behind an if
        return 4


@triton.jit
def known_early(C: tl.constexpr):
    for i in tl.static_range(3):
        if i == C:
            return 3, 0.5
    return 3, 0.25


@triton.jit
def several():
    return 3, (0.5, None)


@triton.jit
def named():
    s = 3
    return s  # noqa: RET504 -- with a type, as it had a name


@triton.jit
def types_of_returned(x8, x16):
    a, b = tl.load(x8 + tl.arange(0, 4)), tl.load(x16 + tl.arange(0, 4))
    n = tl.program_id(0)
    tl.static_assert((a * known_number(5)).dtype == tl.int8 and (b * several()[1][0]).dtype == tl.float16)
    tl.static_assert((a * one_number(n)).dtype == tl.int8 and (a * several()[0]).dtype == tl.int8)
    tl.static_assert((a * either_number(n)).dtype == tl.int32 and (a * named()).dtype == tl.int32)
    tl.static_assert((a + tl.cdiv(7, 2)).dtype == tl.int8 and (a + triton.cdiv(7, 2)).dtype == tl.int8)
    tl.static_assert((a * known_early(1)[0]).dtype == tl.int8 and (b * known_early(1)[1]).dtype == tl.float32)
    tl.static_assert((b * known_early(7)[1]).dtype == tl.float16)
    s = several()
    c: tl.constexpr = named()
    d: tl.constexpr = one_number(n)
    tl.static_assert((a * s[0]).dtype == tl.int32 and (a * c).dtype == tl.int32 and (a * d).dtype == tl.int8)
    tl.static_assert(tl.arange(0, tl.cdiv(7, 2)).shape[0] == 4 and several()[1][1] is None)


@triton.jit
def types_of_choices(x8, x16, n):
    a, b = tl.load(x8 + tl.arange(0, 4)), tl.load(x16 + tl.arange(0, 4))
    tl.static_assert((b * (0.5 if n > 0 else 0.25)).dtype == tl.float32 and (a * (3 if n else 4)).dtype == tl.int32)
    tl.static_assert((b * (0.5 if n > 0 else 0.5)).dtype == tl.float32)
    tl.static_assert((b * (0.5 if n is not None else 0.25)).dtype == tl.float16)
    tl.static_assert((a * ((3 if n > 1 else 4) if n > 0 else (5 if a.dtype == tl.int8 else 6))).dtype == tl.int32)


@triton.jit
def announced(x8):
    a = tl.load(x8 + tl.arange(0, 8))
    y: tl.constexpr
    x, y = 3, 3
    tl.static_assert(x.type == tl.int32 and y.type == tl.constexpr_type(3))
    tl.static_assert((a * x).dtype == tl.int32 and (a * y).dtype == tl.int8)
    z: tl.constexpr
    if (z := 10) != 10:
        tl.static_assert(False)
    tl.static_assert(isinstance(z.type, tl.constexpr_type) and (a * z).dtype == tl.int8)
    w: tl.constexpr
    w = 1
    v = w
    tl.static_assert((a * w).dtype == tl.int8 and (a * v).dtype == tl.int32)
    w = 2
    tl.static_assert((a * w).dtype == tl.int32)


@pytest.fixture(params=[False, True], ids=["compiled", "python"])
def either(request: pytest.FixtureRequest) -> Iterator[None]:
    """Compiled for the CPU, and run as Python."""
    with knobs.interpret.scope(request.param):
        yield


@pytest.mark.usefixtures("either")
def test_the_next_value_of_a_name_announced_as_constexpr_has_no_type() -> None:
    announced[(1,)](np.zeros(8, np.int8))


@pytest.mark.usefixtures("either")
def test_types_are_those_of_triton() -> None:
    types[(1,)](np.zeros(8, np.int8), np.zeros(8, np.float16), N=8, C=5)


@pytest.mark.usefixtures("either")
def test_annotations_convert_nothing_as_in_triton() -> None:
    x, out = np.array([1.75, -2.5, 3e9, 0.5], np.float32), np.zeros(4, np.float32)
    annotated[(1,)](x, out)
    np.testing.assert_array_equal(out, x + 300)


@pytest.mark.usefixtures("either")
def test_what_a_function_returns_stays_a_literal_unless_it_may_return_another_one() -> None:
    """As in Triton from 3.7 on; before, every number that was returned became a scalar with a type."""
    types_of_returned[(1,)](np.zeros(4, np.int8), np.zeros(4, np.float16))


@pytest.mark.usefixtures("either")
def test_numbers_among_which_run_time_chooses_have_types() -> None:
    types_of_choices[(1,)](np.zeros(4, np.int8), np.zeros(4, np.float16), 5)


@triton.jit
def results(x8, x16, wide, half, numbers):
    i = tl.arange(0, 4)
    n, s, m = 5, 0.1, -7
    tl.store(wide + i, tl.load(x8 + i) * n)
    tl.store(half + i, tl.load(x16 + i) * s)
    most = 0x7FFFFFFF
    tl.store(numbers, m // 2)
    tl.store(numbers + 1, m % 2)
    tl.store(numbers + 2, most + 1)
    tl.store(numbers + 3, (m - n) * (n << 2))
    tl.store(numbers + 4, (m < n) & (n != 5.5))
    big = 1e8
    tl.store(numbers + 5, ((big + 1) - big).to(tl.int32))
    tl.store(numbers + 6, (m / 2 * 2).to(tl.int32))
    tl.store(numbers + 7, s == 0.1)


@pytest.mark.usefixtures("either")
def test_arithmetic_is_that_of_tensors() -> None:
    x8, x16 = np.array([100, -100, 7, 0], np.int8), np.array([1, 3, 60000, -2], np.float16)
    wide, half, numbers = np.zeros(4, np.int32), np.zeros(4, np.float32), np.zeros(8, np.int32)
    results[(1,)](x8, x16, wide, half, numbers)
    np.testing.assert_array_equal(wide, x8.astype(np.int32) * 5)
    np.testing.assert_array_equal(half, x16.astype(np.float32) * np.float32(0.1))
    np.testing.assert_array_equal(numbers, [-3, -1, -(1 << 31), -240, 1, 0, -7, 1])


@triton.jit
def tenfold(x, o):
    s = 0.1
    tl.store(o, tl.load(x) * s)


@pytest.mark.usefixtures("either")
def test_a_float_has_the_digits_of_its_type() -> None:
    out = np.zeros(1)
    tenfold[(1,)](np.ones(1), out)
    assert out[0] == np.float64(np.float32(0.1)) != 0.1


@triton.jit
def shaped(o):
    count = 3
    size = 2 * count + 2
    rows: tl.constexpr = size // 2
    total = 0
    for i in tl.static_range(count):
        total += i
    if total == 3:
        tile = tl.full((size, rows), 1.0, tl.float32)
    else:
        tile = None
    for _ in range(count):
        total += 1
    tl.store(o + tl.arange(0, size)[:, None] * rows + tl.arange(0, rows)[None, :], tile * total)


def test_shapes_and_branches_may_be_made_of_them(launch) -> None:
    out = launch(shaped, (1,), np.zeros((8, 4), np.float32))[0]
    np.testing.assert_array_equal(out, np.full((8, 4), 6, np.float32))


@triton.jit
def unsigned_quotient(x, o):
    n = 4
    tl.store(o, tl.load(x) // n)


def test_signs_must_agree_as_in_triton() -> None:
    with pytest.raises(CompilationError, match="different signedness"):
        unsigned_quotient[(1,)](np.ones(1, np.uint32), np.zeros(1, np.uint32))


@triton.jit
def undefined(o):
    n = 0
    tl.store(o, 1 // n)


def test_what_has_no_value_while_compiling_is_computed_at_run_time() -> None:
    triton.compile(undefined, {"o": "*i32"}, {}, stop_after="tile")


@triton.jit
def types_of_scalars(p, n, f, o, SIZE: tl.constexpr):
    tl.static_assert(n.type == tl.int32 and n.type == n.dtype and n.type.scalar == tl.int32)
    tl.static_assert(f.type == tl.float32 and f.type.is_floating() and not f.type.is_block())
    tl.static_assert(p.type.is_ptr() and p.type.element_ty == tl.float16)
    total = tl.sum(tl.load(p + tl.arange(0, SIZE)).to(tl.float32))
    tl.static_assert(total.type == tl.float32 and tl.program_id(0).type == tl.int32)
    tile = tl.arange(0, SIZE)
    tl.static_assert(tile.type.is_block() and tile.type != tl.int32 and tile.type.element_ty == tl.int32)
    tl.store(o, total.to(o.type.element_ty) * f + n)


def test_the_type_of_a_scalar_at_run_time_is_its_dtype(launch) -> None:
    """As in Triton, where a block's type alone is another thing than its dtype."""
    out = launch(types_of_scalars, (1,), np.ones(8, np.float16), 7, 1.5, np.zeros(1, np.float32), SIZE=8)[-1]
    assert out[0] == 19
