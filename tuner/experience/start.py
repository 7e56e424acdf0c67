"""From the logs of earlier searches to where a new one begins: a prior, and what to try first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from ..job import shape_key
from ..records.nearest import shape_distance
from ..space import Configuration, Space, config_key
from ..strategies.base import Outcome
from .search_log import KnownConfig, SearchLog

if TYPE_CHECKING:
    from ..strategies.surrogate import Prior
    from ..strategies.surrogate.prior import LogTimes

#: How many programs each processor runs one after the other, for a shape and a configuration; None where unknown.
WavesAt: TypeAlias = Callable[[Mapping[str, int], Configuration], float | None]

#: Searches that a start is made of, the nearest, and how many configurations of them are tried first.
SEARCHES, TRIED_FIRST = 4, 4
# What a search counts as farther away for. The unit is that of shapes: one size four times as large is 4.
OTHER_DTYPE, OTHER_TEXT, OTHER_DEVICE = 2.0, 2.0, 6.0


@dataclass(frozen=True)
class SearchPlace:
    """What is searched: a kernel by name and text, a device's key, a shape and a dtype."""

    kernel_name: str
    kernel_hash: str
    device: str
    shape: dict[str, int]
    dtype: str

    def distance(self, log: SearchLog | SearchPlace) -> float | None:
        """How far a log, or the place of one, is from here; None where it says nothing: another kernel, another kind of
        device, other dims."""
        if log.kernel_name != self.kernel_name and log.kernel_hash != self.kernel_hash:
            return None
        if _kind(log.device) != _kind(self.device) or log.shape.keys() != self.shape.keys():
            return None
        return (
            shape_distance(log.shape, self.shape)
            + OTHER_DTYPE * (log.dtype != self.dtype)
            + OTHER_TEXT * (log.kernel_hash != self.kernel_hash)
            + OTHER_DEVICE * (log.device != self.device)
        )


@dataclass(frozen=True)
class Start:
    """``prior`` for the strategy; ``sources``: the logs it is made of, nearest first; ``known_here``: how many
    configurations those know that predict and are of this device and text."""

    prior: Prior
    sources: tuple[SearchLog, ...]
    known_here: int

    @property
    def same_device(self) -> bool:
        """Whether something that predicts is of this device and text."""
        return self.known_here > 0

    @property
    def names(self) -> tuple[str, ...]:
        """The sources in words: shape, dtype, device, how many configurations each knows."""
        return tuple(
            f"{shape_key(log.shape)} {log.dtype} on {log.device} ({len(log.known)} configurations)"
            for log in self.sources
        )


def start_from(space: Space, place: SearchPlace, logs: Sequence[SearchLog], waves: WavesAt) -> Start | None:
    """Where a search of ``space`` begins, given what is known; None where nothing known is of use.

    The nearest logs that share configurations with the space are used, one of a place only, with weights that fall with
    their distance. A log of many configurations predicts all of the space; one of few, as a stored record is, only says
    what to try first. Times speak for this shape as so many waves of so long each (:mod:`.waves`).
    """
    near = [(distance, _Here(log, place, waves)) for distance, log in _nearest(place, logs)]
    usable = [*itertools.islice(((distance, log) for distance, log in near if log.fastest(space)), SEARCHES)]
    if not usable:
        return None
    from ..strategies.surrogate import Prior, mixed, remembered  # lazy: help and lookups need no NumPy

    made = [(1 / (1 + distance), log, log.predictions(space)) for distance, log in usable]
    predicting = [log.log for _, log, log_times in made if log_times is not None]
    predictions = [(weight, log_times) for weight, _, log_times in made if log_times is not None]
    first = tuple(_in_turn([log.fastest(space) for _, log in usable]))
    sources = tuple(log.log for _, log in usable)
    log_times = remembered(mixed(predictions)) if predictions else None
    return Start(Prior(log_times, first), sources, known_at(place, predicting))


def known_at(place: SearchPlace, logs: Sequence[SearchLog]) -> int:
    """How many configurations the logs of this device and text know."""
    here = (log for log in logs if log.device == place.device and log.kernel_hash == place.kernel_hash)
    return sum(len(log.known) for log in here)


@dataclass(frozen=True)
class _Here:
    """What a log says about a place."""

    log: SearchLog
    place: SearchPlace
    waves: WavesAt

    def fastest(self, space: Space) -> list[Configuration]:
        """Those of the space that should be fastest here."""
        inside = [one for one in self.log.known if space.contains(one.config)]
        return [one.config for one in sorted(inside, key=self._expected_ns)][:TRIED_FIRST]

    def predictions(self, space: Space) -> LogTimes | None:
        """What the log predicts for all of the space; None where it knows too little."""
        from ..strategies.surrogate import prior_from_log  # lazy: as above

        outcomes = [(one.config, Outcome(one.time_ns)) for one in self.log.known]
        # What is slow there may be fast here, so how slow it is counts.
        prior = prior_from_log(space, outcomes, compress=False)
        there = None if prior is None else prior.log_times
        if there is None:
            return None
        return lambda configs: [
            predicted + math.log(self._ratio(config)) for predicted, config in zip(there(configs), configs, strict=True)
        ]

    def _expected_ns(self, known: KnownConfig) -> float:
        return math.inf if known.time_ns is None else known.time_ns * self._ratio(known.config)

    def _ratio(self, config: Configuration) -> float:
        """Waves here for each there; 1 where they are not known."""
        there = self.waves(self.log.shape, config)
        here = self.waves(self.place.shape, config)
        return here / there if here and there else 1.0


def _nearest(place: SearchPlace, logs: Sequence[SearchLog]) -> list[tuple[float, SearchLog]]:
    """Logs that say something, nearest first; of several of the same place the one that knows most."""
    places: dict[str, tuple[float, SearchLog]] = {}
    for log in logs:
        distance = place.distance(log)
        if distance is None or not log.known:
            continue
        key = "\0".join((log.kernel_hash, log.device, log.dtype, config_key(log.shape)))
        if key not in places or len(places[key][1].known) < len(log.known):
            places[key] = (distance, log)
    return sorted(places.values(), key=lambda pair: (pair[0], config_key(pair[1].shape), pair[1].device))


def _in_turn(lists: Sequence[Sequence[Configuration]]) -> list[Configuration]:
    """The best of each, then the second best of each, and so on, without repetition."""
    found: dict[str, Configuration] = {}
    for place in range(TRIED_FIRST):
        for configs in lists:
            if place < len(configs) and len(found) < TRIED_FIRST:
                found.setdefault(config_key(configs[place]), configs[place])
    return list(found.values())


def _kind(device_key: str) -> str:
    return device_key.partition("/")[0]
