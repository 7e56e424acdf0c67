"""Metric names and values: what may be stored in a profile, and how two values of one metric combine.

A user writes ``name (unit) (type)``. Values are summed at their node and, in viewers, over the nodes below it. The type
``(exc)`` means summed at its node only, ``(pty)`` a property that is overwritten instead of summed; both are stripped
from the stored name. The roofline names have fixed types: ``flops``, ``flops8/16/32/64`` are floats, ``bytes`` an int.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from numbers import Real
from typing import Any, NamedTuple, cast

from .errors import MetricError

Scalar = int | float | str
Vector = list[int] | list[float]
Value = Scalar | Vector

FLOPS_WIDTHS = (8, 16, 32, 64)
_FLOPS = frozenset({"flops", *(f"flops{width}" for width in FLOPS_WIDTHS)})
#: What hatchet's data frames keep in columns of these names.
TAKEN_NAMES = frozenset({"name", "node", "_hatchet_nid", "_missing_node"})
_LARGEST_BITS = 1023
_PROPERTIES = frozenset({"device_id", "device_type", "stream_id"})


class MetricName(NamedTuple):
    """A metric's stored name, whether it is a property (overwritten, never summed), and whether it is exclusive: of
    its node, and not of those above."""

    stored: str
    is_property: bool
    is_exclusive: bool


@lru_cache(maxsize=4096)
def parse_name(raw: str) -> MetricName:
    """Split a user's metric name into the stored name and its rule. Raises MetricError for an empty name, and for one
    that viewers use themselves."""
    if not isinstance(raw, str):  # from a program without types
        raise MetricError(f"a metric is called {raw!r}, which is no text", hint="names of metrics are strings")
    stored = raw.replace("(exc)", "").replace("(pty)", "").strip()
    if stored in TAKEN_NAMES:
        raise MetricError(
            f"a metric cannot be called {stored!r}: viewers use the name themselves", hint="call it something else"
        )
    if not stored:
        raise MetricError(
            f"metric name {raw!r} is empty",
            hint="write it as 'name (unit) (type)', for example 'loss (pty)'",
        )
    return MetricName(stored, "(pty)" in raw or stored in _PROPERTIES, "(exc)" in raw)


def inclusive(metrics: Mapping[str, object], held: Mapping[str, Value]) -> list[str]:
    """The stored names of the ``metrics`` that count for the nodes above as well: those of which a node holds numbers.
    Texts and properties cannot be summed, and viewers have no sums of lists."""
    names = [name for name in map(parse_name, metrics) if not (name.is_exclusive or name.is_property)]
    return [name.stored for name in names if isinstance(held[name.stored], (int, float))]


def normalise(name: str, value: object) -> Value:
    """Bring a user's value to int, float, str or a list of one of int and float.

    Accepts Python numbers, strings, lists and tuples, NumPy scalars and arrays, and tensors with ``tolist``.
    Raises MetricError for anything else.
    """
    if isinstance(value, (bool, int)):
        bits = int(value).bit_length()
        if bits > _LARGEST_BITS:
            raise MetricError(f"metric {name!r} is a number of {bits} bits", hint="metrics are numbers up to 1.8e308")
        plain: Value = int(value)
    elif isinstance(value, (float, str)):
        plain = value
    elif isinstance(value, (list, tuple)):
        plain = _vector(name, value)
    elif hasattr(value, "tolist"):
        return normalise(name, listed(value))
    else:
        raise MetricError(
            f"metric {name!r} has a value of type {type(value).__name__}",
            hint="metrics are numbers, strings, or flat lists of numbers",
        )
    return _roofline(name, plain)


def listed(value: object) -> object:
    """An array or tensor as Python's numbers, one of a single element as that number; anything else as it is."""
    if not hasattr(value, "tolist"):
        return value
    plain = value.tolist()
    if hasattr(plain, "tolist"):  # long doubles of NumPy stay what they are
        return float(plain) if isinstance(plain, Real) else complex(plain)
    while isinstance(plain, list) and len(plain) == 1:
        plain = plain[0]
    return cast(object, plain)


def is_of_floats(name: str, tensor: Any) -> bool:  # torch has no types
    """Whether a metric of this stored name is made of floats when its value is a tensor, of integers otherwise."""
    return name in _FLOPS or (name != "bytes" and bool(tensor.is_floating_point()))


def times(name: str, value: object, count: int) -> object:
    """What a node holds of a metric that was added to it ``count`` times."""
    if isinstance(value, str) or parse_name(name).is_property:
        return value
    if isinstance(value, list):
        return [item * count for item in value]
    return cast(int | float, value) * count


class Awaited:
    """Stands for a metric's value in a time line until it has arrived; ``value`` is None before."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: object = None


def is_on_gpu(value: object) -> bool:
    """Whether a metric's value is a tensor in the memory of an NVIDIA GPU."""
    return bool(getattr(value, "is_cuda", False)) and hasattr(value, "data_ptr")


def split(metrics: Mapping[str, object], *, tells: bool) -> tuple[dict[str, object], dict[str, object]]:
    """Those whose values are on a GPU that ``tells`` them, and the others, as Python's numbers."""
    tensors = {name: value for name, value in metrics.items() if tells and is_on_gpu(value)}
    return tensors, {name: listed(value) for name, value in metrics.items() if name not in tensors}


def _vector(name: str, values: list[object] | tuple[object, ...]) -> Vector:
    scalars: list[int | float] = []
    for value in values:
        scalar = normalise("", value)
        if isinstance(scalar, (str, list)):
            raise MetricError(
                f"metric {name!r} is a list that holds a {type(scalar).__name__}",
                hint="a vector metric is a flat list of numbers",
            )
        scalars.append(scalar)
    if any(isinstance(scalar, float) for scalar in scalars):
        return [float(scalar) for scalar in scalars]
    return cast(list[int], scalars)


def _roofline(name: str, value: Value) -> Value:
    if name not in _FLOPS and name != "bytes":
        return value
    convert = int if name == "bytes" else float
    if isinstance(value, str):
        raise MetricError(f"metric {name!r} is text ({value!r})", hint="give it a number")
    try:
        if isinstance(value, list):
            return cast(Vector, [convert(item) for item in value])
        return convert(value)
    except (ValueError, OverflowError):
        raise MetricError(
            f"metric {name!r} is {value}, and no whole number", hint="a metric of another name takes nan and infinities"
        ) from None


def kind_of(value: Value) -> str:
    """The type of a stored value as error messages name it."""
    if isinstance(value, list):
        inner = "float" if any(isinstance(item, float) for item in value) else "int"
        return f"list of {inner}"
    return type(value).__name__


def combine(name: MetricName, current: Value | None, new: Value) -> Value:
    """The value a node holds after ``new`` was added to ``current``.

    Raises MetricError if the type of the metric, or the length of a vector, would change.
    """
    if current is None:
        return new
    if type(current) is not type(new) or kind_of(current) != kind_of(new):
        raise MetricError(
            f"metric value type mismatch for {name.stored!r}: it holds {kind_of(current)}, "
            f"the new value is {kind_of(new)}",
            hint="a metric keeps the type of its first value; convert, or use another name",
        )
    if name.is_property or isinstance(new, str):
        return new
    if isinstance(current, list) and isinstance(new, list):
        if len(current) != len(new):
            raise MetricError(
                f"vector metric size mismatch for {name.stored!r}: it holds {len(current)} values, "
                f"the new one {len(new)}",
                hint="vector metrics are added element by element; use another name for another length",
            )
        return cast(Vector, [a + b for a, b in zip(current, new, strict=True)])
    return cast(int | float, current) + cast(int | float, new)


def updates(held: Mapping[str, Value], metrics: Mapping[str, object]) -> dict[str, Value]:
    """What ``metrics`` changes in a node that holds ``held``; raises before anything is changed."""
    changed: dict[str, Value] = {}
    for raw, value in metrics.items():
        name = parse_name(raw)
        current = changed.get(name.stored, held.get(name.stored))
        kind = type(value)
        if (kind is int or kind is float) and type(current) is kind and not name.is_property:
            changed[name.stored] = current + value  # type: ignore[operator]
        else:
            changed[name.stored] = combine(name, current, normalise(name.stored, value))
    return changed
