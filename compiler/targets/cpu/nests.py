"""Loop nests that compute tiles chunk by chunk, and tiles that are put into memory by nests of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import prod

from ...ir.core import Value
from ...llvm.typed import Typed
from .arena import Buffer, Stored
from .chunk import Coords, vector_axis
from .emission import Emission
from .expressions import Reading, operands_first
from .lower import CpuLowering
from .progressions import check_progression
from .rule_sets import reads_buffer
from .versions import Detour, Nested, emit_detour, emit_twice, find_facts


def for_each_chunk(
    low: CpuLowering,
    roots: Iterable[Reading],
    tile_shape: tuple[int, ...],
    lanes: int,
    body: Callable[[Emission, Coords], None],
    *,
    unroll: bool = False,
    detour: Detour | None = None,
) -> None:
    """Run ``body``, which reads ``roots``, at every chunk of ``tile_shape``; the rest as :func:`run_nest`."""

    def nest(emission: Emission) -> list[Typed]:
        body(emission, emission.walk(tile_shape))
        emission.unwind(len(tile_shape))
        return []

    chunks = prod(tile_shape) // lanes
    run_nest(low, roots, lanes, chunks, nest, unroll=unroll, detour=detour)


def run_nest(
    low: CpuLowering,
    roots: Iterable[Reading],
    lanes: int,
    chunks: int,
    nest: Nested,
    *,
    unroll: bool = False,
    detour: Detour | None = None,
) -> list[Typed]:
    """Emit a nest that reads ``roots`` at so many chunks of ``lanes`` elements; returns what it returns.

    ``unroll``: see :class:`~.loops.Nest`. Where run-time facts may help (:mod:`.versions`), it is emitted twice.
    """
    roots = list(roots)
    _store_what_is_read_elsewhere(low, roots)
    saving = _buffers_for_kept(low, roots)
    facts = find_facts(low, roots, lanes, chunks)

    def emit(assume: bool) -> tuple[Emission, list[Typed]]:
        known = facts.masks if assume else ()
        # Of two versions the general one is rarely run: it is not worth LLVM's time.
        rolled = not unroll or (bool(facts.conditions) and not assume)
        emission = Emission(low, lanes, saving, assume=assume, all_true=known, unroll=not rolled)
        return emission, nest(emission)

    behind = None if detour is None else emit_detour(low, detour, lanes, saving)
    emission, made = emit_twice(low, facts.conditions, emit) if facts.conditions else emit(False)
    if behind is not None:
        low.blocks.jump(behind)
        low.blocks.enter(behind)
    _keep_saved(low, emission)
    return made


def materialise(low: CpuLowering, value: Value) -> Stored:
    """``value`` in scratch memory, computed now if it is not there yet."""
    if value not in low.stored:
        low.plan.kept.add(value)
        tile_shape = value.type.shape

        def body(emission: Emission, coords: Coords) -> None:
            emission.chunk(value, coords)

        lanes = low.lanes(tile_shape, value.type.elem)
        for_each_chunk(low, [(value, True)], tile_shape, lanes, body, unroll=True)  # often a copy
    return low.stored[value]


def compute_into(low: CpuLowering, value: Value, buffer: Buffer) -> None:
    """Compute ``value`` into ``buffer``, whatever else holds it."""
    tile_shape = value.type.shape

    def body(emission: Emission, coords: Coords) -> None:
        emission.write(buffer, value, emission.chunk(value, coords), coords)

    for_each_chunk(low, [(value, True)], tile_shape, low.lanes(tile_shape, value.type.elem), body)


def _store_what_is_read_elsewhere(low: CpuLowering, roots: Sequence[Reading]) -> None:
    """Materialise what the expressions of ``roots`` need in memory before their loop begins: kept values that are not
    read at the loop's own coordinates, and what operations read as a whole."""
    for root in roots:
        for value, same in operands_first(root, low.stored, set()):
            if not value.type.rank or value in low.stored:
                continue
            if value in low.plan.kept and not same:
                materialise(low, value)
            elif value.op is not None:
                for needed in reads_buffer(value.op):
                    materialise(low, needed)


def _buffers_for_kept(low: CpuLowering, roots: Sequence[Reading]) -> dict[Value, Stored]:
    """The kept values that the loop itself computes first, with fresh buffers."""
    saving: dict[Value, Stored] = {}
    for root in roots:
        for value, same in operands_first(root, low.stored, set()):
            done = value in low.stored or value in saving
            if same and value.type.rank and value in low.plan.kept and not done:
                saving[value] = Stored(low.allocate(value), value.type.shape)
    return saving


def _keep_saved(low: CpuLowering, emission: Emission) -> None:
    """The loop of ``emission`` is complete: what it saved is in memory."""
    for value, stored in emission.saving.items():
        stored.lane_stride, stored.width = emission.structures.get(value, (None, 0))
        stored.axis = vector_axis(stored.shape)
        low.pending_loads.pop(value, None)
        low.live.keep(value, stored)
        if value in low.plan.checked and stored.lane_stride is None:
            check_progression(low, value, stored)
