"""What the trials of a job say about its parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, pvariance

Config = Mapping[str, object]
# The logarithm of the largest numbers: a worker may report any times above 0.
_MOST_LOG = 700.0


@dataclass(frozen=True)
class ParameterEffect:
    """``share``: the part of the variance of log times that the parameter explains alone, from 0 to 1. ``best``: the
    value whose trials are fastest on average, ``gain`` how much slower those of the worst value are, in the geometric
    mean."""

    name: str
    share: float
    best: str
    gain: float


def parameter_effects(trials: Sequence[tuple[Config, float]]) -> list[ParameterEffect]:
    """The main effects of configurations and times of one search, largest first: for each parameter the variance of the
    mean log times of its values (weighted by their trials) over that of all log times, as an analysis of variance has
    it. A search proposes good values more often than others, so this describes its trials, not the whole space.
    Parameters with one value are left out; none for fewer than three trials."""
    if len(trials) < 3:
        return []
    logs = [math.log(time) for _, time in trials]
    total, mean = pvariance(logs), fmean(logs)
    effects = []
    for name in dict.fromkeys(name for config, _ in trials for name in config):
        groups: dict[str, list[float]] = {}
        for (config, _), log in zip(trials, logs, strict=True):
            groups.setdefault(str(config.get(name)), []).append(log)
        if len(groups) < 2:
            continue
        means = {value: fmean(found) for value, found in groups.items()}
        between = sum(len(groups[value]) * (means[value] - mean) ** 2 for value in means) / len(logs)
        best = min(means, key=lambda value: means[value])
        gain = math.exp(min(max(means.values()) - means[best], _MOST_LOG))
        effects.append(ParameterEffect(name, between / total if total > 0 else 0.0, best, gain))
    return sorted(effects, key=lambda effect: -effect.share)
