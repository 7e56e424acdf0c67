"""Searches that somebody recorded: what every configuration of a space took, on a device that need not be there."""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, TypeAlias

from ..codec import MOST_INTEGER, Scalar
from ..enumeration import Meter
from ..errors import TunerError
from ..measure.measurement import Measurement
from ..space import Configuration, Parameter, Space, config_key
from ..strategies import Outcome

Convention: TypeAlias = Literal["charged", "constrained"]


class RecordingError(TunerError):
    """A recorded search cannot be read, or does not have what a replay needs."""


@dataclass(frozen=True)
class RecordedTrial:
    """One recorded configuration. ``time_ns`` is the mean of ``samples_ns`` where there are any; None if it failed with
    ``error``. ``measurement``: what else was known of it, in our own journals."""

    config: Mapping[str, Scalar]
    time_ns: float | None
    samples_ns: tuple[float, ...] = ()
    error: str | None = None
    measurement: Measurement | None = None


class RecordedSpace(Space, frozen=True):
    """A space whose constraints are not known as expressions: a configuration is valid if it was recorded."""

    recorded: tuple[Mapping[str, Scalar], ...] = ()

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(map(config_key, self.recorded))

    @property
    def conditions(self) -> None:
        """None: what is valid is known, but not why."""
        return None

    def count(self, limit: int | None = None) -> int | None:
        """Number of recorded configurations; None when above ``limit``."""
        return None if limit is not None and len(self.recorded) > limit else len(self.recorded)

    def configurations(self) -> Iterator[dict[str, Scalar]]:
        """The recorded configurations, in the order of the file."""
        return (dict(config) for config in self.recorded)

    def violations(self, config: Configuration) -> list[str]:
        """One reason when ``config`` was not recorded, else none."""
        return [] if config_key(config) in self._keys else ["not in the recording"]

    def samples(self, rng: random.Random) -> Iterator[dict[str, Scalar]]:
        """Recorded configurations, uniformly."""
        while True:
            yield dict(rng.choice(self.recorded))

    def nearest(self, preferred: Configuration, meter: Meter | None = None) -> dict[str, Scalar]:
        """``preferred`` if it was recorded, else the first of the file."""
        return dict(preferred if self.contains(preferred) else self.recorded[0])


@dataclass(frozen=True)
class Recording:
    """A recorded search, exhaustive or not: what is not in it counts as invalid. ``name`` identifies it.

    A configuration may be among ``trials`` more than once, some may have values that ``parameters`` do not have, as
    where a recording was made of several searches, and a value may be written otherwise than the choice that it equals:
    :attr:`known` is what counts.

    Raises :class:`RecordingError` for a number beyond 64 bits, for a time that nothing takes, and where there are no
    parameters or no configuration of the space was measured."""

    name: str
    device_name: str
    kernel_name: str
    parameters: tuple[Parameter, ...]
    trials: tuple[RecordedTrial, ...]

    def __post_init__(self) -> None:
        if not self.parameters:
            raise RecordingError("it names no parameters")
        for parameter in self.parameters:
            if any(not isinstance(value, str) and abs(value) > MOST_INTEGER for value in parameter.choices):
                raise RecordingError(f"a value of {parameter.name!r} is beyond 64 bits")
        for trial in self.trials:
            for time in (trial.time_ns, *trial.samples_ns):
                if time is not None and not 0 < time <= MOST_INTEGER:
                    raise RecordingError(f"the configuration {config_key(trial.config)} took {time:g} ns")
        if all(trial.time_ns is None for trial in self.trials):
            raise RecordingError("no configuration in it was measured")
        if all(trial.time_ns is None for trial in self.known):
            raise RecordingError("none of its configurations has values that its parameters have")

    @cached_property
    def known(self) -> tuple[RecordedTrial, ...]:
        """The configurations of the space, each once: of several trials of one all timings count, and a failure only
        where none worked."""
        found: dict[str, list[RecordedTrial]] = {}
        for trial in self.trials:
            chosen = {p.name: _equal_choice(p, trial.config.get(p.name)) for p in self.parameters}
            config = {name: choice for name, choice in chosen.items() if choice is not None}
            if len(config) == len(chosen):
                found.setdefault(config_key(config), []).append(replace(trial, config=config))
        return tuple(map(_together, found.values()))

    @cached_property
    def best_ns(self) -> float:
        """The best mean time of the configurations of the space, in ns."""
        return min(trial.time_ns for trial in self.known if trial.time_ns is not None)

    @cached_property
    def _by_key(self) -> dict[str, RecordedTrial]:
        return {config_key(trial.config): trial for trial in self.known}

    def space(self, convention: Convention) -> Space:
        """What a strategy may propose: the whole product ("charged": an invalid point costs an evaluation) or only
        what was recorded ("constrained"). Scores of the two conventions must never be mixed."""
        if convention == "charged":
            return Space(self.parameters)
        return RecordedSpace(self.parameters, recorded=tuple(t.config for t in self.known))

    def time_ns(self, config: Configuration) -> float | None:
        """The mean time of ``config``; None if it is not recorded or failed."""
        trial = self._by_key.get(config_key(config))
        return None if trial is None else trial.time_ns

    def sample_ns(self, config: Configuration, rng: random.Random) -> float | None:
        """One of the recorded timings of ``config`` at random; its mean where only that is recorded."""
        trial = self._by_key.get(config_key(config))
        if trial is None or trial.time_ns is None:
            return None
        return rng.choice(trial.samples_ns) if trial.samples_ns else trial.time_ns

    def outcome(self, config: Configuration) -> Outcome:
        """What measuring ``config`` gave."""
        trial = self._by_key.get(config_key(config))
        if trial is None:
            return Outcome(None, "invalid")
        return Outcome(trial.time_ns, "ok" if trial.time_ns is not None else "failed", trial.measurement)


def _equal_choice(parameter: Parameter, value: Scalar | None) -> Scalar | None:
    """The choice that a value stands for: itself, else the only one that is equal, as 1 is to 1.0; None if none is."""
    equal = [choice for choice in parameter.choices if choice == value]
    same = [choice for choice in equal if type(choice) is type(value)]
    return same[0] if same else equal[0] if len(equal) == 1 else None


def _together(trials: Sequence[RecordedTrial]) -> RecordedTrial:
    """What several trials of one configuration say."""
    timed = [(trial.time_ns, trial) for trial in trials if trial.time_ns is not None]
    if len(timed) < 2:
        return timed[0][1] if timed else trials[0]
    samples = [sample for time, trial in timed for sample in (trial.samples_ns or (time,))]
    return RecordedTrial(
        trials[0].config, statistics.fmean(samples), tuple(samples), measurement=timed[0][1].measurement
    )
