"""Casts of bytes to floats, four at a time.

One at a time they are slow: GPUs convert integers at a quarter of the rate of additions. So bytes are put into the low
bits of a float whose last bit is worth one, and what that adds is subtracted; every step is exact. Kernels that
multiply with quantised weights are bound by such casts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ...ir.types import BF16, F8E4M3, F16, F32, Scalar
from ...tile.elementwise import Cast
from .casts import cast_one, convert
from .lowering import Lowering, rule

GROUP = 4
_SIGNS = 0x80808080
# Bytes of the second word are numbered from 4 on: these take bytes 0 and 1, or 2 and 3, each under byte 4.
_PAIRS = (0x4140, 0x4342)

Widen = Callable[[Lowering, Sequence[str]], list[str]]


@rule(Cast)
def _cast(state: Lowering, op: Cast) -> None:
    operand, equal = state.values[op.x], state.equal_registers(op.result)
    apart = equal is None and operand.canonical == tuple(range(len(operand))) and len(operand) % GROUP == 0
    widen = _rule_of(op.x.type.scalar, op.to) if apart and isinstance(op.to, Scalar) else None
    made: dict[int, list[str]] = {}

    def element(index: int) -> str:
        if widen is None:
            return cast_one(state, op, [operand[index]])
        first = index - index % GROUP
        if first not in made:
            made[first] = widen(state, [operand[i] for i in range(first, first + GROUP)])
        return made[first][index - first]

    state.define_lazily(op.result, [operand], element, equal)


def _rule_of(source: Scalar, to: Scalar) -> Widen | None:
    """What widens four of ``source``; None where one at a time is as good."""
    if source.bits != 8 or to not in (F16, BF16, F32):
        return None
    if source.is_float:
        return partial(_widen_e4m3 if source == F8E4M3 else _widen_e5m2, to=to)
    return partial({F16: _integers_as_f16, BF16: _integers_as_bf16, F32: _integers_as_f32}[to], signed=source.is_signed)


def _integers_as_f16(state: Lowering, values: Sequence[str], *, signed: bool) -> list[str]:
    """0x6400 with a byte in its low bits is 1024 and that byte; a signed one has 128 added to it before."""
    word = _counted_from_zero(state, values, signed)
    found = []
    for pair in _PAIRS:
        bits = state.machine.pick_bytes(state, word, _constant(0x64646464), pair)
        number = state.text.op(f"bitcast i32 {bits} to <2 x half>")
        base = 1024 + 128 * signed
        bias = state.text.op(f"bitcast i32 {_twice(0x6400 + base - 1024)} to <2 x half>")
        found += _halves(state, "half", state.text.op(f"fsub <2 x half> {number}, {bias}"))
    return found


def _integers_as_bf16(state: Lowering, values: Sequence[str], *, signed: bool) -> list[str]:
    """0x4300 with seven bits in its low ones is 128 and these; with the eighth bit, which counts -128 in a signed byte,
    it is 256. The latter is subtracted from the former. An unsigned byte is 128 and the signed one of the other sign.
    """
    word = _word_of(state, values)
    if not signed:
        word = state.text.op(f"xor i32 {word}, {_constant(_SIGNS)}")
    found = []
    for pair in _PAIRS:
        bits = state.machine.pick_bytes(state, word, _constant(0x43434343), pair)
        parts = [state.text.op(f"and i32 {bits}, {_twice(mask)}") for mask in (0xFF7F, 0xFF80)]
        low, high = (state.text.op(f"bitcast i32 {part} to <2 x bfloat>") for part in parts)
        number = _fused(state, high, 0xBF80, low)
        if not signed:
            number = _fused(state, number, 0x3F80, state.text.op(f"bitcast i32 {_twice(0x4300)} to <2 x bfloat>"))
        found += _halves(state, "bfloat", number)
    return found


def _fused(state: Lowering, x: str, factor: int, y: str) -> str:
    """x times a bf16 by its bits, and y: the one arithmetic of bf16 that all targets have."""
    name = "<2 x bfloat>"
    times = state.text.op(f"bitcast i32 {_twice(factor)} to {name}")
    return state.text.call(name, "llvm.fma.v2bf16", [(name, value) for value in (x, times, y)])


def _integers_as_f32(state: Lowering, values: Sequence[str], *, signed: bool) -> list[str]:
    """0x4b000000 with a byte in its low bits is 2^23 and that byte."""
    word = _counted_from_zero(state, values, signed)
    found = []
    for place in range(GROUP):
        bits = state.machine.pick_bytes(state, word, _constant(0x4B000000), 0x7440 | place)
        number = state.text.op(f"bitcast i32 {bits} to float")
        found.append(state.text.op(f"fsub float {number}, {state.constant(F32, 2.0**23 + 128 * signed)}"))
    return found


def _widen_e4m3(state: Lowering, values: Sequence[str], *, to: Scalar) -> list[str]:
    pairs = _halves(state, "i16", state.text.op(f"bitcast i32 {_word_of(state, values)} to <2 x i16>"))
    halves = [half for pair in pairs for half in _halves(state, "half", state.machine.widen_e4m3(state, pair))]
    return [convert(state, half, F16, to) for half in halves]


def _widen_e5m2(state: Lowering, values: Sequence[str], *, to: Scalar) -> list[str]:
    """An e5m2 is the upper byte of the f16 of the same value."""
    word, halves = _word_of(state, values), []
    for pair in (0x1404, 0x3424):
        bits = state.machine.pick_bytes(state, word, "0", pair)
        halves += _halves(state, "half", state.text.op(f"bitcast i32 {bits} to <2 x half>"))
    return [convert(state, half, F16, to) for half in halves]


def _counted_from_zero(state: Lowering, values: Sequence[str], signed: bool) -> str:
    """The word of four bytes, 128 added to signed ones."""
    word = _word_of(state, values)
    return state.text.op(f"xor i32 {word}, {_constant(_SIGNS)}") if signed else word


def _word_of(state: Lowering, values: Sequence[str]) -> str:
    """Four bytes as a word, which they often were before."""
    whole = "poison"
    for i, value in enumerate(values):
        whole = state.text.op(f"insertelement <{GROUP} x i8> {whole}, i8 {value}, i32 {i}")
    return state.text.op(f"bitcast <{GROUP} x i8> {whole} to i32")


def _halves(state: Lowering, kind: str, pair: str) -> list[str]:
    return [state.text.op(f"extractelement <2 x {kind}> {pair}, i32 {i}") for i in range(2)]


def _twice(half: int) -> str:
    return _constant(half << 16 | half)


def _constant(bits: int) -> str:
    """An i32 by its bits, as LLVM text."""
    return str(bits - (bits >> 31 << 32))
