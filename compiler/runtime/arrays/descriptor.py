"""Tensor descriptors on the host: an array and the block in which kernels read and write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import LaunchError, SignatureError
from ...language.tensor import Shape
from ...signature import ALIGNMENT, ArgumentType, flattened, parse_argument_type
from .dtypes import canonical_dtype, item_bytes

_LARGEST_SIZE = 0x7FFFFFFF


class TensorDescriptor:
    """An array as a kernel's argument that is read and written in blocks, always inside its bounds.

    ``base``: the array, or whatever has its address and dtype; aligned to 16 bytes. ``shape``: extents, below 2**31;
    ``strides``: elements between neighbours along each dimension, the last 1, the others multiples of 16 bytes.
    ``block_shape``: powers of two, the last dimension of 16 bytes or more. ``padding``: what loads give outside the
    array, "zero" or "nan". Attributes may be set, such as the block shape by an autotuner's ``pre_hook``.

    Raises:
        LaunchError: the arguments are not like that.
    """

    __slots__ = ("base", "shape", "strides", "block_shape", "padding", "_ready", "_keys", "_numbers")

    base: Any
    shape: Shape
    strides: Shape
    block_shape: Shape
    padding: str
    _ready: bool
    _keys: _Keys
    _numbers: tuple[int, ...]

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        padding: str = "zero",
    ) -> None:
        object.__setattr__(self, "_ready", False)
        self.base, self.padding = base, padding
        self.shape, self.strides, self.block_shape = _sizes(shape), _sizes(strides), _sizes(block_shape)
        object.__setattr__(self, "_ready", True)
        self._check()

    @staticmethod
    def from_tensor(tensor: Any, block_shape: Sequence[int], padding: str = "zero") -> TensorDescriptor:
        """The descriptor of a whole array (NumPy, torch, CuPy, or one of deuteron's own); raises LaunchError."""
        _check_array(tensor, ("dtype", "shape"))
        return TensorDescriptor(tensor, tensor.shape, element_strides(tensor), block_shape, padding)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("shape", "strides", "block_shape"):
            value = _sizes(value)
        before = getattr(self, name, None)
        object.__setattr__(self, name, value)
        if self._ready:
            try:
                self._check()
            except LaunchError:
                object.__setattr__(self, name, before)
                raise

    def _check(self) -> None:
        _check_array(self.base, ("dtype",))
        rank = len(self.shape)
        if not rank == len(self.strides) == len(self.block_shape):
            raise LaunchError(
                f"a tensor descriptor has {rank} sizes, {len(self.strides)} strides and a block of "
                f"{len(self.block_shape)} dimensions"
            )
        dtype = canonical_dtype(self.base.dtype)
        try:
            kind = parse_argument_type(f"tensordesc<{dtype}{list(self.block_shape)}, {self.padding}>")
        except SignatureError as error:
            raise LaunchError(error.message, hint=error.hint) from error
        if not all(0 <= size <= _LARGEST_SIZE for size in self.shape):
            raise LaunchError(f"a tensor descriptor of shape {list(self.shape)}", hint="sizes are 0 to 2**31 - 1")
        bytes_ = item_bytes(dtype)
        if self.strides[-1] != 1 or any(stride * bytes_ % ALIGNMENT for stride in self.strides[:-1]):
            raise LaunchError(
                f"a tensor descriptor of strides {list(self.strides)} (elements of {bytes_} bytes)",
                hint=f"the last stride is 1, the others are multiples of {ALIGNMENT} bytes; pad or copy the array",
            )
        object.__setattr__(self, "_keys", _Keys(kind))
        object.__setattr__(self, "_numbers", (*self.shape, *self.strides[:-1]))

    @property
    def kind(self) -> ArgumentType:
        """Its type in signatures."""
        return self._keys.kind

    def read(self, key: str, address: int) -> tuple[str, tuple[int, ...]]:
        """What a launch passes, given what it would pass for the array alone: the type key, and address, sizes and
        strides but the last. Raises LaunchError where the array is not aligned."""
        return self._keys[key], (address, *self._numbers)

    def arguments(self, name: str) -> dict[str, Any]:
        """The run-time arguments that a parameter called ``name`` becomes, the array itself first."""
        names = flattened(name, self.kind)
        return dict(zip(names, (self.base, *self._numbers), strict=True))

    def __repr__(self) -> str:
        return f"TensorDescriptor({self.kind}, shape={list(self.shape)}, strides={list(self.strides)})"


class _Keys(dict[str, str]):
    """The type key of an array -> that of its descriptor, on the same device."""

    def __init__(self, kind: ArgumentType) -> None:
        super().__init__()
        self.kind = kind

    def __missing__(self, key: str) -> str:
        text, at, device = key.partition("@")
        array = parse_argument_type(text)
        if array.divisibility < ALIGNMENT:
            raise LaunchError(
                f"the array of a tensor descriptor is not aligned to {ALIGNMENT} bytes",
                hint="begin the array at a multiple of 16 bytes, or use a tile of pointers",
            )
        made = str(self.kind).replace("<", "<const ", 1) if array.const else str(self.kind)
        self[key] = made + at + device
        return self[key]


def _check_array(base: object, attributes: tuple[str, ...]) -> None:
    if not all(hasattr(base, attribute) for attribute in attributes):
        name = f"{type(base).__module__}.{type(base).__qualname__}"
        raise LaunchError(
            f"a tensor descriptor of a {name}", hint=f"make it of an array with {' and '.join(attributes)}"
        )


def _sizes(values: object) -> Shape:
    if not isinstance(values, Sequence):
        raise LaunchError(f"sizes and strides of a tensor descriptor are lists of integers, got {values!r}")
    return Shape(int(n) for n in values)


def element_strides(array: Any) -> tuple[int, ...]:
    """Elements between neighbours along each dimension of an array; row-major where it does not say."""
    strides = getattr(array, "strides", None)
    if callable(getattr(array, "stride", None)):
        return tuple(array.stride())
    if isinstance(strides, tuple):
        return tuple(n // array.itemsize for n in strides)
    made = [1]
    for size in reversed(array.shape[1:]):
        made.insert(0, made[0] * max(1, size))
    return tuple(made)


def spread(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments by name as the run-time parameters take them: descriptors as array, sizes and strides."""
    made: dict[str, Any] = {}
    for name, value in arguments.items():
        made |= value.arguments(name) if isinstance(value, TensorDescriptor) else {name: value}
    return made
