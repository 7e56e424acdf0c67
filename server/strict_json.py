"""JSON at the door. Python's reader lets through what nothing behind it can keep: numbers that are not numbers, text
that has no UTF-8 form or that PostgreSQL cannot store, and nesting that breaks the first recursive function.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Never

from .problems import HttpProblem

#: Levels of arrays and objects in one body. What this service defines needs eight.
MAX_DEPTH = 64


def read_json(body: bytes) -> object:
    """The value of a body.

    Raises:
        json.JSONDecodeError: it is not JSON.
        HttpProblem: 400, it is JSON that no client needs: the detail says what and where.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _bad(f"byte {error.start} is not UTF-8") from None
    try:
        value: object = json.loads(
            text, parse_constant=_refuse_constant, parse_float=_finite, object_pairs_hook=_unique
        )
    except RecursionError:
        raise _bad(f"it is nested more than {MAX_DEPTH} levels deep") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # a whole number of thousands of digits
        raise _bad(str(error).partition(";")[0]) from None
    _check(value)
    return value


def _check(value: object) -> None:
    """Level by level, so that no depth is too deep for the check itself."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH + 1):
        following: list[object] = []
        for item in level:
            if isinstance(item, str):
                _check_text(item)
            elif isinstance(item, dict):
                following += item.keys()
                following += item.values()
            elif isinstance(item, list):
                following += item
        if not following:
            return
        level = following
    raise _bad(f"it is nested more than {MAX_DEPTH} levels deep")


def _check_text(text: str) -> None:
    if text.isascii():
        if "\0" in text:
            raise _bad("a text contains the character U+0000")
        return
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise _bad(f"a text contains half of a surrogate pair, \\u{ord(text[error.start]):04x}") from None
    if "\0" in text:
        raise _bad("a text contains the character U+0000")


def _refuse_constant(name: str) -> Never:
    raise _bad(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    made = dict(pairs)
    if len(made) != len(pairs):
        counts = Counter(name for name, _ in pairs)
        twice = next(name for name, count in counts.items() if count > 1)
        raise _bad(f"an object has the name {twice[:40]!r} twice")
    return made


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise _bad(f"{digits[:40]} is larger than any number that can be kept")
    return number


def _bad(reason: str) -> HttpProblem:
    return HttpProblem(
        400,
        "bad-json",
        f"the body cannot be used: {reason}",
        hint="send one JSON document of finite numbers and UTF-8 text",
    )
