"""Scopes inside kernels: they nest, they get numbers, or they go.

Where a scope begins, it ends in the same block of operations, so which scopes are around it is known before the kernel
runs: a table of paths says what each number means, and records that were lost leave nothing in doubt about the others.
"""

from __future__ import annotations

from ...errors import CompilationError
from ...ir.core import Block, Effect, Function, Op
from ...record_buffer import RecordForm
from ..records import RECORDS, RECORDS_TYPE, Record

#: Names of scopes from the outermost to the scope itself.
ScopePath = tuple[str, ...]

_EXITS = (
    "a scope begins and ends in one branch or loop body; a return, break or continue inside a scope leaves it open on "
    "that path"
)


def check_scopes(function: Function) -> None:
    """Raise CompilationError, with the place, where a scope is not begun and ended in one branch or loop body."""
    _walk(function.body)


def drop_records(function: Function) -> Function:
    """Remove all marks, in place: what is left is the kernel as if they had never been written."""
    for block in function.body.nest():
        block.ops = [op for op in block.ops if not isinstance(op, Record)]
    return function


def number_scopes(function: Function, form: RecordForm) -> tuple[ScopePath, ...]:
    """Let the marks of ``function`` record, in place: into a buffer that is its last parameter. Returns the paths by
    number; without marks there are none, and no parameter.

    Raises:
        CompilationError: there are more scopes than a record can tell apart.
    """
    found = _walk(function.body)
    numbers = {path: number for number, path in enumerate(dict.fromkeys(found.values()))}
    if numbers:
        clock_bits = form.clock_bits(len(numbers))
        buffer = function.add_parameter(RECORDS, RECORDS_TYPE, 16)
        for mark, path in found.items():
            mark.buffer, mark.scope = buffer, numbers[path]
            mark.clock_bits, mark.measured = clock_bits, form.measured
    return tuple(numbers)


def _walk(block: Block, outer: ScopePath = ()) -> dict[Record, ScopePath]:
    """The path of every mark in ``block`` and below; checks that scopes nest."""
    found: dict[Record, ScopePath] = {}
    open_: list[Record] = []
    for op in block.ops:
        if isinstance(op, Record):
            if op.enter:
                open_.append(op)
            path = (*outer, *(mark.name for mark in open_))
            if not op.enter:
                _end(op, open_, outer)
            found[op] = path
        for inner in op.blocks:
            below = _walk(inner, (*outer, *(mark.name for mark in open_)))
            _refuse_in_combines(op, below)
            found |= below
    if open_:
        raise CompilationError(
            f"the scope {open_[-1].name!r} is not ended in the branch or loop body in which it begins",
            location=open_[-1].location,
            hint=_EXITS,
        )
    return found


def _end(mark: Record, open_: list[Record], outer: ScopePath) -> None:
    if not open_:
        begun_outside = mark.name in outer[-1:]
        raise CompilationError(
            f"exit_scope({mark.name!r}): no scope begins before it in the same branch or loop body",
            location=mark.location,
            hint=_EXITS if begun_outside else f"write enter_scope({mark.name!r}) there",
        )
    begun = open_.pop()
    if begun.name != mark.name:
        where = f", which begins in line {begun.location.line}," if begun.location else ""
        raise CompilationError(
            f"exit_scope({mark.name!r}): the scope {begun.name!r}{where} must end first",
            location=mark.location,
            hint="scopes end in the reverse order in which they begin",
        )


def _refuse_in_combines(op: Op, below: dict[Record, ScopePath]) -> None:
    if below and op.effect is not Effect.CONTROL:
        mark = next(iter(below))
        raise CompilationError(
            f"the scope {mark.name!r} is in a function that {op.mnemonic} calls for elements",
            location=mark.location,
            hint="scopes are around what a program does with whole tiles",
        )
