"""A function of scalars applied to every element of tiles."""

from __future__ import annotations

from ..ir.core import Block, Effect, Op, Value
from ..ir.types import Tile


class MapElementwise(Op, mnemonic="map_elementwise"):
    """``body`` for the elements of ``inputs`` at the same coordinates: what it yields are those of the results.

    Unlike where everything is elementwise, the body may branch and loop for each element by itself.
    """

    inputs: tuple[Value, ...]
    body: Block

    def infer(self) -> tuple[Tile, ...]:
        """Results: the types of what the body yields, in the shape of the inputs.

        Raises TypeMismatch: shapes differ, the body takes other scalars, yields nothing or works on tiles or memory.
        """
        shapes = {v.type.shape for v in self.inputs}
        if len(shapes) != 1 or () in shapes:
            raise self.fail("all operands must be tiles of one shape")
        if [a.type for a in self.body.args] != [Tile(v.type.elem) for v in self.inputs]:
            raise self.fail("the function takes one scalar for every operand")
        for op in self.body.walk():
            if op.effect in (Effect.READ, Effect.WRITE) or any(v.type.rank for v in (*op.results, *op.operands)):
                raise self.fail(
                    f"the function may compute with scalars only, not {op.mnemonic}",
                    hint="load, store and reduce outside of it",
                )
        end = self.body.terminator
        if end is None or not end.operands:
            raise self.fail("the function must return something")
        like = self.inputs[0].type
        return tuple(like.with_elem(v.type.elem) for v in end.operands)
