"""Early exits and compile-time numbers, one kernel a case; tests/fuzz makes up the rest."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.frontend import KernelSource, lower


@triton.jit
def guarded(lengths, out, VARLEN: tl.constexpr, N: tl.constexpr):
    pid = tl.program_id(0)
    if VARLEN:
        n = tl.load(lengths + pid)
        if n == 0:
            return
        SIZE: tl.constexpr = 4
    else:
        n = N
        SIZE: tl.constexpr = 8
    tl.store(out + pid, n + tl.sum(tl.full((SIZE,), 1, tl.int32)))


@triton.jit
def first_above(x, n, limit):
    for i in range(n):
        if tl.load(x + i) > limit:
            return i, tl.load(x + i)
    return -1, 0


@triton.jit
def search(x, out, n, limit):
    place, value = first_above(x, n, limit)
    tl.store(out, place)
    tl.store(out + 1, value)


@triton.jit
def odd_sum(x, out, n):
    total = 0
    for i in range(n):
        value = tl.load(x + i)
        if value % 2 == 0:
            continue
        if value > 100:
            break
        total += value
    tl.store(out, total)


@triton.jit
def guarded_walk(x, out, n):
    """The condition is not evaluated after a break: it would read outside of x."""
    i = 0
    while tl.load(x + i) != 7:
        i += 1
        if i == n:
            break
    tl.store(out, i)


@triton.jit
def unrolled(x, out):
    for i in tl.static_range(4):
        value = tl.load(x + i)
        if value < 0:
            continue
        if value == 0:
            break
        tl.store(out + i, value)
    tl.store(out + 4, 1)


@triton.jit
def nested(x, out, n, m, KIND: tl.constexpr):
    """``y`` has a value wherever it is read: iterations that go on without one do not come to the loop inside."""
    for i in range(n):
        value = tl.load(x + i)
        if value > 0:
            if value > 5:
                continue
            y = 1
        else:
            y = 2
        total = 0
        if KIND == "counted":
            for j in range(m):
                total += j
        elif KIND == "left":
            for j in range(m):
                if j + y > m:
                    break
                total += j
        else:
            for j in tl.static_range(4):
                if j + y > m:
                    break
                total += j
        tl.store(out + i, y + total)


def _run(kernel, x, *arguments, grid=(1,), size=8, **constants):
    out = np.full(size, -9, np.int32)
    kernel[grid](np.asarray(x, np.int32), out, *arguments, **constants)
    return out.tolist()


def test_a_return_under_a_compile_time_branch_leaves_the_rest_and_its_constants():
    assert _run(guarded, [3, 0, 5], grid=(3,), VARLEN=True, N=1, size=3) == [7, -9, 9]
    assert _run(guarded, [3, 0, 5], grid=(3,), VARLEN=False, N=1, size=3) == [9, 9, 9]


@pytest.mark.parametrize(("limit", "want"), [(4, [2, 9]), (100, [-1, 0]), (0, [0, 1])])
def test_a_helper_returns_out_of_a_loop(limit, want):
    assert _run(search, [1, 4, 9, 5], 4, limit)[:2] == want


def test_break_and_continue_keep_the_values_of_their_moment():
    assert _run(odd_sum, [1, 2, 3, 101, 5], 5)[0] == 4
    assert _run(odd_sum, [1, 2, 3, 4, 5], 5)[0] == 9
    assert _run(odd_sum, [1], 0)[0] == 0


def test_a_while_condition_is_not_evaluated_by_those_who_left():
    assert _run(guarded_walk, [1, 2, 3], 3)[0] == 3
    assert _run(guarded_walk, [1, 7, 3], 3)[0] == 1


@pytest.mark.parametrize(
    ("x", "want"),
    [([1, 2, 3, 4], [1, 2, 3, 4, 1]), ([1, -1, 3, 0], [1, -9, 3, -9, 1]), ([0, 2, 3, 4], [-9, -9, -9, -9, 1])],
)
def test_unrolled_loops_break_and_continue_at_run_time(x, want):
    assert _run(unrolled, x)[:5] == want


def _many_returns(count):
    body = "".join(
        f"    if x > {i}:\n        y += {i}\n    if x == {i}:\n        tl.store(p + 1, {i})\n        return\n"
        for i in range(count)
    )
    head = "import triton.language as tl\nimport triton\n@triton.jit\ndef k(p):\n    x = tl.load(p)\n    y = 0\n"
    return f"{head}{body}    tl.store(p, y)\n"


@pytest.mark.parametrize(
    ("kind", "want"),
    [("counted", [8, 7, -9, 8, -9, 7]), ("left", [5, 7, -9, 5, -9, 7]), ("unrolled", [5, 7, -9, 5, -9, 7])],
)
def test_a_loop_inside_keeps_names_that_a_continue_before_it_skips(kind, want):
    assert _run(nested, [0, 3, 7, -1, 9, 2], 6, 4, size=6, KIND=kind) == want


def test_the_rest_after_an_early_return_is_compiled_once():
    """Twice as many early returns make twice as many operations."""
    sizes = []
    for count in (40, 80):
        function = lower(KernelSource.from_text(_many_returns(count), "k"), {"p": "*i32"}, {})
        sizes.append(sum(1 for _ in function.walk()))
    assert sizes[1] < 2.2 * sizes[0]


@triton.jit
def interface(out, n, eps):
    tl.store(out, n.to(tl.float32) * 0.5)
    acc = 0
    acc = acc.to(tl.int64)
    for i in range(3):
        acc += i
    tl.store(out + 1, acc)
    tl.store(out + 2, eps.to(tl.float32))
    if n.type.is_int():
        tl.store(out + 3, n.dtype.primitive_bitwidth)
    tl.store(out + 4, tl.where(n > 0, float("-100000000.0"), float("-inf")))
    tl.store(out + 5, float("-nan"))


@pytest.mark.parametrize("n", [1, 2, 16])
def test_numbers_that_are_known_have_what_tensors_have(n):
    out = np.zeros(6, np.float32)
    interface[(1,)](out, n, 0.25)
    assert out[:5].tolist() == [n / 2, 3, 0.25, 32, -1e8]
    assert np.isnan(out[5])


@triton.jit
def rebound(out, n):
    s = 0
    for i in tl.static_range(2):
        s += i
    for _j in range(n):
        for i in range(2):
            s += i + 1
    tl.store(out, s)
    tl.store(out + 1, i)


def test_a_loop_variable_may_be_bound_again_by_other_loops():
    out = np.zeros(2, np.int64)
    rebound[(1,)](out, 5)
    assert out.tolist() == [16, 1]


@triton.jit
def signed_zero(x, out):
    z = 0.0
    if tl.load(x) > 0:
        z = -0.0
    tl.store(out, 1.0 / z)


def test_zeros_of_both_signs_meet_as_different_values():
    out = np.zeros(1, np.float32)
    for sign in (1, -1):
        signed_zero[(1,)](np.array([sign], np.int32), out)
        assert out[0] == -sign * np.inf


# Counting ----------------------------------------------------------------------------------------------------


@triton.jit
def counted(lower, upper, out, STEP: tl.constexpr, LAST: tl.constexpr):
    """How often it went around, the last index and the sum of all; it stops after ten."""
    rounds = 0
    last = tl.full((), 0, tl.int64)
    total = tl.full((), 0, tl.int64)
    for i in tl.range(tl.load(lower), tl.load(upper), STEP):
        rounds += 1
        last = i.to(tl.int64)
        total += i.to(tl.int64)
        if rounds == LAST:
            break
    tl.store(out, rounds)
    tl.store(out + 1, last)
    tl.store(out + 2, total)


@triton.jit
def counted_to_the_end(lower, upper, out, STEP: tl.constexpr):
    rounds = 0
    total = tl.full((), 0, tl.int64)
    for i in range(tl.load(lower), tl.load(upper), STEP):
        rounds += 1
        total += i.to(tl.int64)
    tl.store(out, rounds)
    tl.store(out + 1, total)


BIG = 1 << 31


@pytest.mark.parametrize(
    ("types", "lower", "upper", "step"),
    [
        (("uint32", "uint32"), BIG - 3, BIG + 3, 1),
        (("uint32", "uint32"), BIG + 5, BIG + 12, 3),
        (("uint32", "uint32"), 2 * BIG - 4, 2 * BIG - 1, 2),  # past the end u32 would begin again
        (("uint32", "uint32"), BIG + 3, BIG - 3, 1),
        (("uint32", "uint32"), BIG + 3, BIG - 3, -1),
        (("uint32", "uint32"), BIG - 3, BIG + 3, -1),
        (("uint32", "uint32"), 5, 0, -2),
        (("int32", "uint32"), 3, BIG + 2, 1 << 30),
        (("int64", "uint32"), BIG - 1, BIG + 1, 1),
        (("uint64", "uint64"), 2 * BIG, 2 * BIG + 3, 1),
        (("uint64", "uint64"), (1 << 63) - 1, (1 << 63) + 2, 1),
        (("uint64", "uint64"), 9, 3, -4),
        (("uint64", "uint64"), 3, 9, -4),
        (("int64", "int64"), -2, 2, 1),
    ],
)
def test_bounds_of_every_integer_type(launch, types, lower, upper, step):
    bounds = [np.array([v], t) for v, t in zip((lower, upper), types, strict=True)]
    wanted = list(range(lower, upper, step))
    total = (sum(wanted) + (1 << 63)) % (1 << 64) - (1 << 63)
    *_, out = launch(counted_to_the_end, (1,), *bounds, np.zeros(2, np.int64), STEP=step)
    assert out.tolist() == [len(wanted), total]


def test_large_unsigned_bounds_and_a_break(launch):
    bounds = [np.array([v], "uint32") for v in (0, BIG + 100)]
    *_, out = launch(counted, (1,), *bounds, np.zeros(3, np.int64), STEP=1 << 27, LAST=17)
    assert out.tolist() == [17, BIG, sum(range(0, BIG + 1, 1 << 27))]


@triton.jit
def narrow(bounds, doubled, sums):
    last = tl.load(bounds)
    for i in range(tl.load(bounds), tl.load(bounds + 1), tl.load(bounds + 2)):
        last = i
        tl.store(doubled + i, i + i)
        tl.store(sums + i, i + 20)
    tl.store(sums, last)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16])
def test_an_index_is_as_narrow_as_bounds_and_step(launch, dtype):
    """NumPy adds in the type of its arrays, as Triton's front end has it."""
    bounds = np.array([98, 104, 2], dtype)
    doubled, sums = np.zeros(128, np.int32), np.zeros(128, np.int32)
    _, doubled, sums = launch(narrow, (1,), bounds, doubled, sums)
    index = np.arange(98, 104, 2).astype(dtype)
    assert doubled[98:104:2].tolist() == (index + index).tolist()
    assert sums[98:104:2].tolist() == [118, 120, 122] and sums[0] == 102


@triton.jit
def index_type(n, out):
    for i in range(n):
        tl.static_assert(i.dtype == tl.int32)
        for k in range(i, tl.load(out).to(tl.uint32)):
            tl.static_assert(k.dtype == tl.uint32)
    for i in range(0, 3_000_000_000, 1_500_000_000):
        tl.static_assert(i.dtype == tl.uint32)
        tl.store(out, i)


def test_the_index_has_the_common_type(launch):
    """A literal between 2**31 and 2**32 is a u32."""
    _, out = launch(index_type, (1,), 2, np.zeros(1, np.int64))
    assert out.tolist() == [1_500_000_000]


@triton.jit
def a_name_in_two_roles(out, n):
    y = tl.load(out + 8) * 0.5
    tl.store(out + 7, y.to(tl.int32))
    for i in range(n):
        for y in range(2):
            tl.store(out + i, y + 5)


def test_a_name_may_lose_its_value_in_a_loop_where_nobody_reads_it_again(launch) -> None:
    got = launch(a_name_in_two_roles, (1,), np.full(9, 8, np.int32), 5)[0]
    assert got.tolist() == [6, 6, 6, 6, 6, 8, 8, 4, 8]
