"""Dead code elimination by liveness: what no effect depends on goes, down to single carried values and results."""

from __future__ import annotations

from typing import TypeVar

from ...ir.core import Block, Effect, Function, Op, Value
from ..control import Condition, For, If, While, Yield
from ..memory import Load

T = TypeVar("T")


def dce(function: Function) -> Function:
    """Remove operations, loop-carried values and branch results that nothing needs; reads count as removable, but
    for volatile ones."""
    live = _Liveness(function)
    for op in live.acting:
        live.need(op)
    live.follow_all()
    _sweep(function.body, live)
    return function


def decided_by(function: Function, *values: Value) -> set[Op]:
    """The operations that ``values`` are made of, and those that decide whether these run."""
    live = _Liveness(function)
    live.want(*values)
    live.follow_all()
    return live.ops


class _Liveness:
    """Marks backwards, such as from the operations with effects, ``acting``."""

    def __init__(self, function: Function) -> None:
        self.values: set[Value] = set()
        self.ops: set[Op] = set()
        self.parents: dict[Block, Op | None] = {}
        self.around: dict[Op, Block] = {}
        self.todo: list[Value] = []
        self.acting = self.index(function.body, None)

    def follow_all(self) -> None:
        """Mark what everything that is wanted is made of."""
        while self.todo:
            self.follow(self.todo.pop())

    def index(self, block: Block, parent: Op | None) -> list[Op]:
        """Note where everything in ``block`` is; returns what must stay for its own sake."""
        self.parents[block] = parent
        acting = []
        for op in block.ops:
            self.around[op] = block
            for nested in op.blocks:
                acting += self.index(nested, op)
            if _acts(op) or (op.effect is Effect.TERMINATOR and parent is None):
                acting.append(op)
        return acting

    def want(self, *values: Value) -> None:
        for value in values:
            if value not in self.values:
                self.values.add(value)
                self.todo.append(value)

    def need(self, op: Op) -> None:
        """``op`` itself must stay, and with it whatever decides whether it runs."""
        if op in self.ops:
            return
        self.ops.add(op)
        match op:
            case For() | If() | While():
                self.want(*op.deciding)
            case _:
                self.want(*op.operands)
                for block in op.blocks:  # such as how a reduction combines two values
                    if block.terminator is not None:
                        self.need(block.terminator)
        parent = self.parents[self.around[op]]
        if parent is not None:
            self.need(parent)

    def follow(self, value: Value) -> None:
        """Mark what ``value`` is made of."""
        owner = value.owner
        if isinstance(owner, Block):
            parent = self.parents.get(owner)
            if isinstance(parent, For) and value.index:
                self.carried(parent, value.index - 1)
            elif isinstance(parent, While):
                self.carried(parent, value.index)
            if parent is not None:
                self.need(parent)
        elif owner is not None:
            self.need(owner)
            if isinstance(owner, For | While):
                self.carried(owner, value.index)
            elif isinstance(owner, If):
                self.want(*owner.handed_together[value.index])

    def carried(self, loop: For | While, index: int) -> None:
        self.want(*loop.handed_together[index])


def _acts(op: Op) -> bool:
    """Whether ``op`` does something although nobody reads its results. A loop may look at memory, by volatile loads,
    until another program has changed it, and hand out nothing."""
    return op.effect is Effect.WRITE or (isinstance(op, Load) and op.is_awaited)


def _sweep(block: Block, live: _Liveness) -> None:
    kept = []
    for op in block.ops:
        if op not in live.ops and op.effect is not Effect.TERMINATOR:
            continue
        if isinstance(op, For | While | If):
            _shrink(op, live)
        for nested in op.blocks:
            _sweep(nested, live)
        kept.append(op)
    block.ops = kept


def _shrink(op: For | While | If, live: _Liveness) -> None:
    keep = [r in live.values for r in op.results]
    if all(keep):
        return
    op.results = _pick(op.results, keep)
    for index, result in enumerate(op.results):
        result.index = index
    match op:
        case For():
            op.inits = _pick(op.inits, keep)
            _shrink_block(op.body, [True, *keep], keep)
        case While():
            op.inits = _pick(op.inits, keep)
            _shrink_block(op.before, keep, keep)
            _shrink_block(op.body, keep, keep)
        case If():
            _shrink_block(op.then, [], keep)
            _shrink_block(op.otherwise, [], keep)


def _shrink_block(block: Block, keep_args: list[bool], keep_values: list[bool]) -> None:
    block.args = list(_pick(tuple(block.args), keep_args))
    for index, arg in enumerate(block.args):
        arg.index = index
    end = block.terminator
    if isinstance(end, Yield | Condition):
        end.values = _pick(end.values, keep_values)


def _pick(values: tuple[T, ...], keep: list[bool]) -> tuple[T, ...]:
    return tuple(v for v, kept in zip(values, keep, strict=True) if kept)
