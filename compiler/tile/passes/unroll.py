"""Loop unrolling, where the author asks for it (``For.unroll``, from tl.range(loop_unroll_factor=...))."""

from __future__ import annotations

from dataclasses import dataclass

from ...ir.core import Block, Function, Op, Value
from ..control import For, Yield
from ..elementwise import Add, Constant, IntDiv, Max, Mul, Sub
from .numbers import trip_count


def unroll(function: Function) -> Function:
    """Unroll loops with ``unroll`` > 1 and a positive constant step.

    A constant trip count of at most ``unroll`` leaves no loop. Otherwise a loop over groups of ``unroll`` iterations is
    followed by a loop over the rest; neither asks for unrolling again.
    """
    _block(function.body, {})
    return function


def _block(block: Block, replaced: dict[Value, Value]) -> None:
    out: list[Op] = []
    for op in block.ops:
        if replaced:
            op.replace_operands(replaced)
        for nested in op.blocks:
            _block(nested, replaced)
        if isinstance(op, For) and op.unroll > 1 and (step := _constant(op.step) or 0) > 0:
            replaced.update(zip(op.results, _Unroller(op, step, out).run(), strict=True))
        else:
            out.append(op)
    block.ops = out


def _constant(value: Value) -> int | None:
    op = value.op
    return int(op.value) if isinstance(op, Constant) else None


def copies_of(body: Block, indices: list[Value], carried: tuple[Value, ...], out: list[Op]) -> tuple[Value, ...]:
    """Clone ``body`` once per index into ``out``; returns the values carried out of the last copy."""
    for index in indices:
        env: dict[Value, Value] = dict(zip(body.args, (index, *carried), strict=True))
        for op in body.ops:
            if isinstance(op, Yield):
                carried = tuple(env.get(v, v) for v in op.values)
            else:
                out.append(op.clone(env))
    return carried


@dataclass
class _Unroller:
    loop: For
    step: int
    out: list[Op]

    def run(self) -> tuple[Value, ...]:
        loop = self.loop
        lower, upper = _constant(loop.lower), _constant(loop.upper)
        if lower is not None and upper is not None:
            trips = trip_count(lower, upper, self.step)
            if trips <= loop.unroll:
                indices = [self.number(lower + i * self.step) for i in range(trips)]
                return copies_of(loop.body, indices, loop.inits, self.out)
        if not loop.lower.type.scalar.is_signed:  # upper - lower may wrap
            self.out.append(loop)
            loop.unroll = 1
            return loop.results
        return self.in_groups()

    def in_groups(self) -> tuple[Value, ...]:
        loop, group = self.loop, self.number(self.step * self.loop.unroll)
        span = self.add(Max(self.add(Sub(loop.upper, loop.lower)), self.number(0)))
        # Whole groups: those for which even the last iteration starts below the upper bound.
        whole = self.add(Add(span, self.number(self.step - 1)))
        whole = self.add(IntDiv(whole, group))
        middle = self.add(Add(loop.lower, self.add(Mul(whole, group))))
        body = Block()
        start = body.add_argument(loop.lower.type, loop.body.args[0].name)
        carried = [body.add_argument(a.type, a.name) for a in loop.carried]
        indices = [start]
        for i in range(1, loop.unroll):
            offset = Constant(i * self.step, loop.lower.type)
            index = Add(start, offset.result)
            body.ops += [offset, index]
            indices.append(index.result)
        ends = copies_of(loop.body, indices, tuple(carried), body.ops)
        body.ops.append(Yield(ends))
        for op in body.ops:
            op.location = op.location or loop.location
        main = For(loop.lower, middle, group, loop.inits, loop.num_stages, unroll=1, body=body)
        main.location = loop.location
        self.out.append(main)
        rest = For(middle, loop.upper, loop.step, main.results, loop.num_stages, unroll=1, body=loop.body)
        rest.location = loop.location
        self.out.append(rest)
        return rest.results

    def number(self, value: int) -> Value:
        return self.add(Constant(value, self.loop.lower.type))

    def add(self, op: Op) -> Value:
        op.location = self.loop.location
        self.out.append(op)
        return op.results[0]
