"""Files of Kernel Tuner: caches of searches, and the T4 format that other tuners write, too.

A cache has ``tune_params_keys``, ``tune_params {name: [values]}`` and ``cache {"v1,v2,...": {name: value ..., "time":
ms or the name of an error, "times": [ms ...]}}``, or ``"__error__"`` in place of a time; its keys join the values in
the order of ``tune_params_keys``. What is absent from it was rejected by the constraints of the recorded space. T4 has
a list ``results``, each with ``configuration``, ``invalidity``, ``times.runtimes`` and ``measurements``; choices are
what occurs in it.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import field

from ..codec import Document, Finite, JsonObject, Scalar, convert, decode
from ..errors import SchemaError
from ..space import Parameter, config_key
from .recording import RecordedTrial, Recording, RecordingError

NS_PER_MS = 1e6
#: What Kernel Tuner wrote as the time of what failed before it had error classes, in ms.
FAILED_MS = 1e20
#: What T4 files say of the unit of their times; a file that says nothing means milliseconds.
NS_PER_UNIT = {"nanoseconds": 1.0, "microseconds": 1e3, "milliseconds": 1e6, "miliseconds": 1e6, "seconds": 1e9}

#: The objective of searches for the fastest configuration, which those are that say none.
_TIME = "time"


class _CacheFile(Document, frozen=True):
    """The part of a cache file that is read."""

    tune_params_keys: tuple[str, ...]
    tune_params: dict[str, tuple[Scalar, ...]]
    cache: dict[str, JsonObject]
    device_name: str = ""
    kernel_name: str = ""
    objective: str = _TIME


class _CacheEntry(Document, frozen=True):
    """One measurement: a time in ms, or the name of an error, in place of the time or in a field of its own."""

    time: Finite | str | None = None
    times: tuple[Finite, ...] | None = None
    error: str | None = field(default=None, name="__error__")


class _T4Metadata(Document, frozen=True):
    timeunit: str = "milliseconds"
    device: str = ""


class _T4Times(Document, frozen=True):
    runtimes: tuple[Finite, ...] = ()


class _T4Measurement(Document, frozen=True):
    name: str
    value: Finite | str | list[object]


class _T4Result(Document, frozen=True):
    configuration: dict[str, Scalar]
    invalidity: str = "correct"
    times: _T4Times = field(default_factory=_T4Times)
    measurements: tuple[_T4Measurement, ...] = ()


class _T4File(Document, frozen=True):
    results: tuple[_T4Result, ...]
    metadata: _T4Metadata = field(default_factory=_T4Metadata)


def recording_name(path: Path) -> str:
    """The file's name without its endings."""
    return path.name.removesuffix(".gz").removesuffix(".json")


def observed_parameters(configs: Sequence[Mapping[str, Scalar]]) -> tuple[Parameter, ...]:
    """Parameters whose choices are the values that occur: numbers ascending, others as they come. Raises
    :class:`RecordingError` where one configuration has no value of another's parameter."""
    parameters = []
    for name in dict.fromkeys(name for config in configs for name in config):
        if not all(name in config for config in configs):
            raise RecordingError(f"some configurations have no value of {name!r}")
        found: dict[str, Scalar] = {config_key({name: config[name]}): config[name] for config in configs}
        values = list(found.values())
        numbers = [value for value in values if not isinstance(value, str)]
        if len(numbers) == len(values):
            values = [*sorted(numbers)]
        parameters.append(Parameter(name, tuple(values)))
    return tuple(parameters)


def cache_recording(text: bytes, path: Path) -> Recording:
    """The recording of a cache, which may be cut off after an entry; ``path`` names it. Raises RecordingError,
    SchemaError and SpaceError."""
    file = decode(_closed(text), _CacheFile, str(path))
    if file.objective != _TIME:
        raise RecordingError(f"its objective is {file.objective!r}", hint=f"the least {_TIME} is what is replayed")
    names = file.tune_params_keys
    for name in names:
        if name not in file.tune_params:
            raise RecordingError(f"tune_params has no values of {name!r}, which is in tune_params_keys")
    parameters = tuple(Parameter(name, file.tune_params[name]) for name in names)
    trials = tuple(_read_trial(value, f"{path}.cache.{key}", names) for key, value in file.cache.items())
    return Recording(recording_name(path), file.device_name, file.kernel_name, parameters, trials)


def _read_trial(value: JsonObject, where: str, names: Sequence[str]) -> RecordedTrial:
    for name in names:
        if name not in value:
            raise SchemaError(f"{where}: the field {name!r} is missing")
    config = convert({name: value[name] for name in names}, dict[str, Scalar], where)
    entry = _CacheEntry.from_json(value, where)
    if entry.error is not None or isinstance(entry.time, str):
        return RecordedTrial(config, None, error=entry.error or str(entry.time))
    if entry.time == FAILED_MS:
        return RecordedTrial(config, None, error="failed")
    if entry.time is None:
        raise SchemaError(f"{where}: the field 'time' is missing")
    mean_ms = statistics.fmean(entry.times) if entry.times else entry.time
    return RecordedTrial(config, mean_ms * NS_PER_MS, tuple(ms * NS_PER_MS for ms in entry.times or ()))


def t4_recording(text: bytes, path: Path) -> Recording:
    """The recording of a T4 file; ``path`` names it. Raises RecordingError, SchemaError and SpaceError."""
    file = decode(text, _T4File, str(path))
    unit = NS_PER_UNIT.get(file.metadata.timeunit)
    if unit is None:
        raise SchemaError(f"{path}.metadata.timeunit: {file.metadata.timeunit!r} is none of {', '.join(NS_PER_UNIT)}")
    parameters = observed_parameters([result.configuration for result in file.results])
    trials = tuple(_read_result(result, unit, str(path)) for result in file.results)
    return Recording(recording_name(path), file.metadata.device, "", parameters, trials)


def _read_result(result: _T4Result, unit: float, where: str) -> RecordedTrial:
    if result.invalidity != "correct":
        return RecordedTrial(result.configuration, None, error=result.invalidity)
    samples = tuple(unit * time for time in result.times.runtimes)
    if samples:
        return RecordedTrial(result.configuration, statistics.fmean(samples), samples)
    for measurement in result.measurements:
        if measurement.name == "time" and isinstance(measurement.value, float | int):
            return RecordedTrial(result.configuration, unit * measurement.value)
    raise SchemaError(f"{where}: a result that is correct has neither runtimes nor a measurement of time")


def _closed(raw: bytes) -> bytes:
    """The text with its closing braces: a search that was interrupted leaves ``{..., "cache": {..., `` behind. What is
    no JSON with them either is as it was, so that messages say its places."""
    closed = raw.rstrip().rstrip(b",") + b"}}"
    return closed if not _is_json(raw) and _is_json(closed) else raw


def _is_json(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return True
