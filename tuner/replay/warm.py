"""Searches that know how an earlier one went on another recording."""

from __future__ import annotations

from ..space import Configuration, Space
from ..strategies import Outcome, Strategy, StrategyFactory
from ..strategies.surrogate import SurrogateStrategy, prior_from_log
from .recording import Recording, RecordingError


def warm_surrogate(earlier: Recording, evaluations: int = 200) -> StrategyFactory:
    """A surrogate search that starts from what one of ``earlier`` of so many ``evaluations``, with the same seed,
    measured.

    Making the strategy raises :class:`RecordingError` for a space that has none of the earlier configurations.
    """
    logs: dict[int, list[tuple[Configuration, Outcome]]] = {}

    def make(space: Space, seed: int) -> Strategy:
        if seed not in logs:
            logs[seed] = _log(earlier, evaluations, seed)
        prior = prior_from_log(space, logs[seed])
        if prior is None:
            raise RecordingError(
                f"{earlier.name} has no configurations of the space that is searched",
                hint="a recording of the same kernel, with the same parameters",
            )
        return SurrogateStrategy(space, seed, prior)

    return make


def _log(recording: Recording, evaluations: int, seed: int) -> list[tuple[Configuration, Outcome]]:
    strategy = SurrogateStrategy(recording.space("constrained"), seed)
    log: list[tuple[Configuration, Outcome]] = []
    for _ in range(evaluations):
        config = strategy.ask()
        if config is None:
            break
        log.append((config, recording.outcome(config)))
        strategy.tell(*log[-1])
    return log
