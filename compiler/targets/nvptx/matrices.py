"""``stmatrix``: a warp writes 8x8 matrices of fragments to shared memory, from sm_90 on (PTX ISA, "stmatrix")."""

from __future__ import annotations

from collections.abc import Sequence

from ...ir.core import Value
from ...layout import MatrixAccess
from ..simt.lowering import Lowering, reach_of
from ..simt.vectors import packed_words, words_of


def store_matrices(state: Lowering, value: Value, write: MatrixAccess, part: range, shift: int) -> None:
    """Write the registers of ``value`` whose bytes of the tile lie in ``part``, each ``shift`` bytes from there."""
    thread = state.thread_bits(write.lane, write.warp)
    reach = reach_of((*write.lane, *write.warp))
    per_word = 4 // write.element_bytes
    count = write.matrices
    inputs = ", ".join(f"${1 + i}" for i in range(count))
    transposed = ".trans" if write.transposed else ""
    bases: dict[int, str] = {}
    for group, offset in zip(write.registers, write.offsets, strict=True):
        if offset not in part:
            continue
        xored = offset & reach
        if xored not in bases:
            address = state.shared(state.add_bits(thread, reach, xored))
            bases[xored] = state.text.op(f"ptrtoint ptr addrspace(3) {address} to i32")
        words = [_word(state, value, group[i : i + per_word]) for i in range(0, len(group), per_word)]
        text = (
            f"stmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16 "
            f"[$0 + {(offset & ~reach) + shift}], {{{inputs}}};"
        )
        operands = [("i32", bases[xored]), *(("i32", word) for word in words)]
        state.text.asm([], text, ",".join(["r"] * (1 + count)) + ",~{memory}", operands, convergent=True)


def _word(state: Lowering, value: Value, registers: Sequence[int]) -> str:
    """The 32 bits of ``registers``; a float of so many fills them by itself."""
    (word,) = packed_words(state, value, registers)
    type = words_of(value.type.elem, len(registers)).type
    return word if type == "i32" else state.text.op(f"bitcast {type} {word} to i32")
