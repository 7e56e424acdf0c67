"""Aggregates: classes of the program whose instances are values of kernels."""

from __future__ import annotations

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import KernelSource
from deuteron.compiler.errors import CompilationError, TypeMismatch, UnusedResult


@triton.aggregate
class Pair:
    first: tl.tensor
    second: tl.tensor

    @triton.jit
    def swapped(self):
        return Pair(self.second, self.first)

    @triton.must_use_result
    @triton.jit
    def both(self):
        return self.first, self.second

    def __getitem__(self, place):
        if place == 0:
            return self.first
        return self.second

    def __add__(self, other):
        return Pair(self.first + other.first, self.second + other.second)

    @property
    def total(self):
        return self.first + self.second


@triton.aggregate
class Sums:
    held: tl.tensor
    pair: Pair
    BLOCK: tl.constexpr

    def __init__(self, BLOCK, negative):
        self.BLOCK = BLOCK
        if negative:
            self.held = tl.full([BLOCK], -1.0, tl.float32)
        else:
            self.held = tl.zeros([BLOCK], tl.float32)
        self.pair = Pair(tl.arange(0, BLOCK), tl.full([BLOCK], 3, tl.int32))

    @staticmethod
    def of(BLOCK: tl.constexpr, negative):
        return Sums(BLOCK, negative)

    @triton.constexpr_function
    def width(self):
        return self.BLOCK * 2

    @triton.jit
    def plus(self, x):
        return tl.aggregate_replace(self, held=self.held + x, pair=self.pair.swapped())


@triton.aggregate
class Scaled(Sums):
    scale: tl.constexpr = 2

    def __init__(self, BLOCK):
        self.BLOCK = BLOCK
        self.held = tl.zeros([BLOCK], tl.float32)
        self.pair = Pair(tl.arange(0, BLOCK), 0)
        self.scale = 5


@triton.jit
def sums(x, out, n, negative, BLOCK: tl.constexpr):
    place = tl.arange(0, BLOCK)
    state = Sums.of(BLOCK, negative > 0)
    for i in range(n):
        state = state.plus(tl.load(x + i * state.BLOCK + place))
    if n > 2:
        state = tl.aggregate_replace(state, held=state.held * 2)
    a, b = (state.pair + state.pair).both()
    tl.store(out + place, state.held)
    tl.store(out + BLOCK + place, state.pair[0] * 10 + state.pair[1] + state.pair.total)
    tl.store(out + state.width() + place, a * 10 + b)


@pytest.mark.parametrize(("n", "negative"), [(1, 1), (4, 0)])
def test_methods_fields_and_initializers(launch, normal, n, negative):
    x, place = normal(4, 16), np.arange(16.0)
    out = launch(sums, (1,), x, np.zeros((3, 16), np.float32), n, negative, BLOCK=16)[1]
    held = np.full(16, -float(negative), np.float32)
    for row in x[:n]:
        held = held + row
    first, second = (place, 3.0) if n % 2 == 0 else (3.0, place)
    assert np.array_equal(out[0], held * (2 if n > 2 else 1))
    assert np.array_equal(out[1], first * 11 + second * 2)
    assert np.array_equal(out[2], first * 20 + second * 2)


@triton.jit
def inherited(x, out, BLOCK: tl.constexpr):
    state = Scaled(BLOCK).plus(tl.load(x + tl.arange(0, BLOCK)))
    tl.static_assert(isinstance(state, Sums) and hasattr(state, "scale") and not hasattr(state, "size"))
    tl.store(out + tl.arange(0, BLOCK), state.held * state.scale)


def test_fields_and_methods_of_base_classes(launch, normal):
    x = normal(16)
    assert np.array_equal(launch(inherited, (1,), x, np.zeros(16, np.float32), BLOCK=16)[1], x * np.float32(5))


@triton.aggregate
class Options:
    width: tl.constexpr
    names: tl.tuple = ("a", "b")


@triton.jit
def configured(out, options: tl.constexpr):
    tl.store(out, options.width + len(options.names))


def test_one_of_compile_time_values_is_an_argument(launch):
    assert launch(configured, (1,), np.zeros(1, np.int32), options=Options(7))[0] == 9
    assert launch(configured, (1,), np.zeros(1, np.int32), options=Options(8, ("c",)))[0] == 9


def test_outside_kernels_compile_time_values_are_constexpr():
    made = Options(width=3)
    assert isinstance(made.width, tl.constexpr) and made.width.value == 3
    assert tl.aggregate_replace(made, width=4) == Options(4) != made
    with pytest.raises(AttributeError, match="cannot assign to field 'width' on immutable aggregate"):
        made.width = 5


@triton.jit
def assigns():
    pair = Pair(tl.arange(0, 4), 3)
    pair.first = pair.second


@triton.jit
def assigns_in_a_method(pair):
    pair.second = 1
    return pair


@triton.jit
def calls_it():
    assigns_in_a_method(Pair(tl.arange(0, 4), 3))


@triton.jit
def drops_a_result():
    Pair(tl.arange(0, 4), 3).both()


@triton.jit
def takes_what_it_cannot():
    Pair(tl.arange(0, 4), "text")


@triton.jit
def fills_half():
    Half(3)


@triton.aggregate
class Half:
    x: tl.constexpr
    y: tl.constexpr

    def __init__(self, x):
        self.x = x


@triton.jit
def makes_another_form(n):
    options = Options(1)
    if n > 2:
        options = Options(2)
    return options


@pytest.mark.parametrize(
    ("kernel", "error", "said"),
    [
        (assigns, CompilationError, "cannot assign to field 'first' on immutable aggregate Pair"),
        (calls_it, CompilationError, "immutable aggregate Pair"),
        (drops_a_result, UnusedResult, "both is not being used"),
        (takes_what_it_cannot, TypeMismatch, "Pair.second holds a tensor, got 'text'"),
        (fills_half, CompilationError, "Half gets no value for its field 'y'"),
        (makes_another_form, TypeMismatch, r"Options\(width=1"),
    ],
)
def test_what_is_wrong_is_said(kernel, error, said):
    with pytest.raises(error, match=said) as caught:
        triton.compile(kernel, {"n": "i32"} if kernel is makes_another_form else {}, target="cpu")
    assert "test_aggregates.py" in str(caught.value)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"make": classmethod(lambda cls: cls())}, "no class methods"),
        ({"__annotations__": {"parts": tl.tensor}}, "cannot have a field 'parts'"),
        ({"__annotations__": {"x": "Nowhere"}}, "cannot be resolved"),
    ],
)
def test_classes_that_cannot_be_aggregates(body, said):
    with pytest.raises(TypeError, match=said):
        triton.aggregate(type("Odd", (), {"__module__": __name__, **body}))
    with pytest.raises(TypeError, match="only inherit from other aggregates"):
        triton.aggregate(type("Odd", (list,), {}))


def test_the_text_of_methods_is_part_of_a_kernels_identity():
    def variant(factor):
        @triton.aggregate
        class Held:
            x: tl.tensor

            @triton.jit
            def scaled(self):
                return self.x * factor

        @triton.jit
        def kernel(out):
            tl.store(out, Held(tl.load(out)).scaled())

        return kernel

    two, three, again = (variant(tl.constexpr(n)).source.hash for n in (2, 3, 2))
    assert two == again != three


TEXT = """
import triton
import triton.language as tl
from triton import aggregate

@triton.aggregate
class Row:
    values: tl.tensor
    WIDTH: tl.constexpr

    @triton.jit
    def twice(self):
        return Row(self.values + self.values, self.WIDTH)

@aggregate
class Wide(Row):
    EXTRA: tl.constexpr = 4

    def __init__(self, values):
        self.values = values
        self.WIDTH = 8
        self.EXTRA = 1

@triton.jit
def kernel(x):
    row = Wide(tl.load(x + tl.arange(0, 8))).twice()
    tl.store(x + tl.arange(0, row.WIDTH), row.values)
"""


def test_classes_of_a_source_text():
    x = np.arange(8, dtype=np.float32)
    made = triton.compile(KernelSource.from_text(TEXT, "kernel"), {"x": "*f32"}, target="cpu")
    made[(1,)](x)
    assert np.array_equal(x, np.arange(8) * 2)
