"""Layout propagation: re-emits a function with layouts; demands travel from uses of values to where they are made.

Every operation is visited once, in order. What exists once is emitted in its home layout (see :mod:`.homes`); what is
cheap is emitted when somebody asks for it, in the layout asked for; views pass the question on to their operand. A
value is emitted in the block that defines it, even when a nested block asks, so nothing is converted twice or inside a
loop without need.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from ...errors import CompilationError
from ...hardware import threads_of
from ...ir.core import Block, Function, Op, Value
from ...ir.types import Tile
from ...layout import LayoutError, LinearLayout, SharedLayout, coalesced, splittable_layout
from ...options import Schedule
from ...target import Target
from ...tile.axis import AxisFacts
from ...tile.elementwise import Constant, IntDiv, Rem
from ...tile.shape import Join, Split
from ..ops import ConvertLayout
from .costs import Costs
from .homes import Homes
from .views import is_view, operand_layout

#: How many more quotients each thread computes, at most, than if threads shared them out: one takes some ten
#: instructions, a conversion through shared memory twenty and a barrier, and an access for a few elements.
MOST_QUOTIENTS = 8

#: Re-emits one operation; relayout_rules.py fills the table.
Rule = Callable[["Relayout", Op], None]
RULES: dict[type[Op], Rule] = {}


class Relayout:
    """The state of one re-emission."""

    def __init__(
        self,
        function: Function,
        facts: AxisFacts,
        costs: Costs,
        homes: Homes,
        target: Target,
        schedule: Schedule,
    ) -> None:
        self.source = function
        self.facts = facts
        self.costs = costs
        self.homes = homes
        self.target = target
        self.schedule = schedule
        self.warps = schedule.num_warps
        #: The types that the innermost region's terminator must hand on.
        self.leaving: Sequence[Tile] = ()
        self._blocks: list[Block] = []
        self._depth: dict[Value, int] = {}
        self._made: dict[Value, Value] = {}
        self._in_layout: dict[tuple[Value, LinearLayout | None], Value] = {}
        self._in_shared: dict[tuple[Value, SharedLayout | None], Value] = {}

    def run(self) -> Function:
        """The re-emitted function."""
        made = Function(self.source.name, num_warps=self.warps)
        self._blocks.append(made.body)
        for parameter in self.source.parameters:
            copy = made.add_parameter(parameter.name, parameter.value.type, parameter.divisibility)
            self.define(parameter.value, copy)
        self.emit_block(self.source.body)
        return made

    # What rules use ------------------------------------------------------------------------------------------

    def define(self, old: Value, new: Value) -> None:
        """``new`` is ``old`` in the layout of its type, from now on and in nested blocks."""
        new.name = new.name or old.name
        self._depth[old] = len(self._blocks) - 1
        self._made[old] = new
        self._in_layout[old, new.type.layout] = new

    def emit(self, op: Op, like: Op) -> None:
        """Append ``op`` in place of ``like``, and define its results."""
        op.location = like.location
        self._blocks[-1].ops.append(op)
        for old, new in zip(like.results, op.results, strict=True):
            self.define(old, new)

    def append(self, op: Op) -> None:
        """Append an operation that stands for none of the tile function's."""
        self._blocks[-1].ops.append(op)

    def depth_of(self, value: Value) -> int:
        """How many regions are around the block that defines ``value``."""
        return self._depth[value]

    @property
    def depth(self) -> int:
        """How many regions are around the block under construction."""
        return len(self._blocks) - 1

    def convert_beside(self, value: Value, convert: ConvertLayout) -> Value:
        """``convert`` once in the block that defines ``value``: neither loops around demands nor further demands repeat
        it."""
        key = (value, convert.to.shared)
        if key not in self._in_shared:
            self._blocks[self._depth[value]].ops.append(convert)
            self._in_shared[key] = convert.result
        return self._in_shared[key]

    def made(self, value: Value) -> Value | None:
        """What stands for ``value`` in the place where it was made; None for what is made on demand."""
        return self._made.get(value)

    def nested(self, block: Block, arguments: Sequence[Tile], leaving: Sequence[Tile]) -> Block:
        """Re-emit ``block`` into a new one that takes ``arguments`` and hands on ``leaving``."""
        made = Block()
        self._blocks.append(made)
        outer, self.leaving = self.leaving, leaving
        for old, type in zip(block.args, arguments, strict=True):
            self.define(old, made.add_argument(type, old.name))
        self.emit_block(block)
        self._blocks.pop()
        self.leaving = outer
        return made

    def emit_block(self, block: Block) -> None:
        """Re-emit the operations of ``block`` into the innermost block under construction."""
        for op in block.ops:
            try:
                self._visit(op)
            except CompilationError as error:
                error.location = error.location or op.location
                raise

    def home(self, value: Value) -> LinearLayout | None:
        """The layout in which a loop or a branch hands ``value`` on; None for scalars."""
        return self.homes.layout(value) if value.type.rank else None

    def natural(self, value: Value) -> LinearLayout:
        """The layout in which ``value`` can be had without moving data."""
        made = self._made.get(value)
        if made is not None and made.type.layout is not None:
            return made.type.layout
        return self.homes.layout(value)

    def demand(self, value: Value, layout: LinearLayout | None) -> Value:
        """``value`` in ``layout`` (None for scalars), emitted now unless it was before."""
        if not value.type.rank:
            layout = None
        found = self._in_layout.get((value, layout))
        if found is not None:
            return found
        source = self._made.get(value)
        if source is None and layout is not None and (spread := self._shared_out(value, layout)) is not None:
            source = self.demand(value, spread)
        made: tuple[tuple[Value, Value], ...]
        if source is not None:
            new: Op = ConvertLayout(source, value.type.with_layout(layout))
            made = ((value, new.results[0]),)
        else:
            op = cast(Op, value.op)
            new = self._again(op, value, layout)
            made = tuple(zip(op.results, new.results, strict=True))
        new.location = value.op.location if value.op is not None else None
        self._blocks[self._depth[value]].ops.append(new)
        for old, result in made:
            result.name = old.name
            self._in_layout[old, layout] = result
        return self._in_layout[value, layout]

    def _shared_out(self, value: Value, layout: LinearLayout) -> LinearLayout | None:
        """The layout in which threads share out what takes each of them long in ``layout``: quotients of a row, of
        which all lanes and warps would compute the same ones. None where it pays no conversion, and in loops, where a
        conversion makes all warps wait for each other in each turn."""
        op, size = value.op, value.type.size
        if not isinstance(op, IntDiv | Rem) or self._depth[value] or max(value.type.shape) != size:
            return None
        if value.type.is_float or self.facts[op.rhs].constant is not None:
            return None
        each = max(1, size // threads_of(self.warps))
        if 1 << sum(map(any, layout.register)) < each + MOST_QUOTIENTS:
            return None
        return coalesced(value.type.shape, self.warps, each)

    def demand_through(self, value: Value, layouts: Sequence[LinearLayout]) -> Value:
        """``value`` in the last of ``layouts``, converted from each of them to the next one."""
        first, *others = layouts
        held = self.demand(value, first)
        for layout in others:
            if (value, layout) not in self._in_layout:
                convert = ConvertLayout(held, value.type.with_layout(layout))
                convert.location = held.op.location if held.op is not None else None
                self._blocks[self._depth[value]].ops.append(convert)
                self._in_layout[value, layout] = convert.result
            held = self._in_layout[value, layout]
        return held

    # Walking -------------------------------------------------------------------------------------------------

    def _visit(self, op: Op) -> None:
        rule = RULES.get(type(op))
        if rule is not None:
            rule(self, op)
        elif op.results and op.results[0].type.rank and self._on_demand(op):
            for result in op.results:
                self._depth[result] = len(self._blocks) - 1
        elif op.results and op.results[0].type.rank:
            self._elementwise(op)
        else:
            self._scalar(op)

    def _on_demand(self, op: Op) -> bool:
        return is_view(op) or self.costs.cheap(op.results[0])

    def _elementwise(self, op: Op) -> None:
        layout = self.homes.layout(op.results[0])
        self.emit(self._rebuild(op, [layout] * len(op.operands), layout), op)

    def _scalar(self, op: Op) -> None:
        """Scalars, and operations without results, whose tile operands may have any layout."""
        layouts: list[LinearLayout | None] = []
        for value in op.operands:
            layouts.append(self._scalar_source(op, value) if value.type.rank else None)
        self.emit(self._rebuild(op, layouts, None), op)

    def _scalar_source(self, op: Op, value: Value) -> LinearLayout:
        if isinstance(op, Split):
            return splittable_layout(self.natural(value))
        return self.natural(value)

    def _rebuild(self, op: Op, operands: Sequence[LinearLayout | None], result: LinearLayout | None) -> Op:
        env = {value: self.demand(value, layout) for value, layout in zip(op.operands, operands, strict=True)}
        if isinstance(op, Constant):
            new: Op = Constant(op.value, op.type.with_layout(result))
        else:
            new = op.clone(env)
        for made in new.results:
            if made.type.rank:
                made.type = made.type.with_layout(result)
        return new

    def _again(self, op: Op, value: Value, layout: LinearLayout | None) -> Op:
        """Compute a cheap value or a view in ``layout``; views may need a conversion of what they give."""
        if layout is None:
            raise LayoutError(f"{op!r} has no layout")
        if isinstance(op, Join):
            return self._join(op, value, layout)
        wanted = operand_layout(op, layout) if is_view(op) else layout
        return self._rebuild(op, [wanted] * len(op.operands), layout)

    def _join(self, op: Join, value: Value, layout: LinearLayout) -> Op:
        paired = splittable_layout(layout)
        if layout == paired:
            halves = operand_layout(op, layout)
            return self._rebuild(op, [halves, halves], layout)
        source = self.demand(value, paired)
        return ConvertLayout(source, value.type.with_layout(layout))
