"""Search strategies: ask for a configuration, tell what became of it. One file each, found by name here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    "known_strategy",
    "make_strategy",
]

StrategyFactory: TypeAlias = Callable[[Space, int], Strategy]


def _optuna_with(sampler: str) -> StrategyFactory:
    return lambda space, seed: OptunaStrategy(space, seed, sampler)


def _surrogate(space: Space, seed: int, prior: Prior | None) -> Strategy:
    from .surrogate import SurrogateStrategy  # lazy: help and lookups need no NumPy

    return SurrogateStrategy(space, seed, prior)


@dataclass(frozen=True, slots=True)
class FromOthers:
    """Makes a strategy that uses what is known before a search."""

    make: Callable[[Space, int, Prior | None], Strategy]

    def __call__(self, space: Space, seed: int, prior: Prior | None = None) -> Strategy:
        return self.make(space, seed, prior)


DEFAULT_STRATEGY = "surrogate"

STRATEGIES: dict[str, StrategyFactory] = {
    "surrogate": FromOthers(_surrogate),
    "exhaustive": ExhaustiveStrategy,
    "random": RandomStrategy,
    "optuna": OptunaStrategy,
    **{f"optuna:{sampler}": _optuna_with(sampler) for sampler in SAMPLERS},
}


STARTING_FROM_OTHERS = frozenset(name for name, made in STRATEGIES.items() if isinstance(made, FromOthers))


def known_strategy(name: str) -> str:
    """``name``, which some machine can use. Raises StrategyError where no strategy is called so."""
    if name not in STRATEGIES:
        raise StrategyError(f"unknown strategy {name!r}", hint=f"one of {', '.join(STRATEGIES)}")
    return name


def check_strategy(name: str) -> None:
    """Check that a search on this machine can use the strategy called ``name``.

    Raises:
        StrategyError: there is none of that name.
        MissingExtra: its package is not installed.
    """
    if known_strategy(name).partition(":")[0] == "optuna":
        require_extras("optuna", by=f"the strategy {name}")


def make_strategy(name: str, space: Space, seed: int, prior: Prior | None = None) -> Strategy:
    """The strategy called ``name`` over ``space``; raises as :func:`check_strategy`. ``prior``: what is known before,
    for those of :data:`STARTING_FROM_OTHERS`."""
    check_strategy(name)
    factory = STRATEGIES[name]
    return factory(space, seed, prior) if isinstance(factory, FromOthers) else factory(space, seed)
