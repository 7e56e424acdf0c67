"""Bessel functions of any order, in f64; narrower types are computed in f64.

From orders 0 and 1 the recurrence f(k + 1) = (2 k / x) f(k) - f(k - 1) goes up: for Y always, for J as far as the order
is below x. Beyond, J falls off and the recurrence is followed downwards, from an order at which J is nothing beside
what it is at the wanted one, and scaled by J(0) + 2 J(2) + 2 J(4) + ... = 1 (Miller).
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"

from __future__ import annotations

from ...errors import TypeMismatch
from ...ir.types import F64, I32
from ..arithmetic import as_tensor, cast, cast_to
from ..builtin import builtin
from ..conditions import where
from ..constexpr import constexpr
from ..context import current
from ..inline import library
from ..maths import abs, div_rn, isinf, sqrt
from ..reductions import max as largest
from ..tensor import Operand, tensor
from .bessel import j0, j1, y0, y1
from .bits import real
from .joined import maximum, minimum

_F64, _I32 = F64, I32
#: Where the way down is scaled, and by what.
_LARGE, _SCALE = constexpr(2.0**332), constexpr(2.0**-332)
#: The square of the steps above the wanted order, divided by it: J falls by 2**-60 on them.
_ABOVE = constexpr(160.0)
#: Below it J of orders 2 and 3 is its first term, and that of others is nothing. A step down multiplies by less than
#: what it is scaled by, so nothing overflows, and what is found stays as large as it can.
_TINY = 1e-90


@library
def _up(n, x, first, second, most):
    """f(n) of x > 0, n up to ``most``, from f(0) and f(1)."""
    before, now = first, second
    for k in range(1, most):
        following = div_rn(cast(2 * k, _F64), x) * now - before
        ahead = k < n
        before = where(ahead, now, before)
        now = where(ahead & ~isinf(now), following, now)
    return where(n == 0, first, now)


@library
def _down(n, x, most):
    """J(n) of x > 0 up to n, which is at least 1 and at most ``most``."""
    top = (most + cast(sqrt(_ABOVE * cast(most, _F64)), _I32)) // 2 * 2 + 2
    above, now = x * 0.0, x * 0.0 + 1.0  # of the orders k + 1 and k
    total, found = x * 0.0, x * 0.0
    for step in range(top):
        k = top - step
        below = div_rn(cast(2 * k, _F64), x) * now - above
        scale = where(abs(below) > _LARGE, _SCALE, 1.0)
        above, now, total, found = now * scale, below * scale, total * scale, found * scale
        total += where(k == 1, now, now * cast(k % 2 * 2, _F64))
        found = where(k - 1 == n, now, found)
    return div_rn(found, total)


def _order(n: Operand, function: str) -> tuple[tensor, tensor]:
    """The order, and the largest one; raises TypeMismatch unless it is whole."""
    n = as_tensor(n)
    if not n.value.type.is_integer:
        raise TypeMismatch(f"the order of libdevice.{function} is an integer, got {n.type}")
    n = cast_to(n, I32)
    return n, as_tensor(largest(n)) if n.shape else n


def _call(function: object, *args: tensor) -> tensor:
    return as_tensor(current().call(function, args, {}))


@builtin
def jn(n: Operand, x: Operand) -> tensor:
    """The Bessel function of the first kind and of order ``n``, an integer, in the float type of ``x`` (integers: f32);
    NaN for negative orders. Takes as many steps as the largest order, and more."""
    (order, most), x = _order(n, "jn"), real(x, "jn")
    wide = cast_to(x, F64)
    a = abs(wide)
    bound = maximum(cast_to(order, F64), 1.0)
    up = _call(_up, order, a, j0(a), j1(a), most)
    ratio = minimum(a * (1 / _TINY), 1.0)
    down = _call(_down, order, maximum(minimum(a, bound), _TINY), most) * (
        ratio * ratio * where(order == 3, ratio, 1.0)
    )
    made = where((a < bound) & (order > 1), where(a == 0, 0.0, down), up)
    made = where((wide < 0) & (order % 2 == 1), -made, made)
    return cast_to(where(order < 0, float("nan"), made), x.dtype)


@builtin
def yn(n: Operand, x: Operand) -> tensor:
    """The Bessel function of the second kind and of order ``n``, an integer, in the float type of ``x`` (integers:
    f32); -inf at 0, NaN below and for negative orders. Takes as many steps as the largest order."""
    (order, most), x = _order(n, "yn"), real(x, "yn")
    wide = cast_to(x, F64)
    made = _call(_up, order, wide, y0(wide), y1(wide), most)
    made = where(wide == 0, -float("inf"), made)
    return cast_to(where(order < 0, float("nan"), made), x.dtype)


__all__ = ["jn", "yn"]
