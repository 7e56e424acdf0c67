"""What rules of ``deuteron cover`` are worth at shapes that they were made without.

python benchmarks/covers.py SOURCE ... [--draws 20] [--out FILE]

SOURCE: what ``deuteron cover --from`` reads, such as a table of benchmarks/gpu_table.py; all of its kernels are taken.
Half of the shapes, in ``--draws`` random draws, choose configurations within 3 % of the best and the rule; at the other
half the time of the best one measured over that of the rule's choice is taken. "best": of the configurations that were
chosen the fastest at each shape, which no rule can beat. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prediction import kernels_in
from sources import environment

from deuteron.tuner.cover import (
    Cover,
    DispatchRule,
    TimeTable,
    cover_within,
    dispatch_nearest,
    dispatch_tree,
    table_of_logs,
)
from deuteron.tuner.learn import fractions_at, learnt_tree
from deuteron.tuner.prediction import Accuracy

TOLERANCE = 0.03
WAYS: Mapping[str, Callable[[Cover], DispatchRule]] = {
    "learnt": learnt_tree,
    "tree": dispatch_tree,
    "nearest": dispatch_nearest,
}


def best(whole: TimeTable, found: Cover, unseen: Sequence[int]) -> list[float]:
    """The best time over that of the fastest of the cover's configurations, at shapes where one was measured."""
    rows = ([loss for c in found.configs if (loss := whole.loss(place, c)) is not None] for place in unseen)
    return [1 / (1 + min(row)) for row in rows if row]


@dataclass(frozen=True)
class Draw:
    """How many configurations half of the shapes need, and what each way gives at the other half."""

    configurations: int
    ways: Mapping[str, Accuracy]

    def to_json(self) -> dict[str, object]:
        """For the file."""
        ways = {name: {"geomean": found.geomean, "worst": found.worst} for name, found in self.ways.items()}
        return {"configurations": self.configurations, "ways": ways}


def draw(whole: TimeTable, seed: int) -> Draw:
    """One draw."""
    order = random.Random(seed).sample(range(len(whole.shapes)), len(whole.shapes))
    seen, unseen = order[: len(order) // 2], order[len(order) // 2 :]
    found = cover_within(whole.only(seen), TOLERANCE)
    ways = {name: fractions_at(whole, make(found), unseen) for name, make in WAYS.items()}
    ways["best"] = best(whole, found, unseen)
    return Draw(len(found.configs), {name: Accuracy.of(values) for name, values in ways.items()})


def show(kernel: str, whole: TimeTable, draws: Sequence[Draw]) -> None:
    """A line for each way to choose."""
    counts = [one.configurations for one in draws]
    print(f"{kernel}: {len(whole.shapes)} shapes, {min(counts)} to {max(counts)} configurations for half of them")
    for way in draws[0].ways:
        means = [one.ways[way].geomean for one in draws]
        worst = statistics.geometric_mean(one.ways[way].worst for one in draws)
        mean = statistics.geometric_mean(means)
        print(f"  {way:8} geomean {mean:.3f} (least of a draw {min(means):.3f}), worst shape of a draw {worst:.3f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("sources", nargs="+", metavar="SOURCE")
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--out", type=Path, metavar="FILE")
    given = parser.parse_args()
    logs, told = kernels_in(given.sources), []
    for name in dict.fromkeys(log.kernel_name for log in logs):
        whole = table_of_logs([log for log in logs if log.kernel_name == name])
        draws = [draw(whole, seed) for seed in range(given.draws)]
        show(name, whole, draws)
        told.append({"kernel": name, "shapes": len(whole.shapes), "draws": [one.to_json() for one in draws]})
    if given.out:
        given.out.write_text(json.dumps({"environment": environment(), "kernels": told}, indent=1) + "\n")


if __name__ == "__main__":
    main()
