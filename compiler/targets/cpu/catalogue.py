"""All rules of the CPU target in one table, for the test that demands a rule or a reason for every operation."""

from __future__ import annotations

from collections.abc import Callable

from ...ir.rules import RuleSet
from ...tile import control as tile_control
from . import control, debug, elementwise, matmul, memory, movement, pack, program, records, reduction, views
from .rule_sets import statements
from .rule_sets import views as view_rules

#: The modules whose import fills the tables.
RULE_MODULES = (control, debug, elementwise, matmul, memory, movement, pack, program, records, reduction, views)


def _collect() -> RuleSet[Callable[..., object]]:
    table: RuleSet[Callable[..., object]] = RuleSet("cpu")
    # An operation may have a lazy form for tiles and a statement for scalars: one of them is enough here.
    for part in (elementwise.rules, view_rules, statements):
        for op, rule in part.rules.items():
            table.rules.setdefault(op, rule)
        table.reasons.update(part.reasons)
    because = "it ends a region and is lowered with the operation that owns the region"
    table.unsupported(tile_control.Yield, because)
    table.unsupported(tile_control.Condition, because)
    return table


RULES = _collect()
