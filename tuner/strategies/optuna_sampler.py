"""Optuna's samplers behind ask and tell."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from deuteron.compiler.extras import require_extras

from ..codec import Scalar, canonical_json
from ..errors import StrategyError
from ..space import Configuration, Parameter, Space, config_key
from .base import Outcome
from .unseen import Unseen

if TYPE_CHECKING:
    from optuna import Study, Trial
    from optuna.distributions import BaseDistribution

# Proposals that break a constraint or repeat one are told to the sampler and asked again this often; then a random
# unseen configuration stands in, so that small or thin spaces are still searched completely.
ATTEMPTS = 25

SAMPLERS = {
    "tpe": "TPESampler",
    "random": "RandomSampler",
    "nsgaii": "NSGAIISampler",
}


class OptunaStrategy:
    """Any of :data:`SAMPLERS` (``optuna`` is TPE, ``optuna:nsgaii`` a genetic algorithm ...).

    Each parameter becomes the index of its choice: an integer where the choices are ascending numbers, so that
    neighbours are known to be near, else a category. Optuna does not know hard constraints: invalid proposals are told
    back as pruned, which its samplers rank below every measured trial.
    """

    def __init__(self, space: Space, seed: int, sampler: str = "tpe") -> None:
        if sampler not in SAMPLERS:
            raise StrategyError(f"unknown Optuna sampler {sampler!r}", hint=f"one of {', '.join(SAMPLERS)}")
        require_extras("optuna", by="OptunaStrategy")
        import optuna

        self._optuna = optuna
        self._space = space
        self._unseen = Unseen(space, random.Random(seed))
        self._distributions = {p.name: self._distribution(p) for p in space.parameters}
        self._pending: dict[str, Trial] = {}
        self._study = self._create_study(sampler, seed)

    def ask(self) -> dict[str, Scalar] | None:
        for _ in range(ATTEMPTS):
            trial = self._study.ask(self._distributions)
            config = self._decode(trial.params)
            if config in self._unseen and self._space.contains(config):
                self._unseen.mark(config)
                self._pending[config_key(config)] = trial
                return config
            self._study.tell(trial, state=self._optuna.trial.TrialState.PRUNED)
        return self._unseen.draw()

    def tell(self, config: Configuration, outcome: Outcome) -> None:
        self._unseen.mark(config)
        states = self._optuna.trial.TrialState
        state = states.PRUNED if outcome.value is None else states.COMPLETE
        trial = self._pending.pop(config_key(config), None)
        if trial is not None:
            self._study.tell(trial, values=outcome.value, state=state)
        elif self._space.contains(config):
            self._study.add_trial(
                self._optuna.trial.create_trial(
                    state=state,
                    value=outcome.value,
                    params=self._encode(config),
                    distributions=self._distributions,
                )
            )

    def reason(self, config: Configuration) -> str | None:
        """None: it has no reasons of its own."""
        return None

    def settled(self) -> str | None:
        """None: it expects nothing."""
        return None

    def _create_study(self, sampler: str, seed: int) -> Study:
        import optuna

        samplers = optuna.samplers
        level = optuna.logging.get_verbosity()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            chosen = (
                samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
                if sampler == "tpe"
                else getattr(samplers, SAMPLERS[sampler])(seed=seed)
            )
            return optuna.create_study(direction="minimize", sampler=chosen)
        finally:
            optuna.logging.set_verbosity(level)

    def _distribution(self, parameter: Parameter) -> BaseDistribution:
        from optuna.distributions import CategoricalDistribution, IntDistribution

        choices = parameter.choices
        numbers = [c for c in choices if not isinstance(c, bool | str)]
        if len(numbers) == len(choices) and sorted(numbers) == list(choices):
            return IntDistribution(0, len(choices) - 1)
        return CategoricalDistribution(tuple(range(len(choices))))

    def _decode(self, indices: Mapping[str, int]) -> dict[str, Scalar]:
        return {p.name: p.choices[indices[p.name]] for p in self._space.parameters}

    def _encode(self, config: Configuration) -> dict[str, int]:
        return {
            p.name: [canonical_json(c) for c in p.choices].index(canonical_json(config[p.name]))
            for p in self._space.parameters
        }
