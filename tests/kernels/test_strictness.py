"""What kernels and launches are refused, and how types and messages look."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler import knobs
from deuteron.compiler.errors import CompilationError, KernelAssertionError, TypeMismatch


@triton.jit
def add_atomically(x_ptr):
    tl.atomic_add(x_ptr, 1)


@triton.jit
def largest_atomically(x_ptr):
    tl.atomic_max(x_ptr, 1)


@triton.jit
def swapped_atomically(x_ptr):
    tl.atomic_cas(x_ptr, 0, 1)


@pytest.mark.parametrize("dtype", [np.int16, np.uint16])
def test_atomics_of_16_bit_integers_are_refused(dtype):
    for kernel in (add_atomically, largest_atomically):
        with pytest.raises(Exception, match="does not exist") as error:
            kernel[(1,)](np.zeros(1, dtype))
        assert "int32, uint32, int64, uint64" in str(error.value)


def test_atomics_of_halves_only_add():
    x = np.zeros(1, np.float16)
    add_atomically[(1,)](x)
    assert x[0] == 1
    with pytest.raises(Exception, match="does not exist") as error:
        largest_atomically[(1,)](x)
    assert "float32 or float64" in str(error.value)


def test_compare_and_swap_takes_16_bits():
    x = np.zeros(1, np.int16)
    swapped_atomically[(1,)](x)
    assert x[0] == 1


@triton.jit
def random(seed_ptr, out_ptr, NAME: tl.constexpr):
    seed = tl.load(seed_ptr)
    at = tl.arange(0, 16)
    if NAME == "pointer":
        tl.store(out_ptr + at, tl.rand(seed_ptr, at))
    elif NAME == "rand":
        tl.store(out_ptr + at, tl.rand(seed, at))
    elif NAME == "randn":
        tl.store(out_ptr + at, tl.randn(seed, at))
    elif NAME == "randint":
        tl.store(out_ptr + at, tl.randint(seed, at))
    else:
        tl.store(out_ptr + at, tl.rand(tl.cast(seed, tl.int32), at * 1.0))


@pytest.mark.parametrize("name", ["rand", "randn", "randint", "offset", "pointer"])
@pytest.mark.parametrize("interpreted", [False, True])
def test_seeds_and_offsets_are_integers(name, interpreted):
    with knobs.interpret.scope(interpreted), pytest.raises(TypeMismatch, match="is an integer, got"):
        random[(1,)](np.ones(1, np.float32), np.zeros(16, np.float32), name)


def test_a_constexpr_is_always_specialized():
    @triton.jit(do_not_specialize=["N"])
    def kernel(x_ptr, N: tl.constexpr):
        tl.store(x_ptr, N)

    @triton.jit(do_not_specialize_on_alignment=[1])
    def other(x_ptr, N: tl.constexpr):
        tl.store(x_ptr, N)

    for each in (kernel, other):
        with pytest.raises(CompilationError, match="marked as constexpr and listed in do_not_specialize"):
            each[(1,)](np.zeros(1), 3)


def test_types_show_as_they_are_written():
    shown = {tl.int1: "int1", tl.int8: "int8", tl.uint64: "uint64", tl.float16: "float16", tl.bfloat16: "bfloat16",
             tl.float8e4nv: "float8e4nv", tl.float8e5: "float8e5"}  # fmt: skip
    for type, name in shown.items():
        assert repr(type) == f"triton.language.{name}"


@triton.jit
def printing(x_ptr, PREFIX: tl.constexpr):
    tl.device_print(PREFIX, tl.load(x_ptr))


@pytest.mark.parametrize("prefix", ["x", "x:", "x: ", "x "])
@pytest.mark.parametrize("interpreted", [False, True])
def test_one_colon_after_a_prefix(capfd, prefix, interpreted):
    with knobs.interpret.scope(interpreted):
        printing[(1,)](np.array([126], np.int32), prefix)
    assert capfd.readouterr().out == "pid (0, 0, 0) idx () x: 126\n"


@triton.jit(debug=False)
def asserting(x_ptr):
    tl.device_assert(tl.load(x_ptr) > 0, "not positive")


@pytest.mark.parametrize("interpreted", [False, True])
def test_the_debug_knob_wins_over_the_decorator(interpreted):
    x = np.zeros(1, np.int32)
    with knobs.interpret.scope(interpreted):
        asserting[(1,)](x)
        with knobs.debug.scope(True):
            for options in ({}, {"debug": False}):
                with pytest.raises(KernelAssertionError, match="not positive"):
                    asserting[(1,)](x, **options)
        with pytest.raises(KernelAssertionError):
            asserting[(1,)](x, debug=True)


def test_a_failed_assertion_is_a_runtime_error():
    with pytest.raises(RuntimeError, match="not positive"):
        asserting[(1,)](np.zeros(1, np.int32), debug=True)


@triton.jit
def larger(a, b):
    return tl.maximum(a, b)


@triton.jit
def largest(x_ptr, y_ptr, N: tl.constexpr):
    tl.store(y_ptr, tl.reduce(tl.load(x_ptr + tl.arange(0, N)), 0, larger))


def test_a_combining_function_gives_what_it_takes():
    """tl.maximum makes f32 of bf16, as in Triton, whose compiler stops at an assertion here."""
    x = np.arange(32, dtype=ml_dtypes.bfloat16)
    with pytest.raises(TypeMismatch, match=r"gives \(f32\) where the operands are of \(bf16\)") as error:
        largest[(1,)](x, x, N=32)
    assert "tl.maximum" in (error.value.hint or "")
