"""Operations that exist from the GPU stage on: layouts are in the types, vector widths are decided."""

from __future__ import annotations

from ..ir.core import Effect, Op, Value
from ..ir.types import Tile
from ..tile.memory import AtomicRMW, Load, Store


class ConvertLayout(Op, mnemonic="gpu.convert"):
    """The same tile in the place of ``to``, registers or shared memory; :mod:`.memory.scratch` chooses how the data
    moves. One to shared memory that is ``unfinished`` leaves it to the next one to make threads wait for what was
    written, and if it is ``unfenced`` to let wgmma see it."""

    x: Value
    to: Tile
    unfinished: bool = False
    unfenced: bool = False

    def infer(self) -> tuple[Tile, ...]:
        """Result: ``to``; TypeMismatch where more than the place differs from the operand's type."""
        nowhere = self.to.layout is None and self.to.shared is None
        if nowhere or self.to.with_layout(None) != self.x.type.with_layout(None):
            raise self.fail(f"cannot convert to {self.to}: only the place may differ")
        return (self.to,)


class VectorLoad(Load, mnemonic="gpu.load", effect=Effect.READ):
    """A load of ``vector`` consecutive registers at a time, along ``axis``.

    The pointers of one vector are consecutive and the first is aligned to the whole vector; one mask serves them all.
    """

    vector: int = 1
    axis: int = 0


class VectorStore(Store, mnemonic="gpu.store", effect=Effect.WRITE):
    """A store of ``vector`` consecutive registers at a time, as :class:`VectorLoad`. Copies are written once."""

    vector: int = 1
    axis: int = 0


class VectorUpdate(AtomicRMW, mnemonic="gpu.update", effect=Effect.WRITE):
    """An atomic operation whose old values nobody reads, on ``vector`` consecutive registers at a time, along ``axis``,
    as :class:`VectorStore`; what becomes of each element is one step. Before layouts are chosen ``vector`` is the most
    that the target can do."""

    vector: int = 1
    axis: int = 0


class Agree(Op, mnemonic="gpu.agree", effect=Effect.WRITE):
    """``x`` as one thread has it, for all threads that hold a copy of an element."""

    x: Value

    def infer(self) -> tuple[Tile, ...]:
        """Result: a value like the operand."""
        return (self.x.type,)


class WarpBarrier(Op, mnemonic="gpu.warp_barrier", effect=Effect.WRITE):
    """The threads of each warp wait for each other, and see what the others wrote."""


class Mma(Op, mnemonic="gpu.mma"):
    """``dot`` by the tensor core instruction ``mma.sync`` of shape ``instruction`` (such as m16n8k16).

    Operands have ``dot_operand`` layouts, the accumulator ``mma_accumulator``; those of f64 ``double_operand`` and
    ``double_accumulator``. ``precision`` is that of ``dot``.
    """

    a: Value
    b: Value
    acc: Value
    instruction: str
    precision: str

    def infer(self) -> tuple[Tile, ...]:
        """Result: the accumulator's type; TypeMismatch where the operands do not fit it or each other."""
        a, b, acc = self.a.type, self.b.type, self.acc.type
        if (a.shape[0], b.shape[1]) != acc.shape or a.shape[1] != b.shape[0] or a.elem != b.elem:
            raise self.fail("shapes or element types do not fit")
        return (acc,)
