"""How the layouts of an operation's tiles fit together: what verification asks of each operation.

An operation has a rule here unless it is elementwise, which means that all its tiles are in one layout; one that
forgets its rule is refused where it has tiles. ``tests/compiler/test_completeness.py`` names those without one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ...ir.core import Effect, Op, Value
from ...ir.rules import RuleSet
from ...layout import LayoutError, LinearLayout, slice_layout
from ...tile import control, debug, program, shape
from ...tile.assembly import EffectfulAssembly, InlineAssembly
from ...tile.elementwise import Constant
from ...tile.map import MapElementwise
from ...tile.matmul import Dot
from ...tile.memory import AtomicCAS, AtomicRMW, Load, Store
from ...tile.movement import Butterfly, Gather
from ...tile.reduction import Histogram, Reduce, Scan
from ..asynchronous import Await, Deposit, FetchTile, GridSize, Put, SharedView, Slot, Wgmma
from ..ops import Agree, ConvertLayout, Mma, VectorLoad, VectorStore, VectorUpdate
from .views import VIEWS, operand_layout, result_layout

fits: RuleSet[Callable[..., bool]] = RuleSet("layouts")

#: Operations that are not elementwise and have all their tiles in one layout: nothing is converted before them.
ALIKE: frozenset[type[Op]] = frozenset({Agree, Butterfly, InlineAssembly, EffectfulAssembly, MapElementwise, Scan})


def problem_of(op: Op) -> str:
    """What is wrong with the layouts of ``op``, or an empty text."""
    rule = _alike if op.elementwise else fits.rules.get(type(op))
    if rule is not None:
        return "" if rule(op) else "the layouts do not fit together"
    if op.effect is Effect.TERMINATOR:
        return ""  # the operation that owns the region looks at them
    return "no rule says how its layouts fit together" if _layouts([*op.operands, *op.results]) else ""


def _layouts(values: Iterable[Value]) -> list[LinearLayout]:
    return [v.type.layout for v in values if v.type.layout is not None]


def _same(values: Iterable[Value]) -> bool:
    return len(set(_layouts(values))) <= 1


@fits(*ALIKE, Load, VectorLoad, Store, VectorStore, AtomicRMW, VectorUpdate, AtomicCAS)
def _alike(op: Op) -> bool:
    return _same([*op.operands, *op.results])


@fits(Constant, shape.Arange, shape.Splat, program.ProgramId, program.NumPrograms, GridSize)
def _made(op: Op) -> bool:
    """Made in any layout."""
    return True


@fits(ConvertLayout, Slot, Deposit, SharedView, Put, debug.Print, debug.Assert, debug.Assume)
def _moved(op: Op) -> bool:
    """From any layout, to any other."""
    return True


@fits(Await)
def _awaited(op: Await) -> bool:
    return _same([op.x, op.result])


@fits(Dot, Mma, Wgmma)
def _accumulated(op: Dot | Mma | Wgmma) -> bool:
    """How the operands lie is the instruction's choice."""
    return _same([op.acc, op.result])


@fits(FetchTile)
def _fetched(op: FetchTile) -> bool:
    return op.mask is None or _same([op.pointer, op.mask])


@fits(Reduce)
def _reduced(op: Reduce) -> bool:
    kept = slice_layout(_layouts(op.inputs)[0], op.axis)
    return _same(op.inputs) and all(got == kept for got in _layouts(op.results))


@fits(Gather)
def _gathered(op: Gather) -> bool:
    return _same([op.index, op.result])


@fits(Histogram)
def _counted(op: Histogram) -> bool:
    return _same(op.operands)


@fits(*VIEWS)
def _viewed(op: Op) -> bool:
    if not op.results[0].type.rank or not op.operands[0].type.rank:
        return True
    if not _same(op.operands) or not _same(op.results):
        return False
    (source, *_), (result, *_) = _layouts(op.operands), _layouts(op.results)
    try:
        return source == operand_layout(op, result) or result == result_layout(op, source)
    except LayoutError:
        return False  # the two halves of a pair are not neighbours


@fits(control.For, control.While, control.If)
def _bounded(op: control.For | control.While | control.If) -> bool:
    """What enters, leaves and comes round is in one layout."""
    return all(map(_same, op.handed_together))
