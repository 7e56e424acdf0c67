"""Stores under masks that are known to leave one lane, in LLVM text: plain stores of that lane.

LLVM does that too, but for AVX-512 its version 22 stores the lane as wide as it was before it was narrowed, over what
lies behind it (llvm/llvm-project#179489; its loads are right). Which masks are known shows when LLVM has optimised.
"""

from __future__ import annotations

import re

_STORE = re.compile(
    r"call void @llvm\.masked\.store\.[\w.]+\((?P<type><\d+ x (?P<element>i\d+)>) (?P<value>.+?), "
    r"ptr (?:align \d+ )?(?P<pointer>.+), <\d+ x i1> <(?P<mask>i1 \w+(?:, i1 \w+)*)>\)"
)


def store_lone_lanes(text: str) -> str | None:
    """The module with such stores replaced; None where it has none. ``text`` is what LLVM prints."""
    lines = text.split("\n")
    found = False
    for number, line in enumerate(lines):
        match = _STORE.search(line) if "@llvm.masked.store." in line else None
        if match and match["mask"].count("true") == 1:
            lines[number] = "\n".join(_store(match, number))
            found = True
    return "\n".join(lines) if found else None


def _store(match: re.Match[str], number: int) -> list[str]:
    lane = match["mask"].split(", ").index("i1 true")
    element, pointer = match["element"], match["pointer"]
    return [
        f"  %lone.value.{number} = extractelement {match['type']} {match['value']}, i64 {lane}",
        f"  %lone.place.{number} = getelementptr {element}, ptr {pointer}, i64 {lane}",
        f"  store {element} %lone.value.{number}, ptr %lone.place.{number}, align 1",
    ]
