"""What becomes of single arguments: places among the others, devices, declared types, arrays of other libraries."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from fake_torch import Tensor

import deuteron
import deuteron.language as tl
from deuteron.compiler.errors import ArgumentMismatch, LaunchError
from deuteron.compiler.runtime.arrays.arguments import readers
from deuteron.compiler.runtime.arrays.descriptor import TensorDescriptor
from deuteron.compiler.runtime.arrays.reinterpret import Reinterpreted


@deuteron.jit
def mixed(SCALE: tl.constexpr, x, ONE, MORE: tl.constexpr, n, y):
    tl.store(y + n, tl.load(x) * SCALE + ONE + MORE)


@deuteron.jit
def declared(x, n: tl.int32, m: tl.int16, u: tl.uint32):
    tl.store(x + n, m + u)


@deuteron.jit
def copy(x, y):
    tl.store(y, tl.load(x))


class OnGpu:
    """An array that says it is on a GPU."""

    dtype = "float32"
    shape = (4,)

    def __init__(self, device: str) -> None:
        self.device = device

    def data_ptr(self) -> int:
        return 4096


def test_compile_time_parameters_anywhere_leave_the_others_in_place(recorder: Any) -> None:
    x, y = np.zeros(4, np.float32), np.zeros(4, np.float32)
    mixed[(1,)](2.0, x, 1, 3, 7, y)
    _, _, values = recorder.launches[-1]
    assert values == (x.ctypes.data, 7, y.ctypes.data)
    assert list(recorder.types()) == ["x", "n", "y"]
    assert recorder.last.constants == {"SCALE": 2.0, "ONE": 1, "MORE": 3}
    mixed[(1,)](2.0, x, 5, 3, 1, y)
    assert recorder.launches[-1][2] == (x.ctypes.data, 5, y.ctypes.data)


@pytest.mark.parametrize("first, second", [("cpu", "cuda:0"), ("cuda:0", "cpu"), ("cuda:0", "cuda:1")])
def test_arrays_of_a_launch_are_on_one_device(recorder: Any, first: str, second: str) -> None:
    arrays = [np.zeros(4, np.float32) if device == "cpu" else OnGpu(device) for device in (first, second)]
    with pytest.raises(LaunchError, match=f"argument 'y' .* is on {second}, but 'x' is on {first}"):
        copy[(1,)](*arrays)
    assert recorder.launches == []


@pytest.mark.parametrize(
    "name, value", [("n", 1 << 31), ("n", -(1 << 31) - 1), ("m", 1 << 40), ("u", 1 << 63), ("n", 1.5)]
)
def test_numbers_that_a_declared_type_cannot_hold(recorder: Any, name: str, value: float) -> None:
    numbers = {"n": 2, "m": 3, "u": 4, name: value}
    with pytest.raises(LaunchError, match=f"'{name}'.*declares"):
        declared[(1,)](np.zeros(4, np.float32), **numbers)
    assert recorder.launches == []


class _Tensor(ctypes.Structure):
    """dlpack.h, ``DLTensor``."""

    _fields_ = [
        *((name, kind) for name, kind in (("data", ctypes.c_void_p), ("device_type", ctypes.c_int32))),
        *((name, ctypes.c_int32) for name in ("device_id", "ndim")),
        *(
            (name, kind)
            for name, kind in (("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16))
        ),
        *((name, ctypes.POINTER(ctypes.c_int64)) for name in ("shape", "strides")),
        ("byte_offset", ctypes.c_uint64),
    ]


class Exported:
    """An array that only DLPack describes, whose data begin at an offset."""

    def __init__(self, array: np.ndarray, offset: int) -> None:
        self.array = array
        self.tensor = _Tensor(array.ctypes.data, 1, 0, 1, 2, 32, 1, byte_offset=offset)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **options: object) -> object:
        new = ctypes.pythonapi.PyCapsule_New
        new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return new(ctypes.addressof(self.tensor), b"dltensor", None)


@pytest.mark.parametrize("offset", [0, 4, 64])
def test_dlpack_data_begin_at_the_byte_offset(recorder: Any, offset: int) -> None:
    array, out = np.zeros(64, np.float32), np.zeros(1, np.float32)
    copy[(1,)](Exported(array, offset), out)
    _, _, values = recorder.launches[-1]
    assert values == (array.ctypes.data + offset, out.ctypes.data)
    assert recorder.types()["x"].startswith("*f32")


@pytest.mark.parametrize("device", [None, "cpu"])
def test_reinterpreted_bytes_are_elements_of_another_type(recorder: Any, device: str | None) -> None:
    base = np.zeros(64, np.uint8)
    array = base if device is None else deuteron.get_device(device).array(base)
    seen = deuteron.reinterpret(array, tl.float8e5)
    copy[(1,)](seen, np.zeros(1, np.float32))
    _, _, values = recorder.launches[-1]
    assert recorder.types()["x"].startswith("*f8e5m2")
    assert seen.shape == array.shape
    copy[(1,)](array, np.zeros(1, np.float32))
    assert recorder.launches[-1][2][0] == values[0]


def test_reinterpreting_back_gives_the_array_itself() -> None:
    array = np.zeros(64, np.int8)
    as_fp8 = deuteron.reinterpret(array, "float8_e5m2")
    assert deuteron.reinterpret(as_fp8, tl.int8) is array
    assert deuteron.reinterpret(as_fp8, tl.float8e4nv).base is array
    assert deuteron.reinterpret(array, tl.int8) is array


@pytest.mark.parametrize("value", [3, 2.5, True, None, (1, 2), "text"])
def test_what_is_no_array_is_not_reinterpreted(value: object) -> None:
    with pytest.raises(ArgumentMismatch, match="cannot reinterpret"):
        deuteron.reinterpret(value, tl.int32)


def test_reinterpreted_keeps_the_promise_not_to_write() -> None:
    array = np.zeros(64, np.int8)
    array.flags.writeable = False
    key, _ = readers[Reinterpreted](deuteron.reinterpret(array, tl.float8e5))
    assert str(key).startswith("*const f8e5m2")


def test_only_arrays_are_reinterpreted() -> None:
    with pytest.raises(LaunchError, match="neither a number nor an array"):
        deuteron.reinterpret([1, 2], tl.float8e5)


def declaring(**annotations: object) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A decorator that says what parameters are, as tests of other compilers do."""

    def say(function: Callable[..., None]) -> Callable[..., None]:
        function.__annotations__ = annotations
        return function

    return say


@deuteron.jit
@declaring(v="tl.uint8")
def from_a_text(x, v):
    tl.store(x, v.to(tl.float32))


@deuteron.jit
@declaring(v=tl.int64)
def from_a_type(x, v):
    tl.store(x, v.to(tl.float32))


@pytest.mark.parametrize(("kernel", "wanted"), [(from_a_text, "u8"), (from_a_type, "i64")])
def test_types_that_a_decorator_declares_count(kernel, wanted: str) -> None:
    x = np.zeros(1, np.float32)
    made = kernel[(1,)](x, 3)
    assert x[0] == 3
    assert str(made.signature["v"]) == wanted


class Described:
    """An array of torch's meta device, or one of its fake tensors."""

    dtype = "float32"

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    def data_ptr(self) -> int:
        return 0


class Meta(Tensor):
    """The same of torch's own class, which launches read in place."""


@pytest.mark.parametrize("x", [Described(4), Meta(0, device=-1), TensorDescriptor(Described(4), [4], [1], [4])])
def test_arrays_without_memory_are_not_launched(x: Any) -> None:
    for _ in range(2):
        with pytest.raises(LaunchError, match=r"copy: argument 'x' \(.*\) has no memory"):
            copy[(1,)](x, np.zeros(4, np.float32))


@pytest.mark.parametrize("x", [Described(4), Meta(0, device=-1)])
def test_arrays_without_memory_describe_what_will_be_launched(x: Any) -> None:
    compiled = copy.warmup(x, x)
    assert compiled is copy.warmup("*f32:16", "*f32:16")
    with pytest.raises(LaunchError, match=r"copy: argument 'x' \(.*\) has no memory"):
        compiled[(1,)](x, np.zeros(4, np.float32))


@pytest.mark.parametrize("x", [Described(0), Described(3, 0), Meta(0, device=-1, elements=0)])
def test_empty_arrays_need_no_memory(recorder: Any, x: Any) -> None:
    copy[(1,)](x, np.zeros(4, np.float32))
    assert recorder.launches[-1][2][0] == 0
