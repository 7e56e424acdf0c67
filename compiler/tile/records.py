"""Marks inside kernels, from which a profiler tells how long parts of a kernel take."""

from __future__ import annotations

from ..ir.core import Effect, Function, Op, Value
from ..ir.types import I64, Pointer, Tile
from ..record_buffer import SHORT_RECORD_BITS

#: What a launch passes to a kernel that records, after the kernel's own parameters: no parameter of a kernel's author
#: can have the name.
RECORDS = "records.buffer"
RECORDS_TYPE = Tile(Pointer(I64))


class Record(Op, mnemonic="record", effect=Effect.WRITE):
    """The scope called ``name`` begins (``enter``) or ends here. It stays where it is, and a target makes code of it
    only if it has a ``buffer`` to record in; ``scope`` is the number of the scope in the kernel's table then,
    ``clock_bits`` says how many bits of the clock a record has, and ``measured`` that a track begins by measuring what
    a record takes. Both are the same for all marks of a kernel."""

    buffer: Value | None
    name: str
    enter: bool
    scope: int = -1
    clock_bits: int = 0
    measured: bool = False

    def infer(self) -> tuple[Tile, ...]:
        """No results. The buffer is a scalar pointer to i64, else TypeMismatch."""
        if self.buffer is not None and self.buffer.type != RECORDS_TYPE:
            raise self.fail("the buffer must be a scalar pointer to i64")
        return ()

    @property
    def record_bytes(self) -> int:
        """Of a record: 4 or 8."""
        return 4 if self.clock_bits < SHORT_RECORD_BITS else 8


def first_record(function: Function) -> Record | None:
    """A mark of ``function`` that records; None in a kernel that does not."""
    return next((op for op in function.walk() if isinstance(op, Record) and op.buffer is not None), None)
