"""Our own journals as recordings: what a search of this tuner measured can be searched again."""

from __future__ import annotations

from pathlib import Path

from ..errors import SchemaError
from ..events import JobStarted, TrialFinished
from ..job import shape_key, task_key
from ..journal import FILE_NAME, read_events
from .kernel_tuner import observed_parameters
from .recording import RecordedTrial, Recording, RecordingError


def read_journal(path: Path) -> list[Recording]:
    """A recording for each shape and dtype of a journal (the file, or the folder that has it), made of the screened
    trials. Raises :class:`RecordingError`."""
    path = path / FILE_NAME if path.is_dir() else path
    try:
        events = list(read_events(path))
    except OSError as error:
        raise RecordingError(f"{path}: cannot be read: {error.strerror}") from None
    except SchemaError as error:
        raise RecordingError(f"{path}: not a journal: {error.message}", hint=error.hint) from None
    started = next((event for event in events if isinstance(event, JobStarted)), None)
    device, kernel = (started.device, started.kernel_name) if started else ("", "")
    tasks: dict[str, list[TrialFinished]] = {}
    for event in events:
        if isinstance(event, TrialFinished) and event.trial.phase == "screen":
            tasks.setdefault(task_key(event.shape, event.dtype), []).append(event)
    try:
        recordings = [_recording(task, device, kernel) for task in tasks.values()]
    except RecordingError as error:
        raise RecordingError(f"{path}: {error.message}", hint=error.hint) from None
    if not recordings:
        raise RecordingError(f"{path}: no shape in it has a configuration that worked")
    return recordings


def _recording(task: list[TrialFinished], device: str, kernel: str) -> Recording:
    name = f"{kernel} {shape_key(task[0].shape)} {task[0].dtype}"
    trials = tuple(
        RecordedTrial(
            t.config, None if t.time_ns is None else t.time_ns.median, error=t.error, measurement=t.measurement
        )
        for t in (event.trial for event in task)
    )
    parameters = observed_parameters([trial.config for trial in trials])
    try:
        return Recording(name, device, kernel, parameters, trials)
    except RecordingError as error:
        raise RecordingError(f"{name}: {error.message}") from None
