"""What a kernel's instructions are for, counted in its PTX. Counts are of the text: a loop's count once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable

_INSTRUCTION = re.compile(r"\s*(?:\{ *)?(?:@!?%\w+\s+)?([a-z][\w]*)((?:[.:]+\w+)*)")
#: The first pattern that the opcode with its modifiers matches; PTX ISA, "Instruction Set".
_KINDS = (
    ("tensor cores", r"(wgmma\.mma_async|mma|wmma|tcgen05\.mma)\b"),
    ("copies to shared memory", r"cp\.(async|reduce)|prefetch|ld\.global.*nc.*shared"),
    ("synchronisation", r"(bar|barrier|mbarrier|fence|membar|wgmma|griddepcontrol|elect|setmaxnreg|nanosleep)\b"),
    ("atomics", r"(atom|red)\b"),
    ("shared memory", r"(ld|st)\.(volatile\.)?shared|ldmatrix|stmatrix"),
    ("local memory", r"(ld|st)\.local"),
    ("parameters", r"(ld|st)\.param"),
    ("global memory", r"(ld|st|ldu)\b"),
    ("between threads", r"(shfl|vote|match|redux|activemask)\b"),
    ("special functions", r"(ex2|lg2|rcp|rsqrt|sqrt|sin|cos|tanh)\b"),
    ("conversions", r"cvt\b"),
    ("branches", r"(bra|ret|exit|call|brx|trap)\b"),
    ("floating point", r"\w+(\.\w+)*\.(f16|f16x2|bf16|bf16x2|f32|f32x2|f64)\b"),
    ("moves", r"(mov|cvta|selp|prmt)\b"),
)
_COMPILED = [(name, re.compile(pattern)) for name, pattern in _KINDS]
_OTHER = "integers and predicates"


def kind_of(opcode: str) -> str:
    """What an instruction such as ``ld.global.v4.b32`` is for."""
    return next((name for name, pattern in _COMPILED if pattern.match(opcode)), _OTHER)


def instruction_mix(lines: Iterable[str]) -> dict[str, int]:
    """Instructions in lines of PTX by what they are for, the most frequent first."""
    found: Counter[str] = Counter()
    for line in lines:
        match = _INSTRUCTION.match(line)
        if match is not None:
            found[kind_of(match[1] + match[2])] += 1
    return dict(found.most_common())
