"""Evaluation of operations as they are built, so that a kernel's Python code itself can run under a debugger."""

from __future__ import annotations

from ...ir.builder import Builder, OpT
from ...ir.core import Block, Effect, FunctionParameter, Value
from ...ir.types import Tile
from .launch import Argument, bind
from .memory import Memory
from .numbers import Array
from .program import Program


class EagerBuilder(Builder):
    """A builder for one program whose :meth:`emit` evaluates at once; nothing is kept but the values.

    Make one per program of the grid and share ``memory`` between them. Operations emitted inside :meth:`into` (the
    combining regions of reductions) are recorded as usual and run when the operation that owns them is emitted.
    """

    def __init__(self, memory: Memory, program_id: tuple[int, int, int], grid: tuple[int, int, int]) -> None:
        super().__init__(Block())
        self.root = self.block
        self.program = Program(memory, program_id, grid)

    def emit(self, op: OpT) -> OpT:
        """Evaluate ``op`` (or record it, inside a region) and return it."""
        if self.block is not self.root or op.effect is Effect.TERMINATOR:
            return super().emit(op)
        op.location = self.location if op.location is None else op.location
        self.program.evaluate(op)
        return op

    def argument(self, name: str, type: Tile, value: Argument) -> Value:
        """A kernel argument as a value; arrays are registered with the memory. Raises LaunchError."""
        parameter = FunctionParameter(name, Value(type, name=name))
        self.program.held[parameter.value] = bind(parameter, value, self.program.memory)
        return parameter.value

    def array(self, value: Value) -> Array:
        """The elements of ``value``."""
        return self.program.get(value)

    def item(self, value: Value) -> int | float | bool:
        """The number that the scalar ``value`` is: what Python's ``if`` and ``range`` need."""
        return self.program.item(value)
