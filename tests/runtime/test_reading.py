"""What launches read in place, and how they tell arguments apart: as the reader of each class does."""

from __future__ import annotations

import enum
import math
from typing import Any

import numpy as np
import pytest
from fake_driver import FakeDriver, FakeGpu
from fake_torch import FLOAT, HALF, Dtype, Parameter, Shifted, Tensor
from hypothesis import given
from hypothesis import strategies as st

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.runtime import devices
from deuteron.compiler.runtime.arrays.arguments import pointers, readers, reading_text, tensor_classes
from deuteron.compiler.runtime.cuda import driver as cuda
from deuteron.compiler.runtime.variant.constants import constant_key, launch_key


def number(x, n):
    tl.store(x, n)


def test_tensors_of_other_kinds_in_the_same_call(driver: FakeDriver) -> None:
    kernel = deuteron.JITFunction(number)
    driver.sizes = [8, 4]

    def launch(tensor: Any) -> tuple[str, int]:
        """The type of the first parameter, and what is passed."""
        made = kernel[(1,)](tensor, 40)
        assert made is not None
        return str(made.signature["x"]), int.from_bytes(driver.launches[-1].parameters[0], "little")

    here, own = Tensor(), deuteron.get_device("cuda:0").empty((8,), "f16")
    expected = [
        (here, "*f32:16", here.address),
        (Tensor(0x7F0000001004), "*f32", 0x7F0000001004),
        (Tensor(dtype=HALF), "*f16:16", here.address),
        (Parameter(), "*f32:16", here.address),
        (Shifted(), "*f32:16", here.address + 16),
        (own, "*f16:16", own.address),
        (here, "*f32:16", here.address),
    ]
    for tensor, kind, address in expected * 2:
        assert launch(tensor) == (kind, address)
    assert {Tensor, Parameter, Shifted} <= tensor_classes
    here.address, here.dtype = 0x7F0000003008, HALF  # as by assigning to .data
    assert launch(here) == ("*f16", 0x7F0000003008)


def add(x, y, n, BLOCK: tl.constexpr = 32):
    i = tl.arange(0, BLOCK)
    tl.store(x + i, tl.load(y + i, mask=i < n), mask=i < n)


def test_tensors_of_another_device_in_the_same_call(driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(devices._known, "cuda:1", FakeGpu(1))
    asked: list[int] = []
    monkeypatch.setattr(cuda.streams, "current", lambda index: asked.append(index) or index)
    kernel = deuteron.JITFunction(add)
    for device in (0, 1, 0, 1):
        kernel[(1,)](Tensor(device=device), Tensor(device=device), 40)
    assert asked == [0, 1, 0, 1] == [made.stream for made in driver.launches]
    for _ in range(2):  # an error is not kept
        with pytest.raises(LaunchError, match="argument 'y' .* is on cuda:1, but 'x' is on cuda:0"):
            kernel[(1,)](Tensor(), Tensor(device=1), 40)
        with pytest.raises(LaunchError, match="argument 'y' .* is on cpu, but 'x' is on cuda:0"):
            kernel[(1,)](Tensor(), Tensor(device=-1), 40)
        with pytest.raises(LaunchError, match="argument 'x': dtype .* has no counterpart"):
            kernel[(1,)](Tensor(dtype=Dtype("complex64")), Tensor(), 40)
    assert len(driver.launches) == 4


@pytest.mark.parametrize(
    ("n", "kind", "size"),
    [
        *[(n, "i32", 4) for n in (2, 17, -1, 2**30 - 1, 2**30 + 1, 2**31 - 1, -(2**31) + 1)],
        *[(n, "i32:16", 4) for n in (0, 16, -16, 2**30, 2**31 - 16, -(2**31))],
        *[(n, "i64", 8) for n in (2**31 + 1, -(2**31) - 1, 2**63 - 1)],
        *[(n, "i64:16", 8) for n in (2**31, -(2**63))],
        (2**63 + 1, "u64", 8),
        (True, "i1", 1),
        (enum.IntEnum("Sizes", {"SMALL": 18}).SMALL, "i32", 4),  # type: ignore[attr-defined]
        (np.int64(19), "i32", 4),
    ],
)
def test_numbers_at_borders(driver: FakeDriver, n: Any, kind: str, size: int) -> None:
    kernel = deuteron.JITFunction(number)
    for value, expected, length in ((5, "i32", 4), (n, kind, size)) * 2:
        driver.sizes = [8, length]
        made = kernel[(1,)](Tensor(), value)
        assert made is not None and str(made.signature["n"]) == expected
        passed = driver.launches[-1].parameters[1]
        assert int.from_bytes(passed, "little", signed=not kind.startswith("u")) == int(value)


def test_one_is_not_passed(driver: FakeDriver) -> None:
    kernel = deuteron.JITFunction(number)
    for n in (1, 2, 1, 2):
        made = kernel[(1,)](Tensor(), n)
        assert made is not None and list(made.signature) == ["x", "n"][:n]


ARGUMENTS = st.one_of(
    st.integers(-(2**63), 2**64 - 1),
    st.integers(-40, 40),
    st.sampled_from([2**k + d for k in (4, 15, 30, 31, 32) for d in (-1, 0, 1)]),
    st.booleans(),
    st.floats(),
    st.none(),
    st.builds(
        lambda kind, address, dtype, device: kind(address, dtype, device),
        st.sampled_from([Tensor, Parameter, Shifted]),
        st.integers(0, 2**48),
        st.sampled_from([FLOAT, HALF]),
        st.integers(-1, 3),
    ),
)


@given(ARGUMENTS)
def test_what_is_read_in_place_is_what_the_reader_reads(argument: Any) -> None:
    scope = {"_d_tensors": tensor_classes, "_d_readers": readers, "argument": argument}
    readers[type(argument)](argument)
    exec("\n".join(reading_text("argument", "key", "home", "value")), scope)
    key, value = readers[type(argument)](argument)
    assert scope["value"] == value or value != value
    assert type(scope["value"]) is type(value)
    home: Any = scope["home"]
    assert (scope["key"] if home is None else pointers[home][scope["key"]][1]) == key


VALUES = st.one_of(
    st.integers(-2, 2),
    st.booleans(),
    st.sampled_from([0.0, -0.0, 1.0, -1.0, math.nan, math.inf, 0.5]),
    st.none(),
    st.sampled_from(["", "1", "None", "True", "f32", "float32"]),
    st.sampled_from([tl.float32, tl.int1, tl.float16, (1, 2), (True, 2), (bool, True), tl.constexpr(1)]),
)


@given(VALUES, VALUES)
def test_launches_tell_constants_apart_as_variants_do(first: Any, second: Any) -> None:
    try:
        same = constant_key(first) == constant_key(second)
    except LaunchError:  # a tuple with a Python class
        return
    found = launch_key(first), launch_key(second)
    if same and type(first) is type(second):
        assert found[0] == found[1] and hash(found[0]) == hash(found[1])
    if not same:
        assert found[0] != found[1]


def test_constants_that_are_equal_in_python(recorder: Any) -> None:
    @deuteron.jit
    def local(x, A: tl.constexpr):
        tl.store(x, 1)

    values: list[Any] = [1, True, 1.0, "1", 0.0, -0.0, 0, False, None, tl.float32, math.nan, "float32"]
    x = np.zeros(4, np.float32)
    for value in values * 2:
        local[(1,)](x, value)
        assert repr(recorder.last.constants["A"]) == repr(value)
    assert len(recorder.compiled) == len(values)
