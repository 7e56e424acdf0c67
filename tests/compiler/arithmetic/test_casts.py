"""Every conversion between element types, on every target, rounded once and saturated where the format asks for it."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.errors import TypeMismatch

ALL = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2")
FLOATS = ("f64", "f32", "f16", "bf16")
SIZE = 512


def middles(to, high, rng):
    """Numbers in the middle of two neighbours of a float type ``to``: one bit too long."""
    bits = {"f32": 24, "f16": 11, "bf16": 8, "f8e4m3": 4, "f8e5m2": 3}[to]
    whole = rng.integers(1 << bits - 1, 1 << bits, SIZE // 2)
    return (2 * whole + 1) * (1 << rng.integers(0, high - bits, SIZE // 2))


def inputs(reference, source, to, rng):
    """Edges, random values, and numbers at or just beside a middle, where rounding twice goes wrong."""
    x = reference.values(source, SIZE, rng)
    if reference.is_float(source) and not reference.is_float(to):
        beyond = np.outer([-1.0, 1.0], 2.0 ** np.arange(6, 66)).ravel()
        around = np.concatenate([beyond, beyond - 1, beyond + 1, [np.nan, np.inf, -np.inf]])
        with np.errstate(over="ignore"):
            x[: len(around)] = around.astype(x.dtype)
    if not reference.is_float(to) or to == "f64" or source == to:
        return x
    aside = rng.integers(-1, 2, SIZE // 2)
    middle = middles(to, 60 if to in ("f32", "bf16") else 14, rng)
    if reference.width(source) >= 32 and reference.is_float(source):
        hard = (middle * 2.0**-6).astype(x.dtype)
        x[SIZE // 2 :] = np.where(aside == 0, hard, np.nextafter(hard, np.copysign(np.inf, aside).astype(x.dtype)))
    elif not reference.is_float(source):
        fitting = [v for v in (middle + aside).tolist() if reference.holds(source, v)]
        x[SIZE - len(fitting) :] = fitting
    return x


@pytest.mark.parametrize("source", ALL)
def test_casts(reference, run_on_target, source):
    wrong = []
    for to in ALL:
        x = inputs(reference, source, to, np.random.default_rng(ALL.index(to)))
        case = reference.Case(x=(source, x))
        case.expect(f"x.to(tl.{reference.SPELLED[to]})", reference.converted(x, source, to), to)
        if reference.is_float(source) and reference.is_float(to) and reference.width(to) < reference.width(source):
            chopped = reference.converted(x, source, to, to_zero=True)
            case.expect(f"x.to(tl.{reference.SPELLED[to]}, fp_downcast_rounding='rtz')", chopped, to)
        wrong += [f"{source}: {line}" for line in case.run(run_on_target)]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("source", ALL[1:])
def test_bitcasts(reference, run_on_target, source):
    x = reference.values(source, SIZE, np.random.default_rng(0))
    case = reference.Case(x=(source, x))
    for to in ALL[1:]:
        if reference.width(to) == reference.width(source):
            text = f"x.to(tl.{reference.SPELLED[to]}, bitcast=True)"
            case.expect(text, x.view(reference.NUMPY[to]), to)
    assert not case.run(run_on_target)


@pytest.mark.parametrize(("source", "to"), [("f16", "f32"), ("f32", "i32"), ("i32", "f16"), ("f16", "bf16")])
def test_a_rounding_mode_is_for_narrower_floats_only(reference, source, to):
    text = f"r0 = x.to(tl.{reference.SPELLED[to]}, fp_downcast_rounding='rtz')"
    with pytest.raises(TypeMismatch, match="narrower"):
        reference.kernel([text], {"x": source}, [to], 16)


@pytest.mark.parametrize("type", ["f32", "bf16", "i32"])
def test_a_rounding_mode_changes_nothing_where_the_type_stays(reference, run_on_target, type):
    """Kernels cast to the element type of what they store to, whichever that is."""
    x = reference.values(type, SIZE, np.random.default_rng(0))
    case = reference.Case(x=(type, x))
    case.expect(f"x.to(tl.{reference.SPELLED[type]}, fp_downcast_rounding='rtne')", x, type)
    assert not case.run(run_on_target)


@pytest.mark.parametrize("type", FLOATS)
def test_folded_casts_are_the_same(reference, run_on_target, type):
    """Constants are converted by the compiler itself."""
    numbers = [2**24 + 1, 2**53 + 1, 2**62 + 2**54 + 1, -(2**31), 257, 255.4999, 1e-7, 65519.996, 3.3961775e38, -0.0]
    case = reference.Case(x=("f64", np.zeros(32)))
    for number in numbers:
        own = reference.type_of_number(number)
        held = np.full(32, number, reference.NUMPY[own])
        text = f"tl.full([32], {number!r}, tl.{reference.SPELLED[own]}).to(tl.{reference.SPELLED[type]})"
        case.expect(text, reference.converted(held, own, type), type)
    assert not case.run(run_on_target)
