"""Reductions by whole warps at once, on the simulator against NumPy: equal values, zeros, infinities and NaN."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from deuteron.compiler.targets.simt.combining import Placed, Sole, what_it_does
from deuteron.compiler.tile.reduction import Reduce

NAN, INF = np.float32(np.nan), np.float32(np.inf)
SPECIAL = [0.0, -0.0, 1.5, -1.5, 1e-45, -1e-45, 3e38, -3e38, INF, -INF, NAN, -NAN]

ONE = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    tl.store(y_ptr, tl.{name}(tl.load(x_ptr + tl.arange(0, N)), 0))
"""
BOTH = """
def k(x_ptr, y_ptr, i_ptr, N: tl.constexpr):
    value, place = tl.{name}(tl.load(x_ptr + tl.arange(0, N)), 0, return_indices=True)
    tl.store(y_ptr, value)
    tl.store(i_ptr, place)
"""
ROWS = """
def k(x_ptr, y_ptr, i_ptr, M: tl.constexpr, N: tl.constexpr):
    m = tl.arange(0, M)
    x = tl.load(x_ptr + m[:, None] * N + tl.arange(0, N)[None, :])
    value, place = tl.{name}(x, 1, return_indices=True)
    tl.store(y_ptr + m, value)
    tl.store(i_ptr + m, place)
"""


def first_of(name: str, x: np.ndarray) -> int:
    """A number before NaN, of equal ones the first."""
    numbers = np.where(np.isnan(x), -INF if name == "max" else INF, x)
    best = numbers.max() if name == "max" else numbers.min()
    candidates = np.flatnonzero((numbers == best) & ~np.isnan(x))
    return int(candidates[0]) if len(candidates) else 0


def same_bits(x: np.float32, y: np.float32) -> bool:
    return bool(np.isnan(x) and np.isnan(y)) or np.float32(x).tobytes() == np.float32(y).tobytes()


def vectors(elements: st.SearchStrategy[float], least: int = 32) -> st.SearchStrategy[np.ndarray]:
    sizes = st.sampled_from([least, 2 * least, 4 * least])
    return sizes.flatmap(lambda n: st.lists(elements, min_size=n, max_size=n)).map(lambda x: np.array(x, np.float32))


def placed(from_text, simulated, name: str, x: np.ndarray, warps: int) -> tuple[np.ndarray, np.ndarray]:
    types = {"x_ptr": "*fp32", "y_ptr": "*fp32", "i_ptr": "*i32"}
    sample = from_text(BOTH.format(name=name), types, {"N": len(x)}, warps)
    assert "redux.sync" in sample.program().llvm
    y, at = np.zeros(1, np.float32), np.zeros(1, np.int32)
    simulated(sample, (1,), [x, y, at])
    return y, at


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    vectors(st.sampled_from(SPECIAL) | st.floats(width=32)),
    st.sampled_from(["max", "min"]),
    st.sampled_from([1, 2]),
)
def test_an_extreme_with_its_place_is_an_element(from_text, simulated, x, name, warps) -> None:
    y, at = placed(from_text, simulated, name, x, warps)
    assert at[0] == first_of(name, x)
    assert same_bits(y[0], x[at[0]])


@pytest.mark.parametrize("value", [NAN, -INF, INF, 0.0, -0.0])
@pytest.mark.parametrize("name", ["max", "min"])
def test_equal_elements_are_all_the_first(from_text, simulated, name, value) -> None:
    x = np.full(64, value, np.float32)
    y, at = placed(from_text, simulated, name, x, 1)
    assert at[0] == 0
    assert same_bits(y[0], x[0])


@pytest.mark.parametrize(("name", "zeros"), [("max", (-0.0, 0.0)), ("min", (0.0, -0.0))])
def test_zeros_are_equal(from_text, simulated, name, zeros) -> None:
    x = np.full(64, -1 if name == "max" else 1, np.float32)
    x[[37, 62]] = zeros
    y, at = placed(from_text, simulated, name, x, 1)
    assert at[0] == 37
    assert same_bits(y[0], x[37])


@pytest.mark.parametrize(("name", "value"), [("max", -INF), ("min", INF)])
def test_infinities_stay_before_nan(from_text, simulated, name, value) -> None:
    x = np.full(64, NAN, np.float32)
    x[[41, 60]] = value
    y, at = placed(from_text, simulated, name, x, 1)
    assert (y[0], at[0]) == (value, 41)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(vectors(st.sampled_from(SPECIAL) | st.floats(width=32)), st.sampled_from(["max", "min"]))
def test_extremes_of_floats(from_text, simulated, x, name) -> None:
    sample = from_text(ONE.format(name=name), {"x_ptr": "*fp32", "y_ptr": "*fp32"}, {"N": len(x)}, 1)
    assert "redux.sync" in sample.program().llvm
    y = np.zeros(1, np.float32)
    simulated(sample, (1,), [x, y])
    wanted = (np.fmax if name == "max" else np.fmin).reduce(x)
    assert np.array_equal(y[0], wanted, equal_nan=True)


PROPAGATING = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    tl.store(y_ptr, tl.reduce(tl.load(x_ptr + tl.arange(0, N)), 0, extreme))

@triton.jit
def extreme(a, b):
    return tl.{name}(a, b, propagate_nan=tl.PropagateNan.ALL)
"""


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(vectors(st.sampled_from(SPECIAL[:10])), st.integers(0, 63), st.sampled_from(["maximum", "minimum"]))
def test_extremes_that_propagate_nan(from_text, simulated, x, place, name) -> None:
    sample = from_text(PROPAGATING.format(name=name), {"x_ptr": "*fp32", "y_ptr": "*fp32"}, {"N": len(x)}, 1)
    assert "redux.sync" in sample.program().llvm
    for _ in range(2):
        y = np.zeros(1, np.float32)
        simulated(sample, (1,), [x, y])
        assert np.array_equal(y[0], getattr(np, name).reduce(x), equal_nan=True)
        if place < len(x):
            x[place] = NAN


INTEGERS = ["sum", "max", "min", "xor_sum", "argmax", "argmin"]


@pytest.mark.parametrize(("name", "dtype"), [*itertools.product(INTEGERS, [np.int32, np.uint32])])
@pytest.mark.parametrize("warps", [1, 4])
def test_integers(from_text, simulated, check_ptx, rng, name, dtype, warps) -> None:
    kind = {np.int32: "i32", np.uint32: "u32"}[dtype]
    out = np.int32 if name.startswith("arg") else dtype
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, 256, dtype, endpoint=True)
    x[rng.integers(0, 256, 40)] = x[0]
    sample = from_text(
        ONE.format(name=name), {"x_ptr": f"*{kind}", "y_ptr": "*i32" if out == np.int32 else "*u32"}, {"N": 256}, warps
    )
    assert "redux.sync" in sample.program().llvm
    y = np.zeros(1, out)
    simulated(sample, (1,), [x, y])
    with np.errstate(over="ignore"):
        made = {"sum": np.add.reduce, "xor_sum": np.bitwise_xor.reduce}.get(name) or getattr(np, name)
        assert y[0] == out(made(x))
    check_ptx(sample)


@pytest.mark.parametrize("shape", [(4, 32), (2, 256), (16, 32), (4, 16), (1, 128)])
@pytest.mark.parametrize("name", ["max", "min"])
def test_rows(from_text, simulated, rng, shape, name) -> None:
    sample = from_text(
        ROWS.format(name=name),
        {"x_ptr": "*fp32", "y_ptr": "*fp32", "i_ptr": "*i32"},
        dict(zip("MN", shape, strict=True)),
        4,
    )
    x = rng.choice(np.array([*SPECIAL, *rng.standard_normal(40)], np.float32), shape)
    y, at = np.zeros(shape[0], np.float32), np.zeros(shape[0], np.int32)
    simulated(sample, (1,), [x, y, at])
    for row, value, place in zip(x, y, at, strict=True):
        assert place == first_of(name, row)
        assert same_bits(value, row[place])


OWN = """
def k(x_ptr, y_ptr, N: tl.constexpr):
    at = tl.arange(0, N)
    value, place = tl.reduce((tl.load(x_ptr + at), at), 0, pick)
    tl.store(y_ptr, place)

@triton.jit
def pick(a, i, b, j):
    left = {condition}
    return tl.where(left, a, b), tl.where(left, i, j)
"""
CONDITIONS = {
    "(a > b) | (a == b) & (i < j)": Placed("max"),  # as in Triton's own library
    "(a < b) | (a == b) & (i < j)": Placed("min"),
    "(b <= a) & ((a > b) | (i <= j))": Placed("max"),
    "~(a <= b) | (a == b) & (i < j)": Placed("max"),  # whether NaN stays hangs on where it is
    "(a != a) | (b == b) & ((a > b) | (a == b) & (i < j))": None,  # it always stays
    "a >= b": None,  # of equal values the left one
    "(a > b) | (a == b) & (i > j)": None,
    "a > b": None,
    "i < j": None,
    "(a > b) | (i < j)": None,
    "(a + 1 > b) | (a == b) & (i < j)": None,
    "(a < b) ^ (a == b) & (i < j)": Placed("min"),
}


@pytest.mark.parametrize("condition", CONDITIONS)
def test_regions_are_known_by_what_they_choose(from_text, simulated, rng, condition) -> None:
    sample = from_text(OWN.format(condition=condition), {"x_ptr": "*fp32", "y_ptr": "*i32"}, {"N": 64}, 1)
    (reduce,) = sample.gpu().ops_of(Reduce)
    found = what_it_does(reduce.combine)
    assert found == CONDITIONS[condition]
    assert ("redux.sync" in sample.program().llvm) == isinstance(found, Placed)
    if isinstance(found, Placed):
        x = rng.integers(-5, 5, 64).astype(np.float32)
        y = np.zeros(1, np.int32)
        simulated(sample, (1,), [x, y])
        assert y[0] == first_of(found.extreme, x)


@pytest.mark.parametrize(
    ("name", "dtype", "found"),
    [
        ("sum", "i32", Sole("add")),
        ("sum", "fp32", Sole("add")),
        ("max", "fp32", Sole("max")),
        ("min", "u32", Sole("min")),
        ("argmax", "fp32", Placed("max")),
        ("argmin", "i32", Placed("min")),
        ("argmax", "fp16", Placed("max")),
    ],
)
def test_what_the_library_does(from_text, name, dtype, found) -> None:
    sample = from_text(ONE.format(name=name), {"x_ptr": f"*{dtype}", "y_ptr": "*i32"}, {"N": 64}, 1)
    (reduce,) = sample.gpu().ops_of(Reduce)
    assert what_it_does(reduce.combine) == found
    taken = dtype not in ("fp16",) and (name, dtype) != ("sum", "fp32")
    assert ("redux.sync" in sample.program().llvm) == taken


@pytest.mark.parametrize("size", [8, 16])
def test_rows_of_fewer_lanes_are_not_mixed(from_text, size) -> None:
    """Half a warp has no instruction."""
    text = ROWS.format(name="max")
    sample = from_text(text, {"x_ptr": "*fp32", "y_ptr": "*fp32", "i_ptr": "*i32"}, {"M": 8, "N": size}, 1)
    assert "redux.sync" not in sample.program().llvm
