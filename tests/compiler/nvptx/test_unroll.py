"""Unrolled loops compute what their iterations do, however many there are."""

from __future__ import annotations

import re

import numpy as np
import pytest

from deuteron.compiler.targets import Target, interpreter
from deuteron.compiler.targets.nvptx import emit_ptx

SUM = """
def k(x_ptr, y_ptr, first, end, STEP: tl.constexpr, N: tl.constexpr):
    o = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    last = -1
    p = x_ptr + o
    for i in range(first, end, STEP):
        total = total * 0.5 + tl.load(x_ptr + (i - first) + o) + tl.load(p) * tl.load(x_ptr + (i - first))
        p += 3
        last = i - first
    tl.store(y_ptr + o, total)
    tl.store(y_ptr + N + o, tl.load(p) + last)
"""
TOP = (1 << 31) - 1


def _expected(x: np.ndarray, trips: int, step: int, size: int) -> np.ndarray:
    total = np.zeros(size)
    for i in range(trips):
        total = total * 0.5 + x[i * step :][:size] + x[3 * i :][:size] * x[i * step]
    last = (trips - 1) * step if trips else -1
    return np.concatenate([total, x[3 * trips :][:size] + last])


@pytest.mark.parametrize("size, warps", [(128, 4), (32, 1), (64, 4)])
@pytest.mark.parametrize("first, end, step", [(0, 0, 1), (5, 3, 1), *((0, n, 1) for n in range(1, 10)), (0, 40, 8)])
def test_every_number_of_iterations(from_text, simulated, rng, size, warps, first, end, step) -> None:
    x = rng.standard_normal(256).astype(np.float32)
    y = np.zeros(2 * size, np.float32)
    signature = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "first": "i32", "end": "i32"}
    sample = from_text(SUM, signature, {"STEP": step, "N": size}, warps)
    simulated(sample, (1,), [x, y, first, end])
    np.testing.assert_allclose(
        y, _expected(x.astype(np.float64), len(range(first, end, step)), step, size), rtol=1e-4, atol=1e-4
    )


@pytest.mark.parametrize(
    "first, end, step, type",
    [
        (-3, 8, 3, "i32"),
        (TOP - 30, TOP, 8, "i32"),
        (TOP - 24, TOP, 8, "i32"),
        (-TOP - 1, -TOP + 8, 2, "i32"),
        ((1 << 40) - 7, (1 << 40) + 2, 4, "i64"),
        (-(1 << 40), -(1 << 40) + 12, 3, "i64"),
    ],
)
def test_bounds_at_the_ends_of_their_type(from_text, simulated, rng, first, end, step, type) -> None:
    """Iterations that do not exist may have numbers beyond the type; so may the end of the last turn."""
    x = rng.standard_normal(256).astype(np.float32)
    y = np.zeros(128, np.float32)
    signature = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "first": type, "end": type}
    sample = from_text(
        SUM.replace("+ last", "+ last.to(tl.float32)").replace("last = -1", "last = first * 0 - 1"),
        signature,
        {"STEP": step, "N": 64},
    )
    simulated(sample, (1,), [x, y, first, end])
    np.testing.assert_allclose(
        y, _expected(x.astype(np.float64), len(range(first, end, step)), step, 64), rtol=1e-4, atol=1e-4
    )


def test_iterations_that_do_not_exist_read_nothing(from_text, simulated) -> None:
    """The array ends with the last iteration; reads behind it are errors of the simulator."""
    text = """
def k(x_ptr, y_ptr, n, N: tl.constexpr):
    o = tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for i in range(n):
        total += tl.load(x_ptr + i * N + o)
    tl.store(y_ptr + o, total)
"""
    sample = from_text(text, {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "n": "i32"}, {"N": 128})
    for trips in (1, 2, 5):
        x, y = np.arange(trips * 128, dtype=np.float32), np.zeros(128, np.float32)
        simulated(sample, (1,), [x, y, trips])
        assert np.array_equal(y, x.reshape(trips, 128).sum(0))


NESTED = """
def k(in_ptr, out_ptr, row):
    r = tl.arange(0, 2)
    a = in_ptr + r[:, None] * row + r[None, :]
    c = out_ptr + r[:, None] * row + r[None, :]
    for i in range(2):
        a1 = tl.load(a)
        for j in range(2):
            a += 2
            a2 = tl.load(a)
            for k in range(2):
                a += 2
                a3 = tl.load(a)
                tl.store(c, a1)
                tl.store(c + 2, a2)
                tl.store(c + 4, a3)
                c += 6
        a += 2
"""


@pytest.mark.parametrize("row", [1, 2, 4, 8, 64])
def test_nested_loops_whose_rows_overlap(from_text, simulated, rng, row) -> None:
    """Threads write over what other threads of the warp wrote, in the order of the program."""
    sample = from_text(NESTED, {"in_ptr": "*i32:16", "out_ptr": "*i32:16", "row": "i32"}, {})
    x, y = rng.integers(0, 100, 160).astype(np.int32), np.zeros(160, np.int32)
    expected = y.copy()
    interpreter.run(sample.tile(), (1,), [x, expected, row])
    simulated(sample, (1,), [x, y, row])
    assert np.array_equal(y, expected)


def test_nested_loops_have_neither_branches_nor_barriers_of_the_block(from_text) -> None:
    sample = from_text(NESTED, {"in_ptr": "*i32:16", "out_ptr": "*i32:16", "row": "i32"}, {})
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    assert not re.search(r"\bbra\b|barrier\.cta|bar\.sync\s+0", ptx)
    assert len(re.findall(r"st\.global", ptx)) == 24


@pytest.mark.parametrize("step", [1, 8])
def test_four_loads_are_on_their_way_whatever_the_step(from_text, step) -> None:
    signature = {"x_ptr": "*fp32:16", "y_ptr": "*fp32:16", "first": "i32", "end": "i32"}
    sample = from_text(SUM, signature, {"STEP": step, "N": 128})
    ptx = emit_ptx(sample.program(), Target.parse("cuda:90a"))
    blocks = re.split(r"^\$L\w+:|\bbra\b", ptx, flags=re.MULTILINE)
    assert max(len(re.findall(r"ld\.global", block)) for block in blocks) == 12


@pytest.mark.parametrize("size", [64, 4096])
@pytest.mark.parametrize("trips", [1, 5, 8])
def test_states_that_replace_each_other(from_text, simulated, rng, size, trips) -> None:
    """Each is loaded before the sum of those before it is stored in its place."""
    text = """
def states(x_ptr, s, TRIPS: tl.constexpr, N: tl.constexpr):
    at = x_ptr + TRIPS * N + tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for i in range(TRIPS - 1, -1, -1):
        at -= N
        current = tl.load(at)
        tl.store(at, total)
        total = total * s + current
"""
    x = rng.integers(-3, 4, (trips, size)).astype(np.float32)
    total, wanted = np.zeros(size), np.empty((trips, size))
    for i in reversed(range(trips)):
        wanted[i], total = total, total * 0.5 + x[i]
    simulated(from_text(text, {"x_ptr": "*fp32:16", "s": "fp32"}, {"TRIPS": trips, "N": size}), (1,), [x, 0.5])
    np.testing.assert_array_equal(x, wanted)


@pytest.mark.parametrize("more, alone", [("", False), ("tl.debug_barrier()", True)])
def test_loops_that_only_load_and_store_are_unrolled_behind_us(from_text, more, alone) -> None:
    """By LLVM, if they are scalar, with a loop over the rest."""
    text = f"""
def fill(x_ptr, y_ptr, n):
    for i in range(n):
        tl.store(y_ptr + i, tl.load(x_ptr + i))
        {more or "pass"}
"""
    target = Target.parse("cuda:90a")
    made = from_text(text, {"x_ptr": "*i32:16", "y_ptr": "*i32:16", "n": "i32"})
    ptx = emit_ptx(made.program("cuda:90a"), target)
    assert (ptx.count("st.global") == 1) == alone
    assert ptx.count("nounroll") == 1  # of the loop, or of that over the rest


def test_halves_are_computed_in_pairs(from_text) -> None:
    text = """
def scaled(x_ptr, y_ptr, z_ptr, N: tl.constexpr):
    o = tl.arange(0, N)
    tl.store(z_ptr + o, tl.load(x_ptr + o) * tl.exp(tl.load(y_ptr + o).to(tl.float32)).to(tl.float16))
"""
    made = from_text(text, dict.fromkeys(("x_ptr", "y_ptr", "z_ptr"), "*fp16:16"), {"N": 1024})
    ptx = emit_ptx(made.program("cuda:90a"), Target.parse("cuda:90a"))
    assert (ptx.count("mul.f16x2") + ptx.count("mul.rn.f16x2"), ptx.count("mul.f16 ")) == (4, 0)
