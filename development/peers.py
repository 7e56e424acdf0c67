"""Searches that others use, to compare with on recordings: greedy iterated local search, differential evolution,
dual annealing, and two samplers of Optuna.

Those that are ours are written as generators that yield configurations and are sent their times. Configurations
visited again cost no evaluation, as in the published comparisons.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, TypeAlias

from deuteron.tuner.codec import Scalar
from deuteron.tuner.space import Configuration, Space, config_key
from deuteron.tuner.strategies import OptunaStrategy, Outcome

if TYPE_CHECKING:
    from optuna import Study

Config: TypeAlias = dict[str, Scalar]
Visits: TypeAlias = Generator[Config, float, None]

#: A generator that visits so many known configurations in a row is given something new.
STUCK = 2_000

#: Dual annealing, as in SciPy: the first temperature, the part of it at which annealing begins anew, the shape of the
#: steps, their width at a temperature of 1 (which follows from the shape) and limit, and the shape of the acceptance.
HEAT, COLD, VISIT, WIDTH, LONGEST, ACCEPT = 5_230.0, 2e-5, 2.62, 5.1576, 1e8, -5.0


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


class OptunaPeer(OptunaStrategy):
    """A sampler of Optuna that the tuner does not offer, with its defaults, in the tuner's frame."""

    def __init__(self, space: Space, seed: int, sampler: str) -> None:
        self._class = sampler
        super().__init__(space, seed, "random")

    def _create_study(self, sampler: str, seed: int) -> Study:
        import optuna

        study = super()._create_study(sampler, seed)
        study.sampler = getattr(optuna.samplers, self._class)(seed=seed)
        return study


def optuna_cmaes(space: Space, seed: int) -> OptunaPeer:
    """CMA-ES; needs the package cmaes."""
    return OptunaPeer(space, seed, "CmaEsSampler")


def optuna_gp(space: Space, seed: int) -> OptunaPeer:
    """A Gaussian process; needs PyTorch."""
    return OptunaPeer(space, seed, "GPSampler")


def greedy_ils(space: Space, seed: int) -> GeneratorStrategy:
    """Take the first neighbour (one parameter changed) that is faster, in random order; at a local minimum change a
    third of the parameters of the best and go on from there; begin anew after three of these without a gain."""
    return GeneratorStrategy(space, seed, _greedy_ils)


def differential_evolution(space: Space, seed: int) -> GeneratorStrategy:
    """rand/1/bin over the indices of the choices, 20 members, F 0.7, CR 0.9, rounded; one that breaks a constraint is
    made again, at most ten times."""
    return GeneratorStrategy(space, seed, _differential_evolution)


def dual_annealing(space: Space, seed: int) -> GeneratorStrategy:
    """Generalised simulated annealing over the indices of the choices, with SciPy's steps and temperatures; what is
    accepted depends on percents of the current time. A step that breaks a constraint is made again, at most ten times.
    A new best ends a chain, and local search takes the first neighbour that is faster, in random order, from there."""
    return GeneratorStrategy(space, seed, _dual_annealing)


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


def _dual_annealing(space: Space, rng: random.Random) -> Visits:
    names = [p.name for p in space.parameters if len(p.choices) > 1]
    choices = {p.name: p.choices for p in space.parameters}

    def config_of(place: dict[str, float]) -> Config:
        return {n: c[min(len(c) - 1, int(place.get(n, 0.0)))] for n, c in choices.items()}

    def stepped(x: float, size: int, heat: float) -> float:
        by = rng.gauss(0, 1) * WIDTH * heat ** (1 / (3 - VISIT)) / abs(rng.gauss(0, 1)) ** ((VISIT - 1) / (3 - VISIT))
        return (x + (by if abs(by) < LONGEST else rng.uniform(-LONGEST, LONGEST))) % size

    best: dict[str, float] = {}
    best_time = math.inf
    while True:
        current_time = math.inf
        while current_time == math.inf:
            config = space.sample(rng)
            current = {n: choices[n].index(config[n]) + 0.5 for n in names}
            current_time = yield config
        if current_time < best_time:
            best, best_time = current, current_time
        for chain in itertools.count():
            heat = HEAT * (2 ** (VISIT - 1) - 1) / ((chain + 2) ** (VISIT - 1) - 1)
            if heat < HEAT * COLD:
                break
            improved = False
            for step in range(2 * len(names)):
                changed = names if step < len(names) else [names[step - len(names)]]
                for _ in range(10):
                    trial = current | {n: stepped(current[n], len(choices[n]), heat) for n in changed}
                    if space.contains(config_of(trial)):
                        break
                else:
                    continue
                time = yield config_of(trial)
                slower = 100 * (time / current_time - 1)
                if rng.random() ** (1 - ACCEPT) <= 1 - (1 - ACCEPT) * slower * (chain + 1) / heat:
                    current, current_time = trial, time
                if time < best_time:
                    best, best_time, improved = trial, time, True
                    break
            while improved:
                improved = False
                near = [{**best, n: i + 0.5} for n in names for i in range(len(choices[n])) if i != int(best[n])]
                rng.shuffle(near)
                for trial in filter(lambda place: space.contains(config_of(place)), near):
                    time = yield config_of(trial)
                    if time < best_time:
                        current, current_time = best, best_time = trial, time
                        improved = True
                        break
