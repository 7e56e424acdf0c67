"""Prefetching of tables: what a loop reads to know where tiles lie comes an iteration before those are fetched.

Keys and values of a paged cache lie where a list of pages says. Copies that are begun as soon as the list is read wait
for memory in every iteration, and so does what the threads do behind them; a list that came an iteration earlier, in
registers, is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...hardware import threads_of
from ...ir.core import Function
from ...tile.control import If
from ...tile.memory import Load
from ..arrays import Arrays
from ..streams.ahead import run_ahead
from ..streams.plan import Stream
from .early import come_early

#: Elements of a table for each thread, up to which it is kept for the next iteration.
MOST_ELEMENTS = 1


def bring_tables_early(function: Function, streams: Sequence[Stream]) -> tuple[Stream, ...]:
    """The streams of ``function`` with what decides where they read loaded an iteration ahead, in place."""
    arrays = Arrays(function)
    return tuple(_with_tables_early(function, stream, arrays) for stream in streams)


def _with_tables_early(function: Function, stream: Stream, arrays: Arrays) -> Stream:
    ahead = run_ahead(stream.loop, [v for load in stream.loads for v in load.operands], arrays)
    if ahead is None or any(isinstance(op, If) for op in ahead.fetching):
        return stream
    most = MOST_ELEMENTS * threads_of(function.warps)
    reads = [op for op in ahead.fetching if isinstance(op, Load)]
    tables = [op for op in reads if op.result.type.rank <= 1 and op.result.type.size <= most]
    made = come_early(function, stream.loop, tables, arrays)
    return stream if made is None else replace(stream, loop=made[0], tables=frozenset(made[1]))
