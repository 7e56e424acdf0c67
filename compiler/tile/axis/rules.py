"""One rule per operation: from the facts of its operands to the facts of its results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ...ir.core import Op
from ...ir.types import Scalar
from .. import elementwise as e
from .. import memory, program, reduction
from ..assembly import InlineAssembly
from ..map import MapElementwise
from .info import LARGEST, AxisInfo, constant_info, power_of_two_in, unit_of, unknown

Rule = Callable[..., Sequence[AxisInfo]]
RuleT = TypeVar("RuleT", bound=Rule)

#: Operation class -> rule(op, facts of each present operand in order) -> facts of each result.
RULES: dict[type[Op], Rule] = {}


def rule(*ops: type[Op]) -> Callable[[RuleT], RuleT]:
    """Register the decorated function for ``ops``."""

    def register(function: RuleT) -> RuleT:
        RULES.update(dict.fromkeys(ops, function))
        return function

    return register


def _minima(*tuples: tuple[int, ...]) -> tuple[int, ...]:
    return tuples[0] if len(tuples) == 1 else tuple(map(min, *tuples))


def _ones(info: AxisInfo) -> tuple[int, ...]:
    return (1,) * len(info.constancy)


def _dims(info: AxisInfo) -> range:
    return range(len(info.constancy))


# Sources -----------------------------------------------------------------------------------------------------


@rule(program.ProgramId, program.NumPrograms)
def grid(op: Op) -> Sequence[AxisInfo]:
    """Index and number of programs are not negative; nothing else is known."""
    return (unknown(op.result.type)._replace(nonnegative=True),)


@rule(e.Constant)
def constant(op: e.Constant) -> Sequence[AxisInfo]:
    """Equal everywhere; of integers the value is known, too."""
    if op.type.is_float:
        return (unknown(op.type)._replace(constancy=op.type.shape or (1,)),)
    return (constant_info(int(op.value), op.type),)


# Elementwise -------------------------------------------------------------------------------------------------


def elementwise(op: Op, *operands: AxisInfo) -> Sequence[AxisInfo]:
    """Equal operands give equal results; nothing else is known."""
    constancy = _minima(*(info.constancy for info in operands))
    return (unknown(op.result.type)._replace(constancy=constancy),)


def _sum(op: Op, x: AxisInfo, y: AxisInfo, scale: int, descending: bool) -> AxisInfo:
    """x + y * scale; ``descending`` if y is subtracted."""
    up = map(min, x.contiguity, y.constancy)
    across = _ones(x) if descending else map(min, x.constancy, y.contiguity)
    contiguity = tuple(map(max, up, across))
    return AxisInfo(
        contiguity,
        tuple(min(x.at(d, c), min(y.at(d, c) * scale, LARGEST)) for d, c in enumerate(contiguity)),
        _minima(x.constancy, y.constancy),
        None,
        x.nonnegative and y.nonnegative and not descending,
        unit_of(op.result.type),
    )


@rule(e.Add)
def add(op: e.Add, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """Contiguous along a dimension if one side is and the other is constant there."""
    return (_sum(op, x, y, 1, False),) if op.lhs.type.is_integer else elementwise(op, x, y)


@rule(e.Sub)
def sub(op: e.Sub, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """Contiguous if x is and y is constant. Most differences of signed integers may be negative."""
    if not op.lhs.type.is_integer:
        return elementwise(op, x, y)
    nonnegative = unknown(op.lhs.type).nonnegative or program.counts_down(op.result)
    return (_sum(op, x, y, 1, True)._replace(nonnegative=nonnegative),)


@rule(e.AddPtr)
def addptr(op: e.AddPtr, pointer: AxisInfo, offset: AxisInfo) -> Sequence[AxisInfo]:
    """As add, with the offset scaled by the bytes of an element."""
    offset = _extended(offset, op.offset.type.scalar, 64)
    return (_sum(op, pointer, offset, pointer.unit, False),)


@rule(e.Mul)
def mul(op: e.Mul, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """Divisibilities multiply; contiguity is lost."""
    if not op.lhs.type.is_integer:
        return elementwise(op, x, y)
    divisibility = tuple(min(x.at(d, 1) * y.at(d, 1), LARGEST) for d in _dims(x))
    signs = x.nonnegative and y.nonnegative
    return (AxisInfo(_ones(x), divisibility, _minima(x.constancy, y.constancy), None, signs),)


@rule(e.IntDiv)
def int_div(op: e.IntDiv, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """Aligned runs of x become equal if y is a multiple of their length and x is not negative."""
    constancy = list(_minima(x.constancy, y.constancy))
    if x.nonnegative:
        # k*g .. k*g + g-1 have one quotient by any multiple of g. Truncation breaks this below zero.
        constancy = [max(c, _run(d, x, y)) for d, c in enumerate(constancy)]
    divisor = abs(y.constant) if y.constant else 0
    exact = divisor and divisor == power_of_two_in(divisor)
    divisibility = tuple(max(1, x.at(d, 1) // divisor) if exact else 1 for d in _dims(x))
    if x.constant == 0:
        divisibility = (LARGEST,) * len(constancy)
    return (AxisInfo(_ones(x), divisibility, tuple(constancy), None, x.nonnegative and y.nonnegative),)


@rule(e.Rem)
def rem(op: e.Rem, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """Aligned runs of x keep counting modulo a multiple of their length, if x is not negative."""
    if not op.lhs.type.is_integer:
        return elementwise(op, x, y)
    # The remainder by a multiple of g counts up from a multiple of g to the next; below zero it may jump.
    contiguity = tuple(_run(d, x, y) if x.nonnegative else 1 for d in _dims(x))
    return (
        AxisInfo(
            contiguity,
            tuple(min(x.at(d, c), y.at(d, 1)) for d, c in enumerate(contiguity)),
            _minima(x.constancy, y.constancy),
            None,
            x.nonnegative,
        ),
    )


def _run(dim: int, x: AxisInfo, y: AxisInfo) -> int:
    """Length of aligned runs in which x counts up from a multiple of the length, and y is one multiple of it."""
    if y.contiguity[dim] != 1:
        return 1
    return min(x.contiguity[dim], x.divisibility[dim], y.divisibility[dim], y.constancy[dim])


@rule(e.And)
def bit_and(op: e.And, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """A mask 2**k - 1 keeps aligned runs of up to 2**k; else the better divisibility of the two."""
    constancy = _minima(x.constancy, y.constancy)
    contiguity = _ones(x)
    low = y.constant + 1 if y.constant is not None and y.constant > 0 else 0
    if low and low & (low - 1) == 0:  # x & (2**k - 1)
        contiguity = tuple(min(c, x.divisibility[d], low) for d, c in enumerate(x.contiguity))
        divisibility = tuple(x.at(d, c) for d, c in enumerate(contiguity))
    else:
        divisibility = tuple(max(x.at(d, 1), y.at(d, 1)) for d in _dims(x))
    return (AxisInfo(contiguity, divisibility, constancy, None, x.nonnegative or y.nonnegative),)


@rule(e.Or, e.Xor, e.Min, e.Max)
def bitwise(op: e.Binary, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """A power of two that divides both sides divides the result (its low bits are zero on both)."""
    if not op.lhs.type.is_integer:
        return elementwise(op, x, y)
    divisibility = tuple(min(x.at(d, 1), y.at(d, 1)) for d in _dims(x))
    signs = x.nonnegative and y.nonnegative
    if isinstance(op, e.Max):
        signs = x.nonnegative or y.nonnegative
    return (AxisInfo(_ones(x), divisibility, _minima(x.constancy, y.constancy), None, signs),)


@rule(e.Shl)
def shl(op: e.Shl, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """A constant amount multiplies divisibility by its power of two."""
    amount = y.constant if y.constant is not None and 0 <= y.constant < 30 else 0
    divisibility = tuple(min(x.at(d, 1) << amount, LARGEST) for d in _dims(x))
    constancy = _minima(x.constancy, y.constancy)
    return (AxisInfo(_ones(x), divisibility, constancy, None, x.nonnegative),)


@rule(e.Shr)
def shr(op: e.Shr, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """Aligned runs of 2**amount become equal; divisibility is divided by that."""
    constancy, divisibility = list(_minima(x.constancy, y.constancy)), list(_ones(x))
    if y.constant is not None and 0 <= y.constant < 30:
        group = 1 << y.constant
        for d in _dims(x):  # an arithmetic shift rounds down, so this holds below zero too
            constancy[d] = max(constancy[d], min(x.contiguity[d], x.divisibility[d], group))
            divisibility[d] = max(1, x.at(d, 1) >> y.constant)
    return (AxisInfo(_ones(x), tuple(divisibility), tuple(constancy), None, x.nonnegative),)


@rule(e.Neg, e.Abs)
def negated(op: e.Unary, x: AxisInfo) -> Sequence[AxisInfo]:
    """Divisibility stays, contiguity does not (the values count down)."""
    if not op.x.type.is_integer:
        return elementwise(op, x)
    divisibility = tuple(x.at(d, 1) for d in _dims(x))
    signs = unknown(op.x.type).nonnegative or isinstance(op, e.Abs)
    return (AxisInfo(_ones(x), divisibility, x.constancy, None, signs),)


@rule(e.Compare)
def compare(op: e.Compare, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """Constant over the aligned runs of an integer that is compared with a multiple of their length."""
    constancy = list(_minima(x.constancy, y.constancy))
    if not op.lhs.type.is_float:
        # With n a multiple of g: k*g + i < n has one answer for i in 0..g-1; so has n > k*g + i.
        for d in _dims(x):
            if op.predicate in ("lt", "ge"):
                constancy[d] = max(constancy[d], _run(d, x, y) if x.unit == 1 else 1)
            elif op.predicate in ("gt", "le"):
                constancy[d] = max(constancy[d], _run(d, y, x) if x.unit == 1 else 1)
    return (AxisInfo(_ones(x), _ones(x), tuple(constancy), None, True),)


@rule(e.Select)
def select(op: e.Select, which: AxisInfo, x: AxisInfo, y: AxisInfo) -> Sequence[AxisInfo]:
    """What holds on both sides, within runs over which the condition is equal."""
    joined = x.join(y)
    contiguity = _minima(joined.contiguity, which.constancy)
    divisibility = tuple(joined.at(d, c) for d, c in enumerate(contiguity))
    constancy = _minima(joined.constancy, which.constancy)
    return (joined._replace(contiguity=contiguity, divisibility=divisibility, constancy=constancy),)


def _extended(info: AxisInfo, source: Scalar, bits: int) -> AxisInfo:
    """Facts after widening: unsigned and narrow integers may wrap within a group, aligned groups cannot."""
    if source.bits >= bits or (source.is_signed and source.bits >= 32):
        return info
    contiguity = tuple(
        min(c, d, 1 << (source.bits - 1)) for c, d in zip(info.contiguity, info.divisibility, strict=True)
    )
    return _recut(info, contiguity)


def _recut(info: AxisInfo, contiguity: tuple[int, ...]) -> AxisInfo:
    divisibility = tuple(info.at(d, c) for d, c in enumerate(contiguity))
    return info._replace(contiguity=contiguity, divisibility=divisibility)


@rule(e.Cast)
def cast(op: e.Cast, x: AxisInfo) -> Sequence[AxisInfo]:
    """Between integers: contiguity within aligned groups that cannot wrap in the narrower type."""
    source, target = op.x.type.scalar, op.to
    if not isinstance(target, Scalar) or source.is_float or target.is_float:
        return elementwise(op, x)
    if target.kind == "bool":
        constant = None if x.constant is None else int(x.constant != 0)
        return (elementwise(op, x)[0]._replace(constant=constant),)
    wider = target.bits > source.bits
    kept = _extended(x, source, target.bits)
    if target.bits < source.bits or (not wider and target.kind != source.kind):
        kept = _recut(x, tuple(min(x.aligned(d), 1 << (target.bits - 1)) for d in _dims(x)))
    signs = target.kind == "uint" or (x.nonnegative and wider)
    same = kept.constant is not None and 0 <= kept.constant < 1 << (target.bits - 1)
    return (kept._replace(nonnegative=signs, constant=kept.constant if same else None),)


@rule(e.Bitcast)
def bitcast(op: e.Bitcast, x: AxisInfo) -> Sequence[AxisInfo]:
    """Integers and pointers keep divisibility and constancy."""
    if op.x.type.is_float or op.result.type.is_float:
        return elementwise(op, x)
    kept = _recut(x, _ones(x))
    unsigned = unknown(op.result.type).nonnegative
    return (kept._replace(constant=None, nonnegative=unsigned, unit=unit_of(op.result.type)),)


@rule(e.Hint)
def hint(op: e.Hint, x: AxisInfo) -> Sequence[AxisInfo]:
    """The stronger of what is known and what is promised, in powers of two."""
    sizes = op.x.type.shape or (1,)

    def at_least(known: tuple[int, ...], promised: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(
            max(k, min(power_of_two_in(p), n)) for k, p, n in zip(known, promised or _ones(x), sizes, strict=True)
        )

    promised = op.divisibility or _ones(x)
    return (
        x._replace(
            contiguity=at_least(x.contiguity, op.contiguity),
            constancy=at_least(x.constancy, op.constancy),
            divisibility=tuple(map(max, x.divisibility, map(power_of_two_in, promised))),
        ),
    )


# Reductions and memory ---------------------------------------------------------------------------------------


@rule(reduction.Reduce, reduction.Scan)
def combined(op: reduction.Reduce | reduction.Scan, *inputs: AxisInfo) -> Sequence[AxisInfo]:
    """Results are equal where inputs are, along every dimension but the combined one."""
    # Equal inputs combine to equal results along every dimension but the combined one.
    constancy = list(_minima(*(info.constancy for info in inputs)))
    if isinstance(op, reduction.Scan):
        constancy[op.axis] = 1
    else:
        del constancy[op.axis]
    return [unknown(r.type)._replace(constancy=tuple(constancy) or (1,)) for r in op.results]


@rule(memory.Load)
def load(op: memory.Load, *operands: AxisInfo) -> Sequence[AxisInfo]:
    """Equal pointers load equal values, unless the load is volatile."""
    return (unknown(op.result.type),) if op.volatile else elementwise(op, *operands)


for _op in (*e.FloatUnary.__subclasses__(), e.Not, e.Div, e.Pow, e.Atan2, e.MulHigh, e.Fma):
    RULES.setdefault(_op, elementwise)


@rule(reduction.Histogram)
def histogram(op: reduction.Histogram, *inputs: AxisInfo) -> Sequence[AxisInfo]:
    """Counts are not negative."""
    return (unknown(op.result.type)._replace(nonnegative=True),)


@rule(MapElementwise)
def mapped(op: MapElementwise, *inputs: AxisInfo) -> Sequence[AxisInfo]:
    """Equal elements give equal results."""
    constancy = _minima(*(x.constancy for x in inputs))
    return [unknown(r.type)._replace(constancy=constancy) for r in op.results]


@rule(InlineAssembly)
def assembly(op: InlineAssembly, *inputs: AxisInfo) -> Sequence[AxisInfo]:
    """Anything."""
    return [unknown(r.type) for r in op.results]
