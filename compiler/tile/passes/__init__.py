"""The target-neutral passes, and the order in which they run.

Every pass of PIPELINE takes a function, changes it in place and returns it; each is idempotent and keeps what the
interpreter computes. Source locations survive: an operation that replaces another one takes over its place in the
source.
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir.core import Function
from .access import structure_accesses
from .cse import cse
from .dce import dce
from .expand_blocks import expand_blocks
from .fold import fold
from .induction import linearize_induction
from .licm import licm
from .promises import spread_promises
from .records import check_scopes, drop_records, number_scopes
from .unroll import unroll

Pass = Callable[[Function], Function]

#: What :func:`optimize` runs, in order. Unrolling comes after a fold that makes trip counts constant.
PIPELINE: tuple[Pass, ...] = (spread_promises, fold, unroll, cse, licm, fold, cse, dce)


def optimize(function: Function, observe: Callable[[str, Function], None] = lambda name, made: None) -> Function:
    """Run PIPELINE on ``function`` in place and return it; ``observe`` is called with the name of each pass and what it
    left."""
    for step in PIPELINE:
        function = step(function)
        observe(step.__name__, function)
    return function


__all__ = [
    "PIPELINE",
    "Pass",
    "check_scopes",
    "cse",
    "dce",
    "drop_records",
    "expand_blocks",
    "fold",
    "licm",
    "linearize_induction",
    "number_scopes",
    "optimize",
    "spread_promises",
    "structure_accesses",
    "unroll",
]
