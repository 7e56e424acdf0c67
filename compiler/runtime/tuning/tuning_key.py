"""What a search is done once for, and what tells two launches apart at a glance."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import NoneType

from ...errors import LaunchError
from ...language.constexpr import unwrap
from ...signature import leaves
from ..arrays.descriptor import TensorDescriptor
from ..devices import device_of
from ..variant.constants import constant_text

#: What a search is done once for.
TuningKey = tuple[object, ...]
#: Types of which equal values are the same for a kernel, and of arguments that no array is part of.
_EXACT = frozenset({int, bool, str, NoneType})
_PLAIN = _EXACT | {float}


def glance(arguments: Mapping[str, object], keys: Sequence[str], configs: int) -> tuple[object, ...] | None:
    """What tells launches with different tuning keys apart, in a tenth of that key's time: names, dtypes and devices
    of arrays, values of ``keys``, and how many ``configs`` there are. None where a glance does not do, as for tuples
    of arrays."""
    parts: list[object] = [configs, *arguments]
    for value in arguments.values():
        if type(value) in _PLAIN:
            continue
        if isinstance(value, tuple):  # a NamedTuple may have fields of any name
            return None
        if isinstance(value, TensorDescriptor):
            value = value.base
        dtype, device = getattr(value, "dtype", None), getattr(value, "device", None)
        if not isinstance(dtype, Hashable) or not isinstance(device, Hashable) or dtype is None or device is None:
            return None
        parts += (dtype, device)
    for name in keys:
        value = arguments.get(name)
        if type(value) not in _EXACT:
            return None
        parts += (type(value), value)
    return tuple(parts)


def tuning_key(arguments: Mapping[str, object], keys: Sequence[str], arg_names: Sequence[str]) -> TuningKey:
    """The values of ``keys`` and the dtypes of all arrays, which is Triton's key, so that configurations that a library
    keeps are found; then the kind of device, unless it is a GPU."""
    parts = [_key_part(arguments[name]) for name in keys if name in arguments]
    arrays: list[object] = []
    for name in arg_names:
        arrays += [part for _, part in leaves(name, arguments.get(name)) if hasattr(part, "dtype")]
    kind = device_of(arguments).name.partition(":")[0]
    return (*parts, *(str(array.dtype) for array in arrays), *(() if kind == "cuda" else (kind,)))  # type: ignore[attr-defined]


def _key_part(value: object) -> object:
    """A value of ``key`` as Triton has it in its own key; what is no plain value as text."""
    value = unwrap(value)
    return value if value is None or type(value) in (bool, int, float, str) else _value_text(value)


def _value_text(value: object) -> str:
    value = unwrap(value)
    if isinstance(value, tuple):
        return f"({', '.join(map(_value_text, value))})"
    try:
        return constant_text(value)
    except LaunchError:
        return type(value).__name__  # an array named in key: its dtype is part of the key anyway
