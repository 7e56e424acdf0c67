"""Alias analysis of pointers: which array one points into, by the kernel parameter that it comes from."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.core import Block, Function, Op, Value
from ..ir.types import Pointer
from ..tile.blocks import BlockLoad, BlockStore
from ..tile.control import For, If, While, handed_on
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

    def read(self, function: Function) -> set[Value | None]:
        """What ``function`` reads."""
        return {self.accessed(op) for op in function.walk() if isinstance(op, READS)}

    def written(self, code: Function | Block) -> set[Value | None]:
        """What ``code`` writes."""
        return {self.accessed(op) for op in code.walk() if isinstance(op, WRITES)}

    def _trace(self, block: Block) -> None:
        for op in block.ops:
            if isinstance(op, For | While):
                self._repeat(op)
                continue
            self._derive(op)
            for inner in op.blocks:
                self._trace(inner)
            if isinstance(op, If):
                self._join(op)

    def _join(self, branch: If) -> None:
        for result, *ends in branch.handed_together:
            then, otherwise = map(self._known.get, ends)
            if result.type.is_pointer:
                self._known[result] = then if then is otherwise else None

    def _derive(self, op: Op) -> None:
        # A pointer that was read from memory does not point where it was read.
        bases = {self._known.get(v) for v in op.operands if v.type.is_pointer and not isinstance(op, READS)}
        for result in op.results:
            if isinstance(result.type.elem, Pointer):
                self._known[result] = next(iter(bases)) if len(bases) == 1 else None

    def _repeat(self, loop: For | While) -> None:
        """A carried pointer has an array if every iteration hands it on in the one where the loop begins."""
        settled = False
        self._pass(loop.inits, loop.carried)
        while not settled:
            if isinstance(loop, While):
                self._trace(loop.before)
                self._pass(loop.leaving, loop.body.args)
            self._trace(loop.body)
            self._pass(loop.leaving, loop.results)
            settled = True
            for value, following in zip(loop.carried, handed_on(loop.body), strict=True):
                array = self._known.get(value)
                if array is not None and array is not self._known.get(following):
                    self._known[value], settled = None, False

    def _pass(self, given: Sequence[Value], taken: Sequence[Value]) -> None:
        for value, other in zip(given, taken, strict=True):
            if other.type.is_pointer:
                self._known[other] = self._known.get(value)
