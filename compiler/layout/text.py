"""The text form of a layout: one token of IR text, without spaces or quotes.

::

    layout  = "#ll[" shape section* "]"
    shape   = [ number { "x" number } ]           tile sizes; nothing for a rank-0 tile
    section = ";" ("r" | "l" | "w" | "b") "=" basis { "," basis }
    basis   = "_" | number { "." number }         "_" is the zero vector: a broadcast bit

Sections stand in the order r, l, w, b (register, lane, warp, block bits, lowest bit first) and an empty one is
left out. ``#ll[16x8;r=0.1,8.0;l=0.2,0.4,1.0,2.0,4.0;w=_]`` is an mma accumulator copied to two warps.
The whole token matches ``#ll\\[[0-9x;=,._rlwb]*\\]``.
"""

from __future__ import annotations

import re
from functools import lru_cache

from .errors import LayoutError
from .linear import Coordinates, LinearLayout

TOKEN_PATTERN = r"#ll\[[0-9x;=,._rlwb]*\]"
_FORM = re.compile(r"#ll\[([0-9x]*)(?:;r=([^;]+))?(?:;l=([^;]+))?(?:;w=([^;]+))?(?:;b=([^;]+))?\]")


def format_layout(layout: LinearLayout) -> str:
    """The token of a layout; ``parse_layout`` reads it back."""
    parts = ["x".join(map(str, layout.shape))]
    for letter, bases in zip("rlwb", (layout.register, layout.lane, layout.warp, layout.block), strict=True):
        if bases:
            parts.append(f"{letter}={','.join(_format_basis(basis) for basis in bases)}")
    return f"#ll[{';'.join(parts)}]"


def _format_basis(basis: Coordinates) -> str:
    return ".".join(map(str, basis)) if any(basis) else "_"


@lru_cache(maxsize=4096)
def parse_layout(text: str) -> LinearLayout:
    """The layout of a token; raises LayoutError for text that does not follow the grammar."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise LayoutError(f"{text!r} is not a layout", hint="the form is #ll[16x8;r=0.1,8.0;l=0.2,...;w=16.0]")
    try:
        shape = tuple(int(size) for size in match[1].split("x")) if match[1] else ()
        bases = [
            [_parse_basis(basis, len(shape)) for basis in section.split(",")] if section else []
            for section in match.groups()[1:]
        ]
    except ValueError:
        raise LayoutError(f"{text!r} has a malformed number") from None
    return LinearLayout.from_bases(shape, *bases)


def _parse_basis(text: str, rank: int) -> Coordinates:
    return (0,) * rank if text == "_" else tuple(int(part) for part in text.split("."))
