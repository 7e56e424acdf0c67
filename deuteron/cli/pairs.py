"""NAME=VALUE options, and what values mean."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from .errors import CommandError


def parse_pairs(texts: Sequence[str], option: str) -> dict[str, str]:
    """Read ``["A=1", "B=2"]``; several pairs may share one text when commas separate them.

    Raises:
        CommandError: a part is no pair, or a name comes twice.
    """
    found: dict[str, str] = {}
    for part in (part for text in texts for part in split_outside(text)):
        name, value = parse_pair(part, option)
        if name in found:
            raise CommandError(f"{option} gives {name!r} twice")
        found[name] = value
    return found


def parse_pair(text: str, option: str) -> tuple[str, str]:
    """One NAME=VALUE, or NAME.0=VALUE for an element of a tuple; the value may contain commas. Raises CommandError."""
    name, equals, value = text.partition("=")
    base, *places = name.strip().split(".")
    if not equals or not base.isidentifier() or not all(place.isdecimal() for place in places):
        raise CommandError(f"{option} {text!r} is not NAME=VALUE", hint=f"{option} NAME=VALUE")
    return name.strip(), value.strip()


def split_outside(text: str) -> list[str]:
    """Split at commas outside brackets and quotes: ``a=(1,2),b=3`` has two parts."""
    parts, depth, quote, current = [], 0, "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if character == "," and depth == 0 and not quote:
            parts.append(current)
            current = ""
        else:
            current += character
    return [part for part in (*parts, current) if part.strip()]


def parse_value(text: str) -> object:
    """A compile-time value: a Python literal, a dtype such as ``tl.float16``, else the text itself."""
    if text.startswith("tl."):
        from deuteron.compiler.ir.types import SCALARS  # lazy: help starts without the compiler
        from deuteron.compiler.runtime.arrays.dtypes import canonical_dtype  # lazy: help starts without the compiler

        return SCALARS[canonical_dtype(text.removeprefix("tl."))]
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
    return value
