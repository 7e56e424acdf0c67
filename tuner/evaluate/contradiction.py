"""Whether a configuration that disagrees with the default is right, and the default is not.

Without a NumPy reference the default gives the expected result at the real shape, and was compared with the interpreter
at a small one only. A block that covers the small rows but not the real ones passes that, and every block that does
cover them would be refused. So who disagrees with larger numbers than the default's is compared with it once more by
the interpreter, where no code of a compiler can be wrong: if both give the same at a small shape and not at a larger
one, the kernel needs numbers as large as its sizes, and the default has none.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.options import SCHEDULE_OPTIONS

from ..codec import Scalar
from ..records.reach import Reach
from ..space import Configuration, Space
from ..workloads import Problem
from ..workloads.inputs import make_tensors
from ..workloads.tolerance import Expected, compare_all
from .check import cut_problem, empty_axes, interpret

#: Elements of all tensors of a shape at which both are interpreted, which takes a second or two.
MOST_ELEMENTS = 1 << 17
#: Seconds after which nothing more is begun.
SECONDS = 5.0
# Errors in units of the tolerance: what is left out of a sum is far off, what is rounded in another order is not.
_CLEARLY = 10.0


def contradicted(problem: Problem, space: Space, default: Configuration, other: Configuration, seed: int) -> str | None:
    """Why ``default`` is wrong at the shape of ``problem`` rather than ``other``, which gives something else there, in
    words; None where that is not known. ``space``: whose constraints hold of both, bound to the shape."""
    if not _is_larger(other, default):
        return None
    rules, until = Reach.of(space, problem.dims), time.monotonic() + SECONDS
    small = cut_problem(problem, dict.fromkeys(problem.dims, 1))
    error = _error(small, rules, default, other, seed)
    if error is None or error > 1:
        return None
    for dim in problem.dims:
        larger = _with_large(problem, dim)
        if larger.dims[dim] == small.dims[dim] or time.monotonic() > until:
            continue
        error = _error(larger, rules, default, other, seed)
        if error is not None and error > _CLEARLY:
            return (
                f"the default configuration does not cover this shape: {_told_apart(other, default)} gives what "
                f"{_told_apart(default, other)} gives at {_text(small.dims)}, and something else at "
                f"{_text(larger.dims)}, in the interpreter as well"
            )
    return None


def _is_larger(other: Configuration, default: Configuration) -> bool:
    """Whether a kernel is given the same, but for numbers that are larger; its schedule changes no result."""
    grown = False
    for name, value in default.items():
        if name in SCHEDULE_OPTIONS or other.get(name) == value:
            continue
        numbers = type(value) is int and type(other.get(name)) is int
        if not numbers or int(str(other[name])) < int(str(value)):
            return False
        grown = True
    return grown


def _with_large(problem: Problem, dim: str) -> Problem:
    """The problem with one dim as large as it is, or as can be interpreted, and small others."""
    limit = problem.dims[dim]
    while True:
        larger = cut_problem(problem, {**dict.fromkeys(problem.dims, 1), dim: limit})
        if larger.elements <= MOST_ELEMENTS or limit == 1:
            return larger
        limit //= 2


def _error(problem: Problem, rules: Reach, default: Configuration, other: Configuration, seed: int) -> float | None:
    """How far results of the interpreter are from each other in units of the tolerance; None where one of the two
    cannot be run there."""
    if empty_axes(problem) or any(rules.broken(config, problem.dims) for config in (default, other)):
        return None
    try:
        want, got = (interpret(problem, config, make_tensors(problem, seed)) for config in (default, other))
    except DeuteronError:
        return None
    written = (tensor for tensor in problem.spec.tensors if tensor.role != "input")
    found = compare_all(got, [Expected(t.name, want[t.name], problem.tolerance_of(t)) for t in written])
    return found.worst


def _told_apart(config: Configuration, other: Configuration) -> str:
    return _text({name: value for name, value in config.items() if other.get(name) != value})


def _text(values: Mapping[str, Scalar]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
