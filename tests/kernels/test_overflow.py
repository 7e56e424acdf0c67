"""Integer overflow under ``debug``: Python's integers say which results fit."""

from __future__ import annotations

import operator
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import compile, knobs
from deuteron.compiler.errors import KernelAssertionError

SIGNS = {"add": operator.add, "sub": operator.sub, "mul": operator.mul}


@triton.jit
def combined(x_ptr, y_ptr, z_ptr, SIGN: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    if SIGN == "add":
        z = x + y
    elif SIGN == "sub":
        z = x - y
    else:
        z = x * y
    tl.store(z_ptr + i, z)


def operands(dtype: str, sign: str, rng: np.random.Generator, fits: bool) -> tuple[np.ndarray, np.ndarray]:
    """16 pairs near the ends of the type: all results fit, or those of one pair do not."""
    low, high = (int(v) for v in (np.iinfo(dtype).min, np.iinfo(dtype).max))
    ends = [*range(low, low + 4), *range(-4, 5), *range(high - 3, high + 1), 1 << high.bit_length() // 2]
    pairs = [(a, b) for a in ends for b in ends if low <= a <= high and low <= b <= high]
    good = [p for p in pairs if low <= SIGNS[sign](*p) <= high]
    bad = [p for p in pairs if p not in good]
    chosen = [good[k] for k in rng.integers(0, len(good), 16)]
    if not fits:
        chosen[rng.integers(0, 16)] = bad[rng.integers(0, len(bad))]
    x, y = zip(*chosen, strict=True)
    return np.array(x, dtype), np.array(y, dtype)


@pytest.mark.parametrize(
    ("dtype", "sign"),
    [("int8", "mul"), ("int16", "sub"), ("int32", "add"), ("uint8", "add"), ("uint32", "sub"), ("uint32", "mul")],
)
def test_what_does_not_fit_fails_and_what_fits_does_not(launch, rng, gpu_errors_end_the_context, dtype, sign):
    x, y = operands(dtype, sign, rng, fits=True)
    exact = [SIGNS[sign](int(a), int(b)) for a, b in zip(x, y, strict=True)]
    assert launch(combined, (1,), x, y, np.zeros_like(x), SIGN=sign, N=16, debug=True)[2].tolist() == exact
    x, y = operands(dtype, sign, rng, fits=False)
    bits = 8 * x.itemsize
    with pytest.raises(KernelAssertionError, match=f"int{bits} overflow detected for operation {sign}"):
        launch(combined, (1,), x, y, np.zeros_like(x), SIGN=sign, N=16, debug=True)


@pytest.fixture
def gpu_errors_end_the_context(request: pytest.FixtureRequest) -> None:
    if request.node.callspec.params.get("launch") == "cuda":
        pytest.skip("a failed assertion ends the context of the process; test_cuda.py has one of its own")


@triton.jit
def careful(a, b):
    tl.device_assert(a + b < 100, "too much")
    return a + b


@triton.jit
def summed(x_ptr, sum_ptr, sums_ptr, read: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, N)
    x = tl.load(x_ptr + i)
    total = tl.reduce(x, 0, careful)
    if read:
        tl.store(sum_ptr, total)
    tl.store(sums_ptr + i, tl.associative_scan(x, 0, careful))


@pytest.mark.parametrize("read", [False, True])
def test_assertions_of_combining_functions(launch, gpu_errors_end_the_context, read):
    x = np.arange(13).repeat(5)[:64].astype(np.int32) % 2
    made = launch(summed, (1,), x, np.zeros(1, np.int32), np.zeros_like(x), read=read, N=64, debug=True)
    assert made[1] == (x.sum() if read else 0)
    assert (made[2] == x.cumsum()).all()
    x[7] = 99
    with pytest.raises(KernelAssertionError, match="too much"):
        launch(summed, (1,), x, np.zeros(1, np.int32), np.zeros_like(x), read=read, N=64, debug=True)


@triton.jit
def added(x_ptr, N: tl.constexpr):
    tl.reduce(tl.load(x_ptr + tl.arange(0, N)), 0, careful)


def test_an_assertion_keeps_a_sum_that_nobody_reads(launch, gpu_errors_end_the_context):
    launch(added, (1,), np.ones(64, np.int32), N=64, debug=True)
    with pytest.raises(KernelAssertionError, match="too much"):
        launch(added, (1,), np.full(64, 2, np.int32), N=64, debug=True)


def wrapped(x: np.ndarray, y: np.ndarray, sign: str) -> np.ndarray:
    return getattr(np, {"add": "add", "sub": "subtract", "mul": "multiply"}[sign])(x, y)


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("options", [{}, {"sanitize_overflow": True}, {"debug": True, "sanitize_overflow": False}])
def test_without_debug_or_with_the_option_integers_wrap(rng, options, interpreted):
    x, y = operands("int32", "mul", rng, fits=False)
    got = np.zeros_like(x)
    with knobs.interpret.scope(interpreted):
        combined[(1,)](x, y, got, SIGN="mul", N=16, **options)
    np.testing.assert_array_equal(got, wrapped(x, y, "mul"))


def test_64_bits_are_not_checked(launch):
    x, y = np.array([2**63 - 1, -(2**63)] * 8, np.int64), np.array([3, 5] * 8, np.int64)
    got = launch(combined, (1,), x, y, np.zeros_like(x), SIGN="mul", N=16, debug=True)[2]
    np.testing.assert_array_equal(got, wrapped(x, y, "mul"))


@triton.jit
def twice(x):
    return x + x


@triton.jit
def forms(x_ptr, FORM: tl.constexpr):
    i = tl.arange(0, 4)
    x = tl.load(x_ptr + i)
    if FORM == "in place":
        x += 1
    elif FORM == "with a number":
        x = 1 + x
    elif FORM == "negated":
        x = -x
    elif FORM == "in a helper":
        x = twice(x)
    elif FORM == "function":
        x = tl.add(x, 1)
    elif FORM == "function that wraps":
        x = tl.add(x, 1, sanitize_overflow=False)
    elif FORM == "sum":
        x = tl.sum(x, axis=0) + 0 * x
    elif FORM == "scan":
        x = tl.cumsum(x, axis=0)
    elif FORM == "random":
        x = tl.randint(x, i).to(tl.int32)
    elif FORM == "loop":
        for k in range(2147483646, 2147483647):
            x = x - x + k
    tl.store(x_ptr + i, x)


def run_forms(form: str, interpreted: bool, values: list[int], **options: Any) -> list[int]:
    x = np.array(values, np.int32)
    with knobs.interpret.scope(interpreted):
        forms[(1,)](x, FORM=form, **options)
    return x.tolist()


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize(
    ("form", "value", "sign"),
    [
        *(("in place", 2**31 - 1, "add"), ("with a number", 2**31 - 1, "add"), ("negated", -(2**31), "sub")),
        *(("in a helper", 2**30, "add"), ("function", 2**31 - 1, "add")),
    ],
)
def test_every_form_of_the_kernels_own_arithmetic_is_checked(form, value, sign, interpreted):
    with pytest.raises(KernelAssertionError, match=rf"test_overflow\.py:\d+.*int32 overflow .* {sign}"):
        run_forms(form, interpreted, [0, 0, value, 0], debug=True)
    run_forms(form, interpreted, [0, 0, 1, 0], debug=True)


@pytest.mark.parametrize("interpreted", [False, True])
@pytest.mark.parametrize("form", ["function that wraps", "sum", "scan", "random", "loop"])
def test_the_languages_own_arithmetic_and_counting_wraps(form, interpreted):
    values = [2**31 - 1, 2**31 - 1, -(2**31), 5]
    assert run_forms(form, interpreted, values, debug=True) == run_forms(form, interpreted, values)


def test_the_knob_checks_all_kernels():
    with knobs.debug.scope(True), pytest.raises(KernelAssertionError, match="int32 overflow"):
        run_forms("in place", False, [2**31 - 1] * 4)
    with knobs.debug.scope(True):
        assert run_forms("in place", False, [2**31 - 1] * 4, sanitize_overflow=False) == [-(2**31)] * 4


@pytest.mark.parametrize("target", ["cpu", "cuda:90a"])
def test_code_without_debug_is_the_same_to_the_byte(target):
    """With and without the option; only ``debug`` makes a difference."""
    signature = {"x_ptr": "*i32:16", "y_ptr": "*i32:16", "z_ptr": "*i32:16"}

    def text(**options: bool) -> object:
        made = compile(combined, signature, {"SIGN": "mul", "N": 16}, target, stop_after="llvm", **options)
        return made.asm["llvm"]

    assert text() == text(sanitize_overflow=True) == text(sanitize_overflow=False)
    assert text(debug=True) != text() == text(debug=True, sanitize_overflow=False)


@triton.jit
def underflowed(x_ptr, bound):
    x = tl.load(x_ptr + tl.arange(0, 4))
    tl.store(x_ptr + tl.arange(0, 4), tl.expect_zero(x, tl.arange(0, 4) < bound) + 1.0)


@pytest.mark.parametrize("interpreted", [False, True])
def test_expect_zero_is_an_assertion_of_debug_kernels(interpreted):
    x = np.array([0, 0, 3, 4], np.float32)
    with knobs.interpret.scope(interpreted):
        underflowed[(1,)](x, 3)
        assert x.tolist() == [1, 1, 4, 5]
        x[:2] = 0
        underflowed[(1,)](x, 2, debug=True)
        assert x.tolist() == [1, 1, 5, 6]
        with pytest.raises(KernelAssertionError, match="expected x == 0 where mask is true"):
            underflowed[(1,)](x, 1, debug=True)


@pytest.mark.gpu
def test_overflow_on_a_gpu(tmp_path):
    """In a child process: the context is lost afterwards."""
    program = tmp_path / "program.py"
    program.write_text(GPU_PROGRAM)
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, timeout=120, check=False)
    assert "device-side assert" in done.stdout, done.stderr
    assert "int32 overflow detected for operation add" in done.stderr


GPU_PROGRAM = """
import numpy as np
import deuteron, deuteron.language as tl

@deuteron.jit
def kernel(x):
    tl.store(x, tl.load(x) + 1)

gpu = deuteron.get_device("cuda:0")
try:
    kernel[(1,)](gpu.array(np.array([2**31 - 1], np.int32)), debug=True)
    gpu.synchronize()
except RuntimeError as error:
    print(error)
"""
