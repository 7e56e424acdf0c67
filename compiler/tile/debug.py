"""Operations that talk to the person who debugs a kernel."""

from __future__ import annotations

from ..ir.core import Effect, Op, Value
from ..ir.types import I1, Tile


class Print(Op, mnemonic="print", effect=Effect.WRITE):
    """tl.device_print: prefix, program id and the values, from every program."""

    values: tuple[Value, ...]
    prefix: str
    hex: bool = False


class Assert(Op, mnemonic="assert", effect=Effect.WRITE):
    """tl.device_assert: every element of ``condition`` must be true. Only emitted when debug is on."""

    condition: Value
    message: str

    def infer(self) -> tuple[Tile, ...]:
        """No results. The condition is i1 of any shape, else TypeMismatch."""
        if self.condition.type.elem != I1:
            raise self.fail("the condition must be i1")
        return ()


class Assume(Op, mnemonic="assume", effect=Effect.WRITE):
    """tl.assume: the optimiser may take the scalar condition as true."""

    condition: Value

    def infer(self) -> tuple[Tile, ...]:
        """No results. The condition is a scalar i1, else TypeMismatch."""
        if self.condition.type != Tile(I1):
            raise self.fail("the condition must be a scalar i1")
        return ()
