"""f32 to f8e5m2 by integer arithmetic, for GPUs that have no instruction for it."""

from __future__ import annotations

from ...ir.types import F32
from .lowering import Lowering

#: Of f32: bits of the mantissa that f8e5m2 has not.
_DROPPED = 21
#: What the exponents of f32 are more than those of f8e5m2, above the two bits of its mantissa.
_REBIASED = (127 - 15) << 2
#: The bits of 2^-14 in f32.
_SMALLEST_NORMAL = (127 - 14) << 23
#: What numbers beyond become, as by cvt with .satfinite, and what NaN does.
_LARGEST, _NAN = 0x7B, 0x7F
#: A float whose last bit is worth 2^-16, as that of all subnormal f8e5m2, and its bits.
_MAGIC, _MAGIC_BITS = 2.0**7, 0x43000000


def narrow_to_e5m2(state: Lowering, x: str) -> str:
    """The code (i32) of the f8e5m2 nearest to an f32, ties to even; what is beyond its numbers is the largest one."""
    text = state.text
    bits = text.op(f"bitcast float {x} to i32")
    magnitude = text.op(f"and i32 {bits}, {0x7FFFFFFF}")
    odd = text.op(f"and i32 {text.op(f'lshr i32 {magnitude}, {_DROPPED}')}, 1")
    carried = text.op(f"add i32 {text.op(f'add i32 {magnitude}, {odd}')}, {(1 << _DROPPED - 1) - 1}")
    normal = text.op(f"sub i32 {text.op(f'lshr i32 {carried}, {_DROPPED}')}, {_REBIASED}")
    size = text.op(f"bitcast i32 {magnitude} to float")
    summed = text.op(f"fadd float {size}, {state.constant(F32, _MAGIC)}")
    tiny = text.op(f"sub i32 {text.op(f'bitcast float {summed} to i32')}, {_MAGIC_BITS}")
    is_tiny = text.op(f"icmp ult i32 {magnitude}, {_SMALLEST_NORMAL}")
    rounded = text.op(f"select i1 {is_tiny}, i32 {tiny}, i32 {normal}")
    finite = text.call("i32", "llvm.umin.i32", [("i32", rounded), ("i32", str(_LARGEST))])
    sign = text.op(f"and i32 {text.op(f'lshr i32 {bits}, 24')}, 128")
    signed = text.op(f"or i32 {finite}, {sign}")
    return text.op(f"select i1 {text.op(f'fcmp uno float {x}, {x}')}, i32 {_NAN}, i32 {signed}")


def narrow_pair_to_e5m2(state: Lowering, low: str, high: str) -> str:
    """Those of two, the first in the lower byte of an i16."""
    upper = state.text.op(f"shl i32 {narrow_to_e5m2(state, high)}, 8")
    return state.text.op(f"trunc i32 {state.text.op(f'or i32 {upper}, {narrow_to_e5m2(state, low)}')} to i16")
