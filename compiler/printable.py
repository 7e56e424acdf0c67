"""Text from elsewhere (names in bundles, kernels, devices, services), made harmless for a terminal and a log; and how
values and places of kernels look there."""

from __future__ import annotations

import re
import unicodedata
from types import BuiltinFunctionType, FunctionType, MethodType

#: What moves the cursor, changes colours or titles, or reorders what was printed: control characters except tabulators
#: and the ends of lines, separators and directions of Unicode, and halves of surrogate pairs, which cannot be encoded.
_CONTROLS = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_COMMANDS = re.compile(rf"[{_CONTROLS}\ud800-\udfff]|\r(?!\n)")
#: What :func:`printable_line` leaves as it is, in words of JSON Schema. Halves of surrogate pairs are no part of it: to
#: JavaScript a letter beyond 2^16 is two of them.
LINE_PATTERN = rf"^[^\t\r\n{_CONTROLS}]*$"
_LINES = re.compile(r"[\t\r\n]")


def printable(text: str) -> str:
    """``text`` with control characters as escapes, ``\\x1b`` for the one that begins a terminal's commands."""
    return _COMMANDS.sub(_escaped, text)


def printable_line(text: str) -> str:
    """The same for text that stays one line: also ends of lines and tabulators are escapes."""
    return _LINES.sub(_escaped, printable(text))


def _escaped(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


#: Most characters of a value in a message.
MOST_SHOWN = 200


def shown(value: object) -> str:
    """How a message calls a value: as Python writes it, functions and classes by name, and in bounds."""
    named = isinstance(value, FunctionType | BuiltinFunctionType | MethodType | type)
    text = str(value.__name__) if named else repr(value)  # type: ignore[attr-defined]
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."


def blanks(text: str) -> str:
    """Blanks as wide as ``text`` on a terminal, to put something under what follows it."""
    return "".join(" " * _width(character) if character != "\t" else "\t" for character in text)


def _width(character: str) -> int:
    """How many columns of a terminal a character takes."""
    if character.isascii() and character.isprintable():
        return 1
    if unicodedata.combining(character) or unicodedata.category(character).startswith("C"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1
