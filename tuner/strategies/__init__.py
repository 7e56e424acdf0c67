"""Search strategies: ask for a configuration, tell what became of it. One file each, found by name here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from deuteron.compiler.extras import require_extras

from ..errors import StrategyError
from ..space import Space
from .base import Outcome, Strategy
from .exhaustive import ExhaustiveStrategy
from .optuna_sampler import SAMPLERS, OptunaStrategy
from .random_search import RandomStrategy

__all__ = [
    "DEFAULT_STRATEGY",
    "STRATEGIES",
    "ExhaustiveStrategy",
    "OptunaStrategy",
    "Outcome",
    "RandomStrategy",
    "Strategy",
    "StrategyFactory",
    "check_strategy",
    "make_strategy",
]

StrategyFactory: TypeAlias = Callable[[Space, int], Strategy]


def _optuna_with(sampler: str) -> StrategyFactory:
    return lambda space, seed: OptunaStrategy(space, seed, sampler)


def _surrogate(space: Space, seed: int) -> Strategy:
    from .surrogate import SurrogateStrategy  # lazy: help and lookups need no NumPy

    return SurrogateStrategy(space, seed)


DEFAULT_STRATEGY = "surrogate"

STRATEGIES: dict[str, StrategyFactory] = {
    "surrogate": _surrogate,
    "exhaustive": ExhaustiveStrategy,
    "random": RandomStrategy,
    "optuna": OptunaStrategy,
    **{f"optuna:{sampler}": _optuna_with(sampler) for sampler in SAMPLERS},
}


def check_strategy(name: str) -> None:
    """Check that a search on this machine can use the strategy called ``name``.

    Raises:
        StrategyError: there is none of that name.
        MissingExtra: its package is not installed.
    """
    if name not in STRATEGIES:
        raise StrategyError(f"unknown strategy {name!r}", hint=f"one of {', '.join(STRATEGIES)}")
    if name.partition(":")[0] == "optuna":
        require_extras("optuna", by=f"the strategy {name}")


def make_strategy(name: str, space: Space, seed: int) -> Strategy:
    """The strategy called ``name`` over ``space``; raises as :func:`check_strategy`."""
    check_strategy(name)
    return STRATEGIES[name](space, seed)
