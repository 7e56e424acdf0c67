"""Recorded searches: scoring strategies on exhaustive measurements of real GPUs, without a GPU.

Reads cache files of Kernel Tuner: ``tune_params_keys``, ``tune_params {name: [values]}`` and ``cache {"v1,v2,...":
{name: value ..., "time": ms or the name of an error, "times": [ms ...]}}``; the key joins the values in the order of
``tune_params_keys``. A point of the product that is absent was rejected by the constraints of the recorded space.
"""

from __future__ import annotations

import gzip
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, TypeAlias

from deuteron.tuner.codec import Document, Finite, JsonObject, Scalar, convert, decode
from deuteron.tuner.errors import SchemaError, TunerError
from deuteron.tuner.space import Configuration, Parameter, Space, config_key
from deuteron.tuner.strategies import Outcome, make_strategy

Convention: TypeAlias = Literal["charged", "constrained"]

NS_PER_MS = 1e6


class RecordingError(TunerError):
    """A recorded search (Kernel Tuner cache file) cannot be read."""


@dataclass(frozen=True)
class RecordedTrial:
    """One recorded configuration. ``time_ns`` is the mean of ``samples_ns``, None if it failed with ``error``."""

    config: Mapping[str, Scalar]
    time_ns: float | None
    samples_ns: tuple[float, ...] = ()
    error: str | None = None


class RecordedSpace(Space, frozen=True):
    """A space whose constraints are not known as expressions: a configuration is valid if it was recorded."""

    recorded: tuple[Mapping[str, Scalar], ...] = ()

    @cached_property
    def _keys(self) -> frozenset[str]:
        return frozenset(map(config_key, self.recorded))

    def count(self, limit: int | None = None) -> int | None:
        """Number of recorded configurations; None when above ``limit``."""
        return None if limit is not None and len(self.recorded) > limit else len(self.recorded)

    def configurations(self) -> Iterator[dict[str, Scalar]]:
        """The recorded configurations, in the order of the file."""
        return (dict(config) for config in self.recorded)

    def violations(self, config: Configuration) -> list[str]:
        """One reason when ``config`` was not recorded, else none."""
        return [] if config_key(config) in self._keys else ["not in the recording"]

    def sample(self, rng: random.Random) -> dict[str, Scalar]:
        """A recorded configuration, uniformly."""
        return dict(rng.choice(self.recorded))

    def nearest(self, preferred: Configuration) -> dict[str, Scalar]:
        """``preferred`` if it was recorded, else the first of the file."""
        return dict(preferred if self.contains(preferred) else self.recorded[0])


@dataclass(frozen=True)
class Recording:
    """An exhaustive search that somebody recorded."""

    device_name: str
    kernel_name: str
    parameters: tuple[Parameter, ...]
    trials: tuple[RecordedTrial, ...]

    @cached_property
    def best_ns(self) -> float:
        """The best mean time of all configurations, in ns."""
        return min(trial.time_ns for trial in self.trials if trial.time_ns is not None)

    @cached_property
    def _by_key(self) -> dict[str, RecordedTrial]:
        return {config_key(trial.config): trial for trial in self.trials}

    def space(self, convention: Convention) -> Space:
        """What a strategy may propose: the whole product ("charged": an invalid point costs an evaluation) or only
        what was recorded ("constrained"). Scores of the two conventions must never be mixed."""
        if convention == "charged":
            return Space(self.parameters)
        return RecordedSpace(self.parameters, recorded=tuple(t.config for t in self.trials))

    def outcome(self, config: Configuration) -> Outcome:
        """What measuring ``config`` gave."""
        trial = self._by_key.get(config_key(config))
        if trial is None:
            return Outcome(None, "invalid")
        return Outcome(trial.time_ns, "ok" if trial.time_ns is not None else "failed")


class _CacheFile(Document, frozen=True):
    """The part of a cache file that is read."""

    device_name: str
    kernel_name: str
    tune_params_keys: tuple[str, ...]
    tune_params: dict[str, tuple[Scalar, ...]]
    cache: dict[str, JsonObject]


class _CacheEntry(Document, frozen=True):
    """One measurement: a time in ms, or the name of an error."""

    time: Finite | str
    times: tuple[Finite, ...] | None = None


def read_kernel_tuner(path: Path) -> Recording:
    """Read a cache file, gzipped or not, finished or cut off after an entry; raises :class:`RecordingError`."""
    try:
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        file = decode(_closed(raw), _CacheFile, str(path))
        names = file.tune_params_keys
        parameters = tuple(Parameter(name, file.tune_params[name]) for name in names)
        trials = tuple(_read_trial(value, f"{path}.cache.{key}", names) for key, value in file.cache.items())
    except (OSError, EOFError) as error:
        raise RecordingError(f"{path}: cannot be read: {error}") from None
    except (SchemaError, KeyError) as error:
        raise RecordingError(
            f"{path}: not a Kernel Tuner cache file: {error}",
            hint="expected the keys tune_params_keys, tune_params and cache",
        ) from None
    recording = Recording(file.device_name, file.kernel_name, parameters, trials)
    if all(trial.time_ns is None for trial in recording.trials):
        raise RecordingError(f"{path}: no configuration in it was measured")
    return recording


def _closed(raw: bytes) -> bytes:
    """The text with its closing braces: a search that was interrupted leaves ``{..., "cache": {..., `` behind."""
    text = raw.rstrip()
    return (
        text
        if text.endswith(b"}") and text[:-1].rstrip().endswith(b"}") and _balanced(text)
        else (text.rstrip(b",") + b"}}")
    )


def _balanced(text: bytes) -> bool:
    return text.count(b"{") == text.count(b"}")


def _read_trial(value: JsonObject, where: str, names: Sequence[str]) -> RecordedTrial:
    config = convert({name: value[name] for name in names}, dict[str, Scalar], where)
    entry = _CacheEntry.from_json(value, where)
    if isinstance(entry.time, str):
        return RecordedTrial(config, None, error=entry.time)
    mean_ms = statistics.fmean(entry.times) if entry.times else entry.time
    return RecordedTrial(config, mean_ms * NS_PER_MS, tuple(ms * NS_PER_MS for ms in entry.times or ()))


def best_so_far(
    recording: Recording, strategy: str, seed: int, evaluations: int, convention: Convention
) -> list[float]:
    """The fraction of the optimum (best possible time / best time found, 0 before the first success) after each of
    ``evaluations`` evaluations of one search."""
    search = make_strategy(strategy, recording.space(convention), seed)
    best, curve = float("inf"), []
    for _ in range(evaluations):
        config = search.ask()
        if config is not None:
            outcome = recording.outcome(config)
            search.tell(config, outcome)
            best = min(best, float("inf") if outcome.value is None else outcome.value)
        curve.append(recording.best_ns / best)
    return curve


def score(
    recording: Recording,
    strategy: str,
    *,
    convention: Convention,
    evaluations: Sequence[int] = (25, 50, 100, 200, 400),
    seeds: Sequence[int] = tuple(range(50)),
) -> dict[int, float]:
    """Mean fraction of the optimum over ``seeds``, at each number of evaluations."""
    curves = [best_so_far(recording, strategy, seed, max(evaluations), convention) for seed in seeds]
    return {n: statistics.fmean(curve[n - 1] for curve in curves) for n in evaluations}
