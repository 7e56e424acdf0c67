"""Compiled kernels launched again: as if for the first time, whatever they were launched with before."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import pytest
from fake_driver import FakeDriver, FakeGpu
from fake_torch import FLOAT, HALF, Tensor
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.runtime import devices
from deuteron.compiler.runtime.launch.compiled import CompiledKernel
from deuteron.compiler.runtime.launch.forms import LaunchForms


def scale(x, one, out, n, by, wide, BLOCK: tl.constexpr, NAME: tl.constexpr = "a"):
    i = tl.arange(0, BLOCK) * one
    tl.store(out + i, tl.load(x + i, mask=i < n) * by + wide, mask=i < n)


TYPES = {"x": "*fp32:16", "one": "i32:1", "out": "*fp32", "n": "i32", "by": "fp32", "wide": "i32:16"}


@pytest.fixture
def made(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> CompiledKernel:
    monkeypatch.setitem(devices._known, "cuda:1", FakeGpu(1))
    driver.sizes = [8, 8, 4, 4, 4]
    return deuteron.compile(deuteron.JITFunction(scale), TYPES, {"BLOCK": 32}, "cuda:90a")


def again(kernel: CompiledKernel) -> CompiledKernel:
    """The kernel, never launched."""
    return CompiledKernel(kernel.metadata, kernel.signature, kernel._artifacts, kernel.variant)


def outcome(driver: FakeDriver, kernel: CompiledKernel, args: Sequence[object]) -> object:
    before = len(driver.launches)
    try:
        kernel[(2,)](*args)
    except DeuteronError as error:
        assert len(driver.launches) == before
        return type(error), str(error)
    launched = driver.launches[-1]
    return launched.grid, launched.parameters


TENSORS = st.builds(
    Tensor,
    st.sampled_from([0x7F0000001000, 0x7F0000001010, 0x7F0000001004, 0]),
    st.sampled_from([FLOAT, FLOAT, FLOAT, HALF]),
    st.sampled_from([0, 0, 0, 1]),
)
NUMBERS = st.sampled_from([1, 2, 7, 8, 16, 24, 40, -3, 2**31, True, 2.5, 1.0, None, "a", float("nan"), (1, 2)])
SIZES, WIDE = st.sampled_from([1, 7, 16]), st.sampled_from([48, 16, 40])
PASSED = st.tuples(TENSORS | NUMBERS, TENSORS, SIZES | NUMBERS, st.just(2.5) | NUMBERS, WIDE | NUMBERS)
ONES, BLOCKS, NAMES = ([1, True, 1.0, 2], [32, 32, 64, None], ["a", "a", "b"])
REST = st.tuples(st.sampled_from(BLOCKS), st.sampled_from(NAMES))


def with_one(passed: tuple[Any, ...], one: object) -> tuple[Any, ...]:
    x, *others = passed
    return (x, one, *others)


ALL = st.builds(with_one, PASSED, st.sampled_from(ONES))
ARGUMENTS = st.one_of(PASSED, ALL, st.tuples(ALL, REST).map(lambda p: (*p[0], *p[1])))


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(ARGUMENTS, min_size=2, max_size=8))
def test_every_launch_is_as_the_first(driver: FakeDriver, made: CompiledKernel, wanted: list[tuple[Any, ...]]) -> None:
    kernel = again(made)
    for args in [*wanted, *wanted]:
        assert outcome(driver, kernel, args) == outcome(driver, again(made), args)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What was found for arguments, by and by."""
    seen: list[object] = []
    find = LaunchForms.find

    def noted(self: LaunchForms, args: Sequence[object]) -> object:
        seen.append(find(self, args))
        return seen[-1]

    monkeypatch.setattr(LaunchForms, "find", noted)
    return seen


@pytest.mark.parametrize(("one", "rest"), [((), ()), ((1,), ()), ((1,), (32, "a"))])
def test_the_second_launch_of_a_form_needs_no_look(
    driver: FakeDriver, made: CompiledKernel, looks: list[object], one: tuple[int, ...], rest: tuple[object, ...]
) -> None:
    x = Tensor()
    for n in (16, 32, 7, 16, 9):
        made[(1,)](x, *one, Tensor(0x7F0000002000), n, 2.5, 48, *rest)
    assert [found is not None for found in looks] == [False, True, False, True, True]


def test_compile_time_values_are_looked_at_every_time(driver: FakeDriver, made: CompiledKernel) -> None:
    x = Tensor()
    for _ in range(2):
        made[(1,)](x, 1, x, 7, 2.5, 48, 32, "a")
        for one, block, name in [(2, 32, "a"), (1, 64, "a"), (1, 32, "b")]:
            with pytest.raises(DeuteronError, match="the kernel was compiled for"):
                made[(1,)](x, one, x, 7, 2.5, 48, block, name)


def test_promises_are_looked_at_every_time(driver: FakeDriver, made: CompiledKernel) -> None:
    x = Tensor()
    for _ in range(2):
        made[(1,)](x, x, 7, 2.5, 48)
        with pytest.raises(DeuteronError, match="'wide' is not a multiple of 16"):
            made[(1,)](x, x, 7, 2.5, 40)
        with pytest.raises(DeuteronError, match="'x' is not a multiple of 16"):
            made[(1,)](Tensor(0x7F0000001004), x, 7, 2.5, 48)


def test_arguments_are_not_kept_alive(driver: FakeDriver, made: CompiledKernel, looks: list[object]) -> None:
    """What a launch has no use for, and is no number or text, is no part of a form."""
    kernel = deuteron.compile(deuteron.JITFunction(optional), {"x": "*fp32"}, {"bias": None, "B": 8}, "cuda:90a")
    driver.sizes = [8]
    for _ in range(3):
        unused = Tensor()
        kernel[(1,)](Tensor(), unused, 8)
        left = weakref.ref(unused)
        del unused
        assert left() is None
    for _ in range(3):
        kernel[(1,)](Tensor(), None, 8)
    assert looks[-1] is not None


def optional(x, bias, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, 1.0 if bias is None else tl.load(bias + i))
