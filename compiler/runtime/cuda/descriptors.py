"""TMA descriptors made from the arguments of a launch, and kept while they stay the same.

Sizes, strides and limits are those of cuTensorMapEncodeTiled (CUDA driver API, "Tensor Map Object Management"). Making
a descriptor is work of the host alone, so launches may do it while a stream is captured.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from ...errors import DeviceError, LaunchError
from ...hardware import TENSOR_MAP_ALIGNMENT
from ...launch_recipe import TensorMap
from ..arrays.dtypes import item_bytes
from ..launch.host_code import Values, evaluator, expression_text, parameters_of
from . import driver as cuda
from .packing import DESCRIPTOR_ALIGNMENT, DESCRIPTOR_BYTES

# cuda.h, CUtensorMapDataType; types that it lacks are copied as integers of their size.
_DATA_TYPES = {
    "i1": 0,
    "i8": 0,
    "u8": 0,
    "f8e4m3": 0,
    "f8e5m2": 0,
    "f8e4b8": 0,
    "f8e5b16": 0,
    "f8e4b15": 0,
    "i16": 1,
    "u16": 1,
    "u32": 2,
    "i32": 3,
    "u64": 4,
    "i64": 5,
    "f16": 6,
    "f32": 7,
    "f64": 8,
    "bf16": 9,
}
_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}  # CUtensorMapSwizzle
_PADDINGS = {"zero": 0, "nan": 1}  # CUtensorMapFloatOOBfill
_NO_INTERLEAVE = 0  # CUtensorMapInterleave
_L2_PROMOTION_256B = 3  # CUtensorMapL2promotion
_MOST_ELEMENTS = 1 << 32
_STRIDE_LIMIT = 1 << 40
#: Sets of descriptors that are kept of a kernel: its launches with as many different combinations of arrays are fast.
_KEPT = 512


class EncodedMaps(dict[Values, tuple[bytes, ...]]):
    """The descriptors of one kernel, by the launch values that they depend on: those called :attr:`needed`."""

    def __init__(self, kernel: str, maps: Sequence[TensorMap], names: Sequence[str]) -> None:
        super().__init__()
        used = {m.base for m in maps}.union(*(parameters_of(e) for m in maps for e in (*m.sizes, *m.strides)))
        self.needed = [name for name in names if name in used]
        self._makers = [_Maker(kernel, tensor_map, self.needed) for tensor_map in maps]
        for name in used:
            evaluator([name], names)  # says which one is missing

    def __missing__(self, key: Values) -> tuple[bytes, ...]:
        made = tuple([maker.make(key) for maker in self._makers])
        if len(self) >= _KEPT:
            self.clear()
        self[key] = made
        return made


class _Maker:
    """Makes one descriptor."""

    def __init__(self, kernel: str, tensor_map: TensorMap, names: Sequence[str]) -> None:
        self._kernel = kernel
        self._map = tensor_map
        self._base = evaluator([tensor_map.base], names)
        self._sizes = evaluator(tensor_map.sizes, names)
        self._strides = evaluator(tensor_map.strides, names)
        self._rank = rank = len(tensor_map.box)
        self._type = ctypes.c_int(_DATA_TYPES[tensor_map.elem])
        self._box = (ctypes.c_uint32 * rank)(*tensor_map.box[::-1])
        self._every_element = (ctypes.c_uint32 * rank)(*[1] * rank)
        modes = (_NO_INTERLEAVE, _SWIZZLES[tensor_map.swizzle], _L2_PROMOTION_256B, _PADDINGS[tensor_map.padding])
        self._modes = [ctypes.c_int(mode) for mode in modes]

    def make(self, values: Values) -> bytes:
        """The 128 bytes.

        Raises:
            LaunchError: an address, size or stride is none that the hardware can copy by.
            DeviceError: the driver is too old to make descriptors.
        """
        try:
            (base,), sizes, strides = self._base(values), self._sizes(values), self._strides(values)
        except ZeroDivisionError:
            raise self._error("its sizes or strides divide by an argument that is 0") from None
        self._check(base, sizes, strides)
        step = item_bytes(self._map.elem)
        return self._encode(base, [min(n, _MOST_ELEMENTS) for n in sizes], [n * step for n in strides])

    def _check(self, base: int, sizes: Sequence[int], strides: Sequence[int]) -> None:
        """Raise what says more than the driver, which only knows an invalid value."""
        step = item_bytes(self._map.elem)
        if base % TENSOR_MAP_ALIGNMENT:
            raise self._error(f"its address {base:#x} is not a multiple of {TENSOR_MAP_ALIGNMENT} bytes")
        for axis, (size, expression) in enumerate(zip(sizes, self._map.sizes, strict=True)):
            if size < 1:
                raise self._error(f"its size {expression_text(expression)} along axis {axis} is {size}")
        for axis, (stride, expression) in enumerate(zip(strides, self._map.strides, strict=True)):
            named = f"its stride {expression_text(expression)} along axis {axis} is {stride} elements"
            if axis == len(strides) - 1:
                if stride != 1:
                    raise self._error(f"{named}, not 1")
            elif stride * step % TENSOR_MAP_ALIGNMENT:
                raise self._error(f"{named}, {stride * step} bytes, not a multiple of {TENSOR_MAP_ALIGNMENT}")
            elif not 0 <= stride * step < _STRIDE_LIMIT:
                raise self._error(f"{named}, {stride * step} bytes, outside 0 to 2^40")

    def _encode(self, base: int, sizes: Sequence[int], strides: Sequence[int]) -> bytes:
        """Ask the driver, which counts dimensions from the innermost and knows that one's stride."""
        memory = ctypes.create_string_buffer(DESCRIPTOR_BYTES + DESCRIPTOR_ALIGNMENT)
        place = ctypes.addressof(memory) + -ctypes.addressof(memory) % DESCRIPTOR_ALIGNMENT
        dimensions = ctypes.c_uint64 * self._rank
        code = _encoder()(
            ctypes.c_void_p(place),
            self._type,
            ctypes.c_uint32(self._rank),
            ctypes.c_void_p(base),
            dimensions(*sizes[::-1]),
            dimensions(*strides[-2::-1]),
            self._box,
            self._every_element,
            *self._modes,
        )
        if code:
            raise self._error(
                f"the driver refuses sizes {list(sizes)}, strides {list(strides)} in bytes, boxes of "
                f"{list(self._map.box)} {self._map.elem}, swizzle {self._map.swizzle} (CUDA error {code})"
            )
        return ctypes.string_at(place, DESCRIPTOR_BYTES)

    def _error(self, why: str) -> LaunchError:
        return LaunchError(
            f"{self._kernel}: the argument {self._map.base!r} cannot be copied in boxes: {why}",
            hint=f"addresses and strides must be multiples of {TENSOR_MAP_ALIGNMENT} bytes, sizes 1 to 2^32",
        )


def _encoder() -> Any:
    """cuTensorMapEncodeTiled of the driver."""
    lib = cuda.library()
    found = getattr(lib, "cuTensorMapEncodeTiled", None)
    if found is None:
        raise DeviceError("the NVIDIA driver cannot make TMA descriptors", hint="install one of CUDA 12.0 or later")
    return found
