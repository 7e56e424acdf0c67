"""TRITON_INTERPRET: the Python function itself runs, under print and pdb, on any array."""

from __future__ import annotations

import inspect
import linecache
import os
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import CompilationError, KernelAssertionError
from deuteron.compiler.ir import types as ir_types
from deuteron.compiler.language.tensor import shape_of
from deuteron.language.extra import libdevice

SEEN: list[Any] = []


@deuteron.jit
def double(x):
    return x + x


@deuteron.jit
def kernel(x, y, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    SEEN.append((int(pid), BLOCK))  # ordinary Python
    i = pid * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, double(tl.load(x + i, mask=i < n)), mask=i < n)


@deuteron.jit
def checked(x, limit):
    tl.device_assert(tl.load(x) < limit, "too large")


@pytest.fixture(autouse=True)
def interpret() -> Any:
    SEEN.clear()
    with knobs.interpret.scope(True):
        yield


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int32, ml_dtypes.bfloat16])
def test_python_runs(dtype: Any) -> None:
    x = np.arange(100).astype(dtype)
    y = np.zeros_like(x)
    assert kernel[(2,)](x, y, 70, BLOCK=64) is None
    assert SEEN == [(0, 64), (1, 64)]
    np.testing.assert_array_equal(y.astype(float), np.where(np.arange(100) < 70, 2 * x, 0))


def test_device_arrays() -> None:
    cpu = deuteron.get_device("cpu")
    x = cpu.array(np.arange(10, dtype=np.float32))
    y = cpu.empty((10,), "f32")
    kernel[(1,)](x, y, 10, BLOCK=16)
    np.testing.assert_array_equal(y.to_numpy(), 2 * x.to_numpy())


def test_debug_turns_assertions_on() -> None:
    x = np.array([5.0], np.float32)
    checked[(1,)](x, 3.0)
    with pytest.raises(KernelAssertionError, match="too large"):
        checked[(1,)](x, 3.0, debug=True)
    checked[(1,)](x, 7.0, debug=True)


def test_hooks_see_interpreted_launches(watch_launches: Any) -> None:
    with watch_launches() as events:
        x = np.ones(10, np.float32)
        kernel[(1,)](x, x, 10, BLOCK=16)
    (event,) = events
    assert (event.name, event.grid, event.device.name) == ("kernel", (1, 1, 1), "cpu")
    assert event.start_ns is not None and event.end_ns is not None
    assert event.start_ns < event.end_ns


PROGRAM = """
import numpy as np
import deuteron as triton
import deuteron.language as tl

@triton.jit
def kernel(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    value = tl.load(x + i)
    {statement}
    tl.store(x + i, value + 1)

x = np.arange(4, dtype=np.float32)
kernel[(1,)](x, BLOCK=4)
print(x.tolist())
"""


@pytest.mark.parametrize("variable", ["TRITON_INTERPRET", "DEUTERON_INTERPRET"])
def test_pdb_works_inside_a_kernel(tmp_path: Path, variable: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(statement="import pdb; pdb.set_trace()"))
    done = subprocess.run(
        [sys.executable, str(script)],
        input="p BLOCK\np value\nc\n",
        env={**os.environ, variable: "1"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "4" in done.stdout
    assert "[0. 1. 2. 3.]" in done.stdout
    assert "[1.0, 2.0, 3.0, 4.0]" in done.stdout


def test_without_the_variable_python_is_refused(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM.format(statement="import pdb; pdb.set_trace()"))
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "program.py:10" in done.stderr


SCALE = tl.constexpr(3.0)
LIMITS = types.SimpleNamespace(low=tl.constexpr(0.5))


@deuteron.jit
def shapes(x, y):
    at = tl.arange(0, 4)
    value = tl.load(x + at)
    if value.shape == [4] and value.shape[:1] == [4]:
        value += 1
    if value.shape != [8]:
        value += 1
    if value.shape == (4,) and value[:, None].shape == [4, 1]:
        value += 2
    tl.store(y + at, value)


def test_a_shape_equals_a_list() -> None:
    y = np.zeros(4, np.float32)
    shapes[(1,)](np.zeros(4, np.float32), y)
    np.testing.assert_array_equal(y, 4)


@deuteron.jit
def powers(x, y):
    at = tl.arange(0, 4)
    value = tl.load(x + at)
    tl.store(
        y + at,
        libdevice.pow(value, SCALE) + libdevice.round(LIMITS.low) + libdevice.log1p(SCALE) + libdevice.log1p(0.0),
    )


def test_constexprs_of_any_module_reach_libdevice() -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    powers[(1,)](x, y)
    np.testing.assert_allclose(y, x**3 + 1 + np.log1p(3.0), rtol=1e-6)


def test_a_kernel_without_source_text_runs() -> None:
    namespace: dict[str, Any] = {"deuteron": deuteron, "tl": tl}
    text = "@deuteron.jit\ndef made(x, n, BLOCK: tl.constexpr = 4):\n    at = tl.arange(0, BLOCK)\n"
    exec(text + "    tl.store(x + at, n, mask=at < 3)\n", namespace)  # noqa: S102
    x = np.zeros(4, np.float32)
    namespace["made"][(1,)](x, 7)
    np.testing.assert_array_equal(x, [7, 7, 7, 0])
    with pytest.raises(CompilationError, match="source of made is not available"):
        namespace["made"].warmup(x, 7, grid=(1,))
    with knobs.interpret.scope(False), pytest.raises(CompilationError, match="source of made is not available"):
        exec(text + "    tl.store(x + at, n)\n", namespace)  # noqa: S102
        namespace["made"][(1,)](x, 7)


def test_numbers_of_kernels_that_run_as_python_stay_in_them():
    """Sizes are remembered by shapes, and guards that are made of them go into the text of functions."""

    @deuteron.jit
    def filled(out):
        tl.store(out + tl.arange(0, 32)[:, None] * 2048 + tl.arange(0, 2048)[None, :], tl.full((32, 2048), 1, tl.int32))

    ir_types._product.cache_clear()
    shape_of.cache_clear()
    with knobs.interpret.scope(True):
        filled[(1,)](np.zeros((32, 2048), np.int32))
    assert type(ir_types.Tile(ir_types.I32, (32, 2048)).size) is int
    assert {type(n) for n in shape_of((32, 2048))} == {int}


def within(number: int) -> Any:
    limit, offset = tl.constexpr(number), tl.constexpr(0)

    @deuteron.jit
    def kernel(out, m, n, READ: tl.constexpr, BLOCK: tl.constexpr):
        row, column = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
        mask = row < m and column < n + offset and not (row == 1 or column == 1)
        if READ and not READ.shape:
            raise AssertionError("a constant decides what is evaluated")
        if m > 0 and n > 0:
            tl.store(out + row * BLOCK + column, 1, mask=mask or row == limit)

    return kernel


@pytest.mark.parametrize("interpreted", [True, False])
def test_logical_operators_of_tiles_are_elementwise(interpreted: bool) -> None:
    out = np.zeros((8, 8), np.int32)
    row, column = np.indices(out.shape)
    expected = (row < 3) & (column < 5) & (row != 1) & (column != 1) | (row == 6)
    with knobs.interpret.scope(interpreted):
        within(6)[(1,)](out, 3, 5, None, 8)
    np.testing.assert_array_equal(out, expected)


@deuteron.jit
def wrong_line(x):
    i = tl.arange(0, 4)
    mask = i < 2 and i > 0
    tl.store(x + i, 1, mask=mask and tl.arange(0, 3) < 2)


def test_errors_beside_logical_operators_name_their_line() -> None:
    with pytest.raises(CompilationError) as caught:
        wrong_line[(1,)](np.zeros(4, np.int32))
    assert caught.value.location is not None
    assert caught.value.location.line == inspect.getsourcelines(wrong_line.fn)[1] + 4


@deuteron.jit
def shifted(x, y, n, BITS: tl.constexpr):
    i = tl.arange(0, 16)
    a = tl.load(x + i)
    named = 8
    tl.store(y + i, (a << n) + (a >> named) + (1 << a) + (a << 7) + (a.to(tl.uint16) >> 15))
    tl.store(y + i, a >> BITS)
    a <<= 9
    tl.store(y + i, a)


@pytest.mark.parametrize("way", ["interpreted", "cpu", "cuda:90a"])
def test_shifts_by_known_numbers_of_the_width_or_more_give_a_warning(way: str) -> None:
    """As in Triton: where fp8 weights are unpacked as if `uint8 & 0x80` had 32 bits, the result is 0."""
    x, y = np.arange(16, dtype=np.uint8), np.zeros(16, np.uint8)
    with pytest.warns(UserWarning) as given, knobs.interpret.scope(way == "interpreted"):
        if way == "cuda:90a":
            types = {"x": "*u8", "y": "*u8", "n": "i32"}
            deuteron.compile(shifted, types, {"BITS": 8}, way, stop_after="tile")
        else:
            shifted[(1,)](x, y, 9, BITS=8)
    assert [(str(one.message).split(",")[0], linecache.getline(one.filename, one.lineno).strip()) for one in given] == [
        ("a shift by 8 of uint8", "tl.store(y + i, a >> BITS)"),
        ("a shift by 9 of uint8", "a <<= 9"),
    ]
    assert not y.any()
