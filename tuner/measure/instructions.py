"""What kinds of instructions a GPU kernel has, counted in its PTX."""

from __future__ import annotations

import re
from collections import Counter
from typing import ClassVar, Literal, TypeAlias

from ..codec import Document

InstructionClass: TypeAlias = Literal["tensor", "arithmetic", "special", "global", "shared", "synchronisation", "other"]

# A statement begins after a line's start, a brace or a semicolon; a predicate may stand before the mnemonic.
_MNEMONIC = re.compile(r"(?:^|[;{])\s*(?:@!?%\w+\s+)?([a-z][\w:.]*)(?=[\s;])", re.MULTILINE)
_CLASSES: tuple[tuple[InstructionClass, re.Pattern[str]], ...] = (
    ("tensor", re.compile(r"wgmma\.mma_async|mma\.|wmma\.mma|tcgen05\.mma")),
    ("synchronisation", re.compile(r"bar\.|barrier|mbarrier|membar|fence|wgmma\.|cp\.async.*(wait|commit)|nanosleep")),
    ("global", re.compile(r"(ld|st|atom|red|cp)\b.*\.global|cp\.async|prefetch")),
    ("shared", re.compile(r"(ld|st|atom|red)\b.*\.shared|ldmatrix|stmatrix|shfl")),
    ("special", re.compile(r"(ex2|lg2|sin|cos|tanh|rcp|sqrt|rsqrt)\.|div\.")),
    ("arithmetic", re.compile(r"(fma|add|sub|mul|mad|min|max|neg|abs|dp4a|dp2a|copysign)\b")),
)


class InstructionMix(Document, frozen=True):
    """Instructions in the text of a kernel, by class, each counted once however often loops run it.

    ``tensor``: matrix products; ``arithmetic``: sums, products and extrema of integers and floats; ``special``:
    quotients, roots, exponents; ``global_memory``, ``shared_memory`` (shuffles among lanes too); ``synchronisation``;
    ``other``: moves, conversions, logic, branches.
    """

    noun: ClassVar[str] = "instruction mix"

    tensor: int = 0
    arithmetic: int = 0
    special: int = 0
    global_memory: int = 0
    shared_memory: int = 0
    synchronisation: int = 0
    other: int = 0

    @property
    def total(self) -> int:
        """Of all classes."""
        return sum(getattr(self, name) for name in self.__struct_fields__)


def instruction_mix(ptx: str) -> InstructionMix:
    """Count the instructions of a PTX text; declarations, labels and comments are none."""
    code = re.sub(r"//[^\n]*", "", ptx)
    found = Counter(_class_of(mnemonic) for mnemonic in _MNEMONIC.findall(code))
    return InstructionMix(
        tensor=found["tensor"],
        arithmetic=found["arithmetic"],
        special=found["special"],
        global_memory=found["global"],
        shared_memory=found["shared"],
        synchronisation=found["synchronisation"],
        other=found["other"],
    )


def _class_of(mnemonic: str) -> InstructionClass:
    return next((name for name, pattern in _CLASSES if pattern.match(mnemonic)), "other")
