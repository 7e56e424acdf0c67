"""Walking constrained products: depth first, pruned by every constraint as soon as its names are known.

Parameters that no constraint ties together are independent, so a space is a product of *components*: it can be
counted and sampled component by component, without walking the product.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from .codec import Scalar, canonical_json
from .expression import Expression

Axis: TypeAlias = tuple[str, tuple[Scalar, ...]]

# A step costs somewhat less than 1 us, so this bounds the time of one call to two seconds, once per space.
MAX_STEPS = 2_000_000
# Steps that a choice takes, besides those of the conditions on it.
_CHOICE = 3
MAX_LISTED = 50_000
REJECTION_TRIES = 1_000
RESTARTS = 40
# How many parameters differ between a point and the next one of a walk: an equation leaves no other value to one alone.
CHANGED = (2, 2, 2, 3)
# Steps of a walk before the first draw, so that draws differ, and draws between steps after that: a step takes some
# milliseconds, and strategies draw by the thousand.
FIRST_STEPS, DRAWS_A_STEP = 30, 20
# A walk has come past all that it can reach once so many steps led to nothing new, which takes some seconds.
WALKED = 4 * MAX_STEPS


@dataclass(frozen=True)
class Conjunct:
    """One condition, and the text of the constraint it is a part of."""

    expression: Expression
    origin: str


class TooManySteps(Exception):  # noqa: N818 -- callers turn it into what it means to them
    """A walk was given up."""


class Meter:
    """What walks may cost together. Steps are nodes of expressions that are evaluated: conditions may be long, and
    counting choices alone would say little about time."""

    def __init__(self, most: int = MAX_STEPS) -> None:
        self.most = self.left = most

    def spend(self, steps: int) -> None:
        """Count steps; raises TooManySteps where there are no more."""
        self.left -= steps
        if self.left < 0:
            raise TooManySteps

    @property
    def spent(self) -> int:
        """Steps since the beginning."""
        return self.most - self.left

    def renew(self) -> None:
        """Begin anew."""
        self.left = self.most


def _schedule(
    names: Sequence[str], conjuncts: Sequence[Conjunct], constants: Mapping[str, Scalar]
) -> tuple[list[Conjunct], list[list[Conjunct]]]:
    """Conditions known before any choice, and per depth those that become known there."""
    depth_of = {name: depth for depth, name in enumerate(names)}
    before: list[Conjunct] = []
    at: list[list[Conjunct]] = [[] for _ in names]
    for conjunct in conjuncts:
        depths = [depth_of[name] for name in conjunct.expression.names if name in depth_of]
        if any(n not in depth_of and n not in constants for n in conjunct.expression.names):
            continue
        (at[max(depths)] if depths else before).append(conjunct)
    return before, at


def walk(
    axes: Sequence[Axis],
    conjuncts: Sequence[Conjunct],
    constants: Mapping[str, Scalar],
    *,
    struck: Counter[str] | None = None,
    meter: Meter | None = None,
) -> Iterator[dict[str, Scalar]]:
    """Valid assignments of all axes in lexicographic order of the choices.

    ``struck`` counts, per constraint, the points of the product that it was the first to strike out. Where the steps of
    ``meter`` are spent, it raises :class:`TooManySteps`.
    """
    spend = (meter or Meter(sys.maxsize)).spend
    names = [name for name, _ in axes]
    before, at = _schedule(names, conjuncts, constants)
    weights = [1] * len(axes)
    for depth in range(len(axes) - 1, 0, -1):
        weights[depth - 1] = weights[depth] * len(axes[depth][1])
    values: dict[str, Scalar] = dict(constants)
    for conjunct in before:
        spend(conjunct.expression.nodes)
        if not conjunct.expression.evaluate(values):
            if struck is not None:
                struck[conjunct.origin] += weights[0] * len(axes[0][1])
            return
    position = [0] * len(axes)
    depth, last = 0, len(axes) - 1
    while depth >= 0:
        name, choices = axes[depth]
        if position[depth] == len(choices):
            position[depth] = 0
            depth -= 1
            continue
        values[name] = choices[position[depth]]
        position[depth] += 1
        spend(_CHOICE)
        broken = None
        for conjunct in at[depth]:
            spend(conjunct.expression.nodes)
            if not conjunct.expression.evaluate(values):
                broken = conjunct
                break
        if broken is not None:
            if struck is not None:
                struck[broken.origin] += weights[depth]
        elif depth == last:
            yield {n: values[n] for n in names}
        else:
            depth += 1


def first_point(
    axes: Sequence[Axis],
    conjuncts: Sequence[Conjunct],
    constants: Mapping[str, Scalar],
    meter: Meter,
) -> dict[str, Scalar] | None:
    """The first point of :func:`walk`; None if there is none within the steps of ``meter``."""
    try:
        return next(walk(axes, conjuncts, constants, meter=meter), None)
    except TooManySteps:
        return None


@dataclass(frozen=True)
class Component:
    """A group of parameters tied together by constraints, directly or through others."""

    axes: tuple[Axis, ...]
    conjuncts: tuple[Conjunct, ...]
    constants: Mapping[str, Scalar]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its parameters, in the order of the space."""
        return tuple(name for name, _ in self.axes)

    @cached_property
    def size(self) -> int | None:
        """Number of valid points; None when there are too many steps to count."""
        if not self.conjuncts:
            product = 1
            for _, choices in self.axes:
                product *= len(choices)
            return product
        try:
            points = walk(self.axes, self.conjuncts, self.constants, meter=Meter())
            return sum(1 for _ in points)
        except TooManySteps:
            return None

    def strike_counts(self) -> Counter[str]:
        """How often each constraint (as the user wrote it) was what ended a prefix, over the whole walk."""
        struck: Counter[str] = Counter()
        for _ in walk(self.axes, self.conjuncts, self.constants, struck=struck):
            pass
        return struck

    def samples(self, rng: random.Random, start: Callable[[], Mapping[str, Scalar]]) -> Iterator[Mapping[str, Scalar]]:
        """Random valid points without end. Where drawing finds none (any more), they are those of a walk that begins at
        the last one, or at ``start()``, valid values of these parameters and maybe of others."""
        last = None
        while (point := self.sample(rng)) is not None:
            yield point
            last = point
        yield from self._walked(last or start(), rng)

    def walked(self, rng: random.Random, start: Callable[[], Mapping[str, Scalar]]) -> Iterator[Mapping[str, Scalar]]:
        """As :meth:`samples`, for a component of which hardly any draw is valid: all points are those of a walk, where
        the component cannot be listed."""
        if self._listed is not None:
            return self.samples(rng, start)
        return self._walked(self._restarted(rng) or start(), rng)

    def sample(self, rng: random.Random) -> dict[str, Scalar] | None:
        """A random valid point, None if none is found."""
        if self._listed is not None:
            return rng.choice(self._listed) if self._listed else None
        each = sum(conjunct.expression.nodes for conjunct in self.conjuncts)
        for _ in range(min(REJECTION_TRIES, MAX_STEPS // max(1, each))):
            point = {name: rng.choice(choices) for name, choices in self.axes}
            names = {**self.constants, **point}
            if all(conjunct.expression.evaluate(names) for conjunct in self.conjuncts):
                return point
        return self._restarted(rng)

    def _restarted(self, rng: random.Random) -> dict[str, Scalar] | None:
        """The first point of a walk through choices in random order, None if some of them find none."""
        for _ in range(RESTARTS):
            shuffled = [(name, tuple(rng.sample(c, len(c)))) for name, c in self.axes]
            found = first_point(shuffled, self.conjuncts, self.constants, Meter(MAX_STEPS // RESTARTS))
            if found is not None:
                return found
        return None

    def _walked(self, start: Mapping[str, Scalar], rng: random.Random) -> Iterator[Mapping[str, Scalar]]:
        reached = _Walk(self, {name: start[name] for name in self.names}, rng)
        while True:
            yield reached.draw()

    @cached_property
    def _listed(self) -> list[dict[str, Scalar]] | None:
        if self.size is None or self.size > MAX_LISTED:
            return None
        return list(walk(self.axes, self.conjuncts, self.constants))


class _Walk:
    """Valid points of a component that are reached from one of them, a few parameters changing at a time."""

    def __init__(self, component: Component, point: Mapping[str, Scalar], rng: random.Random) -> None:
        self._component, self._rng = component, rng
        self._at = dict(point)
        self._axes = [axis for axis in component.axes if len(axis[1]) > 1]
        self._known: set[str] = set()
        self._meter = Meter(WALKED)
        self._points: list[dict[str, Scalar]] = []
        self._drawn = 0
        for _ in range(FIRST_STEPS):
            self._step()

    def draw(self) -> dict[str, Scalar]:
        """One of the points that the walk came past, at random."""
        self._drawn += 1
        if self._drawn % DRAWS_A_STEP == 0 and self._meter.left > 0:
            self._step()
        return self._rng.choice(self._points)

    def _step(self) -> None:
        meter = Meter(MAX_STEPS // RESTARTS)
        around = self._around(meter)
        self._meter.left -= meter.spent
        for point in around:
            key = canonical_json(point)
            if key not in self._known:
                self._known.add(key)
                self._points.append(point)
                self._meter.renew()
        self._at = self._rng.choice(around)

    def _around(self, meter: Meter) -> list[dict[str, Scalar]]:
        """Valid points that are the present one but for a few parameters: all, or as many as ``meter`` allows."""
        changed = self._rng.sample(self._axes, min(self._rng.choice(CHANGED), len(self._axes)))
        shuffled = [(name, tuple(self._rng.sample(choices, len(choices)))) for name, choices in changed]
        constants = {**self._component.constants, **self._at}
        found = []
        try:
            for other in walk(shuffled, self._component.conjuncts, constants, meter=meter):
                found.append({**self._at, **other})
        except TooManySteps:
            pass
        return found or [self._at]


def components(
    axes: Sequence[Axis], conjuncts: Sequence[Conjunct], constants: Mapping[str, Scalar]
) -> tuple[Component, ...]:
    """Split axes into groups that share no constraint. Constraints over constants alone join the first group."""
    group = {name: name for name, _ in axes}

    def find(name: str) -> str:
        while group[name] != name:
            name = group[name]
        return name

    for conjunct in conjuncts:
        tied = [name for name in conjunct.expression.names if name in group]
        for name in tied[1:]:
            group[find(name)] = find(tied[0])
    members: dict[str, list[Axis]] = {}
    for axis in axes:
        members.setdefault(find(axis[0]), []).append(axis)
    conditions: dict[str, list[Conjunct]] = {root: [] for root in members}
    first = next(iter(members))
    for conjunct in conjuncts:
        names = [name for name in conjunct.expression.names if name in group]
        conditions[find(names[0]) if names else first].append(conjunct)
    return tuple(Component(tuple(axes), tuple(conditions[root]), constants) for root, axes in members.items())
