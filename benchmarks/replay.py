"""Search strategies on recorded spaces, beside searches that others use; writes a comparison as JSON.

python benchmarks/replay.py --protocol charged --seeds 10 --json out.json SPACE.json.gz ...
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from deuteron.tuner.codec import Document
from deuteron.tuner.replay import PROTOCOLS, StrategyComparison, compare, read_recording
from deuteron.tuner.strategies import STRATEGIES, StrategyFactory

sys.path.append(str(Path(__file__).resolve().parents[1] / "development"))
from peers import differential_evolution, dual_annealing, greedy_ils, optuna_cmaes, optuna_gp

PEERS: dict[str, StrategyFactory] = {
    "greedy ILS": greedy_ils,
    "differential evolution": differential_evolution,
    "dual annealing": dual_annealing,
    "optuna:cmaes": optuna_cmaes,
    "optuna:gp": optuna_gp,
}


class Results(Document, frozen=True):
    """What the file says: how it was made, and the comparison."""

    arguments: tuple[str, ...]
    comparison: StrategyComparison


def rounded(value: object) -> object:
    """Numbers to five decimal places: what differs beyond them is noise, and files are half as large."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return round(value, 5) if isinstance(value, float) else value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("spaces", nargs="+", type=Path)
    parser.add_argument("--strategies", default="surrogate,random,greedy ILS,differential evolution")
    parser.add_argument("--protocol", choices=PROTOCOLS, default="charged")
    parser.add_argument("--budget", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first-seed", type=int, default=0, help="the first seed, where several processes share them")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    known = {**STRATEGIES, **PEERS}
    chosen = {name: known[name] for name in options.strategies.split(",")}
    scores = []
    for path in options.spaces:
        recording = read_recording(path)
        for score in compare(
            [recording],
            chosen,
            protocol=options.protocol,
            budget=options.budget,
            seeds=range(options.first_seed, options.first_seed + options.seeds),
        ):
            scores.append(score)
            means = "  ".join(f"{n}: {score.at(n).mean:.3f}" for n in sorted(score.fractions))
            print(f"{score.recording:32} {score.strategy:24} {means}  {score.cost.median_ms:.1f} ms", flush=True)
            if options.json is not None:
                names = tuple(path.name for path in options.spaces)
                seeds = f"--first-seed={options.first_seed}", f"--seeds={options.seeds}"
                arguments = (f"--protocol={options.protocol}", f"--budget={options.budget}", *seeds, *names)
                results = Results(arguments, StrategyComparison(tuple(scores)))
                options.json.write_text(json.dumps(rounded(results.to_json())) + "\n")
    comparison = StrategyComparison(tuple(scores))
    for name in comparison.strategies:
        means = [comparison.over_recordings(name, n) for n in comparison.checkpoints]
        print(f"{name:24}", "  ".join(f"{m.mean:.3f} ({m.error:.3f})" for m in means))


if __name__ == "__main__":
    main()
