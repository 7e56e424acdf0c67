"""Loop-invariant code motion in LLVM text: what a loop does not change moves out of it.

LLVM does that too, but among passes that take half of the time from text to PTX, most of it for combining instructions
five times over. Once is enough for text whose loops are in order (:func:`.driver.compile_text`), and llvmlite offers
no pass that only moves.

What counts as a loop here is what the code generators write: its blocks follow its header, the last of them branches
back, and the block before the header does nothing but go there.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

#: Instructions that may run although the original would not have: no memory, no traps, no other threads.
FREE = frozenset((
    "add", "sub", "mul", "and", "or", "xor", "shl", "lshr", "ashr", "icmp", "fcmp", "select", "zext", "sext", "trunc",
    "bitcast", "getelementptr", "ptrtoint", "fadd", "fsub", "fmul", "fneg", "fpext", "fptrunc", "sitofp", "uitofp",
))  # fmt: skip
_NAME = re.compile(r"%[\w.]+")
_TARGET = re.compile(r"label %([\w.]+)")
_Loops = tuple[int, ...]


def hoist_invariants(lines: Sequence[str]) -> list[str]:
    """The lines of one function with invariant instructions moved before the outermost loop that does not change
    them."""
    ends = _back_edges(lines)
    if not ends:
        return list(lines)
    around: _Loops = ()  # the header lines of the loops around this line
    known: dict[str, _Loops] = dict.fromkeys(_NAME.findall(lines[0]), ())
    moved: dict[int, list[str]] = {header: [] for header in ends}
    kept: dict[int, str] = {}
    for number, line in enumerate(lines):
        if number in ends:
            around = (*around, number)
        name, equals, instruction = line.partition(" = ")
        place = around
        if equals:
            if around and instruction[: instruction.find(" ")] in FREE:
                place = _needed(instruction, known, around)
            known[name.lstrip()] = place
        if place == around:
            kept[number] = line
        else:
            moved[around[len(place)]].append(line)
        while around and ends[around[-1]] == number:
            around = around[:-1]
    arranged: list[str] = []
    for number, line in kept.items():
        arranged += moved.get(number + 1, ())
        arranged.append(line)
    return arranged


def _needed(instruction: str, known: dict[str, _Loops], around: _Loops) -> _Loops:
    """The innermost of the loops ``around`` that change an operand, and those outside it."""
    depth = 0
    for name in _NAME.findall(instruction):
        made = known.get(name)
        if made is None:
            return around
        while depth < min(len(made), len(around)) and made[depth] == around[depth]:
            depth += 1
        if depth == len(around):
            break
    return around[:depth]


def _back_edges(lines: Sequence[str]) -> dict[int, int]:
    """By the line of each loop's header, that of the last branch back to it."""
    headers: dict[str, int] = {}
    ends: dict[int, int] = {}
    for number, line in enumerate(lines):
        if line.endswith(":"):
            if lines[number - 1] == f"  br label %{line[:-1]}":
                headers[line[:-1]] = number
        elif line.startswith("  br "):
            ends |= {headers[label]: number for label in _TARGET.findall(line) if label in headers}
    return ends
