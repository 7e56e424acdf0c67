"""Result files of KTT, the Kernel Tuning Toolkit (2.1, JSON).

``Metadata`` names the device and the unit of all times. Each of ``Results`` has a ``Configuration`` (a list of names
and values), a ``Status``, and a ``TotalDuration``: of its kernels, without compiling, copying and checking. Choices are
what occurs, and what is absent was rejected by constraints.
"""

from __future__ import annotations

from pathlib import Path

from ..codec import Document, Finite, Scalar, decode
from ..errors import SchemaError
from .kernel_tuner import NS_PER_UNIT, observed_parameters, recording_name
from .recording import RecordedTrial, Recording


class _Value(Document, frozen=True, rename="pascal"):
    name: str
    value: Scalar


class _Result(Document, frozen=True, rename="pascal"):
    configuration: tuple[_Value, ...]
    status: str
    total_duration: Finite
    kernel_name: str = ""


class _Metadata(Document, frozen=True, rename="pascal"):
    time_unit: str
    device: str = ""


class _File(Document, frozen=True, rename="pascal"):
    metadata: _Metadata
    results: tuple[_Result, ...]


def ktt_recording(text: bytes, path: Path) -> Recording:
    """The recording of a result file; ``path`` names it. Raises RecordingError, SchemaError and SpaceError."""
    file = decode(text, _File, str(path))
    unit = NS_PER_UNIT.get(file.metadata.time_unit.lower())
    if unit is None:
        units = ", ".join(name.capitalize() for name in NS_PER_UNIT)
        raise SchemaError(f"{path}.Metadata.TimeUnit: {file.metadata.time_unit!r} is none of {units}")
    trials = tuple(_trial(result, unit) for result in file.results)
    kernel = file.results[0].kernel_name if file.results else ""
    parameters = observed_parameters([trial.config for trial in trials])
    return Recording(recording_name(path), file.metadata.device, kernel, parameters, trials)


def _trial(result: _Result, unit: float) -> RecordedTrial:
    config = {value.name: value.value for value in result.configuration}
    if result.status != "Ok":
        return RecordedTrial(config, None, error=result.status)
    return RecordedTrial(config, unit * result.total_duration)
