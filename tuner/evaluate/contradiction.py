"""Whether a configuration that disagrees with the default is right, and the default is not.

Without a NumPy reference the default gives the expected result at the real shape, and was compared with the interpreter
at a small one only. A block that covers the small rows but not the real ones passes that, and every block that does
cover them would be refused. So a configuration that disagrees with larger numbers than the default's is compared with
it once more by the interpreter, where no code of a compiler can be wrong: if both give the same at a small shape and
not at a larger one, the kernel needs numbers as large as its sizes, and the default has none.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.options import SCHEDULE_OPTIONS

from ..codec import Scalar
from ..records.reach import Reach
from ..space import Configuration, Space
from ..workloads import Problem
from ..workloads.inputs import make_tensors
from ..workloads.tolerance import Expected, compare_all
from .check import interpret
from .cut import cut_problem, empty_axes

#: Elements of all tensors of a shape at which both are interpreted.
MOST_ELEMENTS = 1 << 20
#: One size is made so many times larger again and again, as long as the next is expected to be done in these seconds:
#: small blocks take the interpreter a thousand times as long as large ones.
GROWTH, SECONDS = 4, 5.0
# Errors in units of the tolerance: what is left out of a sum is far off, what is rounded in another order is not.
_CLEARLY = 10.0


def contradicted(problem: Problem, space: Space, default: Configuration, other: Configuration, seed: int) -> str | None:
    """Why ``default`` is wrong at the shape of ``problem`` rather than ``other``, which gives something else there, in
    words; None where that is not known. ``space``: whose constraints hold of both, bound to the shape."""
    if not _is_larger(other, default):
        return None
    rules, until = Reach.of(space, problem.dims), time.monotonic() + SECONDS
    small = cut_problem(problem, dict.fromkeys(problem.dims, 1))
    for turn in (0, 1):  # what is not written may look right over one poison
        error = _error(small, rules, default, other, seed, turn)
        if error is None or error > 1:
            return None
    for dim in problem.dims:
        began = time.monotonic()
        for larger in _larger(problem, small, dim):
            error = _error(larger, rules, default, other, seed)
            if error is not None and error > _CLEARLY:
                return (
                    f"the default configuration does not cover this shape: {_told_apart(other, default)} gives what "
                    f"{_told_apart(default, other)} gives at {_text(small.dims)}, and something else at "
                    f"{_text(larger.dims)}, in the interpreter as well"
                )
            began, taken = time.monotonic(), time.monotonic() - began
            if began + GROWTH * taken > until:
                break
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


def _larger(problem: Problem, small: Problem, dim: str) -> Iterator[Problem]:
    """The small problem with one dim larger and larger, at most as large as it is."""
    limit = small.dims[dim]
    while limit < problem.dims[dim]:
        limit *= GROWTH
        larger = cut_problem(problem, {**dict.fromkeys(problem.dims, 1), dim: limit})
        if larger.elements > MOST_ELEMENTS:
            return
        yield larger


def _error(
    problem: Problem, rules: Reach, default: Configuration, other: Configuration, seed: int, turn: int = 0
) -> float | None:
    """How far results of the interpreter are from each other in units of the tolerance; None where one of the two
    cannot be run there."""
    if empty_axes(problem) or any(rules.broken(config, problem.dims) for config in (default, other)):
        return None
    try:
        want, got = (interpret(problem, config, make_tensors(problem, seed, turn)) for config in (default, other))
    except DeuteronError:
        return None
    written = (tensor for tensor in problem.spec.tensors if tensor.role != "input")
    found = compare_all(got, [Expected(t.name, want[t.name], problem.tolerance_of(t)) for t in written])
    return found.worst


def _told_apart(config: Configuration, other: Configuration) -> str:
    return _text({name: value for name, value in config.items() if other.get(name) != value})


def _text(values: Mapping[str, Scalar]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
