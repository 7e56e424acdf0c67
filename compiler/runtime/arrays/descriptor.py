"""Tensor descriptors on the host: an array and the block in which kernels read and write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from ...errors import ImpossibleArray, ImpossibleBlock, LaunchError, SignatureError
from ...language.tensor import Shape
from ...signature import ALIGNMENT, ArgumentType, flattened, parse_argument_type
from .dtypes import canonical_dtype, item_bytes

_LARGEST_SIZE = 0x7FFFFFFF
#: Geometries that are kept; those of a program that looks at ever other sizes are checked again.
_GEOMETRIES = 4096


class TensorDescriptor:
    """An array as a kernel's argument that is read and written in blocks, always inside its bounds.

    ``base``: the array, or whatever has its address and dtype; aligned to 16 bytes. ``shape``: extents, below 2**31;
    ``strides``: elements between neighbours along each dimension, the last 1, the others multiples of 16 bytes.
    ``block_shape``: powers of two, the last dimension of 16 bytes or more. ``padding``: what loads give outside the
    array, "zero" or "nan"; ``round_f32_to_tf32``: loads of f32 round to tf32. Attributes may be set, such as the block
    shape by an autotuner's ``pre_hook``.

    Raises:
        LaunchError: the arguments are not like that (ImpossibleBlock, ImpossibleArray).
    """

    __slots__ = ("base", "shape", "strides", "block_shape", "padding", "round_f32_to_tf32", "keys", "numbers")

    base: Any
    shape: Shape
    strides: Shape
    block_shape: Shape
    padding: str
    round_f32_to_tf32: bool
    #: What a launch passes after the address: sizes, and strides but the last.
    numbers: tuple[int, ...]
    #: The array's type key -> the descriptor's.
    keys: DescriptorKeys

    def __init__(
        self,
        base: Any,
        shape: Sequence[int],
        strides: Sequence[int],
        block_shape: Sequence[int],
        padding: str = "zero",
        round_f32_to_tf32: bool = False,
    ) -> None:
        put = object.__setattr__
        put(self, "base", base)
        put(self, "shape", _sizes(shape))
        put(self, "strides", _sizes(strides))
        put(self, "block_shape", _sizes(block_shape))
        put(self, "padding", padding)
        put(self, "round_f32_to_tf32", bool(round_f32_to_tf32))
        self._check()

    @staticmethod
    def from_tensor(
        tensor: Any, block_shape: Sequence[int], padding: str = "zero", round_f32_to_tf32: bool = False
    ) -> TensorDescriptor:
        """The descriptor of a whole array (NumPy, torch, CuPy, or one of deuteron's own); raises LaunchError."""
        _check_array(tensor, ("dtype", "shape"))
        strides = element_strides(tensor)
        return TensorDescriptor(tensor, tensor.shape, strides, block_shape, padding, round_f32_to_tf32)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("shape", "strides", "block_shape"):
            value = _sizes(value)
        before = getattr(self, name)
        object.__setattr__(self, name, value)
        try:
            self._check()
        except LaunchError:
            object.__setattr__(self, name, before)
            raise

    def _check(self) -> None:
        base = self.base
        if not hasattr(base, "dtype"):
            _check_array(base, ("dtype",))
        # As plain tuples, which are compared without Python.
        block, shape, strides = tuple(self.block_shape), tuple(self.shape), tuple(self.strides)
        keys = _keys_of(base.dtype, block, str(self.padding), self.round_f32_to_tf32)
        numbers = _numbers_of(shape, strides, len(block), keys.item_bytes)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "numbers", numbers)

    @property
    def kind(self) -> ArgumentType:
        """Its type in signatures."""
        return self.keys.kind

    def arguments(self, name: str) -> dict[str, Any]:
        """The run-time arguments that a parameter called ``name`` becomes, the array itself first."""
        names = flattened(name, self.kind)
        return dict(zip(names, (self.base, *self.numbers), strict=True))

    def __reduce__(self) -> tuple[object, ...]:
        kept = (self.base, self.shape, self.strides, self.block_shape, self.padding, self.round_f32_to_tf32)
        return TensorDescriptor, kept

    def __repr__(self) -> str:
        return f"TensorDescriptor({self.kind}, shape={list(self.shape)}, strides={list(self.strides)})"


class DescriptorKeys(dict[object, str]):
    """The type key of an array -> that of its descriptor, on the same device; LaunchError where it cannot have one."""

    def __init__(self, kind: ArgumentType) -> None:
        super().__init__()
        self.kind = kind
        self.item_bytes = item_bytes(kind.dtype)

    def __missing__(self, key: object) -> str:
        text, at, device = str(key).partition("@")
        if not text.startswith("*"):
            raise LaunchError("a tensor descriptor of something that is no array", hint="make it of an array")
        array = parse_argument_type(text)
        if array.divisibility < ALIGNMENT:
            raise ImpossibleArray(
                f"the array of a tensor descriptor is not aligned to {ALIGNMENT} bytes",
                hint="begin the array at a multiple of 16 bytes, or use a tile of pointers",
            )
        made = str(self.kind).replace("<", "<const ", 1) if array.const else str(self.kind)
        self[key] = made + at + device
        return self[key]


@cache
def _keys_of(dtype: object, block_shape: tuple[int, ...], padding: str, tf32: bool) -> DescriptorKeys:
    """Shared, because programs make a descriptor for every launch."""
    for axis, size in enumerate(block_shape):
        if size < 1 or size & (size - 1):
            raise ImpossibleBlock(
                f"Shape element {axis} must be a power of 2, got {size}: a block of {list(block_shape)}",
                hint="take the next larger one: what is outside the array is neither read nor written",
            )
    try:
        return DescriptorKeys(
            parse_argument_type(
                f"tensordesc<{canonical_dtype(dtype)}{list(block_shape)}, {padding}{', tf32' if tf32 else ''}>"
            )
        )
    except SignatureError as error:
        raise LaunchError(error.message, hint=error.hint) from error


@lru_cache(maxsize=_GEOMETRIES)
def _numbers_of(
    shape: tuple[int, ...], strides: tuple[int, ...], rank_of_block: int, item_bytes: int
) -> tuple[int, ...]:
    """Sizes, and strides but the last, of a geometry that a descriptor can have."""
    rank = len(shape)
    if not rank == len(strides) == rank_of_block:
        raise ImpossibleArray(
            f"a tensor descriptor has {rank} sizes, {len(strides)} strides and a block of {rank_of_block} dimensions"
        )
    if not 0 <= min(shape) <= max(shape) <= _LARGEST_SIZE:
        raise ImpossibleArray(f"a tensor descriptor of shape {list(shape)}", hint="sizes are 0 to 2**31 - 1")
    if strides[-1] != 1 or any(stride * item_bytes % ALIGNMENT for stride in strides[:-1]):
        raise ImpossibleArray(
            f"a tensor descriptor of strides {list(strides)} (elements of {item_bytes} bytes): "
            f"strides must be {ALIGNMENT}-byte aligned, and the last one 1",
            hint="pad or copy the array",
        )
    return (*shape, *strides[:-1])


def _check_array(base: object, attributes: tuple[str, ...]) -> None:
    if not all(hasattr(base, attribute) for attribute in attributes):
        name = f"{type(base).__module__}.{type(base).__qualname__}"
        raise LaunchError(
            f"a tensor descriptor of a {name}", hint=f"make it of an array with {' and '.join(attributes)}"
        )


def _sizes(values: object) -> Shape:
    if not isinstance(values, list | tuple) and not isinstance(values, Sequence):  # the quick question first
        raise LaunchError(f"sizes and strides of a tensor descriptor are lists of integers, got {values!r}")
    return Shape(map(int, values))


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
