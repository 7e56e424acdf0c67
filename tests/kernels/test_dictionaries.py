"""Dictionaries and sequences that are known while compiling, as functions that choose at compile time use them."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import errors
from deuteron.compiler.source.kernel import KernelSource


@triton.jit
def negative(x):
    return -x


@triton.jit
def doubled(x):
    return x * 2


@triton.constexpr_function
def function_called(name):
    known = {"negative": negative, "doubled": doubled}
    return known[name]


@triton.constexpr_function
def format_of(dtype):
    return {tl.float16: "fp16", tl.int32: "i32", (1, 2): "pair"}.get(dtype, "other")


@triton.constexpr_function
def log2(n):
    return len(bin(n)) - 3


@triton.constexpr_function
def axes_with_last(n, axis):
    order = tuple(range(n))
    return order[:axis] + order[axis + 1 :] + (axis,)


@triton.jit
def chosen(x_ptr, o_ptr, N: tl.constexpr, NAME: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    f: tl.constexpr = function_called(NAME)
    tiles = {"plain": x, "squared": x * x}
    tl.store(o_ptr + i, f(x))
    tl.store(o_ptr + N + i, tiles["squared"])
    weighted = tl.zeros_like(x)
    for name, tile in tiles.items():
        weighted += tile * (3 if name == "plain" else 0.5)
    tl.store(o_ptr + 2 * N + i, weighted)
    tl.static_assert(format_of(tl.float16) == "fp16" and format_of(tl.int8) == "other" and format_of((1, 2)) == "pair")
    tl.static_assert("plain" in tiles and "other" not in tiles and len(tiles) == 2)
    tl.static_assert(tuple(tiles.keys()) == ("plain", "squared") and list(range(1, 7, 2)) == [1, 3, 5])
    tl.static_assert(log2(N) == 3 and N.bit_length() == 4 and bin(-5) == "-0b101" and isinstance((1, 2), tuple))


@pytest.mark.parametrize(("name", "factor"), [("negative", -1), ("doubled", 2)])
def test_dictionaries_of_functions_and_tiles(launch, normal, name: str, factor: int) -> None:
    x = normal(8)
    got = launch(chosen, (1,), x, np.zeros((3, 8), np.float32), N=8, NAME=name)[1]
    np.testing.assert_allclose(got, [x * factor, x * x, 3 * x + x * x / 2], rtol=1e-6)


@triton.jit
def carried(x_ptr, o_ptr, n):
    i = tl.arange(0, 8)
    held = {"x": tl.load(x_ptr + i), "count": 0}
    for _ in range(n):
        held = {"x": held["x"] * 2, "count": held["count"] + 1}
    if n > 2:
        held = {"x": held["x"] + 1, "count": -held["count"]}
    tl.store(o_ptr + i, held["x"] + held["count"])


@pytest.mark.parametrize("n", [0, 2, 5])
def test_loops_and_branches_change_dictionaries_value_by_value(launch, normal, n: int) -> None:
    x = normal(8)
    got = launch(carried, (1,), x, np.zeros(8, np.float32), n)[1]
    np.testing.assert_allclose(got, x * 2**n + n if n <= 2 else x * 2**n + 1 - n, rtol=1e-6)


@triton.jit
def moved(x_ptr, o_ptr):
    x = tl.load(x_ptr + tl.arange(0, 32)).reshape(2, 4, 4)
    turned = tl.permute(x, axes_with_last(3, 0))
    tl.store(o_ptr + tl.arange(0, 32).reshape(4, 4, 2), turned)


def test_axes_are_computed_from_a_range(launch, normal) -> None:
    x = normal(32)
    got = launch(moved, (1,), x, np.zeros((4, 4, 2), np.float32))[1]
    np.testing.assert_array_equal(got, x.reshape(2, 4, 4).transpose(1, 2, 0))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("d = {1: 2}; tl.store(p, d[3])", "the dictionary has no 3; it has: 1"),
        ("d = {1: 2}; tl.store(p, d[tl.load(p)])", "must be known at compile time, got a tensor"),
        ("d = {tl.load(p): 2}; tl.store(p, 1)", "must be known at compile time, got a tensor"),
        ("d = {1: 2}; tl.store(p, d.pop(1))", "a dictionary has no attribute 'pop'"),
        (
            "d = {1: 2}\n    if tl.load(p) > 0:\n        d = {3: 2}\n    tl.store(p, 1)",
            "Mismatched type for d: {3: 2} on one path, {1: 2}",
        ),
        ("tl.store(p, len(tuple(range(1 << 62))))", "longer than"),
        ("tl.store(p, len(tuple(range(tl.program_id(0)))))", "do not take"),
        ("tl.store(p, len(bin(tl.load(p))))", "known at compile time"),
    ],
)
def test_what_dictionaries_and_sequences_refuse(body: str, message: str) -> None:
    text = f"import triton\nimport triton.language as tl\n@triton.jit\ndef kernel(p):\n    {body}\n"
    with pytest.raises(errors.CompilationError, match=message):
        triton.compile(KernelSource.from_text(text, "kernel"), {"p": "*i32"}, target="cpu")


TILES = ((64, 128), (128, 128))
RATES = tl.constexpr({"slow": 2, "fast": 7})


@triton.constexpr_function
def supported(m, n):
    return (m, n) in TILES


@triton.jit
def from_globals(o_ptr, M: tl.constexpr):
    tl.store(o_ptr, RATES["fast"] if supported(M, 128) else RATES["slow"])


@pytest.mark.parametrize(("m", "rate"), [(64, 7), (32, 2)])
def test_globals_of_functions_of_compile_time_values(launch, m: int, rate: int) -> None:
    """Such a function is plain Python in Triton, so it reads tuples that are no ``tl.constexpr``."""
    assert launch(from_globals, (1,), np.zeros(1, np.int32), M=m)[0] == rate


def test_a_global_of_a_function_of_compile_time_values_may_not_change(monkeypatch) -> None:
    out = np.zeros(1, np.int32)
    from_globals[(1,)](out, M=256)
    assert out[0] == 2
    monkeypatch.setattr(sys.modules[__name__], "TILES", ((256, 128),))
    with pytest.raises(errors.KernelMismatch, match="TILES has changed"):
        from_globals[(1,)](out, M=256)
