"""Who sides with the default, and who with a configuration that contradicts it, where both are interpreted.

Witnesses are configurations that have other numbers than both: the space's own choices, and halves and doubles, which
need not be choices. Every number in which the two differ is another one in a witness: one that kept the default's block
would be wrong with it.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from deuteron.compiler.errors import DeuteronError
from deuteron.compiler.options import SCHEDULE_OPTIONS

from ..errors import ExpressionError
from ..records.reach import Reach
from ..space import Configuration, Space, config_key
from ..workloads import Problem
from ..workloads.inputs import make_tensors
from ..workloads.tolerance import Expected, compare_all
from .check import interpret, missing_elements
from .cut import empty_axes

#: Witnesses that are heard at most, and inputs on which two have to agree: the largest of few numbers is that of more
#: numbers now and then.
MOST_WITNESSES, INPUTS = 10, 3
# Of all combinations of choices those that are looked at, and those of them that are called.
_PRODUCT, _CHOICES = 10_000, 6


def changed_numbers(default: Configuration, other: Configuration) -> dict[str, int]:
    """By how much the numbers of ``other`` are larger that are not the default's; none where anything else than numbers
    differs. Schedules change no result."""
    changed: dict[str, int] = {}
    for name, value in default.items():
        theirs = other.get(name)
        if name in SCHEDULE_OPTIONS or theirs == value:
            continue
        if type(value) is not int or type(theirs) is not int:
            return {}
        changed[name] = theirs - value
    return changed


class Interpreted:
    """What configurations give at a shape, by the interpreter; each is run once on the same inputs, and none is begun
    after ``until`` on the monotonic clock."""

    def __init__(self, problem: Problem, rules: Reach, seed: int) -> None:
        self.problem = problem
        self.until = math.inf
        self._rules, self._seed = rules, seed
        self._results: dict[tuple[str, int, int], Mapping[str, np.ndarray] | None] = {}

    def error(self, first: Configuration, second: Configuration, *, number: int = 0, turn: int = 0) -> float | None:
        """How far results are from each other in units of the tolerance, on inputs of that ``number``, outputs over the
        poison of that ``turn``; None where one of the two cannot be run here."""
        want, got = self._result(first, number, turn), self._result(second, number, turn)
        if want is None or got is None:
            return None
        written = (tensor for tensor in self.problem.spec.tensors if tensor.role != "input")
        return compare_all(got, [Expected(t.name, want[t.name], self.problem.tolerance_of(t)) for t in written]).worst

    def agree(self, first: Configuration, second: Configuration) -> bool:
        """Whether results are within the tolerance on each of some inputs."""
        errors = (self.error(first, second, number=number) for number in range(INPUTS))
        return all(error is not None and error <= 1 for error in errors)

    def is_whole(self, config: Configuration) -> bool:
        """Whether the configuration can be run here and writes all outputs: who writes nothing agrees with all such."""
        over = [self._result(config, 0, turn) for turn in (0, 1)]
        if over[0] is None or over[1] is None:
            return False
        outputs = [tensor.name for tensor in self.problem.spec.tensors if tensor.role == "output"]
        return not any(missing_elements(over[0][name], over[1][name]) for name in outputs)

    def _result(self, config: Configuration, number: int, turn: int) -> Mapping[str, np.ndarray] | None:
        key = config_key(config), number, turn
        if key not in self._results and time.monotonic() > self.until:
            return None
        if key not in self._results:
            self._results[key] = self._interpreted(config, number, turn)
        return self._results[key]

    def _interpreted(self, config: Configuration, number: int, turn: int) -> Mapping[str, np.ndarray] | None:
        if empty_axes(self.problem) or self._rules.broken(config, self.problem.dims):
            return None
        try:
            return interpret(self.problem, config, make_tensors(self.problem, self._seed + number, turn))
        except DeuteronError:
            return None


@dataclass
class Votes:
    """The numbers of the witnesses that give what the default gives, what the other gives, and something else.
    ``smaller``: whether one that gives what the other gives has smaller numbers than the default."""

    default: list[dict[str, int]] = field(default_factory=list)
    other: list[dict[str, int]] = field(default_factory=list)
    neither: list[dict[str, int]] = field(default_factory=list)
    smaller: bool = False


def votes(interpreted: Interpreted, space: Space, default: Configuration, other: Configuration, until: float) -> Votes:
    """What witnesses say, of whom none is called after ``until`` on the monotonic clock."""
    changed = changed_numbers(default, other)
    found = Votes(smaller=min(changed.values()) < 0)
    interpreted.until, heard = until, 0
    for numbers in _witnesses(space, default, other, list(changed)):
        witness = {**default, **numbers}
        if heard == MOST_WITNESSES:
            break
        if not _is_allowed(space, witness) or not interpreted.is_whole(witness):
            continue
        with_default = interpreted.agree(default, witness)
        with_other = not with_default and interpreted.agree(other, witness)
        if time.monotonic() > until:  # nobody knows what this one gives
            break
        heard += 1
        (found.default if with_default else found.other if with_other else found.neither).append(numbers)
        found.smaller |= with_other and any(changed_numbers(default, witness)[name] < 0 for name in numbers)
    return found


def _witnesses(
    space: Space, default: Configuration, other: Configuration, names: list[str]
) -> Iterator[dict[str, int]]:
    """Other values of ``names``: some of the choices, then doubles and halves of both configurations."""
    taken = {name: (default[name], other[name]) for name in names}
    choices = {parameter.name: parameter.choices for parameter in space.parameters}
    numbers = [[n for n in choices[name] if type(n) is int and n not in taken[name]] for name in names]
    given = list(itertools.islice(itertools.product(*numbers), _PRODUCT))
    spread = given[:: -(-len(given) // _CHOICES) or 1]
    ends = [[int(str(config[name])) for name in names] for config in (other, default)]
    made = [tuple(n * 2 for n in end) for end in ends] + [tuple(n // 2 for n in end) for end in ends]
    for values in dict.fromkeys([*spread, *made]):
        if all(value > 0 and value not in taken[name] for name, value in zip(names, values, strict=True)):
            yield dict(zip(names, values, strict=True))


def _is_allowed(space: Space, config: Configuration) -> bool:
    try:
        return space.allows(config)
    except ExpressionError:
        return False
