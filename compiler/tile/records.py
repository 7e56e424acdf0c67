"""Marks inside kernels, from which a profiler tells how long parts of a kernel take."""

from __future__ import annotations

from ..ir.core import Effect, Op, Value
from ..ir.types import I64, Pointer, Tile

#: What a launch passes to a kernel that records, after the kernel's own parameters: no parameter of a kernel's author
#: can have the name.
RECORDS = "records.buffer"
RECORDS_TYPE = Tile(Pointer(I64))


class Record(Op, mnemonic="record", effect=Effect.WRITE):
    """The scope called ``name`` begins (``enter``) or ends here. It stays where it is, and a target makes code of it
    only if it has a ``buffer`` to record in; ``scope`` is the number of the scope in the kernel's table then."""

    buffer: Value | None
    name: str
    enter: bool
    scope: int = -1

    def infer(self) -> tuple[Tile, ...]:
        """No results. The buffer is a scalar pointer to i64, else TypeMismatch."""
        if self.buffer is not None and self.buffer.type != RECORDS_TYPE:
            raise self.fail("the buffer must be a scalar pointer to i64")
        return ()
