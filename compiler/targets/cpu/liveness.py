"""Liveness of tile values: reads are counted down as consumers are emitted, and scratch is reused."""

from __future__ import annotations

from collections.abc import Iterable

from ...ir.core import Op, Value
from .arena import Arena, Buffer, Stored
from .plan import Plan
from .rule_sets import is_lazy


class Liveness:
    """Counts the reads that are still to come and frees buffers after the last one.

    A lazy value holds on to its operands until it is dead or stored itself. Inside a loop nothing that was made
    outside may die: the next iteration reads it again, so those reads are counted when the loop is left.
    """

    def __init__(self, plan: Plan, arena: Arena) -> None:
        self.uses = dict(plan.uses)
        self.arena = arena
        self.stored: dict[Value, Stored] = {}
        self.depths: dict[Value, int] = {}
        self.retired: set[Op] = set()
        self._postponed: list[list[Value]] = []

    @property
    def depth(self) -> int:
        """Number of loops that are open; 0 outside of all."""
        return len(self._postponed)

    def define(self, values: Iterable[Value]) -> None:
        """The values are made at the current loop depth."""
        for value in values:
            self.depths[value] = self.depth

    def enter_loop(self) -> None:
        """Reads of values from outside are postponed from here on."""
        self._postponed.append([])

    def leave_loop(self) -> None:
        """Count the reads that were postponed in the innermost loop."""
        for value in self._postponed.pop():
            self.release(value)

    def release(self, value: Value) -> None:
        """One reader of ``value`` is done."""
        home = self.depths.get(value, 0)
        if home < self.depth:
            self._postponed[home].append(value)
            return
        self.uses[value] -= 1
        if not self.uses[value]:
            self.drop(value)

    def drop(self, value: Value) -> None:
        """``value`` is dead: free its buffer, or let go of what a lazy one would have read."""
        stored = self.stored.pop(value, None)
        if stored is not None:
            self.free(stored.buffer)
            return
        op = value.op
        if op is not None and is_lazy(op) and all(not self.uses.get(r) for r in op.results):
            self.retire(op)

    def retire(self, op: Op) -> None:
        """``op`` will not be computed (again)."""
        if op not in self.retired:
            self.retired.add(op)
            for operand in op.operands:
                self.release(operand)

    def free(self, buffer: Buffer) -> None:
        """Give the buffer back unless it is pinned."""
        if not buffer.pinned:
            self.arena.free(buffer)

    def keep(self, value: Value, stored: Stored) -> None:
        """``value`` is in memory from now on."""
        self.stored[value] = stored
        op = value.op
        if op is not None and is_lazy(op) and all(r in self.stored for r in op.results):
            self.retire(op)

    def dying(self, values: Iterable[Value]) -> set[Value]:
        """What would die if each of ``values`` lost one reader now."""
        left: dict[Value, int] = {}
        dead: set[Value] = set()
        work = list(values)
        while work:
            value = work.pop()
            if self.depths.get(value, 0) < self.depth:
                continue
            left[value] = left.get(value, self.uses.get(value, 0)) - 1
            if left[value]:
                continue
            dead.add(value)
            op = value.op
            if value in self.stored or op is None or not is_lazy(op) or op in self.retired:
                continue
            if all(r in dead or not self.uses.get(r) for r in op.results):
                work.extend(op.operands)
        return dead
