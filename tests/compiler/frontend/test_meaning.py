"""What operators and library functions mean, against NumPy and by hand: the IR that comes out is interpreted."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import (
    CompilationError,
    KernelAssertionError,
    KernelMismatch,
    TypeMismatch,
    UnsupportedSyntax,
)
from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.targets.interpreter import run

HEAD = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef kernel(x, out, n):\n    i = tl.arange(0, 16)\n"


def execute(body: str, x: np.ndarray, out: np.ndarray, n: int = 0, debug: bool = False) -> np.ndarray:
    """Interpret ``body`` with arrays x and out, a number n, and i = 0 .. 15; what it leaves in out."""
    source = KernelSource.from_text(HEAD + "".join(f"    {line}\n" for line in body.split("; ")), "kernel")
    names = {"int32": "i32", "uint32": "u32", "float32": "f32", "int64": "i64"}
    types = {name: f"*{names[a.dtype.name]}" for name, a in (("x", x), ("out", out))}
    run(lower(source, {**types, "n": "i32"}, {}, debug=debug), (1,), [x, out, n])
    return out


NUMBERS = np.array([5, -3, 8, 8, 0, -7, 8, 1, 2, -7, 4, 3, -7, 6, 7, 2], np.int32)


def test_where_takes_the_first_where_the_condition_holds() -> None:
    found = execute("tl.store(out + i, tl.where(i < 5, tl.load(x + i), 100))", NUMBERS, np.zeros(16, np.int32))
    np.testing.assert_array_equal(found, np.where(np.arange(16) < 5, NUMBERS, 100))


def test_pointers_move_both_ways() -> None:
    body = "last = x + 15; tl.store(out + i, tl.load(last - i)); tl.store(out + 16 + i, tl.load(i + x))"
    found = execute(body, NUMBERS, np.zeros(32, np.int32))
    np.testing.assert_array_equal(found, [*NUMBERS[::-1], *NUMBERS])


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_of_equal_values_the_first_index_wins(dtype) -> None:
    body = "v = tl.load(x + i); tl.store(out, tl.argmax(v, 0)); tl.store(out + 1, tl.argmin(v, 0))"
    found = execute(body, NUMBERS.astype(dtype), np.zeros(2, np.int32))
    assert found.tolist() == [NUMBERS.argmax(), NUMBERS.argmin()]


def test_cdiv_divides_arrays_element_by_element() -> None:
    """Libraries count the blocks of many sequences at once; an array of one length stays an array."""
    lengths = np.array([0, 1, 16, 17], np.int64)
    found = deuteron.cdiv(lengths, 16)
    assert isinstance(found, np.ndarray) and found.tolist() == [0, 1, 1, 2]
    one = deuteron.cdiv(lengths[3:], 16)
    assert isinstance(one, np.ndarray) and one.tolist() == [2]
    assert deuteron.cdiv(100, np.array([7, 30])).tolist() == [15, 4]
    assert type(deuteron.cdiv(np.int32(17), 16)) is int and deuteron.cdiv(tl.constexpr(17), 16) == 2


def test_cdiv_of_run_time_numbers_rounds_up() -> None:
    for n in (0, 1, 7, 8, 9):
        found = execute(
            "tl.store(out, tl.cdiv(n, 8)); tl.store(out + i, tl.cdiv(i + n, 4))", NUMBERS, np.zeros(16, np.int32), n
        )
        np.testing.assert_array_equal(found, -(-(np.arange(16) + n) // 4))


def test_swizzle2d_walks_groups_of_rows_column_by_column() -> None:
    """A grid of 5 x 3 in groups of 2 rows: the last group has one row."""
    order = [(row, column) for first in (0, 2, 4) for column in range(3) for row in range(first, min(first + 2, 5))]
    body = (
        "m = i < 15; a, b = tl.swizzle2d(i // 3, i % 3, 5, 3, 2); tl.store(out + i, a, m); tl.store(out + 16 + i, b, m)"
    )
    found = execute(body, NUMBERS, np.zeros(32, np.int32))
    assert list(zip(found[:15].tolist(), found[16:31].tolist(), strict=True)) == order


def test_comparisons_and_logic() -> None:
    words = {
        "<": np.less,
        "<=": np.less_equal,
        ">": np.greater,
        ">=": np.greater_equal,
        "==": np.equal,
        "!=": np.not_equal,
    }
    for sign, reference in words.items():
        found = execute(
            f"v = tl.load(x + i); tl.store(out + i, (v {sign} 2).to(tl.int32))", NUMBERS, np.zeros(16, np.int32)
        )
        np.testing.assert_array_equal(found, reference(NUMBERS, 2))
    for name, reference in (("logical_and", np.logical_and), ("logical_or", np.logical_or)):
        body = f"v = tl.load(x + i); tl.store(out + i, v.{name}(i > 8).to(tl.int32))"
        found = execute(body, NUMBERS, np.zeros(16, np.int32))
        np.testing.assert_array_equal(found, reference(NUMBERS, np.arange(16) > 8))


@pytest.mark.parametrize(
    "type, low, high",
    [("i8", -128, 127), ("u8", 0, 255), ("i16", -(1 << 15), (1 << 15) - 1), ("i32", -(1 << 31), (1 << 31) - 1)],
)
def test_numbers_at_the_edges_of_a_type(type, low, high) -> None:
    text = (
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef kernel(a, out):\n    tl.store(out, a + {0})\n"
    )

    def compile(number: int) -> None:
        lower(KernelSource.from_text(text.format(f"({number})"), "kernel"), {"a": type, "out": "*f64"}, {})

    compile(low)
    compile(high)
    for number in (low - 1, high + 1):
        with pytest.raises(TypeMismatch, match="out of range"):
            compile(number)


def test_integers_meet_as_in_c() -> None:
    """C's usual conversions, restated: the longer wins; of equal length the unsigned one."""
    text = "import triton\nimport triton.language as tl\n\n@triton.jit\ndef kernel(a, b, out):\n"
    text += "    z = a + b\n    tl.store(out, z)\n"
    for a, b in itertools.product([f"{s}{n}" for s in "iu" for n in (8, 16, 32, 64)], repeat=2):
        function = lower(KernelSource.from_text(text, "kernel"), {"a": a, "b": b, "out": "*f64"}, {})
        (value,) = [r for op in function.walk() for r in op.results if r.name == "z"]
        wanted = max((a, b), key=lambda t: (int(t[1:]), t[0] == "u"))
        assert str(value.type) == wanted, (a, b)


@pytest.mark.parametrize("text", ["1 << 400", "1 << (1 << 62)", "2 ** (1 << 62)", "(1 << 250) * (1 << 250) << 9"])
def test_compile_time_integers_are_bounded_before_they_are_computed(text) -> None:
    """1 << (1 << 62) would take more memory than any machine has."""
    with pytest.raises(UnsupportedSyntax, match="more than 256 bits"):
        execute(f"tl.store(out, ({text}) * 0)", NUMBERS, np.zeros(1, np.int32))


CLASSES = """
class Sizes:
    WIDTH: tl.constexpr = 4
    HALF = tl.constexpr(2)
    @staticmethod
    def host(): return object()

class Host:
    def __init__(self): self.size = 3

@triton.jit
def kernel(x, C: tl.constexpr, I: tl.constexpr, S: tl.constexpr):
    tl.store(x, isinstance(C, float)); tl.store(x + 1, isinstance(C, int)); tl.store(x + 2, isinstance(I, int))
    tl.store(x + 3, isinstance(I, (float, bool))); tl.store(x + 4, isinstance(tl.load(x), (int, float)))
    tl.store(x + 5, isinstance(S, bool)); tl.store(x + 6, Sizes.WIDTH * 10 + Sizes.HALF)
"""


class Sizes:
    """The class of CLASSES, for the functions of this module."""

    WIDTH = tl.constexpr(4)
    HALF = tl.constexpr(2)
    PLAIN = 3


@deuteron.jit
def of_sizes(x, WRONG: tl.constexpr):
    tl.store(x, Sizes.PLAIN if WRONG else Sizes.WIDTH * 10 + Sizes.HALF)


def test_classes_of_python_and_classes_that_hold_constants() -> None:
    out, constants = np.full(7, -1, np.int32), {"C": 1.5, "I": 3, "S": True}
    head = "import triton\nimport triton.language as tl\n"
    run(lower(KernelSource.from_text(head + CLASSES, "kernel"), {"x": "*i32"}, constants), (1,), [out])
    kinds = [(1.5, float), (1.5, int), (3, int), (3, (float, bool)), (None, int), (True, bool)]
    assert out.tolist() == [*(isinstance(value, kind) for value, kind in kinds), 42]
    for word, why in [("Sizes", "the class Sizes is no value"), ("Host", "'Host' is not"), ("Sizes.host", "no 'host'")]:
        text = head + CLASSES.replace("Sizes.WIDTH * 10", word)
        with pytest.raises(CompilationError, match=why):
            lower(KernelSource.from_text(text, "kernel"), {"x": "*i32"}, constants)


def test_a_live_class_holds_constants(monkeypatch) -> None:
    out = np.zeros(1, np.int32)
    of_sizes[(1,)](out, False)
    assert out[0] == 42
    with pytest.raises(CompilationError, match="PLAIN"):
        of_sizes[(1,)](out, True)
    monkeypatch.setattr(Sizes, "WIDTH", tl.constexpr(5))
    with pytest.raises(KernelMismatch, match="Sizes.WIDTH has changed"):
        of_sizes[(1,)](out, False)


class Scaled:
    """A class of static methods, as libraries keep the functions of an operator together."""

    @staticmethod
    @deuteron.jit
    def by(value, factor: tl.constexpr):
        return value * factor


class Shifted(Scaled):
    """A class that adds nothing to its base."""


@deuteron.jit
def of_static_methods(x):
    tl.store(x, Scaled.by(tl.load(x), 5) + Shifted.by(tl.load(x), 2))


def test_static_methods_of_classes_are_functions() -> None:
    out = np.full(1, 3, np.int32)
    of_static_methods[(1,)](out)
    assert out[0] == 21


def test_a_condition_that_is_no_boolean_is_taken_with_a_warning() -> None:
    body = "tl.store(out + i, tl.where(i & 4, i, -i))"
    with pytest.warns(UserWarning, match="tl.where takes an int1 as condition, got .*write x != 0"):
        found = execute(body, NUMBERS, np.zeros(16, np.int32))
    assert found.tolist() == [i if i & 4 else -i for i in range(16)]


def test_assertions_of_known_values_are_kept_by_debug_as_others_are() -> None:
    body = "assert 2 > 3, 'too small'; tl.store(out + i, i)"
    assert execute(body, NUMBERS, np.zeros(16, np.int32)).tolist() == list(range(16))
    with pytest.raises(KernelAssertionError, match="too small"):
        execute(body, NUMBERS, np.zeros(16, np.int32), debug=True)


def test_names_take_the_first_values_of_a_longer_tuple() -> None:
    """Triton leaves the others out; libraries have such a line without noticing. Too few are an error."""
    body = "a, (b, c) = n, (n + 1, n + 2, n + 3), n; tl.store(out + i, tl.where(i < 8, a * 100 + b, c))"
    with pytest.warns(UserWarning, match="2 names take the first of 3 values") as warned:
        found = execute(body, NUMBERS, np.zeros(16, np.int32), 4)
    assert found.tolist() == [405] * 8 + [6] * 8 and len(warned) == 2
    with pytest.raises(UnsupportedSyntax, match="cannot unpack 1 values into 2 names"):
        execute("a, b = (n,); tl.store(out, a)", NUMBERS, np.zeros(16, np.int32))


COMPILE_TIME = """
import triton
import triton.language as tl

@triton.constexpr_function
def halves(n):
    named = -7
    return named // 2, n // 2, ~(n < 0)

@triton.jit
def kernel(out):
    n = -5
    found: tl.constexpr = halves(n)
    tl.store(out, found[0])
    tl.store(out + 1, found[1])
    tl.store(out + 2, found[2])
"""


def test_functions_of_compile_time_values_that_are_read_as_text_compute_with_pythons_numbers() -> None:
    """Neither what they are given nor what they name is a scalar, of which // truncates and ~ of int1 is not."""
    out = np.zeros(3, np.int32)
    run(lower(KernelSource.from_text(COMPILE_TIME, "kernel"), {"out": "*i32"}, {}), (1,), [out])
    assert out.tolist() == [-4, -3, -2]
