"""One program of a grid: its values, and the evaluation of operations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from ...ir.core import Block, Effect, Op, Value
from ...ir.rules import RuleSet
from ...ir.types import Scalar
from ...tile.control import Condition, Yield
from .memory import ArrayBuffer, Memory
from .numbers import Array, dtype_of
from .turns import Turn


class Held(NamedTuple):
    """What a value is: its elements and, for pointers, the argument that they were computed from.

    ``labels``: what a tool that watches the run knows about each element, as numbers of its own; None without one.
    """

    array: Array
    origin: ArrayBuffer | None = None
    labels: Array | None = None


Rule = Callable[..., Sequence[Array | Held]]

#: Operation -> function(op, program) -> one array (or Held) per result.
evaluates: RuleSet[Rule] = RuleSet("interpreter")


class Program:
    """Evaluates operations for the program at ``program_id`` of ``grid``.

    ``on_print`` takes the lines that the kernel prints. ``poison`` fills undefined elements (masked off, no ``other``)
    with NaN or 0xAA bytes instead of zeros. ``turn``, where programs take turns: lets others run, before this one looks
    at memory that they change.
    """

    def __init__(
        self,
        memory: Memory,
        program_id: tuple[int, int, int],
        grid: tuple[int, int, int],
        on_print: Callable[[str], object] = print,
        *,
        poison: bool = False,
    ) -> None:
        self.memory = memory
        self.program_id = program_id
        self.grid = grid
        self.on_print = on_print
        self.poison = poison
        self.turn: Turn | None = None
        self.held: dict[Value, Held] = {}

    def get(self, value: Value) -> Array:
        """The elements of ``value``."""
        return self.held[value].array

    def item(self, value: Value) -> int | float | bool:
        """The number that the scalar ``value`` is."""
        number = self.get(value).item()
        return number if isinstance(number, int | bool) else float(number)

    def evaluate(self, op: Op) -> None:
        """Evaluate ``op`` and remember its results; raises what the operation raises."""
        made = evaluates.find(op)(op, self)
        for result, item in zip(op.results, made, strict=True):
            if not isinstance(item, Held):
                # NumPy turns arrays of rank 0 into scalars on many operations.
                item = Held(np.asarray(item), self._origin(op, result))
            self.held[result] = item

    def _origin(self, op: Op, result: Value) -> ArrayBuffer | None:
        if not result.type.is_pointer or op.effect is not Effect.PURE:
            return None
        origins = {self.held[v].origin for v in op.operands if v.type.is_pointer}
        return origins.pop() if len(origins) == 1 else None

    def admitted(self, op: Op, addresses: Array, lanes: Array) -> Array:
        """The lanes of an access that reach memory, of those that its mask or bounds let through.

        ``addresses`` (u64) are those of all elements of the tile, ``lanes`` flat indices into them. Every access asks,
        so that tools can watch memory and keep an access from it; here all are admitted.
        """
        return lanes

    def block(self, block: Block, arguments: Sequence[Held] = ()) -> list[Held]:
        """Run ``block``; what its terminator hands out (a condition's first)."""
        self.held.update(zip(block.args, arguments, strict=True))
        for op in block.ops:
            if isinstance(op, Yield | Condition):
                return [self.held[v] for v in op.operands]
            self.evaluate(op)
        return []

    def undefined(self, shape: tuple[int, ...], value: Value) -> Array:
        """Elements of ``value``'s type that nobody may rely on."""
        dtype = dtype_of(value.type.elem)
        if not self.poison:
            return np.zeros(shape, dtype)
        if isinstance(value.type.elem, Scalar) and value.type.is_float and dtype.kind != "u":
            return np.full(shape, np.nan, dtype)
        if dtype == np.bool_:
            return np.ones(shape, dtype)
        return np.full(shape, 0xAA, np.uint8).repeat(dtype.itemsize).view(dtype).reshape(shape)
