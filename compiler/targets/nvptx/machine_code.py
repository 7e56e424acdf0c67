"""Machine code of a kernel, as far as it says how often loops wait for memory.

NVIDIA does not document how instructions are encoded. What is read here is what its disassembler shows for sm_80 to
sm_121: 16 bytes each; the operation is in the lowest 12 bits; bits 110 to 112 name the barrier that a load sets when
its data is there, 7 for none; bits 116 to 121 are the barriers that an instruction waits for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

#: Operations: loads from global memory; branches, of which those by a uniform predicate have a number of their own.
_LOAD = 0x981
_BRANCHES = (0x947, 0x547)
#: Compute capability, times ten, from which branches are counted in words of four bytes.
_COUNTS_WORDS = 90
#: ELF: a section's header, and where the file says where all of them are.
_SECTION = struct.Struct("<IIQQQQIIQQ")
_INSTRUCTION = struct.Struct("<QQ")


@dataclass(frozen=True, slots=True)
class Waits:
    """How the innermost loops of a kernel wait for memory, summed up. ``loops``: those that load; ``loads``:
    instructions that load, of an iteration; ``turns``: how often an iteration begins loads, having waited for those
    that it began before."""

    loops: int
    loads: int
    turns: int

    @property
    def in_turns(self) -> bool:
        """Whether a loop waits for some of its loads before it begins others."""
        return self.turns > self.loops

    @property
    def together(self) -> float:
        """Loads under way at the same time, by one thread; 0 where loops load nothing."""
        return self.loads / self.turns if self.turns else 0.0


@dataclass(frozen=True, slots=True)
class _Instruction:
    operation: int
    sets: int
    awaits: int
    #: Where a branch goes: the number of an instruction.
    goes_to: int | None


def waits_of(cubin: bytes, capability: int) -> Waits:
    """How the loops of the only kernel in ``cubin`` wait for memory; ``capability`` is the compute capability times
    ten. Of a file that is laid out in another way nothing is said: no assembler promises this one."""
    made: list[tuple[int, int]] = []
    try:
        for code in _texts(cubin):
            instructions = [_decoded(code, place, capability) for place in range(0, len(code), _INSTRUCTION.size)]
            made += [_waits(instructions[first : last + 1]) for first, last in _innermost(instructions)]
    except (struct.error, IndexError, OverflowError):  # the last: of offsets that no memory has
        return Waits(0, 0, 0)
    return Waits(sum(loads > 0 for loads, _ in made), sum(loads for loads, _ in made), sum(turns for _, turns in made))


def _texts(cubin: bytes) -> Iterator[bytes]:
    """The sections of code of an ELF file."""
    (headers,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [_SECTION.unpack_from(cubin, headers + size * number) for number in range(count)]
    texts = sections[names][4]
    for name, _, _, _, offset, length, *_ in sections:
        if cubin.startswith(b".text.", texts + name):
            yield cubin[offset : offset + length]


def _decoded(code: bytes, place: int, capability: int) -> _Instruction:
    low, high = _INSTRUCTION.unpack_from(code, place)
    operation = low & 0xFFF
    goes_to = None
    if operation in _BRANCHES:
        begin = place // _INSTRUCTION.size + 1
        goes_to = begin + _distance(low, high, capability) // _INSTRUCTION.size
    return _Instruction(operation, high >> 46 & 0x7, high >> 52 & 0x3F, goes_to)


def _distance(low: int, high: int, capability: int) -> int:
    """Bytes from behind a branch to where it goes."""
    if capability < _COUNTS_WORDS:
        return _signed(low >> 32 | (high & 0x3FFFF) << 32, 50)
    return 4 * _signed((low >> 34 | (high & 0x3FFFF) << 30) << 8 | low >> 16 & 0xFF, 56)


def _signed(number: int, bits: int) -> int:
    return number - (1 << bits) if number >> bits - 1 else number


def _innermost(instructions: Sequence[_Instruction]) -> list[tuple[int, int]]:
    """The first and last instructions of the loops that have no loop inside them."""
    loops = [
        (made.goes_to, last)
        for last, made in enumerate(instructions)
        if made.goes_to is not None and 0 <= made.goes_to < last
    ]
    return [one for one in loops if not any(other != one and _holds(one, other) for other in loops)]


def _holds(loop: tuple[int, int], other: tuple[int, int]) -> bool:
    return loop[0] <= other[0] and other[1] <= loop[1]


def _waits(body: Sequence[_Instruction]) -> tuple[int, int]:
    """Loads and turns of a loop."""
    loads = turns = 0
    under_way: set[int] = set()
    waited = True
    for made in body:
        came = {barrier for barrier in under_way if made.awaits >> barrier & 1}
        under_way -= came
        waited = waited or bool(came)
        if made.operation == _LOAD:
            loads, turns = loads + 1, turns + waited
            waited = False
            under_way.add(made.sets)
    return loads, turns
