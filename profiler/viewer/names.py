"""How frames are named: Python frames shortened, and names made safe to print."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

from ..errors import UsageError

# file:line@function, and file:function@line of older files.
_PYTHON_FRAME = re.compile(r"^(?P<file>.+?):(?:(?P<line>\d+)@(?P<function>.+)|.+@\d+)$")
# Line breaks, escape sequences and other controls; what reverses the direction of text; halves of surrogate pairs.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]"
)


def shortener(style: str | None) -> Callable[[str], str]:
    """The function that names frames in a style of :data:`STYLES`: Python frames are shortened, other names stay.

    Raises UsageError for an unknown style.
    """
    shorten = _STYLES.get(style or "full")
    if shorten is None:
        raise UsageError(f"unknown format {style!r}", hint=f"one of {', '.join(STYLES)}")
    return lambda name: shorten(name) if _PYTHON_FRAME.match(name) else name


def printable(name: str) -> str:
    """A name as one line of text that moves no cursor: controls become escapes like ``\\x1b``."""
    if name.isascii() and name.isprintable():  # nearly always
        return name
    return _UNPRINTABLE.sub(lambda found: _escape(found[0]), name)


def _escape(character: str) -> str:
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character)
    code = ord(character)
    return short or (f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}")


def columns_wide(text: str) -> int:
    """How many columns of a terminal the text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(character) else 2 if unicodedata.east_asian_width(character) in "WF" else 1
        for character in text
    )


def _file_function_line(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _function_line(name: str) -> str:
    return name.rsplit(":", 1)[-1]


def _file_function(name: str) -> str:
    file = _file_function_line(name).split(":")[0]
    last = name.rsplit("@", 1)[-1]
    function = name.rsplit(":", 1)[-1].split("@")[0] if last.isdigit() else last.split(":")[0]
    return f"{file}@{function}"


_STYLES: dict[str, Callable[[str], str]] = {
    "full": str,
    "file_function_line": _file_function_line,
    "function_line": _function_line,
    "file_function": _file_function,
}
STYLES = tuple(_STYLES)
