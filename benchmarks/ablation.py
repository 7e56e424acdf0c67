"""What parts of the search are worth, on recorded spaces: how fast the best configuration found is without each.

python benchmarks/ablation.py RECORDING ... [--warm-from RECORDING] [--seeds 20] [--budget 100] [--out FILE]

RECORDING: a journal of ``deuteron tune``, whose measurements the search reads, or a cache or T4 file of Kernel Tuner,
which has times alone. Only recorded configurations are proposed. "time only": of a variant nothing else is told;
"no neighbours": candidates are random ones alone; "from another": it starts from a search of ``--warm-from``, such as
another shape or device. No GPU is needed.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

from sources import environment

from deuteron.tuner.replay import Recording, read_journal, read_recording, warm_surrogate
from deuteron.tuner.replay.search import search
from deuteron.tuner.space import Configuration, Space
from deuteron.tuner.strategies import Outcome, Strategy, make_strategy
from deuteron.tuner.strategies.surrogate import SurrogateStrategy
from deuteron.tuner.strategies.surrogate.encoding import Grid

LOOKS = (10, 15, 25, 50, 100, 200)


class TimeOnly(SurrogateStrategy):
    """Hears times and failures, and nothing else."""

    def tell(self, config: Configuration, outcome: Outcome) -> None:
        super().tell(config, replace(outcome, measurement=None))


@dataclass(frozen=True)
class Variant:
    """A search without something: how it is made, and what is taken away meanwhile."""

    make: Callable[[Space, int], Strategy]
    without: Callable[[], AbstractContextManager[object]] = nullcontext


def no_neighbours() -> AbstractContextManager[object]:
    """Candidates are drawn at random alone."""
    return patch.object(Grid, "neighbours", lambda grid, row: row[None][:0])


def variants(earlier: Recording | None) -> Iterator[tuple[str, Variant]]:
    """All of them; ``earlier``: what a warm search starts from."""
    yield "whole", Variant(SurrogateStrategy)
    yield "time only", Variant(TimeOnly)
    yield "no neighbours", Variant(SurrogateStrategy, no_neighbours)
    yield "random", Variant(lambda space, seed: make_strategy("random", space, seed))
    if earlier is not None:
        yield "from another", Variant(warm_surrogate(earlier))


def read(path: Path) -> list[Recording]:
    """The recordings of a file or folder."""
    is_journal = path.is_dir() or path.suffix == ".jsonl"
    return read_journal(path) if is_journal else [read_recording(path)]


def fractions(recording: Recording, variant: Variant, budget: int, seeds: int) -> dict[int, list[float]]:
    """By evaluations, and for each seed, the best time of the recording over that of the best one found."""
    space = recording.space("constrained")
    looks = [look for look in LOOKS if look <= budget]
    with variant.without():
        runs = [search(recording, variant.make(space, seed), budget, "constrained", seed) for seed in range(seeds)]
    return {look: [run.fractions[look] for run in runs] for look in looks}


def show(name: str, found: dict[int, list[float]]) -> None:
    """A line: means over the seeds with their standard errors."""

    def text(values: Sequence[float]) -> str:
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
        return f"{statistics.fmean(values):.4f} ({error:.4f})"

    print(f"  {name:14}", *(f"{look}: {text(values)}" for look, values in found.items()), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("recordings", nargs="+", type=Path, metavar="RECORDING")
    parser.add_argument("--warm-from", type=Path, metavar="RECORDING")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budget", type=int, default=100)
    parser.add_argument("--out", type=Path, metavar="FILE")
    given = parser.parse_args()
    earlier = read(given.warm_from)[0] if given.warm_from else None
    told = []
    for recording in (one for path in given.recordings for one in read(path)):
        print(f"{recording.name}: {len(recording.known)} configurations")
        for name, variant in variants(earlier):
            found = fractions(recording, variant, given.budget, given.seeds)
            show(name, found)
            told.append({"recording": recording.name, "variant": name, "fractions": found})
    if given.out:
        given.out.write_text(json.dumps({"environment": environment(), "rows": told}) + "\n")


if __name__ == "__main__":
    main()
