"""Reductions and scans: the type of the result as Triton documents it, and the same numbers on every target."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.errors import TypeMismatch

INTEGERS = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
SIZE = 64


def summed(reference, type):
    """Sums of integers below 32 bits are taken in 32 of the same sign; a boolean is unsigned."""
    if reference.is_float(type) or reference.width(type) >= 32:
        return type
    return "i32" if reference.is_signed(type) else "u32"


def compared(reference, type):
    """Extremes below 32 bits are i32 or f32."""
    if reference.width(type) >= 32:
        return type
    return "f32" if reference.is_float(type) else "i32"


@pytest.mark.parametrize("type", INTEGERS)
def test_integers(reference, run_on_target, type):
    x = reference.values(type, SIZE, np.random.default_rng(5))
    whole = reference.exact_integers(x)
    case = reference.Case(x=(type, x))
    total = summed(reference, type)
    case.expect("tl.sum(x, 0)", reference.wrapped(np.array([whole.sum()], object), total), total)
    case.expect("tl.cumsum(x, 0)", reference.wrapped(np.cumsum(whole), total), total)
    case.expect("tl.cumsum(x, 0, reverse=True)", reference.wrapped(np.cumsum(whole[::-1])[::-1], total), total)
    case.expect("tl.cumprod(x, 0)", reference.wrapped(np.cumprod(whole), type), type)
    for name, wanted in (("max", whole.max()), ("min", whole.min())):
        found = compared(reference, type)
        case.expect(f"tl.{name}(x, 0)", reference.wrapped(np.array([wanted], object), found), found)
        first = int(np.argmax(whole == wanted))
        case.expect(
            f"tl.{name}(x, 0, return_indices=True)[0]", reference.wrapped(np.array([wanted], object), type), type
        )
        case.expect(f"tl.arg{name}(x, 0)", np.array([first], np.int32), "i32")
    case.expect("tl.xor_sum(x, 0)", reference.wrapped(np.array([np.bitwise_xor.reduce(whole)], object), type), type)
    case.expect("tl.reduce_or(x, 0)", reference.wrapped(np.array([np.bitwise_or.reduce(whole)], object), type), type)
    assert not case.run(run_on_target)


@pytest.mark.parametrize("type", FLOATS)
def test_floats(reference, run_on_target, type):
    """Numbers whose sums and products are exact in the type that the language adds in."""
    x = np.resize([1, 2, 0.5, -1], SIZE).astype(reference.NUMPY[type])
    wide = x.astype(np.float64)
    promoted = "f32" if type == "bf16" else type
    case = reference.Case(x=(type, x))
    case.expect("tl.sum(x, 0)", np.array([wide.sum()]).astype(reference.NUMPY[type]), type)
    case.expect("tl.cumsum(x, 0)", np.cumsum(wide).astype(reference.NUMPY[promoted]), promoted)
    case.expect("tl.cumprod(x, 0)", np.cumprod(wide).astype(reference.NUMPY[promoted]), promoted)
    found = compared(reference, type)
    case.expect("tl.max(x, 0)", np.array([2.0], reference.NUMPY[found]), found)
    case.expect("tl.min(x, 0)", np.array([-1.0], reference.NUMPY[found]), found)
    case.expect("tl.max(x, 0, return_indices=True)[0]", np.array([2.0], reference.NUMPY[promoted]), promoted)
    case.expect("tl.argmin(x, 0)", np.array([3], np.int32), "i32")
    assert not case.run(run_on_target)


#: (values, place of the largest, place of the smallest); the rest of the tile repeats the last value.
NAN, INF = float("nan"), float("inf")
WITH_NAN = [
    ([NAN, 1, 2, NAN], 2, 1),
    ([2, NAN, 1, 2, NAN, 1], 0, 2),
    ([NAN, NAN, -INF, NAN], 2, 2),
    ([NAN, INF, NAN, -INF], 1, 3),
    ([NAN] * 4, 0, 0),
    ([3, NAN, 3, NAN, 3, 3], 0, 0),
]


@pytest.mark.parametrize("type", FLOATS)
@pytest.mark.parametrize(("values", "largest", "smallest"), WITH_NAN)
def test_a_number_wins_over_nan(reference, run_on_target, type, values, largest, smallest):
    """Whatever the order in which a target combines; where all are NaN the first one is found."""
    for shift in (0, 17):  # where the values lie decides who meets whom
        x = np.full(SIZE, values[-1], np.float64)
        x[shift : shift + len(values)] = values
        x[:shift] = NAN
        x = x.astype(reference.NUMPY[type])
        case = reference.Case(x=(type, x))
        promoted = "f32" if type == "bf16" else type
        for name, place in (("max", largest), ("min", smallest)):
            at = 0 if all(np.isnan(values)) else shift + place
            value = x[[at]].astype(reference.NUMPY[promoted])
            case.expect(f"tl.arg{name}(x, 0)", np.array([at], np.int32), "i32")
            case.expect(f"tl.{name}(x, 0, return_indices=True)[0]", value, promoted)
            case.expect(f"tl.{name}(x, 0, return_indices=True)[1]", np.array([at], np.int32), "i32")
            found = compared(reference, type)
            case.expect(f"tl.{name}(x, 0)", value.astype(reference.NUMPY[found]), found)
        assert not case.run(run_on_target), (values, shift)


def test_scans_of_bf16_do_not_stop_counting(reference, run_on_target):
    """1 + 1 + ... in bf16 stays at 256."""
    x = np.ones(1024, reference.NUMPY["bf16"])
    function = reference.kernel(["r0 = tl.cumsum(x, 0)"], {"x": "bf16"}, ["f32"], 1024)
    out = np.zeros(1024, np.float32)
    run_on_target(function, (1,), [x, out])
    np.testing.assert_array_equal(out, np.arange(1, 1025))


@pytest.mark.parametrize("name", ["xor_sum", "reduce_or"])
def test_bitwise_reductions_take_integers(reference, name):
    with pytest.raises(TypeMismatch, match="takes integers"):
        reference.kernel([f"r0 = tl.broadcast_to(tl.{name}(x, 0), [16])"], {"x": "f32"}, ["f32"], 16)
