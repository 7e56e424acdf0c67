"""Signatures: the type of every run-time argument, and what the caller promises about its value.

The text form is that of Triton's ahead-of-time compiler: ``*fp32:16`` is a pointer to f32 whose address is a multiple
of 16, ``i32:16`` an integer that is a multiple of 16, ``i32:1`` an integer that is 1 and so becomes a compile-time
constant. ``*const f32`` (or ``*kf32``) may not be stored through.

``tensordesc<fp16[64, 64]>`` is a tensor descriptor with blocks of that shape; ``tensordesc<fp16[64, 64], nan>`` pads
with NaN. Its parameter takes the address, and hidden ones that follow take sizes and strides (see :func:`flattened`).

An argument that is a tuple, as ``*args`` is, is passed leaf by leaf: ``args.0``, ``args.1.0``, each with a type or a
compile-time value of its own (see :func:`scattered`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from .errors import LaunchError, SignatureError, TypeMismatch
from .ir.types import SCALARS, Pointer, Scalar, Tile
from .language.descriptors import check_block
from .language.named import field_names, named
from .runtime.arrays.dtypes import canonical_dtype, known_dtypes

#: The type of an argument as text; of one that is a tuple, those of its elements.
TypeText: TypeAlias = "str | tuple[TypeText, ...]"

#: Divisibility that launches promise: 16 bytes is the widest vector access, 16 elements the usual block granularity.
ALIGNMENT = 16

#: The leaf of a NamedTuple that has the names of its elements.
FIELDS = "fields"


@dataclass(frozen=True, slots=True)
class ArgumentType:
    """Type of one run-time argument: element dtype, pointer or not, and the promise about its value.

    ``divisibility``: bytes for pointers, the value itself for integers; 1 promises nothing. ``is_one``: the integer is
    1 and is folded into the code. ``block``: of a tensor descriptor, whose address this is, the shape of its blocks;
    ``padding`` is what they have outside the array, "zero" or "nan", and ``tf32`` rounds what is loaded, f32, to it.
    """

    dtype: str
    pointer: bool = False
    const: bool = False
    divisibility: int = 1
    is_one: bool = False
    block: tuple[int, ...] = ()
    padding: str = "zero"
    tf32: bool = False

    @property
    def tile(self) -> Tile:
        """The IR type of the kernel parameter."""
        element: Scalar | Pointer = SCALARS[self.dtype]
        return Tile(Pointer(element, self.const) if self.pointer else element)

    @property
    def spelled(self) -> str:
        """As Triton spells it, without promises: ``*fp16``, ``*kbf16`` of a const array, ``i32``, ``tensordesc<``."""
        star = "*k" if self.pointer and self.const else "*" if self.pointer else ""
        return str(self) if self.block else f"{star}{SCALARS[self.dtype].short}"

    def __str__(self) -> str:
        if self.block:
            const, nan = "const " if self.const else "", ", nan" if self.padding == "nan" else ""
            tf32 = ", tf32" if self.tf32 else ""
            return f"tensordesc<{const}{SCALARS[self.dtype].short}{list(self.block)}{nan}{tf32}>"
        star = "*const " if self.pointer and self.const else "*" if self.pointer else ""
        promise = ":1" if self.is_one else f":{self.divisibility}" if self.divisibility > 1 else ""
        return f"{star}{self.dtype}{promise}"


def flattened(name: str, kind: ArgumentType) -> dict[str, ArgumentType]:
    """The run-time parameters that an argument becomes: itself, and after a descriptor's address its sizes
    (``name.size0``, i32) and, but for the last one, which is 1, its strides (``name.stride0``, i64 elements, multiples
    of 16 bytes)."""
    made = {name: kind}
    step = max(1, ALIGNMENT // SCALARS[kind.dtype].bytes)
    made |= {f"{name}.size{d}": ArgumentType("i32") for d in range(len(kind.block))}
    made |= {f"{name}.stride{d}": ArgumentType("i64", divisibility=step) for d in range(len(kind.block) - 1)}
    return made


def is_hidden(name: str) -> bool:
    """Whether a run-time parameter belongs to a descriptor before it."""
    _, dot, last = name.rpartition(".")
    return bool(dot) and not last.isdecimal()


def leaves(name: str, value: object) -> Iterator[tuple[str, object]]:
    """What the argument ``name`` is passed as: itself, or the leaves of a tuple, called ``name.0``, ``name.1.0`` and
    so on. A tuple without elements is a leaf. Of a NamedTuple ``name.fields`` tells the names of its elements."""
    if isinstance(value, tuple) and value:
        if fields := field_names(value):
            yield f"{name}.{FIELDS}", fields
        for place, item in enumerate(value):
            yield from leaves(f"{name}.{place}", item)
    else:
        yield name, value


def scattered(arguments: Mapping[str, object]) -> dict[str, object]:
    """The leaves of all ``arguments``, by name."""
    return {leaf: part for name, value in arguments.items() for leaf, part in leaves(name, value)}


def gathered(parts: Mapping[str, object], around: str = "") -> dict[str, object]:
    """The arguments that have these ``parts`` by :func:`scattered`, tuples put together again. ``around``: what comes
    before their names in messages.

    Raises:
        SignatureError: a name is no leaf, elements of a tuple are missing, or it is given as a whole, too.
    """
    made: dict[str, object] = {}
    tuples: dict[str, dict[str, object]] = {}
    for leaf, value in parts.items():
        name, dot, rest = leaf.partition(".")
        if dot:
            tuples.setdefault(name, {})[rest] = value
        made[name] = value
    for name, inner in tuples.items():
        whole = around + name
        fields = inner.pop(FIELDS, None)
        items = gathered(inner, f"{whole}.")
        places = [str(place) for place in range(len(items))]
        if name in parts:
            raise SignatureError(f"{whole!r} is given as a whole and by its elements", hint="give one of both")
        if items.keys() != set(places):
            raise SignatureError(
                f"the tuple {whole!r} has the elements {', '.join(f'{whole}.{place}' for place in items)}",
                hint=f"give all of its elements: {whole}.0, {whole}.1, ...",
            )
        values = [items[place] for place in places]
        made[name] = tuple.__new__(named(fields), values) if isinstance(fields, tuple) else tuple(values)
    return made


_DESCRIPTOR = re.compile(
    r"tensordesc<\s*(?P<const>const\s+)?(?P<dtype>\w+)\s*\[(?P<block>[\d\s,]+)\]\s*"
    r"(?:,\s*(?P<padding>zero|nan)\s*)?(?:,\s*(?P<tf32>tf32)\s*)?>"
)
_TYPE = re.compile(r"(?P<star>\*\s*)?(?P<const>const\s+|k(?=[a-z]))?(?P<dtype>\w+)(?::(?P<promise>\w+))?")


@lru_cache(maxsize=1024)
def parse_argument_type(text: str) -> ArgumentType:
    """Read one type; raises SignatureError that says which part is wrong."""
    if text.lstrip().startswith("tensordesc"):
        return _descriptor(text)
    match = _TYPE.fullmatch(text.strip())
    if match is None:
        raise SignatureError(
            f"cannot read the argument type {text!r}",
            hint='write types as "*f32", "*bf16:16", "i32", "i32:16", "i32:1" or "tensordesc<fp16[64, 64]>"',
        )
    dtype = _dtype(match["dtype"], text)
    pointer = match["star"] is not None
    divisibility, is_one = _promise(text, match["promise"], pointer, dtype)
    return ArgumentType(dtype, pointer, match["const"] is not None, divisibility, is_one)


def _dtype(name: str, text: str) -> str:
    try:
        return canonical_dtype(name)
    except LaunchError as error:
        near = difflib.get_close_matches(name, [*SCALARS, "fp16", "fp32", "fp64"], n=1)
        raise SignatureError(
            f"unknown dtype {name!r} in the argument type {text!r}",
            hint=f"did you mean {near[0]!r}?" if near else f"use {known_dtypes()}",
        ) from error


def _descriptor(text: str) -> ArgumentType:
    match = _DESCRIPTOR.fullmatch(text.strip())
    if match is None:
        raise SignatureError(
            f"cannot read the argument type {text!r}",
            hint='write a tensor descriptor as "tensordesc<fp16[64, 64]>" or "tensordesc<fp16[64, 64], nan>"',
        )
    dtype = _dtype(match["dtype"], text)
    block = tuple(int(size) for size in match["block"].split(",") if size.strip())
    try:
        check_block(Tile(SCALARS[dtype], block), match["padding"] or "zero", text)
    except TypeMismatch as error:
        raise SignatureError(error.message, hint=error.hint) from error
    if match["tf32"] and dtype != "f32":
        raise SignatureError(f"{text!r} rounds {dtype} to tf32", hint="only f32 is rounded")
    return ArgumentType(
        dtype,
        True,
        match["const"] is not None,
        ALIGNMENT,
        block=block,
        padding=match["padding"] or "zero",
        tf32=match["tf32"] is not None,
    )


def _promise(text: str, promise: str | None, pointer: bool, dtype: str) -> tuple[int, bool]:
    """Divisibility and is-one of the part after the colon."""
    if promise is None:
        return 1, False
    if promise not in ("1", str(ALIGNMENT)):
        raise SignatureError(
            f"unknown promise {':' + promise!r} in the argument type {text!r}",
            hint=f'":{ALIGNMENT}" promises divisibility by {ALIGNMENT}, ":1" an integer equal to 1',
        )
    if not pointer and not SCALARS[dtype].is_integer:
        raise SignatureError(
            f"the argument type {text!r} promises divisibility of a floating-point number",
            hint=f'write "{dtype}"',
        )
    if promise == "1" and pointer:
        raise SignatureError(f"the argument type {text!r} says that a pointer is 1", hint='use ":16"')
    return (1, True) if promise == "1" else (ALIGNMENT, False)
