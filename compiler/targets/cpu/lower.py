"""From tile IR to LLVM text: statements in program order, tile values where they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod

from ...errors import IRError
from ...ir.core import Block, Effect, Op, Value
from ...ir.types import Element
from ...llvm.text import FunctionText, ModuleText
from ...llvm.typed import Emitter, Typed
from ...options import Schedule
from ...tile import memory, shape
from . import elementwise
from .affine import divisor_of, known_number
from .arena import Arena, Buffer, Stored
from .chunk import ZERO, Uniform
from .emission import Coords, Emission, vector_axis
from .interleave import may_interleave
from .liveness import Liveness
from .loops import BasicBlock, Blocks
from .masks import WORTH_TWO_LOOPS, bounded_counts, holds_everywhere
from .plan import Plan
from .processor import Processor
from .rule_sets import is_lazy, reads_buffer, statements, views

Nested = Callable[[Emission], list[Typed]]


@dataclass(frozen=True, slots=True)
class ProgramTrack:
    """Where a program records (:mod:`...record_buffer`): its first word, the mask of its ring, and the variable that
    counts its records."""

    start: Typed
    mask: Typed
    count: Typed


class CpuLowering:
    """The state of one function being lowered.

    ``scalars`` are rank-0 values in LLVM registers, ``stored`` tiles in scratch memory; every other tile is lazy.
    """

    def __init__(
        self,
        module: ModuleText,
        function: FunctionText,
        plan: Plan,
        schedule: Schedule,
        processor: Processor,
    ) -> None:
        self.module = module
        self.function = function
        self.blocks = Blocks(function)
        self.entry_lines = self.blocks.enter(self.blocks.here).lines
        self.e = Emitter(function, contract=schedule.enable_fp_fusion)
        self.plan = plan
        self.schedule = schedule
        self.processor = processor
        self.arena = Arena()
        self.live = Liveness(plan, self.arena)
        self.stored = self.live.stored
        self.scalars: dict[Value, Uniform] = {}
        self.pending_loads: dict[Value, None] = {}
        self.views = views
        self.scratch = Typed("ptr", "%scratch")
        self.program_ids: list[Typed] = []
        self.grid: list[Typed] = []
        self.program = Typed("i64", "%program")
        self.status = Typed("ptr", "%status")
        self.messages: list[tuple[str, str]] = []
        self.prints: list[Op] = []
        #: Where a program records, if it does.
        self.track: ProgramTrack | None = None

    def entry_variable(self, type: str) -> Typed:
        """A variable of the whole function, which LLVM keeps in a register."""
        name = f"%{self.function.fresh('variable')}"
        self.entry_lines.insert(1, f"  {name} = alloca {type}")
        return Typed("ptr", name)

    # Statements ------------------------------------------------------------------------------------------------

    def run(self, block: Block) -> None:
        """Lower the operations of ``block`` up to its terminator."""
        for op in block.ops:
            if op.effect is Effect.TERMINATOR:
                break
            self.live.define(op.results)
            self.statement(op)

    def statement(self, op: Op) -> None:
        """Lower one operation; lazy ones only when somebody reads them."""
        if is_lazy(op):
            if isinstance(op, memory.Load) and self.live.uses.get(op.result):
                self.pending_loads[op.result] = None
            if not any(self.live.uses.get(r) for r in op.results):
                self.live.retire(op)
            for result in op.results:
                if result in self.plan.at_once and self.live.uses.get(result):
                    self.store(result)
            return
        if op.elementwise and not op.results[0].type.rank:
            self.scalar_op(op)
        else:
            statements.find(op)(self, op)
        for operand in op.operands:
            self.live.release(operand)
        for result in op.results:
            if not self.live.uses.get(result):
                self.live.drop(result)

    def scalar_op(self, op: Op) -> None:
        """Emit an elementwise operation of rank 0 where the code stands, once a program."""
        args = [self.scalar(v) for v in op.operands]
        made = elementwise.rules.find(op)(self.e, op, *(a.value for a in args))
        number = known_number(op, args)
        self.scalars[op.results[0]] = Uniform(made, 0, number, divisor_of(op, args))

    def scalar(self, value: Value) -> Uniform:
        """The register of a rank-0 value."""
        return self.scalars[value]

    def set_scalar(self, value: Value, made: Typed) -> None:
        """Make ``made`` the register of a rank-0 value."""
        self.scalars[value] = Uniform(made, 0, None, 1)

    # Loops over tiles ------------------------------------------------------------------------------------------

    def lanes(self, tile_shape: tuple[int, ...], elem: Element) -> int:
        """Elements in a chunk of a tile: :meth:`chunk_lanes`, or the whole minor dimension."""
        return min(self.chunk_lanes(elem), tile_shape[vector_axis(tile_shape)]) if tile_shape else 1

    def chunk_lanes(self, elem: Element) -> int:
        """Elements in two native vectors; elements narrower than 4 bytes count as 4."""
        return 2 * self.processor.vector_bytes // max(4, elem.bytes)

    def prepare(self, roots: Iterable[tuple[Value, bool]]) -> dict[Value, Stored]:
        """Store what the expressions of ``roots`` need in memory before their loop begins.

        A root is (value, whether it is read at the loop's own coordinates). Returns the kept values that the loop
        itself computes first, with fresh buffers.
        """
        roots = list(roots)
        for value, at_identity in roots:
            self._store_needed(value, at_identity, set())
        saving: dict[Value, Stored] = {}
        for value, at_identity in roots:
            self._collect_saving(value, at_identity, saving, set())
        return saving

    def _store_needed(self, value: Value, identity: bool, seen: set[tuple[Value, bool]]) -> None:
        for child, same in self._children(value, identity, seen):
            self._store_needed(child, same, seen)
        if value.type.rank and value not in self.stored:
            if value in self.plan.kept and not identity:
                self.store(value)
            elif value.op is not None:
                for needed in reads_buffer(value.op):
                    self.store(needed)

    def _collect_saving(
        self,
        value: Value,
        identity: bool,
        saving: dict[Value, Stored],
        seen: set[tuple[Value, bool]],
    ) -> None:
        for child, same in self._children(value, identity, seen):
            self._collect_saving(child, same, saving, seen)
        done = value in self.stored or value in saving
        if identity and value.type.rank and value in self.plan.kept and not done:
            saving[value] = Stored(self.allocate(value), value.type.shape)

    def _children(self, value: Value, identity: bool, seen: set[tuple[Value, bool]]) -> list[tuple[Value, bool]]:
        """The tiles behind a lazy value, and whether they are read at the same coordinates."""
        op = value.op
        if (value, identity) in seen or not value.type.rank or value in self.stored or op is None:
            return []
        seen.add((value, identity))
        moved = isinstance(op, (shape.ExpandDims, shape.Broadcast, shape.Permute, shape.Reshape))
        inside = set(reads_buffer(op))
        return [(v, identity and not moved) for v in op.operands if v.type.rank and v not in inside]

    def expression(self, value: Value) -> dict[Value, bool]:
        """All tiles that computing ``value`` reads, and whether only at the same coordinates."""
        found: dict[Value, bool] = {}
        seen: set[tuple[Value, bool]] = set()
        work = [(value, True)]
        while work:
            v, same = work.pop()
            found[v] = found.get(v, True) and same
            if v.op is not None and v not in self.stored:
                work += [(n, False) for n in reads_buffer(v.op) if (n, False) not in seen]
            work += self._children(v, same, seen)
        return found

    def loop(
        self,
        roots: Iterable[tuple[Value, bool]],
        tile_shape: tuple[int, ...],
        lanes: int,
        body: Callable[[Emission, Coords], None],
        *,
        unroll: bool = False,
        condition: Typed | None = None,
        otherwise: Nested | None = None,
    ) -> None:
        """Run ``body`` at every chunk of ``tile_shape``. ``unroll``: see :class:`~.loops.Nest`; ``condition`` and
        ``otherwise``: see :meth:`run_nest`."""

        def nest(emission: Emission) -> list[Typed]:
            body(emission, emission.walk(tile_shape))
            emission.unwind(len(tile_shape))
            return []

        chunks = prod(tile_shape) // lanes
        self.run_nest(roots, lanes, chunks, nest, unroll=unroll, condition=condition, otherwise=otherwise)

    def run_nest(
        self,
        roots: Iterable[tuple[Value, bool]],
        lanes: int,
        chunks: int,
        nest: Nested,
        *,
        unroll: bool = False,
        condition: Typed | None = None,
        otherwise: Nested | None = None,
    ) -> list[Typed]:
        """Emit a nest that reads ``roots`` at so many chunks of ``lanes`` elements; returns what it returns.

        ``unroll``: see :class:`~.loops.Nest`. ``condition``: where it is false, ``otherwise`` runs instead, which
        returns nothing and computes ``roots`` at the same chunks.

        Where run-time facts about masks and stored indices may help (:attr:`Stored.holds`), it is emitted twice.
        """
        roots = list(roots)
        saving = self.prepare(roots)
        masks = self._bounds(roots) if lanes > 1 and chunks >= WORTH_TWO_LOOPS else []
        facts = [holds_everywhere(self, mask) for mask in masks]
        facts += self._run_time_facts(roots) if lanes > 1 else []

        def emit(assume: bool) -> tuple[Emission, list[Typed]]:
            known = masks if assume else ()
            # Of two versions the general one is rarely run: it is not worth LLVM's time.
            rolled = not unroll or (bool(facts) and not assume)
            emission = Emission(self, lanes, saving, assume=assume, all_true=known, unroll=not rolled)
            return emission, nest(emission)

        behind = None if condition is None or otherwise is None else self._unless(condition, lanes, saving, otherwise)
        emission, made = self._twice(facts, emit) if facts else emit(False)
        if behind is not None:
            self.blocks.jump(behind)
            self.blocks.enter(behind)
        self.saved(emission)
        return made

    def _unless(self, condition: Typed, lanes: int, saving: dict[Value, Stored], nest: Nested) -> BasicBlock:
        """Where ``condition`` is false, run ``nest`` and go to the block that is returned; code goes on where it is
        true."""
        true, false, behind = (self.blocks.new(n) for n in ("quick", "aside", "behind"))
        self.blocks.branch(condition, true, false)
        self.blocks.enter(false)
        nest(Emission(self, lanes, saving, unroll=False))
        self.blocks.jump(behind)
        self.blocks.enter(true)
        return behind

    def _twice(
        self, facts: list[Typed], emit: Callable[[bool], tuple[Emission, list[Typed]]]
    ) -> tuple[Emission, list[Typed]]:
        """Emit for the case that all ``facts`` hold and for the case that they do not; returns the latter's."""
        fast, slow, join = (self.blocks.new(n) for n in ("fast", "slow", "join"))
        condition = facts[0]
        for fact in facts[1:]:
            condition = self.e.binary("and", condition, fact)
        self.blocks.branch(condition, fast, slow)
        self.blocks.enter(fast)
        _, quick = emit(True)
        self.blocks.jump(join)
        fast = self.blocks.here
        self.blocks.enter(slow)
        emission, general = emit(False)
        self.blocks.jump(join)
        slow = self.blocks.here
        self.blocks.enter(join)
        merged = [self.blocks.fresh(v.type) for v in general]
        for value, x, y in zip(merged, quick, general, strict=True):
            self.blocks.phi(join, value, [(x, fast), (y, slow)])
        return emission, merged

    def _bounds(self, roots: list[tuple[Value, bool]]) -> list[Value]:
        """Masks in the expressions of ``roots`` that may be found to be true everywhere."""
        inside = {v: None for root, _ in roots for v in self.expression(root)}
        return bounded_counts([v for v in inside if v not in self.stored])

    def _run_time_facts(self, roots: list[tuple[Value, bool]]) -> list[Typed]:
        found: dict[str, Typed] = {}
        for value, _ in roots:
            for inner in self.expression(value):
                stored = self.stored.get(inner)
                if stored is not None and stored.holds is not None:
                    found[stored.holds.name] = stored.holds
        return list(found.values())

    def saved(self, emission: Emission) -> None:
        """The loop of ``emission`` is complete: what it saved is in memory."""
        for value, stored in emission.saving.items():
            stride, width = emission.structures.get(value, (None, 0))
            stored.lane_stride, stored.width = stride, width
            stored.axis = vector_axis(stored.shape)
            self._keep(value, stored)

    def _keep(self, value: Value, stored: Stored) -> None:
        self.pending_loads.pop(value, None)
        self.live.keep(value, stored)
        if value in self.plan.checked and stored.lane_stride is None:
            self._check_progression(value, stored)

    def _check_progression(self, value: Value, stored: Stored) -> None:
        """Find out at run time whether the aligned chunks of an index vector count up by one."""
        lanes = self.lanes(value.type.shape, value.type.elem)
        if lanes < 4:
            return
        emission = Emission(self, lanes, {})
        axis = vector_axis(stored.shape)
        count, true = stored.shape[axis] // lanes, Typed("i1", "true")
        coord, (sofar,) = emission.open(count, lanes, stride=1, carried=[true])
        coords = tuple(coord if d == axis else ZERO for d in range(len(stored.shape)))
        chunk = emission.read(stored, value.type.elem, coords)
        vector = emission.as_vector(chunk)
        with emission.nest.at(emission.nest.depth):
            first = self.e.splat(self.e.extract(vector, 0), lanes)
            steps = self.e.binary("sub", vector, first)
            wanted = ", ".join(f"{vector.element} {i}" for i in range(lanes))
            same = self.e.compare("eq", steps, Typed(vector.type, f"<{wanted}>"))
            name = f"llvm.vector.reduce.and.v{lanes}i1"
            whole = Typed("i1", self.function.call("i1", name, [(same.type, same.name)]))
            whole = self.e.binary("and", sofar, whole)
        (holds,) = emission.close([whole])
        emission.finish()
        stored.lane_stride, stored.width, stored.axis, stored.holds = 1, lanes, axis, holds

    # Storing tiles ---------------------------------------------------------------------------------------------

    def allocate(self, value: Value) -> Buffer:
        """Scratch memory for all elements of ``value``; i1 takes a byte."""
        return self.arena.allocate(value.type.size * value.type.elem.bytes)

    def base(self, buffer: Buffer) -> Typed:
        """The address of ``buffer``, computed where the code stands."""
        return self.e.offset(self.scratch, Typed("i64", str(buffer.offset)), "i8")

    def store(self, value: Value) -> Stored:
        """``value`` in scratch memory, computed now if it is not there yet."""
        if value not in self.stored:
            self.plan.kept.add(value)
            tile_shape = value.type.shape

            def body(emission: Emission, coords: Coords) -> None:
                emission.chunk(value, coords)

            lanes = self.lanes(tile_shape, value.type.elem)
            self.loop([(value, True)], tile_shape, lanes, body, unroll=True)  # often a copy
        return self.stored[value]

    def in_memory(self, op: Op, value: Value) -> Stored:
        """Where ``op`` finds an operand. Raises IRError where its rule in ``buffers`` does not ask for that."""
        stored = self.stored.get(value)
        if stored is None:
            raise IRError(f"{op!r} at {op.location} reads {value!r} in memory, and `buffers` does not say so")
        return stored

    def write(self, value: Value, buffer: Buffer) -> None:
        """Compute ``value`` into ``buffer``, whatever else holds it."""
        tile_shape = value.type.shape

        def body(emission: Emission, coords: Coords) -> None:
            emission.write(buffer, value, emission.chunk(value, coords), coords)

        self.loop([(value, True)], tile_shape, self.lanes(tile_shape, value.type.elem), body)

    def define_stored(self, value: Value, buffer: Buffer) -> None:
        """A statement has written its result ``value`` to ``buffer``."""
        self.live.keep(value, Stored(buffer, value.type.shape))

    # Memory order ----------------------------------------------------------------------------------------------

    def settle_loads(self, writer: Op | None) -> None:
        """Before ``writer`` changes memory, do all loads that come before it and are still to be computed.

        A load that only a store reads may stay where :func:`~.interleave.may_interleave` says so: it is done chunk by
        chunk, where :func:`~.spans.in_turns` is true.
        """
        last = self.live.dying(writer.operands) if isinstance(writer, memory.Store) else set()
        for load in list(self.pending_loads):
            if load in self.stored or not self.live.uses.get(load):
                self.pending_loads.pop(load)
            elif load not in last or not self._stays(load, writer):
                self.store(load)

    def _stays(self, load: Value, writer: Op | None) -> bool:
        op = load.op
        if not isinstance(writer, memory.Store) or not isinstance(op, memory.Load):
            return False
        return self.expression(writer.value).get(load, False) and may_interleave(op, writer)

    def settle_for_region(self, op: Op) -> None:
        """Before a region: store the kept values that it reads; do pending loads if it writes."""
        inside = dict.fromkeys(v for b in op.blocks for o in b.walk() for v in o.operands if v.type.rank)
        for value in inside:
            if value in self.live.depths or value in self.stored:
                for inner in self.expression(value):
                    # Storing an outer value lets go of what it alone read: that is dead, and its operands may be gone.
                    if inner in self.plan.kept and inner not in self.stored and self.live.uses.get(inner):
                        self.store(inner)
        if any(o.effect is Effect.WRITE for b in op.blocks for o in b.walk()):
            self.settle_loads(op)
