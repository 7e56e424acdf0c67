"""Software pipelining in one group of threads: copies for later iterations begin before the products of this one.

With ``slots`` slots, ``slots - 1`` iterations are fetched ahead: a prologue fills that many slots, and each iteration
begins the fetch for the iteration ``slots - 1`` later into the slot that the one before it has read. The barrier after
waiting makes both safe: copies are visible to all threads, and nobody reads the slot that is filled next any more. With
a single slot each iteration fetches for itself, between two barriers.

A stream that is ``refilled`` has as many copies under way with a slot less: each iteration fetches for that ``slots``
later, into the slot that it has read itself, behind its products and a barrier. It needs no other one where the copy
engine brings everything. Copies into a single slot are under way while the products of other CTAs are computed.

Products of warp groups go on by themselves, so a later fetch is begun while the first one is computed. It fills another
slot than those that are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...ir.core import Block, Effect, Function, Op, Value
from ...tile import elementwise as ew
from ...tile.control import For, If, Yield
from ...tile.matmul import Dot
from ...tile.memory import Barrier
from ...tile.shape import Permute
from ..arrays import Arrays
from ..asynchronous import Advance, Commit, Receive, Release, Vacate
from .ahead import Ahead, run_ahead
from .plan import Stream
from .rings import StreamMemory


def expand_multistage(function: Function, streams: Sequence[Stream], flies: Callable[[Dot], bool]) -> None:
    """Rewrite every stream of ``function``, in place. ``flies``: which products go on while other work is done."""
    memory = StreamMemory(readers=0)
    arrays = Arrays(function)
    for stream in streams:
        ahead = run_ahead(stream.loop, [v for load in stream.loads for v in load.operands], arrays, stream.tables)
        if ahead is not None:
            _Expansion(function, stream, ahead, memory, flies).run()
    function.body.ops[:0] = memory.ops


class _Expansion:
    def __init__(
        self, function: Function, stream: Stream, ahead: Ahead, memory: StreamMemory, flies: Callable[[Dot], bool]
    ) -> None:
        self.function = function
        self.stream = stream
        self.loop = stream.loop
        self.ahead = ahead
        #: Iterations that are fetched ahead.
        self.lead = stream.slots if stream.refilled else stream.slots - 1
        self.rings = memory.of(stream)
        self.flies = flies

    def run(self) -> None:
        """Rewrite the loop and what stands before it."""
        if not self.lead:
            self._compute(self._fetch_here())
            return
        block = self.function.body.holder_of(self.loop)
        at = block.ops.index(self.loop)
        before, first = self._prologue()
        block.ops[at : at + 1] = [*before, self._with_fetches(first)]

    def _prologue(self) -> tuple[list[Op], For]:
        """Fetch the first ``lead`` iterations, of those that there are, in a loop of its own; its results are the
        carried values of the iteration after them."""
        distance = ew.Constant(self.lead * self._step, self.loop.step.type)
        end = ew.Add(self.loop.lower, distance.result)
        body = Block()
        index = body.add_argument(self.loop.lower.type, "ahead")
        env = {value: body.add_argument(value.type, value.name) for value in self.ahead.carried}
        body.ops = self._guarded(index, env)
        body.ops.append(Yield(tuple(env[value] for value in self.ahead.carried)))
        filling = For(self.loop.lower, end.result, self.loop.step, self.ahead.inits, num_stages=0, unroll=1, body=body)
        # An outer loop may come round while slow threads still read what the last iterations left.
        return [Barrier(), distance, end, filling], filling

    def _with_fetches(self, first: For) -> For:
        """The loop, each iteration of which begins a later fetch; what those are made of is carried besides."""
        loop, body = self.loop, self.loop.body
        env = {value: body.add_argument(value.type, value.name) for value in self.ahead.carried}
        wait, fetch = self._fetch_ahead(env)
        made = loop.carrying(first.results, (env[value] for value in self.ahead.carried))
        self._compute(wait, fetch)
        self.function.replace_uses(dict(zip(loop.results, made.results, strict=False)))
        return made

    @property
    def _step(self) -> int:
        made = self.loop.step.op
        return int(made.value) if isinstance(made, ew.Constant) else 1

    def _guarded(self, index: Value, env: dict[Value, Value]) -> list[Op]:
        """Fetch for iteration ``index`` if there is one; ``env`` has its carried values, and the next one's afterwards.

        Copies by threads are counted, so each turn closes a group; slots are not: of those that are filled all are
        read, and the next time round begins where this one ended.
        """
        carried, env[self.loop.body.args[0]] = self.ahead.carried, index
        exists = ew.Compare(index, self.loop.upper, "lt")
        if not self.ahead.branches:
            fetching = Block(ops=[*self._fetches(dict(env)), Yield(())])
            guarded = If(exists.result, fetching, Block(ops=[Yield(())]))
            return [exists, guarded, *self._counted(), *self.ahead.advance(env)]
        # Nobody needs the values of an iteration after one that does not exist.
        stays, now = tuple(env[value] for value in carried), dict(env)
        advance = self.ahead.advance(env)
        ops = [*advance, *self._fetches({**env, **now}), Yield(tuple(env[value] for value in carried))]
        guarded = If(exists.result, Block(ops=ops), Block(ops=[Yield(stays)]))
        env.update(zip(carried, guarded.results, strict=True))
        return [exists, guarded, *self._counted()]

    def _fetches(self, env: dict[Value, Value]) -> list[Op]:
        """Fetch for the iteration whose index and carried values are in ``env``."""
        ops = self.ahead.fetch(env)
        for rings in self.rings:
            ops += [*rings.fetch(env), Advance(rings.pipe.result)]
        return ops

    def _counted(self) -> list[Op]:
        return [Commit()] if any(rings.group.engine == "cp.async" for rings in self.rings) else []

    def _fetch_ahead(self, env: dict[Value, Value]) -> tuple[list[Op], list[Op]]:
        """Wait; and begin a later fetch."""
        distance = ew.Constant(self.lead * self._step, self.loop.step.type)
        later = ew.Add(self.loop.body.args[0], distance.result)
        wait: list[Op] = [Receive(rings.pipe.result, self.lead - 1) for rings in self.rings]
        return wait, [distance, later, *self._guarded(later.result, env)]

    def _fetch_here(self) -> list[Op]:
        """Fetch when nobody reads the slot any more, and wait."""
        ops = [Barrier(), *self._fetches({}), *self._counted()]
        return [*ops, *(Receive(rings.pipe.result) for rings in self.rings), Barrier()]

    def _compute(self, wait: list[Op], fetch: Sequence[Op] = ()) -> None:
        """What the loop did after ``wait``, with slots in place of what was loaded. ``fetch`` is done behind everything
        if slots are refilled, else while a product is under way, if there is one that can begin at once, else before
        everything. What needs nothing loaded, such as where the result lies, is computed before waiting."""
        body = self.loop.body
        slots: list[Op] = []
        replaced: dict[Value, Value] = {}
        for rings in self.rings:
            slots += rings.slots(replaced)
        loads = set(self.stream.loads)
        before, ops = _before_waiting([op for op in body.ops if op not in loads], set(replaced))
        at = self._flying(ops, set(replaced)) if fetch and not self.stream.refilled else 0
        ops[-1:-1] = [Release(rings.pipe.result) for rings in self.rings]
        body.ops = (
            [*before, *self._with_fetch(wait, slots, ops, fetch, at)] if fetch else [*before, *wait, *slots, *ops]
        )
        body.replace_uses(replaced)

    def _with_fetch(self, wait: list[Op], slots: list[Op], ops: list[Op], fetch: Sequence[Op], at: int) -> Sequence[Op]:
        """An iteration that does ``fetch`` behind the first ``at`` of ``ops``, or behind all where slots are refilled.
        What the copy engine brings every thread waits for itself; what threads bring, for its own copies only."""
        alone = all(rings.group.engine == "tma" for rings in self.rings)
        if self.stream.refilled:
            seen = [] if alone else [Barrier()]
            return [*wait, *seen, *slots, *ops[:-1], Barrier(), *fetch, ops[-1]]
        if not at:
            return [*wait, Barrier(), *fetch, *slots, *ops]
        if alone:
            return [*wait, *slots, *ops[:at], Vacate(), *fetch, *ops[at:]]
        return [*wait, Barrier(), *slots, *ops[:at], *fetch, *ops[at:]]

    def _flying(self, ops: list[Op], loaded: set[Value]) -> int:
        """The place behind the first product of ``ops``, if it flies and reads what was ``loaded`` as it is, or what
        the loop does not make; else 0."""
        made = {value for op in ops for value in op.results} | set(self.loop.body.args)
        for place, op in enumerate(ops):
            if isinstance(op, Permute) and op.x in loaded:
                loaded.add(op.result)
            elif isinstance(op, Dot):
                ready = all(value in loaded or value not in made for value in (op.a, op.b))
                return place + 1 if self.flies(op) and ready else 0
        return 0


def _before_waiting(ops: list[Op], loaded: set[Value]) -> tuple[list[Op], list[Op]]:
    """Of ``ops``, the arithmetic of scalars and rows, and branches of it, that needs nothing ``loaded``; the rest. Both
    in order."""
    late = set(loaded)
    before: list[Op] = []
    rest: list[Op] = []
    for op in ops:
        if op.results and all(map(_is_short, op.walk())) and late.isdisjoint(op.reads):
            before.append(op)
        else:
            rest.append(op)
            late.update(op.results)
    return before, rest


def _is_short(op: Op) -> bool:
    """Whether ``op`` computes, or chooses, no tiles of several axes."""
    pure = op.effect is Effect.PURE or isinstance(op, If | Yield)
    return pure and all(value.type.rank <= 1 for value in (*op.operands, *op.results))
