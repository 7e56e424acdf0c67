"""Counter-based random numbers: Philox 4x32, and 4x64 for wide counters.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.
Written in the language itself. The same (seed, offset) gives the same number on every target.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from ..errors import TypeMismatch
from ..ir.types import I32, I64, U32, U64
from .arithmetic import as_tensor
from .builtin import builtin
from .conditions import where
from .constexpr import constexpr
from .control import static_range
from .inline import library
from .maths import cos, log, maximum, sin, sqrt, umulhi
from .tensor import Operand, tensor

N_ROUNDS_DEFAULT = constexpr(10)

# Multipliers and Weyl constants of Philox 4x32 and 4x64, table 2 of the paper.
_MULTIPLIER_A, _MULTIPLIER_A64 = constexpr(0xD2511F53), constexpr(0xD2E7470EE14C6C93)
_MULTIPLIER_B, _MULTIPLIER_B64 = constexpr(0xCD9E8D57), constexpr(0xCA5A826395121157)
_WEYL_A, _WEYL_A64 = constexpr(0x9E3779B9), constexpr(0x9E3779B97F4A7C15)
_WEYL_B, _WEYL_B64 = constexpr(0xBB67AE85), constexpr(0xBB67AE8584CAA73B)
_UINT32 = U32
_INT32, _INT64 = I32, I64
_UINT64 = U64
#: Largest f32 below 2**-31: uint_to_uniform_float stays below 1.
_SCALE = constexpr(4.6566127342e-10)
#: The same below 2**-63.
_SCALE64 = constexpr(1.0842020432385337e-19)
_TWO_PI = constexpr(6.283185307179586)


@builtin
def _whole(x: Operand, what: str) -> tensor:
    """``x`` as a tensor; raises TypeMismatch unless it holds integers."""
    x = as_tensor(x)
    if not x.value.type.is_integer:
        raise TypeMismatch(
            f"the {what} of random numbers is an integer, got {x.value.type}", hint="cast it with .to(tl.int32)"
        )
    return x


@library
def philox_impl(c0, c1, c2, c3, k0, k1, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """``n_rounds`` rounds of Philox on a counter of four u32 and a key of two, or of u64 (4x64); four of the type."""
    if c0.dtype.primitive_bitwidth == 64:
        multiplier_a, multiplier_b, weyl_a, weyl_b = _MULTIPLIER_A64, _MULTIPLIER_B64, _WEYL_A64, _WEYL_B64
    else:
        multiplier_a, multiplier_b, weyl_a, weyl_b = _MULTIPLIER_A, _MULTIPLIER_B, _WEYL_A, _WEYL_B
    for _ in static_range(n_rounds):
        previous0 = c0
        previous2 = c2
        c0 = umulhi(multiplier_b, previous2) ^ c1 ^ k0
        c2 = umulhi(multiplier_a, previous0) ^ c3 ^ k1
        c1 = previous2 * multiplier_b
        c3 = previous0 * multiplier_a
        k0 = k0 + weyl_a
        k1 = k1 + weyl_b
    return c0, c1, c2, c3


@library
def philox(seed, c0, c1, c2, c3, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four u32 random numbers for a 64-bit ``seed`` and a counter of four 32-bit integers.

    Where the first of the counter has 64 bits, they are four u64 of Philox 4x64. Raises TypeMismatch where the seed or
    the counter are not integers.
    """
    key = _whole(seed, "seed").to(_UINT64)
    c0 = _whole(c0, "offset")
    if c0.dtype.primitive_bitwidth == 64:
        word = _UINT64
        low = key
        high = key * 0
    else:
        word = _UINT32
        low = (key & 0xFFFFFFFF).to(_UINT32)
        high = ((key >> 32) & 0xFFFFFFFF).to(_UINT32)
    c0 = c0.to(word)
    c1 = _whole(c1, "offset").to(word)
    c2 = _whole(c2, "offset").to(word)
    c3 = _whole(c3, "offset").to(word)
    return philox_impl(c0, c1, c2, c3, low, high, n_rounds)


@library
def randint4x(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four tiles of u32 random numbers in the shape of ``offset``, which holds integers as ``seed`` does.

    One call of Philox makes all four, at the cost of one randint. Offsets of 64 bits are two words of the counter.
    """
    offset = _whole(offset, "offset")
    low = offset.to(_UINT32)
    zero = low * 0
    if offset.dtype.primitive_bitwidth == 64:
        high = (offset >> 32).to(_UINT32)
    else:
        high = zero
    return philox(seed, low, high, zero, zero, n_rounds)


@library
def randint(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """u32 random numbers in the shape of ``offset``, which holds integers as ``seed`` does, else TypeMismatch.

    The number depends on seed and offset alone; give each element an offset of its own. ``n_rounds`` (default 10) are
    Philox's rounds.
    """
    result, _, _, _ = randint4x(seed, offset, n_rounds)
    return result


@library
def uint_to_uniform_float(x):
    """u32 or u64 bits, or signed ones, to f32 in [0, 1)."""
    if x.dtype.primitive_bitwidth == 64:
        x = x.to(_INT64, bitcast=True)
        scale = _SCALE64
    else:
        x = x.to(_INT32, bitcast=True)
        scale = _SCALE
    x = where(x < 0, -x - 1, x)
    return x * scale


@library
def rand(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """f32 uniform in [0, 1) in the shape of ``offset``; arguments as for randint."""
    return uint_to_uniform_float(randint(seed, offset, n_rounds))


@library
def rand4x(seed, offsets, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four tiles of f32 uniform in [0, 1) in the shape of ``offsets``; arguments as for randint."""
    i1, i2, i3, i4 = randint4x(seed, offsets, n_rounds)
    return (
        uint_to_uniform_float(i1),
        uint_to_uniform_float(i2),
        uint_to_uniform_float(i3),
        uint_to_uniform_float(i4),
    )


@library
def pair_uniform_to_normal(u1, u2):
    """Two tiles uniform in [0, 1) to two standard normal ones (Box and Muller); u1 below 1e-7 counts as 1e-7."""
    u1 = maximum(1.0e-7, u1)
    angle = u2 * _TWO_PI
    radius = sqrt(log(u1) * -2.0)
    return radius * cos(angle), radius * sin(angle)


@library
def randn(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """f32 standard normal in the shape of ``offset``; arguments as for randint."""
    i1, i2, _, _ = randint4x(seed, offset, n_rounds)
    n1, _ = pair_uniform_to_normal(uint_to_uniform_float(i1), uint_to_uniform_float(i2))
    return n1


@library
def randn4x(seed, offset, n_rounds: constexpr = N_ROUNDS_DEFAULT):
    """Four tiles of f32 standard normal in the shape of ``offset``; arguments as for randint."""
    u1, u2, u3, u4 = rand4x(seed, offset, n_rounds)
    n1, n2 = pair_uniform_to_normal(u1, u2)
    n3, n4 = pair_uniform_to_normal(u3, u4)
    return n1, n2, n3, n4
