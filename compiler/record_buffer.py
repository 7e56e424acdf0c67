"""The memory in which an instrumented kernel records: what generated code writes and the launcher reads.

The buffer is an array of 64-bit words: the head, then one track after the other. A track is what one warp of a program
writes on a GPU, and one program on a CPU: a few words about it, and a ring of records. A ring that is full goes on
at its beginning, so that the newest records are kept; the number of all that were made tells how many were lost.

A record is one word of 64 or 32 bits: above, the number of the scope and whether it ends; below, the clock modulo a
power of two.
"""

from __future__ import annotations

from dataclasses import dataclass

from .errors import CompilationError

#: Words of the head: the length of a ring less one, which is a mask as lengths are powers of two; and a bit for each
#: warp, whether it records.
HEAD_WORDS = 8
MASK, WARPS = 0, 1

#: Words before the ring of a track: what the clock and the timer (ns, 0 where there is none) said when it began, what
#: they said when it ended, how many records were made and which streaming multiprocessor (SM) ran it, and, where that
#: is measured, the ticks that :data:`MEASURED_RECORDS` records took one after the other. The first six are written in
#: pairs.
TRACK_WORDS = 8
FIRST_CLOCK, FIRST_NS, LAST_CLOCK, LAST_NS, COUNT, SM, RECORD_TICKS = range(7)
MEASURED_RECORDS = 8

WORD_BYTES = 8
#: A GPU stores the records of a warp in blocks of so many, one of each lane, and a ring is of whole blocks.
BLOCK_RECORDS = 32
#: Warps that a word has bits for; a program has at most 32, and 4 that help.
MOST_WARPS = 64

#: Bits of the clock in a record of 64 bits.
CLOCK_BITS = 48
SHORT_RECORD_BITS = 32
#: So many bits of the clock are left at least in a short record: 2**24 ticks are 9 ms at 1.8 GHz.
_FEWEST_CLOCK_BITS = 24


@dataclass(frozen=True, slots=True)
class RecordForm:
    """How a kernel records. ``short``: a record has 32 bits, and the clock all of them that tell no scopes apart;
    else it has 64, with 48 for the clock. ``measured``: each track begins by measuring what a record takes."""

    short: bool = False
    measured: bool = False

    @property
    def record_bytes(self) -> int:
        """Of one record."""
        return (SHORT_RECORD_BITS if self.short else 8 * WORD_BYTES) // 8

    def most_scopes(self) -> int:
        """Scopes that records can tell apart."""
        above = SHORT_RECORD_BITS - _FEWEST_CLOCK_BITS if self.short else 8 * WORD_BYTES - CLOCK_BITS
        return 1 << above - 1

    def clock_bits(self, scopes: int) -> int:
        """Bits of the clock in the records of a kernel with so many scopes.

        Raises:
            CompilationError: they are more than records can tell apart.
        """
        if scopes > self.most_scopes():
            raise CompilationError(
                f"{scopes} scopes are in the kernel, records can tell {self.most_scopes()} apart",
                hint="leave optimizations=clock32 out" if self.short else None,
            )
        return SHORT_RECORD_BITS - (2 * scopes - 1).bit_length() if self.short else CLOCK_BITS


def record_tag(scope: int, enter: bool, clock_bits: int) -> int:
    """What stands above the clock in a record."""
    return (scope * 2 + (not enter)) << clock_bits
