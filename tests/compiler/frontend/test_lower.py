"""Kernel text to tile IR: values, control flow, calls. The interpreter runs what comes out."""

from __future__ import annotations

import numpy as np
import pytest

from deuteron.compiler.frontend import KernelSource, lower
from deuteron.compiler.ir import parse_function, print_function, verify
from deuteron.compiler.targets.interpreter import run

HEAD = "import triton\nimport triton.language as tl\n\n"


def execute(body: str, *arguments, signature: dict[str, str], grid=(1, 1, 1), **constexprs):
    """Compile the jit function ``kernel`` of a text, check that its IR prints and parses, and interpret it."""
    source = KernelSource.from_text(HEAD + body, "kernel")
    function = verify(lower(source, signature, constexprs))
    assert print_function(parse_function(print_function(function))) == print_function(function)
    run(function, grid, list(arguments))


def test_early_return_guards_the_rest():
    out = np.zeros(4, np.float32)
    text = """
@triton.jit
def kernel(out, n):
    pid = tl.program_id(0)
    if pid >= n:
        return
    tl.store(out + pid, pid + 1.0)
"""
    execute(text, out, 2, signature={"out": "*f32", "n": "i32"}, grid=(4, 1, 1))
    assert out.tolist() == [1, 2, 0, 0]


def test_return_values_merge_over_branches():
    out = np.zeros(3, np.int32)
    text = """
@triton.jit
def sign(x):
    if x > 0:
        return 1
    elif x == 0:
        return 0
    return -1

@triton.jit
def kernel(out):
    pid = tl.program_id(0)
    tl.store(out + pid, sign(pid - 1))
"""
    execute(text, out, signature={"out": "*i32"}, grid=(3, 1, 1))
    assert out.tolist() == [-1, 0, 1]


def test_loop_carries_tensors_numbers_and_tuples():
    out = np.zeros(4, np.float32)
    text = """
@triton.jit
def kernel(out, n):
    total = 0
    pair = (0, 1)
    for i in range(2, n, 3):
        total += i
        pair = (pair[1], pair[0] + pair[1])
    down = 0
    for j in range(n, 0, -2):
        down = down * 10 + j
    k = 0
    while k * k < n:
        k += 1
    tl.store(out, total)
    tl.store(out + 1, pair[1])
    tl.store(out + 2, down)
    tl.store(out + 3, k)
"""
    execute(text, out, 9, signature={"out": "*f32", "n": "i32"})
    a, b = 0, 1
    for _ in range(2, 9, 3):
        a, b = b, a + b
    assert out.tolist() == [sum(range(2, 9, 3)), b, 97531, 3]


def test_index_of_the_last_iteration_is_known_behind_a_loop():
    out = np.zeros(8, np.int32)
    text = """
@triton.jit
def kernel(out, n, m):
    for i in range(n):
        tl.store(out + 7, i)
    tl.store(out, i)
    for i in range(n, 2 * n, m):
        tl.store(out + 7, i)
    tl.store(out + 1, i)
    for j in range(n - 1, -1, -2):
        tl.store(out + 7, j)
    tl.store(out + 2, j)
    for k in range(2, 20, 3):
        if k > n:
            break
    tl.store(out + 3, k)
    if n > 3:
        tl.store(out + 4, k + j)
    for outer in range(2):
        for inner in range(outer, n, 2):
            tl.store(out + 7, inner)
        tl.store(out + 5 + outer, inner)
"""
    execute(text, out, 10, 4, signature={"out": "*i32", "n": "i32", "m": "i32"})
    last = [range(10)[-1], range(10, 20, 4)[-1], range(9, -1, -2)[-1], 11]
    assert out[:7].tolist() == [*last, last[3] + last[2], range(0, 10, 2)[-1], range(1, 10, 2)[-1]]


def test_index_that_nobody_reads_behind_the_loop_costs_nothing():
    text = """
@triton.jit
def kernel(out, n):
    for i in range(n):
        tl.store(out + i, i)
    for i in range(n):
        tl.store(out + i, i)
"""
    loops = [op for op in lower(KernelSource.from_text(HEAD + text, "kernel"), {"out": "*i32", "n": "i32"}, {}).walk()]
    assert not [op for op in loops if op.mnemonic in ("div", "sub")]
    assert [op.inits for op in loops if op.mnemonic == "for"] == [(), ()]


def test_number_becomes_the_type_that_the_loop_gives_it():
    out = np.zeros(1, np.float32)
    text = """
@triton.jit
def kernel(x, out, n):
    acc = 0
    for i in range(n):
        acc += tl.load(x + i)
    tl.store(out, acc)
"""
    x = np.array([0.5, 0.25, 2], np.float32)
    execute(text, x, out, 3, signature={"x": "*f32", "out": "*f32", "n": "i32"})
    assert out[0] == 2.75


def test_static_control_flow_leaves_no_trace():
    text = """
N: tl.constexpr = 3

@triton.jit
def kernel(out, FLAG: tl.constexpr):
    for i in tl.static_range(N):
        if FLAG and i != 1:
            tl.store(out + i, i * 2)
"""
    source = KernelSource.from_text(HEAD + text, "kernel")
    function = lower(source, {"out": "*i32"}, {"FLAG": True})
    names = [op.mnemonic for op in function.walk()]
    assert names.count("store") == 2 and "if" not in names and "for" not in names


def test_conditional_expression_reads_memory_on_one_side_only():
    out = np.zeros(1, np.float32)
    text = """
@triton.jit
def kernel(x, out, n):
    y = tl.load(x + 1000) if n > 5 else 7.0
    tl.store(out, y)
"""
    execute(text, np.zeros(1, np.float32), out, 1, signature={"x": "*f32", "out": "*f32", "n": "i32"})
    assert out[0] == 7


def test_reductions_scans_and_shape_functions():
    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    out = np.zeros(64, np.float32)
    text = """
@triton.jit
def kernel(x, out):
    rows = tl.arange(0, 4)
    cols = tl.arange(0, 8)
    tile = tl.load(x + rows[:, None] * 8 + cols[None, :])
    tl.store(out + rows, tl.sum(tile, axis=1))
    tl.store(out + 4 + cols, tile.max(axis=0))
    best, where = tl.max(tile * (3 - cols)[None, :], axis=1, return_indices=True)
    tl.store(out + 12 + rows, best)
    tl.store(out + 16 + rows, where)
    tl.store(out + 20, tl.sum(tile))
    tl.store(out + 24 + cols[None, :] + rows[:, None] * 8, tl.cumsum(tile, axis=1))
"""
    execute(text, x, out, signature={"x": "*f32", "out": "*f32"})
    weighted = x * (3 - np.arange(8))
    assert np.array_equal(out[:4], x.sum(1))
    assert np.array_equal(out[4:12], x.max(0))
    assert np.array_equal(out[12:16], weighted.max(1))
    assert np.array_equal(out[16:20], weighted.argmax(1))
    assert out[20] == x.sum()
    assert np.array_equal(out[24:56].reshape(4, 8), x.cumsum(1))


def test_philox_is_the_published_generator():
    """Counter and key of zeros: the known-answer vector of Philox 4x32-10 in Random123's kat_vectors."""
    out = np.zeros(4, np.uint32)
    text = """
@triton.jit
def kernel(out):
    offset = tl.arange(0, 1)
    a, b, c, d = tl.randint4x(0, offset)
    tl.store(out + offset, a)
    tl.store(out + 1 + offset, b)
    tl.store(out + 2 + offset, c)
    tl.store(out + 3 + offset, d)
"""
    execute(text, out, signature={"out": "*u32"})
    assert [hex(v) for v in out.tolist()] == [
        "0x6627e8d5",
        "0xe169c58d",
        "0xbc57ac4c",
        "0x9b00dbd8",
    ]


@pytest.mark.parametrize(
    ("name", "reference", "low", "high", "tolerance"),
    [
        ("pow_three", lambda x: x**3, -4, 4, 1e-5),
        ("log1p", np.log1p, -0.9, 30, 1e-6),
        ("expm1", np.expm1, -3, 3, 1e-6),
        ("atan", np.arctan, -50, 50, 1e-6),
        ("sinh", np.sinh, -5, 5, 1e-6),
        ("cosh", np.cosh, -5, 5, 1e-6),
        ("round", lambda x: np.sign(x) * np.floor(np.abs(x) + 0.5), -9, 9, 0),
        ("log10", np.log10, 0.01, 900, 1e-6),
    ],
)
def test_libdevice_functions_written_in_the_language(name, reference, low, high, tolerance):
    x = np.linspace(low, high, 256, dtype=np.float32)
    out = np.zeros_like(x)
    call = "libdevice.pow(x, 3.0)" if name == "pow_three" else f"libdevice.{name}(x)"
    text = f"""
from triton.language.extra import libdevice

@triton.jit
def kernel(x_ptr, out):
    i = tl.arange(0, 256)
    x = tl.load(x_ptr + i)
    tl.store(out + i, {call})
"""
    execute(text, x, out, signature={"x_ptr": "*f32", "out": "*f32"})
    wanted = reference(x.astype(np.float64))
    assert np.abs(out - wanted).max() <= tolerance * max(1, np.abs(wanted).max())


def test_atan2_covers_all_quadrants_and_axes():
    y, x = (v.ravel().astype(np.float32) for v in np.meshgrid([-2, -0.0, 0, 3], [-1.5, 0, 0, 4]))
    out = np.zeros_like(x)
    text = """
from triton.language.extra import libdevice

@triton.jit
def kernel(y_ptr, x_ptr, out):
    i = tl.arange(0, 16)
    tl.store(out + i, libdevice.atan2(tl.load(y_ptr + i), tl.load(x_ptr + i)))
"""
    execute(text, y, x, out, signature={"y_ptr": "*f32", "x_ptr": "*f32", "out": "*f32"})
    assert np.allclose(np.abs(out), np.abs(np.arctan2(y, x)), atol=1e-6)
    assert np.allclose(out[y != 0], np.arctan2(y, x)[y != 0], atol=1e-6)


def test_boolean_arrays_are_bytes_in_memory():
    flags = np.array([True, False, True, True])
    out = np.zeros(4, np.bool_)
    text = """
@triton.jit
def kernel(x, out):
    i = tl.arange(0, 4)
    tl.store(out + i, ~tl.load(x + i))
"""
    execute(text, flags, out, signature={"x": "*i1", "out": "*i1"})
    assert out.tolist() == [False, True, False, False]
