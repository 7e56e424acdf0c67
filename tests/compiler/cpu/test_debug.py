"""Printing and assertions, and what the launcher makes of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from deuteron.compiler.errors import KernelAssertionError, LaunchError
from deuteron.compiler.ir import parse_type
from deuteron.compiler.targets import interpreter
from deuteron.compiler.targets.cpu import launch as launching
from deuteron.compiler.tile import debug
from deuteron.compiler.tile import elementwise as e
from deuteron.compiler.tile import memory as m
from deuteron.compiler.tile import program as p


def test_prints_what_the_interpreter_prints(kernel, run, capsys):
    x, number = kernel.parameter("x", "*f32"), kernel.parameter("number", "i32")
    tile = kernel.load(kernel.rows(x, (2, 4)))
    pid = kernel.emit(p.ProgramId(1))
    kernel.effect(debug.Print((tile, pid), "values"))
    kernel.effect(debug.Print((number,), "hex", True))
    kernel.effect(debug.Print((), "nothing"))
    data = np.arange(8, dtype=np.float32) / 2
    run(kernel.function, [data, 255], (1, 2, 1))
    shown = capsys.readouterr().out
    lines: list[str] = []
    interpreter.run(kernel.function, (1, 2, 1), [data, 255], on_print=lines.append)
    assert shown.splitlines() == lines


def failing(kernel, shape):
    """Asserts program id < limit in every lane, and counts the programs that got beyond."""
    counter, limit = kernel.parameter("counter", "*i32"), kernel.parameter("limit", "i32")
    pid = kernel.emit(p.ProgramId(0))
    fine = kernel.less(pid, limit)
    if shape:
        index = kernel.binary(e.Add, kernel.arange(shape), pid)
        fine = kernel.less(index, kernel.binary(e.Add, limit, shape - 1))
    kernel.effect(debug.Assert(fine, "too far"))
    kernel.emit(m.AtomicRMW(counter, kernel.constant(1, "i32")))
    return kernel.function


@pytest.mark.parametrize("shape", [None, 1, 8, 64])
def test_assertions_stop_the_grid(kernel, run, shape):
    function = failing(kernel, shape)
    counter = np.zeros(1, np.int32)
    run(function, [counter, 100], (100,), threads=2)
    assert counter[0] == 100
    counter[0] = 0
    with pytest.raises(KernelAssertionError, match=r"too far") as error:
        run(function, [counter, 40], (100,), threads=1)
    assert "program (40, 0, 0)" in str(error.value)
    assert counter[0] == 40


def test_of_several_that_fail_the_first_is_told(kernel, load_kernel, monkeypatch):
    """Whichever thread ends first."""
    counter = np.zeros(1, np.int32)
    compiled = load_kernel(failing(kernel, None))
    types = [parse_type("*i32"), parse_type("i32")]
    pool = SimpleNamespace(execute=lambda _total, _threads, launch: [launch.run(n, n + 1) for n in (3, 0, 1, 2)])
    monkeypatch.setattr(launching, "thread_pool", lambda: pool)
    with pytest.raises(KernelAssertionError, match=r"program \(1, 0, 0\)"):
        compiled.launch((4, 1, 1), [counter.ctypes.data, 1], types)
    assert counter[0] == 1


def test_assumptions_cost_nothing(kernel, run):
    out = kernel.parameter("out", "*i32")
    n = kernel.parameter("n", "i32")
    kernel.effect(debug.Assume(kernel.less(n, 100)))
    kernel.store(out, n)
    found = np.zeros(1, np.int32)
    run(kernel.function, [found, 7])
    assert found[0] == 7


def test_large_grids_run_every_program_once(kernel, load_kernel):
    out = kernel.parameter("out", "*i32")
    x, y, z = (kernel.emit(p.ProgramId(axis)) for axis in range(3))
    nx, ny = (kernel.emit(p.NumPrograms(axis)) for axis in range(2))
    linear = kernel.emit(e.Add(kernel.emit(e.Mul(kernel.emit(e.Add(kernel.emit(e.Mul(z, ny)), y)), nx)), x))
    place = kernel.emit(e.AddPtr(out, linear))
    kernel.store(place, kernel.binary(e.Add, kernel.load(place), 1))
    compiled = load_kernel(kernel.function)
    for grid in ((1, 1, 1), (7, 5, 3), (100_000, 1, 1), (1, 300, 200), (0, 4, 4)):
        for threads in (1, 2, 5):
            found = np.zeros(max(1, int(np.prod(grid))), np.int32)
            compiled.launch(grid, [found.ctypes.data], [parse_type("*i32")], threads)
            assert (found == (0 if 0 in grid else 1)).all()


def test_launches_from_several_threads(kernel, load_kernel):
    from concurrent.futures import ThreadPoolExecutor

    x = kernel.parameter("x", "*f32")
    where = kernel.pointers(
        x,
        kernel.binary(e.Add, kernel.arange(256), kernel.binary(e.Mul, kernel.emit(p.ProgramId(0)), 256)),
    )
    kernel.store(where, kernel.emit(e.Exp(kernel.load(where))))
    compiled = load_kernel(kernel.function)
    arrays = [np.full(256 * 64, i / 8, np.float32) for i in range(8)]

    def one(array):
        compiled.launch((64, 1, 1), [array.ctypes.data], [parse_type("*f32")], 2)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one, arrays))
    for i, array in enumerate(arrays):
        np.testing.assert_allclose(array, np.exp(i / 8), rtol=1e-6)


SCALARS = [
    ("i1", True, np.bool_), ("i8", -3, np.int8), ("u16", 60_000, np.uint16), ("i32", -7, np.int32),
    ("u64", 1 << 63, np.uint64), ("f16", 1.5, np.float16), ("f32", 0.1, np.float32), ("f64", 0.1, np.float64),
]  # fmt: skip


@pytest.mark.parametrize("name,value,dtype", SCALARS)
def test_scalar_arguments(kernel, run, name, value, dtype):
    out = kernel.parameter("out", f"*{name}")
    kernel.store(out, kernel.parameter("value", name))
    found = np.zeros(1, dtype)
    run(kernel.function, [found, value])
    assert found[0] == dtype(value)


def test_bf16_argument(kernel, run):
    import ml_dtypes

    out = kernel.parameter("out", "*bf16")
    kernel.store(out, kernel.parameter("value", "bf16"))
    found = np.zeros(1, ml_dtypes.bfloat16)
    run(kernel.function, [found, 1.1])
    assert found[0] == ml_dtypes.bfloat16(1.1)


def test_arguments_that_do_not_fit(kernel, load_kernel):
    out = kernel.parameter("out", "*i32")
    n = kernel.parameter("n", "i32")
    kernel.store(out, n)
    compiled = load_kernel(kernel.function)
    types = [parse_type("*i32"), parse_type("i32")]
    with pytest.raises(LaunchError, match="1 arguments for 2 parameters"):
        compiled.launch((1, 1, 1), [0], types)
    with pytest.raises(LaunchError, match="argument 1: int 1099511627776 does not fit i32"):
        compiled.launch((1, 1, 1), [0, 1 << 40], types)
    for grid in ((1, -1, 1), (1 << 31, 1, 0), (1, 1)):
        with pytest.raises(LaunchError, match="grid"):
            compiled.launch(grid, [0, 1], types)
