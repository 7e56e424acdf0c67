"""Search strategies: ask for a configuration, tell what became of it. One file each, found by name here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from ..errors import StrategyError
from ..space import Space
from .base import Outcome, Strategy
from .exhaustive import ExhaustiveStrategy
from .optuna_sampler import SAMPLERS, OptunaStrategy
from .random_search import RandomStrategy

__all__ = [
    "STRATEGIES",
    "ExhaustiveStrategy",
    "OptunaStrategy",
    "Outcome",
    "RandomStrategy",
    "Strategy",
    "make_strategy",
]

StrategyFactory: TypeAlias = Callable[[Space, int], Strategy]


def _optuna_with(sampler: str) -> StrategyFactory:
    return lambda space, seed: OptunaStrategy(space, seed, sampler)


STRATEGIES: dict[str, StrategyFactory] = {
    "exhaustive": ExhaustiveStrategy,
    "random": RandomStrategy,
    "optuna": OptunaStrategy,
    **{f"optuna:{sampler}": _optuna_with(sampler) for sampler in SAMPLERS},
}


def make_strategy(name: str, space: Space, seed: int) -> Strategy:
    """The strategy called ``name`` over ``space``; raises :class:`StrategyError` when there is none of that name."""
    if name not in STRATEGIES:
        raise StrategyError(f"unknown strategy {name!r}", hint=f"one of {', '.join(STRATEGIES)}")
    return STRATEGIES[name](space, seed)
