"""When to stop a search: what rules would have cost and lost on recorded spaces, all of them on the same searches.

python benchmarks/stopping.py --seeds 6 --json out.json SPACE.json.gz ...

Searches of 200 evaluations with known constraints. A rule looks at what a search knows: its times so far and the gain
that the model expects of the next proposal. The loss is 1 - fraction of the optimum where it stops, mean over spaces.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from deuteron.tuner.replay import Recording, read_kernel_tuner
from deuteron.tuner.strategies.surrogate import SurrogateStrategy

MOST = 200
#: An improvement of the best time by less than this is none.
GAIN = 0.005


@dataclass(frozen=True)
class Step:
    """Fraction of the optimum after an evaluation, the gain that was expected of it (infinite at the start), and
    whether the strategy then says that nothing more is to be won."""

    fraction: float
    expected: float
    settled: bool


Rule: TypeAlias = Callable[[Sequence[Step]], bool]


def after(evaluations: int) -> Rule:
    """A fixed budget."""
    return lambda steps: len(steps) >= evaluations


def idle(window: int, expected: float = float("inf"), run: int = 1) -> Rule:
    """No gain in the last ``window`` evaluations, and less than ``expected`` expected of the last ``run``; after 30."""

    def rule(steps: Sequence[Step]) -> bool:
        if len(steps) < 30 or len(steps) <= window:
            return False
        stuck = steps[-1].fraction <= steps[-1 - window].fraction * (1 + GAIN)
        return stuck and all(step.expected < expected for step in steps[-run:])

    return rule


def own(most: int) -> Rule:
    """What the strategy says, ``most`` evaluations at most."""
    return lambda steps: steps[-1].settled or len(steps) >= most


RULES: dict[str, Rule] = {
    **{f"fixed {n}": after(n) for n in (25, 50, 60, 80, 100, 150, 200)},
    "the strategy's own, 150 at most": own(150),
    "the strategy's own, 200 at most": own(200),
    **{f"no gain in {n}": idle(n) for n in (30, 40, 50, 60)},
    "no gain in 30, under 3e-4 expected of 5": idle(30, 3e-4, 5),
    "no gain in 40, under 3e-4 expected of 3": idle(40, 3e-4, 3),
    "no gain in 25, under 1e-4 expected of 10": idle(25, 1e-4, 10),
}


def trace(recording: Recording, seed: int) -> list[Step]:
    """One search."""
    strategy = SurrogateStrategy(recording.space("constrained"), seed)
    best, steps = float("inf"), []
    for _ in range(MOST):
        config = strategy.ask()
        if config is None:
            break
        expected = strategy.expected_gain
        outcome = recording.outcome(config)
        strategy.tell(config, outcome)
        best = min(best, float("inf") if outcome.value is None else outcome.value)
        steps.append(
            Step(
                recording.best_ns / best, float("inf") if expected is None else expected, strategy.settled() is not None
            )
        )
    return steps


def stopped(steps: Sequence[Step], rule: Rule) -> tuple[int, float]:
    """Evaluations until the rule stops, and the loss."""
    at = next((n for n in range(1, len(steps) + 1) if rule(steps[:n])), len(steps))
    return at, 1 - steps[at - 1].fraction


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    found: dict[str, dict[str, list[tuple[int, float]]]] = {name: {} for name in RULES}
    for path in options.spaces:
        recording = read_kernel_tuner(path)
        traces = [trace(recording, seed) for seed in range(options.seeds)]
        for name, rule in RULES.items():
            found[name][recording.name] = [stopped(steps, rule) for steps in traces]
        print(recording.name, flush=True)
    for name, spaces in found.items():
        evaluations = statistics.fmean(statistics.fmean(n for n, _ in runs) for runs in spaces.values())
        loss = statistics.fmean(statistics.fmean(loss for _, loss in runs) for runs in spaces.values())
        print(f"{name:42} {evaluations:6.1f} evaluations, loss {loss:.2%}")
    if options.json is not None:
        options.json.write_text(json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
