"""Which variant a launch needs: types by value, promises, constants, annotations."""

from __future__ import annotations

import ctypes
import enum
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import LaunchError
from deuteron.compiler.runtime.arrays.arguments import read_int, readers
from deuteron.compiler.runtime.cuda import driver
from deuteron.compiler.runtime.variant.constants import constant_text
from deuteron.compiler.runtime.variant.specialization import specialization_text, variant_from_text
from deuteron.compiler.runtime.variant.variant import make_variant
from deuteron.compiler.signature import parse_argument_type
from deuteron.tools.tensor_descriptor import TensorDescriptor


@deuteron.jit
def copy(x, y, n, BLOCK: tl.constexpr = 64, FLAG: tl.constexpr = None):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n), mask=i < n)


@deuteron.jit
def flagged(y, FLAG: tl.constexpr):
    tl.store(y, FLAG)


class Mode(enum.IntEnum):
    FAST = 2


@deuteron.jit(do_not_specialize=["n"], do_not_specialize_on_alignment=["x", 3])
def loose(x, y, n, m):
    tl.store(y + n, tl.load(x + m))


@deuteron.jit
def annotated(x: tl.const, n: tl.int64, s: tl.float64, b: tl.int1, w: tl.bfloat16):
    tl.store(x, s)


def aligned(offset: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """An array whose address is ``offset`` bytes past a multiple of 64."""
    raw = np.zeros(256, np.uint8)
    start = -raw.ctypes.data % 64 + offset
    return raw[start : start + 64].view(dtype)


RANGES = {"i32": (-(2**31), 2**31), "i64": (-(2**63), 2**63), "u64": (0, 2**64)}


@given(st.integers(-(2**63), 2**64 - 1))
@example(1)
@example(0)
@example(2**31)
@example(2**31 - 1)
@example(-(2**31) - 1)
@example(2**63)
def test_the_type_of_an_integer_admits_it(value: int) -> None:
    key, passed = read_int(value)
    kind = parse_argument_type(str(key))
    low, high = RANGES[kind.dtype]
    assert passed == value
    assert low <= value < high
    assert kind.is_one == (value == 1)
    assert (kind.divisibility == 16) == (value % 16 == 0)
    smaller = [d for d in ("i32", "i64", "u64") if RANGES[d][0] <= value < RANGES[d][1]]
    assert kind.dtype == smaller[0]


@pytest.mark.parametrize("value", [2**64, -(2**63) - 1, 10**30])
def test_integers_beyond_64_bits_are_refused(recorder: Any, value: int) -> None:
    with pytest.raises(LaunchError, match="copy: argument 'n': .* does not fit 64 bits"):
        copy[(1,)](aligned(), aligned(), value)


SAMPLES: list[tuple[Any, str]] = [
    (True, "i1"),
    (2.0, "f32"),
    (np.float64(2.0), "f32"),
    (np.int64(3), "i32"),
    (np.bool_(True), "i1"),
    (ctypes.c_int64(3), "i64"),
    (ctypes.c_double(3), "f64"),
    (enum.IntEnum("E", {"A": 5}).A, "i32"),
    (aligned(), "*f32:16"),
    (aligned(4), "*f32"),
    (aligned(dtype=np.bool_), "*i1:16"),
    (aligned(dtype=np.uint16), "*u16:16"),
    (aligned(dtype=ml_dtypes.bfloat16), "*bf16:16"),
    (aligned(dtype=ml_dtypes.float8_e4m3fn), "*f8e4m3:16"),
    (aligned(dtype=ml_dtypes.float8_e5m2), "*f8e5m2:16"),
    (deuteron.get_device("cpu").array(np.zeros(3, np.float16)), "*f16:16"),
]


@pytest.mark.parametrize(("value", "key"), SAMPLES, ids=[k for _, k in SAMPLES])
def test_keys(value: Any, key: str) -> None:
    assert readers[type(value)](value)[0] == key


def test_addresses_are_those_of_numpy() -> None:
    for array in (aligned(), aligned(4), aligned()[::2], aligned().reshape(4, 4).T[1:]):
        assert readers[type(array)](array)[1] == array.ctypes.data


def test_arrays_that_may_not_be_written_are_const() -> None:
    array = aligned()
    array.flags.writeable = False
    assert readers[np.ndarray](array)[0] == "*const f32:16"


class Wrapped:
    """An array of another library, known only by one protocol."""

    def __init__(self, array: np.ndarray, protocol: str) -> None:
        self.array = array
        if protocol == "data_ptr":
            self.data_ptr = lambda: array.ctypes.data
            self.dtype = "torch.float32"
            self.device = "cpu"
        elif protocol == "__array_interface__":
            self.__array_interface__ = array.__array_interface__


class DLPack:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> object:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()


class OnGpu:
    __cuda_array_interface__ = {
        "data": (4096, False),
        "typestr": "<f4",
        "shape": (4,),
        "version": 3,
    }


def test_protocols_agree() -> None:
    array = aligned()[2:]
    expected = readers[np.ndarray](array)
    for other in (Wrapped(array, "data_ptr"), Wrapped(array, "__array_interface__"), DLPack(array)):
        assert readers[type(other)](other) == expected
        readers.pop(type(other))  # the class differs by instance here
    numbers = (ctypes.c_float * 4)()
    assert readers[type(numbers)](numbers)[1] == ctypes.addressof(numbers)


def test_gpu_array_without_a_gpu_says_so(recorder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver, "_start", lambda: (0, "no NVIDIA driver is installed"))
    with pytest.raises(LaunchError, match="argument 'x': the array is in GPU memory, but no NVIDIA"):
        copy[(1,)](OnGpu(), aligned(), 5)


def test_promises_and_constants(recorder: Any) -> None:
    copy[(1,)](aligned(), aligned(4), 32)
    assert recorder.types() == {"x": "*f32:16", "y": "*f32", "n": "i32:16"}
    assert recorder.last.constants == {"BLOCK": 64, "FLAG": None}
    copy[(1,)](aligned(), aligned(4), 1, BLOCK=tl.constexpr(128), FLAG=tl.float32)
    assert recorder.types() == {"x": "*f32:16", "y": "*f32"}
    assert recorder.last.constants == {"n": 1, "BLOCK": 128, "FLAG": tl.float32}
    copy[(1,)](aligned(), None, 7)
    assert recorder.types() == {"x": "*f32:16", "n": "i32"}
    assert recorder.last.constants["y"] is None
    assert recorder.launches[-1][2] == (recorder.launches[-1][2][0], 7)


def test_do_not_specialize(recorder: Any) -> None:
    for n in (1, 16, 7):
        loose[(1,)](aligned(), aligned(), n, 16)
        assert recorder.types() == {"x": "*f32", "y": "*f32:16", "n": "i32", "m": "i32"}
    assert len(recorder.compiled) == 1
    loose[(1,)](aligned(), aligned(), 2, 1)
    assert recorder.last.constants == {"m": 1}


def test_annotations_fix_types(recorder: Any) -> None:
    annotated[(1,)](aligned(), 32, 2.0, True, 3)
    assert recorder.types() == {
        "x": "*const f32:16",
        "n": "i64:16",
        "s": "f64",
        "b": "i1",
        "w": "bf16",
    }
    with pytest.raises(LaunchError, match="argument 'n': float 1.5 is a float, .*declares it as i64"):
        annotated[(1,)](aligned(), 1.5, 2.0, True, 3)
    with pytest.raises(LaunchError, match="argument 's': numpy.ndarray of float32 .* is an array"):
        annotated[(1,)](aligned(), 5, aligned(), True, 3)
    with pytest.raises(LaunchError, match="'n': int 18446744073709551615 does not fit i64"):
        annotated[(1,)](aligned(), 2**64 - 1, 2.0, True, 3)


def test_constants_that_are_equal_in_python_stay_apart(recorder: Any) -> None:
    values = [1, True, 1.0, 0, False, 0.0, -0.0, None, "1", (1,), (True,), tl.float16]
    for value in values * 2:
        copy[(1,)](aligned(), aligned(), 5, BLOCK=64, FLAG=value)
        assert type(recorder.last.constants["FLAG"]) is type(value)
        assert repr(recorder.last.constants["FLAG"]) == repr(value)
    assert len(recorder.compiled) == len(values)


plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5)
constants = st.recursive(plain, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)


@given(constants, constants)
@settings(max_examples=300)
@example(0.0, -0.0)
@example((1, 2), (1, (2,)))
@example("(1", ("1",))
def test_constant_text_is_injective(a: object, b: object) -> None:
    assert (constant_text(a) == constant_text(b)) == (repr(a) == repr(b))


@given(
    offset=st.sampled_from([0, 4, 8, 16]),
    n=st.sampled_from([1, 5, 16, 2**31, 2**31 + 1]),
    block=st.sampled_from([64, 128]),
    warps=st.sampled_from([None, 4, 8]),
    fuse=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_one_compilation_per_key(offset: int, n: int, block: int, warps: int | None, fuse: bool) -> None:
    """Launches that agree in type, promises, constants and the schedule options that the CPU's code depends on share a
    variant; others do not."""
    options = {"enable_fp_fusion": fuse, **({} if warps is None else {"num_warps": warps})}
    promised = "*f32:16" if offset % 16 == 0 else "*f32"
    kind = "i32" if n < 2**31 else "i64"
    number = None if n == 1 else f"{kind}:16" if n % 16 == 0 else kind
    arguments, rest = copy.bind((aligned(offset), aligned(), n), {"BLOCK": block, **options})
    from deuteron.compiler.runtime.launch.specialize import specialize

    variant = specialize(copy, arguments, rest).variant
    expected = {"x": promised, "y": "*f32:16", "n": number}
    assert {k: str(v) for k, v in variant.signature.items()} == {k: v for k, v in expected.items() if v}
    summary = (promised, number, n if n == 1 else None, block, fuse)
    assert SEEN.setdefault(variant.key, summary) == summary
    assert len(set(SEEN.values())) == len(SEEN)


SEEN: dict[str, tuple[object, ...]] = {}


@pytest.mark.parametrize("value", [3, True, -0.0, None, "text", (1, (2.5,))])
def test_a_variant_comes_back_from_its_text(value: object) -> None:
    variant = make_variant(flagged, {"y": "*i32:16"}, {"FLAG": value}, "cpu", {})
    assert variant_from_text(flagged.source, specialization_text(variant)).key == variant.key


@pytest.mark.parametrize("value", [Mode.FAST, np.float64(2.0), (Mode.FAST,)])
def test_what_only_looks_like_a_number_is_not_in_the_text(value: object) -> None:
    """It would come back as the number, which is another variant."""
    text = specialization_text(make_variant(flagged, {"y": "*i32:16"}, {"FLAG": value}, "cpu", {}))
    with pytest.raises(LaunchError, match="the compile-time value of 'FLAG', .*, is not in the data"):
        variant_from_text(flagged.source, text)


@deuteron.jit
def declared(x: tl.const, n: tl.int64):
    pass


@pytest.mark.parametrize("bad", [False, True])
def test_a_descriptor_where_a_type_is_declared(recorder: Any, bad: bool) -> None:
    """A pointer that is not stored through may be one; a number may not."""
    given = TensorDescriptor.from_tensor(np.zeros((16, 16), np.float32), [16, 16])
    if not bad:
        declared[(1,)](given, 5)
        assert recorder.types()["x"].startswith("tensordesc<const ")
        return
    with pytest.raises(LaunchError, match="'n': .*is a tensor descriptor, the kernel declares it as i64"):
        declared[(1,)](given, given)
