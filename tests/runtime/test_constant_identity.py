"""Compile-time values are known by what they are, not by what their classes print."""

from __future__ import annotations

import enum
import math
import struct
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pytest

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import KernelMismatch, LaunchError, UnknownName
from deuteron.compiler.language.aggregate import Aggregate, AggregateType
from deuteron.compiler.runtime.launch.binding import _hashable
from deuteron.compiler.runtime.tuning.tuning_key import tuning_key
from deuteron.compiler.runtime.variant.constants import constant_text, launch_key
from deuteron.compiler.source.kernel import KernelSource


@dataclass(frozen=True)
class Mode:
    name: str
    code: object = field(repr=False, compare=False)


class Short(enum.Enum):
    A = 1
    B = 2

    def __repr__(self) -> str:
        return "Short"

    def __hash__(self) -> int:
        return 1


class Named(enum.Enum):
    float32 = 1


class Other(enum.IntEnum):
    A = 1


class Rounded:
    __slots__ = ("__exact",)

    def __init__(self, value: float) -> None:
        self.__exact = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rounded) and self.__exact == other.__exact

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return f"{self.__exact:.1f}"


class dtype(Rounded):  # noqa: N801 -- a name that says nothing
    item = shape = ()

    def __str__(self) -> str:
        return "float32"


class Quiet(int):
    def __repr__(self) -> str:
        return "Quiet"


class Pair(NamedTuple):
    x: object
    y: object


class Point(NamedTuple):
    a: object
    b: object


def nan_of(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<Q", bits))[0])


def local_class(value: int) -> Any:
    class Local(enum.Enum):
        A = value

    return Local.A


FIRST, SECOND = local_class(1), local_class(1)

VALUES: list[object] = [
    *(Mode("m", 2), Mode("m", 3), Mode("m", True), Mode("m", (1, 0.0)), Mode("m", (1, -0.0)), Mode("n", 2)),
    *(Short.A, Short.B, Named.float32, Other.A, FIRST, SECOND),
    *(Rounded(1.01), Rounded(1.02), Quiet(1), Quiet(2), dtype(1.0), dtype(2.0)),
    *(1, True, 1.0, 0, False, 0.0, -0.0, None, math.nan, nan_of(0x7FF8000000000123), nan_of(0xFFF8000000000000)),
    *("1", "None", "it's", 'it"s', "it\\'s", "float32", "(1, 2)"),
    *((1, 2), [1, 2], (1, (2,)), ((1,), 2), (True, 2), Pair(1, 2), Point(1, 2), ("1, 2",)),
    *(np.float32(1), np.float64(1), np.int64(1), np.int8(1), np.bool_(True), np.array(1)),
    *(tl.float32, np.dtype("float32"), np.dtype(">f4"), np.float32, float),
    *(uuid.UUID(int=5), uuid.UUID(int=6), Decimal("1"), Decimal("1.0"), Fraction(1, 3), 1j, b"1", frozenset({1, 2})),
]


def test_different_values_have_different_texts_and_keys() -> None:
    for first, second in combinations(VALUES, 2):
        assert constant_text(first) != constant_text(second), (first, second)
        assert launch_key(first) != launch_key(second), (first, second)


def test_equal_values_have_one_text() -> None:
    assert constant_text(Mode("m", (1, 2))) == constant_text(Mode("m", (1, 2)))
    assert constant_text(frozenset("abc")) == constant_text(frozenset("cba"))
    assert constant_text(math.nan) == constant_text(float("nan"))


class Holder:
    """What it holds is not told apart by what it is."""

    def __init__(self, held: object) -> None:
        self.held = held

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Holder)

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Holder"


def circle() -> Holder:
    made = Holder(None)
    made.held = made
    return made


@pytest.mark.parametrize(
    "value",
    [Holder(lambda: 1), Holder(struct.Struct("i")), Holder(np.zeros(3)), circle(), np.zeros(3), lambda: 1, object()],
)
def test_what_cannot_be_told_is_refused(value: object) -> None:
    with pytest.raises(LaunchError, match="cannot be a compile-time value|cannot be known at compile time"):
        constant_text(value)


KNOWN: Any = tl.constexpr(Mode("m", 2))


@deuteron.jit
def known(out, M: tl.constexpr):
    tl.store(out, 2 if M == KNOWN else 7)


def stored(kernel: Any, *args: object) -> int:
    out = np.zeros(1, np.int32)
    kernel[(1,)](out, *args)
    return int(out[0])


@pytest.mark.parametrize("pair", [(Short.A, Short.B), (Rounded(1.01), Rounded(1.02)), (Named.float32, tl.float32)])
def test_the_second_value_does_not_run_the_variant_of_the_first(
    pair: tuple[object, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "KNOWN", tl.constexpr(pair[0]))
    kernel: Callable[..., None] = deuteron.jit(known.fn)
    assert [stored(kernel, value) for value in pair] == [2, 7]
    again: Callable[..., None] = deuteron.jit(known.fn)  # has only the disk cache in common with the first
    assert [stored(again, value) for value in reversed(pair)] == [7, 2]


@pytest.mark.parametrize("values", [*combinations(VALUES[:16], 2), (math.nan, nan_of(0x7FF8000000000123))])
def test_kernels_with_different_globals_have_different_hashes(
    values: tuple[object, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = set()
    for value in values:
        monkeypatch.setitem(globals(), "KNOWN", tl.constexpr(value))
        hashes.add(KernelSource.from_function(known.fn).hash)
    assert len(hashes) == 2


def test_a_global_that_cannot_be_told_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "KNOWN", tl.constexpr(Holder(lambda: 1)))
    with pytest.raises(UnknownName, match="the global 'KNOWN': a .*function cannot be a compile-time value"):
        stored(deuteron.jit(known.fn), 1)


def test_a_changed_global_of_a_class_of_ones_own_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "KNOWN", tl.constexpr(Rounded(1.01)))
    kernel = deuteron.jit(known.fn)
    assert stored(kernel, Rounded(1.01)) == 2
    monkeypatch.setitem(globals(), "KNOWN", tl.constexpr(Rounded(1.01)))
    assert stored(kernel, Rounded(1.01)) == 2
    monkeypatch.setitem(globals(), "KNOWN", tl.constexpr(Rounded(1.02)))
    with pytest.raises(KernelMismatch, match="KNOWN has changed"):
        stored(kernel, Rounded(1.01))


@deuteron.jit
def bits_of(out, X: tl.constexpr):
    tl.store(out, tl.full((), X, tl.float64).to(tl.int64, bitcast=True))


def test_tuples_of_classes_written_in_c_are_what_they_hold() -> None:
    """As torch.Size is, which programs pass as a shape."""
    first, second = (time.gmtime(second) for second in (0, 1))
    assert constant_text(first) == constant_text(time.gmtime(0)) != constant_text(second)
    assert constant_text(first) != constant_text(tuple(first))


def test_the_bits_of_a_nan_are_kept() -> None:
    out = np.zeros(1, np.int64)
    for bits in (0x7FF8000000000000, 0x7FF8000000000123):
        bits_of[(1,)](out, nan_of(bits))
        assert out[0] == bits


def test_aggregates_with_other_defaults_are_other_compile_time_values() -> None:
    def made(default: object) -> str:
        body = {"__module__": __name__, "__annotations__": {"width": tl.constexpr}, "width": default}
        return constant_text(AggregateType("Made", (Aggregate,), body))

    assert made(Mode("m", 1)) == made(Mode("m", 1)) != made(Mode("m", 2))


def test_launch_options_without_a_hash_are_told_apart_by_what_they_hold() -> None:
    assert _hashable(("libs", {"a": Short.A})) != _hashable(("libs", {"a": Short.B}))
    assert _hashable(("libs", {"a": [1]})) == _hashable(("libs", {"a": [1]}))
    assert _hashable(("libs", bytearray())) != _hashable(("libs", bytearray()))


def test_values_wrapped_as_compile_time_values_are_keys_of_their_own() -> None:
    """``tl.constexpr(1)`` is 1 to a kernel and to ``@autotune``, also within a tuple, and not ``tl.constexpr(2)``."""
    keys = [
        tuning_key({"mode": mode}, ["mode"], ["mode"])
        for mode in (1, tl.constexpr(1), 2, tl.constexpr(2), (tl.constexpr(1), 3), (1, 3), (tl.constexpr(2), 3))
    ]
    assert [keys.index(key) for key in keys] == [0, 0, 2, 2, 4, 4, 6]
