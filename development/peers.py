"""Searches that others use, to compare with on recordings: greedy iterated local search and differential evolution.

Each is written as a generator that yields configurations and is sent their times. Configurations visited again cost no
evaluation, as in the published comparisons.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Generator
from typing import TypeAlias

from deuteron.tuner.codec import Scalar
from deuteron.tuner.space import Configuration, Space, config_key
from deuteron.tuner.strategies import Outcome

Config: TypeAlias = dict[str, Scalar]
Visits: TypeAlias = Generator[Config, float, None]

#: A generator that visits so many known configurations in a row is given something new.
STUCK = 2_000


class GeneratorStrategy:
    """Ask and tell around a generator; one proposal at a time."""

    def __init__(self, space: Space, seed: int, visits: Callable[[Space, random.Random], Visits]) -> None:
        self._space, self._rng = space, random.Random(seed)
        self._known: dict[str, float] = {}
        self._visits = visits(space, self._rng)
        self._wanted: Config | None = None
        self._sent: float | None = None

    def ask(self) -> Config | None:
        for _ in range(STUCK):
            config = next(self._visits) if self._sent is None else self._visits.send(self._sent)
            known = self._known.get(config_key(config))
            if known is None:
                self._wanted = config
                return config
            self._sent = known
        self._wanted = None
        for _ in range(STUCK):
            config = self._space.sample(self._rng)
            if config_key(config) not in self._known:
                return config
        return None

    def tell(self, config: Configuration, outcome: Outcome) -> None:
        value = math.inf if outcome.value is None else outcome.value
        self._known[config_key(config)] = value
        if self._wanted is not None and config_key(config) == config_key(self._wanted):
            self._sent = value

    def reason(self, config: Configuration) -> str | None:
        return None

    def settled(self) -> str | None:
        return None


def greedy_ils(space: Space, seed: int) -> GeneratorStrategy:
    """Take the first neighbour (one parameter changed) that is faster, in random order; at a local minimum change a
    third of the parameters of the best and go on from there; begin anew after three of these without a gain."""
    return GeneratorStrategy(space, seed, _greedy_ils)


def differential_evolution(space: Space, seed: int) -> GeneratorStrategy:
    """rand/1/bin over the indices of the choices, 20 members, F 0.7, CR 0.9, rounded; one that breaks a constraint is
    made again, at most ten times."""
    return GeneratorStrategy(space, seed, _differential_evolution)


def _greedy_ils(space: Space, rng: random.Random) -> Visits:
    names = [p.name for p in space.parameters if len(p.choices) > 1]
    choices = {p.name: p.choices for p in space.parameters}
    while True:
        start = space.sample(rng)
        best, best_time = start, (yield start)
        current, current_time = best, best_time
        idle = 0
        while idle < 3:
            improved = True
            while improved:
                improved = False
                near = [{**current, n: v} for n in names for v in choices[n] if v != current[n]]
                rng.shuffle(near)
                for config in near:
                    if not space.contains(config):
                        continue
                    time = yield config
                    if time < current_time:
                        current, current_time, improved = config, time, True
                        break
            idle = 0 if current_time < best_time else idle + 1
            if current_time < best_time:
                best, best_time = current, current_time
            for _ in range(100):
                moved = {n: rng.choice(choices[n]) for n in rng.sample(names, max(1, len(names) // 3))}
                current = {**best, **moved}
                if space.contains(current):
                    break
            else:
                current = space.sample(rng)
            current_time = yield current


def _differential_evolution(space: Space, rng: random.Random) -> Visits:
    sizes = {p.name: len(p.choices) for p in space.parameters}
    choices = {p.name: p.choices for p in space.parameters}
    members: list[tuple[dict[str, float], float]] = []

    def config_of(place: dict[str, float]) -> Config:
        return {n: choices[n][min(sizes[n] - 1, max(0, round(x)))] for n, x in place.items()}

    for _ in range(20):
        config = space.sample(rng)
        place = {n: float(choices[n].index(config[n])) for n in sizes}
        members.append((place, (yield config)))
    while True:
        for index, (place, time) in enumerate(members):
            for _ in range(10):
                a, b, c = (members[i][0] for i in rng.sample(range(len(members)), 3))
                kept = rng.choice(list(sizes))
                trial = {n: a[n] + 0.7 * (b[n] - c[n]) if n == kept or rng.random() < 0.9 else place[n] for n in sizes}
                trial = {n: min(sizes[n] - 1.0, max(0.0, x)) for n, x in trial.items()}
                if space.contains(config_of(trial)):
                    break
            else:
                continue
            found = yield config_of(trial)
            if found <= time:
                members[index] = (trial, found)
        if len({config_key(config_of(place)) for place, _ in members}) < 4:  # converged: half of them begin anew
            for index in range(0, len(members), 2):
                config = space.sample(rng)
                place = {n: float(choices[n].index(config[n])) for n in sizes}
                members[index] = (place, (yield config))
