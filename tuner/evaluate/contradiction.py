"""Whether a configuration that disagrees with the default is right, and the default is not.

Without a NumPy reference the default gives the expected result at the real shape, and was compared with the interpreter
at a small one only. A block that covers the small rows but not the real ones passes that, and every block that does
cover them would be refused. So a configuration that disagrees with other numbers than the default's is compared with
it once more by the interpreter, where no code of a compiler can be wrong: if both give the same at a small shape and
not at a larger one, one of them is wrong there. Others decide which (:mod:`.witnesses`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from ..codec import Scalar
from ..records.reach import Reach
from ..space import Configuration, Space
from ..workloads import Problem
from .cut import cut_problem
from .witnesses import Interpreted, Votes, changed_numbers, votes

#: Elements of all tensors of a shape at which both are interpreted.
MOST_ELEMENTS = 1 << 20
#: One size is made so many times larger again and again, as long as the next is expected to be done in these seconds:
#: small blocks take the interpreter a thousand times as long as large ones. Others are asked for as long again.
GROWTH, SECONDS = 4, 5.0
# Errors in units of the tolerance: what is left out of a sum is far off, what is rounded in another order is not.
_CLEARLY = 10.0


def contradicted(problem: Problem, space: Space, default: Configuration, other: Configuration, seed: int) -> str | None:
    """Why ``default`` is wrong at the shape of ``problem`` rather than ``other``, which gives something else there, in
    words; None where that is not known. ``space``: whose constraints hold of both, bound to the shape."""
    changed = changed_numbers(default, other)
    larger_numbers = all(changed[name] > 0 for name in changed)
    if not changed or not (larger_numbers or all(change < 0 for change in changed.values())):
        return None
    rules, until = Reach.of(space, problem.dims), time.monotonic() + SECONDS
    small = Interpreted(cut_problem(problem, dict.fromkeys(problem.dims, 1)), rules, seed)
    for turn in (0, 1):  # what is not written may look right over one poison
        error = small.error(default, other, turn=turn)
        if error is None or error > 1:
            return None
    for dim in problem.dims:
        began = time.monotonic()
        for larger in _larger(problem, small.problem, dim):
            interpreted = Interpreted(larger, rules, seed)
            error = interpreted.error(default, other)
            if error is not None and error > _CLEARLY:
                found = votes(interpreted, space, default, other, time.monotonic() + SECONDS)
                told = _told(default, other, small.problem, larger, found)
                return told if _is_outvoted(found, other, larger_numbers=larger_numbers) else None
            began, taken = time.monotonic(), time.monotonic() - began
            if began + GROWTH * taken > until:
                break
    return None


def _is_outvoted(found: Votes, other: Configuration, *, larger_numbers: bool) -> bool:
    """Whether the default is wrong. One that does not cover the shape gives what no other numbers give, so nobody has
    to side with a configuration of larger ones. A configuration of smaller ones may not cover the shape itself: then
    larger ones than its own give something else."""
    if larger_numbers:
        return not found.default or len(found.other) > len(found.default)
    larger = [numbers for numbers in found.neither if all(n > int(str(other[name])) for name, n in numbers.items())]
    return len(found.other) > len(found.default) and not larger


def _told(default: Configuration, other: Configuration, small: Problem, larger: Problem, found: Votes) -> str:
    mine, theirs = (
        _text({name: value for name, value in one.items() if another.get(name) != value})
        for one, another in ((default, other), (other, default))
    )
    fault = "is wrong at this shape" if found.smaller else "does not cover this shape"
    others = [_text(numbers) for numbers in found.other]
    agreeing = f", where {', '.join(others)} {'agree' if len(others) > 1 else 'agrees'} with it" if others else ""
    return (
        f"the default configuration {fault}: {theirs} gives what {mine} gives at {_text(small.dims)}, and something "
        f"else at {_text(larger.dims)}{agreeing}, in the interpreter as well"
    )


def _larger(problem: Problem, small: Problem, dim: str) -> Iterator[Problem]:
    """The small problem with one dim larger and larger, at most as large as it is."""
    limit = small.dims[dim]
    while limit < problem.dims[dim]:
        limit *= GROWTH
        larger = cut_problem(problem, {**dict.fromkeys(problem.dims, 1), dim: limit})
        if larger.elements > MOST_ELEMENTS:
            return
        yield larger


def _text(values: Mapping[str, Scalar]) -> str:
    return ", ".join(f"{name}={value}" for name, value in values.items())
