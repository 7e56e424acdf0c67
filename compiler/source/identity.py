"""What tells apart values of a program's own classes and of other libraries, the same in every process.

``__repr__``, ``__str__`` and ``__hash__`` are the program's to write: they may leave out what two values differ in,
round it, or print an address. Here a value is its class and what it holds. The code of the class is no part of that.
"""

from __future__ import annotations

import struct
import types
import typing
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from enum import Enum
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

from ..errors import LaunchError

#: The text of a value that another value holds.
Part = Callable[[object], str]

#: What an instance holds by way of these is told without looking at their attributes.
_KNOWN: tuple[object, ...] = (object, typing.Generic, typing.Protocol, int, float, str, bytes, tuple, complex)
#: What a class that is not written in Python has, and one that is has not.
_BUILT_IN = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
)
#: What every member of an Enum has besides what its class gives it.
_OF_MEMBERS = frozenset({"_name_", "_value_", "__objclass__", "_sort_order_", "name", "value"})

#: Classes of one name, numbered in the order in which they are seen: an old one and what a notebook's cell made anew.
_numbers: WeakKeyDictionary[type, int] = WeakKeyDictionary()
_named: Counter[str] = Counter()
_numbering = Lock()


def identity(value: object, part: Part) -> str:
    """The class of ``value`` and what it holds, which ``part`` says of each; for what is not a plain number, text or
    tuple.

    Raises:
        LaunchError: what it holds cannot be told, as with classes that are not written in Python; or ``part`` does.
    """
    try:
        return f"{class_text(type(value))} {_content(value, part)}"
    except RecursionError:
        raise LaunchError(
            f"a {class_text(type(value))} cannot be known at compile time: it holds itself, or too much"
        ) from None


def class_text(kind: type) -> str:
    """The name of a class, which tells it from others of its name in this process."""
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind not in _numbers:
        with _numbering:
            if kind not in _numbers:
                _named[name] += 1
                _numbers[kind] = _named[name]
    return name if _numbers[kind] == 1 else f"{name} #{_numbers[kind]}"


def float_text(value: float) -> str:
    """A float to the last bit: 0.0 is not -0.0, and of a NaN that is not ``math.nan`` all bits are told."""
    text = float.hex(value)
    bits = struct.pack(">d", value).hex() if text == "nan" else ""
    return f"nan {bits}" if bits not in ("", "7ff8000000000000") else text


def class_content(kind: type, part: Part) -> str:
    """A class and its attributes that are values, which a kernel reads where the class itself is a compile-time value.
    What ``part`` raises LaunchError for, a kernel has no use for either."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        if _slots(base) is not None and base not in _KNOWN:
            held = {**vars(base), **getattr(base, "__members__", {})}
            found |= {n: _part_or_class(v, part) for n, v in held.items() if n[0] != "_" and _is_attribute(v)}
    return f"{class_text(kind)} {', '.join(f'{name} = {found[name]}' for name in sorted(found))}".rstrip()


def _is_attribute(value: object) -> bool:
    return not (callable(value) or hasattr(value, "__get__"))


def _part_or_class(value: object, part: Part) -> str:
    try:
        return part(value)
    except LaunchError:
        return class_text(type(value))


def _content(value: object, part: Part) -> str:
    if isinstance(value, Enum):
        inner = "" if type(value._value_) is object else part(value._value_)
        more = {name: held for name, held in vars(value).items() if name not in _OF_MEMBERS}
        return f"{value._name_} = {inner} {_attributes(more, part)}"
    if (spell := _SPELLED.get(type(value))) is not None:
        return spell(value, part)
    foreign = {base.__name__ for base in type(value).__mro__ if _slots(base) is None}
    if "generic" in foreign:  # NumPy's scalars, and those of ml_dtypes
        return f"{value.dtype} {value.tobytes().hex()}"  # type: ignore[attr-defined]
    if "dtype" in foreign:
        return f"{getattr(value, 'byteorder', '')}{value}"
    if foreign and hasattr(value, "item") and hasattr(value, "dtype") and getattr(value, "shape", None) == ():
        return f"{value.dtype} {part(value.item())}"
    if foreign and not hasattr(value, "__dict__") and (text := _number_or_text(value, part)):  # such as torch.Size
        return text
    return f"{_number_or_text(value, part)} {_attributes(_state(value), part)}"


#: What Python's own classes hold; subclasses may hold more.
_SPELLED: dict[type, Callable[[Any, Part], str]] = {
    **dict.fromkeys((type(None), bool, types.EllipsisType, range), lambda value, part: str(value)),
    dict: lambda value, part: f"{{{', '.join(f'{part(key)}: {part(held)}' for key, held in value.items())}}}",
    list: lambda value, part: f"[{', '.join(map(part, value))}]",
    **dict.fromkeys((set, frozenset), lambda value, part: f"{{{', '.join(sorted(map(part, value)))}}}"),
    slice: lambda value, part: f"{part(value.start)} {part(value.stop)} {part(value.step)}",
    Decimal: lambda value, part: str(value.as_tuple()),
}


def _number_or_text(value: object, part: Part) -> str:
    """What a subclass of one of Python's own immutable classes inherits; its own methods have no say."""
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float_text(value)
    if isinstance(value, str):
        return repr(str.__str__(value))
    if isinstance(value, bytes):
        return bytes.hex(value)
    if isinstance(value, complex):
        return struct.pack("<dd", value.real, value.imag).hex()
    if isinstance(value, tuple):
        return f"({', '.join(part(item) for item in tuple.__iter__(value))})"
    return ""


def _attributes(held: dict[str, object], part: Part) -> str:
    return f"({', '.join(f'{name}: {part(held[name])}' for name in sorted(held))})"


def _state(value: object) -> dict[str, object]:
    """What an instance of classes written in Python holds, by name; raises LaunchError for others."""
    found = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        if base in _KNOWN:
            continue
        slots = _slots(base)
        if slots is None or callable(value):
            raise LaunchError(
                f"a {class_text(type(value))} cannot be a compile-time value: what it holds cannot be told",
                hint="use numbers, strings, tuples, dtypes such as tl.float32, jit functions, members of an Enum, "
                "or a frozen dataclass of them",
            )
        for name, member in slots:
            try:
                found[f"{base.__qualname__}.{name}"] = member.__get__(value)
            except AttributeError:
                continue  # not set yet
    return found


@lru_cache(maxsize=256)
def _slots(kind: type) -> tuple[tuple[str, types.MemberDescriptorType], ...] | None:
    """The ``__slots__`` of a class that is written in Python; None for another."""
    if kind in _KNOWN:
        return ()
    for name, member in vars(kind).items():
        own = isinstance(member, _BUILT_IN) and member.__objclass__ is kind
        if own and name not in ("__dict__", "__weakref__"):
            return None
    return tuple((n, m) for n, m in vars(kind).items() if isinstance(m, types.MemberDescriptorType))
