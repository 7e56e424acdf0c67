"""Searches that ours is compared with keep to a space, propose nothing twice, and find what is to be found."""

from __future__ import annotations

import pytest

import peers
from deuteron.tuner.space import Parameter, Space, config_key
from deuteron.tuner.strategies import Outcome

SPACE = Space(
    tuple(Parameter(name, (1, 2, 4, 8, 16, 32)) for name in "ABC") + (Parameter("D", (False, True)),),
    ("A * B <= 128",),
)


def time_of(config: dict[str, int]) -> float:
    return 1.0 + abs(config["A"] - 8) + abs(config["B"] - 16) / 2 + abs(config["C"] - 2) * (2 - config["D"])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["greedy_ils", "differential_evolution", "dual_annealing"])
def test_a_peer_finds_the_best_of_a_smooth_space(name: str, seed: int) -> None:
    strategy, seen, best = getattr(peers, name)(SPACE, seed), set(), float("inf")
    for _ in range(SPACE.count()):
        config = strategy.ask()
        assert SPACE.contains(config) and config_key(config) not in seen
        seen.add(config_key(config))
        broken = config["C"] == 32 and not config["D"]
        strategy.tell(config, Outcome(None, "crashed") if broken else Outcome(time_of(config)))
        best = best if broken else min(best, time_of(config))
        if best == 1.0:
            break
    assert best == 1.0 and len(seen) < 0.7 * SPACE.count()
