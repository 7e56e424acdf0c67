"""Addresses and dtypes of arrays of other libraries: NumPy, DLPack, the CUDA array interface, ``data_ptr()``,
ctypes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any

from ...errors import LaunchError
from ..cuda import driver as cuda
from .dtypes import canonical_dtype

#: Canonical dtype, address, device index (-1: the host).
Found = tuple[str, int, int]


def readable_protocols() -> str:
    """The protocols, for error messages."""
    return "NumPy arrays, __cuda_array_interface__, __array_interface__, data_ptr() with dtype, or __dlpack__"


# ---- NumPy -----------------------------------------------------------------------------------------------------


def _slow_numpy_address(array: Any) -> int:
    return int(array.__array_interface__["data"][0])


def _fast_numpy_address(array: Any) -> int:
    return _read_pointer(id(array) + _HEADER).value or 0


_read_pointer = ctypes.c_void_p.from_address
_HEADER = object.__basicsize__


@cache
def numpy_address_function() -> Callable[[Any], int]:
    """A function that gives the address of a NumPy array's first element.

    The data pointer is the first field after the object header (NumPy C API, ``PyArrayObject_fields``), a tenth of the
    price of ``__array_interface__``. It is read that way only if a probe shows that it is so here.
    """
    import numpy as np

    probe = np.zeros(3, np.int8)[1:]
    works = _fast_numpy_address(probe) == _slow_numpy_address(probe)
    return _fast_numpy_address if works else _slow_numpy_address


# ---- everything else ---------------------------------------------------------------------------------------------


def foreign_reader(value: Any) -> Found | None:
    """What an array of a library that we do not know says about itself; None if it is no array."""
    for attribute, read in _PROTOCOLS:
        if hasattr(value, attribute):
            try:
                return read(value)
            except (KeyError, IndexError, TypeError, ValueError) as error:
                raise LaunchError(f"does not follow the protocol of {attribute}: {error!r}") from error
    return _read_ctypes(value) if isinstance(value, ctypes.Array) else None


def _read_data_ptr(value: Any) -> Found | None:
    address = int(value.data_ptr())
    return canonical_dtype(value.dtype), address, _device_of(value, address)


def _read_cuda_interface(value: Any) -> Found | None:
    interface = value.__cuda_array_interface__
    address = int(interface["data"][0] or 0)
    dtype = getattr(value, "dtype", None)
    name = canonical_dtype(dtype) if dtype is not None else _typestr(interface["typestr"])
    return name, address, _device_of(value, address, on_gpu=True)


def _read_array_interface(value: Any) -> Found | None:
    interface = value.__array_interface__
    return _typestr(interface["typestr"]), int(interface["data"][0]), -1


def _typestr(text: str) -> str:
    """``<f4`` -> f32, as in NumPy's array interface."""
    kinds = {"f": "f", "i": "i", "u": "u"}
    order, kind, size = text[0], text[1], text[2:]
    if kind == "b":
        return "i1"
    if order == ">" or kind not in kinds:
        raise LaunchError(f"arrays of {text!r} cannot be passed to kernels", hint="convert the array")
    return canonical_dtype(f"{kinds[kind]}{int(size) * 8}")


def _device_of(value: Any, address: int, on_gpu: bool = False) -> int:
    """The device index of an array; -1 for the host."""
    device = getattr(value, "device", None)
    name = str(device) if device is not None else ""
    if name == "cpu":
        return -1
    if name.startswith("cuda"):
        index = name.partition(":")[2]
        return int(index) if index.isdigit() else 0
    if cuda.cuda_device_count() == 0:
        if on_gpu:
            raise LaunchError(f"the array is in GPU memory, but {cuda.why_no_cuda()}", hint="pass a NumPy array")
        return -1
    return _ask_driver(address, on_gpu)


def _ask_driver(address: int, on_gpu: bool) -> int:
    driver = cuda.bindings()
    attribute = driver.CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
    code, index = driver.cuPointerGetAttribute(attribute, address)
    return int(index) if int(code) == 0 else 0 if on_gpu else -1


# ---- DLPack --------------------------------------------------------------------------------------------------------


class _DLTensor(ctypes.Structure):
    """dlpack.h, ``DLTensor``."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


# dlpack.h: DLDeviceType and DLDataTypeCode.
_HOST_DEVICES = (1, 3)  # kDLCPU, kDLCUDAHost
_GPU_DEVICES = (2, 13)  # kDLCUDA, kDLCUDAManaged
_CODES = {0: "i", 1: "u", 2: "f", 4: "bf"}
_NAMED_CODES = {6: "i1", 10: "f8e4m3", 11: "f8e4b8", 12: "f8e5m2", 13: "f8e5b16"}


def _read_dlpack(value: Any) -> Found | None:
    device_type, device_id = (int(x) for x in value.__dlpack_device__())
    if device_type not in _HOST_DEVICES + _GPU_DEVICES:
        raise LaunchError(
            f"the array is on a device of DLPack type {device_type}",
            hint="move it to the CPU or a GPU",
        )
    on_gpu = device_type in _GPU_DEVICES
    # Stream 1 is the legacy default stream in DLPack's numbering: the producer orders its work before it.
    capsule = value.__dlpack__(stream=1) if on_gpu else value.__dlpack__()
    tensor = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    dtype = _NAMED_CODES.get(tensor.code)
    if dtype is None:
        dtype = canonical_dtype(f"{_CODES.get(tensor.code, '?')}{tensor.bits}")
    address = (tensor.data or 0) + tensor.byte_offset
    return dtype, address, device_id if on_gpu else -1


_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _read_ctypes(value: Any) -> Found | None:
    element = value._type_
    if not issubclass(element, ctypes._SimpleCData):
        raise LaunchError(f"a ctypes array of {element.__name__} cannot be passed to a kernel")
    kind = {"f": "f32", "d": "f64", "?": "i1"}.get(element._type_)
    letter = "u" if element._type_ in "BHILQ" else "i"
    return kind or f"{letter}{ctypes.sizeof(element) * 8}", ctypes.addressof(value), -1


# Ordered: the ones that name a dtype first.
_PROTOCOLS: tuple[tuple[str, Callable[[Any], Found | None]], ...] = (
    ("data_ptr", _read_data_ptr),
    ("__cuda_array_interface__", _read_cuda_interface),
    ("__array_interface__", _read_array_interface),
    ("__dlpack__", _read_dlpack),
)
