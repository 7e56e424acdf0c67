"""When to stop a search: what rules would have cost and lost on recorded spaces, all of them on the same searches.

python benchmarks/stopping.py --seeds 20 --searches searches.json.gz --json stopping.json SPACE.json.gz ...
python benchmarks/stopping.py --searches searches.json.gz

Searches of 200 evaluations with known constraints, or by another ``--protocol``; ``--searches`` keeps them: the second
command, without spaces, looks at them again. A rule looks at what a search knows: its times so far and the gain that
the model expected of each proposal. The loss is 1 - fraction of the optimum where it stops; evaluations and loss are
means over spaces, with the standard errors that the seeds leave. Of rules that differ in one number the whole curve is
printed: the loss at equal evaluations.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from deuteron.tuner.replay import read_recording
from deuteron.tuner.replay.recording import Convention, Recording
from deuteron.tuner.space import Space
from deuteron.tuner.strategies.surrogate import SurrogateStrategy

MOST = 200
#: No rule stops before; an improvement of the best time by less than this is none.
LEAST, GAIN = 20, 0.005
#: Where curves are read off.
LOOKS = (60, 70, 80, 90, 100, 110, 120)

Series: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True)
class Search:
    """After each evaluation the fraction of the optimum, the gain that was expected of it (infinite at the start), and
    the first evaluation after which the strategy said that nothing more is to be won (None: never)."""

    recording: str
    seed: int
    fractions: tuple[float, ...]
    expected: tuple[float | None, ...]
    settled: int | None

    @cached_property
    def idle(self) -> Series:
        """Evaluations since the last gain."""
        best, last, counts = 0.0, 0, []
        for number, fraction in enumerate(self.fractions, 1):
            if fraction > best / (1 - GAIN):
                best, last = fraction, number
            counts.append(number - last)
        return np.array(counts, float)

    @cached_property
    def hopes(self) -> Series:
        """What was expected of each proposal."""
        return np.array([np.inf if gain is None else gain for gain in self.expected])

    def stopped(self, stops: NDArray[np.bool_]) -> tuple[int, float]:
        """Evaluations until the first at which ``stops`` holds, and the loss."""
        after = np.flatnonzero(stops[LEAST - 1 :])
        count = LEAST + int(after[0]) if len(after) else len(self.fractions)
        return count, 1 - self.fractions[count - 1]


#: What falls while a search goes on, or rises when something happens: a rule of its family stops it below a level.
Measure: TypeAlias = Callable[[Search], Series]


def over_last(series: Series, count: int, reduce: Callable[[Series], float]) -> Series:
    """``reduce`` of the last ``count`` values, or of all as long as there are fewer."""
    return np.array([reduce(series[max(0, at - count) : at]) for at in range(1, len(series) + 1)])


FAMILIES: dict[str, Measure] = {
    "fixed number": lambda s: -np.arange(1.0, len(s.fractions) + 1),
    "no gain in so many": lambda s: -s.idle,
    "greatest expectation of 5": lambda s: over_last(s.hopes, 5, lambda x: float(x.max())),
    "mean expectation of 10 for each idle": lambda s: over_last(s.hopes, 10, lambda x: float(x.mean())) / (1 + s.idle),
}


def before(search: Search) -> NDArray[np.bool_]:
    """What the strategy said until now: less than 3e-5 expected of five in a row, 30 without a gain."""
    stops: NDArray[np.bool_] = (over_last(search.hopes, 5, lambda x: float(x.max())) < 3e-5) & (search.idle >= 30)
    return stops


def own(search: Search) -> NDArray[np.bool_]:
    """What the strategy says."""
    numbers = np.arange(1, len(search.fractions) + 1)
    return numbers >= (search.settled or MOST)


def capped(rule: Callable[[Search], NDArray[np.bool_]], most: int) -> Callable[[Search], NDArray[np.bool_]]:
    """As ``rule``, ``most`` evaluations at most."""
    return lambda search: rule(search) | (np.arange(1, len(search.fractions) + 1) >= most)


def below(family: str, level: float) -> Callable[[Search], NDArray[np.bool_]]:
    """The rule of a family that stops at ``level``."""
    return lambda search: FAMILIES[family](search) <= level


RULES: dict[str, Callable[[Search], NDArray[np.bool_]]] = {
    **{f"fixed {n}": below("fixed number", -n) for n in (25, 50, 60, 80, 100, 150, 200)},
    "the strategy's own": own,
    "the strategy's own, 150 at most": capped(own, 150),
    "the one before": before,
    "the one before, 150 at most": capped(before, 150),
    **{f"no gain in {n}": below("no gain in so many", -n) for n in (30, 40, 50, 60)},
}


@dataclass(frozen=True)
class Cost:
    """Means over spaces, and their standard errors."""

    evaluations: float
    evaluations_error: float
    loss: float
    loss_error: float


def cost(searches: Sequence[Search], rule: Callable[[Search], NDArray[np.bool_]]) -> Cost:
    """What ``rule`` costs and loses."""
    spaces: dict[str, list[tuple[int, float]]] = {}
    for search in searches:
        spaces.setdefault(search.recording, []).append(search.stopped(rule(search)))
    counts, losses = zip(*([*zip(*runs, strict=True)] for runs in spaces.values()), strict=True)
    return Cost(*_mean(counts), *_mean(losses))


def _mean(groups: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The mean of the groups' means, and its standard error."""
    errors = [statistics.variance(group) / len(group) if len(group) > 1 else 0.0 for group in groups]
    return statistics.fmean(map(statistics.fmean, groups)), sum(errors) ** 0.5 / len(groups)


def curve(searches: Sequence[Search], family: str) -> list[tuple[float, float]]:
    """Evaluations and loss of the rules of a family, by evaluations."""
    measures = {(s.recording, s.seed): FAMILIES[family](s) for s in searches}
    finite = np.concatenate([m[np.isfinite(m)] for m in measures.values()])
    levels = np.unique(np.quantile(finite, np.linspace(0.002, 0.98, 80)))

    def at(level: float) -> Cost:
        return cost(searches, lambda search: measures[search.recording, search.seed] <= level)

    return sorted((found.evaluations, found.loss) for found in map(at, levels.tolist()))


def searched(recording: Recording, space: Space, seed: int) -> Search:
    """One search."""
    strategy = SurrogateStrategy(space, seed)
    best, settled = float("inf"), None
    fractions: list[float] = []
    expected: list[float | None] = []
    while len(fractions) < MOST and (config := strategy.ask()) is not None:
        gain = strategy.expected_gain
        expected.append(None if gain is None else float(f"{gain:.3g}"))
        outcome = recording.outcome(config)
        strategy.tell(config, outcome)
        best = min(best, float("inf") if outcome.value is None else outcome.value)
        fractions.append(round(recording.best_ns / best, 6))
        if settled is None and strategy.settled() is not None:
            settled = len(fractions)
    return Search(recording.name, seed, tuple(fractions), tuple(expected), settled)


def search_all(paths: Iterable[Path], seeds: range, protocol: Convention) -> list[Search]:
    """Searches of each recording, one a seed."""
    found = []
    for path in paths:
        recording = read_recording(path)
        space = recording.space(protocol)
        found += [searched(recording, space, seed) for seed in seeds]
        print(recording.name, flush=True)
    return found


def write_searches(searches: Sequence[Search], path: Path) -> None:
    """Keep them as JSON."""
    text = json.dumps([[s.recording, s.seed, s.fractions, s.expected, s.settled] for s in searches])
    path.write_bytes(gzip.compress(text.encode(), mtime=0))


def read_searches(path: Path) -> list[Search]:
    """What :func:`write_searches` kept."""
    listed = json.loads(gzip.decompress(path.read_bytes()))
    return [Search(name, seed, tuple(fractions), tuple(expected), at) for name, seed, fractions, expected, at in listed]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("spaces", nargs="*", type=Path)
    parser.add_argument("--protocol", choices=get_args(Convention), default="constrained")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--searches", type=Path, help="keep the searches here; without spaces, read them")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.spaces:
        seeds = range(options.first_seed, options.first_seed + options.seeds)
        searches = search_all(options.spaces, seeds, options.protocol)
        if options.searches is not None:
            write_searches(searches, options.searches)
    elif options.searches is not None:
        searches = read_searches(options.searches)
    else:
        parser.error("neither spaces nor searches")
    rules = {name: cost(searches, rule) for name, rule in RULES.items()}
    for name, c in rules.items():
        counted, lost = f"{c.evaluations:6.1f} ({c.evaluations_error:.1f})", f"{c.loss:.2%} ({c.loss_error:.2%})"
        print(f"{name:36} {counted} evaluations, loss {lost}")
    curves = {family: curve(searches, family) for family in FAMILIES}
    print(f"loss after               {' '.join(f'{look:6}' for look in LOOKS)} evaluations")
    for family, points in curves.items():
        counts, losses = zip(*points, strict=True)
        print(f"{family:40}", " ".join(f"{loss:6.2%}" for loss in np.interp(LOOKS, counts, losses)))
    if options.json is not None:
        runs = {
            name: [(s.recording, s.seed, *s.stopped(rule(s))) for s in searches]
            for name, rule in RULES.items()
            if "own" in name
        }
        kept = {"rules": {name: vars(c) for name, c in rules.items()}, "curves": curves, "runs": runs}
        options.json.write_text(json.dumps(_rounded(kept)) + "\n")


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return round(value, 5) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
