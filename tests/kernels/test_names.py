"""What names in kernels are, where Triton and Python differ, and values of Python's own as compile-time arguments."""

# ruff: noqa: F821, F823, F841 -- kernels that read a global before they assign its name

from __future__ import annotations

import enum
import uuid

import numpy as np
import pytest

import deuteron as triton
import deuteron.language as tl
from deuteron.compiler.errors import KernelMismatch, LaunchError, TypeMismatch, UnknownName
from deuteron.compiler.source.kernel import KernelSource

SIZE = tl.constexpr(5)


class Mode(enum.Enum):
    DOUBLE = 2
    TRIPLE = 3


DOUBLE = tl.constexpr(Mode.DOUBLE)


@triton.jit
def read_then_assigned(x_ptr):
    before = SIZE
    _, SIZE = 0, 3
    tl.store(x_ptr, before * 10 + SIZE)


@triton.jit
def grown(x_ptr):
    SIZE += 2
    tl.store(x_ptr, SIZE)


@triton.jit
def read_in_a_loop(x_ptr, n):
    for i in range(n):
        if i > 0:
            tl.store(x_ptr, SIZE)
        SIZE = i


@triton.jit
def assigned_in_a_loop(x_ptr, n):
    for i in range(n):
        SIZE = i
    tl.store(x_ptr, SIZE)


@triton.jit
def assigned_on_one_path(x_ptr, n):
    if n > 3:
        SIZE = 1
    tl.store(x_ptr, SIZE)


@triton.jit
def counts_by_it(x_ptr):
    for SIZE in range(SIZE):  # noqa: B020 -- Triton and deuteron read the global
        tl.store(x_ptr, tl.load(x_ptr) + SIZE)


@triton.jit
def in_a_comprehension(x_ptr):
    first, second = [SIZE + i for i in (0, 1)]
    SIZE = 3
    tl.store(x_ptr, first * 100 + second * 10 + SIZE)


@triton.jit
def of_a_comprehension(x_ptr):
    (first,) = [SIZE for SIZE in (2,)]  # noqa: C416 -- its own variable
    tl.store(x_ptr, first * 10 + SIZE)


@triton.jit
def in_an_unrolled_loop(x_ptr):
    for i in tl.static_range(3):
        tl.store(x_ptr, tl.load(x_ptr) * 10 + SIZE)
        SIZE = i


@triton.jit
def in_the_condition(x_ptr):
    i = 0
    while i < SIZE:
        i += 1
        SIZE = 100
    tl.store(x_ptr, i)


@pytest.mark.parametrize(
    ("kernel", "stored"),
    [
        (read_then_assigned, 53),
        (grown, 7),
        (counts_by_it, 10),
        (in_a_comprehension, 563),
        (of_a_comprehension, 25),
        (in_an_unrolled_loop, 501),
        (in_the_condition, 5),
    ],
)
def test_a_global_is_read_until_the_kernel_assigns_its_name(kernel, stored):
    x = np.zeros(1, np.int32)
    kernel[(1,)](x)
    assert x[0] == stored


@triton.jit
def in_a_branch_that_is_known(x_ptr, KNOWN: tl.constexpr):
    if KNOWN:
        SIZE = 1
    tl.store(x_ptr, SIZE)


def test_a_branch_that_is_not_taken_assigns_nothing():
    x = np.zeros(2, np.int32)
    for i in range(2):
        in_a_branch_that_is_known[(1,)](x[i:], bool(i))
    assert list(x) == [5, 1]


def test_each_iteration_reads_the_global_before_it_assigns_the_name():
    x = np.zeros(1, np.int32)
    read_in_a_loop[(1,)](x, 4)
    assert x[0] == 5


TEXT = """
import triton.language as tl
import numpy as np
SIZE = tl.constexpr(5)
held = np.zeros(3)

@triton.jit
def kernel(x_ptr, n):
    for i in range(n):
        held = i
        tl.store(x_ptr + held, SIZE)
    for held in range(n):
        SIZE = held
"""


def test_globals_of_a_text_are_asked_for_only_where_they_are_read():
    first, second = (
        KernelSource.from_text(text, "kernel").hash for text in (TEXT, TEXT.replace("zeros(3)", "zeros(4)"))
    )
    assert first == second != KernelSource.from_text(TEXT.replace("(5)", "(6)"), "kernel").hash


def test_such_a_global_may_not_change(monkeypatch):
    x = np.zeros(1, np.int32)
    read_then_assigned[(1,)](x)
    key = read_then_assigned.cache_key
    monkeypatch.setitem(globals(), "SIZE", tl.constexpr(6))
    assert read_then_assigned.cache_key != key
    with pytest.raises(KernelMismatch, match="SIZE has changed"):
        read_then_assigned[(1,)](x)


@pytest.mark.parametrize("kernel", [assigned_in_a_loop, assigned_on_one_path])
def test_where_an_assignment_may_have_been_the_name_is_the_kernels_own(kernel):
    with pytest.raises(UnknownName, match="'SIZE' is not defined here"):
        kernel[(1,)](np.zeros(1, np.int32), 4)


@triton.jit
def scaled(x_ptr, MODE: tl.constexpr, LABEL: tl.constexpr):
    tl.static_print(LABEL)
    factor = 2 if MODE == DOUBLE else 3
    tl.store(x_ptr, tl.load(x_ptr) * factor)


def test_members_of_enums_and_other_values_are_compile_time_arguments(launch, capsys):
    label = uuid.UUID(int=5)
    for mode in Mode:
        (x,) = launch(scaled, (1,), np.full(1, 7, np.int32), MODE=mode, LABEL=label)
        assert x[0] == 7 * mode.value
    assert str(label) in capsys.readouterr().out


@pytest.mark.parametrize("value", [object(), np.zeros(2), lambda: 1, [set()]])
def test_what_is_not_its_text_is_none(value):
    with pytest.raises(LaunchError, match="cannot be a compile-time value"):
        scaled[(1,)](np.zeros(1, np.int32), value, 1)


@triton.jit
def of_two_sizes(n):
    if n == 0:
        return tl.arange(0, 4)
    return tl.arange(0, 8)


@triton.jit
def calling(x_ptr, n):
    tl.store(x_ptr + of_two_sizes(n), 1)


def test_results_of_two_types_name_the_function():
    with pytest.raises(TypeMismatch) as error:
        calling[(1,)](np.zeros(8, np.int32), 3)
    assert "tile<4xi32> on one path" in str(error.value) and "returned at 1:0: in of_two_sizes" in str(error.value)
    assert "called at 2:21: in calling" in str(error.value)


def test_libdevice_may_be_named():
    x = np.ones(1, np.int32)
    for libraries in ({}, {"libdevice": "libdevice.10.bc"}, (("libdevice", "a"),), None):
        scaled[(1,)](x, Mode.DOUBLE, 0, extern_libs=libraries)
    assert x[0] == 16
    with pytest.raises(triton.DeuteronError, match="extern_libs"):
        scaled[(1,)](x, Mode.DOUBLE, 0, extern_libs={"mine": "a.bc"})


def test_an_architecture_is_that_of_the_device_or_refused():
    x = np.ones(1, np.int32)
    scaled[(1,)](x, Mode.DOUBLE, 0, arch=None)
    assert x[0] == 2
    with pytest.raises(triton.DeuteronError, match="arch = 'sm80' does not exist"):
        scaled[(1,)](x, Mode.DOUBLE, 0, arch="sm80")


@triton.constexpr_function
def width():
    return SIZE


@triton.constexpr_function
def of_python():
    return np.zeros(3)


@triton.jit
def as_wide(x_ptr):
    tl.store(x_ptr, width())


def test_functions_of_compile_time_values_have_a_text_and_a_key():
    before, text = as_wide.cache_key, width.src
    assert text == "def width():\n    return SIZE" and len(width.cache_key) == 64
    width._unsafe_update_src(text.replace("SIZE", "SIZE + 1"))
    assert as_wide.cache_key != before
    x = np.zeros(1, np.int32)
    as_wide[(1,)](x)
    assert x[0] == 6
    width._unsafe_update_src(text)
    assert as_wide.cache_key == before
    with pytest.raises(RuntimeError, match="of_python has no key.*zeros"):
        _ = of_python.cache_key
