"""The target-neutral passes, and the order in which they run.

Every pass of PIPELINE, which has a name of its own, takes a function, changes it in place and returns it; each is
idempotent and keeps what the interpreter computes. Source locations survive: an operation that replaces another one
takes over its place in the source.
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

#: What :func:`optimize` runs, in order. Unrolling comes after a fold that makes trip counts constant. Names are
#: those of ``deuteron compile --after``.
PIPELINE: tuple[tuple[str, Pass], ...] = (
    ("promises", spread_promises),
    ("fold", fold),
    ("unroll", unroll),
    ("cse", cse),
    ("licm", licm),
    ("fold_again", fold),
    ("cse_again", cse),
    ("dce", dce),
)
PASSES = tuple(name for name, _ in PIPELINE)


def optimize(function: Function, observe: Callable[[str, Function], None] = lambda name, made: None) -> Function:
    """Run PIPELINE on ``function`` in place and return it; ``observe`` is called with the name of each pass and what it
    left."""
    for name, step in PIPELINE:
        function = step(function)
        observe(name, function)
    return function


__all__ = [
    "PASSES",
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
