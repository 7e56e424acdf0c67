"""Instruction order in LLVM text: what is stored is computed just before its store, instead of a whole tile at a time.

Code generators write one operation of a tile after the other, for all elements of a thread each. An assembler that
takes that order for a wish keeps what all elements come to until the last one is done, and stores it then: a thread
with sixteen elements of two results has a third more registers, and its stores come all at once. So where stores follow
each other, with nothing between them but what computes, each finds what it needs, and nobody had needed so far, just
before it. Loads, and what threads do together, stay where they are, and so does what is computed before them: sums of
what is loaded are not put off until all of it is there. Nor is anything put off where a thread loads much under masks:
an assembler would then keep all of that until it is used, where it loads it bit by bit by itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from .hoist import FREE

#: Words that a thread loads before by inline assembly (under masks, for instance), at most. With 64 it is 0.93 of the
#: time (swiglu, benchmarks/results/2026-11-30-h200-recurrences), with 128 it leaves room for half as many CTAs and
#: takes up to 1.38 (SiLU times a gate, 2026-11-30-h200-loads). Plain loads, which LLVM may move, do not count: if they
#: did, that with 128 words of bf16 would have 168 registers in place of 142 (ptxas for sm_80 to sm_120).
MOST_LOADED = 64
_LOAD = re.compile(r"\bld\.global[\w.:]*?(?:\.v(\d))?\.b(\d+)")
_WORD_BITS = 32
_NAME = re.compile(r"%[\w.]+")
#: Whether they are predicated or not.
_STORES = re.compile(r'  store |  call void asm sideeffect "(?:@\$\d+ )?st\.global')
_MADE = re.compile(r"\s+(%[\w.]+) = (?:tail )?(\w+)")
#: Functions of LLVM that only compute.
_COMPUTES = re.compile(
    r"@llvm\.(?:(?:fma|fabs|sqrt|copysign|minnum|maxnum|minimum|maximum|floor|ceil|trunc|roundeven|rint|umin|umax|smin|smax"
    r"|abs|ctpop|ctlz|cttz|fsh[lr]|bitreverse|bswap|fpto[us]i\.sat)\.|nvvm\.(?:sqrt|rsqrt|rcp|lg2|ex2|div|fma|prmt)\b)"
)
_MORE_FREE = frozenset((
    "fdiv", "frem", "fptosi", "fptoui", "inttoptr", "extractvalue", "insertvalue", "extractelement", "insertelement",
    "shufflevector", "freeze",
))  # fmt: skip


def compute_late(lines: Sequence[str]) -> list[str]:
    """The lines of one function, those of each block in such an order."""
    made: list[str] = []
    block: list[str] = []
    for line in lines:
        if line.endswith(":") or not line.startswith(" "):
            made += [*_in_order(block), line]
            block = []
        else:
            block.append(line)
    return [*made, *_in_order(block)]


def _in_order(block: Sequence[str]) -> Iterator[str]:
    """The lines of a block: each part that ends where anything but a store happens is put in order by itself."""
    part: list[str] = []
    stores = loaded = 0
    for line in block:
        found = _MADE.match(line)
        part.append(line)
        if found is not None and _only_computes(found[2], line):
            continue
        if _STORES.match(line):
            stores += 1
        else:
            yield from _late(part) if stores > 1 and loaded <= MOST_LOADED else part
            part, stores = [], 0
            loaded += _words(line)
    yield from part


def _words(line: str) -> int:
    """Registers that a load writes; 0 for other lines."""
    found = _LOAD.search(line)
    return 0 if found is None else -(-int(found[1] or 1) * int(found[2]) // _WORD_BITS)


def _late(part: Sequence[str]) -> Iterator[str]:
    """Stores, what they need, and one more line."""
    waiting: dict[str, str] = {}
    for line in part[:-1]:
        if _STORES.match(line):
            yield from _needed(line, waiting)
            yield line
        else:
            waiting[line.partition(" = ")[0].strip()] = line
    yield from waiting.values()
    yield part[-1]


def _needed(line: str, waiting: dict[str, str]) -> Iterator[str]:
    """What of ``waiting`` the line needs, operands first; it waits no longer."""
    path = [iter(_NAME.findall(line))]
    lines = [""]
    while path:
        name = next(path[-1], None)
        if name is None:
            path.pop()
            if done := lines.pop():
                yield done
        elif (operand := waiting.pop(name, None)) is not None:
            path.append(iter(_NAME.findall(operand)))
            lines.append(operand)


def _only_computes(instruction: str, line: str) -> bool:
    if instruction != "call":
        return instruction in FREE or instruction in _MORE_FREE
    return ' asm "' in line or _COMPUTES.search(line) is not None
