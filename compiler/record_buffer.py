"""The memory in which an instrumented kernel records: what generated code writes and the launcher reads.

The buffer is an array of 64-bit words: the head, then one track after the other. A track is what one warp of a program
writes on a GPU, and one program on a CPU: a few words about it, and a ring of records. A ring that is full goes on
at its beginning, so that the newest records are kept; the number of all that were made tells how many were lost.

A record is one word: whether a scope ends (bit 48), the number of the scope (above), the clock modulo 2**48 (below).
"""

from __future__ import annotations

#: Words of the head: the length of a ring less one, which is a mask as lengths are powers of two; and a bit for each
#: warp, whether it records.
HEAD_WORDS = 8
MASK, WARPS = 0, 1

#: Words before the ring of a track: how many records were made, which processor ran it, and what the clock and the
#: timer (ns, 0 where there is none) said when it began and when it ended.
TRACK_WORDS = 8
COUNT, PROCESSOR, FIRST_CLOCK, FIRST_NS, LAST_CLOCK, LAST_NS = range(6)

CLOCK_BITS = 48
WORD_BYTES = 8
#: Warps that a word has bits for; a program has at most 32, and 4 that help.
MOST_WARPS = 64


def record_tag(scope: int, enter: bool) -> int:
    """What stands above the clock in a record."""
    return (scope * 2 + (not enter)) << CLOCK_BITS
