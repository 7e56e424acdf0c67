"""Scalars that are known while compiling have the types that Triton's have, compiled and under TRITON_INTERPRET."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import TypeMismatch, UnsupportedSyntax


@pytest.fixture(params=["compiled", "interpreted"], autouse=True)
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    with knobs.interpret.scope(request.param == "interpreted"):
        yield


@deuteron.jit
def arithmetic_of_int1(out, n):
    known = n > 0
    tl.store(out, -known)
    tl.store(out + 1, known + known)
    tl.store(out + 2, ~known)
    tl.store(out + 3, known * 100)
    tl.store(out + 4, not known)


@pytest.mark.parametrize("n", [1, 5])  # 1 is known itself, and 5 is not
def test_truth_values_with_names_are_int1(n: int) -> None:
    out = np.full(5, 77, np.int32)
    arithmetic_of_int1[(1,)](out, n)
    assert out.tolist() == [1, 0, 0, 100, 0]


@deuteron.jit
def types_of_int1(byte, half, out, exact, n):
    known = n > 0
    tl.store(out, tl.load(byte) + known * 100)  # int32, as of any scalar
    tl.store(exact, tl.load(half) * (known * 0.1))  # fp32


@deuteron.jit
def counts_of_flags(out, C: tl.constexpr):
    flag = C == 3
    tl.store(out, flag + (C > 1))
    tl.store(out + 1, flag + (C > 1) + (C > 2))
    tl.store(out + 2, flag + True)
    tl.store(out + 3, ~(not flag))
    more = True
    more += True
    tl.store(out + 4, more)
    k = 100
    tl.store(out + 5, (tl.load(out + 5).to(tl.int8) + k * (C == 3)).to(tl.int32))
    tl.store(out + 6, 1 if isinstance(flag, bool) else 0)


def test_flags_are_added_up_in_int1() -> None:
    out = np.full(7, 100, np.int32)
    counts_of_flags[(1,)](out, C=3)
    assert out.tolist() == [0, 1, 0, 1, 0, 200, 0]


@deuteron.jit
def optional(out, x, C: tl.constexpr):
    has = x is not None
    wide = C == 3
    if has and tl.load(x) > 0:
        tl.store(out, 1)
    if has or wide:
        tl.store(out + 1, 1)
    size: tl.constexpr = 4 if wide else 2
    tl.store(out + 2 + tl.arange(0, size), 7)


def test_flags_decide_what_is_evaluated() -> None:
    for x, c, expected in ((None, 3, [0, 1, 7, 7, 7, 7]), (np.ones(1, np.float32), 2, [1, 1, 7, 7, 0, 0])):
        out = np.zeros(6, np.int32)
        optional[(1,)](out, x, C=c)
        assert out.tolist() == expected


@deuteron.constexpr_function
def class_of(flag):
    return type(flag).__name__


@deuteron.jit
def handed_on(out):
    flag = True
    tl.static_assert(class_of(flag) == "bool")
    tl.store(out, 1)


def test_functions_of_compile_time_values_take_a_bool() -> None:
    out = np.zeros(1, np.int32)
    handed_on[(1,)](out)
    assert out[0] == 1


@pytest.mark.parametrize("n", [1, 5])
def test_int1_meets_others_as_a_scalar(n: int) -> None:
    out, exact = np.zeros(1, np.int32), np.zeros(1, np.float32)
    types_of_int1[(1,)](np.full(1, 100, np.int8), np.full(1, 3, np.float16), out, exact, n)
    assert out[0] == 200 and exact[0] == np.float32(3) * np.float32(0.1)


@deuteron.jit
def masks(x, out, FLAG: tl.constexpr):
    skipped = FLAG == 2
    i = tl.arange(0, 8)
    tl.store(out + i, tl.load(x + i), mask=(i < 6) & ~skipped)
    if skipped and i.shape[0] == 8:
        tl.store(out, -1)
    tl.store(out + 7, 5 if skipped else 6)


def test_known_truth_values_mask_and_decide() -> None:
    x = np.arange(1, 9, dtype=np.int32)
    for flag, expected in ((1, [1, 2, 3, 4, 5, 6, 0, 6]), (2, [-1, 0, 0, 0, 0, 0, 0, 5])):
        out = np.zeros(8, np.int32)
        masks[(1,)](x, out, FLAG=flag)
        assert out.tolist() == expected


@deuteron.jit
def extremes(byte, out, F: tl.constexpr, K: tl.constexpr):
    f = F
    k = K
    tl.store(out, tl.load(byte) * max(f, 2))
    tl.store(out + 1, tl.load(byte) * max(k, 2))
    tl.store(out + 2, tl.load(byte) * min(k, 5))
    tl.store(out + 3, tl.load(byte) + (100 if k else 2))


@pytest.mark.parametrize(("f", "k"), [(2.5, 3), (0.5, 1), (0.5, 7)])
def test_whichever_is_larger_the_type_is_the_same(f: float, k: int) -> None:
    out = np.zeros(4, np.float32)
    extremes[(1,)](np.full(1, 100, np.int8), out, F=f, K=k)
    assert out.tolist() == [100 * max(f, 2), 100 * max(k, 2), 100 * min(k, 5), 200]


@deuteron.jit
def two_names(out):
    a = b = 5
    tl.store(out, -a // 3)
    tl.store(out + 1, b * 1000003 * 1000003)


def test_two_names_of_one_value() -> None:
    out = np.zeros(2, np.int64)
    two_names[(1,)](out)
    assert out.tolist() == [-1, int(np.array(5 * 1000003 * 1000003).astype(np.int32))]


@deuteron.jit
def said(out):
    both = True
    tl.static_assert(both, "known")
    text: tl.constexpr = f"{both}"
    tl.store(out, 1 if text == "True" else 0)


def test_a_known_truth_value_reads_as_one() -> None:
    out = np.zeros(1, np.int32)
    said[(1,)](out)
    assert out[0] == 1


@deuteron.jit
def stored(out, p):
    tl.store(out, p)


@deuteron.jit
def added(out, p):
    tl.atomic_add(out, p)


@deuteron.jit
def converted(out, p):
    tl.store(out, p.to(tl.float32))


@deuteron.jit
def narrowed(out, p):
    tl.store(out, p.to(tl.int32))


@deuteron.jit
def filled(out, p):
    tl.store(out, tl.full([], p, tl.float32))


@deuteron.jit
def negated(out, p):
    tl.store(out, (-p).to(tl.int64))


@pytest.mark.parametrize("kernel", [stored, added, converted, narrowed, filled, negated])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int32])
def test_a_forgotten_load_is_an_error(kernel: deuteron.JITFunction, dtype: type) -> None:
    out = np.ones(4, dtype)
    with pytest.raises(TypeMismatch, match="cannot convert|expected numbers, got pointers"):
        kernel[(1,)](out, np.ones(4, np.float32))
    assert (out == 1).all()


@deuteron.jit
def addresses(out, p):
    at = p.to(tl.int64)
    tl.store(out, at - p.to(tl.uint64).to(tl.int64))
    tl.store(out + 1, p.to(tl.int1))
    tl.store(out + 2, tl.load(at.to(tl.pointer_type(tl.float32))).to(tl.int64))


def test_addresses_are_64_bit_integers_and_back() -> None:
    out = np.full(3, 77, np.int64)
    addresses[(1,)](out, np.full(4, 9, np.float32))
    assert out.tolist() == [0, 1, 9]


@deuteron.jit
def indexed(out, FLAT: tl.constexpr):
    if FLAT:
        d = 0
    else:
        d = tl.arange(0, 16)
    scale = 2.5
    i = tl.arange(0, 16)[:, None] + d[None, :]
    tl.store(out + i, i + tl.sum(scale[None], 0) + tl.zeros_like(d).to(tl.float32))


def test_scalars_that_are_known_are_tensors_to_functions_and_indices() -> None:
    out = np.zeros(31, np.float32)
    indexed[(1,)](out, FLAT=True)
    assert out.tolist() == [*np.arange(16) + 2.5, *[0.0] * 15]
    indexed[(1,)](out, FLAT=False)
    assert out.tolist() == (np.arange(31) + 2.5).tolist()


@deuteron.jit
def literal_indexed(out):
    d: tl.constexpr = 3
    tl.store(out + d[None], 1)


def test_a_compile_time_value_has_no_elements() -> None:
    with pytest.raises((UnsupportedSyntax, TypeError)):
        literal_indexed[(1,)](np.zeros(4, np.int32))
