"""Matrix products by tensor core instructions: ``mma.sync``."""

from __future__ import annotations

from ...errors import UnsupportedOp
from ...gpu.ops import Mma
from ...ir.core import Value
from ...ir.types import BF16, F8E4M3, F8E5M2, F16, F32, I8, U8
from ...layout import LinearLayout
from ..simt.lowering import Lowering, rule
from ..simt.vectors import packed_words
from .machine import RULES

PTX_NAMES = {
    F16: "f16",
    BF16: "bf16",
    F32: "tf32",
    I8: "s8",
    U8: "u8",
    F8E4M3: "e4m3",
    F8E5M2: "e5m2",
}


@rule(Mma, RULES)
def _mma(state: Lowering, op: Mma) -> None:
    elem = op.a.type.elem
    a, b = _words(state, op.a), _words(state, op.b)
    if elem == F32:
        variants = _tf32_products(state, a, b, op.precision)
    else:
        variants = [(a, b)]
    acc = list(state.values[op.acc].force())
    tiles = _Tiles(op)
    for k in range(tiles.k):
        for m in range(tiles.m):
            for n in range(tiles.n):
                place = slice(4 * (m * tiles.n + n), 4 * (m * tiles.n + n) + 4)
                for left, right in variants:
                    acc[place] = _instruction(
                        state,
                        op,
                        left[4 * (m * tiles.k + k) : 4 * (m * tiles.k + k) + 4],
                        right[2 * (n * tiles.k + k) : 2 * (n * tiles.k + k) + 2],
                        acc[place],
                    )
    state.define(op.result, acc)


class _Tiles:
    """How many instructions one warp issues along M, N and K."""

    def __init__(self, op: Mma) -> None:
        layouts = [v.type.layout for v in (op.a, op.b, op.acc)]
        if None in layouts:
            raise UnsupportedOp("gpu.mma needs layouts", location=op.location)
        packed = 32 // op.a.type.elem.bits
        self.k = op.a.type.shape[1] // (8 * packed)
        self.m = _registers(layouts[0]) // (4 * packed * self.k)
        self.n = _registers(layouts[1]) // (2 * packed * self.k)


def _registers(layout: LinearLayout | None) -> int:
    return layout.registers if layout is not None else 1


def _words(state: Lowering, value: Value) -> list[str]:
    """The .b32 operands of all fragments, in register order; f32 elements as they are."""
    registers = state.values[value]
    per_word = 32 // value.type.elem.bits
    if per_word == 1:
        return registers.force()
    starts = range(0, len(registers), per_word)
    return [packed_words(state, value, range(i, i + per_word))[0] for i in starts]


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


def _instruction(state: Lowering, op: Mma, a: list[str], b: list[str], acc: list[str]) -> list[str]:
    kind = PTX_NAMES[op.a.type.scalar]
    floating = op.acc.type.is_float
    out, letter, name = ("float", "f", "f32") if floating else ("i32", "r", "s32")
    text = (
        f"mma.sync.aligned.{op.instruction}.row.col.{name}.{kind}.{kind}.{name} "
        "{$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$0,$1,$2,$3};"
    )
    constraints = ",".join([f"={letter}"] * 4 + ["r"] * 6 + ["0", "1", "2", "3"])
    operands = [("i32", v) for v in (*a, *b)] + [(out, v) for v in acc]
    return state.text.asm([out] * 4, text, constraints, operands, effects=False, convergent=True)
