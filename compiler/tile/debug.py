"""Operations that talk to the person who debugs a kernel."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.core import Effect, Op, Value
from ..ir.types import I1, Tile


def index_text(index: Sequence[int | str], shape: Sequence[int]) -> str:
    """Where in a tile an element is, as device_print shows it: ``idx ( 3, 12)``, each index as wide as the widest.
    Texts in the place of indices are conversions of printf, without their width: ``u``."""
    spelled = (
        f"%{len(str(n - 1))}{i}" if isinstance(i, str) else f"{i:{len(str(n - 1))}}"
        for i, n in zip(index, shape, strict=True)
    )
    return f"idx ({', '.join(spelled)})"


def label_text(prefix: str, number: int, count: int) -> str:
    """What stands between an element's place and its value; values are numbered where there is more than one."""
    return f"{' ' + prefix if prefix else ''}: {f'(operand {number}) ' if count > 1 else ''}"


class Print(Op, mnemonic="print", effect=Effect.WRITE):
    """tl.device_print: prefix, program id and the values, from every program; scalars, and the prefix alone, from every
    thread of it."""

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
