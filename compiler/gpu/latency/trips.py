"""Trip counts: how often a loop runs at most, where its bounds tell. Attention's loop over the diagonal's keys::

    for start in range(min(first, N) // 64 * 64, min(first + 128, N), 64)

runs three times at most: it begins above first - 64, or else above N - 64. The answer is for a choice between forms of
code that are all right, so bounds are taken not to overflow.
"""

from __future__ import annotations

from ...ir.core import Value
from ...tile import elementwise as ew
from ...tile.access.polynomial import Polynomial, number, unknown
from ...tile.control import For

BELOW, ABOVE = -1, 1


def most_trips(loop: For) -> int | None:
    """A number of iterations that ``loop`` does not exceed; None if its bounds tell none."""
    sums = _Sums()
    step = sums.of(loop.step).constant
    if step is None or step <= 0:
        return None
    uppers = sums.around(loop.upper, ABOVE)
    longest = 0
    for lower in sums.around(loop.lower, BELOW):
        lengths = [length for upper in uppers if (length := (upper - lower).constant) is not None]
        if not lengths:
            return None
        longest = max(longest, min(lengths))
    return -(-longest // step)


class _Sums:
    """Scalars as sums of multiples of other scalars."""

    def __init__(self) -> None:
        self._known: dict[Value, Polynomial] = {}

    def of(self, value: Value) -> Polynomial:
        """``value`` itself."""
        if value not in self._known:
            made = self._made(value)
            self._known[value] = unknown(len(self._known)) if made is None else made
        return self._known[value]

    def _made(self, value: Value) -> Polynomial | None:
        match value.op:
            case ew.Constant(value=int(known)):
                return number(known)
            case ew.Hint(x=x):
                return self.of(x)
            case ew.Add(lhs=a, rhs=b):
                return self.of(a) + self.of(b)
            case ew.Sub(lhs=a, rhs=b):
                return self.of(a) - self.of(b)
            case ew.Mul(lhs=a, rhs=b):
                left, right = self.of(a), self.of(b)
                if left.constant is not None or right.constant is not None:
                    return left * right
        return None

    def around(self, value: Value, side: int) -> list[Polynomial]:
        """BELOW: sums one of which is at most ``value``; ABOVE: sums all of which are at least that."""
        match value.op:
            case ew.Hint(x=x):
                return self.around(x, side)
            case ew.Min(lhs=a, rhs=b):
                return self.around(a, side) + self.around(b, side)
            case ew.Mul(lhs=quotient, rhs=factor) if isinstance(quotient.op, ew.IntDiv):
                multiple = self.of(factor).constant
                if multiple and multiple == self.of(quotient.op.rhs).constant:
                    slack = number(side * (abs(multiple) - 1))
                    return [near + slack for near in self.around(quotient.op.lhs, side)]
        return [self.of(value)]
