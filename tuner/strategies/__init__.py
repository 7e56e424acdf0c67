"""Search strategies: ask for a configuration, tell what became of it. One file each, found by name here."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from deuteron.compiler.extras import require_extras

from ..errors import StrategyError
from ..space import Space
from .base import Outcome, Strategy
from .exhaustive import ExhaustiveStrategy
from .optuna_sampler import SAMPLERS, OptunaStrategy
from .random_search import RandomStrategy

if TYPE_CHECKING:
    from .surrogate import Prior

__all__ = [
    "DEFAULT_STRATEGY",
    "STARTING_FROM_OTHERS",
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


def _surrogate(space: Space, seed: int, prior: Prior | None = None) -> Strategy:
    from .surrogate import SurrogateStrategy  # lazy: help and lookups need no NumPy

    return SurrogateStrategy(space, seed, prior)


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


#: Strategies that use what is known before a search, made with it.
_WITH_PRIOR: dict[str, Callable[[Space, int, Prior], Strategy]] = {"surrogate": _surrogate}
STARTING_FROM_OTHERS = frozenset(_WITH_PRIOR)


def make_strategy(name: str, space: Space, seed: int, prior: Prior | None = None) -> Strategy:
    """The strategy called ``name`` over ``space``; raises as :func:`check_strategy`. ``prior``: what is known before,
    for those of :data:`STARTING_FROM_OTHERS`."""
    check_strategy(name)
    if prior is not None and name in STARTING_FROM_OTHERS:
        return _WITH_PRIOR[name](space, seed, prior)
    return STRATEGIES[name](space, seed)
