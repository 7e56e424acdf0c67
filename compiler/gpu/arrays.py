"""Which array a pointer points into: the kernel parameter that it comes from."""

from __future__ import annotations

from typing import TypeGuard

from ..ir.core import Block, Function, Op, Value
from ..ir.types import Pointer
from ..tile.blocks import BlockLoad, BlockStore
from ..tile.control import For, While
from ..tile.memory import AtomicCAS, AtomicRMW, Load, Store

READS = (Load, BlockLoad, AtomicRMW, AtomicCAS)
WRITES = (Store, BlockStore, AtomicRMW, AtomicCAS)
Access = Load | Store | AtomicRMW | AtomicCAS | BlockLoad | BlockStore


class Arrays:
    """The parameter of every pointer of a function; None where it cannot be told."""

    def __init__(self, function: Function) -> None:
        self._known: dict[Value, Value | None] = {p.value: p.value for p in function.parameters}
        self._trace(function.body)

    def of(self, pointer: Value) -> Value | None:
        """The parameter that ``pointer`` comes from."""
        return self._known.get(pointer)

    def accessed(self, op: Access) -> Value | None:
        """The parameter whose array ``op`` accesses."""
        return self.of(op.base if isinstance(op, BlockLoad | BlockStore) else op.pointer)

    def writes(self, op: Op) -> TypeGuard[Access]:
        """Whether ``op`` changes an array."""
        return isinstance(op, WRITES)

    def read(self, function: Function) -> set[Value | None]:
        """What ``function`` reads."""
        return {self.accessed(op) for op in function.walk() if isinstance(op, READS)}

    def written(self, function: Function) -> set[Value | None]:
        """What ``function`` writes."""
        return {self.accessed(op) for op in function.walk() if isinstance(op, WRITES)}

    def _trace(self, block: Block) -> None:
        for op in block.ops:
            match op:
                case For():
                    self._carry(op.inits, op.body.args[1:], op.results)
                case While():
                    self._carry(op.inits, op.before.args, op.body.args, op.results)
                case _:
                    self._derive(op)
            for inner in op.blocks:
                self._trace(inner)

    def _derive(self, op: Op) -> None:
        bases = {self._known.get(v) for v in op.operands if v.type.is_pointer}
        for result in op.results:
            if isinstance(result.type.elem, Pointer):
                self._known[result] = next(iter(bases)) if len(bases) == 1 else None

    def _carry(self, inits: tuple[Value, ...], *groups: list[Value] | tuple[Value, ...]) -> None:
        for group in groups:
            for init, value in zip(inits, group, strict=True):
                if value.type.is_pointer:
                    self._known[value] = self._known.get(init)
