"""One search on a recording, and what it found after every evaluation."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, get_args

from ..codec import Scalar
from ..space import config_key
from ..strategies import Strategy
from .recording import Convention, Recording

#: How configurations are paid for and measured. ``charged``: proposals come from the whole product, and one that is
#: invalid costs an evaluation; ``constrained``: only what was recorded is proposed. Both give the mean time of a
#: configuration. ``noisy`` (charged) and ``noisy-constrained`` give one of its recorded timings at random, and the
#: score is that of the configuration finally picked. Scores of different protocols must never be mixed.
Protocol: TypeAlias = Literal["charged", "constrained", "noisy", "noisy-constrained"]
PROTOCOLS: tuple[Protocol, ...] = get_args(Protocol)

#: Noisy: the part of the evaluations that goes into measuring the best ones again, and the least number of them.
RESERVE, LEAST_RESERVE = 0.08, 3
#: Noisy searches are scored every so many evaluations, from twice as many on, and at their end.
LOOK = 5


@dataclass(frozen=True)
class Run:
    """``fractions``: by number of evaluations, the best possible time over the time of the best configuration found, 0
    before the first success. ``proposal_s``: CPU seconds that each proposal and learning its outcome took."""

    fractions: dict[int, float]
    proposal_s: tuple[float, ...]


def convention(protocol: Protocol) -> Convention:
    """Whether constraints are known."""
    return "constrained" if protocol.endswith("constrained") else "charged"


def search(recording: Recording, strategy: Strategy, evaluations: int, protocol: Protocol, seed: int) -> Run:
    """Run ``strategy``, made for the space of ``protocol``, on a recording. ``seed``: of the noise."""
    rng = random.Random(seed)
    noisy = protocol.startswith("noisy")
    measured: list[tuple[dict[str, Scalar], float | None]] = []
    costs: list[float] = []
    while len(measured) < evaluations:
        began = time.process_time()
        config = strategy.ask()
        spent = time.process_time() - began
        if config is None:
            break
        value = recording.sample_ns(config, rng) if noisy else recording.time_ns(config)
        measured.append((config, value))
        began = time.process_time()
        strategy.tell(config, replace(recording.outcome(config), value=value))
        costs.append(spent + time.process_time() - began)
    scored = _noisy(recording, measured, evaluations, rng) if noisy else _exact(recording, measured, evaluations)
    return Run(scored, tuple(costs))


def _exact(
    recording: Recording, measured: Sequence[tuple[dict[str, Scalar], float | None]], evaluations: int
) -> dict[int, float]:
    best, fractions = float("inf"), {}
    for count in range(1, evaluations + 1):
        value = measured[count - 1][1] if count <= len(measured) else None
        best = best if value is None else min(best, value)
        fractions[count] = recording.best_ns / best
    return fractions


def _noisy(
    recording: Recording,
    measured: Sequence[tuple[dict[str, Scalar], float | None]],
    evaluations: int,
    rng: random.Random,
) -> dict[int, float]:
    """As if each search had ended at the look: its last evaluations measure the best ones again."""
    fractions = {}
    for count in (*range(2 * LOOK, evaluations, LOOK), evaluations):
        reserve = min(max(LEAST_RESERVE, round(RESERVE * count)), count - 1)
        worked = [(config, value) for config, value in measured[: count - reserve] if value is not None]
        picked = pick(recording, worked, reserve, rng)
        true = None if picked is None else recording.time_ns(picked)
        fractions[count] = 0.0 if true is None else recording.best_ns / true
    return fractions


def pick(
    recording: Recording, worked: Sequence[tuple[dict[str, Scalar], float]], timings: int, rng: random.Random
) -> dict[str, Scalar] | None:
    """The configuration to use, after ``timings`` further timings of the fastest: each of them once, the better half
    again, and so on until two are left, who share the rest. Who was timed once only is lucky, not fast."""
    finalists = sorted(worked, key=lambda pair: pair[1])[: max(2, timings // 2)]
    if not finalists:
        return None
    taken: dict[str, list[float]] = {config_key(config): [value] for config, value in finalists}
    alive = [config for config, _ in finalists]
    while timings > 0:
        for config in alive[:timings]:
            again = recording.sample_ns(config, rng)
            assert again is not None  # noqa: S101 -- it worked
            taken[config_key(config)].append(again)
        timings -= len(alive)
        alive.sort(key=lambda config: _mean(taken[config_key(config)]))
        alive = alive[: max(2, len(alive) // 2)]
    return alive[0]


def _mean(values: Sequence[float]) -> float:
    """Of a configuration timed more than once; one that was not is behind all that were."""
    return sum(values) / len(values) if len(values) > 1 else float("inf")
