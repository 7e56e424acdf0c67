"""Prefetching: rows and single numbers that loops around products read come an iteration early, in registers.

What an iteration adds to a product, or scales it by, is a row of numbers beside the tiles, or one number: read when it
is needed it would keep the threads waiting for memory at each step, which the tiles, fetched ahead, do not. Gradients
of attention as in Triton's tutorial take 0.84 to 0.94 of their time on an H100
(benchmarks/results/2026-11-26-h100-profiler, attention-tutorial.json). So do the rows of a step of a recurrence, which
takes its state through a long sequence in a few programs, and adds up rows or columns of it at each step. As with tiles
that are fetched ahead, arrays of different parameters are taken to be apart.

Loops without products that say how many stages they have (``tl.range(..., num_stages=4)``) read as many iterations
early, less one: each waits for memory as long as the others, and by itself they would wait one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from ...ir.core import Effect, Function, Op, Value
from ...ir.slices import backward_slice
from ...tile import elementwise as ew
from ...tile.blocks import BlockStore
from ...tile.control import For
from ...tile.matmul import Dot
from ...tile.memory import Load, Store
from ...tile.passes.numbers import known_number
from ...tile.reduction import Reduce
from ...tile.shape import Splat
from ..arrays import Arrays
from ..streams.ahead import Ahead, may_precede, run_ahead

#: Elements of a row for each thread, up to which it is kept for the next iteration.
MOST_ELEMENTS = 4
#: Elements of all rows of iterations to come that a thread has, where a loop says how many stages it has.
MOST_OF_STAGES = 32


def multiplies(loop: For) -> bool:
    """Whether there are products in the body of ``loop`` itself."""
    return any(isinstance(op, Dot) for op in loop.body.ops)


def is_recurrence(loop: For) -> bool:
    """Whether ``loop`` carries a tile from step to step, and its threads add up rows or columns in each."""
    return any(value.type.rank > 1 for value in loop.inits) and any(isinstance(op, Reduce) for op in loop.body.ops)


def has_stages(loop: For) -> bool:
    """Whether the author of ``loop`` says that it has several stages."""
    return (loop.num_stages or 0) > 1


def bring_rows_early(function: Function, threads: int, pays: Callable[[For], bool]) -> None:
    """Load rows in loops where that ``pays`` for a later iteration, in place; CTAs have so many ``threads``."""
    arrays = Arrays(function)
    for block in list(function.body.nest()):
        for loop in [op for op in block.ops if isinstance(op, For) and pays(op)]:
            rows = list(_rows(loop, arrays, MOST_ELEMENTS * threads))
            come_early(function, loop, rows, arrays, _iterations_early(loop, rows, threads))


def _iterations_early(loop: For, rows: Sequence[Load], threads: int) -> int:
    """How many iterations before theirs ``rows`` are loaded."""
    if not has_stages(loop) or multiplies(loop):
        return 1
    held = sum(max(1, row.result.type.size // threads) for row in rows)
    return max(1, min((loop.num_stages or 0) - 1, MOST_OF_STAGES // max(1, held)))


def come_early(
    function: Function, loop: For, rows: Sequence[Load], arrays: Arrays, iterations: int = 1
) -> tuple[For, set[Op]] | None:
    """Load ``rows`` of ``loop`` so many ``iterations`` before theirs, in place; the loop that carries them, and its new
    loads, which read nothing of iterations that do not exist. None, and nothing is changed, where what they need cannot
    be ahead."""
    ahead = run_ahead(loop, [value for row in rows for value in row.operands], arrays) if rows else None
    if ahead is None:
        return None
    block = function.body.holder_of(loop)
    at = block.ops.index(loop)
    before, made, begun = _with_early_rows(function, loop, rows, ahead, iterations)
    block.ops[at : at + 1] = [*before, made]
    return made, {op for op in begun if isinstance(op, Load)}


def _rows(loop: For, arrays: Arrays, most: int) -> Iterator[Load]:
    """The loads that may come early: nothing in the loop writes what they read or waits for others to do so, and no
    address is made of them, as what decides where a loop reads runs ahead by itself. None where the step, known only
    when the kernel runs, may lead down: which iteration is the last one would be said otherwise."""
    body = loop.body
    rises = (known_number(loop.step) or 0) > 0
    quiet = all(op.effect is not Effect.WRITE or isinstance(op, Store | BlockStore) for op in body.walk())
    if not rises or not quiet:
        return
    reads = [op for op in body.walk() if op.effect is Effect.READ]
    if any(isinstance(op, Load) and op.is_awaited for op in reads):
        return
    addresses = backward_slice([value for op in reads for value in op.operands], body.walk())
    written = arrays.written(body)
    for op in body.ops:
        if not isinstance(op, Load) or op.result.type.rank > 1 or op.result.type.size > most or op in addresses:
            continue
        if may_precede(arrays.of(op.pointer), written) and run_ahead(loop, op.operands, arrays) is not None:
            yield op


def _with_early_rows(
    function: Function, loop: For, rows: Sequence[Load], ahead: Ahead, iterations: int
) -> tuple[list[Op], For, list[Op]]:
    """The rows of the first ``iterations``; the loop, which carries those of as many to come; and what of it loads
    them."""
    index, body = loop.body.args[0], loop.body
    before: list[Op] = []
    first: list[Value] = []
    at: Value = loop.lower
    env = dict(zip(ahead.carried, ahead.inits, strict=True))
    for number in range(iterations):
        if number:
            env[index] = at
            moved, at, env = _following(ahead, env, at)
            before += moved
        loads, results = _loaded(loop, rows, ahead, {index: at, **env}, at)
        before += loads
        first += results
    came = [body.add_argument(row.result.type, row.result.name) for _ in range(iterations) for row in rows]
    advance: list[Op] = []
    at, env = index, {}
    for _ in range(iterations):
        moved, at, env = _following(ahead, env, at)
        advance += moved
        env[index] = at
    begin, after = _loaded(loop, rows, ahead, dict(env), at)
    body.ops = [*advance, *begin, *(op for op in body.ops if op not in rows)]
    made = loop.carrying(first, [*came[len(rows) :], *after])
    early = dict(zip((row.result for row in rows), came, strict=False))
    function.replace_uses({**early, **dict(zip(loop.results, made.results, strict=False))})
    return before, made, begin


def _following(ahead: Ahead, env: dict[Value, Value], at: Value) -> tuple[list[Op], Value, dict[Value, Value]]:
    """From an iteration whose values are in ``env`` and whose index is ``at`` to the next one: operations, its index,
    and its carried values; what was made on the way is the earlier one's."""
    advanced = dict(env)
    moved = ahead.advance(advanced)
    following = ew.Add(at, ahead.loop.step)
    return [*moved, following], following.result, {value: advanced[value] for value in ahead.carried}


def _loaded(
    loop: For, rows: Sequence[Load], ahead: Ahead, env: dict[Value, Value], index: Value
) -> tuple[list[Op], list[Value]]:
    """Load the rows of an iteration, and what says where they lie, if there is one, from its values in ``env``;
    operations and results."""
    exists = ew.Compare(index, loop.upper, "lt")
    ops: list[Op] = [exists]
    fetched = ahead.fetch(env)
    loads = [row.clone(env) for row in rows]
    for op in (*fetched, *loads):
        if isinstance(op, Load):
            ops += _only_if(exists.result, op)
        ops.append(op)
    return ops, [result for load in loads for result in load.results]


def _only_if(exists: Value, load: Load) -> list[Op]:
    """Make ``load`` one that reads nothing unless ``exists``; the operations of its mask."""
    mask: list[Op] = []
    if load.pointer.type.rank:
        mask.append(Splat(exists, load.pointer.type.shape))
        exists = mask[-1].results[0]
    if load.mask is not None:
        mask.append(ew.And(load.mask, exists))
        exists = mask[-1].results[0]
    load.mask = exists
    return mask
