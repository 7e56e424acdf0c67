"""Mathematical functions: the target's approximations where they are good, templates elsewhere.

f16 and bf16 are computed in f32, and no bitcode library is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ...ir.types import F32, F64, Scalar
from ...llvm import maths as templates
from ...llvm.typed import Emitter, Typed
from ...tile import elementwise as ew
from .casts import convert
from .elementwise import intrinsic, kind_of
from .lowering import Lowering, elementwise

LOG2_E = 1 / math.log(2)

#: Functions that LLVM turns into one instruction for every float type.
_ROUNDINGS = {ew.Floor: "floor", ew.Ceil: "ceil", ew.Trunc: "trunc", ew.RoundEven: "roundeven"}


def _register_rounding(kind: type[ew.FloatUnary], name: str) -> None:
    @elementwise(kind)
    def lower(state: Lowering, op: ew.FloatUnary, args: list[str]) -> str:
        scalar, type = kind_of(state, op.x)
        if scalar == F64:
            return intrinsic(state, name, type, args[0])
        wide = convert(state, args[0], scalar, F32)
        return convert(state, intrinsic(state, name, "float", wide), F32, scalar)


for _kind, _name in _ROUNDINGS.items():
    _register_rounding(_kind, _name)


def _register(kind: type[ew.FloatUnary], single: Callable[[Lowering, str], str] | None) -> None:
    """``single``: how f32 is computed unless it shall be precise, a function of (state, x); None for the template."""

    @elementwise(kind)
    def lower(state: Lowering, op: ew.FloatUnary, args: list[str]) -> str:
        scalar, _ = kind_of(state, op.x)
        if scalar == F64:
            return _template(state, kind.mnemonic, scalar, args[0])
        x = convert(state, args[0], scalar, F32)
        if single is None or (isinstance(op, ew.Exp) and op.precise):
            y = _template(state, kind.mnemonic, F32, x)
        else:
            y = single(state, x)
        return convert(state, y, F32, scalar)


def _template(state: Lowering, name: str, scalar: Scalar, *operands: str) -> str:
    type = "double" if scalar == F64 else "float"
    return templates.emit(Emitter(state.text, contract=True), name, *(Typed(type, x) for x in operands)).name


def _register_of_two(kind: type[ew.FloatBinary]) -> None:
    @elementwise(kind)
    def lower(state: Lowering, op: ew.FloatBinary, args: list[str]) -> str:
        scalar, _ = kind_of(state, op.lhs)
        wide = F64 if scalar == F64 else F32
        operands = (convert(state, x, scalar, wide) for x in args)
        return convert(state, _template(state, kind.mnemonic, wide, *operands), wide, scalar)


def _exp(state: Lowering, x: str) -> str:
    scaled = state.text.op(f"fmul float {x}, {state.constant(F32, LOG2_E)}")
    return state.machine.exp2(state, scaled)


_register(ew.Exp2, lambda state, x: state.machine.exp2(state, x))
_register(ew.Exp, _exp)
_register(ew.Log, None)
_register(ew.Log2, None)
_register(ew.Sin, None)
_register(ew.Cos, None)
_register(ew.Tanh, None)
_register(ew.Erf, None)
_register(ew.Exp10, None)
_register(ew.Log10, None)
_register(ew.Atan, None)
_register_of_two(ew.Pow)
_register_of_two(ew.Atan2)


@elementwise(ew.Sqrt)
def _sqrt(state: Lowering, op: ew.Sqrt, args: list[str]) -> str:
    scalar, _ = kind_of(state, op.x)
    if scalar == F64:
        return intrinsic(state, "sqrt", "double", args[0])
    x = convert(state, args[0], scalar, F32)
    return convert(state, state.machine.sqrt(state, x, op.precise), F32, scalar)


@elementwise(ew.Rsqrt)
def _rsqrt(state: Lowering, op: ew.Rsqrt, args: list[str]) -> str:
    scalar, _ = kind_of(state, op.x)
    if scalar == F64:
        root = intrinsic(state, "sqrt", "double", args[0])
        return state.text.op(f"fdiv double {state.constant(F64, 1.0)}, {root}")
    x = convert(state, args[0], scalar, F32)
    return convert(state, state.machine.rsqrt(state, x), F32, scalar)
