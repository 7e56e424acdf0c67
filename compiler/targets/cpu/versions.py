"""Loop nests that are emitted twice: for what is so in most programs, and for anything.

Which of them runs is decided where the code stands, by facts about masks and about stored indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from ...ir.core import Value
from ...llvm.typed import Typed
from .arena import Stored
from .emission import Emission
from .expressions import Reading, tiles_read
from .loops import BasicBlock
from .lower import CpuLowering
from .masks import WORTH_TWO_LOOPS, bounded_counts, holds_everywhere

#: A nest's loops, emitted; it goes on behind them and returns scalars that they made.
Nested = Callable[[Emission], list[Typed]]


@dataclass(frozen=True, slots=True)
class Detour:
    """A nest that runs instead of another one where the i1 ``unless`` is false. It returns nothing, and computes what
    the other one reads at the same chunks."""

    unless: Typed
    nest: Nested


@dataclass(frozen=True, slots=True)
class Facts:
    """What makes a nest faster where it is so. ``conditions``: the i1 that have to be true; ``masks``: those of the
    nest that are true everywhere if they are."""

    conditions: list[Typed] = field(default_factory=list)
    masks: list[Value] = field(default_factory=list)


def find_facts(low: CpuLowering, roots: Iterable[Reading], lanes: int, chunks: int) -> Facts:
    """What a nest that reads ``roots`` at so many chunks may ask for; emits the comparisons."""
    if lanes == 1:
        return Facts()
    inside = dict.fromkeys(tile for root, _ in roots for tile in tiles_read(root, low.stored))
    lazy = [tile for tile in inside if tile not in low.stored]
    masks = bounded_counts(lazy) if chunks >= WORTH_TWO_LOOPS else []
    conditions = [holds_everywhere(low, mask) for mask in masks]
    progressions = {holds.name: holds for tile in inside if (holds := _counts_if(low, tile)) is not None}
    return Facts([*conditions, *progressions.values()], masks)


def _counts_if(low: CpuLowering, tile: Value) -> Typed | None:
    """The i1 that says whether a stored tile counts up, where that is known only at run time."""
    stored = low.stored.get(tile)
    return None if stored is None else stored.holds


def emit_twice(
    low: CpuLowering, conditions: list[Typed], emit: Callable[[bool], tuple[Emission, list[Typed]]]
) -> tuple[Emission, list[Typed]]:
    """``emit`` the case that all ``conditions`` hold and the case that they do not; returns the latter's emission, with
    the scalars of the one that ran."""
    blocks = low.blocks
    fast, slow, join = (blocks.new(n) for n in ("fast", "slow", "join"))
    condition = conditions[0]
    for other in conditions[1:]:
        condition = low.e.binary("and", condition, other)
    blocks.branch(condition, fast, slow)
    blocks.enter(fast)
    _, quick = emit(True)
    blocks.jump(join)
    behind_fast = blocks.here
    blocks.enter(slow)
    emission, general = emit(False)
    blocks.jump(join)
    behind_slow = blocks.here
    blocks.enter(join)
    merged = [blocks.fresh(v.type) for v in general]
    for value, x, y in zip(merged, quick, general, strict=True):
        blocks.phi(join, value, [(x, behind_fast), (y, behind_slow)])
    return emission, merged


def emit_detour(low: CpuLowering, detour: Detour, lanes: int, saving: dict[Value, Stored]) -> BasicBlock:
    """Emit the nest that is run instead. Code goes on where it is not, and has to jump to the block that is
    returned."""
    blocks = low.blocks
    true, false, behind = (blocks.new(n) for n in ("quick", "aside", "behind"))
    blocks.branch(detour.unless, true, false)
    blocks.enter(false)
    detour.nest(Emission(low, lanes, saving, unroll=False))
    blocks.jump(behind)
    blocks.enter(true)
    return behind
