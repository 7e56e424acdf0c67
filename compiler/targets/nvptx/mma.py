"""Matrix products by tensor core instructions: ``mma.sync``."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...errors import UnsupportedOp
from ...gpu.ops import Mma
from ...hardware import LANES, REGISTER_BITS
from ...ir.core import Value
from ...ir.types import BF16, F8E4M3, F8E5M2, F16, F32, F64, I8, I32, U8
from ...layout import LinearLayout
from ..simt.lowering import Lowering, rule
from ..simt.vectors import define_words, packed_words
from .machine import RULES

PTX_NAMES = {
    F16: "f16",
    BF16: "bf16",
    F32: "tf32",
    F64: "f64",
    I8: "s8",
    U8: "u8",
    F8E4M3: "e4m3",
    F8E5M2: "e5m2",
}
#: How LLVM and PTX call the registers of accumulators, of which f16 fills each with two, and their letter in assembly.
ACCUMULATORS = {
    F16: ("i32", "r", "f16"),
    F32: ("float", "f", "f32"),
    F64: ("double", "d", "f64"),
    I32: ("i32", "r", "s32"),
}


@rule(Mma, RULES)
def _mma(state: Lowering, op: Mma) -> None:
    elem = op.a.type.elem
    a, b = in_words(state, op.a), in_words(state, op.b)
    if elem == F32:
        variants = _tf32_products(state, a, b, op.precision)
    else:
        variants = [(a, b)]
    acc = in_words(state, op.acc)
    tiles = _Tiles(op)
    multiply = _short_instruction if tiles.short else _instruction
    for k in range(tiles.k):
        for m in range(tiles.m):
            for n in range(tiles.n):
                place = _fragment(m * tiles.n + n, tiles.of_acc)
                for left, right in variants:
                    a_words = left[_fragment(m * tiles.k + k, tiles.of_a)]
                    b_words = right[_fragment(n * tiles.k + k, tiles.of_b)]
                    acc[place] = multiply(state, op, a_words, b_words, acc[place])
    define_in_words(state, op.result, acc)


def elements_of_a_word(value: Value) -> int:
    """How many elements of ``value`` one register of an instruction holds."""
    return max(1, REGISTER_BITS // value.type.elem.bits)


def in_words(state: Lowering, value: Value) -> list[str]:
    """The registers of all fragments, in order: words of 32 bits, or elements of 32 and 64 bits as they are."""
    registers = state.values[value]
    per_word = elements_of_a_word(value)
    if per_word == 1:
        return registers.force()
    starts = range(0, len(registers), per_word)
    return [packed_words(state, value, range(i, i + per_word))[0] for i in starts]


def define_in_words(state: Lowering, value: Value, words: Sequence[str]) -> None:
    """The inverse of :func:`in_words`."""
    per_word = elements_of_a_word(value)
    if per_word == 1:
        state.define(value, words)
    else:
        define_words(state, value, {per_word * i: word for i, word in enumerate(words)}, per_word)


def _fragment(number: int, words: int) -> slice:
    return slice(number * words, (number + 1) * words)


class _Tiles:
    """How many instructions one warp issues along M, N and K, and how many operands of an instruction a lane has: half
    of A and of the accumulator where there are fewer rows than the instruction has, and zeros stand for the others."""

    def __init__(self, op: Mma) -> None:
        layouts = [v.type.layout for v in (op.a, op.b, op.acc)]
        if None in layouts:
            raise UnsupportedOp("gpu.mma needs layouts", location=op.location)
        rows, columns, depth = map(int, re.findall(r"\d+", op.instruction))
        packed = elements_of_a_word(op.a)
        self.of_a, self.of_b = rows * depth // (LANES * packed), columns * depth // (LANES * packed)
        self.of_acc = rows * columns // LANES // elements_of_a_word(op.acc)
        #: Whether the rows from the eighth on are zeros.
        self.short = op.acc.type.shape[0] < rows
        if self.short:
            self.of_a, self.of_acc = self.of_a // 2, self.of_acc // 2
        self.k = op.a.type.shape[1] // depth
        self.m = _registers(layouts[0]) // (self.of_a * packed * self.k)
        self.n = _registers(layouts[1]) // (self.of_b * packed * self.k)


def _registers(layout: LinearLayout | None) -> int:
    return layout.registers if layout is not None else 1


def _tf32_products(state: Lowering, a: list[str], b: list[str], precision: str) -> list[tuple[list[str], list[str]]]:
    """The products to add up: one of the operands as they are, of which tensor cores do not read the last 13 bits, here
    as in ``wgmma``; or three that recover most of f32 (small ones first)."""
    if precision != "tf32x3":
        bits = [[state.text.op(f"bitcast float {value} to i32") for value in side] for side in (a, b)]
        return [(bits[0], bits[1])]
    big = [[_round_to_tf32(state, v) for v in side] for side in (a, b)]
    small = [
        [_rest(state, value, rounded) for value, rounded in zip(side, rounds, strict=True)]
        for side, rounds in zip((a, b), big, strict=True)
    ]
    return [(small[0], big[1]), (big[0], small[1]), (big[0], big[1])]


def _round_to_tf32(state: Lowering, value: str) -> str:
    return state.text.asm(["i32"], "cvt.rna.tf32.f32 $0, $1;", "=r,f", [("float", value)], effects=False)[0]


def _rest(state: Lowering, value: str, rounded: str) -> str:
    big = state.text.op(f"bitcast i32 {rounded} to float")
    return _round_to_tf32(state, state.text.op(f"fsub float {value}, {big}"))


def _instruction(state: Lowering, op: Mma, a: Sequence[str], b: Sequence[str], acc: Sequence[str]) -> list[str]:
    kind = PTX_NAMES[op.a.type.scalar]
    out, letter, name = ACCUMULATORS[op.acc.type.scalar]
    word, of_word = ("double", "d") if kind == "f64" else ("i32", "r")
    count = len(acc)
    d, first, second = _operands(0, count), _operands(count, len(a)), _operands(count + len(a), len(b))
    text = (
        f"mma.sync.aligned.{op.instruction}.row.col.{name}.{kind}.{kind}.{name} "
        f"{{{d}}}, {{{first}}}, {{{second}}}, {{{d}}};"
    )
    constraints = ",".join([f"={letter}"] * count + [of_word] * (len(a) + len(b)) + [str(i) for i in range(count)])
    operands = [(word, v) for v in (*a, *b)] + [(out, v) for v in acc]
    return state.text.asm([out] * count, text, constraints, operands, effects=False, convergent=True)


def _short_instruction(state: Lowering, op: Mma, a: Sequence[str], b: Sequence[str], acc: Sequence[str]) -> list[str]:
    """Of the rows from the eighth on, which every second word of A and the later half of the sums are for, there are
    none."""
    nothing = "0.0" if op.acc.type.elem == F32 else "0"
    whole = [word for own in a for word in (own, "0")]
    return _instruction(state, op, whole, b, [*acc, *[nothing] * len(acc)])[: len(acc)]


def _operands(first: int, count: int) -> str:
    return ",".join(f"${first + i}" for i in range(count))
