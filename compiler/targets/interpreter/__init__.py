"""The interpreter: NumPy, naive, readable; the definition of every tile operation."""

from . import accesses, combines, controls, elementwise, shapes
from .eager import EagerBuilder
from .launch import Argument, run
from .memory import ArrayBuffer, Memory
from .program import Held, Program, evaluates
from .turns import Turn, run_in_turns

#: The modules whose import fills ``evaluates``.
RULE_MODULES = (elementwise, shapes, accesses, combines, controls)

__all__ = [
    "Argument",
    "ArrayBuffer",
    "EagerBuilder",
    "Held",
    "Memory",
    "Program",
    "Turn",
    "evaluates",
    "run",
    "run_in_turns",
]
