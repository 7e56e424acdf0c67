"""The modules with the rules of the CPU target: importing them fills the tables of :mod:`.rule_sets`."""

from __future__ import annotations

from . import control, debug, elementwise, matmul, memory, movement, pack, program, records, reduction, views

RULE_MODULES = (control, debug, elementwise, matmul, memory, movement, pack, program, records, reduction, views)
