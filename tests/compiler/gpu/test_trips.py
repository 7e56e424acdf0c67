"""How often a loop runs at most: never less than it does, and where bounds are simple no more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deuteron.compiler.frontend import KernelSource
from deuteron.compiler.frontend import lower as lower_kernel
from deuteron.compiler.gpu.latency.trips import most_trips
from deuteron.compiler.ir import parse_function, verify
from deuteron.compiler.tile.control import For
from deuteron.compiler.tile.passes import optimize

TEXT = """
import deuteron as triton
import deuteron.language as tl


@triton.jit
def count(out, a, b):
    for i in range({lower}, {upper}, {step}):
        tl.store(out + i, 1.0)
"""
#: Values of the arguments for which loops are counted: wide enough for sums of ``a`` and ``b`` with any two of the
#: numbers below to be on either side of each other.
REACH = 40
A, B = np.meshgrid(np.arange(-REACH, REACH + 1), np.arange(-REACH, REACH + 1))

Grid = np.ndarray


@dataclass(frozen=True)
class Bound:
    """A bound as the kernel has it, and its values where the arguments are ``A`` and ``B``."""

    text: str
    values: Grid

    def __repr__(self) -> str:
        return self.text


A_BOUND, B_BOUND = Bound("a", A), Bound("b", B)


def constant(value: int) -> Bound:
    return Bound(f"({value})", np.full_like(A, value))


def total(x: Bound, y: Bound) -> Bound:
    return Bound(f"({x} + {y})", x.values + y.values)


def difference(x: Bound, y: Bound) -> Bound:
    return Bound(f"({x} - {y})", x.values - y.values)


def times(x: Bound, y: Bound) -> Bound:
    return Bound(f"({x} * {y})", x.values * y.values)


def least(x: Bound, y: Bound) -> Bound:
    return Bound(f"tl.minimum({x}, {y})", np.minimum(x.values, y.values))


def most(x: Bound, y: Bound) -> Bound:
    return Bound(f"tl.maximum({x}, {y})", np.maximum(x.values, y.values))


def rounded(x: Bound, divisor: int, factor: int | None = None) -> Bound:
    """A multiple of ``factor``, or else of ``divisor``. Integers are divided as in C, towards zero."""
    factor = divisor if factor is None else factor
    quotient = np.sign(x.values) * (np.abs(x.values) // abs(divisor)) * (1 if divisor > 0 else -1)
    return Bound(f"({x} // ({divisor}) * ({factor}))", quotient * factor)


#: Few, for bounds that have nothing in common tell nothing.
VALUES = st.sampled_from([A_BOUND, B_BOUND, difference(times(A_BOUND, constant(2)), B_BOUND)])
DIVISORS = st.sampled_from([-4, 2, 3, 4, 8])
STEPS = st.integers(1, 9)


def sums(least_number: int, most_number: int) -> st.SearchStrategy[Bound]:
    numbers = st.integers(least_number, most_number).map(constant)
    return st.builds(total, VALUES, numbers) | st.builds(total, numbers, VALUES)


def composed(inner: st.SearchStrategy[Bound]) -> st.SearchStrategy[Bound]:
    return st.one_of(
        st.builds(difference, inner, st.integers(-8, 8).map(constant)),
        st.builds(least, inner, inner),
        st.builds(most, inner, inner),
        st.builds(rounded, inner, DIVISORS),
        st.builds(rounded, inner, DIVISORS, DIVISORS),
    )


LOWER = st.recursive(sums(-9, -1), composed, max_leaves=3)
UPPER = st.recursive(sums(1, 30), composed, max_leaves=3)
MINIMA_BELOW, MINIMA_ABOVE = (
    st.recursive(sums(*ends), lambda inner: st.builds(least, inner, inner), max_leaves=3)
    for ends in ((-9, -1), (1, 30))
)


def most_trips_of(lower: Bound | str, upper: Bound | str, step: int | str) -> int | None:
    """What is said of the loop over ``range(lower, upper, step)``; None if none is left of it."""
    source = KernelSource.from_text(TEXT.format(lower=lower, upper=upper, step=step), "count")
    function = optimize(lower_kernel(source, {"out": "*fp32:16", "a": "i32", "b": "i32"}, {}))
    loops = [op for op in function.walk() if isinstance(op, For)]
    return most_trips(loops[0]) if loops else None


def counted(lower: Bound, upper: Bound, step: int) -> int:
    """How often the loop runs at most."""
    return max(0, int(np.max(-((lower.values - upper.values) // step))))


@given(lower=LOWER, upper=UPPER, step=STEPS)
def test_no_loop_runs_longer(lower: Bound, upper: Bound, step: int) -> None:
    said = most_trips_of(lower, upper, step)
    assert said is None or counted(lower, upper, step) <= said


@given(
    lower=MINIMA_BELOW | st.builds(rounded, MINIMA_BELOW, st.sampled_from([-4, 2, 3, 4, 8])),
    upper=MINIMA_ABOVE,
    step=STEPS,
)
def test_of_minima_that_are_rounded_below_the_most_trips_are_told(lower: Bound, upper: Bound, step: int) -> None:
    """Where anything is told: bounds without a sum in common may be any distance apart."""
    said = most_trips_of(lower, upper, step)
    assert said is None or said == counted(lower, upper, step)


@pytest.mark.parametrize(
    ("lower", "upper", "step", "trips"),
    [
        ("a", "a + 48", 16, 3),
        ("a", "a + 49", 16, 4),
        # rounded down it begins up to 15 earlier
        ("a // 16 * 16", "a + 33", 16, 3),
        ("a // 16 * 16", "a + 34", 16, 4),
        # rounded towards zero the end is up to 15 later
        ("a", "(a + 33) // 16 * 16", 16, 3),
        ("a", "(a + 34) // 16 * 16", 16, 4),
        # the nearest end counts
        ("a", "tl.minimum(a + 48, a + 64)", 16, 3),
        ("a", "tl.minimum(a + 64, a + 48)", 16, 3),
        ("a", "tl.minimum(tl.minimum(b, a + 64), a + 49)", 16, 4),
        # and the farthest beginning
        ("tl.minimum(a, a - 1)", "a + 47", 16, 3),
        ("tl.minimum(a, a - 1)", "a + 48", 16, 4),
        ("tl.minimum(a - 1, a)", "a + 48", 16, 4),
        # as over attention's diagonal
        ("tl.minimum(a, b) // 16 * 16", "tl.minimum(a + 33, b)", 16, 3),
        ("tl.minimum(a, b) // 16 * 16", "tl.minimum(a + 34, b)", 16, 4),
        ("tl.minimum(b, a) // 16 * 16", "tl.minimum(b, a + 34)", 16, 4),
        # what begins anywhere below or ends anywhere above
        ("tl.minimum(a, b)", "a + 16", 16, None),
        ("tl.minimum(b, a)", "a + 16", 16, None),
        ("a", "tl.maximum(a + 16, b)", 16, None),
        ("0", "a", 16, None),
        # multiples of something else than what it was divided by
        ("a // 16 * 8", "a + 33", 16, None),
        ("a // 8 * 16", "a + 33", 16, None),
        ("a", "a + 48", "b", None),
    ],
)
def test_three_trips_or_four(lower: str, upper: str, step: int | str, trips: int | None) -> None:
    assert most_trips_of(lower, upper, step) == trips


@pytest.mark.parametrize("step", [0, -16])
def test_a_step_that_goes_nowhere_tells_nothing(step: int) -> None:
    """The front end writes no such loop."""
    text = f"""func @f(%a: i32) {{
        %c = constant {{value = 48, type = i32}} : i32
        %end = add %a %c : i32
        %step = constant {{value = {step}, type = i32}} : i32
        for %a %end %step inits=[] {{num_stages = 0, unroll = 1}} body=(%i: i32) {{
            yield values=[]
        }}
    }}"""
    (loop,) = [op for op in verify(parse_function(text)).walk() if isinstance(op, For)]
    assert most_trips(loop) is None
